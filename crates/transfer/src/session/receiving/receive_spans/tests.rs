//! Tests of a receiving stream: what it writes, what it believes, and what a file's fault costs.

use super::*;
use crate::{
    file_options::FileOptions,
    session::{
        engine_orders::Order,
        receiving::{
            start::Begun,
            with_sender::{DataStream, SPAN, Session, offer},
            without_peer,
        },
        role::Role,
    },
    storage::target_place::TargetPlace,
};
use haul_datapath::{EngineInfo, engines};
use haul_protocol::{
    Message,
    message::{Answer as Said, FileSettled},
    receiver::Answer,
};
use haul_testkit::{content, seed::Seed, skip::skip};
use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    thread,
    time::Duration,
};

#[cfg(feature = "fabric")]
mod by_rdma;

/// Bytes of a span beside its payload.
const FRAME: u64 = (HEADER_BYTES + TRAILER_BYTES) as u64;
const WHOLE: PayloadStatus = PayloadStatus::Whole;

fn bytes(len_bytes: u64) -> Vec<u8> {
    content::bytes(Seed(len_bytes), len_bytes as usize)
}

#[test]
fn a_key_ends_on_its_own_private_stream_and_not_before_it_protected_anything() {
    let left = |is_own, consumed_bytes| match end_of_key(is_own, consumed_bytes) {
        Leave::Broken(StreamError::Renewal) => "another stream".to_owned(),
        Leave::Broken(error) => error.to_string(),
        Leave::Orderly => "the end".to_owned(),
    };
    let header = HEADER_BYTES as u64;
    assert_eq!(left(true, header + FRAME + 1), "another stream");
    assert!(left(true, header).contains("protected nothing"));
    assert!(left(false, header + FRAME + 1).contains("not private"));
}

/// Opens an empty file that is gone with the test, for reading and writing.
fn file() -> Arc<SpanFile> {
    Arc::new(SpanFile::new(tempfile::tempfile_in(".").unwrap()))
}

fn content_of(file: &SpanFile) -> Vec<u8> {
    let mut content = vec![0; file.file().metadata().unwrap().len() as usize];
    file.file().read_exact_at(&mut content, 0).unwrap();
    content
}

/// Has the session ask for all of a file, for which a stream finds this target.
fn expect(
    begun: &Begun<'_>,
    number: u32,
    (size_bytes, span_bytes): (u64, u64),
    to: &Arc<SpanFile>,
) {
    let (shared, file) = (&begun.context.shared, FileId(number));
    let grid = SpanGrid::new(size_bytes, span_bytes).unwrap();
    let name = format!("file{number}");
    let mut machine = lock(&shared.machine);
    machine.handle(Message::FileOffer(offer(number, &name, size_bytes))).unwrap();
    let durable = haul_protocol::SpanSet::new(grid.count());
    let (stored_as, earlier) = (Vec::new(), Default::default());
    machine.answer(file, Answer::Need { span_bytes, durable, stored_as, earlier }).unwrap();
    drop(machine);
    let target = Target {
        name: name.into_bytes(),
        file: Some(to.clone()),
        shared: Arc::default(),
        is_whole: false,
        is_light: false,
        is_journaled: false,
        grid,
    };
    lock(&shared.targets).insert(file, target);
}

/// How a stream ended, and its last figures.
type Ran = (Result<(), StreamError>, StreamFigures);

/// Runs a receiving stream beside the sender's end of it, which is dropped then.
fn run_stream(
    begun: &Begun<'_>,
    engines: &[&'static EngineInfo],
    send: impl FnOnce(&mut DataStream),
) -> Ran {
    let shared = begun.context.shared.clone();
    let (mut ours, theirs) = DataStream::open(0, &shared.setup);
    lock(&shared.machine).stream_opened(ours.stream).unwrap();
    let figures = Arc::new(Lock::new(StreamFigures::default()));
    let chosen = Chosen { candidates: engines.to_vec(), ..Chosen::last_resort() };
    let (stream, of_thread) = (ours.stream, figures.clone());
    let thread = thread::spawn(move || run(&shared, stream, theirs.into(), &chosen, &of_thread));
    send(&mut ours);
    drop(ours);
    let ended = thread.join().unwrap();
    let figures = lock(&figures).clone();
    (ended, figures)
}

const READ_WRITE: &[&EngineInfo] = &[&engines::read_write::INFO];
/// Writes behind, where the host has io_uring.
const WITH_RING: &[&EngineInfo] = &[&engines::io_uring::INFO, &engines::read_write::INFO];

/// Spans that were acknowledged, and those that were said to be bad, by file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    verified: Vec<(u32, u32)>,
    bad: Vec<(u32, u32)>,
}

fn heard(begun: &Begun<'_>) -> Heard {
    let mut machine = lock(&begun.context.shared.machine);
    let mut heard = Heard::default();
    for message in std::iter::from_fn(|| machine.poll_message()) {
        match message {
            Message::SpansVerified(it) => {
                let spans = it.spans.iter().flat_map(|run| run.first.0..run.first.0 + run.count);
                heard.verified.extend(spans.map(|span| (it.file.0, span)));
            }
            Message::SpanBad(it) => heard.bad.push((it.file.0, it.span.0)),
            _ => {}
        }
    }
    heard
}

#[test]
fn spans_are_written_where_they_belong_and_all_of_a_stream_is_counted() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let (to, payload) = (file(), bytes(2 * SPAN + 100));
    expect(&begun, 0, (payload.len() as u64, SPAN), &to);
    let waited = Duration::from_millis(60);
    let (ended, figures) = run_stream(&begun, READ_WRITE, |stream| {
        thread::sleep(waited);
        for span in [2, 0, 1] {
            let offset = span * SPAN;
            let part = &payload[offset as usize..payload.len().min((offset + SPAN) as usize)];
            let span = stream.span(0, offset, part, WHOLE);
            stream.write(&span);
        }
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&to), payload);
    let all = Heard { verified: vec![(0, 0), (0, 1), (0, 2)], bad: Vec::new() };
    assert_eq!(heard(&begun), all);
    let len = payload.len() as u64;
    assert_eq!(begun.context.shared.verified_bytes.load(Ordering::Relaxed), len);
    assert_eq!((figures.payload_bytes, figures.copied_bytes), (len, len));
    assert_eq!(figures.consumed_bytes, len + 3 * FRAME + HEADER_BYTES as u64);
    assert_eq!((figures.unsettled_bytes, figures.in_span), (0, false));
    assert_eq!(figures.engines, ["read-write"]);
    let least_ns = waited.as_nanos() as u64 / 2;
    assert!(figures.idle_ns > least_ns && figures.wall_ns >= figures.idle_ns, "{figures:?}");
    assert!(figures.cpu_ns > 0 && figures.updated_at.is_some());
}

/// Why a stream ended, and how often a breach of the protocol was told.
fn end_after(send: impl FnOnce(&mut DataStream)) -> (StreamError, usize) {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let why = run_stream(&begun, READ_WRITE, send).0.unwrap_err();
    let events = begun.context.shared.streams.take_events();
    let is_breach = |event: &&StreamEvent| matches!(event, StreamEvent::Violated { .. });
    (why, events.iter().filter(is_breach).count())
}

#[test]
fn a_stream_that_is_cut_is_not_at_its_end_and_what_may_not_stand_there_is_told() {
    let (why, breaches) = end_after(|_| {});
    assert!(matches!(why, StreamError::Closed) && breaches == 0, "{why:?}");
    let (why, breaches) = end_after(|stream| {
        let end = stream.end_of(stream.stream);
        stream.write(&end[..HEADER_BYTES / 2]);
    });
    assert!(matches!(why, StreamError::Engine(_)) && breaches == 0, "{why:?}");
    let (why, breaches) = end_after(|stream| {
        let end = stream.end_of(StreamId(1));
        stream.write(&end);
    });
    assert!(matches!(why, StreamError::Protocol(_)) && breaches == 1, "{why:?}");
    let (why, breaches) = end_after(|stream| {
        let mut end = stream.end_of(stream.stream);
        end[30] ^= 1;
        stream.write(&end);
    });
    assert!(matches!(why, StreamError::Protocol(_)) && breaches == 1, "{why:?}");
}

#[test]
fn what_does_not_agree_is_asked_for_again_and_what_was_not_read_is_not_believed() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let (to, payload) = (file(), bytes(2 * SPAN));
    expect(&begun, 0, (2 * SPAN, SPAN), &to);
    let (first, second) = payload.split_at(SPAN as usize);
    let (ended, figures) = run_stream(&begun, READ_WRITE, |stream| {
        let mut flipped = stream.span(0, 0, first, WHOLE);
        flipped[HEADER_BYTES + 1000] ^= 0x10;
        let mut bad_trailer = stream.span(0, 0, first, WHOLE);
        *bad_trailer.last_mut().unwrap() ^= 1;
        let abandoned = stream.span(0, 0, first, PayloadStatus::Abandoned);
        let good = [stream.span(0, 0, first, WHOLE), stream.span(0, SPAN, second, WHOLE)].concat();
        [flipped, bad_trailer, abandoned, good].iter().for_each(|span| stream.write(span));
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&to), payload);
    assert_eq!(begun.context.shared.damaged_spans.load(Ordering::Relaxed), 2);
    let bad = vec![(0, 0), (0, 0)];
    assert_eq!(heard(&begun), Heard { verified: vec![(0, 0), (0, 1)], bad });
    assert_eq!((figures.payload_bytes, figures.copied_bytes), (2 * SPAN, 5 * SPAN));
}

#[test]
fn what_nobody_waits_for_is_taken_off_the_wire_to_its_very_end() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let (gone, to, payload) = (file(), file(), bytes(4 * SPAN));
    expect(&begun, 0, (4 * SPAN, 4 * SPAN), &gone);
    expect(&begun, 1, (SPAN, SPAN), &to);
    lock(&begun.context.shared.targets).remove(&FileId(0));
    let (ended, figures) = run_stream(&begun, READ_WRITE, |stream| {
        let part = &payload[..SPAN as usize];
        let spans = [
            stream.span(0, 0, &payload, WHOLE),
            stream.span(1, 0, part, WHOLE),
            // It is there already.
            stream.span(1, 0, &[7; SPAN as usize], WHOLE),
        ];
        spans.iter().for_each(|span| stream.write(span));
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&to), payload[..SPAN as usize]);
    assert_eq!(heard(&begun), Heard { verified: vec![(1, 0)], bad: Vec::new() });
    assert_eq!(figures.payload_bytes, SPAN);
    assert_eq!(figures.consumed_bytes, 6 * SPAN + 3 * FRAME + HEADER_BYTES as u64);
    assert!(lock(&begun.context.shared.machine).lacks_spans(), "that of the file without target");
}

/// Sends a span of a file that cannot be written, and one of another; tells what came of them.
fn one_fails(engines: &[&'static EngineInfo]) -> (Vec<(FileId, Fault)>, Heard) {
    const LARGE: u64 = 4 << 20;
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let made = file();
    let path = format!("/proc/self/fd/{}", made.file().as_raw_fd());
    let read_only = Arc::new(SpanFile::new(File::open(path).unwrap()));
    let (to, payload) = (file(), bytes(LARGE));
    expect(&begun, 0, (LARGE, LARGE), &read_only);
    expect(&begun, 1, (LARGE, LARGE), &to);
    let (ended, _) = run_stream(&begun, engines, |stream| {
        let spans = [0, 1].map(|file| stream.span(file, 0, &payload, WHOLE));
        spans.iter().for_each(|span| stream.write(span));
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&to), payload);
    let failed = std::mem::take(&mut *lock(&begun.context.shared.failed));
    (failed, heard(&begun))
}

#[test]
fn a_file_that_cannot_be_written_fails_alone_whenever_that_is_found() {
    for engines in [READ_WRITE, WITH_RING] {
        let (failed, heard) = one_fails(engines);
        let [(file, fault)] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!((*file, &*fault.path), (FileId(0), &b"file0"[..]));
        assert!(fault.what.starts_with("cannot be written at byte "), "{fault:?}");
        assert_eq!(heard, Heard { verified: vec![(1, 0)], bad: Vec::new() });
    }
}

#[test]
fn what_is_written_behind_is_told_of_though_nothing_more_comes() {
    const SPANS: u64 = 6;
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let (to, payload) = (file(), bytes(SPANS * SPAN));
    expect(&begun, 0, (SPANS * SPAN, SPAN), &to);
    let verified = || begun.context.shared.verified_bytes.load(Ordering::Relaxed);
    let (ended, figures) = run_stream(&begun, WITH_RING, |stream| {
        let mut all = Vec::new();
        for (at, part) in payload.chunks(SPAN as usize).enumerate() {
            all.extend(stream.span(0, at as u64 * SPAN, part, WHOLE));
        }
        stream.write(&all);
        let deadline = Instant::now() + Duration::from_secs(8);
        while verified() < SPANS * SPAN && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(verified(), SPANS * SPAN, "the stream is open, and the wire silent");
    });
    assert!(matches!(ended, Err(StreamError::Closed)), "{ended:?}");
    let spans = (0..SPANS as u32).map(|span| (0, span));
    assert_eq!(heard(&begun), Heard { verified: spans.collect(), bad: Vec::new() });
    assert_eq!(content_of(&to), payload);
    assert_eq!((figures.copied_bytes, figures.unsettled_bytes), (SPANS * SPAN, 0));
}

#[test]
fn a_stream_without_any_engine_left_ends() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let sink = Arc::new(SpanFile::sink().unwrap());
    expect(&begun, 0, (SPAN, SPAN), &sink);
    // What keeps nothing has no O_DIRECT.
    let (ended, _) = run_stream(&begun, &[&engines::io_uring::INFO], |stream| {
        let span = stream.span(0, 0, &bytes(SPAN), WHOLE);
        let _ = stream.socket.write_all(&span);
    });
    let Err(StreamError::Engine(_)) = ended else { panic!("{ended:?}") };
    assert_eq!(heard(&begun), Heard::default());
}

#[test]
fn another_engine_goes_on_where_one_gives_up_and_that_is_told() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    // What keeps nothing has no O_DIRECT.
    expect(&begun, 0, (SPAN, SPAN), &Arc::new(SpanFile::sink().unwrap()));
    let (ended, figures) = run_stream(&begun, WITH_RING, |stream| {
        let span = stream.span(0, 0, &bytes(SPAN), WHOLE);
        stream.write(&span);
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    let events = begun.context.shared.streams.take_events();
    let [StreamEvent::Fallback { from_to, stream, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&**from_to, *stream), ("io-uring -> read-write", StreamId(0)));
    assert_eq!(heard(&begun).verified, [(0, 0)]);
    if figures.engines[0] != "io-uring" {
        return skip("io_uring", format!("{:?}", figures.engines));
    }
    assert_eq!(figures.engines, ["io-uring", "read-write"]);
}

#[test]
fn another_engine_goes_on_where_that_is_ordered_and_nobody_is_told() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let (to, payload) = (file(), bytes(3 * SPAN));
    expect(&begun, 0, (3 * SPAN, SPAN), &to);
    let shared = &begun.context.shared;
    let (ended, figures) = run_stream(&begun, READ_WRITE, |stream| {
        let engines = [&engines::read_write::INFO, &engines::splice::INFO];
        for (part, at) in payload.chunks(SPAN as usize).zip(0..) {
            let span = stream.span(0, at * SPAN, part, WHOLE);
            stream.write(&span);
            let verified = || shared.verified_bytes.load(Ordering::Relaxed);
            let deadline = Instant::now() + Duration::from_secs(8);
            while verified() <= at * SPAN && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            if let Some(engine) = engines.get(at as usize) {
                let candidates = vec![*engine];
                shared.orders.give(Order { candidates, is_choice: true });
            }
        }
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&to), payload);
    assert!(shared.streams.take_events().is_empty());
    assert_eq!(figures.engines, ["read-write", "splice"]);
}

fn pending(end: SpanEnd, len_bytes: u64) -> Pending {
    Pending {
        id: SpanId(1),
        file: FileId(0),
        span: SpanIndex(0),
        len_bytes,
        target: Arc::default(),
        is_whole: false,
        digest: None,
        end,
        written: false,
    }
}

#[test]
fn writes_are_waited_for_while_the_wire_is_silent_and_only_then() {
    let (mut ours, theirs) = DataStream::open(0, &StreamSetup::of_nobody());
    let written = VecDeque::new();
    let under_way = VecDeque::from([pending(SpanEnd::Verified, 1)]);
    let may_finish = |pending| may_finish(pending, || has_come(&theirs));
    assert!(may_finish(&under_way) && !may_finish(&written));
    ours.write(b"x");
    let deadline = Instant::now() + Duration::from_secs(8);
    while may_finish(&under_way) {
        assert!(Instant::now() < deadline, "a byte has come");
    }
    assert!(!may_finish(&written));
}

#[test]
fn spans_that_came_whole_and_are_not_written_are_unsettled() {
    let ends = [SpanEnd::Verified, SpanEnd::Confirmed, SpanEnd::Damaged, SpanEnd::Abandoned];
    let all = ends.into_iter().zip([1, 10, 100, 1000]);
    let all = VecDeque::from_iter(all.map(|(end, len_bytes)| pending(end, len_bytes)));
    assert_eq!((unsettled_bytes(&all), unsettled_bytes(&VecDeque::new())), (11, 0));
}

#[test]
fn content_values_are_kept_of_spans_that_are_believed_alone() {
    let setup = StreamSetup { content: true, ..StreamSetup::of_nobody() };
    let options = without_peer::options();
    let mut hear = |_| {};
    let begun = without_peer::begin_with(TargetPlace::Null, options, setup, &mut hear);
    let (to, payload) = (file(), bytes(SPAN));
    expect(&begun, 0, (3 * SPAN, SPAN), &to);
    expect(&begun, 1, (SPAN, SPAN), &to);
    let (ended, _) = run_stream(&begun, READ_WRITE, |stream| {
        let good = stream.span(0, SPAN, &payload, WHOLE);
        let mut bad = stream.span(0, 0, &payload, WHOLE);
        bad[HEADER_BYTES] ^= 1;
        let abandoned = stream.span(0, 2 * SPAN, &payload, PayloadStatus::Abandoned);
        let confirmed = stream.span(1, 0, &payload, PayloadStatus::Confirmed);
        [good, bad, abandoned, confirmed].iter().for_each(|span| stream.write(span));
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    let contents = &begun.context.shared.contents;
    let known = contents.get(FileId(0)).unwrap();
    assert_eq!(known.known().to_ranges().len(), 1, "{known:?}");
    let mut expected = crate::content::SpanHasher::default();
    expected.start(SPAN);
    expected.update(&payload);
    assert_eq!(known.value(SpanIndex(1)), Some(expected.finish(Part::OfMore)));
    let whole = contents.get(FileId(1)).unwrap();
    assert_eq!(whole.value(SpanIndex(0)), Some(*blake3::hash(&payload).as_bytes()));
}

#[test]
fn spans_of_a_pack_are_believed_one_by_one_and_all_of_it_is_counted() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let files = [file(), file(), file(), file()];
    let payload = bytes(2 * SPAN);
    let (first, second) = payload.split_at(SPAN as usize);
    for (number, to) in (0..).zip(&files) {
        expect(&begun, number, (2 * SPAN, SPAN), to);
    }
    lock(&begun.context.shared.targets).remove(&FileId(3));
    let mut len_bytes = 0;
    let (ended, figures) = run_stream(&begun, READ_WRITE, |stream| {
        let mut damaged = stream.span(1, 0, first, WHOLE);
        damaged[HEADER_BYTES + 5] ^= 1;
        let mut bad_trailer = stream.span(2, 0, first, WHOLE);
        *bad_trailer.last_mut().unwrap() ^= 1;
        let spans = [
            damaged,
            bad_trailer,
            stream.span(0, SPAN, second, WHOLE),
            stream.span(2, SPAN, second, PayloadStatus::Abandoned),
            stream.span(0, 0, first, WHOLE),
            stream.span(1, SPAN, second, PayloadStatus::Confirmed),
            // There is none whose bytes these are.
            stream.span(3, 0, first, WHOLE),
        ];
        let pack = stream.pack(&spans);
        let again = [stream.span(0, 0, first, WHOLE), stream.span(2, 0, first, WHOLE)];
        let again = stream.pack(&again);
        len_bytes = (pack.len() + again.len()) as u64;
        stream.write(&[pack, again].concat());
        stream.end();
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(content_of(&files[0]), payload);
    assert_eq!(content_of(&files[1])[SPAN as usize..], *second);
    assert_eq!(content_of(&files[2]), first);
    let verified = vec![(0, 0), (0, 1), (1, 1), (2, 0)];
    assert_eq!(heard(&begun), Heard { verified, bad: vec![(1, 0), (2, 0)] });
    let shared = &begun.context.shared;
    assert_eq!(shared.damaged_spans.load(Ordering::Relaxed), 2);
    assert_eq!(shared.verified_bytes.load(Ordering::Relaxed), 4 * SPAN);
    assert_eq!((figures.payload_bytes, figures.copied_bytes), (4 * SPAN, 4 * SPAN));
    assert_eq!(figures.consumed_bytes, len_bytes + HEADER_BYTES as u64);
    assert!(!figures.writing && !figures.in_span);
}

#[test]
fn what_a_pack_brought_counts_though_the_rest_of_it_makes_no_sense() {
    let mut hear = |_| {};
    let begun = without_peer::begin(TargetPlace::Null, &mut hear);
    let to = file();
    expect(&begun, 0, (2 * SPAN, SPAN), &to);
    let (ended, _) = run_stream(&begun, READ_WRITE, |stream| {
        let spans = [0, 1].map(|span| stream.span(0, span * SPAN, &bytes(SPAN), WHOLE));
        let mut pack = stream.pack(&spans);
        // The second header.
        pack[HEADER_BYTES + spans[0].len()] ^= 1;
        stream.write(&pack);
    });
    assert!(matches!(ended, Err(StreamError::Protocol(_))), "{ended:?}");
    assert_eq!(heard(&begun), Heard { verified: vec![(0, 0)], bad: Vec::new() });
}

#[test]
fn files_of_a_pack_get_their_names_and_one_that_cannot_be_written_fails_alone() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("gone")).unwrap();
    let target = without_peer::place(place.path(), FileOptions::default());
    let (setup, mut hear) = (StreamSetup::of_nobody(), |_| {});
    let mut session = Session::begin(target, without_peer::options(), setup, &mut hear);
    for (number, name) in ["gone/file", "one", "other"].into_iter().enumerate() {
        session.say(Message::FileOffer(offer(number as u32, name, 1000)));
    }
    session.until("answers", |it| (0..3).all(|file| it.answer_to(file).is_some()));
    fs::remove_dir(place.path().join("gone")).unwrap();
    let (mut stream, payload) = (session.stream(), bytes(1000));
    let confirmed = PayloadStatus::Confirmed;
    let spans = [0, 1, 2].map(|file| stream.span(file, 0, &payload, confirmed));
    let pack = stream.pack(&spans);
    stream.write(&pack);
    let [gone, one, other] = session.settled([0, 1, 2]);
    assert_eq!(&*gone.expect("its directory is gone").path, b"gone/file");
    assert_eq!((one, other), (None, None));
    for name in ["one", "other"] {
        assert_eq!(fs::read(place.path().join(name)).unwrap(), payload);
    }
    assert_eq!(session.role.tally().done_files, 2);
    assert_eq!(session.role.context.shared.committer.durable_bytes(), 2000);
}

fn settled_without_fault(said: &[Message]) -> usize {
    let is_good = |message: &&Message| {
        matches!(message, Message::FileSettled(FileSettled { fault: None, .. }))
    };
    said.iter().filter(is_good).count()
}

#[test]
fn a_file_of_one_span_is_opened_when_that_comes_and_fails_alone_if_it_cannot_be() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("gone")).unwrap();
    let options = FileOptions::default();
    let target = without_peer::place(place.path(), options);
    let mut hear = |_| {};
    let setup = StreamSetup::of_nobody();
    let mut session = Session::begin(target, without_peer::options(), setup, &mut hear);
    for (number, name) in ["gone/file", "file"].into_iter().enumerate() {
        session.say(Message::FileOffer(offer(number as u32, name, 1000)));
    }
    session.until("answers", |it| [0, 1].iter().all(|file| it.answer_to(*file).is_some()));
    assert!(matches!(session.answer_to(0), Some(Said::Need(_))));
    fs::remove_dir(place.path().join("gone")).unwrap();
    let (mut stream, payload) = (session.stream(), bytes(1000));
    for file in [0, 1] {
        let span = stream.span(file, 0, &payload, PayloadStatus::Confirmed);
        stream.write(&span);
    }
    let [gone, there] = session.settled([0, 1]);
    let gone = gone.expect("its directory is gone");
    assert_eq!((&*gone.path, there), (&b"gone/file"[..], None));
    assert_eq!(settled_without_fault(&session.said), 1);
    assert_eq!(fs::read(place.path().join("file")).unwrap(), payload);
}

#[test]
fn the_lock_of_a_file_that_is_being_received_is_known() {
    let place = tempfile::tempdir().unwrap();
    let target = without_peer::place(place.path(), FileOptions::default());
    let options = crate::session::receiving::ReceivingOptions {
        span_bytes: Some(SPAN),
        ..without_peer::options()
    };
    let mut hear = |_| {};
    let mut session = Session::begin(target, options, StreamSetup::of_nobody(), &mut hear);
    session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
    session.until("an answer", |it| it.answer_to(0).is_some());
    let part = fs::metadata(place.path().join(".x.haul-part")).unwrap();
    let held = |inode, device| session.role.holds(&Held::File(inode, device));
    assert!(held(part.ino(), part.dev()));
    assert!(!held(part.ino() + 1, part.dev()) && !held(part.ino(), part.dev() + 1));
    assert!(!session.role.holds(&Held::TokenId("x".into())));
}
