//! Directory that a token opens. It is known by its path and its inode, so that the token opens no
//! other.
//!
//! A directory that was removed and made anew, or another disk at the same path, is another: its
//! inode, its time of birth or its file system differ. The number of the device counts only where a
//! file system tells neither time nor number of its own: devices are numbered anew at each boot.

use crate::{error::problem, problem::Problem};
use rustix::fs::{AtFlags, StatxFlags, fstatvfs, statx};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

/// The root that a server serves, or a token opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ServedRoot {
    /// The place `null:`, which throws everything away.
    Null,
    /// A directory, and everything below it.
    Directory {
        /// Canonical path; bytes that are no UTF-8 stand as `\xff`, and a backslash as `\\`.
        path: String,
        /// Identity of the directory; `None` in a token of an older state directory until its
        /// directory is served again.
        #[serde(default)]
        inode: Option<InodeIdentity>,
    },
    /// A token of an older state directory that served several: nobody knows which it was for.
    Unknown,
}

/// Identity of a directory among all that may have its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeIdentity {
    inode: u64,
    /// Birth of the inode in seconds and nanoseconds since 1970; 0 where the file system does not
    /// tell.
    born: (i64, u32),
    /// Number of the file system; 0 where it has none of its own.
    file_system: u64,
    device: (u32, u32),
}

const UNBORN: (i64, u32) = (0, 0);

impl InodeIdentity {
    fn of(directory: impl AsFd) -> io::Result<Self> {
        let flags = StatxFlags::INO | StatxFlags::BTIME;
        let stat = statx(&directory, "", AtFlags::EMPTY_PATH, flags)?;
        let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
        Ok(Self {
            inode: stat.stx_ino,
            born: if is_told { born } else { UNBORN },
            file_system: fstatvfs(&directory)?.f_fsid,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
        })
    }

    fn is(&self, other: &Self) -> bool {
        let both = |one: bool, other: bool| one && other;
        let numbered = both(self.file_system != 0, other.file_system != 0);
        self.inode == other.inode
            && if both(self.born != UNBORN, other.born != UNBORN) {
                // The root of an ext4 is born in a whole second, by mkfs(8), and so may others be.
                let is_sure = self.born.1 != 0 || !numbered;
                self.born == other.born && (is_sure || self.file_system == other.file_system)
            } else if numbered {
                self.file_system == other.file_system
            } else {
                self.device == other.device
            }
    }
}

/// Whether a token is for what a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    Here,
    Elsewhere,
    /// The token is for the directory that had the path before.
    Replaced,
    /// The token is for a directory that nobody knows.
    Nowhere,
}

impl ServedRoot {
    /// The directory at a path, as it is now.
    ///
    /// # Errors
    /// If it is no directory that can be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        if !directory.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Self::of(directory, path)
    }

    /// Root that is an open directory with this path.
    ///
    /// # Errors
    /// If the file system does not say what it is.
    pub(crate) fn of(directory: impl AsFd, path: &Path) -> io::Result<Self> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let inode = Some(InodeIdentity::of(directory)?);
        Ok(Self::Directory { path: shown(path.as_os_str().as_bytes()), inode })
    }

    /// Reads the root that a user names: a directory, or `null:`.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn named(name: &Path) -> Result<Self, Problem> {
        if name.as_os_str() == "null:" {
            return Ok(Self::Null);
        }
        Self::at(name).map_err(|error| {
            let what = format!("cannot make a token for {}", name.display());
            let needs = "a directory that is served, or will be, on this machine";
            problem(&what, needs, &error.to_string(), "name what `haul serve` is given, by --for")
        })
    }

    /// Says what is at `path` in place of this directory: a server that goes on would put files
    /// where nobody finds them, as after `umount -l` or `mv`. `None` where it is there, and where
    /// that cannot be looked at.
    #[must_use]
    pub(crate) fn in_its_place(&self, path: &Path) -> Option<&'static str> {
        let Self::Directory { inode: Some(inode), .. } = self else { return None };
        match Self::at(path) {
            Ok(Self::Directory { inode: Some(now), .. }) if !inode.is(&now) => {
                Some("another directory")
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("nothing"),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Some("something that is no directory")
            }
            _ => None,
        }
    }

    /// Path as it is shown and stored; `None` where nobody knows it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Null => Some("null:"),
            Self::Directory { path, .. } => Some(path),
            Self::Unknown => None,
        }
    }

    /// Tells whether a token for this root is for `served`.
    #[must_use]
    pub(crate) fn belongs_to(&self, served: &Self) -> Belongs {
        match (self, served) {
            (Self::Null, Self::Null) => Belongs::Here,
            (
                Self::Directory { path, inode },
                Self::Directory { path: served_path, inode: served_inode },
            ) if path == served_path => match (inode, served_inode) {
                (Some(inode), Some(served)) if inode.is(served) => Belongs::Here,
                (None, _) => Belongs::Nowhere,
                _ => Belongs::Replaced,
            },
            (Self::Unknown, _) => Belongs::Nowhere,
            _ => Belongs::Elsewhere,
        }
    }
}

/// Text of a path, different for any two paths.
fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', r"\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!(r"\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, fs};

    #[test]
    fn a_directory_is_itself_by_every_way_to_it_and_no_other_is() {
        let place = tempfile::tempdir().unwrap();
        let (here, other) = (place.path().join("a"), place.path().join("b"));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&here, place.path().join("link")).unwrap();
        let root = |path: &Path| ServedRoot::at(path).unwrap();
        let first = root(&here);
        assert_eq!(root(&here.join(".")).belongs_to(&first), Belongs::Here);
        assert_eq!(root(&place.path().join("link")).belongs_to(&first), Belongs::Here);
        for elsewhere in [root(&other), ServedRoot::Null] {
            assert_eq!(first.belongs_to(&elsewhere), Belongs::Elsewhere);
            assert_eq!(elsewhere.belongs_to(&first), Belongs::Elsewhere);
        }
        assert_eq!(ServedRoot::Null.belongs_to(&ServedRoot::Null), Belongs::Here);
        assert_eq!(ServedRoot::Unknown.belongs_to(&ServedRoot::Unknown), Belongs::Nowhere);
        // It was moved away and another took its path; then it was removed and made anew.
        fs::rename(&here, place.path().join("moved")).unwrap();
        fs::rename(&other, &here).unwrap();
        assert_eq!(first.belongs_to(&root(&here)), Belongs::Replaced);
        let second = root(&here);
        fs::remove_dir(&here).unwrap();
        fs::create_dir(&here).unwrap();
        assert_eq!(second.belongs_to(&root(&here)), Belongs::Replaced);
        assert!(ServedRoot::at(&place.path().join("none")).is_err());
        fs::write(place.path().join("file"), b"").unwrap();
        assert!(ServedRoot::at(&place.path().join("file")).is_err());
    }

    #[test]
    fn a_device_may_get_another_number_where_the_birth_or_the_file_system_is_known() {
        let known = InodeIdentity { inode: 2, born: (7, 1), file_system: 9, device: (8, 1) };
        let moved = InodeIdentity { device: (8, 17), ..known };
        assert!(known.is(&moved));
        assert!(!known.is(&InodeIdentity { born: (7, 2), ..known }));
        assert!(known.is(&InodeIdentity { file_system: 10, ..known }));
        // Two disks that were made in the same second.
        let made = InodeIdentity { born: (7, 0), ..known };
        assert!(made.is(&InodeIdentity { device: (8, 17), ..made }));
        assert!(!made.is(&InodeIdentity { file_system: 10, ..made }));
        let unborn = InodeIdentity { born: UNBORN, ..known };
        assert!(unborn.is(&InodeIdentity { born: UNBORN, ..moved }) && unborn.is(&moved));
        assert!(!unborn.is(&InodeIdentity { file_system: 10, ..unborn }));
        let bare = InodeIdentity { file_system: 0, ..unborn };
        assert!(bare.is(&bare) && !bare.is(&InodeIdentity { device: (8, 17), ..bare }));
        assert!(!known.is(&InodeIdentity { inode: 3, ..known }));
    }

    #[test]
    fn no_two_paths_are_stored_as_one() {
        let paths: [&[u8]; 5] = [b"/a\xff", br"/a\xff", br"/a\\xff", b"/a", b"/a\xc3\xa4"];
        let texts: std::collections::BTreeSet<String> =
            paths.iter().map(|path| shown(path)).collect();
        assert_eq!(texts.len(), paths.len());
        assert_eq!(shown(OsStr::new("/data/ä b").as_bytes()), "/data/ä b");
    }
}
