//! The file system that a file lies on: its kind, the room left there, and the kind of its disk.

use std::{fmt, io, os::fd::AsFd, path::Path};

use rustix::fs::{StatVfsMountFlags, fstat, fstatfs, fstatvfs, major, minor};

use crate::{below, number};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsKind {
    /// ext2, ext3 and ext4, which share one number.
    Ext,
    Xfs,
    Btrfs,
    Tmpfs,
    Nfs,
    Overlay,
    Zfs,
    Fuse,
    F2fs,
    /// Any other file system, by its number in statfs(2).
    Other(u64),
}

/// Numbers of file systems in statfs(2), from include/uapi/linux/magic.h and, for ZFS, its own
/// sources.
const MAGIC: [(u64, FsKind); 9] = [
    (0xef53, FsKind::Ext),
    (0x5846_5342, FsKind::Xfs),
    (0x9123_683e, FsKind::Btrfs),
    (0x0102_1994, FsKind::Tmpfs),
    (0x6969, FsKind::Nfs),
    (0x794c_7630, FsKind::Overlay),
    (0x2fc1_2fc1, FsKind::Zfs),
    (0x6573_5546, FsKind::Fuse),
    (0xf2f5_2010, FsKind::F2fs),
];

/// Numbers of file systems whose files the kernel makes up while they are read, and which tell of
/// most that they are empty: proc, sysfs, both of cgroup, debugfs, tracefs, securityfs, configfs,
/// bpf (include/uapi/linux/magic.h).
const MADE_UP: [u64; 9] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
];

impl FsKind {
    /// Whether a file that is said to be empty is: not where the kernel makes it up while it is
    /// read (proc(5), sysfs(5)).
    #[must_use]
    pub fn tells_sizes(self) -> bool {
        !matches!(self, Self::Other(magic) if MADE_UP.contains(&magic))
    }

    #[must_use]
    pub fn from_magic(magic: u64) -> Self {
        MAGIC
            .iter()
            .find(|(number, _)| *number == magic)
            .map_or(Self::Other(magic), |(_, kind)| *kind)
    }

    /// The name of the kind in reports. All of the ext family are `ext4`, the most common of them.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Nfs => "nfs",
            Self::Overlay => "overlay",
            Self::Zfs => "zfs",
            Self::Fuse => "fuse",
            Self::F2fs => "f2fs",
            Self::Other(_) => "an unknown file system",
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(magic) => write!(f, "{} ({magic:#x})", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

/// The file system that an open file or directory lies on, as it was at the time of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: FsKind,
    /// The size of a block of the file system; places on the disk are given out in these.
    pub block_bytes: u64,
    /// Bytes that this user may still write: less than is free, if some is kept for root. `None`
    /// where the file system counts no blocks (ramfs, proc): then nothing is known.
    pub free_bytes: Option<u64>,
    /// Files that can still be made; `u64::MAX` where the file system has no fixed number.
    pub free_inodes: u64,
    pub read_only: bool,
}

impl FileSystem {
    /// Asks the kernel about the file system of an open file (fstatfs(2), fstatvfs(3)).
    ///
    /// # Errors
    /// Those of the calls: a network file system may not answer.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let numbers = fstatfs(&file)?;
        let room = fstatvfs(&file)?;
        // The kernel's field is signed on most machines; the numbers have 32 bits.
        let magic = numbers.f_type as u64 & 0xffff_ffff;
        let (counts_blocks, counts_inodes) = (room.f_blocks > 0, room.f_files > 0);
        Ok(Self {
            kind: FsKind::from_magic(magic),
            block_bytes: room.f_frsize,
            free_bytes: counts_blocks.then(|| room.f_bavail.saturating_mul(room.f_frsize)),
            free_inodes: if counts_inodes { room.f_favail } else { u64::MAX },
            read_only: room.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}

/// Whether the disk below `file` has rotating platters, as /sys below `root` says.
///
/// `None` where there is no such disk (tmpfs, network) or it is hidden (btrfs numbers its devices
/// itself). Virtual disks often claim to rotate.
#[must_use]
pub fn rotational(root: &Path, file: impl AsFd) -> Option<bool> {
    let device = fstat(file).ok()?.st_dev;
    rotational_device(root, major(device), minor(device))
}

/// Says whether a block device rotates, by its numbers. A partition has no queue of its own: the
/// disk, the directory above it, has.
#[must_use]
pub fn rotational_device(root: &Path, major: u32, minor: u32) -> Option<bool> {
    let device = below(root, "/sys/dev/block").join(format!("{major}:{minor}"));
    let own = number(&device.join("queue/rotational"));
    let value = own.or_else(|| number(&device.join("../queue/rotational")))?;
    Some(value != 0)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
    };

    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_number_of_its_own() {
        for (magic, kind) in MAGIC {
            assert_eq!(FsKind::from_magic(magic), kind);
            assert_eq!(MAGIC.iter().filter(|(_, other)| other.name() == kind.name()).count(), 1);
        }
    }

    #[test]
    fn an_unknown_kind_is_shown_with_its_number() {
        let kind = FsKind::from_magic(0x1234);
        assert_eq!(kind, FsKind::Other(0x1234));
        assert_eq!(kind.to_string(), "an unknown file system (0x1234)");
    }

    #[test]
    fn a_directory_that_can_be_written_has_room() {
        let directory = tempfile::tempdir().unwrap();
        let room = FileSystem::of(File::open(directory.path()).unwrap()).unwrap();
        assert!(!room.read_only);
        assert!(room.block_bytes > 0);
        assert!(room.free_bytes.is_some());
    }

    #[test]
    fn proc_is_a_file_system_that_is_not_in_the_table() {
        let room = FileSystem::of(File::open("/proc").unwrap()).unwrap();
        assert_eq!(room.kind, FsKind::Other(0x9fa0));
        assert!(!room.kind.tells_sizes());
        assert!(MAGIC.iter().all(|(_, kind)| kind.tells_sizes()));
        assert_eq!(room.free_bytes, None);
    }

    #[test]
    fn a_partition_rotates_as_its_disk_does() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/devices/block/sda");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::write(disk.join("queue/rotational"), "1\n").unwrap();
        fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        symlink("../../devices/block/sda", root.path().join("sys/dev/block/8:0")).unwrap();
        symlink("../../devices/block/sda/sda1", root.path().join("sys/dev/block/8:1")).unwrap();
        assert_eq!(rotational_device(root.path(), 8, 0), Some(true));
        assert_eq!(rotational_device(root.path(), 8, 1), Some(true));
        fs::write(disk.join("queue/rotational"), "0\n").unwrap();
        assert_eq!(rotational_device(root.path(), 8, 1), Some(false));
    }

    #[test]
    fn what_lies_on_no_disk_has_no_answer() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(rotational_device(root.path(), 0, 27), None);
        assert_eq!(rotational(root.path(), File::open(root.path()).unwrap()), None);
    }
}
