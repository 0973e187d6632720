//! The number of processors that this process may use.

use std::path::Path;

use crate::{below, cgroup, number, text, value_after};

/// Processors in this process's affinity, no more than a quota of its cgroup pays for; 1 or more.
pub(crate) fn cores(root: &Path) -> u32 {
    let affinity = match allowed(root).len() {
        0 => available(),
        number => u32::try_from(number).unwrap_or(u32::MAX),
    };
    let quota = cgroup::directories(root, "cpu").iter().filter_map(|level| quota(level)).min();
    affinity.min(quota.unwrap_or(u32::MAX)).max(1)
}

/// The processors in this process's affinity; none where /proc does not say.
pub(crate) fn allowed(root: &Path) -> Vec<u32> {
    text(&below(root, "/proc/self/status"))
        .as_deref()
        .and_then(|status| value_after(status, "Cpus_allowed_list:"))
        .and_then(list)
        .unwrap_or_default()
}

/// The number that the standard library finds, for where /proc does not say.
fn available() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// The largest number of a processor that Linux knows (NR_CPUS of its configuration).
const CPU_MAX: u32 = 8191;

/// Reads a list such as `0-3,8,10-11` (cpuset(7), "List format").
pub(crate) fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Whole processors that one cgroup directory's quota is worth; `None` is no quota.
fn quota(level: &Path) -> Option<u32> {
    let (quota_us, period_us) = match text(&level.join("cpu.max")) {
        Some(limit) => {
            let (quota, period) = limit.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
        }
        // Version 1 writes -1 for no quota, which is no number here.
        None => {
            (number(&level.join("cpu.cfs_quota_us"))?, number(&level.join("cpu.cfs_period_us"))?)
        }
    };
    let whole = quota_us.checked_div(period_us)?.max(1);
    Some(u32::try_from(whole).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-1"), Some(vec![0, 1]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
    }

    #[test]
    fn a_list_that_makes_no_sense_is_not_believed() {
        for text in ["", "3-1", "a-b", "0-4294967295", "1,,2"] {
            assert_eq!(list(text), None, "{text}");
        }
    }
}
