//! Sizes of the parts of a file that one call has the kernel read into the page cache.
//!
//! The larger they are, the fewer requests a disk has for the same bytes.
//!
//! POSIX_FADV_WILLNEED is cut off without a word at what the device reads ahead or at its largest
//! request, whichever is more (force_page_cache_ra() in mm/readahead.c).

use std::{collections::HashMap, fs};

use rustix::fs::{major, minor};

/// Bytes that kernels read ahead where nobody has set it otherwise (VM_READAHEAD_PAGES).
const BYTES_MIN: u64 = 128 << 10;

/// Sizes of parts by device, as its files say it (st_dev).
#[derive(Debug, Default)]
pub struct Parts {
    known: HashMap<u64, u64>,
}

impl Parts {
    /// Bytes that one call may ask for of this device's files; at most `bytes_max`.
    pub fn of(&mut self, device: u64, bytes_max: u64) -> u64 {
        let limit = *self.known.entry(device).or_insert_with(|| limit_bytes(device));
        limit.clamp(BYTES_MIN.min(bytes_max), bytes_max)
    }
}

/// Most bytes that a device's kernel reads by one call; 0 where it does not say. A partition has
/// its disk's; a network and btrfs have a number that is no disk's.
fn limit_bytes(device: u64) -> u64 {
    let name = format!("{}:{}", major(device), minor(device));
    [
        format!("/sys/class/bdi/{name}/read_ahead_kb"),
        format!("/sys/dev/block/{name}/queue/max_sectors_kb"),
        format!("/sys/dev/block/{name}/../queue/read_ahead_kb"),
        format!("/sys/dev/block/{name}/../queue/max_sectors_kb"),
    ]
    .iter()
    .filter_map(|place| fs::read_to_string(place).ok()?.trim().parse::<u64>().ok())
    .map(|kib| kib.saturating_mul(1 << 10))
    .max()
    .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_part_is_as_long_as_its_device_takes_and_never_longer_than_asked() {
        let device = fs::metadata(".").unwrap().dev();
        let mut parts = Parts::default();
        let whole = parts.of(device, u64::MAX);
        assert_eq!(whole, limit_bytes(device).max(BYTES_MIN));
        assert_eq!(parts.of(device, 512 << 10), whole.min(512 << 10));
        assert_eq!(parts.of(device, 1 << 10), 1 << 10);
        // Nobody knows of such a device.
        assert_eq!(parts.of(rustix::fs::makedev(4095, 77), u64::MAX), BYTES_MIN);
    }
}
