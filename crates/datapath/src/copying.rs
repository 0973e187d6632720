//! The common part of engines that receive into one buffer and write it out.

use std::io;

use rustix::io::Errno;

use crate::{
    EngineError, FileSpan, ReceiveEngine, Setup, SpanDone, SpanFile, SpanTap, StageTimes, Wire,
    progress::{Copied, Progress},
    socket::{self, Payload},
    stopwatch::timed,
};

/// Bytes of a block: smaller ones cost more system calls, larger ones leave the processor's cache.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// The part of a copying receiver that each engine writes itself.
pub(crate) trait BlockWriter: Send {
    const ENGINE: &'static str;

    /// The system call that the engine writes with.
    const CALL: &'static str;

    /// The ability of the file system that the call needs.
    const NEEDS: &'static str;

    /// Writes all of `bytes`.
    fn write(&mut self, file: &SpanFile, offset_bytes: u64, bytes: &[u8]) -> io::Result<Written>;
}

/// The way by which a block got into the file.
pub(crate) enum Written {
    AsAsked,
    /// The block was written in the plain way, because the engine's own way was refused with this
    /// error.
    Plainly(Errno),
}

/// An engine made of a writer and the common part.
pub(crate) struct Copying<W> {
    wire: Wire,
    writer: W,
    buffer: Box<[u8]>,
    times: StageTimes,
}

impl<W> Copying<W> {
    pub(crate) fn new(setup: Setup<'_>, writer: W) -> Self {
        Self {
            writer,
            buffer: vec![0; setup.block_bytes_or(BLOCK_BYTES)].into(),
            times: StageTimes::default(),
            wire: setup.wire,
        }
    }
}

impl<W: BlockWriter> Copying<W> {
    fn receive_span(
        &mut self,
        progress: &mut Progress<'_>,
        payload: &mut Payload,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let file = &progress.span.file;
        while progress.left_bytes() > 0 {
            let run = progress.run(self.buffer.len() as u64);
            let block = &mut self.buffer[..run.len_bytes as usize];
            timed(&mut self.times.receive_ns, || payload.receive(&mut self.wire, block))
                .map_err(|error| progress.wire("recv", error))?;
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || tap.see(block));
            }
            // The wire stands behind the block whether it can be written or not.
            progress.moved_bytes += run.len_bytes;
            let written = timed(&mut self.times.target_ns, || {
                self.writer.write(file, run.offset_bytes, block)
            });
            match written {
                Ok(Written::AsAsked) => {}
                Ok(Written::Plainly(errno)) => {
                    let why = format!("needs {}, found that it refuses: {errno}", W::NEEDS);
                    let why = io::Error::new(io::ErrorKind::Unsupported, why);
                    return Err(progress.unsupported(W::CALL, why));
                }
                Err(error) => return Err(progress.file(W::CALL, error)),
            }
        }
        Ok(())
    }
}

impl<W: BlockWriter> ReceiveEngine for Copying<W> {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        timed(&mut self.times.receive_ns, || socket::receive_all(W::ENGINE, &mut self.wire, buffer))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(W::ENGINE, span);
        let mut payload = Payload::begin(&self.wire, span.len_bytes);
        let outcome = self.receive_span(&mut progress, &mut payload, tap);
        payload.end(&self.wire);
        outcome?;
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
