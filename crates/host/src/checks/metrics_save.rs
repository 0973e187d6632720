//! Metrics that TCP remembers of earlier connections.

use super::{Check, Group, sysctl_is};
use crate::tune::{Finding, Goal, Machine, Weight};

pub const CHECK: Check = Check {
    name: "metrics-save",
    group: Group::Tcp,
    summary: "connections do not inherit the bad luck of earlier ones (tcp_no_metrics_save)",
    why: "The kernel keeps the slow-start threshold of a connection that ended and gives it to the \
        next to the same peer. One that saw a burst of loss makes all that follow leave slow start \
        far too early, for minutes.",
    source: "ESnet fasterdata.es.net; Documentation/networking/ip-sysctl.rst",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    vec![sysctl_is(machine, "net.ipv4.tcp_no_metrics_save", "1", Weight::Low)]
}
