//! Mount options of the file systems of disks.

use super::{Check, Group};
use crate::{
    disks::{Mount, mounts},
    tune::{Finding, Goal, Machine, Weight, setting::quoted},
};

pub const CHECK: Check = Check {
    name: "mount-options",
    group: Group::Storage,
    summary: "to read does not write (noatime), and to write does not wait (no sync)",
    why: "With strictatime each file that is read has its time written. relatime, which is usual, \
        writes it once a day; noatime never. With sync every write waits for the disk, and with \
        data=journal ext4 writes each byte twice. haul does not mount anything anew: the options \
        stand in /etc/fstab.",
    source: "ESnet fasterdata.es.net, storage tuning; mount(8), ext4(5)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let findings: Vec<Finding> = mounts(machine).iter().map(of_mount).collect();
    match findings.is_empty() {
        true => vec![Finding::absent("mount options", "no file system of a disk is mounted here")],
        false => findings,
    }
}

fn of_mount(mount: &Mount) -> Finding {
    let subject = format!("{}: mount options", mount.point);
    let slow = [
        ("sync", "async", "each write waits for the disk"),
        ("data=journal", "data=ordered", "each byte is written twice"),
    ];
    if let Some((option, wanted, note)) = slow.into_iter().find(|(option, ..)| mount.has(option)) {
        let finding = Finding::improve(Weight::High, &subject, option, wanted).note(note);
        // How ext4 keeps its journal cannot be changed while it is mounted.
        return match option {
            "sync" => finding.command(remount(mount, wanted)),
            _ => finding,
        };
    }
    match ["noatime", "relatime"].into_iter().find(|option| mount.has(option)) {
        Some(option) => Finding::good(Weight::Low, &subject, option),
        None => Finding::improve(Weight::Low, &subject, "strictatime", "noatime")
            .note("each file that is read has its time written")
            .command(remount(mount, "noatime")),
    }
}

fn remount(mount: &Mount, option: &str) -> String {
    format!("mount -o remount,{option} {}   # and in /etc/fstab", quoted(&mount.point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(options: &str) -> Finding {
        let line = format!("22 1 8:1 / /big\\040data {options} - ext4 /dev/sda1 rw,data=ordered\n");
        let host = stored::host(&[
            ("proc/self/mountinfo", &line),
            ("sys/block/sda/device/model", "A drive\n"),
            ("sys/block/sda/sda1/dev", "8:1\n"),
        ]);
        look(&host.machine(), &host.goal_of(10)).remove(0)
    }

    #[test]
    fn options_that_cost_are_told_with_the_command() {
        assert_eq!(found("rw,relatime").state, State::Good);
        assert_eq!(found("rw,noatime").state, State::Good);
        let strict = found("rw,nosuid");
        assert_eq!(strict.command, "mount -o remount,noatime '/big data'   # and in /etc/fstab");
        assert_eq!(found("rw,relatime,sync").weight, Weight::High);
        assert_eq!(found("ro").state, State::Absent);
    }
}
