//! Which kernel runs, and whether it lets this process use io_uring.

use std::path::Path;

use crate::{below, number, text};

/// The oldest kernel that `haul` supports: believed when the kernel does not say.
const OLDEST: (u32, u32) = (5, 10);

/// Major and minor number from a release such as `6.18.44-fc`.
pub(crate) fn version(root: &Path) -> (u32, u32) {
    text(&below(root, "/proc/sys/kernel/osrelease"))
        .and_then(|release| parse(&release))
        .unwrap_or(OLDEST)
}

/// Kernels before 6.6 have no such switch, and a kernel without io_uring refuses its set-up call.
pub(crate) fn io_uring_disabled(root: &Path) -> bool {
    number(&below(root, "/proc/sys/kernel/io_uring_disabled")).is_some_and(|value| value != 0)
}

fn parse(release: &str) -> Option<(u32, u32)> {
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
    fn a_release_without_two_numbers_is_not_believed() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("linux"), None);
        assert_eq!(parse("6"), None);
    }
}
