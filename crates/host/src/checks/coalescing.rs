//! Coalescing: how long a card gathers packets before it calls a processor.

use super::{Check, Group, card_rate, not_read, of_cards};
use crate::tune::{Finding, Goal, Machine, Platform, Weight, coalescing};

/// The rate from which the check counts: below it a processor keeps up with an interrupt for each
/// packet.
const COUNTS_FROM_BITS_PER_S: u64 = 10_000_000_000;
/// The longest wait, a tenth of the RTT within a site: a longer one delays every acknowledgement.
const WAIT_US_MAX: u64 = 250;

pub const CHECK: Check = Check {
    name: "coalescing",
    group: Group::NetworkCard,
    summary: "the card gathers packets before it interrupts a processor",
    why: "At 10 Gbit/s with 1500 bytes a packet comes every 1.2 microseconds; an interrupt for \
        each keeps a core busy with nothing else. Adaptive moderation waits with many packets and \
        not with few. A fixed wait of some tens of microseconds does as well for bulk data; far \
        longer ones delay the acknowledgements and leave rings full.",
    source: "ESnet fasterdata.es.net, NIC tuning; ethtool(8) -C",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: coalescing");
    let values = match coalescing(machine, card) {
        Ok(values) => values,
        Err(unread) => return not_read(&subject, &unread),
    };
    let adaptive = values.get("adaptive-rx").map(|value| value == "on");
    let wait_us = values.get("rx-usecs").and_then(|value| value.parse::<u64>().ok());
    let found = match (adaptive, wait_us) {
        (Some(true), _) => return Finding::good(Weight::Low, &subject, "adaptive"),
        (_, Some(wait_us)) => format!("fixed, {wait_us} us"),
        _ => return Finding::absent(&subject, "its driver shows no waiting time for receiving"),
    };
    if machine.platform() != Platform::Hardware {
        return Finding::good(Weight::Low, &subject, &found)
            .note("a virtual card's interrupts are moderated by its hypervisor");
    }
    if card_rate(machine, goal, card) < COUNTS_FROM_BITS_PER_S
        || wait_us.is_some_and(|wait_us| (1..=WAIT_US_MAX).contains(&wait_us))
    {
        return Finding::good(Weight::Low, &subject, &found);
    }
    let (weight, note) = match wait_us {
        Some(0) => (Weight::Medium, "each packet interrupts a processor"),
        _ => (Weight::Low, "so long a wait delays every acknowledgement"),
    };
    let (wanted, command) = match adaptive {
        Some(_) => ("adaptive", format!("ethtool -C {card} adaptive-rx on")),
        None => ("50 us", format!("ethtool -C {card} rx-usecs 50")),
    };
    Finding::improve(weight, &subject, &found, wanted).note(note).command(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(shown: &str) -> Finding {
        let host = stored::host(&[("sys/class/net/eth0/speed", "25000")]);
        let host = host.answer("ethtool -c eth0", shown);
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn adaptive_or_a_sensible_wait_is_good() {
        assert_eq!(found("Adaptive RX: on  TX: on\nrx-usecs: 0\n").state, State::Good);
        assert_eq!(found("Adaptive RX: off  TX: off\nrx-usecs: 50\n").state, State::Good);
        let none = found("Adaptive RX: off  TX: off\nrx-usecs: 0\n");
        assert_eq!((none.state, none.weight), (State::Improve, Weight::Medium));
        let long = found("Adaptive RX: n/a  TX: n/a\nrx-usecs: 4000\n");
        assert_eq!(long.command, "ethtool -C eth0 rx-usecs 50");
        for nonsense in ["", "Adaptive RX:", "rx-usecs: many\n"] {
            assert_eq!(found(nonsense).state, State::Absent, "{nonsense}");
        }
    }
}
