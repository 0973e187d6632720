//! Options of TCP that long paths need.

use super::{Check, Group, sysctl_is};
use crate::tune::{Finding, Goal, Machine, Weight};

pub const CHECK: Check = Check {
    name: "tcp-options",
    group: Group::Tcp,
    summary: "window scaling, selective acknowledgements and timestamps are on",
    why: "Without window scaling no stream has more than 64 KiB on the way. Without selective \
        acknowledgements one loss sends a whole window again. Timestamps measure the RTT and guard \
        against old segments on fast paths; the advice to turn them off is from the time of slow \
        processors.",
    source: "RFC 7323, RFC 2018; ESnet fasterdata.es.net",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let on = |(name, weight)| sysctl_is(machine, name, "1", weight);
    vec![
        on(("net.ipv4.tcp_window_scaling", Weight::High)),
        on(("net.ipv4.tcp_sack", Weight::High)),
        timestamps(machine),
    ]
}

/// Checks that timestamps are on; 2 is on, too, without a random offset (ip-sysctl.rst).
fn timestamps(machine: &Machine) -> Finding {
    const NAME: &str = "net.ipv4.tcp_timestamps";
    match machine.sysctl(NAME) {
        Ok(found) if found == "2" => Finding::good(Weight::Medium, NAME, &found),
        _ => sysctl_is(machine, NAME, "1", Weight::Medium),
    }
}
