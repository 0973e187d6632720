//! Directory of a file that comes in ranges, on a real file system.

use super::{
    Site,
    register::{Clock, Said},
};
use crate::{
    bytes::random_bytes,
    clocks::{boot, now_ms, up_ms},
    storage::{
        aborted::sync_directory,
        attributes::has_time,
        hidden_names::{REGISTER_SUFFIX, SHARED_SUFFIX, hidden_name, range_journal_name},
        target_rules::TargetRules,
    },
};
use haul_protocol::message::FileOffer;
use haul_sys::open_file_lock::{try_lock_range, unlock_range};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    thread,
};

/// A directory, a name in it, and what is given to the file of that name.
#[derive(Debug)]
pub struct Directory {
    directory: Arc<OwnedFd>,
    name: Vec<u8>,
    shared_name: Vec<u8>,
    register_name: Vec<u8>,
    given: Option<(FileOffer, Arc<TargetRules>)>,
    pub(super) clock: fn() -> Clock,
}

/// Clock of this host.
fn host_clock() -> Clock {
    let boot = u64::from_be_bytes(boot()[..8].try_into().expect("half of 16 bytes"));
    Clock { now: Said { boot, at_ms: now_ms() }, up_ms: up_ms() }
}

impl Directory {
    /// The place of a file that is only looked after.
    #[must_use]
    pub fn of(directory: Arc<OwnedFd>, name: &[u8]) -> Self {
        Self {
            directory,
            name: name.to_vec(),
            shared_name: hidden_name(name, SHARED_SUFFIX),
            register_name: hidden_name(name, REGISTER_SUFFIX),
            given: None,
            clock: host_clock,
        }
    }

    /// The place of a file that is to have what was offered with it.
    #[must_use]
    pub fn giving(self, offer: &FileOffer, rules: &Arc<TargetRules>) -> Self {
        Self { given: Some((offer.clone(), rules.clone())), ..self }
    }

    /// Opens the temporary.
    ///
    /// # Errors
    /// If it is not there, or is no file of its own.
    pub fn open_temporary(&self) -> io::Result<File> {
        match self.open(&self.shared_name, OFlags::RDWR) {
            // It was about to get its name, and has the file's mode already.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let path = openat(
                    &self.directory,
                    &*self.shared_name,
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                if FileType::from_raw_mode(fstat(&path)?.st_mode) != FileType::RegularFile {
                    return Err(error);
                }
                let link = format!("/proc/self/fd/{}", path.as_raw_fd());
                rustix::fs::chmod(link, Mode::from_raw_mode(0o600))?;
                self.open(&self.shared_name, OFlags::RDWR)
            }
            opened => opened,
        }
    }

    /// Name of the temporary in its directory.
    #[must_use]
    pub fn temporary_name(&self) -> &[u8] {
        &self.shared_name
    }

    /// Opens a file that has no other name, under which somebody else's would be written to.
    fn open(&self, name: &[u8], flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let in_the_way = || {
            let what = format!("something else has the name {}", name.escape_ascii());
            io::Error::new(io::ErrorKind::AlreadyExists, what)
        };
        let file = match openat(&self.directory, name, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(in_the_way()),
            opened => opened?,
        };
        let stat = fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_nlink > 1 {
            return Err(in_the_way());
        }
        Ok(file.into())
    }

    fn remove(&self, name: &[u8]) {
        let _ = unlinkat(&self.directory, name, AtFlags::empty());
    }
}

impl Site for Directory {
    type Open = File;

    fn open_register(&self, make: bool) -> io::Result<File> {
        let flags = if make { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDWR };
        self.open(&self.register_name, flags)
    }

    fn has_its_name(&self, register: &File) -> bool {
        let there = statat(&self.directory, &*self.register_name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = fstat(register);
        matches!((there, ours), (Ok(there), Ok(ours))
            if (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev))
    }

    fn lock(&self, register: &File, bytes: Range<u64>) -> io::Result<bool> {
        loop {
            match try_lock_range(register, bytes.clone()) {
                Ok(()) => return Ok(true),
                Err(error) => match Errno::from_io_error(&error) {
                    // fcntl_locking(2) leaves it open which of the two it says.
                    Some(Errno::AGAIN | Errno::ACCESS) => return Ok(false),
                    Some(Errno::INTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn unlock(&self, register: &File, bytes: Range<u64>) {
        let _ = unlock_range(register, bytes);
    }

    fn read(&self, mut register: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
        register.sync_data()?;
        let mut bytes = Vec::new();
        register.seek(SeekFrom::Start(0))?;
        register.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, mut register: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        register.seek(SeekFrom::Start(at))?;
        let end = at + bytes.len() as u64;
        let written = register.write_all(bytes).and_then(|()| {
            if register.metadata()?.len() > end {
                // A header that is cut shorter before it is there would be the old one, alone.
                register.sync_data()?;
                register.set_len(end)?;
            }
            register.sync_data()
        });
        if written.is_err() && at > 0 {
            // Nobody is to read what may not be durable.
            let _ = register.set_len(at);
        }
        written
    }

    fn make_temporary(&self, size_bytes: u64) -> io::Result<u64> {
        self.remove(&self.shared_name);
        let file = self.open(&self.shared_name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        file.set_len(size_bytes)?;
        file.sync_all()?;
        Ok(fstat(&file)?.st_ino)
    }

    fn named(&self) -> Option<(u64, i64, u32)> {
        let there = statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
        let size_bytes = u64::try_from(there.st_size).ok()?;
        let mtime_ns = u32::try_from(there.st_mtime_nsec).ok()?;
        is_file.then_some((size_bytes, there.st_mtime, mtime_ns))
    }

    fn temporary(&self) -> Option<(u64, u64)> {
        let there = statat(&self.directory, &*self.shared_name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
        is_file.then_some((there.st_ino, u64::try_from(there.st_size).ok()?))
    }

    fn give_attributes(&self) -> io::Result<()> {
        let file = self.open_temporary()?;
        if let Some((offer, rules)) = &self.given {
            rules.attributes.apply_to(&file, None, offer, has_time(offer))?;
        }
        file.sync_all()
    }

    fn rename(&self) -> io::Result<()> {
        Ok(renameat(&self.directory, &*self.shared_name, &self.directory, &*self.name)?)
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn remove_journal(&self, range_begin: u64) -> io::Result<()> {
        let journal = range_journal_name(&self.name, range_begin);
        match unlinkat(&self.directory, &*journal, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_temporary(&self) {
        self.remove(&self.shared_name);
    }

    fn remove_register(&self) {
        self.remove(&self.register_name);
    }

    fn number(&self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(random_bytes()?))
    }

    fn clock(&self) -> Clock {
        (self.clock)()
    }

    fn pause(&self) {
        thread::sleep(super::POLL);
    }
}
