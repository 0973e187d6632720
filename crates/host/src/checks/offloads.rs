//! Work that a card, or the kernel once for many packets, takes off the processors.

use super::{Check, Group, card_rate, maker, not_read, of_cards, weight_at};
use crate::tune::{Finding, Goal, Machine, Setting, Weight, features};

/// Features with the state each should have, in an order in which they can be turned on:
/// segmentation needs checksums and scatter-gather.
const WANTED: [(&str, bool); 7] = [
    ("rx-checksumming", true),
    ("tx-checksumming", true),
    ("scatter-gather", true),
    ("tcp-segmentation-offload", true),
    ("generic-segmentation-offload", true),
    ("generic-receive-offload", true),
    ("large-receive-offload", false),
];

pub const CHECK: Check = Check {
    name: "offloads",
    group: Group::NetworkCard,
    summary: "checksums, segmentation and gathering are left to the card; LRO is off",
    why: "With segmentation and receive offload the kernel handles 64 KiB at a time in place of a \
        packet: the difference between one core's 5 and its 40 Gbit/s. Without checksums and \
        scatter-gather in the card, sendfile and MSG_ZEROCOPY copy after all. LRO merges packets \
        so that they cannot be taken apart again, and breaks forwarding; GRO does it right \
        (mlnx_tune turns LRO on).",
    source: "ESnet fasterdata.es.net, NIC tuning; Linux, networking/segmentation-offloads.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: offloads");
    let features = match features(machine, card) {
        Ok(features) => features,
        Err(unread) => return not_read(&subject, &unread),
    };
    let known: Vec<_> =
        WANTED.iter().filter_map(|(name, on)| Some((*name, *on, features.get(*name)?))).collect();
    let words = |on: bool| if on { "on" } else { "off" };
    let wrong: Vec<_> = known.iter().filter(|(_, on, feature)| feature.on != *on).collect();
    if wrong.is_empty() {
        let found: Vec<&str> =
            known.iter().filter(|(_, on, _)| *on).map(|(name, ..)| *name).collect();
        return Finding::good(Weight::Medium, &subject, &format!("on: {}", found.join(", ")));
    }
    let list = |of: fn(bool, bool) -> bool| {
        let word = |(name, on, feature): &&(&str, bool, &crate::tune::Feature)| {
            format!("{name} {}", words(of(*on, feature.on)))
        };
        wrong.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let weight = weight_at(card_rate(machine, goal, card));
    let mut finding =
        Finding::improve(weight, &subject, &list(|_, is| is), &list(|wanted, _| wanted));
    let is_fixed = |(_, _, feature): &&&(&str, bool, &crate::tune::Feature)| feature.fixed;
    let fixed: Vec<&str> = wrong.iter().filter(is_fixed).map(|(name, ..)| *name).collect();
    if !fixed.is_empty() {
        finding = finding.note(format!("fixed by the driver: {}", fixed.join(", ")));
    }
    if fixed.len() == wrong.len() {
        return finding.needs(maker(machine));
    }
    for (name, on, _) in wrong.iter().filter(|(_, _, feature)| !feature.fixed) {
        let setting =
            Setting::Offload { card: card.to_owned(), feature: (*name).to_owned() };
        finding = finding.change(setting, words(*on));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::stored,
        tune::{Needs, State},
    };

    fn found(shown: &str) -> Finding {
        let host = stored::host(&[("sys/class/net/eth0/speed", "100000")]);
        let host = host.answer("ethtool -k eth0", &format!("Features for eth0:\n{shown}"));
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn what_is_off_is_turned_on_and_receive_offload_of_the_card_off() {
        let finding = found(
            "scatter-gather: off\ntcp-segmentation-offload: off [requested on]\n\
             generic-receive-offload: on\nlarge-receive-offload: on\n",
        );
        assert_eq!(
            finding.command,
            "ethtool -K eth0 scatter-gather on && ethtool -K eth0 tcp-segmentation-offload on && \
             ethtool -K eth0 large-receive-offload off"
        );
        assert_eq!(found("generic-receive-offload: on\n").state, State::Good);
    }

    #[test]
    fn what_the_driver_fixes_nobody_is_told_to_change() {
        let finding = found("rx-checksumming: off [fixed]\nscatter-gather: on\n");
        assert_eq!((finding.needs, finding.changes.len()), (Needs::Hands, 0));
        assert!(finding.note.contains("rx-checksumming"));
        let finding = found("rx-checksumming: off [fixed]\nscatter-gather: off\n");
        assert_eq!((finding.needs, finding.changes.len()), (Needs::Root, 1));
        assert_eq!(found("").state, State::Unknown);
    }
}
