//! The memory that this process may use, and the part of it that may hold unwritten data.

use std::path::Path;

use crate::{below, cgroup, number, text, value_after};

/// Memory assumed when the kernel does not say: little enough to be there.
const TOTAL_BYTES_DEFAULT: u64 = 1 << 30;

/// vm.dirty_ratio as the kernel starts with it (Documentation/admin-guide/sysctl/vm.rst).
const DIRTY_PERCENT_DEFAULT: u64 = 20;

pub(crate) struct Memory {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) dirty_limit_bytes: u64,
}

pub(crate) fn read(root: &Path) -> Memory {
    let meminfo = text(&below(root, "/proc/meminfo")).unwrap_or_default();
    let mut total_bytes = kib_of(&meminfo, "MemTotal:").unwrap_or(TOTAL_BYTES_DEFAULT);
    let mut available_bytes = kib_of(&meminfo, "MemAvailable:").unwrap_or(total_bytes / 2);
    for level in cgroup::directories(root, "memory") {
        if let Some(limit_bytes) = limit(&level) {
            total_bytes = total_bytes.min(limit_bytes);
            available_bytes = available_bytes.min(room(&level, limit_bytes));
        }
    }
    available_bytes = available_bytes.min(total_bytes);
    let dirty_limit_bytes = dirty_limit(root, available_bytes);
    Memory { total_bytes, available_bytes, dirty_limit_bytes }
}

/// The bytes of a line of /proc/meminfo. The kernel writes kB and means KiB.
fn kib_of(meminfo: &str, key: &str) -> Option<u64> {
    let kib: u64 = value_after(meminfo, key)?.split(' ').next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The memory limit at one cgroup directory. Version 2 writes `max` for none, version 1 a huge
/// number.
fn limit(level: &Path) -> Option<u64> {
    number(&level.join("memory.max")).or_else(|| number(&level.join("memory.limit_in_bytes")))
}

/// The memory that a cgroup may still take: file pages count as used there, yet are given back on
/// demand.
fn room(level: &Path, limit_bytes: u64) -> u64 {
    let used_bytes = number(&level.join("memory.current"))
        .or_else(|| number(&level.join("memory.usage_in_bytes")))
        .unwrap_or(0);
    let stat = text(&level.join("memory.stat")).unwrap_or_default();
    let pages = |key: &str| value_after(&stat, key).and_then(|value| value.parse::<u64>().ok());
    // Version 1 has the sums over the groups below under `total_`; version 2 has only sums.
    let inactive = pages("total_inactive_file ").or_else(|| pages("inactive_file "));
    let active = pages("total_active_file ").or_else(|| pages("active_file "));
    let file_bytes = inactive.unwrap_or(0).saturating_add(active.unwrap_or(0));
    limit_bytes.saturating_sub(used_bytes.saturating_sub(file_bytes))
}

/// The limit of unwritten bytes: vm.dirty_bytes if it is set, else vm.dirty_ratio percent of the
/// available memory.
fn dirty_limit(root: &Path, available_bytes: u64) -> u64 {
    match number(&below(root, "/proc/sys/vm/dirty_bytes")) {
        Some(bytes) if bytes > 0 => bytes,
        _ => {
            let percent = number(&below(root, "/proc/sys/vm/dirty_ratio"));
            available_bytes / 100 * percent.unwrap_or(DIRTY_PERCENT_DEFAULT).min(100)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kib() {
        let meminfo = "MemTotal:       24684092 kB\nMemFree:        24483208 kB\n";
        assert_eq!(kib_of(meminfo, "MemTotal:"), Some(24_684_092 * 1024));
        assert_eq!(kib_of(meminfo, "MemAvailable:"), None);
    }
}
