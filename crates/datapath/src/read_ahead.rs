//! Sends spans whose blocks are read ahead beside the sending: the engines direct and io-uring.
//!
//! Blocks lie on a grid of the slot's size in the file, so that every read is aligned. Of a span's
//! first and last block more is read than is sent. While one span is sent, the reads run on into
//! the span that [`SendEngine::prepare`] announced.

use std::{collections::VecDeque, io, ops::Range, os::unix::fs::FileExt, sync::Arc};

use crate::{
    Boundary, EngineError, FileSpan, SendEngine, SpanDone, SpanTap, StageTimes, Wire,
    block_queue::{ALIGN_BYTES, BlockQueue, Direction, Job},
    progress::{Copied, Failure, Progress, Side},
    socket,
    stopwatch::timed,
};

/// A span that is being read.
struct Reading {
    span: FileSpan,
    /// Of the span, given to reads.
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
    /// The span being sent, then the one that follows it.
    reading: VecDeque<Reading>,
    prepared: Option<FileSpan>,
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
            times: StageTimes::default(),
        }
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
                    Err(error) if place == 0 => return Err(error),
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

    /// The oldest block, read: its slot, the part to send, and whether that is all of it. What a
    /// short read left out is read through the page cache, which knows the end of the file to the
    /// byte.
    fn next_block(
        &mut self,
        progress: &Progress<'_>,
    ) -> Result<(usize, Range<usize>, Whole), EngineError> {
        let broken = |error| progress.unsupported("wait for a read", error);
        while self.blocks.front().is_some_and(|block| block.outcome.is_none()) {
            self.take_finished().map_err(broken)?;
        }
        let Some(Block { slot, mut part, outcome }) = self.blocks.pop_front() else {
            return Err(broken(io::Error::other("no block was started")));
        };
        self.free.push(slot);
        let read = outcome
            .unwrap_or(Ok(0))
            .map_err(|error| progress.failure(Failure::new("read", Side::File, error)))?;
        let mut got = read.clamp(part.start, part.end);
        while got < part.end {
            let offset = progress.span.offset_bytes + progress.moved_bytes;
            let offset = offset + (got - part.start) as u64;
            let rest = &mut self.queue.slot_mut(slot)[got..part.end];
            let more = timed(&mut self.times.source_ns, || {
                progress.span.file.file().read_at(rest, offset)
            });
            match more {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(progress.file("pread", error)),
            }
        }
        let whole = if got == part.end { Whole::Yes } else { Whole::EndOfFile };
        part.end = got;
        Ok((slot, part, whole))
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
            self.start_reads().map_err(|error| refused(progress, error))?;
            let (slot, part, whole) = self.next_block(progress)?;
            let bytes = &self.queue.slot(slot)[part];
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || tap.see(bytes));
            }
            timed(&mut self.times.send_ns, || {
                socket::send_whole(&self.wire, bytes, Boundary::Flush)
            })
            .map_err(|(_, error)| progress.wire("send", error))?;
            progress.moved_bytes += bytes.len() as u64;
            if whole == Whole::EndOfFile {
                return Err(progress.truncated("read"));
            }
        }
        // Slots that became free with the last sends go to the next span.
        self.reading.pop_front();
        Ok(())
    }
}

impl<Q: BlockQueue> SendEngine for ReadAhead<Q> {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        timed(&mut self.times.send_ns, || {
            socket::send_all(self.engine, &self.wire, bytes, boundary)
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
        if let Err(error) = self.send_span(&mut progress, tap) {
            // After an error of the queue itself nothing can be waited for; its own end does that.
            let _ = self.forget();
            return Err(error);
        }
        done.push(progress.done(Copied::All));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}
