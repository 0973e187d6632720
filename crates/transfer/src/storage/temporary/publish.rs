//! Publishing of a temporary: the final name is given to a file that is whole and synced.
//!
//! The name is given by rename(2), or by link(2) where the temporary has none. The journal is
//! removed before, while the temporary is still this session's.

use super::{Named, Part, Published};
use rustix::{
    fs::{Advice, AtFlags, CWD, fadvise, linkat, renameat, unlinkat},
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
};

impl Part {
    /// Gives the file its final name. It is to be closed then.
    pub fn publish(&mut self) -> io::Result<Published> {
        if self.claim.is_some() {
            if let Some(earlier) = self.finish_range()? {
                return Ok(Published::Awaits(Box::new(earlier)));
            }
            // Its journal is of use until the file has its name: it tells what to read back.
            self.journal = None;
            let (directory, device) = (self.directory.clone(), self.device());
            return Ok(Published::Named(Named { directory, device, discarded: false }));
        }
        self.check()?;
        if self.pass.is_some() {
            // Of a tree nobody reads all at once: its memory is for the files that come next, which
            // is faster than to take other pages for each (and much so where a host lends them).
            let _ = fadvise(self.file.file(), 0, None, Advice::DontNeed);
        }
        // It has nothing more to say, and as long as the temporary is ours so is the journal.
        if self.journal.take().is_some() {
            let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
        }
        if self.discarded {
            // It goes with its last descriptor.
        } else if self.nameless {
            self.link()?;
        } else {
            renameat(&self.directory, &*self.part_name, &self.directory, &*self.final_name)?;
        }
        let (directory, device) = (self.directory.clone(), self.device());
        Ok(Published::Named(Named { directory, device, discarded: self.discarded }))
    }

    /// Gives a nameless file its final name, in the place of whatever has it.
    fn link(&self) -> io::Result<()> {
        match link_to(self.file.file(), &self.directory, &self.final_name) {
            Err(Errno::EXIST) => {
                let linked = link_to(self.file.file(), &self.directory, &self.part_name);
                if linked == Err(Errno::EXIST) {
                    let kind = io::ErrorKind::AlreadyExists;
                    return Err(io::Error::new(kind, "another transfer is writing to it"));
                }
                linked?;
                let renamed =
                    renameat(&self.directory, &*self.part_name, &self.directory, &*self.final_name);
                if renamed.is_err() {
                    let _ = unlinkat(&self.directory, &*self.part_name, AtFlags::empty());
                }
                Ok(renamed?)
            }
            linked => Ok(linked?),
        }
    }
}

/// Enters an open file in a directory.
fn link_to(file: &File, directory: &impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    // Not everybody may link by descriptor (linkat(2)); by way of /proc the owner may.
    match linkat(file, "", directory, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}
