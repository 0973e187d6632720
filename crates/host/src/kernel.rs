//! The kernel that runs, and whether it lets this process use io_uring.

use std::path::Path;

use crate::{
    below,
    credentials::{self, CAP_SYS_ADMIN},
    number, text,
};

/// The oldest kernel that `haul` supports, believed when the kernel does not say its version.
const OLDEST: (u32, u32) = (5, 10);

/// Major and minor number of the running kernel, from a release such as `6.18.44-fc`.
pub(crate) fn version(root: &Path) -> (u32, u32) {
    text(&below(root, "/proc/sys/kernel/osrelease"))
        .and_then(|release| parse(&release))
        .unwrap_or(OLDEST)
}

/// Whether the kernel's switch forbids io_uring to this process: 1 forbids it to all that have
/// neither CAP_SYS_ADMIN nor the group `io_uring_group`, 2 to all
/// (Documentation/admin-guide/sysctl/kernel.rst). Kernels before 6.6 have no such switch, and a
/// kernel without io_uring refuses its set-up call.
pub(crate) fn io_uring_disabled(root: &Path) -> bool {
    let setting = |name| number(&below(root, "/proc/sys/kernel").join(name));
    match setting("io_uring_disabled") {
        None | Some(0) => false,
        Some(1) => {
            // -1 is no group.
            let group = setting("io_uring_group");
            let is_in_group = group.is_some_and(|group| credentials::is_in_group(root, group));
            !(credentials::has(root, CAP_SYS_ADMIN) || is_in_group)
        }
        Some(_) => true,
    }
}

/// The random number of this start of the kernel (random(4), /proc/sys/kernel/random/boot_id).
pub(crate) fn boot_id(root: &Path) -> Option<[u8; 16]> {
    let text = text(&below(root, "/proc/sys/kernel/random/boot_id"))?;
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let number = u128::from_str_radix(std::str::from_utf8(&digits).ok()?.trim(), 16).ok()?;
    (number != 0).then(|| number.to_be_bytes())
}

pub(crate) fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_give_two_numbers() {
        assert_eq!(parse("6.18.44-fc-v657\n"), Some((6, 18)));
        assert_eq!(parse("5.14.0-503.el9.x86_64"), Some((5, 14)));
        assert_eq!(parse("7.0-rc1"), Some((7, 0)));
        assert_eq!(parse("6.1+"), Some((6, 1)));
    }

    #[test]
    fn a_boot_has_a_number_or_none_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(boot_id(root.path()), None);
        let directory = root.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&directory).unwrap();
        let write = |id: &str| std::fs::write(directory.join("boot_id"), id).unwrap();
        write("00112233-4455-6677-8899-aabbccddeeff\n");
        let expected: Vec<u8> = (0..16).map(|at| at * 0x11).collect();
        assert_eq!(boot_id(root.path()).unwrap().to_vec(), expected);
        write("none");
        assert_eq!(boot_id(root.path()), None);
    }

    #[test]
    fn io_uring_may_be_left_to_some() {
        let root = tempfile::tempdir().unwrap();
        assert!(!io_uring_disabled(root.path()), "an old kernel has no switch");
        for directory in ["proc/sys/kernel", "proc/self"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        let disabled = |value: &str| {
            write("proc/sys/kernel/io_uring_disabled", value);
            io_uring_disabled(root.path())
        };
        let user = "Gid:\t9\t9\t9\t9\nGroups:\t9\nCapEff:\t0000000000000000\n";
        write("proc/self/status", user);
        write("proc/sys/kernel/io_uring_group", "-1\n");
        assert!(!disabled("0\n") && disabled("1\n") && disabled("2\n"));
        write("proc/sys/kernel/io_uring_group", "9\n");
        assert!(!disabled("1\n") && disabled("2\n"));
        write("proc/sys/kernel/io_uring_group", "-1\n");
        write("proc/self/status", &user.replace("0000000\n", "0200000\n"));
        assert!(!disabled("1\n") && disabled("2\n"), "CAP_SYS_ADMIN");
    }

    #[test]
    fn a_release_without_two_numbers_is_not_believed() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("linux"), None);
        assert_eq!(parse("6"), None);
    }
}
