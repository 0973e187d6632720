//! The size of the largest packet that the card sends.

use super::{Check, Group, card_rate, of_cards, weight_at};
use crate::tune::{
    Finding, Goal, Machine, Needs, Platform, Role, Setting, Weight,
    link,
    machine::Unread,
};

/// The MTU that research networks carry (Internet2, GEANT); larger packets seldom pass the next
/// network.
const JUMBO_BYTES: i64 = 9000;
/// The least MTU that counts as jumbo: several networks and clouds carry less, for their own
/// headers.
const JUMBO_BYTES_MIN: i64 = 8900;
const USUAL_BYTES: i64 = 1500;
const JUMBO_FROM_BITS_PER_S: u64 = 10_000_000_000;
/// The type of an Ethernet interface (ARPHRD_ETHER, include/uapi/linux/if_arp.h).
const ETHERNET: i64 = 1;

pub const CHECK: Check = Check {
    name: "mtu",
    group: Group::NetworkCard,
    summary: "the card sends jumbo frames, where the whole path carries them (MTU 9000)",
    why: "A packet of 9000 bytes costs host and routers as much as one of 1500: a sixth of the \
        packets, and after a loss TCP is back at its rate in a sixth of the time. Every hop must \
        carry it: where one does not, and a firewall drops what it says about it, connections hang \
        (see mtu-probing). Ask the network's administrator, try it with `ping -M do -s 8972 PEER`, \
        then change it by name.",
    source: "ESnet fasterdata.es.net, MTU; Park, Noh et al., KIPS 2018 (a stream: 10 to 36 Gbit/s)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: MTU");
    let path = format!("/sys/class/net/{card}/mtu");
    let mtu = match machine.number(&path) {
        Ok(mtu) if mtu > 0 => mtu,
        Ok(mtu) => return Finding::unknown(&subject, &Unread::nonsense(path, &mtu.to_string())),
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let found = mtu.to_string();
    let rate = card_rate(machine, goal, card);
    let is_ethernet = machine.number(&format!("/sys/class/net/{card}/type")) == Ok(ETHERNET);
    let is_physical = machine.platform() == Platform::Hardware;
    let wants_jumbo = goal.role != Role::Media && rate >= JUMBO_FROM_BITS_PER_S;
    if mtu >= JUMBO_BYTES_MIN || !is_ethernet || !wants_jumbo || !is_physical {
        let finding = Finding::good(Weight::Medium, &subject, &found);
        return match mtu {
            ..USUAL_BYTES => finding.note("less than Ethernet's 1500: a tunnel, or a cloud's own"),
            _ => finding,
        };
    }
    let weight = weight_at(rate);
    let finding = Finding::improve(weight, &subject, &found, &JUMBO_BYTES.to_string());
    let most = link(machine, card).ok().and_then(|link| link["max_mtu"].as_i64());
    // Drivers that know of no limit show 0 (net/core/dev.c, dev_validate_mtu).
    if let Some(most) = most.filter(|&most| (1..JUMBO_BYTES).contains(&most)) {
        return finding.note(format!("its driver allows no more than {most}")).needs(Needs::Hands);
    }
    finding
        .note("every hop must carry it, at both ends and between: ask the network's administrator")
        .change(Setting::file(path), JUMBO_BYTES.to_string())
        .only_by_name()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::stored,
        tune::{Caution, State},
    };

    fn found(mtu: &str, speed: &str, max_mtu: &str) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/mtu", mtu),
            ("sys/class/net/eth0/type", "1\n"),
            ("sys/class/net/eth0/speed", speed),
        ]);
        let shown = format!(r#"[{{"min_mtu":68,"max_mtu":{max_mtu}}}]"#);
        let host = host.answer("ip -details -json link show dev eth0", &shown);
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn jumbo_frames_are_wanted_of_fast_cards_and_only_set_by_name() {
        let finding = found("1500\n", "100000\n", "9978");
        assert_eq!((finding.weight, finding.caution), (Weight::High, Caution::OnlyByName));
        assert_eq!(finding.command, "echo 9000 > /sys/class/net/eth0/mtu");
        assert_eq!(found("1500\n", "1000\n", "9978").state, State::Good);
        assert_eq!(found("8996\n", "100000\n", "9978").state, State::Good);
        assert!(!found("1400\n", "1000\n", "9978").note.is_empty());
    }

    #[test]
    fn a_driver_that_cannot_is_not_asked_to() {
        let finding = found("1500\n", "10000\n", "1500");
        assert!(finding.changes.is_empty() && finding.note.contains("1500"));
        assert_eq!(found("1500\n", "10000\n", "0").changes.len(), 1);
        for nonsense in ["-3\n", "", "many\n"] {
            assert_eq!(found(nonsense, "10000\n", "9000").state, State::Unknown);
        }
    }
}
