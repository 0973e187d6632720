//! Packets that may wait in front of a card.

use super::{Check, Group, card_rate, of_cards};
use crate::tune::{Finding, Goal, Machine, Role, Setting, Weight};

/// The rate from which the usual 1000 packets last less than a millisecond.
const LONG_FROM_BITS_PER_S: u64 = 10_000_000_000;
const LONG_PACKETS: i64 = 10_000;

pub const CHECK: Check = Check {
    name: "txqueuelen",
    group: Group::NetworkCard,
    summary: "packets that may wait in front of a card (txqueuelen)",
    why: "The limit of pfifo_fast and of queues that are made later. With 1000 packets a burst at \
        10 Gbit/s and more fills it in a millisecond, and the host drops its own packets. fq has a \
        limit of its own, so with it this hardly counts.",
    source: "ESnet fasterdata.es.net, NIC tuning; ip-link(8)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: txqueuelen");
    let path = format!("/sys/class/net/{card}/tx_queue_len");
    let wants_long =
        goal.role != Role::Media && card_rate(machine, goal, card) >= LONG_FROM_BITS_PER_S;
    match machine.number(&path) {
        Ok(packets) if packets < LONG_PACKETS && wants_long => {
            let wanted = LONG_PACKETS.to_string();
            Finding::improve(Weight::Low, &subject, &packets.to_string(), &wanted)
                .change(Setting::file(path), wanted)
        }
        Ok(packets) => Finding::good(Weight::Low, &subject, &packets.to_string()),
        Err(unread) => Finding::unknown(&subject, &unread),
    }
}
