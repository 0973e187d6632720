//! Directories that nobody may write into in the end, while several sessions fill them.
//!
//! A session that fills such a directory holds a shared flock(2) on it, and narrows its mode at the
//! end only where no other session holds one: the last of them does. A session that dies lets go of
//! its lock, and the next one to the directory gives it its mode. Where a file system shows no host
//! the locks of another, or a session has more such directories than its share of the descriptors,
//! the one that is through first narrows the mode, and files of the others may fail and need
//! another run.

use super::open_files::{Pass, Share};
use crate::locks::{Lock, lock};
use rustix::{
    fs::{FlockOperation, Mode, fchmod, flock, fstat},
    io::Errno,
    process::geteuid,
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    thread,
    time::Duration,
};

/// Permission bits of a directory that its user writes into.
pub const OWN_BITS: u32 = 0o700;

/// Looks at a lock that another session holds while it gives the mode.
const TRIES: u32 = 50;
const POLL: Duration = Duration::from_millis(10);
/// Looks at a lock before a directory is left to the session that holds it.
const NARROW_TRIES: u32 = 3;

/// Directories that this session fills.
#[derive(Debug)]
pub struct Filling {
    /// Directories that it holds, by name: each takes a descriptor.
    held: Lock<BTreeMap<Vec<u8>, (OwnedFd, Pass)>>,
    share: Share,
}

impl Default for Filling {
    fn default() -> Self {
        Self { held: Lock::default(), share: Share::of_filled_directories() }
    }
}

impl Filling {
    /// Lets this user write into a directory of its own, whatever mode another session gave it
    /// meanwhile. With `until_through` others are kept from narrowing it until this session is
    /// through, as far as its share of the descriptors goes.
    pub fn hold(&self, name: &[u8], directory: OwnedFd, until_through: bool) -> io::Result<()> {
        let pass = if until_through { self.share.take() } else { None };
        let is_locked = is_shared(&directory);
        open_to_owner(&directory)?;
        if let Some(pass) = pass.filter(|_| is_locked) {
            // The pass of one that is replaced goes back behind this lock, for it takes another.
            let replaced = lock(&self.held).insert(name.to_vec(), (directory, pass));
            drop(replaced);
        }
        Ok(())
    }

    /// Lets go of the directory; whether this session may narrow its mode, for as long as
    /// `directory` is open.
    pub fn may_narrow(&self, name: &[u8], directory: impl AsFd) -> bool {
        let held = lock(&self.held).remove(name);
        drop(held);
        let narrow = FlockOperation::NonBlockingLockExclusive;
        (0..NARROW_TRIES).any(|number| {
            // A process that was just forked has the lock until its execve(2).
            thread::sleep(POLL * number.min(1));
            flock(&directory, narrow) != Err(Errno::WOULDBLOCK)
        })
    }
}

/// Lets this user write into a directory of its own that has no such mode, as an earlier session
/// may have left it, and keeps others from narrowing it for as long as it is open.
pub fn widen(directory: &OwnedFd) -> io::Result<()> {
    let (there, user) = (fstat(directory)?, geteuid());
    if there.st_uid != user.as_raw() || user.is_root() {
        return Ok(());
    }
    is_shared(directory);
    open_to_owner(directory)
}

/// Widens the mode of a directory that is this user's.
fn open_to_owner(directory: &OwnedFd) -> io::Result<()> {
    let there = fstat(directory)?;
    let mode = there.st_mode & 0o7777;
    if mode & OWN_BITS != OWN_BITS && there.st_uid == geteuid().as_raw() {
        fchmod(directory, Mode::from_raw_mode(mode | OWN_BITS))?;
    }
    Ok(())
}

/// Takes a shared lock, which waits for a session that gives the mode; false where the file system
/// has none.
pub fn is_shared(directory: &OwnedFd) -> bool {
    for _ in 0..TRIES {
        match flock(directory, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => thread::sleep(POLL),
            locked => return locked.is_ok(),
        }
    }
    false
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use haul_testkit::skip::skip;
    use rustix::{process::Uid, thread::set_thread_res_uid};
    use std::{fs::File, path::Path};

    /// Runs a test as a user who is not root, and whose directory it is: root may write into each.
    pub fn not_as_root(place: &Path, test: impl FnOnce() + Send) {
        if !geteuid().is_root() {
            return test();
        }
        let nobody = Uid::from_raw(65534);
        std::os::unix::fs::chown(place, Some(nobody.as_raw()), None).unwrap();
        let run = || match set_thread_res_uid(nobody, nobody, nobody) {
            Ok(()) => test(),
            Err(errno) => skip("a user who is not root", errno),
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap());
    }

    /// Whether a session may narrow the directory soon: other tests fork.
    fn narrows(filling: &Filling, directory: &OwnedFd) -> bool {
        (0..200).any(|_| filling.may_narrow(b"ro", directory))
    }

    #[test]
    fn the_last_session_that_fills_a_directory_narrows_it() {
        let place = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(File::open(place.path()).unwrap());
        let (one, other, third) = (Filling::default(), Filling::default(), Filling::default());
        one.hold(b"ro", open(), true).unwrap();
        other.hold(b"ro", open(), true).unwrap();
        assert!(!one.may_narrow(b"ro", open()), "the other fills it");
        assert!(!one.may_narrow(b"ro", open()), "it had let go before");
        let narrowing = open();
        assert!(narrows(&other, &narrowing));
        let waiting = thread::scope(|scope| {
            let waiting = scope.spawn(|| third.hold(b"ro", open(), true));
            thread::sleep(2 * POLL);
            drop(narrowing);
            waiting.join()
        });
        assert!(waiting.is_ok() && !one.may_narrow(b"ro", open()), "it waited for the mode");
        drop(third);
        assert!(narrows(&one, &open()), "a session that is gone holds nothing");
    }

    #[test]
    fn a_session_that_waited_for_another_to_narrow_a_directory_widens_it() {
        let place = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(File::open(place.path()).unwrap());
        let (filling, narrowing) = (Filling::default(), open());
        fchmod(&narrowing, Mode::from_raw_mode(0o755)).unwrap();
        flock(&narrowing, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| filling.hold(b"ro", open(), false));
            thread::sleep(2 * POLL);
            fchmod(&narrowing, Mode::from_raw_mode(0o555)).unwrap();
            drop(narrowing);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(fstat(open()).unwrap().st_mode & 0o777, 0o755);
        assert!(lock(&filling.held).is_empty(), "not until it is through");
    }

    #[test]
    fn a_session_holds_directories_as_far_as_its_share_goes_and_widens_the_others() {
        let place = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(File::open(place.path()).unwrap());
        let (first, next) = (Filling::default(), Filling::default());
        for number in 0..100 {
            fchmod(open(), Mode::from_raw_mode(0o555)).unwrap();
            first.hold(format!("{number}").as_bytes(), open(), true).unwrap();
            assert_eq!(fstat(open()).unwrap().st_mode & 0o777, 0o755);
        }
        let held = || lock(&first.held).len();
        assert!((1..=64).contains(&held()) && first.share.take().is_none(), "{}", held());
        next.hold(b"ro", open(), true).unwrap();
        assert_eq!(lock(&next.held).len(), 1, "each has one");
        let before = held();
        first.may_narrow(b"0", open());
        assert_eq!(held(), before - 1);
        assert!(first.share.take().is_some() || before == 64, "its pass is back");
    }
}
