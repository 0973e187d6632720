//! Read leases: whether anybody has a file open for writing (F_SETLEASE of fcntl(2)).

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The command of fcntl(2) that chooses a lease's signal: F_SETSIG of asm-generic/fcntl.h, which
/// libc lacks.
const SET_SIGNAL: libc::c_int = 10;

/// The `f_type` of overlayfs (statfs(2)): a mapping there holds the file below open, and not this
/// one.
const OVERLAYFS: u64 = 0x794c_7630;

/// A read lease of an open file. While it is held nobody has the file open for writing, and so
/// nobody has it in a writable mapping; an open for writing waits until the lease is dropped.
#[derive(Debug)]
pub struct ReadLease<'a> {
    file: &'a File,
}

/// The outcome of asking for a lease.
#[derive(Debug)]
pub enum Asked<'a> {
    Granted(ReadLease<'a>),
    /// Somebody has the file open for writing.
    IsWritten,
    /// No answer: the file system knows no leases, or its leases see no mappings (overlayfs), or
    /// the file is another user's.
    Unknown,
}

impl<'a> ReadLease<'a> {
    /// Takes a lease of a file that was opened for reading only.
    #[must_use]
    pub fn ask(file: &'a File) -> Asked<'a> {
        // The kernel tells of whoever waits by a signal: one that does nothing to a process that
        // does not ask for it. SIGIO, the default, would end it.
        if let Err(error) = set(file, SET_SIGNAL, libc::SIGURG)
            .and_then(|()| set(file, libc::F_SETLEASE, libc::F_RDLCK))
        {
            let is_written = error.kind() == io::ErrorKind::WouldBlock;
            return if is_written { Asked::IsWritten } else { Asked::Unknown };
        }
        let lease = Self { file };
        if is_overlay(file) { Asked::Unknown } else { Asked::Granted(lease) }
    }
}

/// Whether a file is one of overlayfs, as those of containers are.
#[must_use]
pub fn is_overlay(file: &File) -> bool {
    let magic = rustix::fs::fstatfs(file).map_or(0, |system| system.f_type.cast_unsigned());
    magic & 0xffff_ffff == OVERLAYFS
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // It ends with its open file at the latest.
        let _ = set(self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn set(file: &File, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: these commands take a number, and no pointer.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, value) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Access, Mapping, Populate};

    #[test]
    fn a_lease_is_granted_while_nobody_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, [1; 5000]).unwrap();
        let file = File::open(&path).unwrap();
        let other = File::open(&path).unwrap();
        if is_overlay(&file) {
            haul_testkit::skip::skip("a file system whose leases see mappings", "overlayfs");
            return assert!(matches!(ReadLease::ask(&file), Asked::Unknown));
        }
        let ask = || ReadLease::ask(&file);
        assert!(is_granted(&file));
        // Two of them are no matter, and the first is gone.
        let (one, two) = (ask(), ReadLease::ask(&other));
        assert!(matches!((&one, &two), (Asked::Granted(_), Asked::Granted(_))));
        drop((one, two));
        let writer = File::options().write(true).read(true).open(&path).unwrap();
        assert!(matches!(ask(), Asked::IsWritten));
        let mapping =
            Mapping::new(&writer, 0, 4096, Access::ReadAndWrite, Populate::OnUse).unwrap();
        drop(writer);
        assert!(matches!(ask(), Asked::IsWritten), "the mapping can write");
        drop(mapping);
        assert!(is_granted(&file));
    }

    /// Asks for up to 10 s: a child that another test has just forked holds the files of all
    /// tests, the one open for writing too, until it runs a program of its own.
    fn is_granted(file: &File) -> bool {
        (0..1000).any(|_| {
            let is_granted = matches!(ReadLease::ask(file), Asked::Granted(_));
            if !is_granted {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_granted
        })
    }

    #[test]
    fn a_writer_waits_for_the_lease_and_ends_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let Asked::Granted(lease) = ReadLease::ask(&file) else {
            return assert!(is_overlay(&file));
        };
        let (told, heard) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let opened = File::options().write(true).open(&path);
            told.send(()).unwrap();
            opened.unwrap();
        });
        let early = heard.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "it opened while the lease was held");
        drop(lease);
        heard.recv().unwrap();
        writer.join().unwrap();
    }
}
