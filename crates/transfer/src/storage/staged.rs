//! Directories that a session makes, hidden until all that comes into them is there.
//!
//! `NAME` is received as `.NAME.haul-staged`, with the list `.NAME.haul-durable` beside it. Inside,
//! a small file is made under its own name at once: without a temporary, a lock and a rename each.
//! Many of them share a sync, after which the list tells that they are durable. In the end the
//! directory is renamed, and only then is anything in it under its final path.
//!
//! The lock is on the list (`locked.rs`), so it ends with the process that holds it. Who finds the
//! list of a session that died removes every file that it does not tell of, and goes on from there.

mod list;
mod merging;

use super::{
    aborted::sync_directory,
    hidden_names::{LIST_SUFFIX, STAGED_SUFFIX, hidden_name},
    locked::open_locked,
    open_files::{Pass, Share},
    root::{DIRECTORY_MODE, Root, split_last},
    synced_file_system::SyncedFileSystem,
};
use crate::{
    error::io_fault,
    file_options::{FileOptions, OnConflict},
    locks::{Lock, lock},
};
use haul_host::{FileSystem, FsKind};
use haul_protocol::message::{Fault, FaultCode, Side};
use list::List;
pub use list::PathHash;
use rustix::{
    fs::{
        AtFlags, Mode, OFlags, RenameFlags, fgetxattr, fstat, mkdirat, openat, renameat_with,
        statat, unlinkat,
    },
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The directories that a session has hidden, and what syncs their file systems.
#[derive(Debug)]
pub(super) struct Staging {
    /// Directories that are hidden now, by name: none is in another.
    hidden: BTreeMap<Vec<u8>, Arc<StagedDirectory>>,
    pub(super) share: Share,
    /// The file system of each device, opened before anything was written there.
    synced: Vec<Arc<SyncedFileSystem>>,
    is_forbidden: bool,
}

/// A directory that is hidden until all that comes into it is there.
#[derive(Debug)]
pub struct StagedDirectory {
    /// Name below the root that it gets.
    name: Vec<u8>,
    hidden_last: Vec<u8>,
    list_name: Vec<u8>,
    parent: Arc<OwnedFd>,
    directory: OwnedFd,
    synced: Arc<SyncedFileSystem>,
    /// Number and device of the list's inode, which is locked.
    list_inode: (u64, u64),
    list: Lock<List>,
    /// An earlier run left temporaries in it, which whoever receives their files removes.
    has_temporaries: bool,
    /// Count of entries that only a sync of the file system makes durable, and none did yet.
    undurable: AtomicUsize,
    /// Whether it has its own name, or is gone.
    is_visible: AtomicBool,
    /// Something came that has to be seen before the end.
    is_wanted: AtomicBool,
    /// The disk was full: what is missing comes by another run.
    is_cut_short: AtomicBool,
    /// The right to have its descriptors open; `None` for what a dead session left.
    _pass: Option<Pass>,
}

/// An entry of a hidden directory, as long as it is being received.
#[derive(Debug)]
pub struct StagedEntry {
    directory: Arc<StagedDirectory>,
    /// Whether only a sync of the file system makes the entry durable.
    is_light: bool,
}

impl StagedEntry {
    fn new(directory: Arc<StagedDirectory>, is_light: bool) -> Self {
        directory.undurable.fetch_add(usize::from(is_light), Ordering::Relaxed);
        Self { directory, is_light }
    }

    /// An entry that a sync of the file system makes durable, and nothing else.
    pub(super) fn light(directory: Arc<StagedDirectory>) -> Self {
        Self::new(directory, true)
    }

    /// An entry with a temporary or a name of its own to come.
    pub(super) fn other(directory: Arc<StagedDirectory>) -> Self {
        Self::new(directory, false)
    }

    #[must_use]
    pub fn is_light(&self) -> bool {
        self.is_light
    }

    #[must_use]
    pub fn directory(&self) -> &Arc<StagedDirectory> {
        &self.directory
    }
}

impl Drop for StagedEntry {
    fn drop(&mut self) {
        self.directory.undurable.fetch_sub(usize::from(self.is_light), Ordering::Relaxed);
    }
}

/// Whether a transfer with these options may hide directories until its end.
///
/// What is followed or watched is to be seen as it comes; a move removes its sources one by one, of
/// files that are there; a second file of a name needs to see the first; and where no file may be
/// replaced, none may be at the end either.
fn may_stage(options: FileOptions) -> bool {
    let recording = options.recording;
    !options.dry_run
        && !options.discard
        && !options.move_sources
        && !recording.follow
        && !recording.watch
        // The sessions that bring other ranges write beside this one.
        && !options.ranges
        && !matches!(options.on_conflict, OnConflict::KeepBoth | OnConflict::Fail)
}

/// Whether a sync of the whole file system is known to write everything out, and its rename of a
/// directory to be one change.
fn is_known(directory: impl AsFd) -> bool {
    let kind = FileSystem::of(directory).map(|system| system.kind);
    matches!(kind, Ok(FsKind::Ext | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs | FsKind::Tmpfs))
}

/// Whether a directory has entries of a default ACL, which give new files other modes (acl(5)).
fn has_default_acl(directory: impl AsFd) -> bool {
    let mut nothing: [u8; 0] = [];
    let asked = fgetxattr(directory, "system.posix_acl_default", &mut nothing);
    !matches!(asked, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Outcome for a directory that was offered and is not there.
pub(super) enum Begun {
    /// Hidden from now on. `is_new`: nothing is in it.
    Hidden { directory: Arc<StagedDirectory>, is_new: bool },
    /// Not hidden: it is to be made under its name.
    Plain,
    /// A session that died kept it hidden, and it has its name now.
    Shown,
}

/// Hides a directory that is not there yet, or takes up the one that a session that died kept.
pub(super) fn begin(
    root: &Root,
    name: &[u8],
    mode: u32,
    options: FileOptions,
) -> Result<Begun, Fault> {
    let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be made", &error);
    let pass = if may_stage(options) { root.pass_to_hide() } else { None };
    let may_stage = pass.is_some();
    if may_stage && root.parent_of(name).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        // They are durable as all is that comes into this one: by a sync of the file system.
        root.make_directories(split_last(name).0, DIRECTORY_MODE).map_err(failed)?;
    }
    let Ok((parent, last)) = root.parent_of(name) else { return Ok(Begun::Plain) };
    let may_stage = may_stage && !has_default_acl(&*parent);
    if !may_stage && !has_list(&parent, last) || !is_known(&*parent) {
        return Ok(Begun::Plain);
    }
    let list = match open_locked(&parent, &hidden_name(last, LIST_SUFFIX), name) {
        Ok(list) => list,
        // It was made, and cannot be locked: it would stay.
        Err(fault) if !is_taken(&fault) && has_list(&parent, last) => return Err(fault),
        Err(_) => return Ok(Begun::Plain),
    };
    let Some(opened) = Opened::open(&parent, last, list, mode).map_err(failed)? else {
        return Ok(Begun::Plain);
    };
    let (is_new, directory) =
        (opened.is_new, opened.into_staged(root, name, pass).map_err(failed)?);
    let directory = Arc::new(directory);
    root.hide(directory.clone());
    if may_stage {
        return Ok(Begun::Hidden { directory, is_new });
    }
    directory.show(root).and_then(|()| directory.forget()).map_err(failed)?;
    Ok(Begun::Shown)
}

/// Puts in place what a session that died kept hidden of a directory that is there by now.
pub(super) fn take_up_left(root: &Root, name: &[u8]) -> Result<(), Fault> {
    let Ok((parent, last)) = root.parent_of(name) else { return Ok(()) };
    if root.is_hidden_here(name) || !has_list(&parent, last) {
        return Ok(());
    }
    let what = "what an earlier run left of it cannot be put in place";
    let failed = |error: io::Error| io_fault(Side::Target, name, what, &error);
    // Whoever holds it brings its files here in the end.
    let list = list::open_free(&parent, &hidden_name(last, LIST_SUFFIX));
    let opened = list.map(|list| Opened::open(&parent, last, list, 0o700)).transpose();
    let Some(opened) = opened.map_err(failed)?.flatten() else { return Ok(()) };
    let directory = opened.into_staged(root, name, None).map_err(failed)?;
    let merged = directory.merge(merging::Conflict::KeepThere);
    merged.and_then(|()| directory.forget()).map_err(failed)
}

/// Removes what a session that died kept hidden, of which `staged_name` is the directory. One that
/// a session is at work in stays.
pub(super) fn remove_left(parent: &OwnedFd, staged_name: &[u8]) {
    let Some(stem) = staged_name.strip_suffix(STAGED_SUFFIX) else { return };
    let list_name = [stem, LIST_SUFFIX].concat();
    let Some(list) = list::open_free(parent, &list_name) else { return };
    if let Ok(directory) = open_directory(parent, staged_name) {
        let _ = merging::remove_all_in(&directory);
        let _ = unlinkat(parent, staged_name, AtFlags::REMOVEDIR);
    }
    let _ = unlinkat(parent, &*list_name, AtFlags::empty());
    drop(list);
}

/// Whether another session is at work, or something else has the list's name.
fn is_taken(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::Locked | FaultCode::NameRefused)
}

fn has_list(parent: &OwnedFd, last: &[u8]) -> bool {
    let list_name = hidden_name(last, LIST_SUFFIX);
    statat(parent, &*list_name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Opens a directory by its name in another one; a link is none.
fn open_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// A hidden directory and its list, locked.
struct Opened {
    parent: Arc<OwnedFd>,
    /// Names of the hidden directory and of its list.
    names: (Vec<u8>, Vec<u8>),
    directory: OwnedFd,
    list: List,
    is_new: bool,
    has_temporaries: bool,
}

impl Opened {
    /// Opens the directory beside its list, which is locked, and removes what that does not tell
    /// of. `None`: something else has its name, or there is no room for a list.
    fn open(parent: &Arc<OwnedFd>, last: &[u8], file: File, mode: u32) -> io::Result<Option<Self>> {
        let list_name = hidden_name(last, LIST_SUFFIX);
        let (mut list, durable) = List::of(file)?;
        match list.reserve() {
            // No room for a list: files are received one by one. One that tells of something stays.
            Err(error) if error.kind() == ErrorKind::StorageFull && durable.is_empty() => {
                let _ = unlinkat(parent, &*list_name, AtFlags::empty());
                return Ok(None);
            }
            Err(error) if error.kind() != ErrorKind::StorageFull => return Err(error),
            _ => {}
        }
        let hidden_last = hidden_name(last, STAGED_SUFFIX);
        let is_new = match mkdirat(parent, &*hidden_last, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => {
                let _ = unlinkat(parent, &*list_name, AtFlags::empty());
                return Err(errno.into());
            }
        };
        let directory = match open_directory(parent, &hidden_last) {
            Ok(directory) => directory,
            // Something else has the name.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let _ = unlinkat(parent, &*list_name, AtFlags::empty());
                return Ok(None);
            }
            Err(errno) => return Err(errno.into()),
        };
        let has_temporaries = !is_new && merging::remove_unlisted(&directory, &durable)?;
        let parent = parent.clone();
        let names = (hidden_last, list_name);
        Ok(Some(Self { parent, names, directory, list, is_new, has_temporaries }))
    }

    fn into_staged(
        self,
        root: &Root,
        name: &[u8],
        pass: Option<Pass>,
    ) -> io::Result<StagedDirectory> {
        let device = fstat(&self.directory)?.st_dev;
        let synced = root.synced(device, &self.parent)?;
        let Self { parent, names, directory, list, has_temporaries, .. } = self;
        let (hidden_last, list_name) = names;
        let list_inode = list.inode()?;
        Ok(StagedDirectory {
            name: name.to_vec(),
            hidden_last,
            list_name,
            parent,
            directory,
            synced,
            list_inode,
            list: Lock::new(list),
            has_temporaries,
            undurable: AtomicUsize::new(0),
            is_visible: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            is_cut_short: AtomicBool::new(false),
            _pass: pass,
        })
    }
}

impl StagedDirectory {
    /// The path below the root that a name below this directory has until it is shown.
    fn hidden_path(&self, name: &[u8]) -> Vec<u8> {
        let last = split_last(&self.name).1;
        let mut path = name[..self.name.len() - last.len()].to_vec();
        path.extend_from_slice(&self.hidden_last);
        path.extend_from_slice(&name[self.name.len()..]);
        path
    }

    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Name that the directory has until it is shown.
    #[must_use]
    pub fn hidden_name(&self) -> &[u8] {
        &self.hidden_last
    }

    #[must_use]
    pub fn device(&self) -> u64 {
        self.synced.device
    }

    /// Number and device of the inode that this session has locked.
    #[must_use]
    pub fn locked_inode(&self) -> (u64, u64) {
        self.list_inode
    }

    #[must_use]
    pub fn is_hidden(&self) -> bool {
        !self.is_visible.load(Ordering::Acquire)
    }

    /// Whether a small file may be made in it under its own name at once.
    pub(super) fn takes_small_files(&self) -> bool {
        self.is_hidden() && !self.has_temporaries && !self.is_wanted.load(Ordering::Relaxed)
    }

    /// Says that something came that is to be seen before the end, as a file of many spans.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Says that the disk was full: another run brings what is missing.
    pub fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    /// Whether it stays hidden until another run has brought what is missing. One that has to be
    /// seen before its end does not.
    #[must_use]
    pub fn stays_hidden(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed) && !self.is_wanted.load(Ordering::Relaxed)
    }

    /// Number of entries that only a sync of the file system makes durable, and none did yet.
    #[must_use]
    pub fn undurable(&self) -> usize {
        self.undurable.load(Ordering::Relaxed)
    }

    /// Whether it is to be shown before the end, and may be.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_hidden() && self.is_wanted.load(Ordering::Relaxed) && self.undurable() == 0
    }

    /// Syncs the file system that this directory is on, and tells whether each file that was
    /// written there is durable. Where that is not said, each is to be asked.
    #[must_use]
    pub fn sync_file_system(&self) -> bool {
        self.synced.sync_each()
    }

    /// The hash by which the list knows a name below this directory.
    #[must_use]
    pub fn hash_of(&self, name: &[u8]) -> PathHash {
        list::hash(name.get(self.name.len() + 1..).unwrap_or_default())
    }

    /// Tells the list that these names are durable, which a sync must have made them before. Where
    /// the directory gets its name next, only a kill has to find them there: `syncs` is false.
    ///
    /// # Errors
    /// If the list cannot be written or synced.
    pub fn tell_durable(&self, names: &[PathHash], syncs: bool) -> io::Result<()> {
        lock(&self.list).append(names, syncs)
    }

    /// Gives the directory its name. Where another has it by now, all goes there; a file of the
    /// same name is replaced, as by any later writer.
    ///
    /// # Errors
    /// If it cannot be renamed, or something cannot go there.
    pub fn show(&self, root: &Root) -> io::Result<()> {
        // Until the lock is let go nobody looks for a name below.
        root.while_nobody_looks(|staging| {
            if !self.rename(staging)? {
                self.merge(merging::Conflict::Replace)?;
                self.is_shown(staging);
            }
            Ok(())
        })
    }

    /// Gives the directory its name before the end, and tells whether it has. Where another has the
    /// name, this one stays hidden: files that are being received in it would lose their
    /// temporaries.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn show_before_end(&self, root: &Root) -> io::Result<bool> {
        root.while_nobody_looks(|staging| self.rename(staging))
    }

    /// Gives the directory its name, if no other has it.
    fn rename(&self, staging: &mut Staging) -> io::Result<bool> {
        let last = split_last(&self.name).1;
        let (parent, hidden) = (&self.parent, &*self.hidden_last);
        match renameat_with(parent, hidden, parent, last, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => return Ok(false),
            renamed => renamed?,
        }
        self.is_shown(staging);
        Ok(true)
    }

    fn is_shown(&self, staging: &mut Staging) {
        self.is_visible.store(true, Ordering::Release);
        staging.hidden.retain(|_, other| other.is_hidden());
    }

    /// Makes the name durable and removes the list, which has nothing more to tell.
    ///
    /// # Errors
    /// If the directory above cannot be synced.
    pub fn forget(&self) -> io::Result<()> {
        sync_directory(&*self.parent)?;
        match unlinkat(&self.parent, &*self.list_name, AtFlags::empty()) {
            // Somebody has tidied.
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Removes the directory if nothing in it is of use to another run.
    pub fn remove_if_useless(&self, root: &Root) {
        if !self.is_hidden() || !lock(&self.list).is_empty() {
            return;
        }
        let _ = root.while_nobody_looks(|staging| {
            let _ = merging::remove_unlisted(&self.directory, &[])?;
            merging::remove_empty_in(&self.directory)?;
            unlinkat(&self.parent, &*self.hidden_last, AtFlags::REMOVEDIR)?;
            // Not looked for any more: the next session of the client may make it again.
            self.is_visible.store(true, Ordering::Release);
            staging.hidden.retain(|_, other| other.is_hidden());
            Ok(unlinkat(&self.parent, &*self.list_name, AtFlags::empty())?)
        });
    }

    /// Moves all into the directory that has the name, and syncs that.
    fn merge(&self, conflict: merging::Conflict) -> io::Result<()> {
        let there = open_directory(&self.parent, split_last(&self.name).1)?;
        merging::move_all(&self.directory, &there, conflict)?;
        unlinkat(&self.parent, &*self.hidden_last, AtFlags::REMOVEDIR)?;
        self.synced.sync()
    }

    /// Fault of a directory that stays hidden.
    #[must_use]
    pub fn cut_short_fault(&self) -> Fault {
        let what = "is not there yet: the disk was full before all of it came";
        let hidden = String::from_utf8_lossy(&self.hidden_last).into_owned();
        Fault::new(FaultCode::NoSpace, Side::Target, what)
            .at(&*self.name)
            .needs("room for the rest of it")
            .found(format!("what came is kept as {hidden}"))
            .hint("make room, then run the same command again: it goes on from there")
    }
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            hidden: BTreeMap::new(),
            share: Share::of_hidden_directories(),
            synced: Vec::new(),
            is_forbidden: false,
        }
    }
}

impl Staging {
    /// The share that gives the right to hide one more directory, unless none may be hidden.
    pub fn share(&self) -> Option<Share> {
        (!self.is_forbidden).then(|| self.share.clone())
    }

    pub fn forbid(&mut self) {
        self.is_forbidden = true;
    }

    /// Hides a directory; gives one of the same name that somebody removed while it was hidden.
    #[must_use]
    pub fn hide(&mut self, directory: Arc<StagedDirectory>) -> Option<Arc<StagedDirectory>> {
        self.hidden.insert(directory.name.clone(), directory)
    }

    /// The hidden directory that holds a name, or is it.
    pub fn holding(&self, name: &[u8]) -> Option<&Arc<StagedDirectory>> {
        if self.hidden.is_empty() {
            return None;
        }
        let above = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = above.map(|(at, _)| at).chain([name.len()]);
        ends.into_iter().find_map(|end| self.hidden.get(&name[..end]))
    }

    pub fn all(&self) -> Vec<Arc<StagedDirectory>> {
        self.hidden.values().cloned().collect()
    }

    /// The path of a name now, where a hidden directory holds it.
    pub fn path_of(&self, name: &[u8]) -> Option<Vec<u8>> {
        Some(self.holding(name)?.hidden_path(name))
    }

    /// The file system of a device, opened at `place` at first.
    pub fn synced(&mut self, device: u64, place: &OwnedFd) -> io::Result<Arc<SyncedFileSystem>> {
        if let Some(synced) = self.synced.iter().find(|synced| synced.device == device) {
            return Ok(synced.clone());
        }
        let synced = Arc::new(SyncedFileSystem::open(device, place)?);
        self.synced.push(synced.clone());
        Ok(synced)
    }
}

#[cfg(test)]
mod tests;
