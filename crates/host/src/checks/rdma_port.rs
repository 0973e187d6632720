//! Ports of RDMA devices: up or not, how fast, over which wire, with which firmware.

use super::{Check, Group, maker};
use crate::{
    rdma::{self, Device, Layer, Port},
    tune::{Finding, Goal, Machine, Needs, Weight},
};

pub const CHECK: Check = Check {
    name: "rdma-port",
    group: Group::Rdma,
    summary: "the ports of RDMA cards are active, with all their lanes",
    why: "`haul push --fabric` goes through a port of state ACTIVE; without one the data goes by \
        TCP. An InfiniBand port stays at INIT until a subnet manager has been at it, and one \
        that came up with a single lane has a quarter of its rate, by its cable or connector.",
    source: "Documentation/ABI/stable/sysfs-class-infiniband",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine);
    let is_any_active = devices.iter().flat_map(|device| &device.ports).any(Port::is_active);
    // A second port without a cable is no fault.
    let weight = if is_any_active { Weight::Low } else { Weight::High };
    let of_device = |device: &Device| {
        let of = |port| of_port(machine, device, port, weight);
        device.ports.iter().map(of).collect::<Vec<_>>()
    };
    devices.iter().flat_map(of_device).collect()
}

fn of_port(machine: &Machine, device: &Device, port: &Port, weight: Weight) -> Finding {
    let subject = format!("{}: port", port.name());
    let firmware = match &device.firmware {
        Some(version) => format!("firmware {version}"),
        None if device.is_software => "a program in the kernel".to_owned(),
        None => "tells no firmware".to_owned(),
    };
    let (rate, layer) = (&port.rate, port.layer.name());
    let found = format!("{}, {rate}, {layer}, {firmware}", port.state);
    if port.state.is_empty() {
        return Finding::absent(&subject, "its driver tells no state");
    }
    if !port.is_active() {
        let found = format!("{} ({}), {layer}, {firmware}", port.state, port.wire);
        let finding = Finding::improve(weight, &subject, &found, "ACTIVE");
        return match (&port.layer, &port.interface, &port.state[..]) {
            (Layer::InfiniBand, _, "INIT") => finding
                .note("the wire is up, and no subnet manager has configured the port")
                .command("apt-get install opensm && systemctl start opensm")
                .needs(Needs::Network),
            (Layer::Ethernet, Some(card), _) => finding
                .note("down by hand, or without a cable or a partner at its other end")
                .command(format!("ip link set dev {card} up")),
            _ => finding
                .note("its cable, its transceiver or the switch's port")
                .needs(maker(machine)),
        };
    }
    if port.layer == Layer::InfiniBand && port.rate.contains("(1X ") {
        return Finding::improve(Weight::High, &subject, &found, "4X")
            .note("one lane of four: seat the cable anew, or take another one")
            .needs(maker(machine));
    }
    let finding = Finding::good(Weight::High, &subject, &found);
    if device.is_software {
        finding.note("soft-RoCE: it shows the way, not the speed")
    } else {
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(layer: &str, state: &str, rate: &str) -> Finding {
        let port = |name: &str| format!("sys/class/infiniband/mlx5_0/ports/1/{name}");
        let host = stored::host(&[
            (&port("link_layer"), layer),
            (&port("state"), state),
            (&port("phys_state"), "3: Disabled\n"),
            (&port("rate"), rate),
            ("sys/class/infiniband/mlx5_0/device/net/eth0/mtu", "1500"),
            ("sys/class/net/eth0/mtu", "1500"),
        ]);
        look(&host.machine(), &host.goal_of(100)).remove(0)
    }

    #[test]
    fn a_port_that_is_down_is_told_what_brings_it_up() {
        let finding = found("Ethernet\n", "1: DOWN\n", "100 Gb/sec (4X EDR)\n");
        assert_eq!((finding.weight, finding.needs), (Weight::High, Needs::Root));
        assert_eq!(finding.command, "ip link set dev eth0 up");
        assert!(found("InfiniBand\n", "2: INIT\n", "").command.contains("opensm"));
        assert_eq!(found("InfiniBand\n", "1: DOWN\n", "").needs, Needs::Hands);
    }

    #[test]
    fn a_port_of_one_lane_is_not_as_it_should_be() {
        let of = |rate| found("InfiniBand\n", "4: ACTIVE\n", rate).state;
        assert_eq!(of("25 Gb/sec (1X EDR)\n"), State::Improve);
        assert_eq!(of("100 Gb/sec (2X HDR)\n"), State::Good);
        assert_eq!(found("Ethernet\n", "4: ACTIVE\n", "25 Gb/sec (1X EDR)\n").state, State::Good);
    }
}
