//! `sendfile(2)`: page cache to socket, no user-space buffer.
//!
//! Copies per byte: none with checksum offload and scatter-gather. The pages stay referenced until
//! the peer acknowledges them, so a file changed while it is being sent arrives changed; a digest
//! taken beside it then differs and the span fails, it is not believed.
//!
//! sendfile(2) has no MSG_NOSIGNAL: the process must ignore SIGPIPE, as Rust programs do.

use rustix::{fs::sendfile, io::retry_on_intr};

use crate::{
    EngineInfo, Setup, SpanFile, StageTimes, Verdict, Wire, WireKind,
    copy_free::{CopyFree, Moved, SendMover},
    progress::{Copied, Failure, Run, Side},
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "sendfile",
    summary: "page cache to socket inside the kernel",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: false,
    reads_while_sending: true,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup: Setup<'_>| Ok(Box::new(CopyFree::new(setup, Sendfile)))),
    open_receive: None,
};

/// The kernel moves at most 0x7ffff000 bytes a call (sendfile(2)).
const CALL_BYTES_MAX: u64 = 0x7fff_f000;

struct Sendfile;

impl SendMover for Sendfile {
    const ENGINE: &'static str = "sendfile";
    const COPIED: Copied = Copied::Nothing;
    const STRIDE_BYTES: u64 = 256 << 10;

    fn send_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved {
        let len = run.len_bytes.min(CALL_BYTES_MAX) as usize;
        let mut offset = run.offset_bytes;
        let outcome = timed(&mut times.send_ns, || {
            retry_on_intr(|| sendfile(wire.socket(), file.file(), Some(&mut offset), len))
        });
        match outcome {
            Ok(moved) => Moved::some(moved as u64),
            Err(errno) => Moved::failed(0, Failure::new("sendfile", Side::Either, errno)),
        }
    }
}
