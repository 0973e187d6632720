//! The PCI Express slot of an RDMA device.

use super::{Check, Group, pcie_link};
use crate::{
    rdma::{self, Port},
    tune::{Finding, Goal, Machine},
};

pub const CHECK: Check = Check {
    name: "rdma-pcie",
    group: Group::Rdma,
    summary: "the RDMA card's slot is as wide and fast as the card, and carries its rate",
    why: "By RDMA the card alone moves the bytes, so its slot is the first limit: eight of \
        sixteen lanes carry half. A riser, a shared slot or bad contact narrows the link, and \
        nothing but this file says so. InfiniBand cards have no entry among the network cards' \
        checks.",
    source: "Documentation/ABI/testing/sysfs-bus-pci; ESnet fasterdata.es.net, PCI bus",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine).into_iter().filter(|device| !device.is_software);
    devices
        .map(|device| {
            let fastest = device.ports.iter().filter_map(Port::rate_bits_per_s).max();
            let directory = format!("/sys/class/infiniband/{}/device", device.name);
            let subject = format!("{}: PCI Express", device.name);
            let rate = fastest.unwrap_or(goal.rate_bits_per_s);
            pcie_link::of_device(machine, &directory, &subject, rate)
        })
        .collect()
}
