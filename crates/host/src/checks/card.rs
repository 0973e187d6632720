//! State of the network card: there or not, up or not, and its speed against the goal.

use super::{Check, Group, maker};
use crate::tune::{
    Finding, Goal, Machine, Needs, Weight,
    goal::{rate_words, speed},
};

/// The flag of an interface that somebody has set up (IFF_UP, netdevice(7)).
const IFF_UP: u32 = 0x1;

pub const CHECK: Check = Check {
    name: "card",
    group: Group::NetworkCard,
    summary: "the network cards are there, up, and as fast as the goal asks",
    why: "All other checks of cards look at these. A card that came up at a part of its speed, or \
        in half duplex, has a cable, a transceiver or a switch's port that is at fault, and no \
        setting of the host helps.",
    source: "Documentation/ABI/testing/sysfs-class-net",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let mut findings: Vec<Finding> = goal.cards.iter().map(|card| of_card(machine, card)).collect();
    if findings.is_empty() {
        let why = format!("no card is up; this host has: {}", all(machine));
        return vec![Finding::absent("network cards", &why)];
    }
    let speeds: Vec<u64> = goal.cards.iter().filter_map(|card| speed(machine, card)).collect();
    let sum = speeds.iter().copied().fold(0, u64::saturating_add);
    if speeds.len() == goal.cards.len() && sum < goal.rate_bits_per_s {
        let (found, wanted) = (rate_words(sum), rate_words(goal.rate_bits_per_s));
        let finding = Finding::improve(Weight::High, "speed of the cards", &found, &wanted)
            .note("no setting makes a card faster: ask for less (--rate), or put in a faster one")
            .needs(maker(machine));
        findings.push(finding);
    }
    findings
}

fn of_card(machine: &Machine, card: &str) -> Finding {
    if !machine.has_interface(card) {
        return Finding::improve(Weight::High, card, "there is no such card", &all(machine))
            .needs(Needs::Nothing);
    }
    let file = |name: &str| machine.text(&format!("/sys/class/net/{card}/{name}"));
    let state = match file("operstate") {
        Ok(state) => state,
        Err(unread) => return Finding::unknown(card, &unread),
    };
    let flags = file("flags").unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(IFF_UP);
    if flags & IFF_UP == 0 {
        return Finding::improve(Weight::High, card, "down: nobody has set it up", "up")
            .command(format!("ip link set dev {card} up"));
    }
    // Drivers of virtual cards often leave it at `unknown`
    // (Documentation/networking/operstates.rst).
    if !matches!(&state[..], "up" | "unknown") {
        return Finding::improve(Weight::High, card, &format!("{state}: no carrier"), "up")
            .note("its cable, its transceiver or the switch's port")
            .needs(maker(machine));
    }
    let speed = speed(machine, card).map(rate_words);
    let found = format!("{state}, {}", speed.as_deref().unwrap_or("tells no speed"));
    if file("duplex").is_ok_and(|duplex| duplex == "half") {
        let found = format!("{found}, half duplex");
        return Finding::improve(Weight::High, card, &found, "full duplex")
            .note("one side has its speed set by hand: let both negotiate")
            .command(format!("ethtool -s {card} autoneg on"));
    }
    Finding::good(Weight::High, card, &found)
}

/// Names of the cards that could be named instead.
fn all(machine: &Machine) -> String {
    let mut names = machine.names("/sys/class/net");
    names.retain(|name| name != "lo" && machine.has_interface(name));
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::{State, Wanted};

    fn found(named: Option<&str>, files: &[(&str, &str)], rate: Option<u64>) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join("sys/class/net").join(name);
            std::fs::create_dir_all(path.parent().unwrap().join("device")).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        let card = named.map(str::to_owned);
        let goal =
            Goal::of(&machine, &Wanted { card, rate_bits_per_s: rate, ..Wanted::default() });
        look(&machine, &goal)
    }

    #[test]
    fn a_card_that_is_not_there_gets_the_names_of_those_that_are() {
        let files = [("eth0/operstate", "up\n"), ("lo/operstate", "unknown\n")];
        for name in ["eth7", "", "../net/eth0", "eth0/device", ".", "-h"] {
            let [finding] = &found(Some(name), &files, None)[..] else { panic!("{name}") };
            assert_eq!((finding.state, &finding.wanted[..]), (State::Improve, "eth0"), "{name}");
        }
    }

    #[test]
    fn a_card_is_down_by_hand_or_without_a_carrier() {
        let of = |flags| [("eth0/operstate", "down\n"), ("eth0/flags", flags)];
        assert!(found(Some("eth0"), &of("0x1002\n"), None)[0].command.contains("up"));
        assert!(found(Some("eth0"), &of("0x1003\n"), None)[0].found.contains("no carrier"));
        assert!(found(Some("eth0"), &of("odd\n"), None)[0].found.contains("no carrier"));
        assert_eq!(found(None, &of("0x1003\n"), None)[0].state, State::Absent);
    }

    #[test]
    fn a_card_slower_than_what_is_asked_for_is_said_to_be() {
        let files =
            [("eth0/operstate", "up\n"), ("eth0/speed", "10000\n"), ("eth0/duplex", "full\n")];
        let findings = found(None, &files, Some(100_000_000_000));
        assert_eq!(findings[1].found, "10 Gbit/s");
        assert_eq!(found(None, &files, Some(10_000_000_000)).len(), 1);
        let half = [("eth0/operstate", "up\n"), ("eth0/duplex", "half\n")];
        assert_eq!(found(None, &half, None)[0].state, State::Improve);
    }
}
