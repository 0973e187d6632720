//! Tests of a sending stream by the frames that arrive, and by what it asks of its engine.

use super::*;
use crate::{
    file_options::FileOptions,
    session::{
        engine_orders::Order,
        sending::{
            context::Context,
            without_peer::{self, SPAN_BYTES, confirmed},
        },
    },
};
use haul_datapath::{
    EngineInfo, FabricFigures, SendEngine, Setup, StageTimes, Verdict, Wire, WireKind, engines,
};
use haul_protocol::{
    frame::{HEADER_BYTES, TRAILER_BYTES},
    message::{FaultCode, FileConfirm, Need},
};
use haul_testkit::{content, seed::Seed};
use std::{
    cell::{Cell, RefCell},
    fs::{self, File},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread::{self, JoinHandle},
};

const STREAM: StreamId = StreamId(0);
/// Length of spans that hold a file each.
const LARGE_SPAN_BYTES: u64 = 1 << 20;
/// Length of a file that is too large for a pack.
const LARGE_BYTES: u64 = 200_000;

/// A call of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Open(&'static str),
    Bytes(usize, Boundary),
    Prepare(SpanId),
    Submit(SpanId),
}

thread_local! {
    /// Calls of the engines of this thread.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    /// Bytes of the next span after which its engine fails, and what helps.
    static FAILS: Cell<Option<(u64, Remedy)>> = const { Cell::new(None) };
    /// Figures of RDMA endpoints, as the engines of this thread tell them.
    static RDMA: RefCell<Option<FabricFigures>> = const { RefCell::new(None) };
}

fn call(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

fn calls() -> Vec<Call> {
    CALLS.take()
}

/// An engine that tells its calls and fails on demand.
struct Watched(Box<dyn SendEngine>);

impl SendEngine for Watched {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        call(Call::Bytes(bytes.len(), boundary));
        self.0.send_bytes(bytes, boundary)
    }

    fn prepare(&mut self, next: &FileSpan) {
        call(Call::Prepare(next.id));
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        call(Call::Submit(span.id));
        let Some((moved_bytes, remedy)) = FAILS.take() else {
            return self.0.submit(span, tap, done);
        };
        let part = FileSpan { len_bytes: moved_bytes, ..span.clone() };
        self.0.submit(&part, tap, &mut Vec::new())?;
        Err(EngineError {
            engine: "watched",
            call: "pread",
            span: Some(span.id),
            offset_bytes: span.offset_bytes + moved_bytes,
            moved_bytes,
            remedy,
            source: rustix::io::Errno::IO.into(),
        })
    }

    fn fabric_figures(&self) -> Option<FabricFigures> {
        RDMA.with_borrow(Clone::clone)
    }

    fn stage_times(&self) -> StageTimes {
        self.0.stage_times()
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.0.into_wire()
    }
}

fn open(
    name: &'static str,
    setup: Setup<'_>,
) -> Result<Box<dyn SendEngine>, haul_datapath::OpenError> {
    call(Call::Open(name));
    let open = engines::read_write::INFO.open_send.expect("it sends");
    Ok(Box::new(Watched(open(setup)?)))
}

const fn watched(name: &'static str, open_send: haul_datapath::OpenSend) -> EngineInfo {
    EngineInfo {
        name,
        summary: "an engine that tells its calls",
        wires: &[WireKind::Tcp],
        align_bytes: 1,
        spans_in_flight_max: 1,
        sees_bytes: true,
        reads_while_sending: false,
        probe: |_| Verdict::Usable,
        open_send: Some(open_send),
        open_receive: None,
    }
}

static FIRST: EngineInfo = watched("first", |setup| open("first", setup));
static OTHER: EngineInfo = watched("other", |setup| open("other", setup));

/// Frames of a stream, as they arrive.
#[derive(Debug, Default)]
struct Arrived {
    spans: Vec<(SpanHeader, Vec<u8>, SpanTrailer)>,
    /// Numbers of spans in the packs.
    packs: Vec<u32>,
    /// Number of the frame that ended the stream.
    end: Option<u64>,
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> &'a [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("a whole frame");
    *bytes = rest;
    first
}

impl Arrived {
    fn of(mut bytes: &[u8]) -> Self {
        let mut arrived = Self::default();
        while !bytes.is_empty() {
            assert_eq!(arrived.end, None, "bytes behind the end");
            match FrameHeader::decode(take(&mut bytes)).expect("a header") {
                FrameHeader::Pack(pack) => arrived.packs.push(pack.spans),
                FrameHeader::End { sequence, .. } | FrameHeader::Renewal { sequence, .. } => {
                    arrived.end = Some(sequence);
                }
                FrameHeader::Span(header) => {
                    let (payload, rest) = bytes.split_at(header.len_bytes as usize);
                    bytes = rest;
                    let trailer = SpanTrailer::decode(take(&mut bytes)).expect("a trailer");
                    arrived.spans.push((header, payload.to_vec(), trailer));
                }
            }
        }
        arrived
    }

    fn statuses(&self) -> Vec<PayloadStatus> {
        self.spans.iter().map(|(_, _, trailer)| trailer.status).collect()
    }

    /// Checks that every digest is that of its frame.
    fn verify(&self, setup: &StreamSetup) {
        for (header, payload, trailer) in &self.spans {
            let mut digest = setup.span_digest();
            digest.start(header, &FrameHeader::Span(*header).encode());
            digest.see(payload);
            assert_eq!(digest.finish(trailer.status), trailer.digest, "{header:?}");
        }
    }
}

/// Makes a file, and gives its bytes.
fn make(directory: &Path, name: &str, len_bytes: u64) -> Vec<u8> {
    let file = File::create_new(directory.join(name)).expect("a file");
    content::fill(&file, Seed(len_bytes + 1), len_bytes).expect("bytes");
    fs::read(directory.join(name)).expect("bytes")
}

fn need(span_bytes: u64) -> Need {
    Need { span_bytes, ..Need::default() }
}

/// Opens a stream, and reads what arrives at its other end until it is closed.
fn opened(
    context: &Context<'_>,
    candidates: Vec<&'static EngineInfo>,
) -> (SendStream, JoinHandle<Arrived>) {
    let (near, mut far) = without_peer::connection();
    let arrives = thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).expect("bytes");
        Arrived::of(&bytes)
    });
    lock(&context.shared.machine).stream_opened(STREAM).expect("a new stream");
    calls();
    let chosen = Chosen { candidates, over_tcp: Vec::new(), because: String::new(), forced: true };
    let stream = SendStream::open(&context.shared, STREAM, near.into(), &chosen, &Arc::default());
    (stream.expect("an engine"), arrives)
}

/// Sends all that waits, and gives what arrived and the figures of the stream.
fn send_all(context: &Context<'_>) -> (Arrived, StreamFigures) {
    let (mut stream, arrives) = opened(context, vec![&FIRST]);
    let shared = context.shared.clone();
    let stops = thread::spawn(move || {
        without_peer::wait_until("sent", || !lock(&shared.machine).has_pending());
        shared.streams.request_stop();
        drop(lock(&shared.machine));
        shared.spans.notify_all();
    });
    stream.send_all().expect("the other end reads");
    stops.join().expect("all is sent");
    stream.update_figures();
    let figures = lock(&stream.figures).clone();
    drop(stream);
    (arrives.join().expect("whole frames"), figures)
}

/// Sends the next span that waits, and gives what arrived and the stream.
fn send_next(
    context: &Context<'_>,
    candidates: Vec<&'static EngineInfo>,
    before: impl FnOnce(&Work),
) -> (Result<(), EngineError>, Arrived, StreamFigures) {
    let (mut stream, arrives) = opened(context, candidates);
    let work = stream.take_work().expect("a span");
    before(&work);
    let result = stream.send_span(&work, Boundary::Flush);
    stream.tell_fallbacks();
    stream.count_done();
    stream.update_figures();
    let figures = lock(&stream.figures).clone();
    drop(stream);
    (result, arrives.join().expect("whole frames"), figures)
}

/// A session's thread without a peer, and a directory for its sources.
fn begin<'a>(hear: &'a mut dyn FnMut(crate::Event)) -> (Context<'a>, tempfile::TempDir) {
    let context = without_peer::begin(FileOptions::default(), hear).context;
    (context, tempfile::tempdir().expect("a directory"))
}

#[test]
fn all_bytes_arrive_in_frames_that_are_numbered_and_verified() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    let sizes = [1, LARGE_BYTES, 128 << 10, (128 << 10) + 1, 3 * SPAN_BYTES + 7, 100];
    let sizes = sizes.into_iter().enumerate();
    let bytes: Vec<Vec<u8>> =
        sizes.map(|(at, size)| make(directory.path(), &at.to_string(), size)).collect();
    for (at, entry) in without_peer::files(directory.path()).into_iter().enumerate() {
        let span_bytes = if at == 4 { SPAN_BYTES } else { LARGE_SPAN_BYTES };
        without_peer::needed(&context, entry, need(span_bytes));
    }
    let (arrived, figures) = send_all(&context);
    arrived.verify(&context.shared.setup);
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); bytes.len()];
    for (number, (header, payload, _)) in arrived.spans.iter().enumerate() {
        assert_eq!((header.sequence, header.stream), (number as u64, STREAM));
        let file = &mut received[header.file.0 as usize];
        assert_eq!(header.offset_bytes, file.len() as u64, "the lowest first");
        file.extend(payload);
    }
    assert!(received == bytes, "other bytes");
    assert_eq!((arrived.spans.len(), arrived.end), (9, Some(9)));
    assert_eq!(arrived.packs, [1, 1, 1], "none beside a large one");
    use PayloadStatus::{Confirmed, Whole};
    let several = [Whole; 4];
    let whole = [Confirmed; 4];
    assert_eq!(arrived.statuses(), [&whole[..], &several[..], &whole[..1]].concat());
    let total: usize = bytes.iter().map(Vec::len).sum();
    assert_eq!(figures.payload_bytes, total as u64);
    assert_eq!(figures.copied_bytes, total as u64);
    assert_eq!(figures.engines, ["first"]);
    assert!(figures.wall_ns > 0 && figures.idle_ns > 0 && figures.idle_ns < figures.wall_ns);
    assert!(figures.updated_at.is_some() && figures.stages.send_ns > 0 && !figures.in_span);
    // Of a file of several spans, or of one that changed, the source may have to be read again.
    let sent = |file| context.shared.sent.of(FileId(file)).len();
    assert_eq!([0, 1, 2, 3, 4, 5].map(sent), [0, 0, 0, 0, 4, 0]);
}

#[test]
fn an_engine_hears_of_the_next_span_and_of_the_last_byte_before_a_wait() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    for (name, len_bytes) in [("a", LARGE_BYTES), ("b", LARGE_BYTES), ("c", 10)] {
        make(directory.path(), name, len_bytes);
    }
    for entry in without_peer::files(directory.path()) {
        without_peer::needed(&context, entry, need(LARGE_SPAN_BYTES));
    }
    send_all(&context);
    let [first, second] = [0, 1].map(|file| id_of(FileId(file), SpanIndex(0)));
    let header = Call::Bytes(HEADER_BYTES, Boundary::MoreFollows);
    let trailer = Call::Bytes(TRAILER_BYTES, Boundary::MoreFollows);
    assert_eq!(
        calls(),
        [
            Call::Open("first"),
            Call::Prepare(second),
            header,
            Call::Submit(first),
            trailer,
            header,
            Call::Submit(second),
            trailer,
            // The pack, and then the end.
            Call::Bytes(2 * HEADER_BYTES + 10 + TRAILER_BYTES, Boundary::Flush),
            Call::Bytes(HEADER_BYTES, Boundary::Flush),
        ]
    );
}

#[test]
fn the_last_span_before_a_wait_is_flushed() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    make(directory.path(), "a", LARGE_BYTES);
    let entry = without_peer::files(directory.path()).remove(0);
    without_peer::needed(&context, entry, need(LARGE_SPAN_BYTES));
    send_all(&context);
    assert_eq!(calls()[3], Call::Bytes(TRAILER_BYTES, Boundary::Flush));
}

#[test]
fn spans_of_all_files_have_numbers_of_their_own() {
    let id = |file, span| id_of(FileId(file), SpanIndex(span));
    assert_eq!([id(0, 7), id(1, 7)], [SpanId(7), SpanId((1 << 32) + 7)]);
    assert_eq!(id(u32::MAX, u32::MAX), SpanId(u64::MAX));
}

#[test]
fn a_stream_that_was_given_up_ends() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    make(directory.path(), "a", LARGE_BYTES);
    let entry = without_peer::files(directory.path()).remove(0);
    without_peer::needed(&context, entry, need(LARGE_SPAN_BYTES));
    let (mut stream, arrives) = opened(&context, vec![&FIRST]);
    lock(&context.shared.machine).drop_stream(STREAM, "stalled");
    stream.send_all().expect("the other end reads");
    drop(stream);
    let arrived = arrives.join().expect("whole frames");
    assert_eq!((arrived.spans.len(), arrived.end), (0, Some(0)));
}

/// Makes a file of one span that is too large for a pack, which the receiver needs.
fn one_large(context: &Context<'_>, directory: &Path) -> Vec<u8> {
    let bytes = make(directory, "data", LARGE_BYTES);
    let entry = without_peer::files(directory).remove(0);
    without_peer::needed(context, entry, need(LARGE_SPAN_BYTES));
    bytes
}

#[test]
fn what_cannot_be_read_is_filled_and_given_up_and_the_stream_goes_on() {
    for moved_bytes in [0, 10, LARGE_BYTES - 1] {
        let mut hear = |_| {};
        let (context, directory) = begin(&mut hear);
        let bytes = one_large(&context, directory.path());
        FAILS.set(Some((moved_bytes, Remedy::SkipFile)));
        let (result, arrived, _) = send_next(&context, vec![&FIRST], |_| {});
        result.expect("the stream goes on");
        arrived.verify(&context.shared.setup);
        assert_eq!(arrived.statuses(), [PayloadStatus::Abandoned]);
        let (read, filled) = arrived.spans[0].1.split_at(moved_bytes as usize);
        assert!(read == &bytes[..read.len()] && filled.iter().all(|byte| *byte == 0));
        let [FileConfirm { fault: Some(fault), .. }] = &confirmed(&context)[..] else {
            panic!("it is told")
        };
        let what = format!("cannot be read at byte {moved_bytes}");
        assert_eq!((&fault.path[..], &*fault.what), (&b"data"[..], &*what));
        assert_eq!(fault.code, FaultCode::IoFailed);
    }
}

#[test]
fn a_source_that_changed_while_it_was_read_says_so() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    one_large(&context, directory.path());
    let path = directory.path().join("data");
    let cut = |_: &Work| File::options().write(true).open(path).unwrap().set_len(70_000).unwrap();
    let (result, arrived, _) = send_next(&context, vec![&FIRST], cut);
    result.expect("the stream goes on");
    assert_eq!(arrived.statuses(), [PayloadStatus::Abandoned]);
    let [FileConfirm { fault: Some(fault), .. }] = &confirmed(&context)[..] else {
        panic!("it is told")
    };
    assert_eq!(fault.code, FaultCode::SourceChanged, "{fault:?}");
    assert!(context.shared.sent.of(FileId(0)).is_empty(), "nothing to compare with");
}

#[test]
fn an_error_of_the_connection_ends_the_stream() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    one_large(&context, directory.path());
    let (mut stream, _) = opened(&context, vec![&FIRST]);
    let work = stream.take_work().expect("a span");
    FAILS.set(Some((10, Remedy::Reconnect)));
    let error = stream.send_span(&work, Boundary::Flush).unwrap_err();
    assert_eq!((error.remedy, error.moved_bytes), (Remedy::Reconnect, 10));
    assert_eq!(confirmed(&context), []);
}

#[test]
fn another_engine_goes_on_at_the_very_byte_and_that_is_told() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    let bytes = one_large(&context, directory.path());
    FAILS.set(Some((12_345, Remedy::UseAnotherEngine)));
    let (result, arrived, figures) = send_next(&context, vec![&FIRST, &OTHER], |_| {});
    result.expect("the other goes on");
    arrived.verify(&context.shared.setup);
    assert!(arrived.spans[0].1 == bytes && figures.engines == ["other"]);
    let told = context.shared.streams.take_events();
    let [StreamEvent::Fallback { from_to, stream: STREAM, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(from_to, "first -> other");
}

#[test]
fn pages_that_no_card_takes_are_told_once() {
    let mut hear = |_| {};
    let (context, _directory) = begin(&mut hear);
    let (mut stream, _) = opened(&context, vec![&FIRST]);
    let mut figures = FabricFigures::default();
    for (refused, told) in [(None, 0), (Some("no memory"), 1), (Some("no memory"), 0)] {
        figures.end.refused = refused.map(Into::into);
        RDMA.set(Some(figures.clone()));
        stream.tell_fallbacks();
        let events = context.shared.streams.take_events();
        assert_eq!(events.len(), told, "{events:?}");
        for event in events {
            let StreamEvent::Fallback { from_to, why, stream: STREAM } = event else {
                panic!("{event:?}")
            };
            assert_eq!((&*from_to, &*why), ("registered pages -> registered buffers", "no memory"));
        }
    }
}

#[test]
fn an_engine_that_is_ordered_takes_over_between_two_spans() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    make(directory.path(), "a", 3 * LARGE_BYTES);
    let entry = without_peer::files(directory.path()).remove(0);
    without_peer::needed(&context, entry, need(SPAN_BYTES));
    let (mut stream, arrives) = opened(&context, vec![&FIRST]);
    for candidates in [vec![&FIRST], vec![&OTHER]] {
        context.shared.orders.give(Order { candidates, is_choice: false });
        let work = stream.take_work().expect("a span");
        stream.choose_again(&work.span).expect("it can be opened");
        stream.send_span(&work, Boundary::Flush).expect("the other end reads");
    }
    drop(stream);
    assert_eq!(arrives.join().expect("whole frames").spans.len(), 2);
    let opens = calls().into_iter().filter(|call| matches!(call, Call::Open(_)));
    let opens: Vec<_> = opens.collect();
    assert_eq!(opens, [Call::Open("first"), Call::Open("other")], "not again by its own order");
}

#[test]
fn a_file_is_confirmed_with_its_span_only_if_it_is_what_was_offered_and_may_be() {
    use PayloadStatus::{Abandoned, Confirmed, Whole};
    type Before = fn(&Context<'_>, &Path);
    let changes: [(Before, PayloadStatus); 4] = [
        (|_, _| {}, Confirmed),
        // Its inode changed: it is read again by the session's thread.
        (|_, path| fs::set_permissions(path, PermissionsExt::from_mode(0o640)).unwrap(), Whole),
        (|_, path| fs::write(path, "other bytes").unwrap(), Abandoned),
        (
            |context, _| lock(&context.shared.machine).source_failed(FileId(0), Fault::default()),
            Whole,
        ),
    ];
    for (before, expected) in changes {
        let mut hear = |_| {};
        let (context, directory) = begin(&mut hear);
        one_large(&context, directory.path());
        let path = directory.path().join("data");
        // The clock of a file system has steps.
        thread::sleep(Duration::from_millis(20));
        let (mut stream, _) = opened(&context, vec![&FIRST]);
        let work = stream.take_work().expect("a span");
        before(&context, &path);
        assert_eq!(stream.confirm(&work, Ok(())), expected);
    }
}

#[test]
fn a_file_that_could_not_be_read_is_not_confirmed() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    one_large(&context, directory.path());
    let (mut stream, _) = opened(&context, vec![&FIRST]);
    let work = stream.take_work().expect("a span");
    let read = Err(io::ErrorKind::UnexpectedEof.into());
    assert_eq!(stream.confirm(&work, read), PayloadStatus::Abandoned);
    let [FileConfirm { fault: Some(fault), .. }] = &confirmed(&context)[..] else {
        panic!("it is told")
    };
    assert_eq!((&fault.path[..], &*fault.what), (&b"data"[..], "cannot be read"));
}

#[test]
fn a_file_that_cannot_be_opened_is_given_up_and_the_next_one_goes() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    make(directory.path(), "a", LARGE_BYTES);
    make(directory.path(), "b", LARGE_BYTES);
    for entry in without_peer::files(directory.path()) {
        without_peer::needed(&context, entry, need(LARGE_SPAN_BYTES));
    }
    fs::remove_file(directory.path().join("a")).unwrap();
    let (mut stream, _) = opened(&context, vec![&FIRST]);
    assert_eq!(stream.take_work().map(|work| work.assignment.file), Some(FileId(1)));
    assert!(stream.take_work().is_none());
    let [FileConfirm { file: FileId(0), fault: Some(fault) }] = &confirmed(&context)[..] else {
        panic!("it is told")
    };
    assert_eq!((&fault.path[..], fault.code), (&b"a"[..], FaultCode::NotFound));
}

#[test]
fn what_was_read_to_its_end_is_kept_for_a_manifest() {
    for (fails, is_kept) in [(None, true), (Some((10, Remedy::SkipFile)), false)] {
        let mut hear = |_| {};
        let (mut context, directory) = begin(&mut hear);
        Arc::get_mut(&mut context.shared).expect("no stream has it yet").setup.content = true;
        let bytes = one_large(&context, directory.path());
        FAILS.set(fails);
        send_next(&context, vec![&FIRST], |_| {}).0.expect("the stream goes on");
        let content = context.shared.contents.take(FileId(0));
        let expected = is_kept.then(|| *blake3::hash(&bytes).as_bytes());
        assert_eq!(content.and_then(|content| content.hash()), expected);
    }
}

/// Case of a file of several spans, each of which a source that changed is compared with.
#[test]
fn spans_of_a_file_of_several_are_kept_as_they_were_sent() {
    let mut hear = |_| {};
    let (context, directory) = begin(&mut hear);
    make(directory.path(), "a", 2 * SPAN_BYTES);
    let entry = without_peer::files(directory.path()).remove(0);
    without_peer::needed(&context, entry, need(SPAN_BYTES));
    let (arrived, _) = send_all(&context);
    let kept = context.shared.sent.of(FileId(0));
    assert_eq!(kept.len(), 2);
    for (kept, (header, _, trailer)) in kept.iter().zip(&arrived.spans) {
        assert_eq!((kept.header, kept.status), (*header, trailer.status));
        assert_eq!(kept.digest, trailer.digest);
    }
}
