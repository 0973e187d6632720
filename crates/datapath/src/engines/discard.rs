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
            timed(&mut self.times.receive_ns, || payload.receive(&mut self.wire, hot))
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
        timed(&mut self.times.receive_ns, || socket::receive_all(INFO.name, &mut self.wire, buffer))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IfCopied, SpanFile, SpanId};
    use std::{io::Write, net::TcpListener, sync::Arc};

    #[test]
    fn a_peer_that_leaves_within_a_span_is_told_with_what_came_and_the_time_it_took() {
        struct Nothing;
        impl SpanTap for Nothing {
            fn see(&mut self, _: &[u8]) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        for is_tapped in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            let (wire, block_bytes) = (Wire::Tcp(far.into()), Some(1000));
            let (buffer_bytes_max, if_copied) = (1 << 20, IfCopied::GoOn);
            let host = &crate::Host::default();
            let mut discard =
                Discard::new(Setup { wire, host, buffer_bytes_max, block_bytes, if_copied });
            let (file, id) = (Arc::new(SpanFile::sink().unwrap()), SpanId(5));
            let span = FileSpan { id, file, offset_bytes: 0, len_bytes: 5000 };
            let mut done = Vec::new();
            let mut submit = |discard: &mut Discard| {
                let mut tap = Nothing;
                let tap: Option<&mut dyn SpanTap> = if is_tapped { Some(&mut tap) } else { None };
                discard.submit(&span, tap, &mut done)
            };
            near.write_all(&[7; 7000]).unwrap();
            submit(&mut discard).unwrap();
            drop(near);
            let error = submit(&mut discard).unwrap_err();
            assert_eq!(error.source.kind(), io::ErrorKind::UnexpectedEof);
            // A block that did not come whole counts for nothing.
            let moved_bytes = if is_tapped { 0 } else { 2000 };
            assert_eq!((error.moved_bytes, done.len()), (moved_bytes, 1));
            assert_eq!(done[0].copied_bytes, if is_tapped { 5000 } else { 0 });
            let times = discard.stage_times();
            assert!(times.receive_ns > 0 && (times.digest_ns > 0) == is_tapped, "{times:?}");
        }
    }
}
