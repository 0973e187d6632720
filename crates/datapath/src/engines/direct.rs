//! O_DIRECT by a second thread: disk to memory by DMA, beside `send(2)` and `recv(2)`.
//!
//! Copies per byte: one, between memory and socket. The page cache is neither used nor filled, so
//! files larger than memory move as evenly as small ones. Needs a file system with O_DIRECT, but
//! no io_uring.

use crate::{
    EngineError, EngineInfo, OpenError, Remedy, Setup, Verdict, Wire, WireKind,
    block_queue::{ALIGN_BYTES, WorkerThread, slots_within},
    read_ahead::ReadAhead,
    write_behind::WriteBehind,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "direct",
    summary: "O_DIRECT by a thread that runs beside the stream; past the page cache",
    wires: &[WireKind::Tcp, WireKind::KernelTls, WireKind::Tls],
    align_bytes: ALIGN_BYTES as u32,
    spans_in_flight_max: 16,
    sees_bytes: true,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup| {
        let (wire, queue) = open(setup)?;
        Ok(Box::new(ReadAhead::new(INFO.name, wire, queue)))
    }),
    open_receive: Some(|setup| {
        let (wire, queue) = open(setup)?;
        Ok(Box::new(WriteBehind::new(INFO.name, wire, queue)))
    }),
};

/// Slots at most: one is being moved by each thread, and two wait for whichever is faster.
const SLOTS_MAX: usize = 4;
/// Bytes of a slot at most: a disk needs large calls where it gets them one by one.
const SLOT_BYTES_MAX: usize = 4 << 20;

fn open(setup: Setup<'_>) -> Result<(Wire, WorkerThread), OpenError> {
    let slot_bytes_max = setup.block_bytes_or(SLOT_BYTES_MAX);
    let (slots, slot_bytes) = slots_within(setup.buffer_bytes_max, SLOTS_MAX, slot_bytes_max);
    match WorkerThread::new("direct", slots, slot_bytes) {
        Ok(queue) => Ok((setup.wire, queue)),
        Err(source) => Err(OpenError {
            wire: setup.wire,
            cause: EngineError {
                engine: INFO.name,
                call: "start a thread",
                span: None,
                offset_bytes: 0,
                moved_bytes: 0,
                remedy: Remedy::UseAnotherEngine,
                source,
            },
        }),
    }
}
