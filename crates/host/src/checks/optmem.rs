//! Room for the notices of MSG_ZEROCOPY.

use super::{Check, Group, sysctl_at_least};
use crate::tune::{Finding, Goal, Machine, Weight, goal::Speed};

pub const CHECK: Check = Check {
    name: "optmem",
    group: Group::Tcp,
    summary: "memory for what a socket has beside its data (optmem_max)",
    why: "Each send with MSG_ZEROCOPY keeps a record there until the peer has acknowledged its \
        bytes. With the old 20 KiB a stream of 100 Gbit/s fails with ENOBUFS, or copies after all. \
        Linux 6.8 raised it to 128 KiB.",
    source: "ESnet fasterdata.es.net; Documentation/networking/msg_zerocopy.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let (wanted, weight) = match goal.speed() {
        Speed::Above40G => (1 << 20, Weight::Medium),
        Speed::UpTo10G | Speed::UpTo40G => (128 << 10, Weight::Low),
    };
    vec![sysctl_at_least(machine, "net.core.optmem_max", wanted, weight)]
}
