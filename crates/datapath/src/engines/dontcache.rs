//! `recv(2)` and `pwritev2(2)` with RWF_DONTCACHE: buffered, but written out and dropped at once.
//!
//! Copies per byte: two. The page cache does not fill up, so a transfer larger than memory runs as
//! evenly as with O_DIRECT, without its rules for alignment. Linux 6.14 and newer, on file systems
//! that take part (ext4, xfs).

use std::{
    io::{self, IoSlice},
    os::unix::fs::FileExt,
};

use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::{
    EngineInfo, Host, SpanFile, Verdict, WireKind,
    copying::{BlockWriter, Copying, Written},
    progress::is_unsupported,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "dontcache",
    summary: "buffered writes that leave the page cache at once (Linux 6.14)",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: true,
    reads_while_sending: false,
    probe,
    open_send: None,
    open_receive: Some(|setup| Ok(Box::new(Copying::new(setup, Dontcache)))),
};

/// The flag RWF_DONTCACHE of Linux 6.14 (include/uapi/linux/fs.h); rustix has no name for it.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

fn probe(host: &Host) -> Verdict {
    if host.kernel >= (6, 14) {
        return Verdict::Usable;
    }
    let (major, minor) = host.kernel;
    Verdict::Refused { needs: "Linux 6.14 or newer", found: format!("Linux {major}.{minor}") }
}

struct Dontcache;

impl BlockWriter for Dontcache {
    const ENGINE: &'static str = "dontcache";
    const CALL: &'static str = "pwritev2(RWF_DONTCACHE)";
    const NEEDS: &'static str = "a file system with RWF_DONTCACHE, as ext4 and xfs are";

    fn write(&mut self, file: &SpanFile, offset_bytes: u64, bytes: &[u8]) -> io::Result<Written> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let offset = offset_bytes + at as u64;
            match pwritev2(file.file(), &[IoSlice::new(rest)], offset, DONTCACHE) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => at += moved,
                Err(Errno::INTR) => {}
                Err(errno) if is_unsupported(errno) => {
                    file.file().write_all_at(rest, offset)?;
                    return Ok(Written::Plainly(errno));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Written::AsAsked)
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
        assert_eq!(found((6, 14)), None);
        assert_eq!(found((6, 13)).as_deref(), Some("Linux 6.13"));
    }
}
