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
    fs::inotify::{self, ReadFlags, WatchFlags},
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
        let opened = tree.root.open_directory(&tree.path, Links::Refuse);
        let added = opened.and_then(|directory| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::root::Root;
    use std::{fs, path::Path};

    fn tree_of(directory: &Path) -> Tree {
        let root = Root::open(directory).unwrap();
        Tree { root, path: Vec::new(), name: b"t".to_vec() }
    }

    /// Each change as its path, its name, and whether the file is complete.
    fn told(changes: Vec<Change>) -> Vec<String> {
        let tell = |change| match change {
            Change::Name { tree, is_complete, .. } => {
                let [path, name] = [tree.path, tree.name].map(|it| String::from_utf8(it).unwrap());
                format!("{path} {name}{}", if is_complete { " complete" } else { "" })
            }
            Change::Everything => "everything".into(),
        };
        changes.into_iter().map(tell).collect()
    }

    #[test]
    fn names_are_told_when_they_appear_and_when_they_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree_of(directory.path());
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("d")).unwrap();
        let mut watch = DirectoryWatch::default();
        watch.add(&tree, true, true);
        watch.add(&tree.below(b"d"), false, true);
        assert!(watch.take(9).is_empty());
        let file = fs::File::create(at("x")).unwrap();
        assert_eq!(told(watch.take(9)), ["x t/x"]);
        drop(file);
        assert_eq!(told(watch.take(9)), ["x t/x complete"]);
        fs::rename(at("x"), at("d/y")).unwrap();
        let changes = watch.take(9);
        assert!(matches!(&changes[0], Change::Name { included: false, .. }));
        assert!(changes[0].is_of(&tree) && !changes[0].is_of(&tree_of(directory.path())));
        assert!(!Change::Everything.is_of(&tree));
        assert_eq!(told(changes), ["d/y t/d/y complete"]);
        fs::write(at(".z.haul-part"), b"x").unwrap();
        assert!(watch.take(9).is_empty(), "haul's own");
        fs::remove_dir_all(at("d")).unwrap();
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/new"), b"x").unwrap();
        assert_eq!(told(watch.take(9)), ["d t/d"], "another directory");
        assert_eq!(watch.directories.len(), 1);
        watch.forget(&tree_of(directory.path()));
        assert_eq!(watch.directories.len(), 1, "another tree");
        watch.forget(&tree);
        fs::write(at("later"), b"x").unwrap();
        assert!(watch.take(9).is_empty() && watch.directories.is_empty());
        assert_eq!((watch.rescan_every(), watch.take_deafness()), (RESCAN_EVERY, None));
    }

    #[test]
    fn in_a_directory_that_was_not_offered_and_behind_what_is_asked_for_all_may_have_changed() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree_of(directory.path());
        fs::create_dir(directory.path().join("d")).unwrap();
        let mut watch = DirectoryWatch::default();
        watch.add(&tree.below(b"d"), false, false);
        fs::create_dir(directory.path().join("d/x")).unwrap();
        assert_eq!(told(watch.take(9)), ["everything"]);
        watch.add(&tree, false, true);
        for name in ["a", "b", "c"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        // What was read with them is not lost.
        assert_eq!(told(watch.take(1)), ["a t/a", "everything", "everything"]);
        assert!(watch.take(1).is_empty());
        fs::create_dir(directory.path().join("e")).unwrap();
        assert_eq!(told(watch.take(1)), ["e t/e"]);
        // Nothing is read that was not asked for.
        for number in 0..600 {
            fs::create_dir(directory.path().join(number.to_string())).unwrap();
        }
        let (first, rest) = (watch.take(1).len(), watch.take(600).len());
        assert!(first < 600 && first + rest == 600, "{first} and {rest}");
    }

    #[test]
    fn where_changes_may_go_unheard_the_trees_are_looked_through_more_often() {
        let deaf = |add: &dyn Fn(&mut DirectoryWatch)| {
            let mut watch = DirectoryWatch::default();
            add(&mut watch);
            let every = watch.rescan_every();
            let why = watch.take_deafness();
            assert!(watch.take_deafness().is_none(), "it is told once");
            assert_eq!(every, if why.is_some() { RESCAN_DEAF_EVERY } else { RESCAN_EVERY });
            why
        };
        let directory = tempfile::tempdir().unwrap();
        let tree = tree_of(directory.path());
        fs::write(directory.path().join("file"), b"x").unwrap();
        assert_eq!(deaf(&|watch| watch.add(&tree, false, true)), None);
        assert_eq!(deaf(&|watch| watch.add(&tree.below(b"gone"), false, true)), None);
        assert!(deaf(&|watch| watch.add(&tree.below(b"file"), false, true)).is_some());
        let others = tree_of(Path::new("/proc"));
        let why = deaf(&|watch| watch.add(&others, false, true));
        assert_eq!(why.as_deref(), Some("other hosts may write there"));
        let full = |count: i32| {
            deaf(&|watch| {
                let directory =
                    |_| Directory { tree: tree.clone(), included: false, is_offered: true };
                let dummies = (0..count).map(|number| (-1 - number, directory(number)));
                watch.directories.extend(dummies);
                watch.add(&tree, false, true);
            })
        };
        let most = DIRECTORIES_MAX as i32;
        assert_eq!(full(most - 1), None);
        assert_eq!(full(most).as_deref(), Some("there are too many directories"));
    }
}
