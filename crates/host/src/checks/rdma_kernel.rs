//! The kernel's part in sending a file's own pages.

use super::{Check, Group};
use crate::{
    kernel, rdma,
    tune::{Finding, Goal, Machine, Needs, Platform, Weight, machine::Unread},
};

/// The kernel from which pages of a file are pinned for reading.
const PINS_FROM: (u32, u32) = (6, 2);

pub const CHECK: Check = Check {
    name: "rdma-kernel",
    group: Group::Rdma,
    summary: "the kernel lets an RDMA card read a file's own pages (Linux 6.2)",
    why: "haul sends a file by RDMA from the page cache, without a copy: it pins the pages for \
        reading. Until Linux 6.1 a long pin counted as a write and broke the file's pages apart, \
        so the card would send a copy; haul then goes through a registered buffer, which costs \
        the sender a copy of each byte.",
    source: "Linux 6.2, mm/gup.c: FOLL_FORCE no longer used for R/O long-term pinning",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "pages of files at the RDMA card";
    if rdma::devices(machine).is_empty() {
        return Vec::new();
    }
    let release = match machine.sysctl("kernel.osrelease") {
        Ok(release) => release,
        Err(unread) => return vec![Finding::unknown(SUBJECT, &unread)],
    };
    let Some(version) = kernel::parse(&release) else {
        return vec![Finding::unknown(SUBJECT, &Unread::nonsense("kernel.osrelease", &release))];
    };
    if version >= PINS_FROM {
        return vec![Finding::good(Weight::Medium, SUBJECT, &format!("Linux {release}"))];
    }
    let needs = match machine.platform() {
        Platform::Container => Needs::ContainerHost,
        Platform::Hardware | Platform::Virtual => Needs::Reboot,
    };
    let found = format!("Linux {release}: sent through a buffer");
    vec![Finding::improve(Weight::Medium, SUBJECT, &found, "6.2 or later").needs(needs)]
}
