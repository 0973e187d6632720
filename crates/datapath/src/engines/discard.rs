//! Engine for `null:`: bytes are taken off the wire and thrown away.
//!
//! Without a tap the kernel drops them and copies none (MSG_TRUNC, tcp(7)); with one they come
//! into one buffer, for the tap to see.

use std::io;

use rustix::{io::Errno, net::RecvFlags};

use crate::{
    EngineError, EngineInfo, FileSpan, ReceiveEngine, Setup, SpanDone, SpanTap, StageTimes,
    Verdict, Wire, WireKind,
    progress::{Copied, Progress},
    socket::{self, Payload},
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "discard",
    summary: "throw away what arrives, for null:",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: None,
    open_receive: Some(|setup| Ok(Box::new(Discard::new(setup)))),
};

/// Bytes shown to the tap at once: they stay in a core's second-level cache.
const SEEN_BYTES: usize = 256 << 10;

/// Bytes dropped at once, as memory that is only named to the kernel and never touched: it stays
/// unmapped.
const DROP_BYTES: usize = 4 << 20;

struct Discard {
    wire: Wire,
    /// Buffer for the tap, and for what kernel TLS decrypts, as it does not know MSG_TRUNC.
    hot: Box<[u8]>,
    untouched: Box<[u8]>,
    times: StageTimes,
}

impl Discard {
    fn new(setup: Setup<'_>) -> Self {
        Self {
            hot: vec![0; setup.block_bytes_or(SEEN_BYTES)].into(),
            untouched: vec![0; setup.block_bytes.unwrap_or(DROP_BYTES)].into(),
            times: StageTimes::default(),
            wire: setup.wire,
        }
    }

    /// Takes up to `bytes_max` bytes off the wire without copying them.
    fn drop_some(&mut self, bytes_max: u64) -> Result<u64, Errno> {
        let want = bytes_max.min(self.untouched.len() as u64) as usize;
        let flags = RecvFlags::TRUNC.union(RecvFlags::WAITALL);
        let (_, moved) = rustix::net::recv(self.wire.socket(), &mut self.untouched[..want], flags)?;
        Ok(moved as u64)
    }

    /// Takes the bytes into the buffer, for the tap or because they cannot be dropped.
    fn take(
        &mut self,
        progress: &mut Progress<'_>,
        payload: &mut Payload,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        while progress.left_bytes() > 0 {
            let want = progress.left_bytes().min(self.hot.len() as u64) as usize;
            let hot = &mut self.hot[..want];
            timed(&mut self.times.receive_ns, || payload.receive(&self.wire, hot))
                .map_err(|error| progress.wire("recv", error))?;
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || tap.see(hot));
            }
            progress.moved_bytes += want as u64;
        }
        Ok(())
    }

    fn drop_all(&mut self, progress: &mut Progress<'_>) -> Result<(), EngineError> {
        while progress.left_bytes() > 0 {
            let start = std::time::Instant::now();
            let outcome = self.drop_some(progress.left_bytes());
            self.times.receive_ns += start.elapsed().as_nanos() as u64;
            match outcome {
                Ok(0) => return Err(progress.wire("recv", socket::closed())),
                Ok(moved) => progress.moved_bytes += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(progress.wire("recv", errno)),
            }
        }
        Ok(())
    }
}

impl ReceiveEngine for Discard {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        timed(&mut self.times.receive_ns, || socket::receive_all(INFO.name, &self.wire, buffer))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        if !span.file.is_sink() {
            let source = io::Error::new(
                io::ErrorKind::Unsupported,
                "it throws everything away, and this target is a file",
            );
            return Err(progress.unsupported("submit", source));
        }
        let copies = tap.is_some() || self.wire.kind() == WireKind::KernelTls;
        if copies {
            let mut payload = Payload::begin(&self.wire, span.len_bytes);
            let outcome = self.take(&mut progress, &mut payload, tap);
            payload.end(&self.wire);
            outcome?;
        } else {
            self.drop_all(&mut progress)?;
        }
        done.push(progress.done(if copies { Copied::All } else { Copied::Nothing }));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}
