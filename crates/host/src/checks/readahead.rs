//! Readahead: how far the kernel reads ahead of a program.

use super::{Check, Group};
use crate::{
    disks::{Disk, disks, holders, mounts},
    tune::{Finding, Goal, Machine, Role, Setting, Weight, machine::Unread},
};

const WANTED_KIB: i64 = 4096;

pub const CHECK: Check = Check {
    name: "readahead",
    group: Group::Storage,
    summary: "files on rotating disks and arrays are read 4 MiB ahead (read_ahead_kb)",
    why: "With the usual 128 KiB each disk of an array gets a few kilobytes at a time and moves \
        its heads in between; 4 MiB keep all of them busy. NVMe drives answer fast enough without. \
        The number counts at the topmost device, that which the file system lies on. A server of \
        many streams reads in large pieces itself, and is left as it is.",
    source: "ESnet fasterdata.es.net, storage tuning; Documentation/ABI/stable/sysfs-block",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let mounts = mounts(machine);
    let is_read = |disk: &Disk| {
        holders(machine, disk).is_empty() || mounts.iter().any(|mount| mount.disk == *disk)
    };
    let topmost = disks(machine).into_iter().filter(is_read);
    let findings: Vec<Finding> = topmost.map(|disk| of_disk(machine, goal, &disk)).collect();
    match findings.is_empty() {
        true => vec![Finding::absent("readahead", "this host shows no disk")],
        false => findings,
    }
}

fn of_disk(machine: &Machine, goal: &Goal, disk: &Disk) -> Finding {
    let subject = format!("{}: readahead", disk.name);
    let path = disk.path("queue/read_ahead_kb");
    let kib = match machine.number(&path) {
        Ok(kib) if kib >= 0 => kib,
        Ok(kib) => {
            let unread = Unread::nonsense(path, &kib.to_string());
            return Finding::unknown(&subject, &unread);
        }
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let found = format!("{kib} KiB, {}", disk.kind.words());
    if kib >= WANTED_KIB || !disk.seeks() || goal.role == Role::Media {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    Finding::improve(Weight::Medium, &subject, &found, &format!("{WANTED_KIB} KiB"))
        .change(Setting::file(path), WANTED_KIB.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn the_array_reads_ahead_and_its_members_need_not() {
        let host = stored::host(&[
            ("sys/block/sda/device/model", "ST16000NM001G\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/queue/read_ahead_kb", "128\n"),
            ("sys/block/sda/sda1/holders/md0", ""),
            ("sys/block/md0/queue/rotational", "1\n"),
            ("sys/block/md0/queue/read_ahead_kb", "512\n"),
            ("sys/block/nvme0n1/device/model", "A drive\n"),
            ("sys/block/nvme0n1/queue/read_ahead_kb", "128\n"),
        ]);
        let findings = look(&host.machine(), &host.goal_of(10));
        let found: Vec<_> =
            findings.iter().map(|finding| (&finding.subject[..], finding.state)).collect();
        assert_eq!(
            found,
            [("md0: readahead", State::Improve), ("nvme0n1: readahead", State::Good)]
        );
        assert_eq!(findings[0].command, "echo 4096 > /sys/block/md0/queue/read_ahead_kb");
    }
}
