//! A pretended kernel, card and systemd, which make changes on a stored host.

use std::fs;

use haul_host::tune::{
    Change, Machine, Setting,
    machine::{STORED_ANSWERS, sysctl_path},
};
use serde_json::Value;

/// The least vm.dirty_bytes that the kernel takes: two pages (mm/page-writeback.c).
const DIRTY_BYTES_MIN: u64 = 8192;

/// Sets a value as the system would. `Err`: the system would refuse it, in its words.
pub fn set(machine: &Machine, change: &Change) -> Result<(), String> {
    let value = &change.value[..];
    if let Setting::DirtyLimit { .. } = &change.setting {
        let (name, number) = change.setting.sysctl_of(value).expect("a unit and a number");
        return set_file(machine, &Setting::sysctl(&name), &sysctl_path(&name), &number);
    }
    if let Some(path) = change.setting.path() {
        return set_file(machine, &change.setting, &path, value);
    }
    match &change.setting {
        Setting::Ring { card, ring } => edit(machine, &format!("ethtool -g {card}"), |text| {
            let (most, now) = text.split_once("Current hardware settings").expect("both parts");
            let now = with_value(now, &ring.to_uppercase(), value);
            format!("{most}Current hardware settings{now}")
        }),
        Setting::Offload { card, feature } => {
            edit(machine, &format!("ethtool -k {card}"), |text| with_value(text, feature, value));
        }
        Setting::Pause { card, direction } => {
            let name = if direction == "autoneg" { "Autonegotiate" } else { direction };
            let name = if name.len() == 2 { name.to_uppercase() } else { name.to_owned() };
            edit(machine, &format!("ethtool -a {card}"), |text| with_value(text, &name, value));
        }
        Setting::Qdisc { card } => {
            let command = format!("tc -json qdisc show dev {card}");
            edit(machine, &command, |text| with_qdisc(text, value));
        }
        Setting::Link { card, attribute } => set_link(machine, card, attribute, value),
        Setting::Service { name } => {
            let (active, enabled) = value.split_once(' ').expect("both words of a service");
            let command = format!("systemctl show --property=ActiveState,UnitFileState {name}");
            let shown = format!("ActiveState={active}\nUnitFileState={enabled}\n");
            edit(machine, &command, |_| shown.clone());
            let (from, to) =
                if active == "active" { ("stopped", "comm") } else { ("comm", "stopped") };
            rename_of_process(machine, name, from, to);
        }
        Setting::Sysctl(_) | Setting::File(_) | Setting::DirtyLimit { .. } => {
            unreachable!("these have a path")
        }
    }
    Ok(())
}

/// Sets the value of a file. One that offers a choice keeps it, and has the brackets around another
/// word.
fn set_file(machine: &Machine, setting: &Setting, path: &str, value: &str) -> Result<(), String> {
    let dirty = path.strip_prefix("/proc/sys/vm/dirty_");
    if dirty.is_some_and(|name| name.ends_with("bytes"))
        && value.parse().is_ok_and(|bytes: u64| bytes < DIRTY_BYTES_MIN)
    {
        return Err(format!("{path}: Invalid argument"));
    }
    let before = fs::read_to_string(machine.path(path)).map_err(|error| error.to_string())?;
    setting.write(machine, value).map_err(|unread| unread.words())?;
    if before.contains('[') {
        let choice = before.split_whitespace().map(|word| word.trim_matches(['[', ']']));
        if !choice.clone().any(|word| word == value) {
            return Err(format!("{path}: Invalid argument"));
        }
        let chosen = |word: &str| if word == value { format!("[{word}]") } else { word.to_owned() };
        let choice: Vec<String> = choice.map(chosen).collect();
        write(machine, path, &choice.join(" "));
    }
    follow(machine, path, value);
    Ok(())
}

/// Changes what else the kernel changes with a file.
fn follow(machine: &Machine, path: &str, value: &str) {
    // Of the two ways to limit dirty pages one is in effect, and the other reads as 0.
    for (one, other) in [
        ("dirty_bytes", "dirty_ratio"),
        ("dirty_ratio", "dirty_bytes"),
        ("dirty_background_bytes", "dirty_background_ratio"),
        ("dirty_background_ratio", "dirty_background_bytes"),
    ] {
        if path == format!("/proc/sys/vm/{one}") {
            write(machine, &format!("/proc/sys/vm/{other}"), "0");
        }
    }
    if let Some(directory) = path.strip_suffix("/smp_affinity_list") {
        // An interrupt stays at its processor if it may (arch/x86/kernel/apic/vector.c), and goes
        // to another that is allowed if not.
        let effective = format!("{directory}/effective_affinity_list");
        let found = machine.number(&effective).unwrap_or(-1);
        let may_stay = value.split(',').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            (number(first)..=number(last)).contains(&found)
        });
        if !may_stay {
            let first = value.split([',', '-']).next().unwrap_or(value);
            write(machine, &effective, first);
        }
    }
    let of_card = path.strip_prefix("/sys/class/net/").and_then(|rest| rest.split_once('/'));
    match of_card {
        Some((card, "mtu")) => set_link_only(machine, card, "mtu", value),
        Some((card, "tx_queue_len")) => set_link_only(machine, card, "txqlen", value),
        _ => {}
    }
}

fn number(text: &str) -> i64 {
    text.trim().parse().expect("the number of a processor")
}

fn set_link(machine: &Machine, card: &str, attribute: &str, value: &str) {
    let (shown, file) = match attribute {
        "mtu" => ("mtu", Some("mtu")),
        "txqlen" | "txqueuelen" => ("txqlen", Some("tx_queue_len")),
        other => (other, None),
    };
    set_link_only(machine, card, shown, value);
    if let Some(file) = file {
        write(machine, &format!("/sys/class/net/{card}/{file}"), value);
    }
}

fn set_link_only(machine: &Machine, card: &str, attribute: &str, value: &str) {
    edit(machine, &format!("ip -details -json link show dev {card}"), |text| {
        let mut shown: Value = serde_json::from_str(text).expect("a link");
        shown[0][attribute] = Value::from(value.parse::<u64>().expect("a number"));
        shown.to_string()
    });
}

/// Replaces the disciplines in an answer of tc(8): `fq`, `mq/fq`; `... default` for what the kernel
/// gave by itself.
fn with_qdisc(text: &str, value: &str) -> String {
    let mut shown: Vec<Value> = serde_json::from_str(text).expect("qdiscs");
    let (kinds, handle) = match value.split_once(' ') {
        Some((kinds, _)) => (kinds, "0:"),
        None => (value, "8001:"),
    };
    let (root, queue) = kinds.split_once('/').unwrap_or((kinds, kinds));
    for qdisc in &mut shown {
        let is_root = qdisc["root"] == true;
        qdisc["kind"] = Value::from(if is_root { root } else { queue });
        if is_root {
            qdisc["handle"] = Value::from(handle);
        }
    }
    Value::from(shown).to_string()
}

/// Replaces the first word of the line `NAME: ...`.
fn with_value(text: &str, name: &str, value: &str) -> String {
    let mut is_there = false;
    let of_line = |line: &str| {
        let begin = format!("{name}:");
        let blanks = line.len() - line.trim_start().len();
        if is_there || !line.trim_start().starts_with(&begin) {
            return format!("{line}\n");
        }
        is_there = true;
        format!("{}{begin} {value}\n", &line[..blanks])
    };
    let text = text.lines().map(of_line).collect();
    assert!(is_there, "no {name} to be set to {value}");
    text
}

/// Changes what a program answers; a host without that answer has nothing to be changed.
fn edit(machine: &Machine, command: &str, change: impl FnOnce(&str) -> String) {
    let path = machine.root().join(STORED_ANSWERS).join(command.replace('/', "_"));
    let Ok(text) = fs::read_to_string(&path) else { return };
    if !text.starts_with("! ") {
        fs::write(&path, change(&text)).expect("an answer that we made");
    }
}

/// Renames the name of a process: one that was stopped is no longer called anything, until it is
/// started.
fn rename_of_process(machine: &Machine, name: &str, from: &str, to: &str) {
    for process in machine.names("/proc") {
        let path = |file| format!("/proc/{process}/{file}");
        if machine.text(&path(from)).is_ok_and(|called| Some(&called[..]) == name.split('.').next())
        {
            fs::rename(machine.path(&path(from)), machine.path(&path(to))).expect("our file");
        }
    }
}

/// Writes a file that the host has; one that it lacks is not made.
fn write(machine: &Machine, path: &str, value: &str) {
    if machine.exists(path) {
        fs::write(machine.path(path), format!("{value}\n")).expect("a file that we made");
    }
}
