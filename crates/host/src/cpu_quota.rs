//! Throttling of this process: the time for which its own CPU quota has held it. It is the
//! bandwidth control of the process's control groups, and looks like others having the processors.
//!
//! Version 2 counts `throttled_usec` in `cpu.stat` (cgroup-v2.rst), version 1 `throttled_time` in
//! nanoseconds (sched-bwc.rst). Both add up the time of all processors.

use crate::{below, cgroup, text};
use std::path::Path;

/// Time so far in which a group of this process, or one above it, had used up its quota. 0 where no
/// group has a quota.
#[must_use]
pub fn throttled_ns(root: &Path) -> u64 {
    let groups = cgroup::directories(root, "cpu");
    let stats = groups.iter().filter_map(|group| text(&below(group, "cpu.stat")));
    stats.map(|stat| of_stat(&stat)).max().unwrap_or(0)
}

/// A measurement of how long a quota holds this process, from a moment on.
#[derive(Clone, Copy, Debug)]
pub struct Throttling {
    before_ns: u64,
}

impl Throttling {
    /// Begins to measure throttling now.
    #[must_use]
    pub fn begin() -> Self {
        Self { before_ns: throttled_ns(Path::new("/")) }
    }

    /// Nanoseconds so far in which the quota held this process.
    #[must_use]
    pub fn ns(self) -> u64 {
        throttled_ns(Path::new("/")).saturating_sub(self.before_ns)
    }
}

fn of_stat(stat: &str) -> u64 {
    let value = |name: &str| {
        let of_name = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
        stat.lines().find_map(of_name)
    };
    let us = value("throttled_usec ").map(|us| us.saturating_mul(1000));
    us.or_else(|| value("throttled_time ")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_tell_how_long_a_quota_held() {
        let version_2 = "usage_usec 5\nnr_periods 92\nnr_throttled 89\nthrottled_usec 8455111\n";
        assert_eq!(of_stat(version_2), 8_455_111_000);
        let version_1 = "nr_periods 92\nnr_throttled 89\nthrottled_time 8455111222\n";
        assert_eq!(of_stat(version_1), 8_455_111_222);
        assert_eq!(of_stat("usage_usec 5\n"), 0, "without a quota");
    }

    #[test]
    fn a_group_above_may_have_the_quota() {
        let root = std::env::temp_dir().join(format!("haul-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = below(&root, path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(throttled_ns(&root), 0);
        write("/proc/self/cgroup", "0::/batch/job\n");
        let mount = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        write("/proc/self/mountinfo", mount);
        write("/sys/fs/cgroup/batch/job/cpu.stat", "usage_usec 5\nthrottled_usec 0\n");
        write("/sys/fs/cgroup/batch/cpu.stat", "usage_usec 5\nthrottled_usec 7\n");
        assert_eq!(throttled_ns(&root), 7000);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
