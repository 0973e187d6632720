//! File systems that the data lies on, and whether they know of the array beneath.

use super::{Check, Group};
use crate::{
    disks::{Kind, Mount, mounts},
    tune::{Finding, Goal, Machine, Weight},
};

pub const CHECK: Check = Check {
    name: "file-system",
    group: Group::Storage,
    summary: "data lies on XFS or ext4, made for the array beneath it",
    why: "XFS and ext4 give large files long extents, preallocate, and take O_DIRECT from many \
        threads. btrfs writes a digest of each block and copies on write, which costs on fast \
        disks. On RAID 5 and 6 a file system that does not know the stripe writes parts of it, and \
        the array reads the rest back for the parity.",
    source: "ESnet fasterdata.es.net, storage tuning; mkfs.xfs(8), mkfs.ext4(8)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let findings: Vec<Finding> =
        mounts(machine).iter().map(|mount| of_mount(machine, mount)).collect();
    match findings.is_empty() {
        true => vec![Finding::absent("file system", "no file system of a disk is mounted here")],
        false => findings,
    }
}

fn of_mount(machine: &Machine, mount: &Mount) -> Finding {
    let subject = format!("{}: file system", mount.point);
    let found = format!("{} on {}, {}", mount.kind, mount.disk.name, mount.disk.kind.words());
    let note = match &mount.kind[..] {
        "xfs" | "ext4" => return of_stripe(machine, mount, &subject, &found),
        "btrfs" => "its digests and copies on write cost on fast disks: measure (haul probe disk)",
        "ext2" | "ext3" => "it has no extents: large files are slow to make and to delete",
        "fuseblk" | "fuse" => "each call goes through a program in user space",
        _ => "few move massive data with it: measure (haul probe disk)",
    };
    Finding::improve(Weight::Low, &subject, &found, "xfs or ext4")
        .note(format!("{note}; another one means to move the data away and back"))
}

/// Checks that a file system on RAID 5 or 6 knows its stripe: XFS shows `sunit` and `swidth`, ext4
/// `stripe`, where they do.
fn of_stripe(machine: &Machine, mount: &Mount, subject: &str, found: &str) -> Finding {
    let level = machine.text(&mount.disk.path("md/level")).unwrap_or_default();
    let is_striped = mount.disk.kind == Kind::Stacked && matches!(&level[..], "raid5" | "raid6");
    let knows = |name: &str| {
        let keys = mount.options.iter().filter_map(|option| option.split_once('='));
        keys.map(|(key, _)| key).any(|key| key == name)
    };
    if !is_striped || knows("sunit") || knows("stripe") {
        return Finding::good(Weight::Medium, subject, found);
    }
    let found = format!("{found} ({level}), not aligned to its stripe");
    let finding = Finding::improve(Weight::Medium, subject, &found, "aligned");
    match &mount.kind[..] {
        "ext4" => finding
            .note("chunk size x data disks, in blocks of the file system")
            .command("# tune2fs -E stride=CHUNK_BLOCKS,stripe-width=STRIPE_BLOCKS DEVICE"),
        _ => finding.note("mount it with sunit= and swidth= (xfs(5)), in sectors of 512 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(kind: &str, options: &str, level: &str) -> Finding {
        let line = format!("22 1 9:0 / /data rw,noatime - {kind} /dev/md0 rw{options}\n");
        let host = stored::host(&[
            ("proc/self/mountinfo", &line),
            ("sys/block/md0/dev", "9:0\n"),
            ("sys/block/md0/md/level", level),
        ]);
        look(&host.machine(), &host.goal_of(10)).remove(0)
    }

    #[test]
    fn a_file_system_knows_the_stripe_beneath_it() {
        assert_eq!(found("xfs", ",attr2,sunit=1024,swidth=8192", "raid6\n").state, State::Good);
        assert_eq!(found("ext4", ",stripe=1024", "raid5\n").state, State::Good);
        assert_eq!(found("xfs", ",attr2", "raid6\n").state, State::Improve);
        assert_eq!(found("xfs", ",attr2", "raid1\n").state, State::Good);
        assert_eq!(found("xfs", ",attr2", "").state, State::Good);
    }

    #[test]
    fn others_get_a_note() {
        for kind in ["btrfs", "ext3", "fuseblk", "f2fs", "odd"] {
            let finding = found(kind, "", "raid0\n");
            assert!(finding.state == State::Improve && !finding.note.is_empty(), "{kind}");
        }
    }
}
