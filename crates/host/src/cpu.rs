//! How many processors this process may use.

use std::path::Path;

use crate::{below, cgroup, number, text, value_after};

/// Processors in this process's affinity, no more than a quota of its cgroup pays for; 1 or more.
pub(crate) fn cores(root: &Path) -> u32 {
    let affinity = text(&below(root, "/proc/self/status"))
        .as_deref()
        .and_then(|status| value_after(status, "Cpus_allowed_list:"))
        .and_then(count)
        .unwrap_or_else(available);
    let quota = cgroup::directories(root, "cpu").iter().filter_map(|level| quota(level)).min();
    affinity.min(quota.unwrap_or(u32::MAX)).max(1)
}

/// What the standard library finds, where /proc does not say.
fn available() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Counts a list such as `0-3,8,10-11` (cpuset(7), "List format").
fn count(list: &str) -> Option<u32> {
    let mut total = 0_u32;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
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
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("5"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
    }

    #[test]
    fn a_list_that_makes_no_sense_is_not_believed() {
        for list in ["", "3-1", "a-b", "0-4294967295", "1,,2"] {
            assert_eq!(count(list), None, "{list}");
        }
    }
}
