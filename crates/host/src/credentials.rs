//! Rights of this process: its capabilities and groups (proc_pid_status(5)).

use std::path::Path;

use crate::{below, text, value_after};

/// The capability to administer the network, as a bit; numbers are from linux/capability.h.
pub(crate) const CAP_NET_ADMIN: u64 = 1 << 12;
pub(crate) const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Whether a capability is in effect. In a container it may still not hold for the host.
pub(crate) fn has(root: &Path, capability: u64) -> bool {
    status(root, "CapEff:")
        .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
        .is_some_and(|capabilities| capabilities & capability != 0)
}

/// Whether the group is the effective one or one of the supplementary ones.
pub(crate) fn is_in_group(root: &Path, group: u64) -> bool {
    let numbers = |line: String, skip: usize, take: usize| {
        line.split_whitespace().skip(skip).take(take).any(|number| number.parse() == Ok(group))
    };
    // Real, effective, saved set and file system group.
    status(root, "Gid:").is_some_and(|line| numbers(line, 1, 1))
        || status(root, "Groups:").is_some_and(|line| numbers(line, 0, usize::MAX))
}

fn status(root: &Path, key: &str) -> Option<String> {
    let status = text(&below(root, "/proc/self/status"))?;
    value_after(&status, key).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_and_groups_are_those_in_effect() {
        let root = tempfile::tempdir().unwrap();
        let has_none = || has(root.path(), CAP_SYS_ADMIN) || is_in_group(root.path(), 0);
        assert!(!has_none(), "nothing is known");
        let directory = root.path().join("proc/self");
        std::fs::create_dir_all(&directory).unwrap();
        let status = "Name:\thaul\nGid:\t7\t8\t9\t10\nGroups:\t24 27 \nCapEff:\t0000000000201000\n";
        std::fs::write(directory.join("status"), status).unwrap();
        assert!(has(root.path(), CAP_SYS_ADMIN) && has(root.path(), CAP_NET_ADMIN));
        assert!(!has(root.path(), 1));
        for (group, is_in) in
            [(7, false), (8, true), (9, false), (24, true), (27, true), (0, false)]
        {
            assert_eq!(is_in_group(root.path(), group), is_in, "{group}");
        }
    }
}
