//! Errors that an RDMA port has counted.

use super::{Check, Group};
use crate::{
    rdma::{self, Layer, Port},
    tune::{Finding, Goal, Machine, Needs, Weight},
};

/// One lost packet in so many is one too many: at 4096 bytes a packet that is one in 4 GB.
const PACKETS_A_LOSS_MIN: u64 = 1_000_000;

pub const CHECK: Check = Check {
    name: "rdma-errors",
    group: Group::Rdma,
    summary: "RDMA ports have lost no packets and seen no errors of the wire",
    why: "The card repairs what it loses without a word, and only the rate tells. Packets out of \
        sequence and timeouts of a RoCE port say that a switch dropped some, so that PFC is \
        missing on the way; symbol errors and recoveries say that a cable or transceiver is at \
        fault.",
    source: "Documentation/ABI/stable/sysfs-class-infiniband, counters and hw_counters; rdma- \
        statistic(8)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine);
    let ports = devices.iter().flat_map(|device| &device.ports);
    ports.filter(|port| port.is_active()).map(|port| of_port(machine, port)).collect()
}

fn of_port(machine: &Machine, port: &Port) -> Finding {
    let subject = format!("{}: errors", port.name());
    let (lost, wire) = (port.lost(machine), port.wire_errors(machine));
    let no_buffer = port.without_buffer(machine);
    if lost.is_empty() && wire.is_empty() {
        return Finding::absent(&subject, "its driver counts none");
    }
    let sum = |counters: &[(&str, u64)]| {
        counters.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    };
    let packets = port.packets(machine);
    let many = sum(&lost) > packets.unwrap_or(0) / PACKETS_A_LOSS_MIN;
    let link_layer = port.layer == Layer::InfiniBand;
    let counted = rdma::counted_words(&[&lost[..], &no_buffer, &wire].concat());
    let found = match (counted.is_empty(), packets) {
        (true, _) => "none counted".to_owned(),
        (false, Some(packets)) => format!("{counted}, of {packets} packets"),
        (false, None) => counted,
    };
    let watch = format!("rdma statistic show link {}", port.name());
    if sum(&lost) > 0 && many {
        let why = if link_layer {
            "a cable, a transceiver or a switch drops packets"
        } else {
            "a switch or a card dropped packets: is PFC on at each port of the way"
        };
        return Finding::improve(Weight::High, &subject, &found, "no packet lost")
            .note(format!("{why}; counted since the driver was loaded"))
            .command(watch)
            .needs(Needs::Network);
    }
    if link_layer && sum(&wire) > 0 {
        return Finding::improve(Weight::Low, &subject, &found, "no error of the wire")
            .note("since the driver was loaded; if they grow, clean or change the cable")
            .command(watch)
            .needs(Needs::Hands);
    }
    let finding = Finding::good(Weight::High, &subject, &found);
    match sum(&no_buffer) {
        0 => finding,
        _ => finding.note("messages found no buffer: another program's, haul counts its buffers"),
    }
}
