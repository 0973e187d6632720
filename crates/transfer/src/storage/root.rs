//! A directory that names from outside cannot leave.
//!
//! Every path is resolved by the kernel with `RESOLVE_BENEATH` (openat2(2), Linux 5.6), so neither
//! `..` nor a symbolic link, planted before or meanwhile, leads out. Where something is written,
//! symbolic links are not followed at all.

use super::{
    open_files::Pass,
    staged::{StagedDirectory, Staging},
    synced_file_system::SyncedFileSystem,
};
use crate::locks::{Lock, lock, rank};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2, statat},
    io::Errno,
};
use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Whether symbolic links that stay below the root are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Follow,
    Refuse,
}

/// Time for which a parent directory is used again without a new look at its path: a directory of
/// many small files is opened once, and one that was moved away meanwhile is noticed soon.
const PARENT_KEPT: Duration = Duration::from_millis(100);

/// Most parent directories that are kept open: a tree is listed, received and committed at
/// different places.
const PARENTS_MAX: usize = 8;

/// Permission bits of a directory that no source has, before the umask.
pub const DIRECTORY_MODE: u32 = 0o755;

/// A parent directory that is kept open.
#[derive(Debug)]
struct Parent {
    path: Vec<u8>,
    directory: Arc<OwnedFd>,
    opened_at: Instant,
}

/// Directories that are kept from everybody.
#[derive(Debug, Default)]
struct Closed {
    /// Paths of these directories below the root, as [`path_of`] gives them.
    paths: Vec<PathBuf>,
    /// Devices and inodes of these directories, wherever they are mounted; none where that is not
    /// asked.
    inodes: Vec<(u64, u64)>,
}

fn inode(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// A directory below which names are opened, and never beyond it.
#[derive(Debug)]
pub struct Root {
    directory: Arc<OwnedFd>,
    /// Parent directories that are kept open, the one asked for longest ago first.
    parents: Lock<VecDeque<Parent>>,
    closed: Arc<Closed>,
    /// Directories that are hidden for now: names below them lead there.
    staging: Lock<Staging, rank::Names>,
    /// Path of the root, for messages only.
    path: PathBuf,
}

impl Root {
    /// Opens a directory as a root.
    ///
    /// # Errors
    /// If it is no directory that can be opened.
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        let directory = open_root(path)?;
        Ok(Self::of(Arc::new(directory), Arc::default(), path.to_owned()))
    }

    /// Opens a root with directories below it that nothing is read from, listed in or written to,
    /// whatever links lead there.
    ///
    /// # Errors
    /// If it is no directory that can be opened, or /proc does not tell where it is.
    pub fn open_without(path: &Path, closed: &[PathBuf]) -> io::Result<Arc<Self>> {
        Self::with_closed(path, closed, false)
    }

    /// Opens a root as [`Self::open_without`] does, and closes other mounts of these directories,
    /// too: each that is opened is asked for its inode.
    ///
    /// # Errors
    /// Those of [`Self::open_without`].
    pub(crate) fn open_served(path: &Path, closed: &[PathBuf]) -> io::Result<Arc<Self>> {
        Self::with_closed(path, closed, true)
    }

    fn with_closed(path: &Path, closed: &[PathBuf], mounts_too: bool) -> io::Result<Arc<Self>> {
        let directory = open_root(path)?;
        let (here, own) = (path_of(&directory)?, inode(&fstat(&directory)?));
        // By inode: the root may be another mount of a directory above.
        let is_here = |above: &&Path| rustix::fs::stat(*above).is_ok_and(|it| inode(&it) == own);
        let mut all = Closed::default();
        for closed in closed {
            let opened = rustix::fs::open(closed, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let opened = match opened {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
                opened => opened?,
            };
            let real = path_of(&opened)?;
            let above = real.ancestors().find(is_here);
            if let Some(below) = above.and_then(|above| real.strip_prefix(above).ok()) {
                all.paths.push(here.components().chain(below.components()).collect());
            }
            if mounts_too {
                all.inodes.push(inode(&fstat(&opened)?));
            }
        }
        all.paths.sort();
        all.paths.dedup();
        Ok(Self::of(Arc::new(directory), Arc::new(all), path.to_owned()))
    }

    fn of(directory: Arc<OwnedFd>, closed: Arc<Closed>, path: PathBuf) -> Arc<Self> {
        let (parents, staging) = (Lock::default(), Lock::default());
        Arc::new(Self { directory, parents, closed, staging, path })
    }

    /// A root of the same directory for one session, whose hidden directories nobody else sees.
    #[must_use]
    pub(super) fn of_session(&self) -> Arc<Self> {
        Self::of(self.directory.clone(), self.closed.clone(), self.path.clone())
    }

    /// The directories that [`Self::open_without`] keeps from everybody.
    #[must_use]
    pub fn closed(&self) -> &[PathBuf] {
        &self.closed.paths
    }

    /// Fails if an open directory or file is kept from everybody, or lies where one is.
    fn check_open(&self, opened: &OwnedFd) -> io::Result<()> {
        let Closed { paths, inodes } = &*self.closed;
        let own = if inodes.is_empty() { None } else { Some(inode(&fstat(opened)?)) };
        let inodes = if own.is_some_and(|(device, _)| inodes.iter().any(|it| it.0 == device)) {
            &inodes[..]
        } else {
            &[]
        };
        if paths.is_empty() && inodes.is_empty() {
            return Ok(());
        }
        let path = path_of(opened)?;
        let above = path.parent().filter(|_| !inodes.is_empty());
        let above = above.and_then(|above| rustix::fs::stat(above).ok()).map(|it| inode(&it));
        let is_closed = paths.iter().any(|closed| path.starts_with(closed))
            || [own, above].into_iter().flatten().any(|it| inodes.contains(&it));
        match is_closed {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, CLOSED)),
            false => Ok(()),
        }
    }

    /// Whether a directory below holds one that is kept from everybody, and so must stay.
    #[must_use]
    pub(crate) fn holds_closed(&self, name: &[u8]) -> bool {
        let is_in = |here: PathBuf| {
            let here = here.join(os_path(name));
            self.closed.paths.iter().any(|closed| closed.parent() == Some(&here))
        };
        !self.closed.paths.is_empty() && path_of(&self.directory).is_ok_and(is_in)
    }

    /// Names in an open directory that are kept from everybody.
    ///
    /// # Errors
    /// If /proc does not tell where the directory is.
    pub(crate) fn names_closed(&self, directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        if self.closed.paths.is_empty() {
            return Ok(Vec::new());
        }
        let path = path_of(directory)?;
        let inside = self.closed.paths.iter().filter(|closed| closed.parent() == Some(&path));
        Ok(inside.filter_map(|closed| Some(closed.file_name()?.as_bytes().to_vec())).collect())
    }

    /// A directory below this one, as a root of its own.
    ///
    /// # Errors
    /// If there is no such directory; ELOOP where links are refused and one is on the way.
    pub(crate) fn below(self: &Arc<Self>, path: &[u8], links: Links) -> io::Result<Arc<Self>> {
        if path.is_empty() {
            return Ok(self.clone());
        }
        let directory = self.open_directory(path, links)?;
        Ok(Self::of(Arc::new(directory), self.closed.clone(), self.path.join(os_path(path))))
    }

    /// Whether the root's path still leads to it, as far as can be seen.
    #[must_use]
    pub(crate) fn has_its_name(&self) -> bool {
        let (Ok(open), named) = (fstat(&*self.directory), rustix::fs::stat(&self.path)) else {
            return true;
        };
        match named {
            Ok(named) => (named.st_ino, named.st_dev) == (open.st_ino, open.st_dev),
            Err(errno) => errno != Errno::NOENT,
        }
    }

    /// The path of a name below, for messages.
    #[must_use]
    pub fn show(&self, name: &[u8]) -> PathBuf {
        self.path.join(os_path(name))
    }

    /// Opens a name below this root; an empty name is the root itself.
    ///
    /// # Errors
    /// Those of openat2(2); EXDEV and ELOOP where the name would lead out.
    pub(crate) fn open_beneath(
        &self,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
        links: Links,
    ) -> io::Result<OwnedFd> {
        let name = if name.is_empty() { b"." } else { name };
        let mut hidden = lock(&self.staging).path_of(name);
        loop {
            let path = hidden.as_deref().unwrap_or(name);
            match self.open_path(path, flags, mode, links) {
                // A hidden directory may have got its name meanwhile.
                Err(Errno::NOENT) if hidden.is_some() => {
                    let now = lock(&self.staging).path_of(name);
                    if now == hidden {
                        return Err(Errno::NOENT.into());
                    }
                    hidden = now;
                }
                other => {
                    let opened = other?;
                    return self.check_open(&opened).map(|()| opened);
                }
            }
        }
    }

    /// Opens a directory below this root as [`Self::open_beneath`] does.
    ///
    /// # Errors
    /// Those of [`Self::open_beneath`]; ENOTDIR where something else has the name.
    pub(crate) fn open_directory(&self, name: &[u8], links: Links) -> io::Result<OwnedFd> {
        self.open_beneath(name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), links)
    }

    fn open_path(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        links: Links,
    ) -> rustix::io::Result<OwnedFd> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::NO_SYMLINKS, links == Links::Refuse);
        loop {
            match openat2(&*self.directory, path, flags | OFlags::CLOEXEC, mode, resolve) {
                // A rename elsewhere raced with `..`, which cannot be in our names, or a signal.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// The right to hide one more directory, if there is one.
    pub(super) fn pass_to_hide(&self) -> Option<Pass> {
        let share = lock(&self.staging).share()?;
        share.take()
    }

    /// Has no directory hidden from now on.
    pub(super) fn forbid_staging(&self) {
        lock(&self.staging).forbid();
    }

    /// Lets this session hide directories by another share than the process's.
    #[cfg(test)]
    pub(super) fn hide_by(&self, share: super::open_files::Share) {
        lock(&self.staging).share = share;
    }

    pub(super) fn hide(&self, directory: Arc<StagedDirectory>) {
        // The pass of one that is replaced goes back behind this lock, for it takes another.
        let replaced = lock(&self.staging).hide(directory);
        drop(replaced);
    }

    /// The hidden directory that a name is in.
    #[must_use]
    pub(crate) fn hidden_directory_of(&self, name: &[u8]) -> Option<Arc<StagedDirectory>> {
        let staging = lock(&self.staging);
        staging.holding(name).filter(|directory| directory.name() != name).cloned()
    }

    /// Whether this session has hidden the directory of this name.
    pub(super) fn is_hidden_here(&self, name: &[u8]) -> bool {
        lock(&self.staging).holding(name).is_some_and(|directory| directory.name() == name)
    }

    /// All directories that are hidden now.
    #[must_use]
    pub(crate) fn hidden_directories(&self) -> Vec<Arc<StagedDirectory>> {
        lock(&self.staging).all()
    }

    /// The file system of a device, as this session syncs it, opened at `place` at first.
    pub(super) fn synced(&self, device: u64, place: &OwnedFd) -> io::Result<Arc<SyncedFileSystem>> {
        lock(&self.staging).synced(device, place)
    }

    /// Does what changes the path of a hidden directory, while no name is looked for below it.
    pub(super) fn while_nobody_looks<T>(
        &self,
        act: impl FnOnce(&mut Staging) -> io::Result<T>,
    ) -> io::Result<T> {
        act(&mut lock(&self.staging))
    }

    /// Lets go of the parent directories that are kept open: nobody asks for them soon, and they
    /// hold their file system.
    pub(crate) fn close_parents(&self) {
        lock(&self.parents).clear();
    }

    /// The directory that holds `name`, and its last component.
    ///
    /// # Errors
    /// If the directory is not there or a symbolic link is on the way.
    pub(crate) fn parent_of<'name>(
        &self,
        name: &'name [u8],
    ) -> io::Result<(Arc<OwnedFd>, &'name [u8])> {
        let (parent, last) = split_last(name);
        let now = Instant::now();
        // Without the lock while a file system is asked: one that hangs holds up nobody else, as
        // all sessions with a token for the whole root share this one.
        if let Some(kept) = self.kept_parent(parent, now)
            && has_links(&kept)
        {
            return Ok((kept, last));
        }
        let directory = Arc::new(self.open_directory(parent, Links::Refuse)?);
        let mut parents = lock(&self.parents);
        // Another thread may have opened it meanwhile.
        parents.retain(|kept| kept.path != parent);
        if parents.len() >= PARENTS_MAX {
            parents.pop_front();
        }
        let path = parent.to_vec();
        parents.push_back(Parent { path, directory: directory.clone(), opened_at: now });
        Ok((directory, last))
    }

    /// Does `act` in the directory that holds `name`, with the last component. Only where that
    /// finds nothing is it asked whether the directory was removed, and done once more.
    ///
    /// # Errors
    /// Those of [`Self::parent_of`] and of `act`.
    pub(crate) fn in_parent<T>(
        &self,
        name: &[u8],
        act: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let (parent, last) = split_last(name);
        if let Some(kept) = self.kept_parent(parent, Instant::now()) {
            match act(&kept, last) {
                Err(Errno::NOENT) if !has_links(&kept) => {}
                acted => return Ok(acted?),
            }
        }
        let (directory, last) = self.parent_of(name)?;
        Ok(act(&directory, last)?)
    }

    /// The directory `parent`, where it is kept open. Those kept for too long are let go.
    fn kept_parent(&self, parent: &[u8], now: Instant) -> Option<Arc<OwnedFd>> {
        let mut parents = lock(&self.parents);
        parents.retain(|kept| now.saturating_duration_since(kept.opened_at) < PARENT_KEPT);
        let kept = parents.iter().find(|kept| kept.path == parent)?;
        Some(kept.directory.clone())
    }

    /// Makes a directory with these permission bits, and those above it, as far as they are
    /// missing. Returns how many were: they are durable when [`Self::each_parent`] of so many is
    /// synced.
    ///
    /// # Errors
    /// If something else has that name, or it may not be made.
    pub(crate) fn make_directories(&self, name: &[u8], mode: u32) -> io::Result<usize> {
        // A loop: a name may have 2048 components, and a session's stack is small.
        let (mut missing, mut there) = (Vec::new(), name);
        while !there.is_empty() {
            match self.open_directory(there, Links::Refuse) {
                Ok(_) => break,
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) => missing.push(there),
            }
            there = split_last(there).0;
        }
        for above in missing.iter().rev() {
            let (parent, last) = self.parent_of(above)?;
            let mode = if *above == name { mode } else { DIRECTORY_MODE };
            match mkdirat(&parent, last, Mode::from_raw_mode(mode)) {
                // Somebody else made it meanwhile, and may not have synced it.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(missing.len())
    }

    /// Calls `each` with the directories that hold `name` and those above it, `levels` in all.
    /// They are opened one at a time: a peer that makes thousands of them takes no descriptors.
    ///
    /// # Errors
    /// If one is not there any more, or what `each` returns.
    pub(crate) fn each_parent(
        &self,
        mut name: &[u8],
        levels: usize,
        mut each: impl FnMut(&Arc<OwnedFd>) -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..levels {
            each(&self.parent_of(name)?.0)?;
            name = split_last(name).0;
        }
        Ok(())
    }

    /// Looks at a name; the last component is not followed where links are refused.
    ///
    /// # Errors
    /// If there is no such name, or it would lead out or to what is kept from everybody.
    pub(crate) fn stat(&self, name: &[u8], links: Links) -> io::Result<Stat> {
        // A directory that is hidden has another name beside the others.
        if links == Links::Follow || name.is_empty() || self.is_hidden_here(name) {
            let path = self.open_beneath(name, OFlags::PATH, Mode::empty(), links)?;
            return Ok(rustix::fs::fstat(&path)?);
        }
        self.in_parent(name, |parent, last| statat(parent, last, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// Whether a directory has this name.
    #[must_use]
    pub(crate) fn is_directory(&self, name: &[u8]) -> bool {
        self.stat(name, Links::Refuse)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }
}

fn open_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Whether a directory is still somewhere: one that was removed has no links left, and another may
/// stand under its name.
fn has_links(directory: &OwnedFd) -> bool {
    fstat(directory).is_ok_and(|stat| stat.st_nlink > 0)
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Reason that is told for a name that is kept from everybody.
const CLOSED: &str = "haul's own state lies there, with its keys: no transfer reads or writes it";

/// Path of an open file or directory now (proc_pid_fd(5)); behind it may stand that it is deleted.
fn path_of(opened: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Splits a path before its last component: `a/b/c` is `a/b` and `c`.
#[must_use]
pub fn split_last(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (b"", name),
    }
}

/// Joins two parts of a path: `a` and `b` are `a/b`; an empty part adds nothing.
#[must_use]
pub fn join(base: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = base.to_vec();
    if !base.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[must_use]
pub fn os_path(bytes: &[u8]) -> &Path {
    Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{mount::Mount, skip::skip};
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn nothing_leads_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        symlink(outside.path(), inside.path().join("out")).unwrap();
        symlink("real", inside.path().join("within")).unwrap();
        std::fs::create_dir(inside.path().join("real")).unwrap();
        std::fs::write(inside.path().join("real/file"), b"y").unwrap();
        let root = Root::open(inside.path()).unwrap();
        let read =
            |name: &[u8], links| root.open_beneath(name, OFlags::RDONLY, Mode::empty(), links);
        assert!(read(b"out/secret", Links::Follow).is_err());
        assert!(read(b"../x", Links::Follow).is_err());
        assert!(read(b"within/file", Links::Follow).is_ok());
        assert!(read(b"within/file", Links::Refuse).is_err());
        assert!(root.make_directories(b"out/new", DIRECTORY_MODE).is_err());
        assert!(root.make_directories(b"within/new", DIRECTORY_MODE).is_err());
        assert_eq!(root.make_directories(b"a/b/c", DIRECTORY_MODE).unwrap(), 3);
        assert_eq!(root.make_directories(b"a/b/d", DIRECTORY_MODE).unwrap(), 1);
        assert_eq!(root.make_directories(b"a/b", DIRECTORY_MODE).unwrap(), 0);
        let mut parents = 0;
        let count = |_: &Arc<OwnedFd>| {
            parents += 1;
            Ok(())
        };
        root.each_parent(b"a/b/c", 3, count).unwrap();
        assert_eq!(parents, 3);
        assert!(root.is_directory(b"a/b/c") && !outside.path().join("new").exists());
    }

    #[test]
    fn what_is_closed_is_there_for_nobody_by_whatever_way() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("home/.state/haul/deep")).unwrap();
        std::fs::create_dir(at("home/.state/haul2")).unwrap();
        std::fs::write(at("home/.state/haul/key"), b"x").unwrap();
        std::fs::write(at("home/.state/haul2/key"), b"x").unwrap();
        symlink(".state/haul", at("home/link")).unwrap();
        symlink("../.state/haul/key", at("home/.state/key")).unwrap();
        symlink(at("home"), at("other")).unwrap();
        let closed = at("other/.state/haul");
        let root = Root::open_without(&at("home"), &[closed.clone(), at("none")]).unwrap();
        for root in [root.clone(), root.below(b".state", Links::Refuse).unwrap()] {
            let prefix: &[u8] = if root.path.ends_with(".state") { b"" } else { b".state" };
            let open = |name: &[u8]| {
                root.open_beneath(&join(prefix, name), OFlags::RDONLY, Mode::empty(), Links::Follow)
            };
            for name in [&b"haul"[..], b"haul/key", b"haul/deep", b"key"] {
                let error = open(name).unwrap_err();
                let why = error.kind();
                // From the root below, the link leads out of it.
                let is_out = why == io::ErrorKind::CrossesDevices && name == b"key";
                assert!(is_out || why == io::ErrorKind::PermissionDenied, "{error}");
                assert!(root.stat(&join(prefix, name), Links::Follow).is_err());
            }
            assert!(root.parent_of(&join(prefix, b"haul/new")).is_err());
            assert!(root.make_directories(&join(prefix, b"haul/a/b"), DIRECTORY_MODE).is_err());
            assert!(open(b"haul2/key").is_ok(), "another of a longer name");
            let names = super::super::walk::list(&root, prefix).unwrap();
            assert_eq!(names.iter().collect::<Vec<_>>(), [&b"haul2"[..], b"key"]);
        }
        let link = root.open_beneath(b"link/key", OFlags::RDONLY, Mode::empty(), Links::Follow);
        assert!(link.is_err());
        assert!(
            Root::open_without(&at("home/.state/haul2"), &[closed]).unwrap().closed().is_empty()
        );
    }

    #[test]
    fn a_parent_that_was_removed_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        for _ in 0..2 {
            std::fs::create_dir(directory.path().join("d")).unwrap();
            let (parent, last) = root.parent_of(b"d/f").unwrap();
            rustix::fs::mkdirat(&parent, last, Mode::from_raw_mode(0o755)).unwrap();
            std::fs::remove_dir_all(directory.path().join("d")).unwrap();
        }
        let not_found = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let make = |parent: &OwnedFd, last: &[u8]| {
            rustix::fs::mkdirat(parent, last, Mode::from_raw_mode(0o755))
        };
        for _ in 0..2 {
            std::fs::create_dir(directory.path().join("d")).unwrap();
            assert!(root.stat(b"d/f", Links::Refuse).is_err_and(not_found));
            root.in_parent(b"d/f", make).unwrap();
            assert!(root.stat(b"d/f", Links::Refuse).is_ok());
            std::fs::remove_dir_all(directory.path().join("d")).unwrap();
        }
        assert!(root.in_parent(b"d/f", make).is_err_and(not_found));
        for number in 0..2 * PARENTS_MAX {
            std::fs::create_dir(directory.path().join(number.to_string())).unwrap();
            root.parent_of(format!("{number}/f").as_bytes()).unwrap();
        }
        assert!(lock(&root.parents).len() <= PARENTS_MAX);
    }

    #[test]
    fn only_directories_are_opened_as_such_and_no_other_program_inherits_them() {
        let directory = tempfile::tempdir().unwrap();
        let (file, socket) = (directory.path().join("file"), directory.path().join("socket"));
        std::fs::write(&file, b"x").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        type Open = fn(&Path) -> io::Result<Arc<Root>>;
        let all: [Open; 2] = [Root::open, |path| Root::open_without(path, &[])];
        for open in all {
            assert!(open(&file).is_err());
            let root = open(directory.path()).unwrap();
            assert!(fcntl_getfd(&*root).unwrap().contains(FdFlags::CLOEXEC));
            let opened = root.open_directory(b"", Links::Refuse).unwrap();
            assert!(fcntl_getfd(opened).unwrap().contains(FdFlags::CLOEXEC));
            for links in [Links::Follow, Links::Refuse] {
                assert!(root.open_directory(b"file", links).is_err());
            }
            assert!(root.make_directories(b"file", DIRECTORY_MODE).is_err());
        }
        // What is closed need not be one that this user may read.
        let root = Root::open_without(directory.path(), std::slice::from_ref(&socket)).unwrap();
        assert_eq!(root.closed(), [socket.canonicalize().unwrap()]);
    }

    #[test]
    fn directories_that_are_made_on_the_way_have_the_usual_mode() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        root.make_directories(b"a/b", 0o700).unwrap();
        let mode = |name| directory.path().join(name).metadata().unwrap().mode() & 0o7777;
        let usual = DIRECTORY_MODE & !crate::storage::attributes::umask();
        assert_eq!((mode("a"), mode("a/b")), (usual, 0o700));
    }

    #[test]
    fn a_closed_directory_is_closed_by_its_other_mounts_too() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["state", "home/mounted", "home/plain", "home/state/open"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["state/key", "home/plain/file", "home/state/open/file"] {
            std::fs::write(at(name), b"x").unwrap();
        }
        let closed = [at("state"), at("home/state")];
        let read = |root: &Root, name: &[u8]| {
            root.open_beneath(name, OFlags::RDONLY, Mode::empty(), Links::Follow).is_ok()
        };
        let root = Root::open_served(&at("home"), &closed[..1]).unwrap();
        assert!(read(&root, b"plain/file") && read(&root, b"plain") && read(&root, b""));
        assert!(!root.holds_closed(b"") && root.closed().is_empty());
        let root = Root::open_served(&at("home"), &closed).unwrap();
        assert!(root.holds_closed(b"") && !root.holds_closed(b"plain"));
        assert!(read(&root, b"plain/file") && !read(&root, b"state/open/file"));
        assert!(!Root::open(&at("home")).unwrap().holds_closed(b""));
        let _mount = match Mount::bind(&at("state"), &at("home/mounted")) {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a directory once more", &why),
        };
        assert!(read(&root, b"plain/file") && read(&root, b"plain"));
        assert!(!read(&root, b"mounted") && !read(&root, b"mounted/key"));
        assert!(read(&Root::open_without(&at("home"), &closed).unwrap(), b"mounted/key"));
    }

    #[test]
    fn a_root_loses_its_name_only_to_another_or_where_nothing_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("d"), directory.path().join("moved"));
        std::fs::create_dir(&path).unwrap();
        let root = Root::open(&path).unwrap();
        assert!(root.has_its_name());
        std::fs::rename(&path, &moved).unwrap();
        assert!(!root.has_its_name());
        std::fs::create_dir(&path).unwrap();
        assert!(!root.has_its_name());
        std::fs::remove_dir(&path).unwrap();
        symlink("d", &path).unwrap();
        assert!(root.has_its_name(), "it cannot be told");
    }

    #[test]
    fn parents_are_kept_open_for_a_moment_and_each_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            root.parent_of(format!("{name}/f").as_bytes()).unwrap();
        }
        let opened = lock(&root.parents).back().unwrap().opened_at;
        assert_eq!(lock(&root.parents).len(), 2);
        let almost = opened + PARENT_KEPT - Duration::from_nanos(1);
        let kept = root.kept_parent(b"b", almost).unwrap();
        assert_eq!(inode(&fstat(&kept).unwrap()).1, {
            directory.path().join("b").metadata().unwrap().ino()
        });
        assert!(has_links(&kept) && root.kept_parent(b"c", almost).is_none());
        std::fs::remove_dir(directory.path().join("b")).unwrap();
        std::fs::create_dir(directory.path().join("b")).unwrap();
        assert!(!has_links(&kept));
        root.parent_of(b"b/f").unwrap();
        let paths: Vec<_> = lock(&root.parents).iter().map(|kept| kept.path.clone()).collect();
        assert_eq!(paths.iter().filter(|path| *path == b"b").count(), 1);
        let opened = lock(&root.parents).back().unwrap().opened_at;
        assert!(root.kept_parent(b"b", opened + PARENT_KEPT).is_none());
        root.parent_of(b"b/f").unwrap();
        root.close_parents();
        assert_eq!(lock(&root.parents).len(), 0);
    }
}
