//! Rings of a card: how many packets it can hold until a processor takes them.

use super::{Check, Group, card_rate, not_read, of_cards, weight_at};
use crate::tune::{Finding, Goal, Machine, Setting, Weight, rings};

pub const CHECK: Check = Check {
    name: "rings",
    group: Group::NetworkCard,
    summary: "the card's rings of descriptors are at their maximum",
    why: "Packets that come while no processor looks wait in the receive ring. Many drivers begin \
        with 256 to 1024 of 4096 or 8192: at 100 Gbit/s that is full within microseconds, the card \
        drops (rx_missed_errors, rx_out_of_buffer in ethtool -S), and TCP halves its rate. The \
        card is silent for a moment while its rings change.",
    source: "ESnet fasterdata.es.net, NIC tuning; Park, Noh et al., KIPS 2018; ethtool(8) -G",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: rings");
    let rings = match rings(machine, card) {
        Ok(rings) => rings,
        Err(unread) => return not_read(&subject, &unread),
    };
    let both = [("rx", rings.rx), ("tx", rings.tx)];
    let known = both.iter().filter_map(|(name, ring)| Some((*name, (*ring)?)));
    let words = |of: fn(&crate::tune::Ring) -> u32| {
        let words = known.clone().map(|(name, ring)| format!("{name} {}", of(&ring)));
        words.collect::<Vec<_>>().join(", ")
    };
    let found = words(|ring| ring.now);
    // A receive ring that is too small loses packets; a send ring only makes the sender wait.
    let weight = match rings.rx {
        Some(rx) if rx.now < rx.most => weight_at(card_rate(machine, goal, card)),
        _ => Weight::Low,
    };
    let small: Vec<_> = known.clone().filter(|(_, ring)| ring.now < ring.most).collect();
    if small.is_empty() {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    let finding = Finding::improve(weight, &subject, &found, &words(|ring| ring.most));
    small.into_iter().fold(finding, |finding, (name, ring)| {
        let setting = Setting::Ring { card: card.to_owned(), ring: name.to_owned() };
        finding.change(setting, ring.most.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::stored;

    #[test]
    fn only_the_ring_that_is_too_small_is_changed() {
        let shown = "Pre-set maximums:\nRX:\t8192\nTX:\t8192\n\
            Current hardware settings:\nRX:\t1024\nTX:\t8192\n";
        let host = stored::host(&[("sys/class/net/eth0/speed", "100000")])
            .answer("ethtool -g eth0", shown);
        let finding = of_card(&host.machine(), &host.goal("eth0"), "eth0");
        assert_eq!(finding.found, "rx 1024, tx 8192");
        assert_eq!(finding.wanted, "rx 8192, tx 8192");
        assert_eq!(finding.command, "ethtool -G eth0 rx 8192");
        assert_eq!(finding.weight, Weight::High);
    }
}
