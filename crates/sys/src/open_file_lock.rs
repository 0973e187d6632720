//! Write locks of POSIX on whole files, which belong to the open file (`F_OFD_SETLK`).
//!
//! They exclude the record locks of other programs, those of Java's `FileChannel` among them, which
//! flock(2) does not (fcntl_locking(2), Linux 3.15). No other descriptor's end takes them away, as
//! it does with record locks, which belong to the process.

use std::{
    io,
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
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
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
}
