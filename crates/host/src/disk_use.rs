//! The work of a disk since the machine started: bytes read, and time that it was busy.

use std::{path::Path, time::Duration};

use crate::{below, text};

/// The unit in which the kernel counts, whatever the disk's own is (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;

/// Work of a disk since the machine started; no number shrinks while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    pub reads: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Time in which at least one request was with the disk. A disk that works at several at a time
    /// may be busy and yet have room.
    pub busy: Duration,
}

impl DiskUse {
    /// Reads the use of a disk by its name in /sys/block, such as `nvme0n1`; `None` where it cannot
    /// be read.
    #[must_use]
    pub fn of(root: &Path, name: &str) -> Option<Self> {
        let line = text(&below(root, "/sys/block").join(name).join("stat"))?;
        let mut fields = line.split_whitespace().map_while(|field| field.parse::<u64>().ok());
        let [reads, _, read_sectors, _] = next(&mut fields)?;
        let [_, _, written_sectors, _] = next(&mut fields)?;
        let [_, busy_ms] = next(&mut fields)?;
        Some(Self {
            reads,
            read_bytes: read_sectors.saturating_mul(SECTOR_BYTES),
            written_bytes: written_sectors.saturating_mul(SECTOR_BYTES),
            busy: Duration::from_millis(busy_ms),
        })
    }
}

fn next<const COUNT: usize>(fields: &mut impl Iterator<Item = u64>) -> Option<[u64; COUNT]> {
    let mut found = [0; COUNT];
    for field in &mut found {
        *field = fields.next()?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_fields_are_those_of_the_kernels_manual() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/block/sda");
        fs::create_dir_all(&disk).unwrap();
        let of = |text: &str| {
            fs::write(disk.join("stat"), text).unwrap();
            DiskUse::of(root.path(), "sda")
        };
        let expected = DiskUse {
            reads: 10,
            read_bytes: 12 * 512,
            written_bytes: 22 * 512,
            busy: Duration::from_millis(31),
        };
        assert_eq!(of("  10 11 12 13 20 21 22 23 0 31 32 0 0 0 0 0 0\n"), Some(expected));
        // Before Linux 4.18 there were eleven.
        assert_eq!(of("10 11 12 13 20 21 22 23 0 31 32"), Some(expected));
        for text in ["", "10 11 12 13 20 21 22 23 0", "10 11 12 x 20 21 22 23 0 31"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(DiskUse::of(root.path(), "sdb"), None);
    }
}
