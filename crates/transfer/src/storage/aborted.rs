//! Whether a file system has given up, so that its word for what it synced is not taken.
//!
//! ext4 reports the failure of a journal's commit to the one who waits for it. Whoever syncs after
//! that, what was in the very same commit, is told that all is well: the transaction is over
//! (jbd2_complete_transaction in fs/jbd2/journal.c, Linux 6.18). Only who wants to change something
//! is refused. The same holds for what lies over an ext4 (overlayfs).

use haul_host::{FileSystem, FsKind};
use rustix::{
    fs::{Mode, OFlags, fsync, openat},
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

/// To be asked after a sync: makes a file without a name in this directory, and drops it.
///
/// # Errors
/// If the file system takes no changes any more: then what was synced may not be there.
pub fn check_not_aborted(directory: impl AsFd) -> io::Result<()> {
    if !matches!(FileSystem::of(&directory)?.kind, FsKind::Ext | FsKind::Overlay) {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(&directory, ".", flags, Mode::from_raw_mode(0o600)) {
        Err(errno @ (Errno::IO | Errno::ROFS)) => Err(errno.into()),
        // Too little of something, or no such files (ext2): that says nothing of a journal.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_takes_changes_is_synced_and_nothing_stays_in_it() {
        let directory = tempfile::tempdir().unwrap();
        sync_directory(std::fs::File::open(directory.path()).unwrap()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
