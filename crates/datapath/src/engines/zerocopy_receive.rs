//! `TCP_ZEROCOPY_RECEIVE`: the socket's own pages are mapped and written to the file.
//!
//! Copies per byte: one, from the mapped pages into the page cache; read-write makes two. The tap
//! sees the mapped pages. Needs plain TCP and a network card that puts the payload of segments of
//! whole pages into pages of its own (header split, and an MTU such as 4096 + 52 for IPv4).
//!
//! What cannot be mapped is received by a copy and counted. Where that is half of it or more, as
//! with common cards and over loopback, the engine gives up within 4 MiB and what is under way,
//! also when it was asked for.

use std::{io, os::unix::fs::FileExt};

use haul_sys::{SocketPages, socket_pages::Taken};
use rustix::io::Errno;

use crate::{
    EngineError, EngineInfo, FileSpan, Host, OpenError, ReceiveEngine, Remedy, Setup, SpanDone,
    SpanTap, StageTimes, Verdict, Wire, WireKind,
    copy_watch::CopyWatch,
    progress::{Progress, is_of_the_wire},
    socket::{self, Payload},
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "zerocopy-receive",
    summary: "study: the socket's pages, mapped and written; for network cards with header split",
    wires: &[WireKind::Tcp],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe,
    open_send: None,
    open_receive: Some(open),
};

/// Bytes mapped by one call at most; the kernel maps the pages of one segment after the other, so
/// that a larger window brings nothing.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes received by a copy where nothing can be mapped, and then read-write does better.
const COPY_BYTES: usize = 256 << 10;
/// Bytes that are copied behind the mapped pages: what follows the whole pages of a segment is
/// shorter than four pages, and comes with them. When no more than this has come all of it is
/// copied, so it is small.
const REST_BYTES: usize = 16 << 10;

/// Shortest rest of a span that is mapped: a shorter one can hold no more than a page, which is not
/// worth the calls.
const MAPPED_BYTES_MIN: usize = 8 << 10;

fn probe(host: &Host) -> Verdict {
    if host.kernel < (5, 11) {
        let found = format!("Linux {}.{}", host.kernel.0, host.kernel.1);
        return Verdict::Refused { needs: "Linux 5.11 or later", found };
    }
    Verdict::Usable
}

fn open(setup: Setup<'_>) -> Result<Box<dyn ReceiveEngine>, OpenError> {
    let window_bytes = setup.block_bytes_or(WINDOW_BYTES).min(WINDOW_BYTES);
    let pages = match SocketPages::new(setup.wire.socket(), window_bytes) {
        Ok(pages) => pages,
        Err(source) => {
            let (engine, call, remedy) =
                (INFO.name, "mmap of the socket", Remedy::UseAnotherEngine);
            let (span, offset_bytes, moved_bytes) = (None, 0, 0);
            let cause =
                EngineError { engine, call, span, offset_bytes, moved_bytes, remedy, source };
            return Err(OpenError { wire: setup.wire, cause });
        }
    };
    Ok(Box::new(ZerocopyReceive {
        pages,
        copy: vec![0; setup.buffer_bytes_max.clamp(4096, COPY_BYTES)].into(),
        copies: CopyWatch::new(setup.if_copied),
        times: StageTimes::default(),
        wire: setup.wire,
    }))
}

struct ZerocopyReceive {
    wire: Wire,
    pages: SocketPages,
    copy: Box<[u8]>,
    copies: CopyWatch,
    times: StageTimes,
}

impl ZerocopyReceive {
    /// Waits for bytes of the payload and takes some: mapped, then copied.
    fn take(&mut self, payload: &mut Payload, len_bytes: u64) -> io::Result<Taken> {
        let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        if len < MAPPED_BYTES_MIN {
            return self.copy(payload, len);
        }
        timed(&mut self.times.receive_ns, || payload.wait(&self.wire))?;
        // Neither of the two knows of the other, and both together must not leave the span.
        let rest = self.copy.len().min(REST_BYTES).min(len / 2);
        let taken = timed(&mut self.times.receive_ns, || {
            self.pages.take(self.wire.socket(), len - rest, &mut self.copy[..rest])
        });
        match taken {
            Ok(taken) if taken.mapped_bytes + taken.copied_bytes > 0 => {
                payload.took(taken.mapped_bytes + taken.copied_bytes);
                return Ok(taken);
            }
            // The call has taken the connection's error with it (SO_ERROR).
            Err(error) if Errno::from_io_error(&error).is_some_and(is_of_the_wire) => {
                return Err(error);
            }
            // EIO at the connection's end, among others: recv(2) says what there is to say.
            Ok(_) | Err(_) => {}
        }
        let skip = taken.map_or(0, |taken| taken.skip_bytes).max(REST_BYTES);
        self.copy(payload, len.min(skip))
    }

    /// Takes at most `len` bytes by a copy.
    fn copy(&mut self, payload: &mut Payload, len: usize) -> io::Result<Taken> {
        let len = self.copy.len().min(len);
        let part = &mut self.copy[..len];
        let copied_bytes =
            timed(&mut self.times.receive_ns, || payload.receive_some(&self.wire, part))?;
        Ok(Taken { mapped_bytes: 0, copied_bytes, skip_bytes: 0 })
    }

    fn receive_span(
        &mut self,
        progress: &mut Progress<'_>,
        payload: &mut Payload,
        mut tap: Option<&mut dyn SpanTap>,
        copied_bytes: &mut u64,
    ) -> Result<(), EngineError> {
        let file = progress.span.file.file();
        while progress.left_bytes() > 0 {
            self.copies
                .check(|copied, all| {
                    format!(
                        "needs a network card with header split and segments of whole pages, \
                         found that {copied} of {all} bytes could not be mapped"
                    )
                })
                .map_err(|error| progress.unsupported("getsockopt(TCP_ZEROCOPY_RECEIVE)", error))?;
            let run = progress.run(u64::MAX);
            let taken = self
                .take(payload, run.len_bytes)
                .map_err(|error| progress.wire("getsockopt(TCP_ZEROCOPY_RECEIVE)", error))?;
            let parts = [self.pages.mapped(), &self.copy[..taken.copied_bytes]];
            let parts = if taken.mapped_bytes > 0 { parts } else { [&[], parts[1]] };
            for part in parts.iter().filter(|part| !part.is_empty()) {
                if let Some(tap) = tap.as_deref_mut() {
                    timed(&mut self.times.digest_ns, || tap.see(part));
                }
            }
            // The wire stands behind these bytes whether they can be written or not.
            let taken_bytes = (taken.mapped_bytes + taken.copied_bytes) as u64;
            progress.moved_bytes += taken_bytes;
            *copied_bytes += taken.copied_bytes as u64;
            self.copies.count(taken_bytes, taken.copied_bytes as u64);
            let mut offset_bytes = run.offset_bytes;
            for part in parts.iter().filter(|part| !part.is_empty()) {
                timed(&mut self.times.target_ns, || file.write_all_at(part, offset_bytes))
                    .map_err(|error| progress.file("pwrite", error))?;
                offset_bytes += part.len() as u64;
            }
        }
        Ok(())
    }
}

impl ReceiveEngine for ZerocopyReceive {
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
        let mut payload = Payload::begin(&self.wire, span.len_bytes);
        let mut copied_bytes = 0;
        let outcome = self.receive_span(&mut progress, &mut payload, tap, &mut copied_bytes);
        payload.end(&self.wire);
        self.pages.let_go();
        outcome?;
        done.push(SpanDone { id: span.id, moved_bytes: span.len_bytes, copied_bytes });
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

    #[test]
    fn kernels_before_its_own_are_refused_by_their_numbers() {
        let found = |kernel| match probe(&Host { kernel, ..Host::default() }) {
            Verdict::Usable => None,
            Verdict::Refused { found, .. } => Some(found),
        };
        assert_eq!(found((5, 11)), None);
        assert_eq!(found((5, 10)).as_deref(), Some("Linux 5.10"));
    }
}
