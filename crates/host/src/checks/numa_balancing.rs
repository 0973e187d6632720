//! NUMA balancing, by which the kernel moves a program's memory between nodes by itself.

use super::{Check, Group, sysctl_is};
use crate::{
    numa,
    tune::{Finding, Goal, Machine, Weight},
};

pub const CHECK: Check = Check {
    name: "numa-balancing",
    group: Group::Processor,
    summary: "the kernel does not move memory between NUMA nodes by itself (numa_balancing)",
    why: "To learn who uses a page the kernel takes it away for a moment and looks who misses it. \
        A mover that is placed by hand gains nothing by it, and its buffers fault again and again.",
    source: "ESnet fasterdata.es.net, 100G tuning; Documentation/admin-guide/sysctl/kernel.rst",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const NAME: &str = "kernel.numa_balancing";
    if numa::nodes(machine.root()).len() < 2 {
        return vec![Finding::absent(NAME, "this host has one node")];
    }
    if !machine.exists("/proc/sys/kernel/numa_balancing") {
        return vec![Finding::absent(NAME, "this kernel does not balance")];
    }
    vec![sysctl_is(machine, NAME, "0", Weight::Medium)]
}
