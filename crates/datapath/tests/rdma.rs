//! RDMA endpoints as a wire: what the engine on them says of each span, and of what has come.
//! Without the feature this is one test that is skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[cfg(feature = "fabric")]
mod stream;

#[cfg(not(feature = "fabric"))]
#[test]
fn spans_over_endpoints() {
    haul_testkit::skip::skip("libfabric-dev 1.17 or newer, and pkg-config", "a build without them");
}

#[cfg(feature = "fabric")]
mod pairs {
    use std::{
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };

    use haul_datapath::{
        Boundary, SpanFile, Wait, engines,
        fallback::{Receiver, Sender},
    };
    use haul_testkit::{content, seed::Seed};

    use crate::stream::{BUFFERS, SocketBuffers, directories, file_in, host, span, wires_for};

    const LONG: Duration = Duration::from_secs(20);

    /// An engine on each end of a pair with little or much memory.
    fn ends(buffers: SocketBuffers) -> (Sender, Receiver) {
        let engine = || vec![&engines::fabric::INFO];
        let (near, send_with, far, receive_with) = wires_for(engine(), engine(), buffers);
        let sender = Sender::open(send_with, near, &host(), BUFFERS).unwrap();
        (sender, Receiver::open(receive_with, far, &host(), BUFFERS).unwrap())
    }

    /// Lets the peer leave while it waits for this one to read everything.
    fn leave(sender: Sender, receiver: Receiver) {
        let leaving = thread::spawn(move || drop(sender));
        drop(receiver);
        leaving.join().unwrap();
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "never: {what}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_pair_says_whether_something_has_come() {
        let (mut sender, mut receiver) = ends(SocketBuffers::Automatic);
        assert_eq!(receiver.has_come(), Some(false));
        sender.send_bytes(&[1, 2, 3], Boundary::Flush).unwrap();
        until("three bytes have come", || receiver.has_come() == Some(true));
        let mut came = [0; 2];
        receiver.receive_bytes(&mut came).unwrap();
        assert_eq!(receiver.has_come(), Some(true), "one byte is left");
        receiver.receive_bytes(&mut came[..1]).unwrap();
        assert_eq!((receiver.has_come(), came), (Some(false), [3, 2]));
        leave(sender, receiver);
    }

    /// Case of frames that would wait for more while their peer waits for them.
    #[test]
    fn what_is_flushed_comes_and_what_more_follows_waits_with_it() {
        let (mut sender, mut receiver) = ends(SocketBuffers::Automatic);
        sender.send_bytes(b"waits ", Boundary::MoreFollows).unwrap();
        sender.reap(Wait::DontBlock, &mut Vec::new()).unwrap();
        assert_eq!(receiver.has_come(), Some(false));
        sender.send_bytes(b"comes", Boundary::Flush).unwrap();
        let mut came = [0; 11];
        receiver.receive_bytes(&mut came).unwrap();
        assert_eq!(&came, b"waits comes");
        leave(sender, receiver);
    }

    #[test]
    fn every_byte_of_a_span_is_counted_as_copied_where_the_kernel_copies() {
        let seed = Seed::from_env_or_random();
        let directory = &directories()[0];
        let (len, short) = (3_000_017, 1_000);
        let source = file_in(directory);
        content::fill(&source, seed, len).unwrap();
        let source = Arc::new(SpanFile::new(source));
        let target = Arc::new(SpanFile::new(file_in(directory)));
        let (mut sender, mut receiver) = ends(SocketBuffers::Automatic);
        let sending = thread::spawn(move || {
            let mut done = Vec::new();
            // Out of windows, and the second one through a buffer.
            sender.submit(&span(1, &source, 0, len), None, &mut done).unwrap();
            sender.submit(&span(2, &source, 9, short), None, &mut done).unwrap();
            sender.reap(Wait::ForAll, &mut done).unwrap();
            let times = sender.stage_times();
            assert!(times.send_ns > 0 && times.digest_ns == 0, "{times:?}");
            let figures = sender.fabric_figures().unwrap().end;
            assert_eq!((figures.window_bytes, figures.copied_bytes), (len, short));
            (sender, done)
        });
        let mut done = Vec::new();
        receiver.submit(&span(1, &target, 0, len), None, &mut done).unwrap();
        receiver.submit(&span(2, &target, len, short), None, &mut done).unwrap();
        receiver.reap(Wait::ForAll, &mut done).unwrap();
        assert_eq!(receiver.spans_in_flight(), 0);
        let figures = receiver.fabric_figures().unwrap();
        assert_eq!(figures.end.buffered_bytes, len + short);
        assert_eq!(figures.direct_bytes + figures.cached_bytes, len + short, "{figures:?}");
        // What is not a whole page goes through the page cache.
        assert!(figures.cached_bytes > short, "{figures:?}");
        let (sender, sent) = sending.join().unwrap();
        for mut done in [sent, done] {
            done.sort_unstable_by_key(|one| one.id.0);
            let figures = done.iter().map(|one| (one.id.0, one.moved_bytes, one.copied_bytes));
            assert_eq!(figures.collect::<Vec<_>>(), [(1, len, len), (2, short, short)]);
        }
        leave(sender, receiver);
    }
}
