//! TLS in this process: a file is read into records and encrypted there, and written out of them.
//!
//! Copies per byte: two on each side, as with read-write; encryption and decryption are done where
//! the bytes lie. For hosts whose kernel has no TLS, where the page cache gives or takes the bytes:
//! the wire takes memory and no descriptor. The engines past the page cache work on it too.

use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::{preadv, pwritev, retry_on_intr};

use crate::{
    Boundary, EngineError, EngineInfo, FileSpan, OpenError, ReceiveEngine, Remedy, SendEngine,
    Setup, SpanDone, SpanFile, SpanTap, StageTimes, TlsEnd, Verdict, Wire, WireKind,
    progress::{Copied, Progress},
    stopwatch::timed,
    tls::{ReceiveEnd, SendEnd},
};

pub static INFO: EngineInfo = EngineInfo {
    name: "tls",
    summary: "TLS 1.3 in this process, for `--protection private` where the kernel has none",
    wires: &[WireKind::Tls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup: Setup<'_>| match setup.wire {
        Wire::Tls(end) => match *end {
            TlsEnd::Sends(end) => Ok(Box::new(TlsSend { end, times: StageTimes::default() })),
            end @ TlsEnd::Receives(_) => Err(wrong_end(Wire::Tls(Box::new(end)))),
        },
        wire => Err(wrong_end(wire)),
    }),
    open_receive: Some(|setup: Setup<'_>| match setup.wire {
        Wire::Tls(end) => match *end {
            TlsEnd::Receives(end) => Ok(Box::new(TlsReceive { end, times: StageTimes::default() })),
            end @ TlsEnd::Sends(_) => Err(wrong_end(Wire::Tls(Box::new(end)))),
        },
        wire => Err(wrong_end(wire)),
    }),
};

fn wrong_end(wire: Wire) -> OpenError {
    let why = "needs a connection of TLS in this process that goes this way, found another wire";
    let source = io::Error::new(io::ErrorKind::Unsupported, why);
    let remedy = Remedy::UseAnotherEngine;
    OpenError { wire, cause: error_of("open", remedy, 0, source) }
}

fn error_of(
    call: &'static str,
    remedy: Remedy,
    moved_bytes: u64,
    source: io::Error,
) -> EngineError {
    EngineError {
        engine: INFO.name,
        call,
        span: None,
        offset_bytes: 0,
        moved_bytes,
        remedy,
        source,
    }
}

struct TlsSend {
    end: SendEnd,
    times: StageTimes,
}

impl TlsSend {
    fn flush(&mut self, boundary: Boundary) -> io::Result<()> {
        timed(&mut self.times.send_ns, || self.end.flush(boundary))
    }

    /// Reads the next part of the span into the records, behind what is held there.
    fn read(
        &mut self,
        progress: &Progress<'_>,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<usize, EngineError> {
        let run = progress.run(self.end.room_bytes() as u64);
        let len_bytes = run.len_bytes as usize;
        let got = timed(&mut self.times.source_ns, || {
            let mut room: Vec<_> = self.end.room(len_bytes).map(IoSliceMut::new).collect();
            let file = progress.span.file.file();
            retry_on_intr(|| preadv(file, &mut room, run.offset_bytes))
        })
        .map_err(|errno| progress.file("preadv", errno))?;
        if got == 0 {
            return Err(progress.truncated("preadv"));
        }
        if let Some(tap) = tap {
            let end = &mut self.end;
            timed(&mut self.times.digest_ns, || end.room(got).for_each(|part| tap.see(part)));
        }
        self.end.filled(got);
        Ok(got)
    }
}

impl SendEngine for TlsSend {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        let sent = timed(&mut self.times.send_ns, || {
            self.end.send(bytes)?;
            match boundary {
                Boundary::Flush => self.end.flush(boundary),
                Boundary::MoreFollows => Ok(()),
            }
        });
        sent.map_err(|error| error_of("send", Remedy::Reconnect, 0, error))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        while progress.left_bytes() > 0 {
            if self.end.room_bytes() == 0 {
                self.flush(Boundary::MoreFollows).map_err(|error| progress.wire("send", error))?;
            }
            let got = self.read(&progress, &mut tap)?;
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
        let _ = self.flush(Boundary::Flush);
        Wire::Tls(Box::new(TlsEnd::Sends(self.end)))
    }
}

struct TlsReceive {
    end: ReceiveEnd,
    times: StageTimes,
}

impl ReceiveEngine for TlsReceive {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let room = &mut buffer[filled..];
            let taken = timed(&mut self.times.receive_ns, || {
                let mut taken = 0;
                for part in self.end.content(room.len() as u64)? {
                    room[taken..taken + part.len()].copy_from_slice(part);
                    taken += part.len();
                }
                self.end.took(taken);
                Ok(taken)
            });
            filled +=
                taken.map_err(|error| error_of("recv", Remedy::Reconnect, filled as u64, error))?;
        }
        Ok(())
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        while progress.left_bytes() > 0 {
            let run = progress.run(u64::MAX);
            let parts = timed(&mut self.times.receive_ns, || self.end.content(run.len_bytes))
                .map_err(|error| progress.wire("recv", error))?;
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || parts.iter().for_each(|part| tap.see(part)));
            }
            let bytes = parts.iter().map(|part| part.len()).sum();
            let written = timed(&mut self.times.target_ns, || {
                write_all(&span.file, run.offset_bytes, &parts)
            });
            drop(parts);
            // The wire stands behind these bytes whether they can be written or not.
            self.end.took(bytes);
            progress.moved_bytes += bytes as u64;
            written.map_err(|error| progress.file("pwritev", error))?;
        }
        done.push(progress.done(Copied::All));
        Ok(())
    }

    fn has_come(&mut self) -> Option<bool> {
        Some(self.end.has_come())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        Wire::Tls(Box::new(TlsEnd::Receives(self.end)))
    }
}

/// Writes all parts one behind the other, in as few calls as the kernel takes.
fn write_all(file: &SpanFile, mut offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
    if file.is_sink() {
        return Ok(());
    }
    let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let written = retry_on_intr(|| pwritev(file.file(), left, offset_bytes))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset_bytes += written as u64;
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}
