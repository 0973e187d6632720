//! Limits of written pages: when they go to the disk, and when a writer has to wait for it.

use super::{Check, Group};
use crate::{
    memory,
    tune::{Finding, Goal, Machine, Setting, Weight, machine::Unread},
};

const MIB: u64 = 1 << 20;
/// The least background limit: the disk always has something to write in large pieces.
const BACKGROUND_BYTES_MIN: u64 = 256 * MIB;
const LIMIT_BYTES_MIN: u64 = 1024 * MIB;
/// The largest limit, in seconds of the rate: a transfer may stop for as long.
const LIMIT_S_MAX: u64 = 4;

pub const CHECK: Check = Check {
    name: "dirty-bytes",
    group: Group::Storage,
    summary: "written pages go to the disk early, in bytes and not in a share of the memory",
    why: "By 10 and 20 % of the memory a node of 512 GB gathers 50 GB before it begins to write, \
        and at 100 GB every writer stops until the disk has caught up: the rate is first too good, \
        then near nothing. Begun early, the disk writes while the network delivers. The limit is \
        some seconds of the rate. Bytes and share are one setting: to set one clears the other.",
    source: "ESnet fasterdata.es.net, storage tuning; Documentation/admin-guide/sysctl/vm.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let memory = memory::read(machine.root());
    let rate_bytes_per_s = goal.rate_bits_per_s / 8;
    let most = (memory.total_bytes / 4).max(64 * MIB);
    let limit = whole((2 * rate_bytes_per_s).max(LIMIT_BYTES_MIN).min(most));
    let background = whole((rate_bytes_per_s / 10).max(BACKGROUND_BYTES_MIN).min(limit / 4));
    let of = |name: &str, wanted: u64, least: u64, most: u64| {
        of_limit(machine, name, memory.available_bytes, wanted, least..=most)
    };
    vec![
        of("vm.dirty_background", background, 0, background * 4),
        of("vm.dirty", limit, limit / 4, limit.max(LIMIT_S_MAX * rate_bytes_per_s)),
    ]
}

/// Rounds down to whole MiB, which are easy to read.
fn whole(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

fn of_limit(
    machine: &Machine,
    name: &str,
    available_bytes: u64,
    wanted: u64,
    good: std::ops::RangeInclusive<u64>,
) -> Finding {
    let subject = format!("{name}_bytes");
    let setting = Setting::DirtyLimit { name: name.to_owned() };
    let value = match setting.read(machine) {
        Ok(value) => value,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let (bytes, found) = match value.split_once(' ').map(|(unit, text)| (unit, number(text))) {
        Some(("ratio", Some(percent @ 0..=100))) => {
            let bytes = available_bytes / 100 * percent;
            (bytes, format!("{percent} % of the memory, now {} MiB", bytes / MIB))
        }
        Some(("bytes", Some(bytes))) => (bytes, format!("{} MiB", bytes / MIB)),
        _ => return Finding::unknown(&subject, &Unread::nonsense(name, &value)),
    };
    if good.contains(&bytes) {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    Finding::improve(Weight::Medium, &subject, &found, &format!("{} MiB", wanted / MIB))
        .change(setting, format!("bytes {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(gigabits: u64, memory_gib: u64, limits: [&str; 4]) -> Vec<Finding> {
        let kib = memory_gib << 20;
        let meminfo = format!("MemTotal:       {kib} kB\nMemAvailable:   {kib} kB\n");
        let host = stored::host(&[
            ("proc/meminfo", &meminfo),
            ("proc/sys/vm/dirty_background_bytes", limits[0]),
            ("proc/sys/vm/dirty_background_ratio", limits[1]),
            ("proc/sys/vm/dirty_bytes", limits[2]),
            ("proc/sys/vm/dirty_ratio", limits[3]),
        ]);
        look(&host.machine(), &host.goal_of(gigabits))
    }

    #[test]
    fn a_share_of_a_large_memory_is_too_late() {
        let findings = found(100, 512, ["0", "10", "0", "20"]);
        assert_eq!(findings[1].found, "20 % of the memory, now 104857 MiB");
        let commands: Vec<&str> = findings.iter().map(|finding| &finding.command[..]).collect();
        assert_eq!(
            commands,
            [
                "sysctl -w vm.dirty_background_bytes=1249902592",
                "sysctl -w vm.dirty_bytes=24999100416"
            ]
        );
    }

    #[test]
    fn what_is_set_once_is_good_the_next_time() {
        let hosts = [(1, 2), (1, 256), (10, 24), (25, 64), (100, 512), (400, 64)];
        for (gigabits, memory_gib) in hosts {
            let before = found(gigabits, memory_gib, ["0", "90", "0", "100"]);
            let bytes = |finding: &Finding| match finding.changes.first() {
                Some(change) => change.value.strip_prefix("bytes ").unwrap().to_owned(),
                None => "0".to_owned(),
            };
            let set: Vec<String> = before.iter().map(bytes).collect();
            let after = found(gigabits, memory_gib, [&set[0], "0", &set[1], "100"]);
            for finding in after {
                assert_eq!(finding.state, State::Good, "{gigabits} {memory_gib} {finding:?}");
            }
        }
    }

    #[test]
    fn limits_that_make_no_sense_are_unknown() {
        for limits in [["0", "odd", "", "20"], ["0", "900", "-1", "0"]] {
            for finding in found(10, 16, limits) {
                assert_eq!(finding.state, State::Unknown, "{finding:?}");
            }
        }
    }
}
