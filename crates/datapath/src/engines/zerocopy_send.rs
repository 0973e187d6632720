//! `MSG_ZEROCOPY` from O_DIRECT buffers: disk to memory to network card, both by DMA.
//!
//! Copies per byte: none, where network card and driver can send the pages of a program; the
//! digest sees the very bytes that leave. Needs plain TCP, a file system with O_DIRECT, and locked
//! memory (RLIMIT_MEMLOCK) for what the wire has not yet acknowledged.
//!
//! Where the kernel copies after all, as over loopback, veth and while packets are captured, that
//! costs more than to copy at once: the engine then gives up within 4 MiB and what is under way,
//! also when it was asked for. What was copied is counted. A source that is in the page cache goes
//! better by sendfile, which needs neither locked pages nor notices.

use haul_sys::Ring;

use crate::{
    EngineError, EngineInfo, Host, OpenError, Remedy, SendEngine, Setup, Verdict, Wire, WireKind,
    block_queue::{ALIGN_BYTES, BlockQueue, WorkerThread, slots_within},
    read_ahead::ReadAhead,
    zero_copy_sends::ZeroCopySends,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "zerocopy-send",
    summary: "study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback",
    wires: &[WireKind::Tcp],
    align_bytes: ALIGN_BYTES as u32,
    spans_in_flight_max: SLOTS_MAX as u32,
    sees_bytes: true,
    reads_while_sending: false,
    probe,
    open_send: Some(open),
    open_receive: None,
};

/// Slots at most: the wire holds those that are not acknowledged, beside those that the disk fills,
/// so twice as many as io-uring has.
const SLOTS_MAX: usize = 16;
/// Slots wanted at least: two are always left to the disk, so there should be more of them than
/// that.
const SLOTS_WANTED: usize = 4;
const SLOT_BYTES_MAX: usize = 1 << 20;

fn probe(host: &Host) -> Verdict {
    if host.kernel < (4, 14) {
        let found = format!("Linux {}.{}", host.kernel.0, host.kernel.1);
        return Verdict::Refused { needs: "Linux 4.14 or later", found };
    }
    Verdict::Usable
}

fn open(setup: Setup<'_>) -> Result<Box<dyn SendEngine>, OpenError> {
    let (slots, slot_bytes) =
        slots_of(setup.buffer_bytes_max, setup.block_bytes_or(SLOT_BYTES_MAX));
    let sends = match ZeroCopySends::new(&setup.wire, slots, setup.if_copied) {
        Ok(sends) => sends,
        Err(error) => return Err(refused(setup.wire, "setsockopt(SO_ZEROCOPY)", error)),
    };
    // Registered slots would be locked twice, and the limit of locked memory is for the sends.
    match Ring::unregistered(slots as u32, slot_bytes) {
        Ok(ring) => Ok(engine(setup.wire, ring, sends)),
        Err(_) => match WorkerThread::new(INFO.name, slots, slot_bytes) {
            Ok(worker) => Ok(engine(setup.wire, worker, sends)),
            Err(error) => Err(refused(setup.wire, "start a thread", error)),
        },
    }
}

/// Number and size of the slots in so much memory, none larger than `slot_bytes_max`.
fn slots_of(memory_bytes: usize, slot_bytes_max: usize) -> (usize, usize) {
    let slot_bytes_max = slot_bytes_max.min(memory_bytes / SLOTS_WANTED).max(ALIGN_BYTES as usize);
    let slot_bytes_max = slot_bytes_max - slot_bytes_max % ALIGN_BYTES as usize;
    slots_within(memory_bytes, SLOTS_MAX, slot_bytes_max)
}

fn engine(
    wire: Wire,
    queue: impl BlockQueue + 'static,
    sends: ZeroCopySends,
) -> Box<dyn SendEngine> {
    Box::new(ReadAhead::without_copies(INFO.name, wire, queue, sends))
}

fn refused(wire: Wire, call: &'static str, source: std::io::Error) -> OpenError {
    let (engine, remedy) = (INFO.name, Remedy::UseAnotherEngine);
    let (span, offset_bytes, moved_bytes) = (None, 0, 0);
    let cause = EngineError { engine, call, span, offset_bytes, moved_bytes, remedy, source };
    OpenError { wire, cause }
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
        assert_eq!(found((4, 14)), None);
        assert_eq!(found((4, 13)).as_deref(), Some("Linux 4.13"));
    }

    #[test]
    fn slots_are_whole_blocks_and_four_at_least_where_the_memory_holds_them() {
        let block = ALIGN_BYTES as usize;
        for (memory_bytes, wanted_bytes, slots) in [
            (64 << 20, 1 << 20, (16, 1 << 20)),
            (8 << 20, 1 << 20, (8, 1 << 20)),
            (2 << 20, 1 << 20, (4, 512 << 10)),
            (4 * 5 * block - 4, 1 << 20, (4, 4 * block)),
            (64 << 20, 3 * block + 1, (16, 3 * block)),
        ] {
            assert_eq!(
                slots_of(memory_bytes, wanted_bytes),
                slots,
                "{memory_bytes} {wanted_bytes}"
            );
        }
        let (slots, slot_bytes) = slots_of(0, 1 << 20);
        assert!(slots > 0 && slot_bytes == block);
    }
}
