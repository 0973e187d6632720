//! TCP's own search for a smaller MTU on the path.

use super::{Check, Group, sysctl_is};
use crate::tune::{Finding, Goal, Machine, Weight};

/// The largest packet that fits everywhere (RFC 894).
const USUAL_MTU: i64 = 1500;

pub const CHECK: Check = Check {
    name: "mtu-probing",
    group: Group::Tcp,
    summary: "TCP tries smaller segments where large ones vanish (tcp_mtu_probing)",
    why: "With jumbo frames here and a smaller MTU somewhere on the path, a router has to say so. \
        Where a firewall drops what it says, a connection opens, and then hangs at the first full \
        segment. With probing TCP goes on with smaller ones.",
    source: "RFC 4821; ESnet fasterdata.es.net",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const NAME: &str = "net.ipv4.tcp_mtu_probing";
    let mtu = |card: &String| machine.number(&format!("/sys/class/net/{card}/mtu")).ok();
    let has_jumbo = goal.cards.iter().filter_map(mtu).any(|mtu| mtu > USUAL_MTU);
    // 2 probes always, which is more than enough.
    match machine.sysctl(NAME) {
        Ok(found) if found == "2" => vec![Finding::good(Weight::Medium, NAME, &found)],
        Ok(found) if !has_jumbo && found == "0" => {
            vec![Finding::good(Weight::Low, NAME, "0, and no card has jumbo frames")]
        }
        _ => vec![sysctl_is(machine, NAME, "1", Weight::Medium)],
    }
}
