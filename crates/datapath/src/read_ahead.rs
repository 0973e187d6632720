//! Sends spans whose blocks are read ahead beside the sending.
//!
//! The engines direct, io-uring and zerocopy-send do so.
//!
//! Blocks lie on a grid of the slot's size in the file, so that every read is aligned. Of a span's
//! first and last block more is read than is sent. While one span is sent, the reads run on into
//! the span that [`SendEngine::prepare`] announced. Where blocks are sent without a copy, a slot is
//! read into again when the kernel has let it go.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use rustix::io::{pread, retry_on_intr};

use crate::{
    Boundary, EngineError, FileSpan, Remedy, SendEngine, SpanDone, SpanTap, StageTimes, Wait, Wire,
    block_queue::{ALIGN_BYTES, BlockQueue, Direction, Job},
    progress::{Copied, Failure, Progress, Side, without_direct},
    socket,
    stopwatch::timed,
    zero_copy_sends::ZeroCopySends,
};

/// A span that is being read.
struct Reading {
    span: FileSpan,
    /// Bytes of the span that have been given to reads.
    started_bytes: u64,
}

impl Reading {
    fn is_of(&self, span: &FileSpan) -> bool {
        self.span.id == span.id
            && Arc::ptr_eq(&self.span.file, &span.file)
            && (self.span.offset_bytes, self.span.len_bytes) == (span.offset_bytes, span.len_bytes)
    }
}

/// A read, under way or finished. Blocks are in the order in which they are sent.
struct Block {
    slot: usize,
    /// The part of the slot that belongs to the span.
    part: Range<usize>,
    outcome: Option<io::Result<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    EndOfFile,
}

/// A sender made of a queue of reads.
pub(crate) struct ReadAhead<Q> {
    engine: &'static str,
    wire: Wire,
    queue: Q,
    free: Vec<usize>,
    blocks: VecDeque<Block>,
    /// Spans that are read: the one being sent, then the one that follows it.
    reading: VecDeque<Reading>,
    prepared: Option<FileSpan>,
    /// Sends without a copy; with `None` the kernel copies what is sent.
    zero_copy: Option<ZeroCopySends>,
    times: StageTimes,
}

impl<Q: BlockQueue> ReadAhead<Q> {
    pub(crate) fn new(engine: &'static str, wire: Wire, queue: Q) -> Self {
        let free = (0..queue.slot_count()).collect();
        Self {
            engine,
            wire,
            queue,
            free,
            blocks: VecDeque::new(),
            reading: VecDeque::new(),
            prepared: None,
            zero_copy: None,
            times: StageTimes::default(),
        }
    }

    pub(crate) fn without_copies(
        engine: &'static str,
        wire: Wire,
        queue: Q,
        sends: ZeroCopySends,
    ) -> Self {
        Self { zero_copy: Some(sends), ..Self::new(engine, wire, queue) }
    }

    /// Makes `span` the one that is read first, keeping what was read ahead of it.
    fn begin(&mut self, span: &FileSpan) -> io::Result<()> {
        if !self.reading.front().is_some_and(|reading| reading.is_of(span)) {
            self.forget()?;
            self.reading.push_back(Reading { span: span.clone(), started_bytes: 0 });
        }
        self.reading.truncate(1);
        if let Some(next) = self.prepared.take() {
            self.reading.push_back(Reading { span: next, started_bytes: 0 });
        }
        Ok(())
    }

    /// Waits for all reads and drops what they brought.
    fn forget(&mut self) -> io::Result<()> {
        while self.blocks.iter().any(|block| block.outcome.is_none()) {
            self.take_finished()?;
        }
        self.free.extend(self.blocks.drain(..).map(|block| block.slot));
        self.reading.clear();
        Ok(())
    }

    /// Gives every free slot a block to read.
    fn start_reads(&mut self) -> io::Result<()> {
        let slot_bytes = self.queue.slot_bytes() as u64;
        for (place, reading) in self.reading.iter_mut().enumerate() {
            while reading.started_bytes < reading.span.len_bytes && !self.free.is_empty() {
                let file = match reading.span.file.direct() {
                    Ok(file) => file.clone(),
                    Err(error) if place == 0 => return Err(without_direct(&error)),
                    // It is this span's turn to fail when it is submitted.
                    Err(_) => return Ok(()),
                };
                let start = reading.span.offset_bytes + reading.started_bytes;
                let span_end = reading.span.offset_bytes + reading.span.len_bytes;
                let grid_end = (start / slot_bytes + 1) * slot_bytes;
                let end = span_end.min(grid_end);
                let read_start = start - start % ALIGN_BYTES;
                let read_len = (end - read_start).next_multiple_of(ALIGN_BYTES);
                let Some(slot) = self.free.pop() else { return Ok(()) };
                let job = Job {
                    direction: Direction::Read,
                    file,
                    offset_bytes: read_start,
                    part: 0..read_len as usize,
                };
                self.queue.start(slot, job)?;
                reading.started_bytes += end - start;
                let part = (start - read_start) as usize..(end - read_start) as usize;
                self.blocks.push_back(Block { slot, part, outcome: None });
            }
        }
        Ok(())
    }

    fn take_finished(&mut self) -> io::Result<()> {
        let finished = timed(&mut self.times.source_ns, || self.queue.finished(true))?;
        let (slot, outcome) =
            finished.ok_or_else(|| io::Error::other("a read is missing from the queue"))?;
        if let Some(block) = self.blocks.iter_mut().find(|block| block.slot == slot) {
            block.outcome = Some(outcome);
        }
        Ok(())
    }

    /// The oldest block, once it is read.
    fn oldest_block(&mut self) -> io::Result<Block> {
        while self.blocks.front().is_some_and(|block| block.outcome.is_none()) {
            self.take_finished()?;
        }
        self.blocks.pop_front().ok_or_else(|| io::Error::other("no block was started"))
    }

    /// The part of the slot to send, and whether that is all of the block. What a short read left
    /// out is read through the page cache, which knows the end of the file to the byte.
    fn complete(
        &mut self,
        progress: &Progress<'_>,
        block: Block,
    ) -> Result<(Range<usize>, Whole), EngineError> {
        let Block { slot, mut part, outcome } = block;
        let read = outcome
            .unwrap_or(Ok(0))
            .map_err(|error| progress.failure(Failure::new("read", Side::File, error)))?;
        let mut got = read.clamp(part.start, part.end);
        while got != part.end {
            let offset = progress.span.offset_bytes + progress.moved_bytes;
            let offset = offset + (got - part.start) as u64;
            let rest = &mut self.queue.slot_mut(slot)[got..part.end];
            let more = timed(&mut self.times.source_ns, || {
                retry_on_intr(|| pread(progress.span.file.file(), &mut *rest, offset))
            });
            match more {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(errno) => return Err(progress.file("pread", errno)),
            }
        }
        let whole = if got == part.end { Whole::Yes } else { Whole::EndOfFile };
        part.end = got;
        Ok((part, whole))
    }

    /// Shows a block to the tap and sends it.
    fn send_block(
        &mut self,
        progress: &mut Progress<'_>,
        block: Block,
        tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let slot = block.slot;
        let (part, whole) = self.complete(progress, block)?;
        let bytes = &mut self.queue.slot_mut(slot)[part];
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(bytes));
        }
        let sent = match &mut self.zero_copy {
            Some(sends) => sends.send(&self.wire, slot, bytes, &mut self.times),
            None => timed(&mut self.times.send_ns, || {
                let sent = socket::send_in_place(&mut self.wire, bytes, Boundary::Flush);
                sent.map_err(|(_, error)| error)
            }),
        };
        sent.map_err(|error| progress.wire("send", error))?;
        progress.moved_bytes += bytes.len() as u64;
        if whole == Whole::EndOfFile {
            return Err(progress.truncated("read"));
        }
        Ok(())
    }

    fn release(&mut self, slot: usize) {
        match &mut self.zero_copy {
            Some(sends) => sends.close(slot),
            None => self.free.push(slot),
        }
    }

    /// Takes the notices that have come, and with them free slots.
    fn take_notices(&mut self) -> io::Result<()> {
        if let Some(sends) = &mut self.zero_copy {
            sends.collect(&self.wire)?;
            self.free.extend(sends.take_freed());
        }
        Ok(())
    }

    fn send_span(
        &mut self,
        progress: &mut Progress<'_>,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let refused =
            |progress: &Progress<'_>, error| progress.unsupported("open(O_DIRECT)", error);
        self.begin(progress.span).map_err(|error| refused(progress, error))?;
        while progress.left_bytes() > 0 {
            self.take_notices().map_err(|error| progress.wire("recvmsg", error))?;
            if let Some(sends) = &self.zero_copy {
                let worth = sends.check(self.queue.slot_bytes());
                worth.map_err(|error| progress.unsupported("send(MSG_ZEROCOPY)", error))?;
            }
            self.start_reads().map_err(|error| refused(progress, error))?;
            let block = self
                .oldest_block()
                .map_err(|error| progress.unsupported("wait for a read", error))?;
            let slot = block.slot;
            let tap = tap.as_mut().map(|tap| &mut **tap as &mut dyn SpanTap);
            let sent = self.send_block(progress, block, tap);
            self.release(slot);
            sent?;
        }
        // Slots that became free with the last sends go to the next span.
        self.reading.pop_front();
        Ok(())
    }
}

impl<Q: BlockQueue> SendEngine for ReadAhead<Q> {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        timed(&mut self.times.send_ns, || {
            socket::send_all(self.engine, &mut self.wire, bytes, boundary)
        })
    }

    fn prepare(&mut self, next: &FileSpan) {
        self.prepared = Some(next.clone());
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(self.engine, span);
        if let Some(sends) = &mut self.zero_copy {
            sends.begin(span.id);
        }
        let outcome = self.send_span(&mut progress, tap);
        if outcome.is_err() {
            // After an error of the queue itself nothing can be waited for; its own end does that.
            let _ = self.forget();
        }
        match &mut self.zero_copy {
            Some(sends) => {
                sends.end(outcome.is_ok());
                sends.hand_over(done);
            }
            None if outcome.is_ok() => done.push(progress.done(Copied::All)),
            None => {}
        }
        outcome
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        let Some(sends) = &mut self.zero_copy else { return Ok(()) };
        let before = done.len();
        let mut outcome = sends.collect(&self.wire).map(|_| ());
        sends.hand_over(done);
        while outcome.is_ok()
            && sends.spans_in_flight() > 0
            && match wait {
                Wait::DontBlock => false,
                Wait::ForOne => done.len() == before,
                Wait::ForAll => true,
            }
        {
            outcome = sends.wait(&self.wire, &mut self.times);
            sends.hand_over(done);
        }
        self.free.extend(sends.take_freed());
        outcome.map_err(|source| {
            let span = sends.oldest_span();
            sends.abandon();
            EngineError {
                engine: self.engine,
                call: "wait for a notice of MSG_ZEROCOPY",
                span,
                offset_bytes: 0,
                moved_bytes: 0,
                remedy: Remedy::Reconnect,
                source,
            }
        })
    }

    fn spans_in_flight(&self) -> u32 {
        self.zero_copy.as_ref().map_or(0, ZeroCopySends::spans_in_flight)
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// Gives the wire back without notices on it for the next engine. Where it has ended none will
    /// come.
    fn into_wire(mut self: Box<Self>) -> Wire {
        if let Some(sends) = &mut self.zero_copy {
            let _ = sends.wait_for_all(&self.wire, &mut self.times);
        }
        self.wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SpanFile, SpanId, block_queue::WorkerThread};
    use rustix::io::Errno;
    use std::{
        io::Read,
        os::unix::{fs::FileExt, net::UnixStream},
    };

    const SLOT_BYTES: usize = 8192;
    const FILE_BYTES: u64 = 60_001;

    /// Says what came of the read of a number, which brought so many bytes.
    type Says = fn(usize, usize) -> io::Result<usize>;

    /// A queue that keeps where it read, and may say of a read what it likes.
    struct Watched {
        queue: WorkerThread,
        /// Offsets and lengths of the reads, in bytes.
        reads: Vec<(u64, usize)>,
        finished: usize,
        says: Says,
    }

    impl BlockQueue for Watched {
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
            self.reads.push((job.offset_bytes, job.part.len()));
            self.queue.start(slot, job)
        }

        fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
            let Some((slot, moved)) = self.queue.finished(block)? else { return Ok(None) };
            self.finished += 1;
            let says = (self.says)(self.finished - 1, moved?);
            if let Ok(bytes) = says {
                // What a read did not bring is not there.
                self.queue.slot_mut(slot)[bytes..].fill(0xEE);
            }
            Ok(Some((slot, says)))
        }
    }

    struct Sender {
        engine: ReadAhead<Watched>,
        far: UnixStream,
        file: Arc<SpanFile>,
    }

    impl Sender {
        /// Makes a sender of two slots; `None` where files have no O_DIRECT.
        fn new(says: Says) -> Option<Self> {
            let file = tempfile::tempfile_in(".").unwrap();
            file.write_all_at(&content(0, FILE_BYTES), 0).unwrap();
            let file = Arc::new(SpanFile::new(file));
            if let Err(error) = file.direct() {
                haul_testkit::skip::skip("O_DIRECT", error.to_string());
                return None;
            }
            let (near, far) = UnixStream::pair().unwrap();
            let queue = WorkerThread::new("reads", 2, SLOT_BYTES).unwrap();
            let queue = Watched { queue, reads: Vec::new(), finished: 0, says };
            let engine = ReadAhead::new("test", Wire::Tcp(near.into()), queue);
            Some(Self { engine, far, file })
        }

        fn span(&self, id: u64, offset_bytes: u64, len_bytes: u64) -> FileSpan {
            FileSpan { id: SpanId(id), file: self.file.clone(), offset_bytes, len_bytes }
        }

        /// Sends a span, and checks that the wire has of it what the engine says, and no more.
        fn send(&mut self, span: &FileSpan) -> Result<(), EngineError> {
            let mut done = Vec::new();
            let outcome = self.engine.submit(span, None, &mut done);
            let moved_bytes = match &outcome {
                Ok(()) => done[0].moved_bytes,
                Err(error) => error.moved_bytes,
            };
            let mut sent = vec![0; moved_bytes as usize];
            self.far.read_exact(&mut sent).unwrap();
            assert!(sent == content(span.offset_bytes, moved_bytes), "{outcome:?}");
            self.far.set_nonblocking(true).unwrap();
            assert!(self.far.read(&mut [0]).is_err(), "more is on the wire");
            self.far.set_nonblocking(false).unwrap();
            outcome
        }
    }

    fn content(offset_bytes: u64, len_bytes: u64) -> Vec<u8> {
        (offset_bytes..offset_bytes + len_bytes).map(|at| (at % 251) as u8).collect()
    }

    fn as_it_is(_: usize, got: usize) -> io::Result<usize> {
        Ok(got)
    }

    #[test]
    fn blocks_are_read_in_whole_pages_on_the_grid_of_the_slots() {
        let Some(mut sender) = Sender::new(as_it_is) else { return };
        sender.send(&sender.span(1, 5000, 30_000)).unwrap();
        let reads = [(4096, 4096), (8192, 8192), (16_384, 8192), (24_576, 8192), (32_768, 4096)];
        assert_eq!(sender.engine.queue.reads, reads);
        sender.engine.queue.reads.clear();
        sender.send(&sender.span(2, 8192, 8192)).unwrap();
        assert_eq!(sender.engine.queue.reads, [(8192, 8192)]);
        sender.send(&sender.span(3, 59_000, 1_001)).unwrap();
        assert_eq!(sender.engine.queue.reads[1..], [(57_344, 4096)]);
    }

    #[test]
    fn the_span_that_was_announced_is_read_while_the_one_before_it_is_sent() {
        let Some(mut sender) = Sender::new(as_it_is) else { return };
        let (first, second) = (sender.span(1, 0, 4096), sender.span(2, 20_480, 4096));
        sender.engine.prepare(&second);
        sender.send(&first).unwrap();
        let both = [(0, 4096), (20_480, 4096)];
        assert_eq!(sender.engine.queue.reads, both, "before it is submitted");
        sender.send(&second).unwrap();
        assert_eq!(sender.engine.queue.reads, both, "and not again");
    }

    #[test]
    fn an_announced_file_that_cannot_be_read_directly_fails_in_its_turn() {
        let Some(mut sender) = Sender::new(as_it_is) else { return };
        let file = Arc::new(SpanFile::zeros().unwrap());
        let zeros = FileSpan { file, ..sender.span(2, 0, 4096) };
        sender.engine.prepare(&zeros);
        sender.send(&sender.span(1, 0, 4096)).unwrap();
        let error = sender.send(&zeros).unwrap_err();
        assert_eq!((error.remedy, error.moved_bytes), (Remedy::UseAnotherEngine, 0), "{error}");
    }

    #[test]
    fn what_was_read_for_another_span_is_not_sent() {
        let Some(mut sender) = Sender::new(as_it_is) else { return };
        let announced = sender.span(2, 20_000, 9000);
        let other_file = tempfile::tempfile_in(".").unwrap();
        other_file.write_all_at(&content(0, FILE_BYTES), 0).unwrap();
        let other_file = Arc::new(SpanFile::new(other_file));
        for span in [
            sender.span(3, 20_000, 9000),
            sender.span(2, 20_480, 9000),
            sender.span(2, 20_000, 9001),
            FileSpan { file: other_file, ..announced.clone() },
        ] {
            sender.engine.prepare(&announced);
            sender.send(&sender.span(1, 0, 100)).unwrap();
            sender.engine.queue.reads.clear();
            sender.send(&span).unwrap();
            let first_page = span.offset_bytes - span.offset_bytes % 4096;
            assert_eq!(sender.engine.queue.reads[0].0, first_page, "{span:?} is read anew");
        }
        // All slots are there: two at a time are read.
        assert_eq!((sender.engine.free.len(), sender.engine.blocks.len()), (2, 0));
    }

    /// A read may bring less than it was asked for: what is missing is read in the plain way.
    #[test]
    fn a_short_read_leaves_nothing_out() {
        let shorts: [Says; 4] = [
            |_, _| Ok(0),
            |_, got| Ok(got / 2),
            |_, _| Ok(512),
            |number, got| Ok(if number == 1 { 700 } else { got }),
        ];
        for says in shorts {
            let Some(mut sender) = Sender::new(says) else { return };
            sender.send(&sender.span(1, 5000, 30_000)).unwrap();
        }
    }

    #[test]
    fn a_file_that_ends_within_a_span_ends_it_at_the_very_byte() {
        let Some(mut sender) = Sender::new(as_it_is) else { return };
        for end_bytes in [20_000, 16_384, 5000, 100] {
            sender.file.file().set_len(end_bytes).unwrap();
            let error = sender.send(&sender.span(1, 5000, 30_000)).unwrap_err();
            assert_eq!(error.remedy, Remedy::SkipFile, "{error}");
            assert_eq!(error.moved_bytes, end_bytes.saturating_sub(5000), "{error}");
        }
        sender.send(&sender.span(2, 0, 100)).unwrap();
    }

    #[test]
    fn a_read_that_fails_ends_its_span_and_no_other() {
        let faults: [(Says, Remedy); 2] = [
            (
                |number, got| if number == 2 { Err(Errno::IO.into()) } else { Ok(got) },
                Remedy::SkipFile,
            ),
            (
                |number, got| if number == 2 { Err(Errno::INVAL.into()) } else { Ok(got) },
                Remedy::UseAnotherEngine,
            ),
        ];
        for (says, remedy) in faults {
            let Some(mut sender) = Sender::new(says) else { return };
            let error = sender.send(&sender.span(1, 5000, 40_000)).unwrap_err();
            assert_eq!((error.remedy, error.moved_bytes), (remedy, 16_384 - 5000), "{error}");
            assert_eq!((sender.engine.free.len(), sender.engine.blocks.len()), (2, 0));
            sender.send(&sender.span(2, 5000, 40_000)).unwrap();
        }
    }
}
