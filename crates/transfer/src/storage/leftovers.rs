//! Leftovers beside a file of a run that died.

use crate::storage::{
    hidden_names::{JOURNAL_SUFFIX, PART_SUFFIX, hidden_name},
    root::Root,
};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use std::os::fd::AsFd;

/// Removes what a run that died between renaming and tidying left.
pub(super) fn remove_leftovers(root: &Root, name: &[u8]) {
    let Ok((parent, last)) = root.parent_of(name) else { return };
    let part = hidden_name(last, PART_SUFFIX);
    if remove_leftover(&*parent, &part) {
        let _ = unlinkat(&parent, &*hidden_name(last, JOURNAL_SUFFIX), AtFlags::empty());
    }
}

/// Removes one of haul's own temporaries, or says that somebody uses it.
pub(super) fn remove_leftover(directory: impl AsFd, name: &[u8]) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(&directory, name, flags, Mode::empty()) {
        // Somebody receives to this name just now: theirs.
        Ok(file) if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() => {
            return false;
        }
        Ok(_) => {
            let _ = unlinkat(&directory, name, AtFlags::empty());
        }
        Err(_) => {}
    }
    true
}
