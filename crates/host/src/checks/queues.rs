//! The number of queues of a card, and so of the processors that may serve it.

use super::{Check, Group, card_rate, maker, not_read, of_cards};
use crate::{
    interface_node, numa,
    tune::{Finding, Goal, Machine, Weight, queues},
};

/// The most that one processor handles; more streams need more queues.
const ONE_QUEUE_BITS_PER_S: u64 = 10_000_000_000;
/// The most queues that help: a node serves several tens of streams.
const QUEUES_MAX: u32 = 16;

pub const CHECK: Check = Check {
    name: "queues",
    group: Group::NetworkCard,
    summary: "the card has a queue for each processor of its node, up to 16",
    why: "Each queue is served by one processor, and each stream stays in its queue. With one \
        queue a single processor handles all that arrives, whatever the number of streams. The \
        card's link goes down for a moment while their number changes, so haul leaves it to you.",
    source: "Documentation/networking/scaling.rst; ethtool(8) -L",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: queues");
    let found = match queues(machine, card) {
        Ok(queues) => queues,
        Err(unread) => return not_read(&subject, &unread),
    };
    let (kind, ring) = match (found.combined, found.rx) {
        (Some(ring), _) if ring.most > 0 => ("combined", ring),
        (_, Some(ring)) => ("rx", ring),
        (Some(ring), None) => ("combined", ring),
        (None, None) => return Finding::absent(&subject, "its driver shows no queues"),
    };
    let words = format!("{} of {} {kind}", ring.now, ring.most);
    let nodes = numa::nodes(machine.root());
    let number = interface_node(machine.root(), card);
    let near = nodes.iter().find(|node| Some(node.number) == number).map(|node| node.cpus.len());
    let processors = near.unwrap_or_else(|| machine.processors().len());
    let enough = u32::try_from(processors).unwrap_or(QUEUES_MAX).clamp(1, QUEUES_MAX);
    if ring.now >= enough {
        return Finding::good(Weight::Medium, &subject, &words);
    }
    let weight = match card_rate(machine, goal, card) {
        ..ONE_QUEUE_BITS_PER_S => Weight::Low,
        _ => Weight::Medium,
    };
    let wanted = enough.min(ring.most);
    if ring.now >= wanted {
        return Finding::improve(Weight::Low, &subject, &words, &enough.to_string())
            .note("the card has no more than these")
            .needs(maker(machine));
    }
    Finding::improve(weight, &subject, &words, &wanted.to_string())
        .command(format!("ethtool -L {card} {kind} {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::stored,
        tune::{Needs, State},
    };

    fn found(now: u32, most: u32, processors: &str) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", "25000"),
            ("sys/devices/system/cpu/online", processors),
        ]);
        let shown = format!("Combined: {most}\nCurrent hardware settings:\nCombined: {now}\n");
        let host = host.answer("ethtool -l eth0", &shown);
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn queues_are_as_many_as_processors_or_as_the_card_has() {
        assert_eq!(found(8, 63, "0-7").state, State::Good);
        assert_eq!(found(4, 63, "0-7").command, "ethtool -L eth0 combined 8");
        assert_eq!(found(8, 63, "0-63").command, "ethtool -L eth0 combined 16");
        let few = found(1, 1, "0-1");
        assert_eq!((few.needs, few.weight), (Needs::Hands, Weight::Low));
        assert_eq!(found(1, 1, "odd").state, State::Good);
    }
}
