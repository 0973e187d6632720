//! The PCI Express slot of a card: whether it carries what the card does.

use super::{Check, Group, card_rate, of_cards};
use crate::tune::{
    Finding, Goal, Machine, Needs, Weight,
    goal::rate_words,
    machine::{Unread, Why},
};

/// The share of a lane that is left beside the headers of its packets: 256 of about 300 bytes (PCI
/// Express Base Specification, transaction layer), and a little less for flow control.
const PAYLOAD_SHARE: f64 = 0.85;

pub const CHECK: Check = Check {
    name: "pcie-link",
    group: Group::NetworkCard,
    summary: "the card's slot is as wide and fast as the card, and carries its rate",
    why: "A card of 100 Gbit/s needs 16 lanes of PCI Express 3.0 or 8 of 4.0. In a slot with fewer \
        wires, behind a riser, or after bad contact, the link trains narrower or slower, all looks \
        well, and the card never passes 50 Gbit/s.",
    source: "ESnet fasterdata.es.net, PCI bus; Documentation/ABI/testing/sysfs-bus-pci",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

/// Transfers a second of each lane, and lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Link {
    gigatransfers_per_s: f64,
    lanes: u32,
}

impl Link {
    /// The rate of the card's own data.
    fn bits_per_s(self) -> f64 {
        // 1.0 and 2.0 send 10 bits for 8, 3.0 to 5.0 130 for 128, 6.0 256 bytes for 236.
        let share = match self.gigatransfers_per_s {
            ..=5.0 => 0.8,
            ..=32.0 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        self.gigatransfers_per_s * 1e9 * f64::from(self.lanes) * share * PAYLOAD_SHARE
    }

    fn words(self) -> String {
        format!("{} lanes of {} GT/s", self.lanes, self.gigatransfers_per_s)
    }
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let directory = format!("/sys/class/net/{card}/device");
    let subject = format!("{card}: PCI Express");
    of_device(machine, &directory, &subject, card_rate(machine, goal, card))
}

/// The finding for the PCI device in `directory`, which carries `rate` at its wire.
pub(super) fn of_device(machine: &Machine, directory: &str, subject: &str, rate: u64) -> Finding {
    let now = match link(machine, directory, "current") {
        Ok(link) => link,
        Err(Unread { why: Why::Missing, .. }) => {
            return Finding::absent(subject, "the card is on no PCI Express link");
        }
        Err(unread) => return Finding::unknown(subject, &unread),
    };
    let found = format!("{}, {}", now.words(), carries(now));
    let is_enough = now.bits_per_s() >= rate as f64;
    // Some bridges do not tell what they could.
    let most = link(machine, directory, "max").unwrap_or(now);
    let is_less =
        now.lanes < most.lanes || now.gigatransfers_per_s < most.gigatransfers_per_s;
    let finding = match (is_enough, is_less) {
        (true, false) => return Finding::good(Weight::High, subject, &found),
        (true, true) => Finding::improve(Weight::Low, subject, &found, &most.words()).note(
            "enough for one port; less than the card can, by its slot, a riser or power saving",
        ),
        (false, true) => Finding::improve(Weight::High, subject, &found, &most.words())
            .note("the card can do more: another slot, no riser, seat it anew, see the BIOS"),
        (false, false) => {
            let wanted = format!("a link for {}", rate_words(rate));
            Finding::improve(Weight::High, subject, &found, &wanted)
                .note("the card itself has no wider link, so it never reaches its rate")
        }
    };
    finding.needs(Needs::Hands)
}

fn carries(link: Link) -> String {
    format!("which carry about {:.0} Gbit/s", link.bits_per_s() / 1e9)
}

/// Reads a link's speed, `8.0 GT/s PCIe` (older kernels `8 GT/s`), and its width, `16`.
fn link(machine: &Machine, directory: &str, which: &str) -> Result<Link, Unread> {
    let path = |what: &str| format!("{directory}/{which}_link_{what}");
    let (speed_path, width_path) = (path("speed"), path("width"));
    let speed = machine.text(&speed_path)?;
    let gigatransfers_per_s = speed
        .split_once(" GT/s")
        .and_then(|(number, _)| number.parse::<f64>().ok())
        .filter(|number| (1.0..1000.0).contains(number))
        .ok_or_else(|| Unread::nonsense(speed_path, &speed))?;
    let width = machine.text(&width_path)?;
    let lanes = width.trim_start_matches('x').parse().ok().filter(|lanes| (1..=32).contains(lanes));
    let lanes = lanes.ok_or_else(|| Unread::nonsense(width_path, &width))?;
    Ok(Link { gigatransfers_per_s, lanes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(rate: &str, now: [&str; 2], most: [&str; 2]) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", rate),
            ("sys/class/net/eth0/device/current_link_speed", now[0]),
            ("sys/class/net/eth0/device/current_link_width", now[1]),
            ("sys/class/net/eth0/device/max_link_speed", most[0]),
            ("sys/class/net/eth0/device/max_link_width", most[1]),
        ]);
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn the_link_that_each_speed_needs_is_known() {
        let (third, fourth, fifth) = ("8.0 GT/s PCIe\n", "16.0 GT/s PCIe\n", "32.0 GT/s PCIe\n");
        for (rate, speed, lanes, is_enough) in [
            ("10000", "2.5 GT/s PCIe\n", "8", true),
            ("40000", third, "8", true),
            ("100000", third, "8", false),
            ("100000", "8 GT/s\n", "16", true),
            ("100000", fourth, "8", true),
            ("200000", fourth, "16", true),
            ("400000", fourth, "16", false),
            ("400000", fifth, "16", true),
        ] {
            let finding = found(rate, [speed, lanes], [speed, lanes]);
            assert_eq!(finding.state == State::Good, is_enough, "{rate} {speed} {lanes}");
        }
    }

    #[test]
    fn a_card_in_a_narrow_slot_needs_hands() {
        let finding =
            found("100000", ["8.0 GT/s PCIe", "8"], ["16.0 GT/s PCIe", "16"]);
        assert_eq!((finding.weight, finding.needs), (Weight::High, Needs::Hands));
        assert_eq!(finding.found, "8 lanes of 8 GT/s, which carry about 54 Gbit/s");
        let finding = found("25000", ["8.0 GT/s PCIe", "8"], ["8.0 GT/s PCIe", "16"]);
        assert_eq!(finding.weight, Weight::Low);
    }

    #[test]
    fn a_link_that_makes_no_sense_is_unknown() {
        for [speed, width] in [
            ["Unknown", "16"],
            ["", "16"],
            ["8.0 GT/s PCIe", "0"],
            ["NaN GT/s", "8"],
            ["8 GT/s", "255"],
        ] {
            let finding = found("10000", [speed, width], [speed, width]);
            assert_eq!(finding.state, State::Unknown, "{speed} {width}");
        }
    }
}
