//! Watch of directories: which names in them appeared or were written to.
//!
//! By inotify(7), which tells of this host's own changes, and may lose some when many come at
//! once: what it says is a hint that makes things quick, and looking through the trees again is
//! what finds everything. Not every file system has it, and how many directories a user may watch
//! is limited (/proc/sys/fs/inotify/max_user_watches).

use super::{
    hidden_names::is_hidden,
    root::{Links, join},
};
use crate::storage::tree::Tree;
use haul_host::{FileSystem, FsKind};
use rustix::{
    fs::{
        Mode, OFlags,
        inotify::{self, ReadFlags, WatchFlags},
    },
    io::Errno,
};
use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// Most directories that are watched; changes in others are found by looking through the trees.
const DIRECTORIES_MAX: usize = 1 << 16;
/// Interval after which the trees are looked through anyway.
const RESCAN_EVERY: Duration = Duration::from_secs(60);
/// Interval after which the trees are looked through where changes may go unheard.
const RESCAN_DEAF_EVERY: Duration = Duration::from_secs(3);

/// A change that is to be looked at.
#[derive(Clone, Debug)]
pub enum Change {
    /// One name in a directory.
    Name {
        tree: Tree,
        /// Whether a rule took the directory and all below.
        included: bool,
        /// Whether the writer closed the file, or it was put there whole.
        is_complete: bool,
    },
    /// Every name may have changed: it is not known which did.
    Everything,
}

impl Change {
    /// Whether the change is of a name in this tree.
    #[must_use]
    pub fn is_of(&self, source: &Tree) -> bool {
        matches!(self, Self::Name { tree, .. } if Arc::ptr_eq(&tree.root, &source.root))
    }
}

#[derive(Debug)]
struct Directory {
    tree: Tree,
    included: bool,
    /// Whether the directory was offered itself, as were those above it.
    is_offered: bool,
}

#[derive(Debug)]
pub struct DirectoryWatch {
    notify: Option<OwnedFd>,
    directories: BTreeMap<i32, Directory>,
    /// Reason why some change may go unheard.
    deaf: Option<String>,
    is_told: bool,
}

impl Default for DirectoryWatch {
    fn default() -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let notify = inotify::init(flags);
        let deaf = notify.as_ref().err().map(ToString::to_string);
        Self { notify: notify.ok(), directories: BTreeMap::new(), deaf, is_told: false }
    }
}

impl DirectoryWatch {
    /// Watches a directory from now on. Call it before the directory is listed, so that nothing
    /// falls between the two.
    pub fn add(&mut self, tree: &Tree, included: bool, is_offered: bool) {
        let Some(notify) = &self.notify else { return };
        if self.directories.len() >= DIRECTORIES_MAX {
            self.deaf.get_or_insert_with(|| "there are too many directories".into());
            return;
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let added = open(tree).and_then(|directory| {
            if !tells_all(&directory) {
                self.deaf.get_or_insert_with(|| "other hosts may write there".into());
            }
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            Ok(inotify::add_watch(notify, path, flags)?)
        });
        match added {
            Ok(watch) => {
                let tree = tree.clone();
                self.directories.insert(watch, Directory { tree, included, is_offered });
            }
            // Gone already: its removal is nothing to be told of.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.deaf.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Takes what changed since, at most about `names_max` names; the rest comes the next time.
    pub fn take(&mut self, names_max: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        let Some(notify) = &self.notify else { return changes };
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(notify, &mut buffer);
        while changes.len() < names_max {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let told = event.events();
            if told.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change::Everything);
            }
            if told.contains(ReadFlags::IGNORED) {
                self.directories.remove(&event.wd());
            }
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            let directory = self.directories.get(&event.wd());
            let (Some(name), Some(directory)) = (name, directory) else { continue };
            if is_hidden(name) {
                continue;
            }
            changes.push(if directory.is_offered {
                let Tree { root, path, name: shown } = &directory.tree;
                let (path, shown) = (join(path, name), join(shown, name));
                let tree = Tree { root: root.clone(), path, name: shown };
                let is_complete = told.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO);
                Change::Name { tree, included: directory.included, is_complete }
            } else {
                Change::Everything
            });
        }
        // The reader may have taken more events than were asked for: they must not be lost.
        while changes.len() >= names_max && !reader.is_buffer_empty() {
            match reader.next() {
                Ok(_) => changes.push(Change::Everything),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        changes
    }

    /// Ends the watch of all directories of this tree.
    pub fn forget(&mut self, tree: &Tree) {
        let Some(notify) = &self.notify else { return };
        self.directories.retain(|watch, directory| {
            let is_of = Arc::ptr_eq(&directory.tree.root, &tree.root);
            if is_of {
                // It may have gone with its directory.
                let _ = inotify::remove_watch(notify, *watch);
            }
            !is_of
        });
    }

    /// Interval after which the trees are looked through again, whatever is heard.
    #[must_use]
    pub fn rescan_every(&self) -> Duration {
        if self.deaf.is_some() { RESCAN_DEAF_EVERY } else { RESCAN_EVERY }
    }

    /// Gives the reason why changes may go unheard, once.
    pub fn take_deafness(&mut self) -> Option<String> {
        let why = self.deaf.clone().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(why)
    }
}

fn open(tree: &Tree) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    tree.root.open_beneath(&tree.path, flags, Mode::empty(), Links::Refuse)
}

/// Whether all writes to a file system are told of: those of this host are, and on other file
/// systems others may write too.
fn tells_all(directory: &OwnedFd) -> bool {
    let kind = FileSystem::of(directory).map(|system| system.kind);
    matches!(
        kind,
        Ok(FsKind::Ext
            | FsKind::Xfs
            | FsKind::Btrfs
            | FsKind::F2fs
            | FsKind::Tmpfs
            | FsKind::Zfs
            | FsKind::Overlay)
    )
}
