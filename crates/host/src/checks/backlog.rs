//! Packets that wait between the card and TCP.

use super::{Check, Group, sysctl_at_least};
use crate::tune::{Finding, Goal, Machine, Weight, goal::Speed};

pub const CHECK: Check = Check {
    name: "backlog",
    group: Group::Tcp,
    summary: "packets that may wait for a processor (netdev_max_backlog)",
    why: "Where packets are steered to other processors (RPS) or come over a tunnel, they wait in \
        this queue, and are dropped when it is full; the second column of /proc/net/softnet_stat \
        counts them. Disputed: cards that deliver by NAPI alone do not use it. Low priority.",
    source: "ESnet fasterdata.es.net; Documentation/admin-guide/sysctl/net.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let wanted = match goal.speed() {
        Speed::UpTo10G => 250_000,
        Speed::UpTo40G => 500_000,
        Speed::Above40G => 1_000_000,
    };
    vec![sysctl_at_least(machine, "net.core.netdev_max_backlog", wanted, Weight::Low)]
}
