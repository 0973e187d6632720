//! io_uring with O_DIRECT: many reads or writes at the disk at once, beside `send` and `recv`.
//!
//! Copies per byte: one, between memory and socket. Slots of memory are registered with the kernel
//! where RLIMIT_MEMLOCK allows it. The wire is served by plain calls: bytes leave in order, and
//! measured they are as fast as sends from the ring.

use std::io;

use haul_sys::Ring;
use rustix::io::Errno;

use crate::{
    EngineError, EngineInfo, Host, OpenError, Remedy, Setup, Verdict, Wire, WireKind,
    block_queue::{ALIGN_BYTES, slots_within},
    read_ahead::ReadAhead,
    write_behind::WriteBehind,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "io-uring",
    summary: "O_DIRECT at depth by io_uring; past the page cache",
    wires: &[WireKind::Tcp, WireKind::KernelTls, WireKind::Tls],
    align_bytes: ALIGN_BYTES as u32,
    spans_in_flight_max: 16,
    sees_bytes: true,
    reads_while_sending: false,
    probe,
    open_send: Some(|setup| {
        let (wire, ring) = open(setup)?;
        Ok(Box::new(ReadAhead::new(INFO.name, wire, ring)))
    }),
    open_receive: Some(|setup| {
        let (wire, ring) = open(setup)?;
        Ok(Box::new(WriteBehind::new(INFO.name, wire, ring)))
    }),
};

/// Slots at most: deeper queues gain nothing more at the disks measured.
const SLOTS_MAX: usize = 8;
const SLOT_BYTES_MAX: usize = 1 << 20;

fn probe(host: &Host) -> Verdict {
    if host.io_uring_disabled {
        return Verdict::Refused {
            needs: "kernel.io_uring_disabled = 0",
            found: "it forbids io_uring to this process".into(),
        };
    }
    Verdict::Usable
}

fn open(setup: Setup<'_>) -> Result<(Wire, Ring), OpenError> {
    let slot_bytes_max = setup.block_bytes_or(SLOT_BYTES_MAX);
    let (slots, slot_bytes) = slots_within(setup.buffer_bytes_max, SLOTS_MAX, slot_bytes_max);
    match Ring::new(slots as u32, slot_bytes) {
        Ok(ring) => Ok((setup.wire, ring)),
        Err(error) => Err(OpenError {
            wire: setup.wire,
            cause: EngineError {
                engine: INFO.name,
                call: "open",
                span: None,
                offset_bytes: 0,
                moved_bytes: 0,
                remedy: Remedy::UseAnotherEngine,
                source: why(&error),
            },
        }),
    }
}

/// The error that says what refuses io_uring, where no fact that a probe could read does.
fn why(error: &io::Error) -> io::Error {
    let forbids = match Errno::from_io_error(error) {
        Some(Errno::PERM) => {
            ". kernel.io_uring_disabled forbids it, or the seccomp profile of a container"
        }
        Some(Errno::NOSYS) => ". This kernel has none, or a container's seccomp profile hides it",
        // Before its slots, the ring itself is memory that is locked.
        Some(Errno::NOMEM) => ". RLIMIT_MEMLOCK may be too low for a ring: raise it (ulimit -l)",
        _ => "",
    };
    let why = format!("needs io_uring, found that io_uring_setup(2) fails: {error}{forbids}");
    io::Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_may_have_refused() {
        for (errno, says) in [
            (Errno::PERM, "kernel.io_uring_disabled forbids it"),
            (Errno::NOSYS, "This kernel has none"),
            (Errno::NOMEM, "RLIMIT_MEMLOCK may be too low"),
        ] {
            let said = why(&errno.into());
            assert!(said.to_string().contains(says), "{said}");
            assert_eq!(said.kind(), io::Error::from(errno).kind());
        }
        let other = io::Error::from(Errno::IO);
        assert!(why(&other).to_string().ends_with(&format!("fails: {other}")));
    }

    #[test]
    fn a_host_that_forbids_it_is_refused_and_no_other() {
        let host = |io_uring_disabled| Host { io_uring_disabled, ..Host::default() };
        assert!(matches!(probe(&host(true)), Verdict::Refused { .. }));
        assert!(matches!(probe(&host(false)), Verdict::Usable));
    }
}
