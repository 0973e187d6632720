//! Files being received. Each is a hidden temporary beside the final name, preallocated and locked,
//! and renamed only when it is complete, verified and synced.
//!
//! `NAME` is received as `.NAME.haul-part` with `.NAME.haul-journal` beside it. The lock is
//! on the temporary (`locked.rs`), so it ends with the process that holds it, however that dies.

use super::{
    aborted::sync_directory,
    attributes::attributes_fault,
    journal::Recorded,
    open_files::Pass,
    root::Root,
    small_file,
    staged::{StagedDirectory, StagedEntry},
    target_rules::TargetRules,
    temporary::{
        Named, Naming, Part, Published,
        earlier_ranges::EarlierRanges,
        growing::{full_spans, growing_grid, takes_up},
    },
};
use crate::error::io_fault;
use haul_datapath::SpanFile;
use haul_protocol::{
    SpanSet,
    message::{Compared, Fault, FaultCode, FileKind, FileOffer, Growth, Side},
};
use rustix::fs::{AtFlags, fstat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
};

/// Opens a file, on the thread that reads it.
pub type OpenFile = Box<dyn FnOnce() -> io::Result<Arc<SpanFile>> + Send>;

/// A file, directory or link that is being received.
#[derive(Debug)]
pub struct TargetFile {
    pub offer: Arc<FileOffer>,
    /// Name below the root.
    pub name: Vec<u8>,
    pub(super) shape: Shape,
    rules: Arc<TargetRules>,
    /// Place in a directory that is hidden until its end.
    staged: Option<StagedEntry>,
}

#[derive(Debug)]
pub(super) enum Shape {
    Null,
    Directory {
        root: Arc<Root>,
        /// Number of levels, this directory and those above it, that are new in the directories
        /// that hold them.
        new_levels: usize,
    },
    /// A symbolic or a hard link, with the name that it has until it is published: one of its own,
    /// for no lock protects it.
    Link {
        root: Arc<Root>,
        link_name: Vec<u8>,
        is_made: bool,
    },
    Regular(Box<Part>),
    /// A file that was given its name and is closed.
    Named(Named),
    /// A file of at most one span: nothing of it is here before that comes.
    Whole {
        root: Arc<Root>,
        naming: Naming,
    },
    /// A small file in a hidden directory, under its own name and closed.
    Written {
        root: Arc<Root>,
    },
}

impl TargetFile {
    pub(super) fn new(
        offer: &FileOffer,
        name: Vec<u8>,
        shape: Shape,
        rules: Arc<TargetRules>,
    ) -> Self {
        Self { offer: Arc::new(offer.clone()), name, shape, rules, staged: None }
    }

    /// Holds `offer` instead of its own copy of it: one copy is enough for the whole session.
    pub fn share(&mut self, offer: &Arc<FileOffer>) {
        if self.offer == *offer {
            self.offer = offer.clone();
        }
    }

    /// The file as an entry of a hidden directory, where it is one.
    pub(super) fn in_staged(self, staged: Option<StagedEntry>) -> Self {
        Self { staged, ..self }
    }

    /// The hidden directory that the file is in.
    #[must_use]
    pub fn hidden_directory(&self) -> Option<&Arc<StagedDirectory>> {
        Some(self.staged.as_ref()?.directory()).filter(|directory| directory.is_hidden())
    }

    /// Whether a sync of the file system makes the file durable, and nothing is to be done after
    /// that: it is in a hidden directory, under its own name.
    #[must_use]
    pub fn is_light(&self) -> bool {
        let is_made = !matches!(self.shape, Shape::Regular(_) | Shape::Named(_));
        self.staged.as_ref().is_some_and(StagedEntry::is_light) && is_made
    }

    /// File that engines write to; `None` for a file of one span, which is opened when that comes,
    /// and for what has no bytes.
    ///
    /// # Errors
    /// If `null:` cannot be opened.
    pub fn span_file(&self) -> io::Result<Option<Arc<SpanFile>>> {
        match &self.shape {
            Shape::Regular(part) => Ok(Some(part.file.clone())),
            Shape::Whole { .. } => Ok(None),
            _ => sink().map(Some),
        }
    }

    /// Opens a file of one span that an engine is to write, with its space taken.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn begin_whole(&mut self, pass: Option<Pass>) -> Result<Arc<SpanFile>, Fault> {
        let (offer, name) = (self.offer.clone(), self.name.clone());
        let part = self.whole_part(pass)?;
        part.preallocate(&offer, &name)?;
        Ok(part.file.clone())
    }

    /// Writes all of a file of one span, and gives it mode and time.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn write_whole(&mut self, bytes: &[u8], pass: Option<Pass>) -> Result<(), Fault> {
        if matches!(self.shape, Shape::Null) {
            return Ok(());
        }
        if self.write_staged(bytes)? {
            return Ok(());
        }
        let (offer, rules) = (self.offer.clone(), self.rules.clone());
        let part = self.whole_part(pass)?;
        part.write_whole(bytes)
            .map_err(|error| io_fault(Side::Target, &self.name, "cannot be written", &error))?;
        let sealed = self.whole_part(None)?.seal(&offer, &rules.attributes);
        sealed.map_err(|error| attributes_fault(&self.name, &error))
    }

    /// Makes a small file of a hidden directory, with all of its bytes. False if this is none, or
    /// something has its name.
    fn write_staged(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        let (root, is_there) = match &self.shape {
            Shape::Whole { root, naming: Naming::Staged } => (root.clone(), false),
            // It came once more: the stream that brought it was lost before it could tell.
            Shape::Written { root } => (root.clone(), true),
            _ => return Ok(false),
        };
        let attributes = &self.rules.attributes;
        match small_file::write(&root, &self.name, &self.offer, attributes, bytes, is_there)? {
            true => self.shape = Shape::Written { root },
            false => self.shape = Shape::Whole { root, naming: Naming::Locked },
        }
        Ok(matches!(self.shape, Shape::Written { .. }))
    }

    fn whole_part(&mut self, pass: Option<Pass>) -> Result<&mut Part, Fault> {
        if let Shape::Whole { root, naming } = &self.shape {
            let mode = self.rules.attributes.mode_of(&self.offer);
            let part = Part::begin_whole(root, &self.name, *naming, mode, pass)?;
            self.shape = Shape::Regular(Box::new(part));
        }
        match &mut self.shape {
            Shape::Regular(part) => Ok(part),
            _ => Err(Fault::new(FaultCode::IoFailed, Side::Target, "is no file").at(&*self.name)),
        }
    }

    /// Syncs what was written so far and journals these spans, which are durable from then on.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn make_durable(&mut self, recorded: Recorded<'_>) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        part.make_durable(recorded)
            .map_err(|error| io_fault(Side::Target, &self.name, "cannot be synced", &error))
    }

    /// Gives up spans of an earlier run that are not there, or that nobody may believe: they come
    /// again.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn lose(&mut self, spans: &SpanSet) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        let lost = part.lose(spans);
        self.named("cannot be journaled", lost)
    }

    /// Notes that what an earlier run left was read back: `lost` is not there, the rest is.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn was_read_back(&mut self, lost: &SpanSet) -> Result<(), Fault> {
        self.lose(lost)?;
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        let confirmed = part.confirm_boot();
        self.named("cannot be journaled", confirmed)
    }

    /// Whether the file's spans are journaled, so that a later run can go on.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        matches!(&self.shape, Shape::Regular(part) if part.journal.is_some())
    }

    /// Number and device of the inode that the file is written to.
    #[must_use]
    pub fn inode(&self) -> Option<(u64, u64)> {
        match &self.shape {
            Shape::Regular(part) => Some(part.inode()),
            _ => None,
        }
    }

    /// File to be read back from its disk; `None` for a directory, a link or the like.
    #[must_use]
    pub fn to_read_back(&self) -> Option<Arc<SpanFile>> {
        match &self.shape {
            // Nothing of it came in this session, or it was read back already.
            Shape::Regular(part) if part.is_settled_range() => None,
            Shape::Regular(part) => Some(part.file.clone()),
            _ => None,
        }
    }

    /// Whether the file grows: another round follows, and there is no name yet.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.offer.growth == Growth::Growing
    }

    /// Makes ready for another round of a file that grows, and gives the spans of the last one that
    /// need not come again.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn next_round(
        &mut self,
        offer: &FileOffer,
        span_bytes: u64,
        last_size_bytes: u64,
    ) -> Result<SpanSet, Fault> {
        let is_same = (self.offer.inode, self.offer.device) == (offer.inode, offer.device);
        let mut offer = offer.clone();
        if !is_same {
            offer.compared = Compared::OtherContent;
        }
        let grid = growing_grid(&offer, span_bytes)?;
        let durable = match &mut self.shape {
            Shape::Regular(part) => part.next_round(&offer, &self.name, last_size_bytes)?,
            // Nothing is kept in `null:`, and so nothing comes twice.
            _ if takes_up(&offer) || offer.growth == Growth::Grown => {
                full_spans(&grid, last_size_bytes)
            }
            _ => SpanSet::new(grid.count()),
        };
        self.offer = Arc::new(offer);
        Ok(durable)
    }

    /// Bytes that came of a file that grows, to be compared; `None` for `null:`.
    #[must_use]
    pub fn to_compare(&self) -> Option<OpenFile> {
        let Shape::Regular(part) = &self.shape else { return None };
        let file = part.file.clone();
        Some(Box::new(move || Ok(file)))
    }

    /// Whether this is an empty file, which its commit opens.
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        matches!(self.shape, Shape::Whole { .. })
    }

    /// Sets mode and time of the complete file, the first step of a commit.
    ///
    /// # Errors
    /// The fault that ends this file; the temporary stays for the next run.
    pub fn seal(&mut self) -> Result<(), Fault> {
        if matches!(self.shape, Shape::Whole { .. }) && !self.write_staged(&[])? {
            // An empty file: no byte of it ever came.
            self.whole_part(None)?;
        }
        let result = match &mut self.shape {
            Shape::Null | Shape::Directory { .. } | Shape::Whole { .. } => Ok(()),
            Shape::Link { is_made: true, .. } | Shape::Named(_) | Shape::Written { .. } => Ok(()),
            Shape::Link { root, link_name, is_made } => {
                let made = make_link(root, &self.name, link_name, &self.offer, &self.rules);
                *is_made = made.is_ok();
                made
            }
            Shape::Regular(part) => {
                part.check_size(&self.offer, &self.name)?;
                part.seal(&self.offer, &self.rules.attributes)
            }
        };
        result.map_err(|error| attributes_fault(&self.name, &error))
    }

    /// Makes content, mode and time durable, the second step of a commit.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn sync(&mut self) -> Result<(), Fault> {
        let synced = match &mut self.shape {
            Shape::Regular(part) => part.sync(),
            Shape::Written { root } => small_file::sync(root, &self.name, self.offer.size_bytes),
            _ => Ok(()),
        };
        self.named("cannot be synced", synced)
    }

    /// Gives the final name, the third step of a commit. Where ranges of the file are to be read
    /// back before, it gives these, and the file is committed again then.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn publish(&mut self) -> Result<Option<Box<EarlierRanges>>, Fault> {
        let mut awaited = None;
        let result = match &mut self.shape {
            Shape::Null | Shape::Directory { .. } | Shape::Whole { .. } => Ok(()),
            Shape::Link { root, link_name, is_made: true } => {
                publish_link(root, &self.name, link_name, &self.offer, &self.rules)
            }
            Shape::Link { .. } => Err(io::Error::other("the link was not made")),
            Shape::Regular(part) => part.publish().map(|published| match published {
                Published::Named(named) => self.shape = Shape::Named(named),
                Published::Awaits(earlier) => awaited = Some(earlier),
            }),
            Shape::Named(_) | Shape::Written { .. } => Ok(()),
        };
        self.named("cannot be put under its name", result)?;
        Ok(awaited)
    }

    /// Notes that ranges of before this host's start were read back, and why not all is there.
    pub fn was_looked_back(&mut self, missing: Option<String>) {
        if let Shape::Regular(part) = &mut self.shape {
            part.was_looked_back(missing);
        }
    }

    /// Journals the spans of a range that lie within holes, which nobody sends: after a crash of
    /// the host another session reads the range back by its journal.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn journal_holes(&mut self) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        let journaled = part.journal_holes(&self.offer);
        self.named("cannot be journaled", journaled)
    }

    /// Makes the name durable, the fourth step of a commit.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn sync_directory(&self) -> Result<(), Fault> {
        let result = match &self.shape {
            Shape::Null | Shape::Whole { .. } => Ok(()),
            Shape::Directory { root, new_levels } => {
                root.each_parent(&self.name, *new_levels, |directory| sync_directory(directory))
            }
            Shape::Link { root, .. } | Shape::Written { root } => {
                root.parent_of(&self.name).and_then(|(parent, _)| sync_directory(&parent))
            }
            Shape::Regular(part) => sync_directory(&part.directory),
            Shape::Named(named) => sync_directory(&named.directory),
        };
        self.named("its directory cannot be synced", result)
    }

    /// Number of directories in which this entry, or those above it, are new.
    #[must_use]
    pub fn new_directories(&self) -> usize {
        if let Shape::Directory { new_levels, .. } = &self.shape { *new_levels } else { 1 }
    }

    /// Calls `each` with every directory that its name, or those above it, are entered in, and the
    /// device of its file system.
    ///
    /// # Errors
    /// If one cannot be opened or looked at, or what `each` returns.
    pub fn each_directory(
        &self,
        mut each: impl FnMut(u64, BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut look = |directory: &OwnedFd| each(fstat(directory)?.st_dev, directory.as_fd());
        match &self.shape {
            Shape::Null | Shape::Whole { .. } => Ok(()),
            Shape::Directory { root, new_levels } => {
                root.each_parent(&self.name, *new_levels, |fd| look(fd))
            }
            Shape::Link { root, .. } | Shape::Written { root } => {
                look(&root.parent_of(&self.name)?.0)
            }
            Shape::Regular(part) => each(part.device(), part.directory.as_fd()),
            Shape::Named(named) => each(named.device, named.directory.as_fd()),
        }
    }

    /// Fails if a write of this file failed, which is asked after a sync of the whole file system.
    /// That sync (syncfs(2)) tells of a write that failed once, to whoever asks next; each file
    /// tells of its own.
    ///
    /// # Errors
    /// If some of it was not written.
    pub fn check_written(&mut self) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        part.check_written()
            .map_err(|error| io_fault(Side::Target, &self.name, "cannot be synced", &error))
    }

    fn named(&self, what: &str, result: io::Result<()>) -> Result<(), Fault> {
        result.map_err(|error| io_fault(Side::Target, &self.name, what, &error))
    }

    /// Whether this is a range of a file that comes in this session.
    #[must_use]
    pub fn is_range(&self) -> bool {
        matches!(&self.shape, Shape::Regular(part) if part.is_range_to_come())
    }

    /// Whether this is a range of a file, and somebody else still holds the file to write to it.
    /// The lock of a range is not the open file's, as that of a whole one is: it must not be let go
    /// of while a write is under way, which would land in what the next session has verified.
    #[must_use]
    pub fn is_range_still_written(&self) -> bool {
        matches!(&self.shape, Shape::Regular(part) if part.is_claim_still_written())
    }

    /// Lets go of the file: the temporary stays when there is a journal that makes use of it.
    pub fn give_up(self, keep: bool) {
        match self.shape {
            Shape::Regular(part) if keep && part.is_of_use() => part.leave(),
            Shape::Regular(part) => part.remove(),
            Shape::Written { root } => {
                if let Ok((parent, last)) = root.parent_of(&self.name) {
                    let _ = unlinkat(&parent, last, AtFlags::empty());
                }
            }
            Shape::Link { root, link_name, .. } => {
                if let Ok((parent, _)) = root.parent_of(&self.name) {
                    let _ = unlinkat(&parent, &*link_name, AtFlags::empty());
                }
            }
            _ => {}
        }
    }
}

/// Sink that all files share: a peer that offers thousands of directories takes no descriptor with
/// each.
fn sink() -> io::Result<Arc<SpanFile>> {
    static SINK: OnceLock<Arc<SpanFile>> = OnceLock::new();
    if let Some(sink) = SINK.get() {
        return Ok(sink.clone());
    }
    let opened = Arc::new(SpanFile::sink()?);
    Ok(SINK.get_or_init(|| opened).clone())
}

fn make_link(
    root: &Root,
    name: &[u8],
    part: &[u8],
    offer: &FileOffer,
    rules: &TargetRules,
) -> io::Result<()> {
    let (parent, _) = root.parent_of(name)?;
    let mut made = symlinkat(&*offer.link_target, &parent, part);
    if made == Err(Errno::EXIST) {
        // Of a run that died; or of one that goes on, which makes it again.
        let _ = unlinkat(&parent, part, AtFlags::empty());
        made = symlinkat(&*offer.link_target, &parent, part);
    }
    made?;
    rules.attributes.apply_to_link(&parent, part, offer)
}

fn publish_link(
    root: &Root,
    name: &[u8],
    part: &[u8],
    offer: &FileOffer,
    rules: &TargetRules,
) -> io::Result<()> {
    let (parent, last) = root.parent_of(name)?;
    let mut renamed = renameat(&parent, part, &parent, last);
    if renamed == Err(Errno::NOENT) && offer.kind == FileKind::Symlink {
        // Somebody else made the same link meanwhile, and took this one for a leftover.
        make_link(root, name, part, offer, rules)?;
        renamed = renameat(&parent, part, &parent, last);
    }
    // Of two names of one inode rename(2) leaves both.
    if renamed.is_err() || statat(&parent, part, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        let _ = unlinkat(&parent, part, AtFlags::empty());
    }
    Ok(renamed?)
}

#[cfg(test)]
mod tests;
