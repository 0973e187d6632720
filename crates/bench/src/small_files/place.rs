//! File systems that small files are moved on: the directory's own, and fresh ones in image files.

use crate::{
    error::Lack,
    mounts::{Blocks, ImageMount},
    requests::{BenchSmallFiles, SmallFilesPlace},
    workshop::{ROOM_BYTES, Workshop},
};
use anyhow::{Context, Result};
use haul_host::{FileSystem, FsKind};
use rustix::fs::{major, minor, stat};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Bytes that a file system of an image may take for itself, with its journal.
const IMAGE_ROOM_BYTES: u64 = 512 << 20;
/// Trees that an image has room for: the source, the target, and one that was just removed.
const IMAGE_TREES: u64 = 3;
/// Bytes of an image for each file at least: ext4 makes an inode for as many (mke2fs.conf(5)).
const FILE_ROOM_BYTES: u64 = 16 << 10;

/// A directory on a file system, gone when dropped.
#[derive(Debug)]
pub struct Place {
    /// The file system in words, as `ext4 with a journal`.
    pub file_system: String,
    pub directory: PathBuf,
    _mount: Option<ImageMount>,
}

impl SmallFilesPlace {
    /// The name of the place where it could not be made.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "the directory's own",
            Self::Ext4 => "ext4 with a journal",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn image_kind(self) -> Option<&'static str> {
        match self {
            Self::Own => None,
            Self::Ext4 => Some("ext4"),
            Self::Xfs => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
        }
    }
}

impl Place {
    /// Makes the place in the workshop.
    pub fn open(
        wanted: SmallFilesPlace,
        plan: &BenchSmallFiles,
        workshop: &Workshop,
    ) -> Result<Self, Lack> {
        let file_bytes = plan.file_bytes.max(FILE_ROOM_BYTES);
        let tree_bytes = plan.files.saturating_mul(file_bytes);
        let free_bytes = workshop.free_bytes().map_err(Lack::Figure)?;
        let (directory, mount) = match wanted.image_kind() {
            None => {
                let needs_bytes = tree_bytes.saturating_mul(2).saturating_add(ROOM_BYTES);
                if free_bytes < needs_bytes {
                    return Err(Lack::Room {
                        needs_mib: needs_bytes >> 20,
                        free_mib: free_bytes >> 20,
                    });
                }
                let directory = workshop.path().join("own");
                fs::create_dir(&directory)?;
                (directory, None)
            }
            Some(kind) => {
                if !rustix::process::geteuid().is_root() {
                    return Err(Lack::Root);
                }
                let size_bytes = tree_bytes.saturating_mul(IMAGE_TREES);
                let size_bytes = size_bytes.saturating_add(IMAGE_ROOM_BYTES);
                let needs_bytes = size_bytes.saturating_add(ROOM_BYTES);
                if free_bytes < needs_bytes {
                    return Err(Lack::ImageRoom {
                        needs_mib: needs_bytes >> 20,
                        free_mib: free_bytes >> 20,
                    });
                }
                let (path, written) = (workshop.path(), Blocks::Written);
                let mount = ImageMount::with_blocks(path, kind, size_bytes, written)?;
                (mount.path().to_owned(), Some(mount))
            }
        };
        let file_system = name_of(&directory).map_err(Lack::Figure)?;
        let is_image = if mount.is_some() { "" } else { ", the directory's own" };
        let file_system = format!("{file_system}{is_image}");
        Ok(Self { file_system, directory, _mount: mount })
    }

    /// Writes all that the file system has back to its disk.
    pub fn sync(&self) -> Result<()> {
        let directory = File::open(&self.directory).context("cannot open the place")?;
        rustix::fs::syncfs(&directory).context("cannot sync the file system")
    }
}

/// The file system of a directory; an ext4 is said to have a journal or none, as few users have
/// one without.
fn name_of(directory: &Path) -> Result<String> {
    let kind = File::open(directory).and_then(FileSystem::of).context("no file system told")?.kind;
    let device = stat(directory).context("stat")?.st_dev;
    Ok(match (kind, journal(Path::new("/"), major(device), minor(device))) {
        (FsKind::Ext, Some(true)) => "ext4 with a journal".to_owned(),
        (FsKind::Ext, Some(false)) => "ext4 without a journal".to_owned(),
        _ => kind.to_string(),
    })
}

/// Whether an ext4 on this device has a journal: it then has a directory of statistics below
/// /proc/fs/jbd2. `None` where nothing is known of the device.
fn journal(root: &Path, major: u32, minor: u32) -> Option<bool> {
    let device = fs::read_link(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    let device = device.file_name()?.to_str()?.to_owned();
    let journals = fs::read_dir(root.join("proc/fs/jbd2")).into_iter().flatten().flatten();
    let prefix = format!("{device}-");
    if journals.map(|entry| entry.file_name()).any(|name| {
        // The number of the journal's inode follows.
        name.to_str().is_some_and(|name| name.starts_with(&prefix))
    }) {
        return Some(true);
    }
    root.join("proc/fs/ext4").join(device).exists().then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_ext4_has_a_journal_or_none_or_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(root.path().join(path)).unwrap();
        make("sys/dev/block");
        for (numbers, name) in [("8:1", "sda1"), ("8:10", "sda10"), ("7:0", "loop0")] {
            let device = format!("../../devices/block/{name}");
            symlink(device, root.path().join("sys/dev/block").join(numbers)).unwrap();
        }
        make("proc/fs/jbd2/sda10-8");
        make("proc/fs/ext4/sda10");
        make("proc/fs/ext4/sda1");
        assert_eq!(journal(root.path(), 8, 10), Some(true));
        assert_eq!(journal(root.path(), 8, 1), Some(false));
        assert_eq!(journal(root.path(), 7, 0), None);
        assert_eq!(journal(root.path(), 9, 9), None);
    }
}
