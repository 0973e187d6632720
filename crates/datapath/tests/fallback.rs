//! Fallback of an engine that gives up in the middle of a span: no byte is lost or repeated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use haul_datapath::{
    Boundary, EngineError, EngineInfo, FileSpan, OpenError, ReceiveEngine, Remedy, SendEngine,
    Setup, SpanDone, SpanFile, SpanTap, StageTimes, Verdict, Wait, Wire, WireKind, engines,
    fallback::{Receiver, Sender},
    socket,
};
use haul_testkit::{content, seed::Seed};

mod stream;

use stream::{SocketBuffers, Tapped, check_all_done, directories, file_in, run, span};

/// Moves some bytes of each span, then needs another engine.
struct Faulty {
    wire: Wire,
    gives_up_after_bytes: u64,
}

fn error(engine: &'static str, span: Option<&FileSpan>, moved_bytes: u64) -> EngineError {
    EngineError {
        engine,
        call: "moonshine",
        span: span.map(|span| span.id),
        offset_bytes: span.map_or(0, |span| span.offset_bytes + moved_bytes),
        moved_bytes,
        remedy: Remedy::UseAnotherEngine,
        source: std::io::ErrorKind::Unsupported.into(),
    }
}

impl SendEngine for Faulty {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        socket::send_all("faulty", &mut self.wire, bytes, boundary)
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let len = span.len_bytes.min(self.gives_up_after_bytes);
        let mut part = vec![0; len as usize];
        span.file.file().read_exact_at(&mut part, span.offset_bytes).unwrap();
        if let Some(tap) = tap {
            tap.see(&part);
        }
        self.send_bytes(&part, Boundary::Flush)?;
        if len < span.len_bytes {
            return Err(error("faulty", Some(span), len));
        }
        done.push(SpanDone { id: span.id, moved_bytes: len, copied_bytes: len });
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        StageTimes { source_ns: 1, ..StageTimes::default() }
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

impl ReceiveEngine for Faulty {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        socket::receive_all("faulty", &mut self.wire, buffer)
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let len = span.len_bytes.min(self.gives_up_after_bytes);
        let mut part = vec![0; len as usize];
        self.receive_bytes(&mut part)?;
        if let Some(tap) = tap {
            tap.see(&part);
        }
        span.file.file().write_all_at(&part, span.offset_bytes).unwrap();
        if len < span.len_bytes {
            return Err(error("faulty", Some(span), len));
        }
        done.push(SpanDone { id: span.id, moved_bytes: len, copied_bytes: len });
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        StageTimes { target_ns: 1, ..StageTimes::default() }
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

/// Bytes after which the next faulty engine gives up; tests that use it hold the lock.
static GIVES_UP_AFTER_BYTES: AtomicU64 = AtomicU64::new(0);
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn open(setup: Setup<'_>) -> Faulty {
    let gives_up_after_bytes = GIVES_UP_AFTER_BYTES.load(Ordering::SeqCst);
    Faulty { wire: setup.wire, gives_up_after_bytes }
}

static FAULTY: EngineInfo = EngineInfo {
    name: "faulty",
    summary: "moves some bytes, then gives up",
    wires: &[WireKind::Tcp],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup| Ok(Box::new(open(setup)))),
    open_receive: Some(|setup| Ok(Box::new(open(setup)))),
};

static SHUT: EngineInfo = EngineInfo {
    name: "shut",
    summary: "cannot be opened",
    wires: &[WireKind::Tcp],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup| Err(OpenError { wire: setup.wire, cause: error("shut", None, 0) })),
    open_receive: Some(|setup| Err(OpenError { wire: setup.wire, cause: error("shut", None, 0) })),
};

static REFUSED: EngineInfo = EngineInfo {
    name: "refused",
    summary: "says that it cannot work here",
    wires: &[WireKind::Tcp],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Refused { needs: "a larger moon", found: "one moon".into() },
    open_send: Some(|_| unreachable!("a refused engine is not opened")),
    open_receive: Some(|_| unreachable!("a refused engine is not opened")),
};

fn read_write() -> &'static EngineInfo {
    engines::find("read-write").unwrap()
}

#[test]
fn the_next_engine_goes_on_at_the_very_byte() {
    let _one = ONE_AT_A_TIME.lock();
    let seed = Seed::from_env_or_random();
    let len = 3_000_001;
    let content = content::bytes(seed, len as usize);
    let directory = &directories()[0];
    let source = file_in(directory);
    content::fill(&source, seed, len).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let others = stream::senders()
        .into_iter()
        .filter(|next| next.takes_tcp())
        .map(|next| (vec![&FAULTY, next, read_write()], true));
    let receivers = stream::receivers().into_iter().filter(|next| next.takes_tcp());
    let pairs = others.chain(receivers.map(|next| (vec![&FAULTY, next, read_write()], false)));
    for (candidates, sends) in pairs {
        for gives_up in [0, 1, 70_001, 1_000_000, 1_500_000] {
            GIVES_UP_AFTER_BYTES.store(gives_up, Ordering::SeqCst);
            let target = Arc::new(SpanFile::new(file_in(directory)));
            let halves = |file| [span(1, file, 0, 1_500_000), span(2, file, 1_500_000, 1_500_001)];
            let (from, into) = (halves(&source), halves(&target));
            let (send_with, receive_with) = match sends {
                true => (candidates.clone(), vec![read_write()]),
                false => (vec![read_write()], candidates.clone()),
            };
            let buffers = SocketBuffers::Automatic;
            let (sent, received) = run(send_with, receive_with, &from, &into, Tapped::Yes, buffers);
            check_all_done(&from, &sent);
            check_all_done(&into, &received);
            let mut arrived = vec![0; len as usize];
            target.file().read_exact_at(&mut arrived, 0).unwrap();
            assert!(arrived == content, "{:?} after {gives_up}", candidates[1].name);
            for seen in [&sent.seen, &received.seen] {
                assert!(seen.concat() == content, "{:?} after {gives_up}", candidates[1].name);
            }
            let changed = if sends { &sent.fallbacks } else { &received.fallbacks };
            assert_eq!((changed[0].from, changed[0].to), ("faulty", candidates[1].name));
            assert!(changed[0].why.contains("moonshine failed at byte"), "{}", changed[0].why);
        }
    }
}

#[test]
fn a_span_of_several_engines_is_done_as_if_by_one() {
    let _one = ONE_AT_A_TIME.lock();
    GIVES_UP_AFTER_BYTES.store(1000, Ordering::SeqCst);
    let file = file_in(&directories()[0]);
    file.set_len(10_000).unwrap();
    let file = Arc::new(SpanFile::new(file));
    let into = Arc::new(SpanFile::new(file_in(&directories()[0])));
    let of = |file| [span(3, file, 500, 9_000)];
    let candidates = || vec![&FAULTY, &FAULTY, &FAULTY, read_write()];
    let buffers = SocketBuffers::Automatic;
    let (sent, received) =
        run(candidates(), candidates(), &of(&file), &of(&into), Tapped::No, buffers);
    for outcome in [sent, received] {
        let done = outcome.done.iter().map(|done| (done.moved_bytes, done.copied_bytes));
        assert_eq!(done.collect::<Vec<_>>(), [(9_000, 9_000)]);
    }
}

#[test]
fn engines_that_cannot_be_opened_are_passed_over_and_named() {
    let (near, far) = stream::wires(SocketBuffers::Automatic);
    let candidates = vec![&REFUSED, &SHUT, engines::find("discard").unwrap(), read_write()];
    let mut sender = Sender::open(candidates.clone(), near, &stream::host(), 1 << 20).unwrap();
    assert_eq!(sender.info().name, "read-write");
    let changes = sender.take_fallbacks();
    let names = changes.iter().map(|change| (change.from, change.to)).collect::<Vec<_>>();
    assert_eq!(names, [("refused", "shut"), ("shut", "read-write")]);
    assert_eq!(changes[0].why, "needs a larger moon, found one moon");
    assert!(sender.take_fallbacks().is_empty(), "each change is told once");
    let receiver = Receiver::open(candidates, far, &stream::host(), 1 << 20).unwrap();
    assert_eq!(receiver.info().name, "discard");
}

#[test]
fn the_wire_comes_back_when_no_engine_can_be_opened() {
    let (near, _far) = stream::wires(SocketBuffers::Automatic);
    let Err(error) = Sender::open(vec![&REFUSED, &SHUT], near, &stream::host(), 1 << 20) else {
        panic!("both cannot be opened")
    };
    assert_eq!(error.cause.engine, "shut");
    let nothing = Receiver::open(
        vec![engines::find("sendfile").unwrap()],
        error.wire,
        &stream::host(),
        1 << 20,
    );
    assert!(nothing.is_err_and(|error| error.cause.source.to_string() == "it cannot receive"));
}

#[test]
fn the_last_engines_error_counts_the_bytes_of_all() {
    let _one = ONE_AT_A_TIME.lock();
    GIVES_UP_AFTER_BYTES.store(1000, Ordering::SeqCst);
    let (near, far) = stream::wires(SocketBuffers::Automatic);
    let file = file_in(&directories()[0]);
    file.set_len(10_000).unwrap();
    let file = Arc::new(SpanFile::new(file));
    let candidates = vec![&FAULTY, &SHUT, &FAULTY, &FAULTY];
    let mut sender = Sender::open(candidates, near, &stream::host(), 1 << 20).unwrap();
    let mut done = Vec::new();
    let error = sender.submit(&span(3, &file, 500, 9_000), None, &mut done).unwrap_err();
    assert_eq!((error.remedy, error.moved_bytes), (Remedy::UseAnotherEngine, 3000));
    assert_eq!((error.offset_bytes, error.span.unwrap().0), (3500, 3));
    assert_eq!(sender.stage_times().source_ns, 3);
    assert!(done.is_empty());
    let dead = sender.send_bytes(b"more", Boundary::Flush).unwrap_err();
    assert_eq!(dead.remedy, Remedy::Stop);
    drop(sender.into_wire());
    let mut receiver = Receiver::open(vec![read_write()], far, &stream::host(), 1 << 20).unwrap();
    let mut arrived = [1; 3000];
    receiver.receive_bytes(&mut arrived).unwrap();
    assert!(arrived.iter().all(|byte| *byte == 0));
    assert!(receiver.receive_bytes(&mut [0]).is_err(), "not a byte more");
}

/// The span's place is known where the engine that could not be opened knew nothing of it.
#[test]
fn an_engine_that_cannot_be_opened_within_a_span_fails_at_the_very_byte() {
    let _one = ONE_AT_A_TIME.lock();
    GIVES_UP_AFTER_BYTES.store(1000, Ordering::SeqCst);
    let (near, _far) = stream::wires(SocketBuffers::Automatic);
    let file = file_in(&directories()[0]);
    file.set_len(10_000).unwrap();
    let file = Arc::new(SpanFile::new(file));
    let candidates = vec![&FAULTY, &SHUT];
    let mut sender = Sender::open(candidates, near, &stream::host(), 1 << 20).unwrap();
    let error = sender.submit(&span(3, &file, 500, 9_000), None, &mut Vec::new()).unwrap_err();
    assert_eq!((error.engine, error.moved_bytes), ("shut", 1000));
    assert_eq!((error.offset_bytes, error.span.map(|id| id.0)), (1500, Some(3)));
}

/// The spans that the engine `told` was announced.
static TOLD: std::sync::Mutex<Vec<u64>> = std::sync::Mutex::new(Vec::new());

/// Keeps what it is announced.
struct Told(Faulty);

impl SendEngine for Told {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        self.0.send_bytes(bytes, boundary)
    }

    fn prepare(&mut self, next: &FileSpan) {
        TOLD.lock().unwrap().push(next.id.0);
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        SendEngine::submit(&mut self.0, span, tap, done)
    }

    fn stage_times(&self) -> StageTimes {
        StageTimes::default()
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.0.wire
    }
}

static TELLS: EngineInfo = EngineInfo {
    name: "told",
    open_send: Some(|setup| Ok(Box::new(Told(open(setup))))),
    open_receive: None,
    ..FAULTY
};

#[test]
fn the_engine_at_work_is_told_which_span_comes_next() {
    let (near, _far) = stream::wires(SocketBuffers::Automatic);
    let mut sender = Sender::open(vec![&TELLS], near, &stream::host(), 1 << 20).unwrap();
    let file = Arc::new(SpanFile::new(file_in(&directories()[0])));
    sender.prepare(&span(8, &file, 0, 1));
    assert_eq!(*TOLD.lock().unwrap(), [8]);
}

/// /dev/full takes no byte and has no O_DIRECT: the engine changes first, then the file fails.
#[test]
fn a_full_target_fails_alone_whatever_the_engine() {
    let seed = Seed::from_env_or_random();
    let source = file_in(&directories()[0]);
    content::fill(&source, seed, 2_000_000).unwrap();
    let source = Arc::new(SpanFile::new(source));
    for receiver in stream::receivers().into_iter().filter(|next| next.takes_tcp()) {
        let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
        let full = Arc::new(SpanFile::new(full));
        let target = Arc::new(SpanFile::new(file_in(&directories()[0])));
        let from = [span(1, &source, 0, 1_000_001), span(2, &source, 1_000_001, 999_999)];
        let into = [span(1, &full, 0, 1_000_001), span(2, &target, 1_000_001, 999_999)];
        let receive_with = vec![receiver, read_write()];
        let buffers = SocketBuffers::Automatic;
        let (_, received) =
            run(vec![read_write()], receive_with, &from, &into, Tapped::No, buffers);
        let name = receiver.name;
        assert_eq!(received.failed.len(), 1, "{name}");
        let error = &received.failed[0];
        assert_eq!(error.source.kind(), std::io::ErrorKind::StorageFull, "{name}: {error}");
        assert_eq!(received.done.len(), 1, "{name}");
        println!("{name}: {error}; changes: {:?}", received.fallbacks);
    }
}

/// A late error reaches the caller even if its engine has been replaced meanwhile.
#[test]
fn a_late_error_survives_the_change_of_engines() {
    let seed = Seed::from_env_or_random();
    let directory = &directories()[0];
    let source = file_in(directory);
    content::fill(&source, seed, 3_000_000).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let content = content::bytes(seed, 3_000_000);
    let named = tempfile::NamedTempFile::new_in(directory).unwrap();
    let unwritable = Arc::new(SpanFile::new(std::fs::File::open(named.path()).unwrap()));
    // Repeating files have no O_DIRECT, so this one makes the engine change.
    let target = Arc::new(SpanFile::repeating(file_in(directory), 1 << 40));
    let from = [span(1, &source, 0, 1_500_000), span(2, &source, 1_500_000, 1_500_000)];
    let into = [span(1, &unwritable, 0, 1_500_000), span(2, &target, 1_500_000, 1_500_000)];
    for name in ["direct", "io-uring"] {
        let receive_with = vec![engines::find(name).unwrap(), read_write()];
        let buffers = SocketBuffers::Automatic;
        let (_, received) =
            run(vec![read_write()], receive_with, &from, &into, Tapped::Yes, buffers);
        assert_eq!(received.failed.len(), 1, "{name}");
        assert_eq!(received.failed[0].span, Some(into[0].id), "{name}");
        assert_eq!(received.done.len(), 1, "{name}");
        assert_eq!(received.seen.concat(), content, "{name}");
        let mut arrived = vec![0; 1_500_000];
        target.file().read_exact_at(&mut arrived, 1_500_000).unwrap();
        assert!(arrived == content[1_500_000..], "{name}");
    }
}

#[test]
fn reaping_a_synchronous_engine_returns_at_once() {
    let (near, _far) = stream::wires(SocketBuffers::Automatic);
    let mut sender = Sender::open(vec![read_write()], near, &stream::host(), 1 << 20).unwrap();
    sender.reap(Wait::ForAll, &mut Vec::new()).unwrap();
    assert_eq!(sender.spans_in_flight(), 0);
}

#[test]
fn what_has_come_on_a_socket_is_told_by_the_socket() {
    let (near, far) = stream::wires(SocketBuffers::Automatic);
    let mut receiver = Receiver::open(vec![read_write()], far, &stream::host(), 1 << 20).unwrap();
    assert_eq!(receiver.has_come(), None);
    // Nor has it figures of RDMA endpoints.
    let sender = Sender::open(vec![read_write()], near, &stream::host(), 1 << 20).unwrap();
    assert_eq!((sender.fabric_figures(), receiver.fabric_figures()), (None, None));
}
