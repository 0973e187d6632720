//! The size of a card's read requests to memory.

use super::{Check, FAST_BITS_PER_S, Group, card_rate, of_cards, pci_address};
use crate::tune::{
    Finding, Goal, Machine, Weight,
    machine::{Unread, Why},
};

const WANTED_BYTES: u32 = 4096;
/// The rate from which small requests cost more than a few per cent.
const COSTS_FROM_BITS_PER_S: u64 = 100_000_000_000;

pub const CHECK: Check = Check {
    name: "pcie-read-request",
    group: Group::NetworkCard,
    summary: "the card reads memory in large requests (MaxReadReq)",
    why: "A card that sends fetches each packet from memory. With requests of 512 bytes a jumbo \
        frame takes 18, and the bus is busy with asking. 4096 is the most that PCI Express has. \
        The register is the card's: another boot sets it back, so the command belongs in a unit.",
    source: "ESnet fasterdata.es.net, 100G tuning; PCI Express Base Specification, Device Control",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: MaxReadReq");
    let Some(address) = pci_address(machine, card) else {
        return Finding::absent(&subject, "the card has no place of its own on PCI");
    };
    let rate = card_rate(machine, goal, card);
    if rate < FAST_BITS_PER_S {
        return Finding::absent(&subject, "counts from 40 Gbit/s on");
    }
    let command = ["lspci", "-vv", "-s", &address];
    let bytes = match machine.answer(&command).and_then(|text| read_request(&text)) {
        Ok(bytes) => bytes,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let found = format!("{bytes} bytes");
    if bytes >= WANTED_BYTES {
        return Finding::good(Weight::Low, &subject, &found);
    }
    let weight = if rate >= COSTS_FROM_BITS_PER_S { Weight::Medium } else { Weight::Low };
    Finding::improve(weight, &subject, &found, &format!("{WANTED_BYTES} bytes"))
        .note("haul does not write to a card's registers: do it yourself, and measure")
        // Bits 14 to 12 of Device Control; 5 is 4096 bytes.
        .command(format!("setpci -s {address} CAP_EXP+8.w=5000:7000"))
}

/// Reads the size from `MaxPayload 256 bytes, MaxReadReq 512 bytes`; shown to root only.
fn read_request(text: &str) -> Result<u32, Unread> {
    let what = "MaxReadReq of lspci -vv";
    if text.contains("<access denied>") {
        return Err(Unread { what: what.to_owned(), why: Why::NoRight });
    }
    let Some((_, rest)) = text.split_once("MaxReadReq ") else {
        return Err(Unread { what: what.to_owned(), why: Why::Missing });
    };
    let word = rest.split_whitespace().next().unwrap_or_default();
    let bytes = word.parse().ok().filter(|bytes: &u32| bytes.is_power_of_two());
    bytes.ok_or_else(|| Unread::nonsense(what, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(shown: &str) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", "100000"),
            ("sys/class/net/eth0/device/uevent", "DRIVER=ice\nPCI_SLOT_NAME=0000:3b:00.0\n"),
        ]);
        let host = host.answer("lspci -vv -s 0000:3b:00.0", shown);
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn small_requests_are_found_and_only_advised_against() {
        let finding = found("\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n");
        assert_eq!(finding.command, "setpci -s 0000:3b:00.0 CAP_EXP+8.w=5000:7000");
        assert!(finding.changes.is_empty());
        assert_eq!(found("MaxReadReq 4096 bytes\n").state, State::Good);
        for unread in ["", "Capabilities: <access denied>", "MaxReadReq", "MaxReadReq odd bytes"] {
            assert_eq!(found(unread).state, State::Unknown, "{unread}");
        }
    }
}
