//! Pause frames, by which card and switch ask each other to wait.

use super::{Check, Group, not_read, of_cards};
use crate::tune::{Finding, Goal, Machine, Setting, Weight, pause};

pub const CHECK: Check = Check {
    name: "pause",
    group: Group::NetworkCard,
    summary: "card and switch may ask each other to wait (pause frames, 802.3x)",
    why: "Without them a card whose rings are full, or a switch whose buffer is, drops packets and \
        TCP slows down; with them the sender waits some microseconds. Both ends of the cable need \
        them. Where one port of a switch that serves others too is paused, those wait with it: \
        some sites turn them off on purpose, so this is changed only by name.",
    source: "ESnet fasterdata.es.net, Ethernet flow control; ethtool(8) -A",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, card))
}

fn of_card(machine: &Machine, card: &str) -> Finding {
    let subject = format!("{card}: pause frames");
    let pause = match pause(machine, card) {
        Ok(pause) => pause,
        Err(unread) => return not_read(&subject, &unread),
    };
    let both = [("rx", pause.rx), ("tx", pause.tx)];
    let words = |(name, on): &(&str, Option<bool>)| {
        Some(format!("{name} {}", if (*on)? { "on" } else { "off" }))
    };
    let found = both.iter().filter_map(words).collect::<Vec<_>>().join(", ");
    let off: Vec<&str> =
        both.iter().filter(|(_, on)| *on == Some(false)).map(|(name, _)| *name).collect();
    if off.is_empty() {
        return Finding::good(Weight::Low, &subject, &found);
    }
    let finding = Finding::improve(Weight::Low, &subject, &found, "rx on, tx on")
        .note("the switch's port must have them too, and its other users must bear it")
        .only_by_name();
    off.into_iter().fold(finding, |finding, direction| {
        let (card, direction) = (card.to_owned(), direction.to_owned());
        finding.change(Setting::Pause { card, direction }, "on")
    })
}
