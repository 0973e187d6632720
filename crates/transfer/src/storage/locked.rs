//! Files that one session has locked (flock(2)): temporaries, and lists of hidden directories.
//!
//! The lock ends with the process that holds it, however that dies.

use super::waited_for::{Held, SESSIONS_ENDING, Waiting};
use crate::{error::io_fault, name::Name};
use haul_protocol::message::{Fault, FaultCode, Side};
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat},
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::fd::AsFd,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

/// Time for which a lock is waited for: its holder may be a session that is just ending.
const LOCK_PATIENCE: Duration = Duration::from_millis(1500);
/// Time for which a lock is waited for while a session of this process is known to be ending, which
/// can take a sync, or does not hear its peer. Less than the time after which a silent side is
/// given up.
const LOCK_PATIENCE_ENDING: Duration = Duration::from_secs(12);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Makes the temporary and locks it; `None` when one is there already, or somebody was faster.
pub(super) fn create_locked(
    directory: &impl AsFd,
    part: &[u8],
) -> io::Result<Option<(File, (u64, u64))>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(directory, part, flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::EXIST) => return Ok(None),
        other => other?,
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // Somebody may have locked it before us, and renamed it away.
    let ours = fstat(&file)?;
    let there = statat(directory, part, AtFlags::SYMLINK_NOFOLLOW);
    let inode = (ours.st_ino, ours.st_dev);
    let is_ours = there.is_ok_and(|there| (there.st_ino, there.st_dev) == inode);
    Ok(is_ours.then(|| (file.into(), inode)))
}

/// Opens the temporary, made when missing, and locks it: a second writer is refused while the
/// first lives.
pub(super) fn open_locked(directory: &impl AsFd, part: &[u8], name: &[u8]) -> Result<File, Fault> {
    let begun = Instant::now();
    let mut waiting = None;
    let failed = |errno: Errno| {
        io_fault(Side::Target, name, "the temporary cannot be opened", &errno.into())
    };
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    loop {
        let file = match openat(directory, part, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::LOOP) => return Err(in_the_way(part, name, "a symbolic link")),
            Err(Errno::ISDIR) => return Err(in_the_way(part, name, "a directory")),
            Err(Errno::NXIO) => return Err(in_the_way(part, name, "a socket or device")),
            opened => opened.map_err(failed)?,
        };
        let opened = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return Err(in_the_way(part, name, "a FIFO or device"));
        }
        if opened.st_nlink > 1 {
            return Err(in_the_way(part, name, "a file that has another name too"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // The holder before us may have renamed it away meanwhile.
                let there = statat(directory, part, AtFlags::SYMLINK_NOFOLLOW);
                if there.is_ok_and(|now| (now.st_ino, now.st_dev) == (opened.st_ino, opened.st_dev))
                {
                    return Ok(file.into());
                }
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let held = Held::File(opened.st_ino, opened.st_dev);
                let waiting = waiting.get_or_insert_with(|| Waiting::new(held));
                let ends = SESSIONS_ENDING.load(Ordering::Relaxed) > 0 || waiting.is_doubted();
                let patience = if ends { LOCK_PATIENCE_ENDING } else { LOCK_PATIENCE };
                if begun.elapsed() > patience {
                    return Err(locked(name));
                }
                thread::sleep(LOCK_POLL);
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Fault of a name in the way: what haul did not make stays until its owner removes it.
pub(super) fn in_the_way(hidden: &[u8], name: &[u8], found: &str) -> Fault {
    let hidden = Name(hidden.to_vec());
    let what = "something else has the name of its hidden temporary";
    Fault::new(FaultCode::NameRefused, Side::Target, what)
        .at(name)
        .needs(format!("the name {hidden} beside it, for what arrives until it is whole"))
        .found(found)
        .hint(format!("remove {hidden} from that directory, then run the same command again"))
}

fn locked(name: &[u8]) -> Fault {
    Fault::new(FaultCode::Locked, Side::Target, "another transfer is writing to it")
        .at(name)
        .needs("to be the only writer")
        .found("a live one that holds the lock")
        .hint("let that one end, or stop it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::waited_for::is_waited_for;
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
    };

    #[test]
    fn a_temporary_is_made_once_and_is_locked_by_who_made_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let (file, inode) = create_locked(&directory, b"part").unwrap().expect("it is new");
        let there = fs::metadata(place.path().join("part")).unwrap();
        assert_eq!((inode, there.mode() & 0o777), ((there.ino(), there.dev()), 0o600));
        assert!(create_locked(&directory, b"part").unwrap().is_none(), "it is there");
        let other = File::open(place.path().join("part")).unwrap();
        let locked = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK));
        assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
        drop(file);
        let file = open_locked(&directory, b"part", b"name").unwrap();
        assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
        assert_eq!(file.metadata().unwrap().ino(), there.ino());
        symlink("part", place.path().join("link")).unwrap();
        assert!(create_locked(&directory, b"link").unwrap().is_none());
    }

    /// Case of a session that ends with a long sync, and of one whose peer is silent.
    #[test]
    fn a_lock_is_waited_for_longer_where_its_holder_may_be_about_to_let_go() {
        for is_known_to_end in [true, false] {
            let place = tempfile::tempdir().unwrap();
            let directory = File::open(place.path()).unwrap();
            let (file, inode) = create_locked(&directory, b"part").unwrap().expect("it is new");
            SESSIONS_ENDING.fetch_add(u32::from(is_known_to_end), Ordering::Relaxed);
            let holder = thread::spawn(move || {
                let begun = Instant::now();
                while begun.elapsed() < LOCK_PATIENCE + Duration::from_millis(700) {
                    let asks = is_waited_for(!is_known_to_end, |held| {
                        *held == Held::File(inode.0, inode.1)
                    });
                    assert!(asks || begun.elapsed() < LOCK_PATIENCE, "it is waited for");
                    thread::sleep(LOCK_POLL);
                }
                drop(file);
            });
            let opened = open_locked(&directory, b"part", b"name");
            holder.join().unwrap();
            SESSIONS_ENDING.fetch_sub(u32::from(is_known_to_end), Ordering::Relaxed);
            assert!(opened.is_ok(), "{is_known_to_end}: {opened:?}");
        }
    }
}
