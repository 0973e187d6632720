//! The processors that a card interrupts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Group, card_rate, of_cards, pci_address, weight_at};
use crate::{
    cpu, interface_node, numa,
    tune::{
        Finding, Goal, Machine, Setting,
        machine::{Unread, Why},
    },
};

pub const CHECK: Check = Check {
    name: "interrupts",
    group: Group::NetworkCard,
    summary: "the card interrupts processors of its own NUMA node, each queue another one",
    why: "A packet is handled where its interrupt goes. On the other node each of its bytes \
        crosses the link between the processors; with all queues on one processor, that one is \
        the limit of the whole card. irqbalance moves what is set here: see the check of that \
        name.",
    source: "ESnet fasterdata.es.net, interrupt binding; Park, Noh et al., KIPS 2018; \
        Documentation/core-api/irq/irq-affinity.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

struct Interrupt {
    number: u32,
    /// Processors that somebody has allowed; this can be set.
    allowed: Vec<u32>,
    /// Processors that get the interrupt now: one of those allowed, where the kernel tells.
    effective: Vec<u32>,
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: interrupts");
    let interrupts = interrupts(machine, card);
    if interrupts.is_empty() {
        return Finding::absent(&subject, "the card shows no interrupts of its own");
    }
    let near = near(machine, card);
    if near.processors.is_empty() {
        let what = "/sys/devices/system/cpu/online".to_owned();
        return Finding::unknown(&subject, &Unread { what, why: Why::Missing });
    }
    let used: BTreeSet<u32> =
        interrupts.iter().flat_map(|interrupt| interrupt.effective.iter().copied()).collect();
    let found =
        format!("{} on {} {}", interrupts.len(), count(used.len(), "processor"), list(&used));
    let is_near = |processor: &u32| near.processors.contains(processor);
    let away = interrupts.iter().filter(|one| !one.effective.iter().all(is_near)).count();
    let possible = interrupts.len().min(near.processors.len());
    let is_spread = used.len() * 2 >= possible && (used.len() > 1 || possible == 1);
    let weight = weight_at(card_rate(machine, goal, card));
    let note = match (away, is_spread) {
        (0, true) => return Finding::good(weight, &subject, &found),
        (0, false) => "many queues share few processors".to_owned(),
        _ => format!("{away} of them go to processors of another node"),
    };
    let processors: BTreeSet<u32> = near.processors.iter().copied().take(possible).collect();
    let wanted = format!("on {} {}{}", count(possible, "processor"), list(&processors), near.words);
    let mut finding = Finding::improve(weight, &subject, &found, &wanted).note(note);
    let mut pairs = Vec::new();
    for (interrupt, processor) in interrupts.iter().zip(near.processors.iter().cycle()) {
        if interrupt.allowed != [*processor] {
            let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.number);
            pairs.push(format!("{}:{processor}", interrupt.number));
            finding = finding.change(Setting::file(path), processor.to_string());
        }
    }
    finding.command(format!(
        "for pair in {}; do echo ${{pair#*:}} > /proc/irq/${{pair%:*}}/smp_affinity_list; done",
        pairs.join(" ")
    ))
}

struct Near {
    processors: Vec<u32>,
    /// The words ` of node 1`, or nothing where there is one node.
    words: String,
}

/// The processors that are on, of the card's node where it is known.
fn near(machine: &Machine, card: &str) -> Near {
    let online = machine.processors();
    let nodes = numa::nodes(machine.root());
    let number = interface_node(machine.root(), card);
    let node = nodes.iter().find(|node| nodes.len() > 1 && Some(node.number) == number);
    let Some(node) = node else { return Near { processors: online, words: String::new() } };
    let mut processors = node.cpus.clone();
    processors.retain(|processor| online.is_empty() || online.contains(processor));
    Near { processors, words: format!(" of node {}", node.number) }
}

/// Interrupts of the card's queues. Others that it has, for its own messages, are left alone.
fn interrupts(machine: &Machine, card: &str) -> Vec<Interrupt> {
    let device = format!("/sys/class/net/{card}/device");
    let table = actions(&machine.text("/proc/interrupts").unwrap_or_default());
    // A virtio card's interrupts belong to the PCI function above it.
    let directories = ["msi_irqs", "../msi_irqs"].map(|name| format!("{device}/{name}"));
    let listed = directories.iter().flat_map(|directory| machine.names(directory));
    let mut numbers: BTreeSet<u32> = listed.filter_map(|name| name.parse().ok()).collect();
    if numbers.is_empty() {
        let names = [pci_address(machine, card), machine.link_name(&device), Some(card.to_owned())];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let belongs = |action: &str| names.iter().any(|name| holds_name(action, name));
        let of_card = table.iter().filter(|(_, action)| belongs(action));
        numbers = of_card.map(|(number, _)| *number).collect();
    }
    if !table.is_empty() {
        // A vector that nobody uses has no line, and cannot be bound.
        numbers.retain(|number| table.contains_key(number));
        let is_queue = |number: &u32| table.get(number).is_some_and(|name| is_queue(name, card));
        if numbers.iter().any(is_queue) {
            numbers.retain(is_queue);
        }
    }
    numbers.into_iter().filter_map(|number| interrupt(machine, number)).collect()
}

fn interrupt(machine: &Machine, number: u32) -> Option<Interrupt> {
    let processors = |name: &str| {
        cpu::list(&machine.text(&format!("/proc/irq/{number}/{name}")).ok()?)
    };
    let allowed = processors("smp_affinity_list")?;
    let effective = processors("effective_affinity_list").unwrap_or_else(|| allowed.clone());
    Some(Interrupt { number, allowed, effective })
}

/// Words of /proc/interrupts behind the counts, by number: the controller and who asked for it.
fn actions(text: &str) -> BTreeMap<u32, String> {
    let processors = text.lines().next().unwrap_or_default().split_whitespace().count();
    let action = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().skip(processors).collect();
        Some((number.parse().ok()?, words.join(" ")))
    };
    text.lines().skip(1).filter_map(action).collect()
}

/// Whether the action names the card: `eth1` is in `eth1-TxRx-0` and not in `eth10-TxRx-0`.
fn holds_name(action: &str, name: &str) -> bool {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    action.match_indices(name).any(|(at, _)| {
        !action[..at].ends_with(is_part) && !action[at + name.len()..].starts_with(is_part)
    })
}

/// Whether the interrupt is that of a queue, by the names that drivers give to those which carry no
/// packets: virtio, mlx5, ice, ena, gve.
fn is_queue(action: &str, card: &str) -> bool {
    let name = action.rsplit(' ').next().unwrap_or_default();
    let others = ["config", "async", "pages", "misc", "mgmnt", "cmd", "ctrl", "health", "mbx"];
    name != card && !others.iter().any(|other| name.contains(other))
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Writes processors as the kernel does: `0-3,8`.
fn list(processors: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &processor in processors {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == processor => *last = processor,
            _ => ranges.push((processor, processor)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::stored::{self, Stored},
        tune::State,
    };

    /// A host with two nodes of four processors each, the card on the second, and a queue at each
    /// of `at`.
    fn host(at: &[&str]) -> Stored {
        let mut host = stored::host(&[
            ("sys/class/net/eth1/speed", "100000\n"),
            ("sys/class/net/eth1/device/numa_node", "1\n"),
            ("sys/class/net/eth1/device/msi_irqs/50", "msix\n"),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("proc/irq/50/smp_affinity_list", "0-7\n"),
        ]);
        let mut table = "  CPU0 CPU1\n".to_owned();
        table += " 50: 0 0 PCI-MSI 1-edge mlx5_async0@pci:0000:3b:00.0\n";
        for (index, processors) in at.iter().enumerate() {
            let number = 51 + index;
            table += &format!(" {number}: 7 7 PCI-MSI 1-edge mlx5_comp{index}@pci:0000:3b:00.0\n");
            let allowed = format!("proc/irq/{number}/smp_affinity_list");
            let vector = format!("sys/class/net/eth1/device/msi_irqs/{number}");
            host = host.file(&allowed, processors).file(&vector, "msix\n");
        }
        host.file("proc/interrupts", &table)
    }

    fn found(at: &[&str]) -> Finding {
        let host = host(at);
        of_card(&host.machine(), &host.goal("eth1"), "eth1")
    }

    #[test]
    fn interrupts_on_the_other_node_come_to_the_cards_own() {
        let finding = found(&["0\n", "1\n", "6\n", "3\n"]);
        assert_eq!(finding.found, "4 on 4 processors 0-1,3,6");
        assert_eq!(finding.wanted, "on 4 processors 4-7 of node 1");
        assert_eq!(finding.note, "3 of them go to processors of another node");
        let changes: Vec<_> = finding
            .changes
            .iter()
            .map(|change| format!("{} {}", change.setting, change.value))
            .collect();
        assert_eq!(
            changes,
            [
                "file /proc/irq/51/smp_affinity_list 4",
                "file /proc/irq/52/smp_affinity_list 5",
                "file /proc/irq/54/smp_affinity_list 7"
            ]
        );
        assert!(finding.command.starts_with("for pair in 51:4 52:5 54:7; do echo ${pair#*:} >"));
    }

    #[test]
    fn all_queues_on_one_processor_are_spread_and_spread_ones_are_good() {
        let finding = found(&["4\n", "4\n", "4\n"]);
        assert_eq!(finding.note, "many queues share few processors");
        assert_eq!(found(&["4", "5", "6", "7"]).state, State::Good);
        assert_eq!(found(&["7"]).state, State::Good);
        assert_eq!(found(&["all\n"]).state, State::Absent);
    }

    #[test]
    fn where_no_vectors_are_listed_the_table_names_the_card() {
        let table = "  CPU0\n 30: 1 PCI-MSI 0-edge eth1\n 31: 1 PCI-MSI 1-edge eth1-TxRx-0\n \
                     32: 1 PCI-MSI 1-edge eth10-TxRx-0\nNMI: 0 Non-maskable interrupts\n";
        let host = stored::host(&[
            ("proc/interrupts", table),
            ("proc/irq/30/smp_affinity_list", "0"),
            ("proc/irq/31/smp_affinity_list", "0"),
            ("proc/irq/32/smp_affinity_list", "0"),
        ]);
        let found = interrupts(&host.machine(), "eth1");
        assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [31]);
    }

    #[test]
    fn processors_are_listed_as_the_kernel_does() {
        assert_eq!(list(&[0, 1, 2, 8, 10, 11].into()), "0-2,8,10-11");
        assert_eq!(list(&[].into()), "");
    }
}
