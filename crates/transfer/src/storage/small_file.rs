//! Small files in directories that are hidden until all of them is there.
//!
//! Such a file is made under its own name, written and closed: nobody sees it before the end, so
//! that it needs no temporary, no lock and no rename.

use super::{
    attributes::{Attributes, attributes_fault, has_time, umask},
    root::{Links, Root},
};
use crate::error::io_fault;
use haul_protocol::message::{Fault, FileOffer, Side};
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, unlinkat};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

/// Makes a file with all of its bytes, its mode and its time. `is_there`: this session made it
/// before. False if something has its name.
pub(super) fn write(
    root: &Root,
    name: &[u8],
    offer: &FileOffer,
    attributes: &Attributes,
    bytes: &[u8],
    is_there: bool,
) -> Result<bool, Fault> {
    let mode = attributes.mode_of(offer);
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    if is_there {
        // Removed, and not opened: its mode may forbid to write to it.
        let _ = root.in_parent(name, remove);
    }
    let create = |directory: &OwnedFd, last: &[u8]| {
        openat(directory, last, flags, Mode::from_raw_mode(mode))
    };
    let file = match root.in_parent(name, create) {
        // On a file system that takes two names for one, or of somebody who knows the directory.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        opened => File::from(
            opened.map_err(|error| io_fault(Side::Target, name, "cannot be created", &error))?,
        ),
    };
    let filled = fill(file, name, offer, attributes, bytes, mode & !umask());
    if filled.is_err() {
        let _ = root.in_parent(name, remove);
    }
    filled.map(|()| true)
}

fn remove(directory: &OwnedFd, last: &[u8]) -> rustix::io::Result<()> {
    unlinkat(directory, last, AtFlags::empty())
}

fn fill(
    mut file: File,
    name: &[u8],
    offer: &FileOffer,
    attributes: &Attributes,
    bytes: &[u8],
    has_mode: u32,
) -> Result<(), Fault> {
    file.write_all(bytes)
        .map_err(|error| io_fault(Side::Target, name, "cannot be written", &error))?;
    attributes
        .apply_to(&file, Some(has_mode), offer, has_time(offer))
        .map_err(|error| attributes_fault(name, &error))
}

/// Syncs a file that was closed. A write of it that failed is told to the one who asks first.
pub(super) fn sync(root: &Root, name: &[u8]) -> io::Result<()> {
    let file = root.open_beneath(name, OFlags::RDONLY, Mode::empty(), Links::Refuse)?;
    Ok(fsync(file)?)
}
