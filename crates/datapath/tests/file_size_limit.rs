//! Files that grow beyond the user's limit on file sizes (RLIMIT_FSIZE), in each engine.
//!
//! Such a file fails alone. A program of its own, since the limit holds for all tests of a process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;

use haul_datapath::{SpanFile, engines};
use haul_testkit::{content, seed::Seed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod stream;

use stream::{SocketBuffers, Tapped, directories, file_in, receivers, run, span};

const LIMIT: u64 = 2 << 20;
const SPAN: u64 = 1 << 20;

#[test]
fn every_engine_fails_the_spans_beyond_the_limit_and_writes_those_before_and_after() {
    haul_sys::file_size_limit::survive();
    let seed = Seed::from_env_or_random();
    let read_write = engines::find("read-write").unwrap();
    for directory in directories() {
        let source = file_in(&directory);
        content::fill(&source, seed, 4 * SPAN).unwrap();
        let source = Arc::new(SpanFile::new(source));
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum }).unwrap();
        for receiver in receivers().into_iter().filter(|info| info.takes_tcp()) {
            let (target, other) = (file_in(&directory), file_in(&directory));
            let (target, other) = (Arc::new(SpanFile::new(target)), Arc::new(SpanFile::new(other)));
            // The second crosses the limit, the third lies beyond it.
            let at = [0, SPAN + SPAN / 2, 3 * SPAN];
            let mut from: Vec<_> =
                (1..4).zip(at).map(|(n, at)| span(n, &source, at, SPAN)).collect();
            let mut into: Vec<_> =
                (1..4).zip(at).map(|(n, at)| span(n, &target, at, SPAN)).collect();
            from.push(span(4, &source, SPAN, SPAN));
            into.push(span(4, &other, SPAN, SPAN));
            let candidates = vec![receiver, read_write];
            let (_, received) = run(
                vec![read_write],
                candidates,
                &from,
                &into,
                Tapped::Yes,
                SocketBuffers::Automatic,
            );
            let name = format!("{} in {}", receiver.name, directory.display());
            let mut failed: Vec<u64> = received.failed.iter().map(|e| e.span.unwrap().0).collect();
            failed.sort_unstable();
            failed.dedup();
            let mut done: Vec<u64> = received.done.iter().map(|done| done.id.0).collect();
            done.sort_unstable();
            assert_eq!((done, failed), (vec![1, 4], vec![2, 3]), "{name}");
            let too_large = rustix::io::Errno::FBIG.raw_os_error();
            for error in received.failed {
                assert_eq!(error.source.raw_os_error(), Some(too_large), "{name}: {error}");
            }
            assert!(target.file().metadata().unwrap().len() <= LIMIT, "{name}");
        }
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
    }
}
