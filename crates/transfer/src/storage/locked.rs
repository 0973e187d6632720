//! Files that one session has locked: temporaries, and lists of hidden directories.
//!
//! Each is locked by flock(2), as every haul before did, and by a POSIX lock of the open file
//! (`F_OFD_SETLK`, fcntl_locking(2)), which haul for the JVM sees too: Java has no other. Both end
//! with the process that holds them, however that dies.

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

/// Locks a file, which is open for writing, against every other program that locks it, and does not
/// wait. Where there are no POSIX locks, as on a file system that keeps none, flock(2) is enough
/// among haul's own processes, and has to do.
///
/// # Errors
/// WOULDBLOCK where another holds it: then the caller closes the file, and lets go of half a lock.
pub(super) fn try_lock(file: impl AsFd) -> rustix::io::Result<()> {
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    match haul_sys::open_file_lock::try_lock(&file) {
        Ok(()) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            // fcntl_locking(2) leaves it open which of the two it says.
            Some(Errno::AGAIN | Errno::ACCESS) => Err(Errno::WOULDBLOCK),
            Some(Errno::INTR) => Err(Errno::INTR),
            _ => Ok(()),
        },
    }
}

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
    if try_lock(&file).is_err() {
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
        match try_lock(&file) {
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
    use crate::storage::{leftovers::remove_leftover, waited_for::is_waited_for};
    use haul_testkit::skip::skip;
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::{
        fs,
        io::Read,
        os::unix::fs::{MetadataExt, symlink},
        process::{Command, Stdio},
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

    /// Case of Java's `FileChannel.tryLock`, which is no flock(2).
    #[test]
    fn a_file_that_another_process_has_locked_as_posix_has_it_is_locked() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let path = place.path().join("part");
        fs::write(&path, b"x").unwrap();
        let hold = "import fcntl, sys\n\
                    file = open(sys.argv[1], 'r+b')\n\
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
                    print('held', flush=True)\n\
                    sys.stdin.read()";
        let command = |code: &str| {
            let mut command = Command::new("python3");
            command.arg("-c").arg(code).arg(&path);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        };
        let mut holder = match command(hold).spawn() {
            Ok(holder) => holder,
            Err(error) => return skip("python3", error.to_string()),
        };
        let mut told = [0; 5];
        holder.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
        let fault = open_locked(&directory, b"part", b"name").unwrap_err();
        assert_eq!(fault.code, FaultCode::Locked);
        assert!(!remove_leftover(&directory, b"part") && path.exists());
        assert!(create_locked(&directory, b"part").unwrap().is_none());
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        let file = open_locked(&directory, b"part", b"name").unwrap();
        assert!(!command(hold).status().unwrap().success(), "and it is locked for the other");
        drop(file);
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
