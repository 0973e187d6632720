//! The NUMA node that a card is attached to.

use super::{Check, Group, of_cards};
use crate::{
    interface_node, numa,
    tune::{Finding, Goal, Machine, Needs, Platform, Weight},
};

pub const CHECK: Check = Check {
    name: "numa-node",
    group: Group::NetworkCard,
    summary: "the card's NUMA node is known, and has processors and memory",
    why: "On a host with several nodes, interrupts and programs are placed by the card's node. \
        Firmware that does not tell it, or a node without memory of its own, makes each byte cross \
        the link between the processors. Measure a program on the card's node and on the other: \
        which is better differs by machine.",
    source: "ESnet fasterdata.es.net, NUMA; Documentation/ABI/stable/sysfs-devices-node",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, card))
}

fn of_card(machine: &Machine, card: &str) -> Finding {
    let subject = format!("{card}: NUMA node");
    let mut numbers = machine.names("/sys/devices/system/node");
    numbers.retain(|name| {
        name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
    });
    if numbers.len() < 2 {
        return Finding::absent(&subject, "this host has one node");
    }
    if machine.platform() != Platform::Hardware {
        return Finding::absent(&subject, "the card is not the hardware's own");
    }
    let Some(number) = interface_node(machine.root(), card) else {
        return Finding::improve(Weight::Medium, &subject, "not told by the firmware", "told")
            .note("a newer BIOS, or its setting for NUMA; until then bind interrupts by measuring")
            .needs(Needs::Hands);
    };
    let nodes = numa::nodes(machine.root());
    let node = nodes.iter().find(|node| node.number == number);
    let processors = node.map_or(0, |node| node.cpus.len());
    let memory = memory_bytes(machine, number);
    let room = memory.map_or_else(|| "memory".to_owned(), |bytes| format!("{} GiB", bytes >> 30));
    let found = format!("{number}, with {processors} processors and {room}");
    if processors == 0 || memory == Some(0) {
        return Finding::improve(Weight::High, &subject, &found, "one with both")
            .note("put the card into a slot of another processor, or memory beside this one")
            .needs(Needs::Hands);
    }
    Finding::good(Weight::Medium, &subject, &found)
        .note(format!("place a program there with: numactl -N {number} -m {number}"))
}

/// The memory of a node, from its line `Node 0 MemTotal:       131072000 kB`.
fn memory_bytes(machine: &Machine, number: u32) -> Option<u64> {
    let text = machine.text(&format!("/sys/devices/system/node/node{number}/meminfo")).ok()?;
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(node: &str, memory_kib: u64) -> Finding {
        let memory = format!("Node 1 MemTotal:       {memory_kib} kB\nNode 1 MemFree: 1 kB\n");
        let host = stored::host(&[
            ("sys/class/net/eth0/device/numa_node", node),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("sys/devices/system/node/node1/meminfo", &memory),
        ]);
        of_card(&host.machine(), "eth0")
    }

    #[test]
    fn a_card_has_a_node_with_processors_and_memory() {
        let good = found("1\n", 64 << 20);
        assert_eq!(good.found, "1, with 4 processors and 64 GiB");
        assert_eq!(good.state, State::Good);
        assert_eq!(found("1\n", 0).weight, Weight::High);
        assert_eq!(found("-1\n", 1).weight, Weight::Medium);
        assert_eq!(found("3\n", 1).state, State::Improve);
    }
}
