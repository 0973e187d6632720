//! Conformance of every engine to the contract of `haul_datapath`.
//!
//! Each sender meets each receiver, over spans that are awkward, with a tap and without.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{collections::BTreeMap, os::unix::fs::FileExt, path::Path, sync::Arc};

use haul_datapath::{EngineInfo, FileSpan, Remedy, SpanFile, StageTimes, engines};
use haul_testkit::{
    content,
    seed::{Random, Seed},
    skip::skip,
};

mod stream;

use stream::{
    Outcome, SocketBuffers, Tapped, check_all_done, directories, file_in, receivers, run, senders,
    span,
};

fn read_write() -> &'static EngineInfo {
    engines::find("read-write").unwrap()
}

/// An engine with another behind it, so that a host which lacks something can run the suite.
fn or_read_write(info: &'static EngineInfo) -> Vec<&'static EngineInfo> {
    vec![info, read_write()]
}

/// Whether two engines can be the ends of one wire.
fn meet(sender: &EngineInfo, receiver: &EngineInfo) -> bool {
    sender.wires.iter().any(|wire| receiver.wires.contains(wire))
}

/// Engines that gave up, each with where and why, for the first of its spans.
#[derive(Default)]
struct Refusals(BTreeMap<String, String>);

impl Refusals {
    fn note(&mut self, outcome: &Outcome, directory: &Path) {
        for fallback in &outcome.fallbacks {
            let needs = format!("engine {} in {}", fallback.from, directory.display());
            self.0.entry(needs).or_insert_with(|| fallback.why.clone());
        }
    }

    fn print(&self) {
        self.0.iter().for_each(|(needs, found)| skip(needs, found));
    }
}

const FILE_BYTES: u64 = 8_400_007;

/// Cuts the file into spans at awkward places, in an awkward order.
fn awkward_cuts(random: &mut Random) -> Vec<(u64, u64)> {
    let page = 4096;
    let mut cuts = vec![0, 1, page - 1, page, page + 1, 3 * page, 5 * page, 5 * page + 7];
    // One span that is larger than any call moves, unaligned at both ends.
    cuts.extend([123_457, 123_457 + 5_000_011]);
    cuts.extend((0..12).map(|_| 5_200_000 + random.below(FILE_BYTES - 5_200_000)));
    cuts.extend([FILE_BYTES]);
    cuts.sort_unstable();
    let mut spans = cuts.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect::<Vec<_>>();
    spans.push((777, 0));
    for at in (1..spans.len()).rev() {
        spans.swap(at, random.below(at as u64 + 1) as usize);
    }
    spans
}

fn spans_of(file: &Arc<SpanFile>, cuts: &[(u64, u64)]) -> Vec<FileSpan> {
    let numbered = cuts.iter().zip(100..);
    numbered.map(|((offset, len), id)| span(id, file, *offset, *len)).collect()
}

fn slice(content: &[u8], span: &FileSpan) -> Vec<u8> {
    content[span.offset_bytes as usize..][..span.len_bytes as usize].to_vec()
}

fn whole(file: &SpanFile, len_bytes: u64) -> Vec<u8> {
    let mut content = vec![0; len_bytes as usize];
    file.file().read_exact_at(&mut content, 0).unwrap();
    content
}

fn check_seen(outcome: &Outcome, spans: &[FileSpan], content: &[u8]) {
    for (seen, span) in outcome.seen.iter().zip(spans) {
        assert!(*seen == slice(content, span), "the tap of {:?} saw other bytes", span.id);
    }
}

/// Checks that an engine says how long it took for the wire, the file and the tap.
fn check_times(times: &StageTimes, tapped: Tapped, name: &str) {
    assert!(times.send_ns + times.receive_ns > 0, "{name} on the wire: {times:?}");
    assert_eq!(times.digest_ns > 0, tapped == Tapped::Yes, "{name} and its tap: {times:?}");
}

#[test]
fn every_pair_moves_every_byte_to_its_place() {
    let seed = Seed::from_env_or_random();
    let mut random = seed.random();
    let mut refusals = Refusals::default();
    for directory in directories() {
        let source = file_in(&directory);
        content::fill(&source, seed, FILE_BYTES).unwrap();
        let source = Arc::new(SpanFile::new(source));
        let content = content::bytes(seed, FILE_BYTES as usize);
        for sender in senders() {
            for receiver in receivers().into_iter().filter(|receiver| meet(sender, receiver)) {
                for tapped in [Tapped::No, Tapped::Yes] {
                    println!("{} -> {}, {tapped:?}", sender.name, receiver.name);
                    let cuts = awkward_cuts(&mut random);
                    let target = file_in(&directory);
                    if random.below(2) == 0 {
                        target.set_len(FILE_BYTES).unwrap();
                    }
                    let target = Arc::new(SpanFile::new(target));
                    let (from, into) = (spans_of(&source, &cuts), spans_of(&target, &cuts));
                    let (sent, received) = run(
                        or_read_write(sender),
                        or_read_write(receiver),
                        &from,
                        &into,
                        tapped,
                        SocketBuffers::Automatic,
                    );
                    check_all_done(&from, &sent);
                    check_all_done(&into, &received);
                    assert!(whole(&target, FILE_BYTES) == content, "the target differs");
                    assert_eq!(target.file().metadata().unwrap().len(), FILE_BYTES);
                    if tapped == Tapped::Yes {
                        check_seen(&sent, &from, &content);
                        check_seen(&received, &into, &content);
                    }
                    check_times(&sent.times, tapped, sender.name);
                    check_times(&received.times, tapped, receiver.name);
                    refusals.note(&sent, &directory);
                    refusals.note(&received, &directory);
                }
            }
        }
    }
    refusals.print();
}

#[test]
fn tiny_socket_buffers_cut_calls_short_and_lose_nothing() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let len = 2_000_003;
    let source = file_in(directory);
    content::fill(&source, seed, len).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let content = content::bytes(seed, len as usize);
    let cuts = [(0, 1_100_001), (1_100_001, len - 1_100_001)];
    let pairs = senders().into_iter().map(|sender| (sender, read_write()));
    let pairs = pairs.chain(receivers().into_iter().map(|receiver| (read_write(), receiver)));
    for (sender, receiver) in pairs {
        let target = Arc::new(SpanFile::new(file_in(directory)));
        let (from, into) = (spans_of(&source, &cuts), spans_of(&target, &cuts));
        let (send_with, receive_with) = (or_read_write(sender), or_read_write(receiver));
        let whole_pages = sender.name == "zerocopy-send";
        let buffers = if whole_pages { SocketBuffers::TinyToSend } else { SocketBuffers::Tiny };
        let (sent, received) = run(send_with, receive_with, &from, &into, Tapped::Yes, buffers);
        check_all_done(&from, &sent);
        check_all_done(&into, &received);
        assert!(whole(&target, len) == content, "{} -> {}", sender.name, receiver.name);
        check_seen(&sent, &from, &content);
    }
}

#[test]
fn a_repeating_source_comes_again_and_again() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let window = 70_001;
    let file = file_in(directory);
    content::fill(&file, seed, window).unwrap();
    let source = Arc::new(SpanFile::repeating(file, window));
    let period = content::bytes(seed, window as usize);
    let len = 3_000_000;
    let content = period.iter().copied().cycle().take(len).collect::<Vec<_>>();
    let cuts = [(0, 999_999), (2_000_000, 1_000_000), (999_999, 1_000_001)];
    for sender in senders() {
        for tapped in [Tapped::No, Tapped::Yes] {
            let target = Arc::new(SpanFile::new(file_in(directory)));
            let (from, into) = (spans_of(&source, &cuts), spans_of(&target, &cuts));
            let (sent, received) = run(
                or_read_write(sender),
                vec![read_write()],
                &from,
                &into,
                tapped,
                SocketBuffers::Automatic,
            );
            check_all_done(&from, &sent);
            check_all_done(&into, &received);
            assert!(whole(&target, len as u64) == content, "{}", sender.name);
            if tapped == Tapped::Yes {
                check_seen(&sent, &from, &content);
            }
        }
    }
}

#[test]
fn a_truncated_source_ends_its_span_at_the_very_byte_and_the_stream_lives_on() {
    let seed = Seed::from_env_or_random();
    let content = content::bytes(seed, 3_000_000);
    for directory in directories() {
        for sender in senders() {
            for (tapped, end) in
                [(Tapped::No, 1_234_567), (Tapped::Yes, 1_234_567), (Tapped::No, 0)]
            {
                let cut = file_in(&directory);
                content::fill(&cut, seed, 3_000_000).unwrap();
                cut.set_len(end).unwrap();
                let good = file_in(&directory);
                content::fill(&good, seed, 3_000_000).unwrap();
                let (cut, good) = (Arc::new(SpanFile::new(cut)), Arc::new(SpanFile::new(good)));
                let target = Arc::new(SpanFile::new(file_in(&directory)));
                let whole_cut = span(1, &cut, 0, 2_000_000);
                let from = [whole_cut, span(2, &good, 2_000_000, 1_000_000)];
                let into = [span(1, &target, 0, 2_000_000), span(2, &target, 2_000_000, 1_000_000)];
                let (sent, _) = run(
                    or_read_write(sender),
                    vec![read_write()],
                    &from,
                    &into,
                    tapped,
                    SocketBuffers::Automatic,
                );
                let name = sender.name;
                assert_eq!(sent.failed.len(), 1, "{name}");
                assert_eq!(sent.failed[0].moved_bytes, end, "{name}: {}", sent.failed[0]);
                assert_eq!(sent.done.len(), 1, "{name}");
                let arrived = whole(&target, 3_000_000);
                assert!(arrived[..end as usize] == content[..end as usize], "{name}");
                assert!(arrived[end as usize..2_000_000].iter().all(|byte| *byte == 0xEE));
                assert!(arrived[2_000_000..] == content[2_000_000..], "{name}");
            }
        }
    }
}

#[test]
fn a_source_that_grows_meanwhile_changes_nothing() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let content = content::bytes(seed, 6_000_001);
    for sender in senders() {
        let source = file_in(directory);
        content::fill(&source, seed, 6_000_001).unwrap();
        let grower = source.try_clone().unwrap();
        let source = Arc::new(SpanFile::new(source));
        let target = Arc::new(SpanFile::new(file_in(directory)));
        let growing = std::thread::spawn(move || {
            for step in 0..50 {
                grower.write_all_at(&[0xAB; 5000], 6_000_001 + step * 5000).unwrap();
            }
        });
        let cuts = [(0, 3_000_001), (3_000_001, 3_000_000)];
        let (from, into) = (spans_of(&source, &cuts), spans_of(&target, &cuts));
        let buffers = SocketBuffers::Automatic;
        let (sent, _) =
            run(or_read_write(sender), vec![read_write()], &from, &into, Tapped::Yes, buffers);
        growing.join().unwrap();
        check_all_done(&from, &sent);
        assert!(whole(&target, 6_000_001) == content, "{}", sender.name);
    }
}

/// A target that takes no byte fails for its own span only, whether its error comes at once or
/// late.
#[test]
fn a_target_that_cannot_be_written_fails_alone() {
    let seed = Seed::from_env_or_random();
    let content = content::bytes(seed, 3_000_000);
    for directory in directories() {
        let source = file_in(&directory);
        content::fill(&source, seed, 3_000_000).unwrap();
        let source = Arc::new(SpanFile::new(source));
        for receiver in receivers() {
            for tapped in [Tapped::No, Tapped::Yes] {
                let named = tempfile::NamedTempFile::new_in(&directory).unwrap();
                let unwritable = std::fs::File::open(named.path()).unwrap();
                let unwritable = Arc::new(SpanFile::new(unwritable));
                let target = Arc::new(SpanFile::new(file_in(&directory)));
                let cuts = [(0, 1_500_000), (10, 1_400_000), (1_500_000, 1_500_000)];
                let from = spans_of(&source, &cuts);
                let mut into = spans_of(&target, &cuts);
                into[1].file = unwritable.clone();
                let (sent, received) = run(
                    vec![read_write()],
                    or_read_write(receiver),
                    &from,
                    &into,
                    tapped,
                    SocketBuffers::Automatic,
                );
                let name = receiver.name;
                check_all_done(&from, &sent);
                assert_eq!(received.failed.len(), 1, "{name}");
                assert_eq!(received.failed[0].span, Some(into[1].id), "{name}");
                assert_eq!(received.failed[0].remedy, Remedy::SkipFile, "{name}");
                assert_eq!(received.done.len(), 2, "{name}: {}", received.failed[0]);
                assert!(whole(&target, 3_000_000) == content, "{name}");
            }
        }
    }
}

/// Two streams write into the same pages at the same time; neither spoils the other's bytes.
#[test]
fn neighbouring_spans_on_two_streams_share_pages() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let len = 4_000_000;
    let source = file_in(directory);
    content::fill(&source, seed, len).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let content = content::bytes(seed, len as usize);
    let all = (0..len).step_by(10_001).map(|at| (at, 10_001.min(len - at))).collect::<Vec<_>>();
    let even = all.iter().copied().step_by(2).collect::<Vec<_>>();
    let odd = all.iter().copied().skip(1).step_by(2).collect::<Vec<_>>();
    for receiver in receivers() {
        let target = Arc::new(SpanFile::new(file_in(directory)));
        std::thread::scope(|threads| {
            for cuts in [&even, &odd] {
                let (from, into) = (spans_of(&source, cuts), spans_of(&target, cuts));
                threads.spawn(move || {
                    let buffers = SocketBuffers::Automatic;
                    let (send_with, receive_with) = (vec![read_write()], or_read_write(receiver));
                    let (_, received) =
                        run(send_with, receive_with, &from, &into, Tapped::No, buffers);
                    check_all_done(&into, &received);
                });
            }
        });
        assert!(whole(&target, len) == content, "{}", receiver.name);
    }
}

#[test]
fn discard_takes_everything_and_shows_it_to_the_tap() {
    let seed = Seed::from_env_or_random();
    let source = file_in(&directories()[0]);
    content::fill(&source, seed, FILE_BYTES).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let content = content::bytes(seed, FILE_BYTES as usize);
    let sink = Arc::new(SpanFile::sink().unwrap());
    let cuts = awkward_cuts(&mut seed.random());
    let discard = engines::find("discard").unwrap();
    for tapped in [Tapped::No, Tapped::Yes] {
        let (from, into) = (spans_of(&source, &cuts), spans_of(&sink, &cuts));
        let buffers = SocketBuffers::Automatic;
        let (_, received) = run(vec![read_write()], vec![discard], &from, &into, tapped, buffers);
        check_all_done(&into, &received);
        assert!(received.fallbacks.is_empty());
        if tapped == Tapped::Yes {
            check_seen(&received, &into, &content);
        }
        let copied = received.done.iter().map(|done| done.copied_bytes).sum::<u64>();
        assert_eq!(copied, if tapped == Tapped::Yes { FILE_BYTES } else { 0 });
    }
}

#[test]
fn discard_never_throws_away_what_is_meant_for_a_file() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let source = file_in(directory);
    content::fill(&source, seed, 100_000).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let target = Arc::new(SpanFile::new(file_in(directory)));
    let (from, into) = ([span(1, &source, 0, 100_000)], [span(1, &target, 0, 100_000)]);
    let receive_with = or_read_write(engines::find("discard").unwrap());
    let buffers = SocketBuffers::Automatic;
    let (_, received) = run(vec![read_write()], receive_with, &from, &into, Tapped::No, buffers);
    check_all_done(&into, &received);
    assert_eq!(received.fallbacks.len(), 1);
    assert!(whole(&target, 100_000) == content::bytes(seed, 100_000));
}

#[test]
fn a_peer_that_is_gone_asks_for_a_new_connection() {
    use haul_datapath::fallback::{Receiver, Sender};
    let directory = &directories()[0];
    let file = file_in(directory);
    file.set_len(20_000_000).unwrap();
    let file = Arc::new(SpanFile::new(file));
    for sender in senders() {
        let automatic = SocketBuffers::Automatic;
        let (near, send_with, far, _) =
            stream::wires_for(or_read_write(sender), or_read_write(sender), automatic);
        let mut sender = Sender::open(send_with, near, &stream::host(), 4 << 20).unwrap();
        drop(far);
        let mut done = Vec::new();
        let error = sender.submit(&span(5, &file, 0, 20_000_000), None, &mut done).unwrap_err();
        assert_eq!(
            (error.remedy, error.span.map(|id| id.0)),
            (Remedy::Reconnect, Some(5)),
            "{error}"
        );
    }
    for receiver in receivers() {
        let automatic = SocketBuffers::Automatic;
        let (near, send_with, far, receive_with) =
            stream::wires_for(vec![read_write()], or_read_write(receiver), automatic);
        let mut receiver = Receiver::open(receive_with, far, &stream::host(), 4 << 20).unwrap();
        let target = Arc::new(SpanFile::new(file_in(directory)));
        let mut sender = Sender::open(send_with, near, &stream::host(), 4 << 20).unwrap();
        let mut done = Vec::new();
        sender.submit(&span(1, &file, 0, 3_000_000), None, &mut done).unwrap();
        // Its end waits until all has been read.
        let leaving = std::thread::spawn(move || drop(sender));
        let error = receiver.submit(&span(6, &target, 0, 5_000_000), None, &mut done).unwrap_err();
        assert_eq!(
            (error.remedy, error.span.map(|id| id.0)),
            (Remedy::Reconnect, Some(6)),
            "{error}"
        );
        assert_eq!(error.source.kind(), std::io::ErrorKind::UnexpectedEof);
        drop(receiver);
        leaving.join().unwrap();
    }
}

#[test]
fn the_list_is_in_order() {
    for (at, info) in engines::ENGINES.iter().enumerate() {
        assert!(info.open_send.is_some() || info.open_receive.is_some(), "{}", info.name);
        assert!(!info.wires.is_empty() && info.spans_in_flight_max > 0 && info.align_bytes > 0);
        assert!(std::ptr::eq(engines::find(info.name).unwrap(), *info), "two {}", info.name);
        assert_eq!(engines::find(info.name).map(|found| found.name), Some(info.name));
        let path = format!("src/engines/{}.rs", info.name.replace('-', "_"));
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).is_file(), "{at}: {}", info.name);
    }
}
