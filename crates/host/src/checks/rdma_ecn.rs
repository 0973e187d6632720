//! Congestion control of RoCE: whether a card slows down when a switch marks its packets.

use super::{Check, Group};
use crate::{
    rdma::{self, Layer, Port},
    tune::{Finding, Goal, Machine, Setting, Weight},
};

/// Notification point (the receiver, which answers a mark) and reaction point (the sender).
const POINTS: [&str; 2] = ["roce_np", "roce_rp"];

pub const CHECK: Check = Check {
    name: "rdma-ecn",
    group: Group::Rdma,
    summary: "RoCE cards slow down when a switch marks packets (ECN, DCQCN)",
    why: "PFC alone stops whole switches when one receiver is slow. With ECN a switch marks \
        packets as its queue grows, the receiver's card says so (CNP), and the sender's card \
        slows down before anybody has to pause. Both ends must have it on.",
    source: "Zhu et al., SIGCOMM 2015 (DCQCN); NVIDIA, ECN configuration (/sys/class/net/IF/ecn)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine);
    let ports = devices.iter().flat_map(|device| &device.ports);
    ports
        .filter(|port| port.is_active() && port.layer == Layer::Ethernet && !port.is_software)
        .filter_map(|port| Some(of_port(machine, port, port.interface.as_deref()?)))
        .collect()
}

fn of_port(machine: &Machine, port: &Port, card: &str) -> Finding {
    let subject = format!("{}: ECN", port.name());
    let seen = rdma::counted_words(&port.notified(machine));
    let seen = if seen.is_empty() { String::new() } else { format!("; counted: {seen}") };
    let of_point = |point: &str| {
        let directory = format!("/sys/class/net/{card}/ecn/{point}/enable");
        machine.names(&directory).into_iter().map(move |prio| format!("{directory}/{prio}"))
    };
    let switches: Vec<(String, i64)> = POINTS
        .iter()
        .flat_map(|point| of_point(point).collect::<Vec<_>>())
        .filter_map(|path| Some((path.clone(), machine.number(&path).ok()?)))
        .collect();
    if switches.is_empty() {
        let why = format!("its driver shows no such switch in sysfs (MLNX_OFED's does){seen}");
        return Finding::absent(&subject, &why);
    }
    let off: Vec<&String> =
        switches.iter().filter(|(_, on)| *on == 0).map(|(path, _)| path).collect();
    if off.is_empty() {
        return Finding::good(Weight::Medium, &subject, &format!("on at both points{seen}"));
    }
    let found = format!("off at {} of {} switches{seen}", off.len(), switches.len());
    let finding = Finding::improve(Weight::Medium, &subject, &found, "on at both points")
        .note("the switches must mark packets, and the other end have it on");
    off.into_iter().fold(finding, |finding, path| finding.change(Setting::file(path.clone()), "1"))
}
