//! `pread(2)` and `send(2)`, `recv(2)` and `pwrite(2)`: one user-space buffer, works everywhere.
//!
//! Copies per byte: two on each side, the baseline of every study. The digest sees the buffer while
//! it is hot. Many small spans, with their headers and trailers, are packed into one send: they
//! wait in the buffer until it is half full, a large span follows, or [`Boundary::Flush`] is asked.

use std::{io, os::unix::fs::FileExt};

use rustix::io::{pread, retry_on_intr};

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
        timed(&mut self.times.send_ns, || socket::send_whole(&mut self.wire, held, boundary))
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
            retry_on_intr(|| pread(progress.span.file.file(), &mut *free, run.offset_bytes))
        })
        .map_err(|errno| progress.file("pread", errno))?;
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
                socket::send_all(INFO.name, &mut self.wire, bytes, boundary)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, IfCopied, SpanId};
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use std::{os::fd::OwnedFd, path::Path, sync::Arc};

    const BUFFER_BYTES: usize = 65_536;
    /// Longest span that is packed: a sixteenth of the buffer.
    const SMALL_BYTES: u64 = 4096;

    fn engine_on(wire: OwnedFd, block_bytes: Option<usize>) -> ReadSend {
        ReadSend::new(Setup {
            wire: Wire::Tcp(wire),
            host: &Host::read(Path::new("/")),
            buffer_bytes_max: 2 << 20,
            block_bytes,
            if_copied: IfCopied::GiveUp,
        })
    }

    #[test]
    fn a_call_moves_a_mebibyte_unless_another_size_is_asked_for() {
        for (block_bytes, buffer_bytes) in [(None, 1 << 20), (Some(BUFFER_BYTES), BUFFER_BYTES)] {
            let wire = tempfile::tempfile().unwrap().into();
            assert_eq!(engine_on(wire, block_bytes).buffer.len(), buffer_bytes);
        }
    }

    /// An engine on a wire that keeps apart what each call sends.
    struct Packing {
        engine: ReadSend,
        far: OwnedFd,
        file: Arc<SpanFile>,
    }

    impl Packing {
        fn new() -> Self {
            let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
            let (near, far) = socketpair(family, SocketType::DGRAM, flags, None).unwrap();
            let engine = engine_on(near, Some(BUFFER_BYTES));
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            Self { engine, far, file: Arc::new(SpanFile::new(file)) }
        }

        fn bytes(&mut self, len_bytes: usize, boundary: Boundary) {
            self.engine.send_bytes(&vec![1; len_bytes], boundary).unwrap();
        }

        fn hold(&mut self, len_bytes: usize) {
            self.bytes(len_bytes, Boundary::MoreFollows);
        }

        fn span(&mut self, len_bytes: u64) {
            let (id, file, offset_bytes) = (SpanId(1), self.file.clone(), 0);
            let span = FileSpan { id, file, offset_bytes, len_bytes };
            self.engine.submit(&span, None, &mut Vec::new()).unwrap();
        }

        /// Lengths of what each call has sent since this was last asked.
        fn sent(&self) -> Vec<usize> {
            let mut buffer = vec![0; 1 << 20];
            let next = || recv(&self.far, &mut buffer[..], RecvFlags::DONTWAIT).ok();
            std::iter::from_fn(next).map(|(moved, _)| moved).collect()
        }
    }

    #[test]
    fn small_spans_are_packed_until_the_buffer_is_half_full() {
        let mut packing = Packing::new();
        packing.hold(BUFFER_BYTES / 2 - SMALL_BYTES as usize);
        packing.span(SMALL_BYTES);
        assert!(packing.sent().is_empty(), "half full");
        packing.span(1);
        assert!(packing.sent().is_empty(), "what was held was no more than half");
        packing.span(SMALL_BYTES);
        assert_eq!(packing.sent(), [BUFFER_BYTES / 2 + 1], "before the span is read");
        packing.bytes(24, Boundary::Flush);
        assert_eq!(packing.sent(), [SMALL_BYTES as usize + 24]);
    }

    #[test]
    fn a_large_span_goes_at_once_behind_what_was_held() {
        let mut packing = Packing::new();
        packing.hold(40);
        packing.span(SMALL_BYTES + 1);
        assert_eq!(packing.sent(), [40, SMALL_BYTES as usize + 1]);
        packing.hold(40);
        packing.span(2 * BUFFER_BYTES as u64 + 5);
        assert_eq!(packing.sent(), [40, BUFFER_BYTES, BUFFER_BYTES, 5]);
    }

    #[test]
    fn what_does_not_fit_beside_what_is_held_comes_behind_it() {
        let mut packing = Packing::new();
        packing.hold(60_000);
        packing.hold(5536);
        assert!(packing.sent().is_empty(), "it fits");
        packing.hold(1);
        assert_eq!(packing.sent(), [BUFFER_BYTES]);
        packing.bytes(0, Boundary::Flush);
        assert_eq!(packing.sent(), [1]);
        packing.hold(BUFFER_BYTES);
        assert!(packing.sent().is_empty(), "it fits alone");
        packing.hold(BUFFER_BYTES + 1);
        assert_eq!(packing.sent(), [BUFFER_BYTES, BUFFER_BYTES + 1], "it never fits");
    }

    #[test]
    fn nothing_is_held_any_more_when_the_wire_goes_to_another() {
        let mut packing = Packing::new();
        packing.hold(40);
        let Packing { engine, far, file } = packing;
        let wire = Box::new(engine).into_wire();
        let Wire::Tcp(near) = wire else { panic!("another wire") };
        let again = Packing { engine: Packing::new().engine, far, file };
        assert_eq!(again.sent(), [40]);
        drop(near);
    }
}
