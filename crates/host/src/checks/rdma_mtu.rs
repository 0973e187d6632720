//! The payload of an RDMA packet.

use super::{Check, Group};
use crate::{
    rdma::{self, Layer, Port},
    tune::{Finding, Goal, Machine, Needs, Setting, Weight, link, machine::Unread},
};

/// The largest payload of the standard.
const PAYLOAD_BYTES: u64 = 4096;
/// The Ethernet MTU from which RoCE packets carry 4096 bytes, as vendors advise it.
const ROCE_MTU_MIN: u64 = 4200;
/// The MTU that is set: the one that the check `mtu` sets, too.
const JUMBO_BYTES: u64 = 9000;

pub const CHECK: Check = Check {
    name: "rdma-mtu",
    group: Group::Rdma,
    summary: "RDMA packets carry 4096 bytes",
    why: "RoCE takes the largest of 256, 512, 1024, 2048 and 4096 bytes that fits into the \
        Ethernet interface's MTU beside its headers: 1024 at 1500, 4096 from 4200 on. Cards \
        reach their rate with fewer packets, and headers take less of it. Both ends and the \
        switches must carry it.",
    source: "include/rdma/ib_addr.h (iboe_get_mtu); ibv_devinfo(1); NVIDIA, RoCE MTU \
        considerations",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine);
    let ports = devices.iter().flat_map(|device| &device.ports).filter(|port| port.is_active());
    ports
        .filter_map(|port| match port.layer {
            Layer::Ethernet => Some(of_roce(machine, port)),
            Layer::InfiniBand => Some(of_infiniband(machine, port)),
            Layer::Other(_) => None,
        })
        .collect()
}

fn of_roce(machine: &Machine, port: &Port) -> Finding {
    let subject = format!("{}: MTU", port.name());
    let Some(card) = &port.interface else {
        return Finding::absent(&subject, "its driver names no network interface");
    };
    let path = format!("/sys/class/net/{card}/mtu");
    let mtu = match machine.number(&path) {
        Ok(mtu) => u64::try_from(mtu).unwrap_or(0),
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let Some(payload) = rdma::payload_bytes(mtu) else {
        return Finding::unknown(&subject, &Unread::nonsense(path, &mtu.to_string()));
    };
    let found = format!("{payload} bytes a packet ({card} has an MTU of {mtu})");
    let weight = if port.is_software { Weight::Low } else { Weight::Medium };
    if payload >= PAYLOAD_BYTES {
        return Finding::good(weight, &subject, &found);
    }
    let wanted = format!("{PAYLOAD_BYTES} bytes a packet: an MTU of {ROCE_MTU_MIN} or more");
    let finding = Finding::improve(weight, &subject, &found, &wanted);
    let most = link(machine, card).ok().and_then(|link| link["max_mtu"].as_u64());
    let most = most.filter(|&most| most > 0).unwrap_or(JUMBO_BYTES).min(JUMBO_BYTES);
    if most < ROCE_MTU_MIN {
        return finding.note(format!("its driver allows no more than {most}")).needs(Needs::Hands);
    }
    finding
        .note("both ends and the switches between must carry it")
        .change(Setting::file(path), most.to_string())
        .only_by_name()
}

fn of_infiniband(machine: &Machine, port: &Port) -> Finding {
    let subject = format!("{}: MTU", port.name());
    let number = port.number.to_string();
    let command = ["ibv_devinfo", "-d", &port.device, "-i", &number];
    let text = match machine.answer(&command) {
        Ok(text) => text,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let bytes = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let (Some(active), Some(most)) = (bytes("active_mtu:"), bytes("max_mtu:")) else {
        return Finding::unknown(&subject, &Unread::nonsense(command.join(" "), &text));
    };
    let found = format!("{active} bytes a packet");
    if active >= most {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    Finding::improve(Weight::Medium, &subject, &found, &format!("{most} bytes a packet"))
        .note("the subnet manager sets it: mtu=5 in opensm's partitions.conf is 4096")
        .needs(Needs::Network)
}
