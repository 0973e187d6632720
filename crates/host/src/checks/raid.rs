//! Arrays that the kernel makes of several disks (md).

use super::{Check, Group};
use crate::{
    disks::disks,
    memory,
    tune::{Finding, Goal, Machine, Needs, Setting, Weight, machine::Unread},
};

/// Stripes that an array may gather, each with a page of 4 KiB a disk. The kernel begins with 256.
const STRIPES: u64 = 8192;
const STRIPES_LEAST: u64 = 1024;
const PAGE_BYTES: u64 = 4096;
/// Threads that work out parity; the kernel begins with one for the whole array.
const THREADS: &str = "4";
const CHUNK_BYTES_MIN: i64 = 64 << 10;

pub const CHECK: Check = Check {
    name: "raid",
    group: Group::Storage,
    summary: "software arrays are whole, at rest, and have room for their stripes (md)",
    why: "An array that misses a disk, or is being rebuilt or checked, gives a transfer a part of \
        its rate. RAID 5 and 6 gather a stripe before they write it: with 256 of them a fast \
        writer always waits, and reads back what it could have gathered. On SSDs one thread for \
        the parity is the limit.",
    source: "md(4); Documentation/admin-guide/md.rst",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let mut names: Vec<(String, bool)> =
        disks(machine).into_iter().map(|disk| (disk.name, disk.rotational)).collect();
    names.retain(|(name, _)| machine.exists(&format!("/sys/block/{name}/md")));
    if names.is_empty() {
        return vec![Finding::absent("software RAID", "this host has none")];
    }
    names.iter().flat_map(|(name, rotational)| of_array(machine, name, *rotational)).collect()
}

fn of_array(machine: &Machine, name: &str, rotational: bool) -> Vec<Finding> {
    let file = |file: &str| format!("/sys/block/{name}/md/{file}");
    let number = |of: &str| machine.number(&file(of));
    let subject = format!("{name}: array");
    let level = match machine.text(&file("level")) {
        Ok(level) if level.is_empty() => {
            return vec![Finding::unknown(&subject, &Unread::nonsense(file("level"), ""))];
        }
        Ok(level) => level,
        Err(unread) => return vec![Finding::unknown(&subject, &unread)],
    };
    let mut findings = vec![state(machine, name, &subject, &level)];
    if let Ok(chunk) = number("chunk_size")
        && (1..CHUNK_BYTES_MIN).contains(&chunk)
    {
        let found = format!("chunks of {} KiB", chunk >> 10);
        let finding = Finding::improve(Weight::Low, &format!("{name}: chunks"), &found, "512 KiB")
            .note("each large read goes to every disk; another size means to make the array anew");
        findings.push(finding);
    }
    if matches!(&level[..], "raid4" | "raid5" | "raid6") {
        findings.push(stripes(machine, name));
        if !rotational {
            findings.push(threads(machine, name));
        }
    }
    findings
}

/// Checks that all disks of an array are there, and that it is not busy with itself.
fn state(machine: &Machine, name: &str, subject: &str, level: &str) -> Finding {
    let file = |file: &str| format!("/sys/block/{name}/md/{file}");
    let disks = machine.text(&file("raid_disks")).unwrap_or_default();
    let words = match disks.split_whitespace().next() {
        Some(disks) => format!("{level} of {disks} disks"),
        None => level.to_owned(),
    };
    if let Ok(missing @ 1..) = machine.number(&file("degraded")) {
        let found = format!("{words}, {missing} missing");
        return Finding::improve(Weight::High, subject, &found, "all of them")
            .needs(Needs::Hands)
            .command(format!("mdadm --detail /dev/{name}"));
    }
    // Arrays without redundancy have no such file.
    match machine.text(&file("sync_action")) {
        Ok(action) if !action.is_empty() && action != "idle" && action != "frozen" => {
            let found = format!("{words}, busy with: {action}");
            let finding = Finding::improve(Weight::Medium, subject, &found, "idle");
            match &action[..] {
                "check" => finding
                    .note("a check can be stopped, and goes on another time")
                    .command(format!("echo idle > {}", file("sync_action"))),
                _ => finding
                    .note("wait until it is done: it takes a part of each disk's time")
                    .needs(Needs::Nothing)
                    .command("cat /proc/mdstat"),
            }
        }
        _ => Finding::good(Weight::High, subject, &words),
    }
}

fn stripes(machine: &Machine, name: &str) -> Finding {
    let subject = format!("{name}: stripe cache");
    let path = format!("/sys/block/{name}/md/stripe_cache_size");
    let stripes = match machine.number(&path) {
        Ok(stripes) => u64::try_from(stripes).unwrap_or_default(),
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let disks = machine.text(&format!("/sys/block/{name}/md/raid_disks")).unwrap_or_default();
    let disks: Option<u64> = disks.split_whitespace().next().and_then(|word| word.parse().ok());
    let stripe_bytes = PAGE_BYTES * disks.unwrap_or(16).clamp(1, 1024);
    // A sixteenth of the memory is enough for one array.
    let memory = memory::read(machine.root()).total_bytes;
    let room = (memory / 16 / stripe_bytes).max(1);
    let wanted = STRIPES.min(1 << room.ilog2());
    let found = format!("{stripes} stripes");
    if stripes >= wanted.min(STRIPES / 2) || wanted < STRIPES_LEAST {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    Finding::improve(Weight::Medium, &subject, &found, &format!("{wanted} stripes"))
        .note(format!("takes {} MiB of memory", (wanted * stripe_bytes) >> 20))
        .change(Setting::file(path), wanted.to_string())
}

fn threads(machine: &Machine, name: &str) -> Finding {
    let subject = format!("{name}: parity threads");
    let path = format!("/sys/block/{name}/md/group_thread_cnt");
    match machine.number(&path) {
        Ok(0) => Finding::improve(Weight::Medium, &subject, "one for the array", THREADS)
            .change(Setting::file(path), THREADS),
        Ok(threads) => Finding::good(Weight::Medium, &subject, &threads.to_string()),
        Err(unread) => Finding::unknown(&subject, &unread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(files: &[(&str, &str)], memory_gib: u64) -> Vec<Finding> {
        let meminfo = format!("MemTotal:       {} kB\n", memory_gib << 20);
        let host = stored::host(&[
            ("proc/meminfo", &meminfo),
            ("sys/block/md0/queue/rotational", "0\n"),
            ("sys/block/md0/md/level", "raid6\n"),
            ("sys/block/md0/md/raid_disks", "12\n"),
            ("sys/block/md0/md/stripe_cache_size", "256\n"),
            ("sys/block/md0/md/group_thread_cnt", "0\n"),
        ]);
        let add = |host: stored::Stored, (name, text): &(&str, &str)| {
            host.file(&format!("sys/block/md0/md/{name}"), text)
        };
        let host = files.iter().fold(host, add);
        look(&host.machine(), &host.goal_of(10))
    }

    #[test]
    fn stripes_are_as_many_as_the_memory_bears() {
        let findings = found(&[], 64);
        assert_eq!(findings[1].command, "echo 8192 > /sys/block/md0/md/stripe_cache_size");
        assert_eq!(findings[1].note, "takes 384 MiB of memory");
        assert_eq!(found(&[], 2)[1].changes[0].value, "2048");
        assert_eq!(found(&[("stripe_cache_size", "4096")], 64)[1].state, State::Good);
        assert_eq!(findings[2].command, "echo 4 > /sys/block/md0/md/group_thread_cnt");
    }

    #[test]
    fn an_array_that_is_broken_or_busy_says_so() {
        assert_eq!(found(&[("degraded", "1\n")], 64)[0].found, "raid6 of 12 disks, 1 missing");
        let check = &found(&[("sync_action", "check\n")], 64)[0];
        assert_eq!(check.command, "echo idle > /sys/block/md0/md/sync_action");
        assert_eq!(found(&[("sync_action", "recover\n")], 64)[0].needs, Needs::Nothing);
        assert_eq!(found(&[("sync_action", "idle\n")], 64)[0].state, State::Good);
        assert_eq!(found(&[("level", "\n")], 64)[0].state, State::Unknown);
        assert_eq!(found(&[("chunk_size", "4096\n")], 64)[1].found, "chunks of 4 KiB");
        assert_eq!(found(&[("raid_disks", "odd\n"), ("degraded", "-7")], 64)[0].state, State::Good);
    }
}
