//! Check for extra files (`haul verify --extra`): those below a directory without a line. A
//! manifest says which have one.
//!
//! Both lists are sorted in bounded memory and compared. haul's own temporaries and the manifest
//! itself do not count; directories, links and special files have no lines, so neither do they.

use super::{Lines, VerifiedFile, VerifyStatus};
use crate::{
    Interrupt,
    manifest::sorted_records::SortedRecords,
    name::Name,
    storage::{
        root::Root,
        tree::Tree,
        walk::{Listed, Top, Walk, WalkOptions},
    },
};
use haul_protocol::message::FileKind;
use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path},
    sync::atomic::Ordering,
};

/// Mark of a name that is in the manifest; [`FOUND`] marks one that was found, with its size
/// behind.
const LISTED: u8 = 0;
const FOUND: u8 = 1;

/// Tells of each file without a line, and of what could not be listed.
pub fn find(
    manifest: &Path,
    directory: &Path,
    interrupt: &Interrupt,
    tell: &mut dyn FnMut(VerifiedFile),
) -> io::Result<()> {
    let mut names = SortedRecords::new(&std::env::temp_dir())?;
    let absolute = fs::canonicalize(directory)?;
    let mut lines = Lines::open(manifest)?;
    while let Some(line) = lines.next_line()? {
        let line = line.map_err(io::Error::other)?;
        if let Some(name) = below(&line.name, &absolute) {
            names.add(&name, &[LISTED])?;
        }
    }
    let itself = fs::metadata(manifest).map(|found| (found.ino(), found.dev()))?;
    let root = Root::open(directory)?;
    let all = Top::Tree(Tree { root, path: Vec::new(), name: Vec::new() });
    let walk = Walk::new([all], WalkOptions::default());
    for entry in walk {
        if interrupt.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match entry {
            Listed::Entry(entry) => {
                let offer = entry.offer;
                let is_file = offer.kind == FileKind::Regular;
                if is_file && (offer.inode, offer.device) != itself {
                    let found = [&[FOUND], &offer.size_bytes.to_le_bytes()[..]].concat();
                    names.add(&offer.name, &found)?;
                }
            }
            // A FIFO, socket or device: no line could be its.
            Listed::LeftOut(_) => {}
            Listed::Failed(fault) => {
                let (path, why) = (Name(fault.path), format!("{}: {}", fault.what, fault.found));
                tell(VerifiedFile { path, status: VerifyStatus::Unreadable, bytes: 0, why });
            }
        }
    }
    let mut listed = None;
    for record in names.into_sorted()? {
        let (name, value) = record?;
        match value.split_first() {
            Some((&FOUND, size)) if listed.as_ref() != Some(&name) => {
                let bytes = size.try_into().map_or(0, u64::from_le_bytes);
                let status = VerifyStatus::Extra;
                tell(VerifiedFile { path: Name(name), status, bytes, why: String::new() });
            }
            // Listed comes first: it was added before.
            Some((&LISTED, _)) => listed = Some(name),
            _ => {}
        }
    }
    Ok(())
}

/// Name of a manifest as it is found below the directory; `None` when it is elsewhere.
fn below(name: &[u8], directory: &Path) -> Option<Vec<u8>> {
    let path = crate::storage::root::os_path(name);
    let path = if path.is_absolute() { path.strip_prefix(directory).ok()? } else { path };
    let mut parts: Vec<&[u8]> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.as_bytes()),
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_were_given_to_b3sum() {
        let directory = Path::new("/data/run7");
        for (name, expected) in [
            ("a/b", Some("a/b")),
            ("./a//b", Some("a/b")),
            ("c/../a/b", Some("a/b")),
            ("/data/run7/a/b", Some("a/b")),
            ("/data/run8/a", None),
            ("../a", None),
        ] {
            let found = below(name.as_bytes(), directory);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name}");
        }
    }
}
