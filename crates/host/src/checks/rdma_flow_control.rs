//! Flow control below RoCE: whether switch and card lose packets or wait.

use super::{Check, Group};
use crate::{
    rdma::{self, Layer, Port},
    tune::{Finding, Goal, Machine, Needs, Weight, pause},
};

pub const CHECK: Check = Check {
    name: "rdma-flow-control",
    group: Group::Rdma,
    summary: "RoCE packets wait instead of being dropped (PFC, or pause frames)",
    why: "A RoCE card that misses a packet sends all after it again, so one drop in 10,000 costs \
        a large part of the rate. Priority flow control pauses the class of RoCE alone, at the \
        card and at each switch's port; plain pause frames do on a cable without other traffic. \
        InfiniBand has it built in. Cards of late bear a lossy network, with ECN.",
    source: "IEEE 802.1Qbb; dcb-pfc(8); ethtool(8) -a; Guo et al., SIGCOMM 2016 (RDMA over \
        commodity Ethernet)",
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
    let subject = format!("{}: flow control", port.name());
    let priorities = rdma::paused_priorities(machine, card);
    if let Ok(on) = &priorities
        && !on.is_empty()
    {
        let list = on.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        return Finding::good(Weight::High, &subject, &format!("PFC at priority {list}"))
            .note("the switch's port must have the same, and RoCE go at that priority");
    }
    let pauses = pause(machine, card).map(|pause| (pause.rx, pause.tx));
    if let Ok((Some(true), Some(true))) = pauses {
        return Finding::good(Weight::High, &subject, "pause frames both ways");
    }
    let of_priorities = match &priorities {
        Ok(_) => "PFC off".to_owned(),
        Err(unread) => format!("PFC not known ({})", unread.words()),
    };
    let found = match (&pauses, &priorities) {
        (Err(_), Err(unread)) => return Finding::unknown(&subject, unread),
        (Err(_), Ok(_)) => of_priorities,
        (Ok(_), _) => format!("{of_priorities}, pause frames not both ways"),
    };
    let lost = rdma::counted_words(&port.lost(machine));
    let (weight, note) = if lost.is_empty() {
        (Weight::Low, "no packet has been lost so far; ".to_owned())
    } else {
        (Weight::High, format!("packets have been lost ({lost}); "))
    };
    Finding::improve(weight, &subject, &found, "PFC at the priority of RoCE, as 3")
        .note(format!("{note}the switch's port needs the same, and RoCE a class of its own there"))
        .command(format!("dcb pfc set dev {card} prio-pfc 3:on"))
        .needs(Needs::Network)
}
