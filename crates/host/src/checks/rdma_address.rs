//! The address of a RoCE port.

use super::{Check, Group};
use crate::{
    rdma::{self, Layer, Port},
    tune::{Finding, Goal, Machine, Weight},
};

pub const CHECK: Check = Check {
    name: "rdma-address",
    group: Group::Rdma,
    summary: "RoCE ports have an IP address, and so one of RoCE v2",
    why: "haul takes the card whose IP address its connection goes over. A port's entry of RoCE \
        v2 (UDP, which passes routers and is what ECN marks) is made of that address; a port \
        with RoCE v1 alone talks to its own Ethernet segment only, and some peers not at all.",
    source: "Documentation/ABI/stable/sysfs-class-infiniband, gid_attrs/types; fi_verbs(7)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let devices = rdma::devices(machine);
    let ports = devices.iter().flat_map(|device| &device.ports).filter(|port| port.is_active());
    ports
        .filter(|port| port.layer == Layer::Ethernet)
        .map(|port| of_port(machine, port))
        .collect()
}

fn of_port(machine: &Machine, port: &Port) -> Finding {
    let subject = format!("{}: address", port.name());
    let addresses = port.addresses(machine);
    let card = port.interface.as_deref().unwrap_or("CARD");
    if addresses.routable > 0 {
        let found = format!("RoCE v2, {} by IP addresses of {card}", addresses.routable);
        return Finding::good(Weight::High, &subject, &found);
    }
    let finding = |found: &str| Finding::improve(Weight::High, &subject, found, "RoCE v2");
    if addresses.link_local > 0 {
        return finding("RoCE v2 of the link alone: the interface has no IP address")
            .command(format!("ip address add ADDRESS/LENGTH dev {card}"));
    }
    if addresses.version_1 > 0 {
        return finding("RoCE v1 alone")
            .note("the card or its driver has no v2, or it is switched off there");
    }
    finding("no address").command(format!("ip address add ADDRESS/LENGTH dev {card}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn a_port_without_a_routable_address_is_told_to_have_one() {
        let found = |kind: &str, address: &str| {
            let port = |name: &str| format!("sys/class/infiniband/mlx5_0/ports/1/{name}");
            let host = stored::host(&[
                (&port("link_layer"), "Ethernet"),
                (&port("state"), "4: ACTIVE"),
                (&port("gid_attrs/types/0"), kind),
                (&port("gids/0"), address),
            ]);
            look(&host.machine(), &host.goal_of(100)).remove(0)
        };
        let routable = "0000:0000:0000:0000:0000:ffff:0a07:0002";
        assert_eq!(found("RoCE v2", routable).state, State::Good);
        assert!(found("RoCE v2", "fe80::1").found.contains("no IP address"));
        assert_eq!(found("IB/RoCE v1", routable).found, "RoCE v1 alone");
        assert_eq!(found("", "").found, "no address");
    }
}
