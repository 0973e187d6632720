//! The permission of programs to use io_uring.

use super::{Check, Group};
use crate::tune::{
    Finding, Goal, Machine, Setting, Weight,
    machine::{Unread, Why},
};

pub const CHECK: Check = Check {
    name: "io-uring",
    group: Group::System,
    summary: "programs may use io_uring (io_uring_disabled)",
    why: "With it one thread keeps many requests of a disk under way. Without it haul takes other \
        engines, which do nearly as well with more threads. Some sites turn it off for safety: \
        that is theirs to decide, so it is changed only by name.",
    source: "Documentation/admin-guide/sysctl/kernel.rst",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const NAME: &str = "kernel.io_uring_disabled";
    let words = |value: &str| match value {
        "0" => Some("0: all may"),
        "1" => Some("1: only a group and administrators may"),
        "2" => Some("2: nobody may"),
        _ => None,
    };
    vec![match machine.sysctl(NAME) {
        Ok(value) => match words(&value) {
            Some(found) if value == "0" => Finding::good(Weight::Low, NAME, found),
            Some(found) => Finding::improve(Weight::Low, NAME, found, "0")
                .note("ask whoever turned it off")
                .change(Setting::sysctl(NAME), "0")
                .only_by_name(),
            None => Finding::unknown(NAME, &Unread::nonsense(NAME, &value)),
        },
        Err(Unread { why: Why::Missing, .. }) => {
            Finding::absent(NAME, "kernels before 6.6 have no such switch")
        }
        Err(unread) => Finding::unknown(NAME, &unread),
    }]
}
