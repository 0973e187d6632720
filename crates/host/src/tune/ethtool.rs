//! A network card's own settings, as ethtool(8) and ip-link(8) print them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::machine::{Machine, Unread};

/// The size of a ring of descriptors, or the number of queues: now, and the most there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) now: u32,
    pub(crate) most: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) rx: Option<Ring>,
    pub(crate) tx: Option<Ring>,
}

/// Sizes of a card's rings of descriptors (`ethtool -g`).
pub(crate) fn rings(machine: &Machine, card: &str) -> Result<Rings, Unread> {
    let [rx, tx] = sizes(machine, &["ethtool", "-g", card], ["RX", "TX"])?;
    Ok(Rings { rx, tx })
}

/// The queues of a card: each has an interrupt, and so a processor, of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) combined: Option<Ring>,
    pub(crate) rx: Option<Ring>,
}

/// Reads the queues of a card (`ethtool -l`). Cards have combined queues, or several for each way.
pub(crate) fn queues(machine: &Machine, card: &str) -> Result<Queues, Unread> {
    let [combined, rx] = sizes(machine, &["ethtool", "-l", card], ["Combined", "RX"])?;
    Ok(Queues { combined, rx })
}

/// Reads sizes from an answer: first stands the most that the card can have, then what it has.
/// `n/a` is none.
fn sizes<const COUNT: usize>(
    machine: &Machine,
    command: &[&str],
    names: [&str; COUNT],
) -> Result<[Option<Ring>; COUNT], Unread> {
    let text = machine.answer(command)?;
    let nonsense = || Unread::nonsense(command.join(" "), &text);
    let (most, now) = text.split_once("Current hardware settings").ok_or_else(nonsense)?;
    let number = |part: &str, name: &str| value(part, name)?.parse::<u32>().ok();
    let sizes = names.map(|name| Some(Ring { now: number(now, name)?, most: number(most, name)? }));
    if sizes.iter().all(Option::is_none) {
        return Err(nonsense());
    }
    Ok(sizes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) on: bool,
    /// Whether nobody can change the feature.
    pub(crate) fixed: bool,
}

/// Reads all that a card can do for the kernel, by name (`ethtool -k`).
pub(crate) fn features(machine: &Machine, card: &str) -> Result<BTreeMap<String, Feature>, Unread> {
    let command = ["ethtool", "-k", card];
    let text = machine.answer(&command)?;
    let feature = |line: &str| {
        let (name, state) = line.trim().split_once(": ")?;
        let on = match state.split_whitespace().next()? {
            "on" => true,
            "off" => false,
            _ => return None,
        };
        Some((name.to_owned(), Feature { on, fixed: state.contains("[fixed]") }))
    };
    let mut features: BTreeMap<_, _> = text.lines().filter_map(feature).collect();
    for group in groups_of_fixed(&text) {
        if let Some(feature) = features.get_mut(group) {
            feature.fixed = true;
        }
    }
    if features.is_empty() {
        return Err(Unread::nonsense(command.join(" "), &text));
    }
    Ok(features)
}

/// Names of groups in which nobody can change anything. A group's own line, such as
/// `tcp-segmentation-offload: off`, stands for the indented ones below it, and is never marked
/// itself: it cannot be changed where none of those can.
fn groups_of_fixed(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let groups = lines.chunk_by(|_, next| next.starts_with(char::is_whitespace));
    let fixed = groups
        .filter(|group| group.len() > 1 && group[1..].iter().all(|line| line.contains("[fixed]")));
    fixed.filter_map(|group| Some(group[0].split_once(':')?.0.trim())).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) autonegotiate: Option<bool>,
    pub(crate) rx: Option<bool>,
    pub(crate) tx: Option<bool>,
}

/// Reads whether a card sends and obeys pause frames (`ethtool -a`).
pub(crate) fn pause(machine: &Machine, card: &str) -> Result<Pause, Unread> {
    let command = ["ethtool", "-a", card];
    let text = machine.answer(&command)?;
    let on = |name: &str| match value(&text, name)? {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    let pause = Pause { autonegotiate: on("Autonegotiate"), rx: on("RX"), tx: on("TX") };
    if pause.rx.is_none() && pause.tx.is_none() {
        return Err(Unread::nonsense(command.join(" "), &text));
    }
    Ok(pause)
}

/// Reads the driver of a card (`ethtool -i`): driver, version, firmware-version, bus-info.
pub(crate) fn driver(machine: &Machine, card: &str) -> Result<BTreeMap<String, String>, Unread> {
    let text = machine.answer(&["ethtool", "-i", card])?;
    Ok(pairs(&text))
}

/// Reads how a card gathers packets (`ethtool -c`): adaptive-rx, rx-usecs and the like; what is
/// `n/a` is left out.
pub(crate) fn coalescing(
    machine: &Machine,
    card: &str,
) -> Result<BTreeMap<String, String>, Unread> {
    let command = ["ethtool", "-c", card];
    let text = machine.answer(&command)?;
    let mut values = pairs(&text);
    // `Adaptive RX: on  TX: off`.
    if let Some(line) = value(&text, "Adaptive RX") {
        let mut words = line.split_whitespace();
        let (rx, tx) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        values.insert("adaptive-rx".to_owned(), rx.to_owned());
        values.insert("adaptive-tx".to_owned(), tx.to_owned());
    }
    values.retain(|_, value| value != "n/a" && !value.is_empty());
    Ok(values)
}

/// Reads the card's object of `ip -details -json link show`.
pub(crate) fn link(machine: &Machine, card: &str) -> Result<Value, Unread> {
    let command = ["ip", "-details", "-json", "link", "show", "dev", card];
    let text = machine.answer(&command)?;
    let nonsense = || Unread::nonsense(command.join(" "), &text);
    let shown: Value = serde_json::from_str(&text).map_err(|_| nonsense())?;
    shown.get(0).filter(|link| link.is_object()).cloned().ok_or_else(nonsense)
}

/// The text behind `NAME:` at a line's beginning.
fn value<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let of_line = |line: &'text str| line.trim().strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(of_line).map(str::trim)
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(option: &str, shown: &str) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let answers = root.path().join(super::super::machine::STORED_ANSWERS);
        std::fs::create_dir(&answers).unwrap();
        std::fs::write(answers.join(format!("ethtool {option} eth0")), shown).unwrap();
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn rings_have_a_size_and_a_most() {
        let shown = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\n\
            TX:\t\t4096\nCurrent hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\nTX:\t\t512\n";
        let found = rings(&machine("-g", shown).1, "eth0").unwrap();
        assert_eq!(found.rx, Some(Ring { now: 256, most: 4096 }));
        assert_eq!(found.tx, Some(Ring { now: 512, most: 4096 }));
        for nonsense in ["", "RX: 1", "Current hardware settings\nRX: many"] {
            assert!(rings(&machine("-g", nonsense).1, "eth0").is_err());
        }
    }

    #[test]
    fn queues_are_combined_or_one_way() {
        let shown = |rx: &str, combined: &str| {
            let part = format!("RX:\t\t{rx}\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t{combined}\n");
            format!("Pre-set maximums:\n{part}Current hardware settings:\n{part}")
        };
        let found = queues(&machine("-l", &shown("n/a", "63")).1, "eth0").unwrap();
        assert_eq!(found, Queues { combined: Some(Ring { now: 63, most: 63 }), rx: None });
        let found = queues(&machine("-l", &shown("8", "n/a")).1, "eth0").unwrap();
        assert_eq!(found, Queues { combined: None, rx: Some(Ring { now: 8, most: 8 }) });
        assert!(queues(&machine("-l", &shown("n/a", "n/a")).1, "eth0").is_err());
    }

    #[test]
    fn features_tell_what_is_on_and_what_is_fixed() {
        let shown = "Features for eth0:\nrx-checksumming: on [fixed]\n\
            tcp-segmentation-offload: off\n\ttx-tcp-segmentation: off [requested on]\n";
        let found = features(&machine("-k", shown).1, "eth0").unwrap();
        assert_eq!(found["rx-checksumming"], Feature { on: true, fixed: true });
        assert_eq!(found["tcp-segmentation-offload"], Feature { on: false, fixed: false });
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_group_of_fixed_features_is_fixed() {
        let shown = "Features for eth0:\nscatter-gather: off\n\ttx-scatter-gather: off [fixed]\n\
            tcp-segmentation-offload: off\n\ttx-tcp-segmentation: off [fixed]\n\
            \ttx-tcp6-segmentation: off\ngeneric-receive-offload: on\n";
        let found = features(&machine("-k", shown).1, "eth0").unwrap();
        assert!(found["scatter-gather"].fixed);
        assert!(!found["tcp-segmentation-offload"].fixed);
        assert!(!found["generic-receive-offload"].fixed);
    }

    #[test]
    fn a_card_without_the_right_or_the_feature_says_so() {
        let (_root, of_nobody) = machine("-g", "! netlink error: Operation not permitted\n");
        let unread = rings(&of_nobody, "eth0").unwrap_err();
        assert_eq!(unread.words(), "ethtool -g eth0: permission denied");
        let (_root, of_veth) = machine("-a", "! netlink error: Operation not supported\n");
        let unread = pause(&of_veth, "eth0").unwrap_err();
        assert_eq!(unread.words(), "ethtool -a eth0: netlink error: Operation not supported");
    }

    #[test]
    fn coalescing_is_read_with_its_two_adaptive_words() {
        let shown = "Coalesce parameters for eth0:\nAdaptive RX: on  TX: off\n\
            stats-block-usecs:\tn/a\nrx-usecs:\t8\n";
        let found = coalescing(&machine("-c", shown).1, "eth0").unwrap();
        assert_eq!(found["adaptive-rx"], "on");
        assert_eq!(found["adaptive-tx"], "off");
        assert_eq!(found["rx-usecs"], "8");
        assert!(!found.contains_key("stats-block-usecs"));
    }
}
