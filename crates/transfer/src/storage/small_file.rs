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
use rustix::{
    fs::{AtFlags, Mode, OFlags, fsync, openat, unlinkat},
    io::{Errno, ReadWriteFlags, preadv2},
};
use std::{
    fs::File,
    io::{self, IoSliceMut, Write},
    os::fd::OwnedFd,
};

/// Bytes of a look whether a file is in memory.
const LOOK_BYTES: usize = 16 << 10;

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

/// Syncs a file that was closed and has `len_bytes`. A write of it that failed is told to the one
/// who asks first, by the inode in memory: one that had to leave it takes the failure along (seen
/// on ext4, Linux 6.18). So a file is believed only with all of its bytes in memory.
pub(super) fn sync(root: &Root, name: &[u8], len_bytes: u64) -> io::Result<()> {
    let file = root.open_beneath(name, OFlags::RDONLY, Mode::empty(), Links::Refuse)?;
    fsync(&file)?;
    if is_in_memory(&file, len_bytes)? {
        return Ok(());
    }
    Err(io::Error::other("a write to its disk failed, and it left memory before it was asked"))
}

fn is_in_memory(file: &OwnedFd, len_bytes: u64) -> io::Result<bool> {
    let (mut buffer, mut at) = ([0; LOOK_BYTES], 0);
    while at < len_bytes {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        match preadv2(file, &mut parts, at, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(false),
            Ok(got) => at += got as u64,
            Err(Errno::INTR) => {}
            // A tmpfs of older kernels, which has no disk.
            Err(Errno::OPNOTSUPP) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::FileKind;
    use std::{fs, os::unix::fs::MetadataExt};

    #[test]
    fn a_file_is_made_once_and_made_anew_only_by_the_session_that_made_it() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::open(place.path()).unwrap();
        let path = place.path().join("x");
        let attributes = Attributes::new(crate::file_options::Preserve::default());
        let make = |mode, bytes: &[u8], is_there| {
            let name = b"x".to_vec();
            let offer = FileOffer { name, kind: FileKind::Regular, mode, ..FileOffer::default() };
            write(&root, b"x", &offer, &attributes, bytes, is_there).unwrap()
        };
        for (mode, bytes, is_there, is_made) in [
            (0o666, "first", false, true),
            (0o444, "of somebody else", false, false),
            (0o444, "again", true, true),
            // Of these bits the file is made with none.
            (umask(), "as the umask", true, true),
            (0o640, "and again, longer", true, true),
        ] {
            assert_eq!(make(mode, bytes.as_bytes(), is_there), is_made, "{bytes}");
            if is_made {
                assert_eq!(fs::read(&path).unwrap(), bytes.as_bytes());
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{bytes}");
            }
        }
        let len_bytes = fs::metadata(&path).unwrap().len();
        let gone = write(&root, b"gone/x", &FileOffer::default(), &attributes, b"", false);
        assert_eq!(gone.unwrap_err().what, "cannot be created");
        sync(&root, b"x", len_bytes).unwrap();
        assert!(sync(&root, b"x", len_bytes + 1).is_err(), "a byte of it is not in memory");
        assert_eq!(sync(&root, b"y", 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::rename(&path, place.path().join("y")).unwrap();
        std::os::unix::fs::symlink("y", &path).unwrap();
        assert!(sync(&root, b"x", len_bytes).is_err() && !make(0o600, b"by a link", false));
        assert_eq!(fs::read(place.path().join("y")).unwrap(), b"and again, longer");
    }
}
