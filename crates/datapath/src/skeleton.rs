//! An engine that moves bytes in the simplest way and explains every hook. Copy it to begin one.
//!
//! To make an engine of it: copy this file to `engines/NAME.rs`, name it in `engines.rs` in two
//! lines, and run `cargo test -p haul-datapath`: the conformance suite takes every engine of the
//! list, and this one. Above, in the first line, stands what the engine is, in a sentence that a
//! user understands; here, what it promises and what it does not: copies per byte, what it needs.

use std::os::unix::fs::FileExt;

use rustix::io::{pread, retry_on_intr};

use crate::{
    Boundary, EngineError, EngineInfo, FileSpan, ReceiveEngine, SendEngine, Setup, SpanDone,
    SpanTap, StageTimes, Verdict, Wire, WireKind,
    progress::{Copied, Progress},
    socket,
    stopwatch::timed,
};

/// Knowledge of the rest of the program about the engine; all of it is data.
pub static INFO: EngineInfo = EngineInfo {
    // The name is the file's, and the same on the command line, in reports and in the docs.
    name: "skeleton",
    summary: "the simplest engine, to begin another with",
    // Kernel TLS takes the calls of TCP, but not every flag of them.
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    // 1: any offset and length goes at full speed. O_DIRECT engines have 4096 here, and still take
    // any span.
    align_bytes: 1,
    // Spans that may be submitted and not yet done. 1: submit finishes its span.
    spans_in_flight_max: 1,
    // A tap costs no second read.
    sees_bytes: true,
    // What is waited for within the call that sends is the wire alone.
    reads_while_sending: false,
    // Answers from the facts about the host alone; what only a try can tell is left to `open` and
    // to `submit`.
    probe: |_host| Verdict::Usable,
    // An engine may do only one of the two. Where opening can fail, the error brings the wire back.
    open_send: Some(|setup| Ok(Box::new(Skeleton::new(setup)))),
    open_receive: Some(|setup| Ok(Box::new(Skeleton::new(setup)))),
};

/// Bytes of the buffer, the smallest that is not painfully slow. Every limit has a name, a unit and
/// a reason.
const BUFFER_BYTES: usize = 65_536;

/// The state of an engine: one thread has it and its wire; nothing is shared.
struct Skeleton {
    wire: Wire,
    buffer: Box<[u8]>,
    times: StageTimes,
}

impl Skeleton {
    fn new(setup: Setup<'_>) -> Self {
        // Less memory than wanted is used, and no failure.
        let buffer_bytes = setup.block_bytes_or(BUFFER_BYTES);
        Self {
            wire: setup.wire,
            buffer: vec![0; buffer_bytes].into(),
            times: StageTimes::default(),
        }
    }
}

impl SendEngine for Skeleton {
    /// Sends headers and trailers. An engine that queues must send all it has when it is told to
    /// flush, or both peers wait for ever.
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        timed(&mut self.times.send_ns, || {
            socket::send_all(INFO.name, &mut self.wire, bytes, boundary)
        })
    }

    // `prepare` is a hint. An engine that reads ahead keeps the span, and starts its reads when
    // those of the span before it are under way.

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        // Progress counts, and builds errors that say how far the span came. `moved_bytes` is what
        // the caller goes on from, so it is advanced at once after each call that moved something.
        let mut progress = Progress::new(INFO.name, span);
        while progress.left_bytes() > 0 {
            // A run never crosses the window's end of a repeating source such as zero:SIZE.
            let run = progress.run(self.buffer.len() as u64);
            let part = &mut self.buffer[..run.len_bytes as usize];
            let got = timed(&mut self.times.source_ns, || {
                retry_on_intr(|| pread(span.file.file(), &mut *part, run.offset_bytes))
            });
            let got = match got {
                // The file became shorter. The stream goes on: the caller pads the span.
                Ok(0) => return Err(progress.truncated("pread")),
                Ok(got) => got,
                // Whose fault an error is decides about the remedy: of the file, skip the file.
                Err(errno) => return Err(progress.file("pread", errno)),
            };
            // The tap sees each byte once, in order, and before submit returns.
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || tap.see(&part[..got]));
            }
            // Of the wire: reconnect. `send_whole` goes on after signals and short sends.
            timed(&mut self.times.send_ns, || {
                socket::send_whole(&mut self.wire, &part[..got], Boundary::Flush)
            })
            .map_err(|(_, error)| progress.wire("send", error))?;
            progress.moved_bytes += got as u64;
        }
        // The span's memory and file range are free from here on. An engine that cannot say so yet
        // reports the span from `reap`, and counts it in `spans_in_flight` until then.
        done.push(progress.done(Copied::All));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// Gives the wire back: another engine goes on at the very byte, so nothing may be left in a
    /// queue of this one.
    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

impl ReceiveEngine for Skeleton {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        timed(&mut self.times.receive_ns, || socket::receive_all(INFO.name, &mut self.wire, buffer))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        while progress.left_bytes() > 0 {
            let run = progress.run(self.buffer.len() as u64);
            // Never more than the span: what follows on the wire belongs to the next header.
            let part = &mut self.buffer[..run.len_bytes as usize];
            timed(&mut self.times.receive_ns, || socket::receive_whole(&mut self.wire, part))
                .map_err(|(_, error)| progress.wire("recv", error))?;
            if let Some(tap) = tap.as_deref_mut() {
                timed(&mut self.times.digest_ns, || tap.see(part));
            }
            // These bytes are off the wire, whether they can be written or not.
            progress.moved_bytes += run.len_bytes;
            // Only the span's own bytes are written: the page around them may belong to another
            // span that another thread writes at this moment. A full disk (ENOSPC, EDQUOT) is the
            // file's fault; a call that the file system does not know would be
            // `progress.unsupported`, after these bytes were written in the plain way.
            timed(&mut self.times.target_ns, || {
                span.file.file().write_all_at(part, run.offset_bytes)
            })
            .map_err(|error| progress.file("pwrite", error))?;
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
