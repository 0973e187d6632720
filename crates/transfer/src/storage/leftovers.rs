//! Leftovers beside a file of a run that died.

use crate::storage::{
    hidden_names::{JOURNAL_SUFFIX, PART_SUFFIX, hidden_name},
    locked::try_lock,
    ranges,
    root::Root,
};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use std::os::fd::AsFd;

/// Removes what a run that died between renaming and tidying left.
pub(super) fn remove_leftovers(root: &Root, name: &[u8]) {
    let Ok((parent, last)) = root.parent_of(name) else { return };
    let part = hidden_name(last, PART_SUFFIX);
    if remove_leftover(&*parent, &part) {
        let _ = unlinkat(&parent, &*hidden_name(last, JOURNAL_SUFFIX), AtFlags::empty());
    }
    ranges::remove_left(&ranges::site::Directory::of(parent.clone(), last));
}

/// Removes one of haul's own temporaries, or says that somebody uses it.
pub(super) fn remove_leftover(directory: impl AsFd, name: &[u8]) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(&directory, name, flags, Mode::empty()) {
        // Somebody receives to this name just now: theirs.
        Ok(file) if try_lock(&file).is_err() => return false,
        Ok(_) => {
            let _ = unlinkat(&directory, name, AtFlags::empty());
        }
        Err(_) => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::{self, File};

    #[test]
    fn what_a_run_left_goes_unless_somebody_uses_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let root = Root::open(directory.path()).unwrap();
        for name in [".x.haul-part", ".x.haul-journal", ".y.haul-part"] {
            fs::write(at(name), b"x").unwrap();
        }
        let used = File::open(at(".x.haul-part")).unwrap();
        flock(&used, FlockOperation::LockExclusive).unwrap();
        remove_leftovers(&root, b"x");
        assert_eq!(names(), 3);
        drop(used);
        // A process that another test just forked has the lock until its execve(2).
        let goes = (0..200).any(|number| {
            std::thread::sleep(std::time::Duration::from_millis(10 * number.min(1)));
            remove_leftovers(&root, b"x");
            names() == 1
        });
        assert!(goes, "{} are there", names());
        // A journal may be left alone.
        fs::write(at(".x.haul-journal"), b"x").unwrap();
        remove_leftovers(&root, b"x");
        remove_leftovers(&root, b"gone/x");
        assert_eq!(names(), 1);
        let parent = File::open(directory.path()).unwrap();
        std::os::unix::fs::symlink(".y.haul-part", at(".z.haul-part")).unwrap();
        assert!(remove_leftover(&parent, b".z.haul-part"), "nobody uses a link");
        assert!(fs::symlink_metadata(at(".z.haul-part")).is_ok(), "and it is none of ours");
    }
}
