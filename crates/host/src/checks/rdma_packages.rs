//! Programs and modules between haul and an RDMA card.

use super::{Check, Group};
use crate::{
    rdma,
    tune::{Finding, Goal, Machine, Weight},
};

pub const CHECK: Check = Check {
    name: "rdma-packages",
    group: Group::Rdma,
    summary: "the libraries and modules that reach the RDMA card from a program are there",
    why: "libfabric's verbs opens a card through libibverbs, which takes the card's part from \
        ibverbs-providers, and through two modules, ib_uverbs and rdma_ucm, which rdma-core \
        loads at boot. Where one is missing, libfabric shows no verbs, and says nothing about \
        the reason.",
    source: "rdma-core, Documentation/udev.md; fi_verbs(7)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    if rdma::devices(machine).is_empty() {
        return Vec::new();
    }
    vec![of_providers(machine), of_modules(machine)]
}

fn of_providers(machine: &Machine) -> Finding {
    const SUBJECT: &str = "packages of RDMA";
    let drivers = machine.names("/etc/libibverbs.d");
    let has_drivers = drivers.iter().any(|name| name.ends_with(".driver"));
    let has_core = machine.exists("/etc/rdma/modules") || machine.exists("/etc/rdma/rdma.conf");
    let missing: Vec<&str> = [("ibverbs-providers", has_drivers), ("rdma-core", has_core)]
        .iter()
        .filter(|(_, is_there)| !is_there)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Finding::good(Weight::High, SUBJECT, "rdma-core, ibverbs-providers");
    }
    let packages = missing.join(" ");
    Finding::improve(Weight::High, SUBJECT, &format!("missing: {packages}"), "installed")
        .command(format!("apt-get install {packages} librdmacm1"))
}

fn of_modules(machine: &Machine) -> Finding {
    const SUBJECT: &str = "modules of RDMA";
    let modules = [
        ("ib_uverbs", "/sys/class/infiniband_verbs/uverbs0"),
        ("rdma_ucm", "/sys/class/misc/rdma_cm"),
    ];
    let missing: Vec<&str> = modules
        .iter()
        .filter(|(_, shown)| !machine.exists(shown))
        .map(|(module, _)| *module)
        .collect();
    if missing.is_empty() {
        return Finding::good(Weight::High, SUBJECT, "ib_uverbs, rdma_ucm");
    }
    let found = format!("not loaded: {}", missing.join(", "));
    Finding::improve(Weight::High, SUBJECT, &found, "loaded")
        .note("rdma-core loads them at boot")
        .command(format!("modprobe --all {}", missing.join(" ")))
}
