//! The IOMMU: whether each packet's place in memory is translated for the card.

use super::{Check, FAST_BITS_PER_S, Group};
use crate::tune::{Finding, Goal, Machine, Needs, Weight};

pub const CHECK: Check = Check {
    name: "iommu",
    group: Group::Processor,
    summary: "the IOMMU lets the host's own cards through (iommu=pt)",
    why: "With translation each buffer that a card reads or writes is entered into a table and \
        taken out again, and the card's own cache of that table has to be emptied: above 40 Gbit/s \
        this costs up to half of the rate. With iommu=pt only virtual machines' devices are \
        translated; the host then trusts its own cards.",
    source: "ESnet fasterdata.es.net, 100G tuning; Documentation/admin-guide/kernel-parameters.txt",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "IOMMU";
    let command_line = machine.text("/proc/cmdline");
    let units = machine.names("/sys/class/iommu");
    if units.is_empty() {
        // A kernel with none in use has no such directory, or an empty one.
        return vec![match command_line {
            Ok(_) if machine.exists("/sys") => {
                Finding::good(Weight::Low, SUBJECT, "none in use, nothing is translated")
            }
            Ok(_) => Finding::absent(SUBJECT, "this host shows no devices"),
            Err(unread) => Finding::unknown(SUBJECT, &unread),
        }];
    }
    let weight = match goal.rate_bits_per_s {
        FAST_BITS_PER_S.. => Weight::Medium,
        _ => Weight::Low,
    };
    let line = command_line.unwrap_or_default();
    let passes = ["iommu=pt", "iommu.passthrough=1", "intel_iommu=off", "amd_iommu=off"];
    let passes_all = line.split_whitespace().find(|word| passes.contains(word));
    let translated: Vec<&String> = goal
        .cards
        .iter()
        .filter(|card| machine.has_interface(card))
        .filter(|card| is_translated(machine, card).unwrap_or(passes_all.is_none()))
        .collect();
    if translated.is_empty() && (passes_all.is_some() || !goal.cards.is_empty()) {
        let found = passes_all.unwrap_or("the cards are let through");
        return vec![Finding::good(weight, SUBJECT, found)];
    }
    let cards = translated.iter().map(|card| card.as_str()).collect::<Vec<_>>().join(", ");
    let found = match cards.is_empty() {
        true => format!("translates ({} units)", units.len()),
        false => format!("translates for {cards}"),
    };
    let finding = Finding::improve(weight, SUBJECT, &found, "iommu=pt")
        .note("it belongs on the kernel's command line, for instance in /etc/default/grub")
        .needs(Needs::Reboot)
        .command("grubby --update-kernel=ALL --args=iommu=pt   # or update-grub");
    vec![finding]
}

/// Whether the card's group is translated: `identity` lets through, `DMA` and `DMA-FQ` translate
/// (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
fn is_translated(machine: &Machine, card: &str) -> Option<bool> {
    let kind = machine.text(&format!("/sys/class/net/{card}/device/iommu_group/type")).ok()?;
    match &kind[..] {
        "identity" => Some(false),
        "DMA" | "DMA-FQ" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(line: &str, kind: &str) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", "100000\n"),
            ("sys/class/net/eth0/device/iommu_group/type", kind),
            ("sys/class/iommu/dmar0/address", "1\n"),
            ("proc/cmdline", line),
        ]);
        look(&host.machine(), &host.goal("eth0")).remove(0)
    }

    #[test]
    fn what_the_cards_group_says_counts_more_than_the_command_line() {
        assert_eq!(found("ro quiet intel_iommu=on", "DMA-FQ\n").state, State::Improve);
        assert_eq!(found("ro quiet intel_iommu=on iommu=pt", "identity\n").state, State::Good);
        assert_eq!(found("ro iommu=pt", "DMA\n").state, State::Improve);
        assert_eq!(found("ro", "identity\n").state, State::Good);
        assert_eq!(found("ro", "odd\n").state, State::Improve);
        assert_eq!(found("ro iommu=pt", "\n").found, "iommu=pt");
    }

    #[test]
    fn a_host_without_one_is_good() {
        let host = stored::host(&[("proc/cmdline", "ro\n"), ("sys/class/net/x/mtu", "1\n")]);
        assert_eq!(look(&host.machine(), &host.goal_of(100))[0].state, State::Good);
    }
}
