//! Write locks of POSIX on files and parts of files, which belong to the open file (`F_OFD_SETLK`).
//!
//! They exclude the record locks of other programs, those of Java's `FileChannel` among them, which
//! flock(2) does not (fcntl_locking(2), Linux 3.15). No other descriptor's end takes them away, as
//! it does with record locks, which belong to the process.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd},
};

/// Locks a whole file, which is open for writing, against every other writer, and does not wait.
/// The lock ends when the open file has no descriptor left.
///
/// # Errors
/// EAGAIN or EACCES where another holds a lock; EINVAL, ENOLCK and the like where the file system
/// or the kernel has no such locks.
pub fn try_lock(file: impl AsFd) -> io::Result<()> {
    // A length of 0 is all of the file, however it grows (fcntl_locking(2)).
    set(file, libc::F_WRLCK, 0, 0)
}

/// Locks a run of bytes as [`try_lock`] does the whole file. They need not be there.
///
/// # Errors
/// As [`try_lock`]; EINVAL for bytes beyond what a file may have.
pub fn try_lock_range(file: impl AsFd, bytes: Range<u64>) -> io::Result<()> {
    set_range(file, libc::F_WRLCK, bytes)
}

/// Lets go of a run of bytes.
///
/// # Errors
/// What fcntl(2) says.
pub fn unlock_range(file: impl AsFd, bytes: Range<u64>) -> io::Result<()> {
    set_range(file, libc::F_UNLCK, bytes)
}

fn set_range(file: impl AsFd, kind: libc::c_int, bytes: Range<u64>) -> io::Result<()> {
    let refused = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let start = i64::try_from(bytes.start).map_err(refused)?;
    let len = bytes.end.checked_sub(bytes.start).filter(|len| *len > 0);
    let len = i64::try_from(len.unwrap_or(u64::MAX)).map_err(refused)?;
    set(file, kind, start, len)
}

fn set(file: impl AsFd, kind: libc::c_int, start: i64, len: i64) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the lock, which outlives the call, and keeps nothing of it.
    let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, fcntl_lock};
    use std::fs::File;

    #[test]
    fn another_open_file_and_a_record_lock_are_excluded_until_the_last_descriptor_is_gone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (first, second) = (open(), open());
        try_lock(&first).unwrap();
        try_lock(&first).unwrap();
        assert_eq!(try_lock(&second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let record = fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(record, Err(rustix::io::Errno::AGAIN), "also of this very process");
        let clone = first.try_clone().unwrap();
        drop(first);
        drop(open());
        assert!(try_lock(&second).is_err(), "another descriptor's end is not its own");
        drop(clone);
        fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(try_lock(open()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let read_only = File::open(file.path()).unwrap();
        assert_eq!(try_lock(read_only).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn parts_of_a_file_are_locked_apart_and_let_go_of_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (first, second) = (open(), open());
        try_lock_range(&first, 100..200).unwrap();
        try_lock_range(&second, 200..300).unwrap();
        for taken in [0..101, 150..160, 199..200, 100..300] {
            let refused = try_lock_range(&second, taken).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        }
        assert!(try_lock(&second).is_err(), "the whole file has a locked part");
        unlock_range(&first, 100..150).unwrap();
        try_lock_range(&second, 0..150).unwrap();
        assert!(try_lock_range(&second, 149..151).is_err());
        for none in [5..5, 0..u64::MAX] {
            let refused = try_lock_range(&first, none).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
