//! Signs that a file system has given up. What it says of a sync is not believed then.
//!
//! A journal's failed commit is told to the one who waits for it. Whoever syncs a directory after
//! that is told that all is well: ext4 finds the transaction over (jbd2_complete_transaction in
//! fs/jbd2/journal.c, Linux 6.18), xfs finds nothing of the inode in its log (xfs_dir_fsync in
//! fs/xfs/xfs_file.c). Only a change is refused. So every file system is asked for one: a file
//! without a name, or, where there are none (vfat, NFS, most of FUSE), that the directory's times
//! are those of this moment. A directory that this user may not write to is believed.

use rustix::{
    fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fsync, futimens, openat},
    io::Errno,
};
use std::{io, os::fd::AsFd};

/// Syncs a directory, so that what was entered in it is durable.
///
/// # Errors
/// If it cannot be synced, or its file system has given up before.
pub fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    fsync(&directory)?;
    check_not_aborted(&directory)
}

/// Fails if a file system has given up, which is asked after a sync: makes a file without a name in
/// this directory, and drops it. Where there are none, the directory's times become those of this
/// moment, as by a new name in it.
///
/// # Errors
/// If the file system takes no changes any more: then what was synced may not be there.
pub fn check_not_aborted(directory: impl AsFd) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(&directory, ".", flags, Mode::from_raw_mode(0o600)) {
        Err(errno @ (Errno::IO | Errno::ROFS)) => Err(errno.into()),
        // As the kernel says it, the file system, or a kernel without the flag (openat(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS | Errno::NOENT) => {
            check_takes_times(directory)
        }
        // Too little of something says nothing of a journal.
        _ => Ok(()),
    }
}

fn check_takes_times(directory: impl AsFd) -> io::Result<()> {
    // Both: who may write to a directory may set no other times of it (utimensat(2)).
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    match futimens(directory, &Timestamps { last_access: now, last_modification: now }) {
        Err(errno @ (Errno::IO | Errno::ROFS)) => Err(errno.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{
        mount::{DiskKind, Mount},
        skip::skip,
    };
    use rustix::fs::syncfs;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_directory_that_takes_changes_is_synced_and_nothing_stays_in_it() {
        let directory = tempfile::tempdir().unwrap();
        sync_directory(std::fs::File::open(directory.path()).unwrap()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Failure on xfs: files were told as done, and their names were gone after the next mount.
    #[test]
    fn a_file_system_that_was_stopped_or_lost_its_disk_is_not_believed_whatever_its_kind() {
        for kind in DiskKind::ALL {
            for stop in [Mount::cut_power, Mount::fail_disk] {
                let place = tempfile::tempdir().unwrap();
                let path = place.path().join("disk");
                std::fs::create_dir(&path).unwrap();
                let disk = match Mount::disk(kind, &path, &place.path().join("image")) {
                    Ok(disk) => disk,
                    Err(why) => {
                        return skip(&format!("root, mkfs and a kernel for {kind:?}"), &why);
                    }
                };
                let directory = path.join("in-it");
                std::fs::create_dir(&directory).unwrap();
                let opened = std::fs::File::open(&directory).unwrap();
                sync_directory(&opened).unwrap();
                std::fs::write(directory.join("lost"), [7; 100_000]).unwrap();
                stop(&disk).unwrap();
                // The first of them meets the failure, the others come after it.
                let told: Vec<bool> = (0..3).map(|_| fsync(&opened).is_ok()).collect();
                println!("{kind:?}: syncs of a directory that succeed after the end: {told:?}");
                assert!(sync_directory(&opened).is_err(), "{kind:?}");
                assert!(check_not_aborted(&opened).is_err(), "{kind:?}");
            }
        }
    }

    /// Failure that was told of when other files were synced, while those that it hit got their
    /// names.
    #[test]
    fn a_write_that_failed_is_told_of_by_its_file_though_the_file_system_is_synced_with_success() {
        for (kind, bad_from) in
            [(DiskKind::Ext4, 40 << 20), (DiskKind::Xfs, 200 << 20), (DiskKind::Btrfs, 30 << 20)]
        {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("disk");
            std::fs::create_dir(&path).unwrap();
            let disk = match Mount::disk(kind, &path, &place.path().join("image")) {
                Ok(disk) => disk,
                Err(why) => return skip(&format!("root, mkfs and a kernel for {kind:?}"), &why),
            };
            let make = |number: u32| {
                let directory = path.join(number.to_string());
                std::fs::create_dir(&directory).unwrap();
                let file = std::fs::File::create(directory.join("file")).unwrap();
                let flags = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(&file, flags, 0, 3 << 20).unwrap();
                file
            };
            let files: Vec<_> = (0..8).map(make).collect();
            let first = std::fs::File::open(&path).unwrap();
            syncfs(&first).unwrap();
            for file in &files {
                file.write_all_at(&vec![7; 3 << 20], 0).unwrap();
            }
            disk.fail_disk_from(bad_from).unwrap();
            assert!(syncfs(&first).is_err(), "{kind:?}");
            let later = std::fs::File::open(path.join("0")).unwrap();
            assert!(syncfs(&later).is_ok() && check_not_aborted(&later).is_ok(), "{kind:?}");
            let bad = files.iter().filter(|file| haul_sys::write_back::check(file).is_err());
            assert!((1..8).contains(&bad.count()), "{kind:?}");
        }
    }

    /// bindfs passes on no sync of a directory, and has no files without a name.
    #[test]
    fn a_file_system_without_nameless_files_is_not_believed_either_over_one_that_was_stopped() {
        let place = tempfile::tempdir().unwrap();
        let (below, path) = (place.path().join("below"), place.path().join("fuse"));
        std::fs::create_dir(&below).unwrap();
        std::fs::create_dir(&path).unwrap();
        let disk = match Mount::disk(DiskKind::Xfs, &below, &place.path().join("image")) {
            Ok(disk) => disk,
            Err(why) => return skip("root, mkfs.xfs and a kernel with xfs", &why),
        };
        let _bindfs = match Mount::bindfs(&below, &path) {
            Ok(bindfs) => bindfs,
            Err(why) => return skip("root, bindfs and a kernel with FUSE", &why),
        };
        let directory = std::fs::File::open(&path).unwrap();
        sync_directory(&directory).unwrap();
        disk.cut_power().unwrap();
        assert!(fsync(&directory).is_ok(), "what FUSE says");
        assert!(sync_directory(&directory).is_err());
    }

    /// Reason why a sync alone is not enough.
    #[test]
    fn an_xfs_that_was_shut_down_syncs_its_directories_with_success() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let disk = match Mount::disk(DiskKind::Xfs, &path, &place.path().join("image")) {
            Ok(disk) => disk,
            Err(why) => return skip("root, mkfs.xfs and a kernel with xfs", &why),
        };
        let directory = std::fs::File::open(&path).unwrap();
        sync_directory(&directory).unwrap();
        disk.cut_power().unwrap();
        assert!(fsync(&directory).is_ok(), "what the kernel says");
        assert!(sync_directory(&directory).is_err());
    }
}
