//! A file system that is synced whole, with the memory of a write that failed.
//!
//! syncfs(2) tells a descriptor of each write that failed once (Linux 5.8), and writes more than
//! the files that it is asked for: also those that come meanwhile. Of one that failed among these,
//! it says nothing when their turn comes. So the success of a sync counts only as long as none
//! failed; from then on each file is asked, which tells of its own to the first one who asks
//! (fsync(2)).

use super::aborted::check_not_aborted;
use rustix::fs::{Mode, OFlags, openat, syncfs};
use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

/// A file system, opened before anything was written that it is asked about.
#[derive(Debug)]
pub struct SyncedFileSystem {
    pub device: u64,
    directory: OwnedFd,
    has_failed: AtomicBool,
}

impl SyncedFileSystem {
    /// Opens the file system that an open directory is on.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn open(device: u64, directory: &OwnedFd) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        // Opened anew, and not duplicated: the errors told are those of an open file description.
        let directory = openat(directory, ".", flags, Mode::empty())?;
        Ok(Self { device, directory, has_failed: AtomicBool::new(false) })
    }

    /// Makes all durable that was written so far.
    ///
    /// # Errors
    /// If a write failed since it was last asked, or the file system takes no changes any more.
    pub fn sync(&self) -> io::Result<()> {
        let synced = syncfs(&self.directory)
            .map_err(io::Error::from)
            .and_then(|()| check_not_aborted(&self.directory));
        self.has_failed.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced
    }

    /// Makes all durable, and tells whether that is so of each single file.
    #[must_use]
    pub fn sync_each(&self) -> bool {
        self.sync().is_ok() && !self.has_failed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{root::Root, small_file},
        *,
    };
    use haul_testkit::{
        mount::{DiskKind, Mount},
        skip::skip,
    };
    use rustix::{
        fs::{FallocateFlags, fallocate},
        io::{FdFlags, fcntl_getfd},
    };
    use std::{
        ffi::OsStr,
        fs::File,
        os::unix::{ffi::OsStrExt, fs::FileExt},
        path::Path,
    };

    const LEN: u64 = 3 << 20;

    fn write(path: &Path) {
        let file = File::create(path).unwrap();
        // Placed now: some of them where the disk is going to fail.
        fallocate(&file, FallocateFlags::empty(), 0, LEN).unwrap();
        file.write_all_at(&vec![7; LEN as usize], 0).unwrap();
    }

    fn name_of(number: u8) -> Vec<u8> {
        format!("{number}/file").into_bytes()
    }

    /// Files that were told as done, and empty after the next mount.
    #[test]
    fn a_write_of_later_files_that_failed_in_the_sync_of_earlier_ones_is_not_forgotten() {
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
            let opened = File::open(&path).unwrap().into();
            let synced = SyncedFileSystem::open(1, &opened).unwrap();
            assert!(synced.sync_each(), "{kind:?}");
            for name in 0..8_u8 {
                std::fs::create_dir(path.join(name.to_string())).unwrap();
                write(&path.join(OsStr::from_bytes(&name_of(name))));
            }
            disk.fail_disk_from(bad_from).unwrap();
            assert!(!synced.sync_each(), "{kind:?}: the sync of files before these");
            assert!(synced.sync().is_ok(), "{kind:?}: it is told once");
            assert!(!synced.sync_each(), "{kind:?}");
            let root = Root::open(&path).unwrap();
            let is_there = |name: &u8| small_file::sync(&root, &name_of(*name), LEN).is_ok();
            let there: Vec<u8> = (0..8).filter(is_there).collect();
            assert!((1..8).contains(&there.len()), "{kind:?}: {there:?}");
            // The inode may have left memory, too, and have forgotten what failed.
            let kept = path.join(there[0].to_string()).join("file");
            haul_testkit::page_cache::forget(&kept, 0..LEN).unwrap();
            assert!(!is_there(&there[0]), "{kind:?}: it is not in memory");
        }
    }

    #[test]
    fn a_file_system_is_opened_anew_and_no_other_program_inherits_that() {
        let directory = tempfile::tempdir().unwrap();
        let opened: OwnedFd = File::open(directory.path()).unwrap().into();
        let synced = SyncedFileSystem::open(7, &opened).unwrap();
        assert!(fcntl_getfd(&synced.directory).unwrap().contains(FdFlags::CLOEXEC));
        assert!(synced.device == 7 && synced.sync_each());
    }
}
