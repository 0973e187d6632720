//! `pread(2)` and `send(2)`, `recv(2)` and `pwrite(2)`: one user-space buffer, works everywhere.
//!
//! Copies per byte: two on each side, the baseline of every study. The digest sees the buffer while
//! it is hot. Many small spans, with their headers and trailers, are packed into one send: they
//! wait in the buffer until it is half full, a large span follows, or [`Boundary::Flush`] is asked.

use std::{io, os::unix::fs::FileExt};

use crate::{
    Boundary, EngineError, EngineInfo, FileSpan, SendEngine, Setup, SpanDone, SpanFile, SpanTap,
    StageTimes, Verdict, Wire, WireKind,
    copying::{BLOCK_BYTES, BlockWriter, Copying, Written},
    progress::{Copied, Progress},
    socket,
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "read-write",
    summary: "read into a buffer, write it out; works everywhere",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup| Ok(Box::new(ReadSend::new(setup)))),
    open_receive: Some(|setup| Ok(Box::new(Copying::new(setup, Pwrite)))),
};

struct ReadSend {
    wire: Wire,
    buffer: Box<[u8]>,
    /// Bytes held at the buffer's beginning: taken by earlier calls, not yet with the kernel.
    held_bytes: usize,
    times: StageTimes,
}

impl ReadSend {
    fn new(setup: Setup<'_>) -> Self {
        Self {
            buffer: vec![0; setup.block_bytes_or(BLOCK_BYTES)].into(),
            held_bytes: 0,
            times: StageTimes::default(),
            wire: setup.wire,
        }
    }

    /// Whether a span is packed with others; a longer one is sent at once. Packing pays while a
    /// call costs more than the bytes it moves.
    fn is_small(&self, len_bytes: u64) -> bool {
        len_bytes <= (self.buffer.len() / 16) as u64
    }

    fn send_held(&mut self, boundary: Boundary) -> Result<(), (usize, io::Error)> {
        let held = &self.buffer[..std::mem::take(&mut self.held_bytes)];
        timed(&mut self.times.send_ns, || socket::send_whole(&self.wire, held, boundary))
    }

    /// Reads the next part of the span into the buffer, behind what is held there.
    fn read(
        &mut self,
        progress: &Progress<'_>,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<usize, EngineError> {
        let free = &mut self.buffer[self.held_bytes..];
        let run = progress.run(free.len() as u64);
        let free = &mut free[..run.len_bytes as usize];
        let got = timed(&mut self.times.source_ns, || {
            loop {
                match progress.span.file.file().read_at(free, run.offset_bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => return outcome,
                }
            }
        })
        .map_err(|error| progress.file("pread", error))?;
        if got == 0 {
            return Err(progress.truncated("pread"));
        }
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(&free[..got]));
        }
        Ok(got)
    }
}

impl SendEngine for ReadSend {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        let failed = |(_, source)| EngineError {
            engine: INFO.name,
            call: "send",
            span: None,
            offset_bytes: 0,
            moved_bytes: 0,
            remedy: crate::Remedy::Reconnect,
            source,
        };
        if bytes.len() > self.buffer.len() - self.held_bytes {
            self.send_held(Boundary::MoreFollows).map_err(failed)?;
        }
        if bytes.len() > self.buffer.len() {
            return timed(&mut self.times.send_ns, || {
                socket::send_all(INFO.name, &self.wire, bytes, boundary)
            });
        }
        self.buffer[self.held_bytes..self.held_bytes + bytes.len()].copy_from_slice(bytes);
        self.held_bytes += bytes.len();
        match boundary {
            Boundary::Flush => self.send_held(boundary).map_err(failed),
            Boundary::MoreFollows => Ok(()),
        }
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        let small = self.is_small(span.len_bytes);
        if !small || self.held_bytes > self.buffer.len() / 2 {
            let boundary = Boundary::MoreFollows;
            self.send_held(boundary).map_err(|(_, error)| progress.wire("send", error))?;
        }
        while progress.left_bytes() > 0 {
            let got = self.read(&progress, &mut tap)?;
            self.held_bytes += got;
            if !small {
                self.send_held(Boundary::Flush)
                    .map_err(|(_, error)| progress.wire("send", error))?;
            }
            progress.moved_bytes += got as u64;
        }
        done.push(progress.done(Copied::All));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(mut self: Box<Self>) -> Wire {
        // If this fails, so will the next call on the wire.
        let _ = self.send_held(Boundary::Flush);
        self.wire
    }
}

struct Pwrite;

impl BlockWriter for Pwrite {
    const ENGINE: &'static str = "read-write";
    const CALL: &'static str = "pwrite";
    const NEEDS: &'static str = "a file that can be written";

    fn write(&mut self, file: &SpanFile, offset_bytes: u64, bytes: &[u8]) -> io::Result<Written> {
        file.file().write_all_at(bytes, offset_bytes).map(|()| Written::AsAsked)
    }
}
