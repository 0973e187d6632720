//! Mode of directories whose contents are sent. A target that is made for them is no wider.
//!
//! `x` brings its mode by its own offer. The contents of `x/` have none for the directory itself,
//! so that one travels when the session is opened. A directory that was there keeps its mode.

use super::{
    attributes::umask,
    root::{Links, Root},
};
use crate::{
    error::io_fault, options::SourceSpec, source_name::name_of_source,
    storage::target_place::TargetPlace,
};
use haul_protocol::message::{Fault, FileOffer, Side};
use rustix::{
    fs::{FileType, Mode, OFlags, fchmod, fstat, fsync},
    io::Errno,
};
use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    sync::Arc,
};

/// The mode of a directory that is made before anything told the mode of its contents.
pub const BEFORE: u32 = 0o700;

/// Mode of mkdir(1), before the umask.
pub const USUAL: u32 = 0o777;

/// The narrowest st_mode of the directories whose contents a client sends; 0: there are none.
#[must_use]
pub fn of_named(sources: &[SourceSpec]) -> u32 {
    narrowest(sources.iter().filter_map(|source| match source {
        SourceSpec::Path(path) if name_of_source(path.as_bytes()).is_none() => {
            std::fs::metadata(path).ok().map(|there| there.mode())
        }
        _ => None,
    }))
}

/// The narrowest st_mode of the directories whose contents a client asks for; 0: there are none.
#[must_use]
pub fn of_asked(root: Option<&Arc<Root>>, paths: &[Vec<u8>]) -> u32 {
    let Some(root) = root else { return 0 };
    let contents = paths.iter().filter(|path| name_of_source(path).is_none());
    narrowest(contents.filter_map(|path| {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        root.stat(path, Links::Follow).ok().map(|there| there.st_mode)
    }))
}

/// Bits that all these modes have; the kind is among them, so that a directory of mode 000 is not
/// taken for none.
fn narrowest(modes: impl Iterator<Item = u32>) -> u32 {
    modes.reduce(|narrow, mode| narrow & mode).unwrap_or(0)
}

/// Gives the target's directory this mode, if it was made for this transfer. Its owner may always
/// go into it and write: the transfer does so until its end.
///
/// # Errors
/// If it cannot be opened or synced. A file system without modes keeps its own.
pub fn give(place: &TargetPlace, st_mode: u32) -> Result<(), Fault> {
    let TargetPlace::Below { rules, .. } = place else { return Ok(()) };
    if FileType::from_raw_mode(st_mode) != FileType::Directory {
        return Ok(());
    }
    let offer = FileOffer { mode: st_mode, ..FileOffer::default() };
    set(place, rules.attributes.mode_of(&offer) | BEFORE)
}

/// Gives the mode to a directory that was made with [`BEFORE`]: the sender may be too old to tell a
/// mode.
///
/// # Errors
/// Those of [`give`].
pub fn give_after(place: &TargetPlace, st_mode: u32) -> Result<(), Fault> {
    match FileType::from_raw_mode(st_mode) {
        FileType::Directory => give(place, st_mode),
        _ => set(place, USUAL & !umask()),
    }
}

fn set(place: &TargetPlace, mode: u32) -> Result<(), Fault> {
    let TargetPlace::Below { root, base, rename: None, is_new: true, .. } = place else {
        return Ok(());
    };
    let given = || -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = root.open_beneath(base, flags, Mode::empty(), Links::Refuse)?;
        // One below a directory of a group is of that group too.
        let of_group = fstat(&directory)?.st_mode & Mode::SGID.bits();
        match fchmod(&directory, Mode::from_raw_mode(mode | of_group)) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            changed => Ok(changed.and_then(|()| fsync(&directory))?),
        }
    };
    given().map_err(|error| {
        io_fault(Side::Target, base, "the new directory cannot be given its mode", &error)
    })
}
