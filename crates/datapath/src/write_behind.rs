//! Receives spans whose blocks are written beside the receiving: the engines direct and io-uring.
//!
//! Whole pages are received into slots and written with O_DIRECT. The ends of a span that do not
//! fill a page go through the page cache: another thread may write the rest of that page at the
//! same time, so it is never written as a whole.
//!
//! Errors of late writes: `submit` always takes its span off the wire to the end and never returns
//! an error of the target. Such an error comes from `reap`, once all of that span's writes are
//! over, with the span's id and `moved_bytes` equal to its length; the wire and all other spans are
//! untouched by it. A write that the file system refuses with O_DIRECT is done through the page
//! cache instead, and `submit` asks for another engine at the next block.

use std::{collections::VecDeque, io, os::unix::fs::FileExt, sync::Arc};

use crate::{
    EngineError, FileSpan, ReceiveEngine, Remedy, SpanDone, SpanFile, SpanId, SpanTap, StageTimes,
    Wait, Wire,
    block_queue::{ALIGN_BYTES, BlockQueue, Direction, Job},
    progress::{Progress, Run, is_unsupported_error, without_direct},
    socket::{self, Payload},
    stopwatch::timed,
};

/// A span that is not yet in the file as a whole.
struct Flight {
    span: FileSpan,
    /// Bytes taken off the wire by this engine.
    moved_bytes: u64,
    /// Whether all of the span is off the wire.
    received: bool,
    writes_in_flight: u32,
    fault: Option<Fault>,
}

struct Fault {
    call: &'static str,
    offset_bytes: u64,
    source: io::Error,
}

/// A write under way.
struct Write {
    span: SpanId,
    file: Arc<SpanFile>,
    offset_bytes: u64,
    len: usize,
}

/// A receiver made of a queue of writes.
pub(crate) struct WriteBehind<Q> {
    engine: &'static str,
    wire: Wire,
    queue: Q,
    free: Vec<usize>,
    /// Writes under way, by slot.
    writes: Vec<Option<Write>>,
    /// Spans in the order of the submits; the last one is being received.
    flights: VecDeque<Flight>,
    failed: VecDeque<EngineError>,
    /// The call and error for which O_DIRECT cannot be used any longer.
    refused: Option<(&'static str, io::Error)>,
    /// Buffer for the ends of spans that do not fill a page.
    scrap: Box<[u8]>,
    times: StageTimes,
}

impl<Q: BlockQueue> WriteBehind<Q> {
    pub(crate) fn new(engine: &'static str, wire: Wire, queue: Q) -> Self {
        let slot_count = queue.slot_count();
        Self {
            engine,
            wire,
            queue,
            free: (0..slot_count).collect(),
            writes: (0..slot_count).map(|_| None).collect(),
            flights: VecDeque::new(),
            failed: VecDeque::new(),
            refused: None,
            scrap: vec![0; ALIGN_BYTES as usize].into(),
            times: StageTimes::default(),
        }
    }

    /// Takes one finished write from the queue. False if there is none.
    fn take_finished(&mut self, block: bool) -> bool {
        let finished = timed(&mut self.times.target_ns, || self.queue.finished(block));
        let (slot, outcome) = match finished {
            Ok(Some(finished)) => finished,
            Ok(None) => return false,
            Err(error) => {
                self.lose_all(&error);
                return false;
            }
        };
        self.free.push(slot);
        let Some(write) = self.writes[slot].take() else { return true };
        let outcome = match outcome {
            // What was cut short, perhaps by a full disk, leaves a rest: writing it tells.
            Ok(moved) => self.write_buffered(slot, &write, moved),
            Err(error) if is_unsupported_error(&error) => {
                self.refused.get_or_insert(("pwrite(O_DIRECT)", error));
                self.write_buffered(slot, &write, 0)
            }
            Err(error) => Err(error),
        };
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.span.id == write.span)
        else {
            return true;
        };
        flight.writes_in_flight -= 1;
        if let Err(source) = outcome {
            let offset_bytes = write.offset_bytes;
            flight.fault.get_or_insert(Fault { call: "pwrite", offset_bytes, source });
        }
        true
    }

    fn write_buffered(&mut self, slot: usize, write: &Write, from: usize) -> io::Result<()> {
        let rest = &self.queue.slot(slot)[from..write.len];
        timed(&mut self.times.target_ns, || {
            write.file.file().write_all_at(rest, write.offset_bytes + from as u64)
        })
    }

    /// Gives up all writes in flight, as the queue itself has failed: they may or may not be
    /// written.
    fn lose_all(&mut self, error: &io::Error) {
        let again = || io::Error::new(error.kind(), error.to_string());
        self.refused.get_or_insert_with(|| ("wait for a write", again()));
        self.writes.fill_with(|| None);
        for flight in self.flights.iter_mut().filter(|flight| flight.writes_in_flight > 0) {
            flight.writes_in_flight = 0;
            let offset_bytes = flight.span.offset_bytes;
            let call = "wait for a write";
            flight.fault.get_or_insert(Fault { call, offset_bytes, source: again() });
        }
    }

    /// Waits until nothing of the span that is being received is in flight.
    fn settle_last(&mut self) {
        while self.flights.back().is_some_and(|flight| flight.writes_in_flight > 0) {
            self.take_finished(true);
        }
    }

    /// Hands over the spans that are in their files, and sets those aside that failed.
    fn hand_over(&mut self, done: &mut Vec<SpanDone>) {
        let mut at = 0;
        while let Some(flight) = self.flights.get(at) {
            if !flight.received || flight.writes_in_flight > 0 {
                at += 1;
                continue;
            }
            let Some(flight) = self.flights.remove(at) else { break };
            let (id, moved_bytes) = (flight.span.id, flight.moved_bytes);
            match flight.fault {
                None => done.push(SpanDone { id, moved_bytes, copied_bytes: moved_bytes }),
                Some(fault) => self.failed.push_back(EngineError {
                    engine: self.engine,
                    call: fault.call,
                    span: Some(id),
                    offset_bytes: fault.offset_bytes,
                    moved_bytes,
                    remedy: Remedy::SkipFile,
                    source: fault.source,
                }),
            }
        }
    }

    fn last_has_failed(&self) -> bool {
        self.flights.back().is_some_and(|flight| flight.fault.is_some())
    }

    fn fail_last(&mut self, call: &'static str, offset_bytes: u64, source: io::Error) {
        if let Some(flight) = self.flights.back_mut() {
            flight.fault.get_or_insert(Fault { call, offset_bytes, source });
        }
    }

    /// Receives a part of a page and writes it through the page cache.
    fn receive_scrap(
        &mut self,
        progress: &Progress<'_>,
        run: Run,
        payload: &mut Payload,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let scrap = &mut self.scrap[..run.len_bytes as usize];
        timed(&mut self.times.receive_ns, || payload.receive(&mut self.wire, scrap))
            .map_err(|error| progress.wire("recv", error))?;
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(scrap));
        }
        let file = progress.span.file.file();
        let written =
            timed(&mut self.times.target_ns, || file.write_all_at(scrap, run.offset_bytes));
        if let Err(error) = written {
            self.fail_last("pwrite", run.offset_bytes, error);
        }
        Ok(())
    }

    /// Receives whole pages into a slot, whose write then runs beside.
    fn receive_pages(
        &mut self,
        progress: &Progress<'_>,
        run: Run,
        payload: &mut Payload,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let direct = match progress.span.file.direct() {
            Ok(direct) => direct.clone(),
            Err(error) => {
                return Err(progress.unsupported("open(O_DIRECT)", without_direct(&error)));
            }
        };
        while self.free.is_empty() {
            if !self.take_finished(true) {
                let source = io::Error::other("all slots are lost");
                return Err(progress.unsupported("wait for a write", source));
            }
        }
        let slot = self.free.pop().expect("a slot was found free above");
        let len = run.len_bytes as usize;
        let bytes = &mut self.queue.slot_mut(slot)[..len];
        let received = timed(&mut self.times.receive_ns, || payload.receive(&mut self.wire, bytes));
        if let Err(error) = received {
            self.free.push(slot);
            return Err(progress.wire("recv", error));
        }
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(bytes));
        }
        if self.last_has_failed() {
            self.free.push(slot);
            return Ok(());
        }
        let offset_bytes = run.offset_bytes;
        let job = Job { direction: Direction::Write, file: direct, offset_bytes, part: 0..len };
        if let Err(error) = self.queue.start(slot, job) {
            // The slot is lost with the queue.
            self.fail_last("start a write", offset_bytes, error);
            return Ok(());
        }
        let (span, file) = (progress.span.id, progress.span.file.clone());
        self.writes[slot] = Some(Write { span, file, offset_bytes, len });
        if let Some(flight) = self.flights.back_mut() {
            flight.writes_in_flight += 1;
        }
        Ok(())
    }

    fn receive_span(
        &mut self,
        progress: &mut Progress<'_>,
        payload: &mut Payload,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        while progress.left_bytes() > 0 {
            while self.take_finished(false) {}
            // A span that has failed is drained to its end; nothing more is written.
            if let Some((call, error)) = &self.refused
                && !self.last_has_failed()
            {
                let source = io::Error::new(error.kind(), error.to_string());
                let source = io::Error::new(io::ErrorKind::Unsupported, source);
                return Err(progress.unsupported(call, source));
            }
            let run = progress.run(self.queue.slot_bytes() as u64);
            let into_page = run.offset_bytes % ALIGN_BYTES;
            let whole_pages_bytes = run.len_bytes - run.len_bytes % ALIGN_BYTES;
            let len_bytes = if into_page > 0 {
                run.len_bytes.min(ALIGN_BYTES - into_page)
            } else if whole_pages_bytes > 0 {
                whole_pages_bytes
            } else {
                run.len_bytes
            };
            let run = Run { len_bytes, ..run };
            // What begins within a page ends with it, at the latest.
            if len_bytes < ALIGN_BYTES {
                self.receive_scrap(progress, run, payload, &mut tap)?;
            } else {
                self.receive_pages(progress, run, payload, &mut tap)?;
            }
            progress.moved_bytes += len_bytes;
        }
        Ok(())
    }
}

impl<Q: BlockQueue> ReceiveEngine for WriteBehind<Q> {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        timed(&mut self.times.receive_ns, || {
            socket::receive_all(self.engine, &mut self.wire, buffer)
        })
    }

    fn has_come(&mut self) -> Option<bool> {
        self.wire.tls_receive_end().map(|end| end.has_come())
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(self.engine, span);
        self.flights.push_back(Flight {
            span: span.clone(),
            moved_bytes: 0,
            received: false,
            writes_in_flight: 0,
            fault: None,
        });
        let mut payload = Payload::begin(&self.wire, span.len_bytes);
        let outcome = self.receive_span(&mut progress, &mut payload, tap);
        payload.end(&self.wire);
        if outcome.is_err() {
            self.settle_last();
        }
        let Some(mut flight) = self.flights.pop_back() else { return outcome };
        if let Err(error) = outcome {
            // A write of this very span failed while it was being waited for: that comes first.
            let fault = flight.fault.take().filter(|_| error.remedy != Remedy::Reconnect);
            return Err(match fault {
                Some(fault) => progress.file(fault.call, fault.source),
                None => error,
            });
        }
        flight.moved_bytes = progress.moved_bytes;
        flight.received = true;
        self.flights.push_back(flight);
        self.hand_over(done);
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        while self.take_finished(false) {}
        let before = done.len();
        self.hand_over(done);
        while !self.flights.is_empty()
            && match wait {
                Wait::DontBlock => false,
                Wait::ForOne => done.len() == before && self.failed.is_empty(),
                Wait::ForAll => true,
            }
        {
            self.take_finished(true);
            self.hand_over(done);
        }
        self.failed.pop_front().map_or(Ok(()), Err)
    }

    fn spans_in_flight(&self) -> u32 {
        (self.flights.len() + self.failed.len()) as u32
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Boundary, block_queue::WorkerThread};
    use rustix::io::Errno;
    use std::{io::Write as _, os::unix::net::UnixStream};

    const PAGE: usize = ALIGN_BYTES as usize;

    /// A queue whose writes fail once `works` of them are over, with nothing written.
    struct Failing {
        queue: WorkerThread,
        works: usize,
        errno: Errno,
    }

    impl BlockQueue for Failing {
        fn slot_count(&self) -> usize {
            self.queue.slot_count()
        }

        fn slot_bytes(&self) -> usize {
            self.queue.slot_bytes()
        }

        fn slot(&self, slot: usize) -> &[u8] {
            self.queue.slot(slot)
        }

        fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
            self.queue.slot_mut(slot)
        }

        fn start(&mut self, slot: usize, job: Job) -> io::Result<()> {
            self.queue.start(slot, Job { part: 0..0, ..job })
        }

        fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
            let finished = self.queue.finished(block)?;
            Ok(finished.map(|(slot, _)| match self.works.checked_sub(1) {
                // As a short write: the rest is then written through the page cache.
                Some(left) => {
                    self.works = left;
                    (slot, Ok(0))
                }
                None => (slot, Err(self.errno.into())),
            }))
        }
    }

    struct Count(usize);

    impl SpanTap for Count {
        fn see(&mut self, bytes: &[u8]) {
            self.0 += bytes.len();
        }
    }

    type Received = (Result<(), EngineError>, WriteBehind<Failing>, usize, FileSpan);

    /// Receives ten pages and a bit into a file; returns the outcome of `submit`, the engine, what
    /// the tap saw, and the file.
    fn receive(works: usize, errno: Errno) -> Option<Received> {
        let file = Arc::new(SpanFile::new(tempfile::tempfile_in(".").unwrap()));
        if let Err(error) = file.direct() {
            haul_testkit::skip::skip("O_DIRECT", error.to_string());
            return None;
        }
        let (near, far) = UnixStream::pair().unwrap();
        let content = content();
        let sending = std::thread::spawn(move || {
            socket::send_all("test", &mut Wire::Tcp(far.into()), &content, Boundary::Flush)
                .unwrap();
        });
        let queue = Failing { queue: WorkerThread::new("w", 2, 2 * PAGE).unwrap(), works, errno };
        let mut engine = WriteBehind::new("test", Wire::Tcp(near.into()), queue);
        let len_bytes = content_len() as u64;
        let span = FileSpan { id: SpanId(1), file, offset_bytes: 0, len_bytes };
        let mut tap = Count(0);
        let outcome = engine.submit(&span, Some(&mut tap), &mut Vec::new());
        if let Err(error) = &outcome {
            let mut rest = vec![0; (len_bytes - error.moved_bytes) as usize];
            engine.receive_bytes(&mut rest).unwrap();
            assert!(rest == self::content()[error.moved_bytes as usize..], "the wire is elsewhere");
        }
        sending.join().unwrap();
        Some((outcome, engine, tap.0, span))
    }

    fn content_len() -> usize {
        10 * PAGE + 77
    }

    fn content() -> Vec<u8> {
        (0..content_len()).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn writes_that_are_refused_late_reach_the_file_and_the_next_engine_goes_on() {
        for works in 0..5 {
            let Some((outcome, engine, seen, span)) = receive(works, Errno::INVAL) else { return };
            let Err(error) = outcome else {
                // The refusal came with the last write, when nothing was left to do.
                let mut engine = engine;
                engine.reap(Wait::ForAll, &mut Vec::new()).unwrap();
                let mut written = vec![0; content_len()];
                span.file.file().read_exact_at(&mut written, 0).unwrap();
                assert!(works > 2 && written == content(), "after {works} writes");
                continue;
            };
            assert_eq!(error.remedy, Remedy::UseAnotherEngine);
            let moved = error.moved_bytes as usize;
            assert_eq!((seen, engine.spans_in_flight()), (moved, 0));
            let mut written = vec![0; moved];
            span.file.file().read_exact_at(&mut written, 0).unwrap();
            assert!(written == content()[..moved], "after {works} writes");
            assert!(moved > works * 2 * PAGE);
        }
    }

    #[test]
    fn a_late_error_comes_from_reap_with_the_wire_behind_the_span() {
        for works in 0..5 {
            let Some((outcome, mut engine, seen, span)) = receive(works, Errno::IO) else { return };
            outcome.unwrap();
            assert_eq!(seen, content_len());
            let mut done = Vec::new();
            let error = engine.reap(Wait::ForAll, &mut done).unwrap_err();
            assert_eq!((error.span, error.remedy), (Some(span.id), Remedy::SkipFile));
            assert_eq!(error.moved_bytes, span.len_bytes);
            assert!(error.offset_bytes >= (works * 2 * PAGE) as u64);
            assert_eq!((done.len(), engine.spans_in_flight()), (0, 0));
            engine.reap(Wait::ForAll, &mut done).unwrap();
        }
    }

    /// When a queue that is asked without waiting tells of a write.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Tells {
        /// At once: the write is waited for.
        AtOnce,
        /// Only to those who wait.
        WhenWaitedFor,
    }

    /// A queue that writes, and keeps what; one of its writes may fail, or the queue itself.
    struct Scripted {
        queue: WorkerThread,
        tells: Tells,
        /// Count of the writes with which it breaks.
        breaks_with: usize,
        /// Number of the write that fails.
        fails_at: usize,
        finished: usize,
        /// Offsets and lengths of the writes, in bytes.
        writes: Vec<(u64, usize)>,
    }

    impl Scripted {
        fn new(tells: Tells) -> Self {
            let queue = WorkerThread::new("w", 2, 2 * PAGE).unwrap();
            let (breaks_with, fails_at) = (usize::MAX, usize::MAX);
            Self { queue, tells, breaks_with, fails_at, finished: 0, writes: Vec::new() }
        }
    }

    impl BlockQueue for Scripted {
        fn slot_count(&self) -> usize {
            self.queue.slot_count()
        }

        fn slot_bytes(&self) -> usize {
            self.queue.slot_bytes()
        }

        fn slot(&self, slot: usize) -> &[u8] {
            self.queue.slot(slot)
        }

        fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
            self.queue.slot_mut(slot)
        }

        fn start(&mut self, slot: usize, job: Job) -> io::Result<()> {
            self.writes.push((job.offset_bytes, job.part.len()));
            self.queue.start(slot, job)
        }

        fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
            if !block && self.tells == Tells::WhenWaitedFor {
                return Ok(None);
            }
            if self.writes.len() >= self.breaks_with {
                return Err(io::Error::other("the queue broke"));
            }
            let Some((slot, moved)) = self.queue.finished(true)? else { return Ok(None) };
            self.finished += 1;
            let fails = self.finished - 1 == self.fails_at;
            Ok(Some((slot, if fails { Err(Errno::IO.into()) } else { moved })))
        }
    }

    /// Keeps how many bytes it was shown at a time.
    #[derive(Default)]
    struct Shown(Vec<usize>);

    impl SpanTap for Shown {
        fn see(&mut self, bytes: &[u8]) {
            self.0.push(bytes.len());
        }
    }

    /// A receiver of a file, and the other end of its wire.
    struct Receiving {
        engine: WriteBehind<Scripted>,
        far: UnixStream,
        file: Arc<SpanFile>,
        done: Vec<SpanDone>,
    }

    impl Receiving {
        /// Makes a receiver; `None` where files have no O_DIRECT.
        fn new(queue: Scripted) -> Option<Self> {
            let file = Arc::new(SpanFile::new(tempfile::tempfile_in(".").unwrap()));
            if let Err(error) = file.direct() {
                haul_testkit::skip::skip("O_DIRECT", error.to_string());
                return None;
            }
            let (near, far) = UnixStream::pair().unwrap();
            let engine = WriteBehind::new("test", Wire::Tcp(near.into()), queue);
            Some(Self { engine, far, file, done: Vec::new() })
        }

        fn span(&self, id: u64, offset_bytes: u64, len_bytes: u64) -> FileSpan {
            FileSpan { id: SpanId(id), file: self.file.clone(), offset_bytes, len_bytes }
        }

        /// Sends a span and receives it; returns how much the tap was shown at a time.
        fn receive(&mut self, span: &FileSpan) -> Result<Vec<usize>, EngineError> {
            self.far.write_all(&vec![span.id.0 as u8; span.len_bytes as usize]).unwrap();
            let mut shown = Shown::default();
            self.engine.submit(span, Some(&mut shown), &mut self.done)?;
            Ok(shown.0)
        }

        fn done(&mut self) -> Vec<u64> {
            self.done.drain(..).map(|done| done.id.0).collect()
        }

        fn holds(&self, span: &FileSpan) -> bool {
            let mut written = vec![0; span.len_bytes as usize];
            self.file.file().read_exact_at(&mut written, span.offset_bytes).unwrap();
            written.iter().all(|byte| *byte == span.id.0 as u8)
        }
    }

    #[test]
    fn whole_pages_go_past_the_page_cache_and_the_ends_of_a_span_through_it() {
        let Some(mut receiving) = Receiving::new(Scripted::new(Tells::AtOnce)) else { return };
        let unaligned = receiving.span(1, 5000, 30_000);
        let shown = receiving.receive(&unaligned).unwrap();
        assert_eq!(shown, [3192, 8192, 8192, 8192, 2232], "no piece is cut again");
        let pages = [(8192, 8192), (16_384, 8192), (24_576, 8192)];
        assert_eq!(receiving.engine.queue.writes, pages);
        receiving.engine.reap(Wait::ForAll, &mut receiving.done).unwrap();
        assert!(receiving.holds(&unaligned));
        receiving.engine.queue.writes.clear();
        let page = receiving.span(2, 4096, 4096);
        receiving.receive(&page).unwrap();
        assert_eq!(receiving.engine.queue.writes, [(4096, 4096)], "one page is a whole page");
        receiving.engine.reap(Wait::ForAll, &mut receiving.done).unwrap();
        assert!(receiving.holds(&page));
    }

    #[test]
    fn a_queue_that_breaks_fails_the_spans_that_it_was_writing_and_no_other() {
        let queue = Scripted { breaks_with: 2, ..Scripted::new(Tells::AtOnce) };
        let Some(mut receiving) = Receiving::new(queue) else { return };
        let (written, lost) = (receiving.span(1, 0, 8192), receiving.span(2, 8192, 40_000));
        receiving.receive(&written).unwrap();
        let shown = receiving.receive(&lost).expect("drained to its end");
        assert_eq!(shown.iter().sum::<usize>(), 40_000);
        assert_eq!(receiving.engine.queue.writes.len(), 2, "nothing more is written");
        assert_eq!(receiving.done(), [1]);
        let error = receiving.engine.reap(Wait::ForAll, &mut receiving.done).unwrap_err();
        assert_eq!((error.span, error.remedy), (Some(lost.id), Remedy::SkipFile), "{error}");
        assert_eq!((error.moved_bytes, receiving.engine.spans_in_flight()), (40_000, 0));
        let error = receiving.receive(&receiving.span(3, 0, 8192)).unwrap_err();
        assert_eq!((error.remedy, error.moved_bytes), (Remedy::UseAnotherEngine, 0), "{error}");
    }

    #[test]
    fn a_queue_that_breaks_with_all_slots_leaves_the_wire_at_the_very_byte() {
        let queue = Scripted { breaks_with: 2, ..Scripted::new(Tells::WhenWaitedFor) };
        let Some(mut receiving) = Receiving::new(queue) else { return };
        let error = receiving.receive(&receiving.span(1, 0, 40_000)).unwrap_err();
        assert_eq!((error.remedy, error.moved_bytes), (Remedy::SkipFile, 16_384), "{error}");
        receiving.engine.receive_bytes(&mut vec![0; 40_000 - 16_384]).unwrap();
        receiving.far.set_nonblocking(true).unwrap();
        receiving.far.write_all(b"next").unwrap();
        let mut next = [0; 4];
        receiving.engine.receive_bytes(&mut next).unwrap();
        assert_eq!(&next, b"next");
    }

    /// A write that goes on behind an error would change bytes that another stream brings.
    #[test]
    fn a_span_whose_wire_breaks_is_not_written_to_any_more() {
        let Some(mut receiving) = Receiving::new(Scripted::new(Tells::WhenWaitedFor)) else {
            return;
        };
        let (near, mut far) = UnixStream::pair().unwrap();
        receiving.engine.wire = Wire::Tcp(near.into());
        far.write_all(&[1; 16_384]).unwrap();
        drop(far);
        let span = receiving.span(1, 0, 40_000);
        let error = receiving.engine.submit(&span, None, &mut Vec::new()).unwrap_err();
        assert_eq!((error.remedy, error.moved_bytes), (Remedy::Reconnect, 16_384), "{error}");
        assert!(receiving.engine.writes.iter().all(Option::is_none), "writes are under way");
        assert_eq!((receiving.engine.free.len(), receiving.engine.spans_in_flight()), (2, 0));
    }

    #[test]
    fn one_span_is_waited_for_where_one_is_enough() {
        for (fails_at, first, second) in [(usize::MAX, vec![1], vec![2]), (0, vec![], vec![2])] {
            let queue = Scripted { fails_at, ..Scripted::new(Tells::WhenWaitedFor) };
            let Some(mut receiving) = Receiving::new(queue) else { return };
            for id in [1, 2] {
                receiving.receive(&receiving.span(id, id * 8192, 8192)).unwrap();
            }
            receiving.engine.reap(Wait::DontBlock, &mut receiving.done).unwrap();
            assert_eq!((receiving.done(), receiving.engine.spans_in_flight()), (vec![], 2));
            let outcome = receiving.engine.reap(Wait::ForOne, &mut receiving.done);
            assert_eq!(outcome.is_err(), first.is_empty(), "{outcome:?}");
            assert_eq!((receiving.done(), receiving.engine.spans_in_flight()), (first, 1));
            receiving.engine.reap(Wait::ForOne, &mut receiving.done).unwrap();
            assert_eq!((receiving.done(), receiving.engine.spans_in_flight()), (second, 0));
        }
    }

    #[test]
    fn a_part_of_a_page_that_cannot_be_written_is_not_done() {
        let Some(mut receiving) = Receiving::new(Scripted::new(Tells::AtOnce)) else { return };
        let named = tempfile::NamedTempFile::new_in(".").unwrap();
        let unwritable = std::fs::File::open(named.path()).unwrap();
        receiving.file = Arc::new(SpanFile::new(unwritable));
        let span = receiving.span(1, 10, 500);
        receiving.receive(&span).expect("it is taken off the wire");
        let error = receiving.engine.reap(Wait::ForAll, &mut receiving.done).unwrap_err();
        assert_eq!((error.span, error.remedy), (Some(span.id), Remedy::SkipFile), "{error}");
        assert!(receiving.done().is_empty(), "{error}");
    }
}
