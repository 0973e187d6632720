//! BIG TCP, by which the kernel may hand a card more than 64 KiB at a time.

use serde_json::Value;

use super::{Check, Group, card_rate, of_cards};
use crate::{
    kernel,
    tune::{Finding, Goal, Machine, Needs, Setting, Weight, link, machine::Unread},
};

const COUNTS_FROM_BITS_PER_S: u64 = 100_000_000_000;
const KERNEL: (u32, u32) = (6, 8);
/// The size that every card can send (GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h).
const USUAL_BYTES: u64 = 65_536;
/// The size that is asked for: larger ones bring little more, and fill a card's queue for longer.
const WANTED_BYTES: u64 = 150_000;

pub const CHECK: Check = Check {
    name: "big-tcp",
    group: Group::NetworkCard,
    summary: "the kernel hands the card up to 150 kB of TCP at a time (BIG TCP)",
    why: "Each 64 KiB costs a way through the kernel's stack; at 100 Gbit/s that is 190,000 a \
        second. With BIG TCP the pieces are larger, sending and receiving, where card and kernel \
        can: IPv6 since Linux 5.19, IPv4 since 6.3, well since 6.8. A kernel built with few \
        fragments a packet (MAX_SKB_FRAGS 17) gains nothing where MSG_ZEROCOPY sends small pages.",
    source: "ESnet fasterdata.es.net, BIG TCP; ip-link(8); LWN, \"Going big with TCP packets\"",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, goal, card))
}

fn of_card(machine: &Machine, goal: &Goal, card: &str) -> Finding {
    let subject = format!("{card}: BIG TCP");
    if card_rate(machine, goal, card) < COUNTS_FROM_BITS_PER_S {
        return Finding::absent(&subject, "counts from 100 Gbit/s on");
    }
    let release = match machine.sysctl("kernel.osrelease") {
        Ok(release) => release,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    if kernel::parse(&release).is_none_or(|version| version < KERNEL) {
        return Finding::absent(&subject, &format!("needs Linux 6.8, this is {release}"));
    }
    let link = match link(machine, card) {
        Ok(link) => link,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let number = |name: &str| link[name].as_u64();
    let (Some(most), Some(gso), Some(gro)) =
        (number("tso_max_size"), number("gso_max_size"), number("gro_max_size"))
    else {
        let unread = Unread::nonsense("ip -details -json link", &link.to_string());
        return Finding::unknown(&subject, &unread);
    };
    if most <= USUAL_BYTES {
        return Finding::absent(&subject, &format!("its driver takes no more than {most} bytes"));
    }
    let wanted = most.min(WANTED_BYTES);
    let found = format!("{gso} bytes sending, {gro} receiving");
    let small = too_small(&link, wanted);
    if small.is_empty() {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    let wanted_words = format!("{wanted} bytes");
    let mut finding = Finding::improve(Weight::Medium, &subject, &found, &wanted_words);
    if number("gso_ipv4_max_size").is_none() {
        finding = finding.note("for IPv6 only: IPv4's sizes need the ip of iproute2 6.3 or later");
    }
    if is_by_hand(&link, &small) {
        let set: Vec<String> = small.iter().map(|name| format!("{name} {wanted}")).collect();
        return finding
            .note("IPv4 has a size of its own, which haul could not set back: change it yourself")
            .needs(Needs::Root)
            .command(format!("ip link set dev {card} {}", set.join(" ")));
    }
    small.into_iter().fold(finding, |finding, attribute| {
        let setting = Setting::Link { card: card.to_owned(), attribute: attribute.to_owned() };
        finding.change(setting, wanted.to_string())
    })
}

/// Names of the sizes below `wanted`, those of IPv4 first. Setting a size of 64 KiB or less sets
/// IPv4's along with it (net/core/dev.c, netif_set_gso_max_size): for the old sizes to come back in
/// the end, IPv4's must be set back last.
fn too_small(link: &Value, wanted: u64) -> Vec<&'static str> {
    let names = ["gso_ipv4_max_size", "gro_ipv4_max_size", "gso_max_size", "gro_max_size"];
    let is_small = |name: &&str| link[*name].as_u64().is_some_and(|bytes| bytes < wanted);
    names.into_iter().filter(is_small).collect()
}

/// Whether a person has to set the sizes: setting back the common size would take away IPv4's,
/// which is larger and not ours.
fn is_by_hand(link: &Value, small: &[&str]) -> bool {
    let is_alone = |common: &str, of_ipv4: &str| {
        small.contains(&common) && !small.contains(&of_ipv4) && link[of_ipv4].is_u64()
    };
    is_alone("gso_max_size", "gso_ipv4_max_size") || is_alone("gro_max_size", "gro_ipv4_max_size")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(release: &str, sizes: [u64; 5]) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", "100000"),
            ("proc/sys/kernel/osrelease", release),
        ]);
        let [most, gso, gro, gso_ipv4, gro_ipv4] = sizes;
        let shown = serde_json::json!([{
            "tso_max_size": most, "gso_max_size": gso, "gro_max_size": gro,
            "gso_ipv4_max_size": gso_ipv4, "gro_ipv4_max_size": gro_ipv4,
        }]);
        let host = host.answer("ip -details -json link show dev eth0", &shown.to_string());
        of_card(&host.machine(), &host.goal("eth0"), "eth0")
    }

    #[test]
    fn sizes_are_raised_with_those_of_ipv4_first() {
        let finding = found("6.8.0-40-generic", [524_280, 65_536, 65_536, 65_536, 65_536]);
        let set = |finding: &Finding| {
            finding.changes.iter().map(|change| change.setting.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            set(&finding),
            [
                "link eth0 gso_ipv4_max_size",
                "link eth0 gro_ipv4_max_size",
                "link eth0 gso_max_size",
                "link eth0 gro_max_size"
            ]
        );
        assert!(finding.changes.iter().all(|change| change.value == "150000"));
        let by_hand = found("6.8.0", [524_280, 65_536, 150_000, 200_000, 150_000]);
        assert!(by_hand.changes.is_empty() && by_hand.command.ends_with("gso_max_size 150000"));
        let half = found("6.8.0", [524_280, 150_000, 150_000, 65_536, 150_000]);
        assert_eq!(set(&half), ["link eth0 gso_ipv4_max_size"]);
    }

    #[test]
    fn an_old_kernel_or_driver_has_none() {
        let usual = [65_536; 5];
        assert_eq!(found("6.8.0", usual).state, State::Absent);
        assert_eq!(found("5.15.0", [524_280; 5]).state, State::Absent);
        assert_eq!(found("odd", [524_280; 5]).state, State::Absent);
        assert_eq!(found("6.8.0", [524_280; 5]).state, State::Good);
    }
}
