//! Files being received: a hidden temporary beside the final name, preallocated and locked, and
//! renamed only when it is complete, verified and synced.
//!
//! `NAME` is received as `.NAME.haul-part` with `.NAME.haul-journal` beside it. The lock is
//! flock(2) on the temporary, so it ends with the process that holds it, however that dies.

use super::{
    journal::{Identity, Journal},
    root::{Links, Root, join, split_last},
};
use crate::{
    error::io_fault,
    token::{Token, hex, random_bytes},
};
use haul_datapath::SpanFile;
use haul_host::FileSystem;
use haul_protocol::{
    SpanGrid, SpanSet,
    limits::COMPONENT_BYTES_MAX,
    wire::{Digest, Fault, FaultCode, FileKind, FileOffer, Side, SpanRange},
};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps,
        fallocate, fchmod, flock, fstat, fsync, futimens, openat, renameat, statat, symlinkat,
        unlinkat, utimensat,
    },
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const PART_SUFFIX: &[u8] = b".haul-part";
const JOURNAL_SUFFIX: &[u8] = b".haul-journal";

/// How long a lock is waited for: its holder may be a session that is just ending.
const LOCK_PATIENCE: Duration = Duration::from_millis(1500);
/// The same while a session of this process is known to be ending, which can take a sync.
/// Less than the time after which a silent side is given up.
const LOCK_PATIENCE_ENDING: Duration = Duration::from_secs(12);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// Only permission bits arrive: set-user-id bits from elsewhere would be a way in.
const MODE_BITS: u32 = 0o777;

/// Sessions of this process that are ending and will let go of their locks.
pub static SESSIONS_ENDING: AtomicU32 = AtomicU32::new(0);

/// Whether a name is one of haul's own temporaries.
#[must_use]
pub fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && (name.ends_with(PART_SUFFIX) || name.ends_with(JOURNAL_SUFFIX))
}

fn hidden_name(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    if 1 + name.len() + JOURNAL_SUFFIX.len() <= COMPONENT_BYTES_MAX {
        [b".", name, suffix].concat()
    } else {
        [b".", hex(&Token::secret_hash(name)).as_bytes(), suffix].concat()
    }
}

/// Where what is received goes.
#[derive(Clone, Debug)]
pub enum TargetPlace {
    /// Nowhere: `null:`.
    Null,
    Below {
        root: Arc<Root>,
        base: Vec<u8>,
        /// The new name of the one source; `None`: sources keep theirs.
        rename: Option<Vec<u8>>,
    },
}

/// An offer, looked at.
#[derive(Debug)]
pub enum Prepared {
    /// What is there is the same.
    Skip,
    Ready {
        target: TargetFile,
        span_bytes: u64,
        durable: SpanSet,
    },
}

impl TargetPlace {
    /// Finds where `path` below `root` is: a directory to receive into, or the one file's new name.
    ///
    /// # Errors
    /// If the name is refused or the directory cannot be made.
    pub fn resolve(root: &Arc<Root>, path: &[u8], into_directory: bool) -> Result<Self, Fault> {
        if path == b"null:" {
            return Ok(Self::Null);
        }
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let failed = |error: io::Error| {
            io_fault(Side::Target, path, "the target directory cannot be made", &error)
        };
        if !trimmed.is_empty()
            && let Err(why) = haul_protocol::name::check_relative_name(trimmed)
        {
            return Err(name_refused(path, why));
        }
        if trimmed.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(path, "haul's own temporaries have such names"));
        }
        let root = root.clone();
        if into_directory
            || trimmed.is_empty()
            || path.ends_with(b"/")
            || root.is_directory(trimmed)
        {
            make_durable_directories(&root, trimmed).map_err(failed)?;
            return Ok(Self::Below { root, base: trimmed.to_vec(), rename: None });
        }
        let (base, name) = split_last(trimmed);
        make_durable_directories(&root, base).map_err(failed)?;
        Ok(Self::Below { root, base: base.to_vec(), rename: Some(name.to_vec()) })
    }

    /// Makes ready to receive what is offered.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn prepare(
        &self,
        offer: &FileOffer,
        span_bytes: u64,
        digest: Digest,
    ) -> Result<Prepared, Fault> {
        let count = |span_bytes| {
            SpanGrid::new(offer.size_bytes, span_bytes)
                .map(|grid| grid.count())
                .map_err(|error| Fault::new(FaultCode::ProtocolViolation, Side::Target, error.what))
        };
        let Self::Below { root, base, rename } = self else {
            let target = TargetFile::new(offer, offer.name.clone(), Shape::Null);
            let durable = SpanSet::new(count(span_bytes)?);
            return Ok(Prepared::Ready { target, span_bytes, durable });
        };
        let name = final_name(base, rename.as_deref(), &offer.name);
        if name.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(&name, "haul's own temporaries have such names"));
        }
        let ready = |shape, span_bytes, durable| {
            Ok(Prepared::Ready {
                target: TargetFile::new(offer, name.clone(), shape),
                span_bytes,
                durable,
            })
        };
        let failed = |error: io::Error| io_fault(Side::Target, &name, "cannot be made", &error);
        match offer.kind() {
            FileKind::Directory if root.is_directory(&name) => Ok(Prepared::Skip),
            FileKind::Directory => {
                let changed = root.make_directories(&name).map_err(failed)?;
                ready(Shape::Directory { changed }, span_bytes, SpanSet::new(0))
            }
            FileKind::Symlink if same_link(root, &name, &offer.link_target) => Ok(Prepared::Skip),
            FileKind::Symlink => {
                let number: [u8; 8] = random_bytes().map_err(failed)?;
                let link_name = hidden_name(hex(&number).as_bytes(), PART_SUFFIX);
                let root = root.clone();
                ready(Shape::Symlink { root, link_name }, span_bytes, SpanSet::new(0))
            }
            FileKind::Regular if same_file(root, &name, offer) => {
                remove_leftovers(root, &name);
                Ok(Prepared::Skip)
            }
            FileKind::Regular => {
                let spans = count(span_bytes)?;
                let wanted = Wanted { span_bytes, spans, digest };
                let (part, span_bytes, durable) = Part::open(root, &name, offer, &wanted)?;
                ready(Shape::Regular(Box::new(part)), span_bytes, durable)
            }
            FileKind::Unknown => {
                let what = "is of a kind that this version does not know";
                Err(Fault::new(FaultCode::KindUnsupported, Side::Target, what).at(name))
            }
        }
    }

    /// A directory's mode and time, once everything below it is in place.
    pub fn finish_directory(&self, offer: &FileOffer) {
        let Self::Below { root, base, rename } = self else { return };
        let name = final_name(base, rename.as_deref(), &offer.name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Ok(directory) = root.open_beneath(&name, flags, Mode::empty(), Links::Refuse) {
            // A directory that belongs to someone else keeps its own.
            let _ = fchmod(&directory, Mode::from_raw_mode(offer.mode & MODE_BITS));
            let _ = futimens(&directory, &times_of(offer));
        }
    }
}

fn make_durable_directories(root: &Root, name: &[u8]) -> io::Result<()> {
    sync_each(&root.make_directories(name)?)
}

fn sync_each(directories: &[OwnedFd]) -> io::Result<()> {
    directories.iter().try_for_each(|directory| Ok(fsync(directory)?))
}

fn final_name(base: &[u8], rename: Option<&[u8]>, offered: &[u8]) -> Vec<u8> {
    match rename {
        None => join(base, offered),
        Some(new) => match offered.iter().position(|&byte| byte == b'/') {
            Some(at) => join(&join(base, new), &offered[at + 1..]),
            None => join(base, new),
        },
    }
}

fn name_refused(name: &[u8], why: &str) -> Fault {
    Fault::new(FaultCode::NameRefused, Side::Target, "the name is refused")
        .at(name)
        .needs("a name below the target's root, without `.` and `..`")
        .found(why)
}

fn same_file(root: &Root, name: &[u8], offer: &FileOffer) -> bool {
    root.stat(name, Links::Refuse).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size) == Ok(offer.size_bytes)
            && stat.st_mtime == offer.mtime_s
            && u32::try_from(stat.st_mtime_nsec) == Ok(offer.mtime_ns)
            && has_time(offer)
    })
}

fn same_link(root: &Root, name: &[u8], link: &[u8]) -> bool {
    root.parent_of(name).is_ok_and(|(parent, last)| {
        rustix::fs::readlinkat(parent, last, Vec::new()).is_ok_and(|found| found.to_bytes() == link)
    })
}

/// What a run that died between renaming and tidying left.
fn remove_leftovers(root: &Root, name: &[u8]) {
    let Ok((parent, last)) = root.parent_of(name) else { return };
    let part = hidden_name(last, PART_SUFFIX);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(&parent, &*part, flags, Mode::empty()) {
        // Somebody receives to this name just now: theirs.
        Ok(file) if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() => return,
        Ok(_) => {
            let _ = unlinkat(&parent, &*part, AtFlags::empty());
        }
        Err(_) => {}
    }
    let _ = unlinkat(&parent, &*hidden_name(last, JOURNAL_SUFFIX), AtFlags::empty());
}

/// `zero:` has no time of its own, as it is no file.
fn has_time(offer: &FileOffer) -> bool {
    (offer.inode, offer.device) != (0, 0)
}

fn times_of(offer: &FileOffer) -> Timestamps {
    let mtime = Timespec { tv_sec: offer.mtime_s, tv_nsec: offer.mtime_ns.into() };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Timestamps { last_access: omit, last_modification: mtime }
}

/// Something that is being received.
#[derive(Debug)]
pub struct TargetFile {
    pub offer: FileOffer,
    /// Below the root.
    pub name: Vec<u8>,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Null,
    Directory {
        /// The directories in which it, and those above it, are new.
        changed: Vec<OwnedFd>,
    },
    /// With the name that it has until it is published: one of its own, for no lock protects it.
    Symlink {
        root: Arc<Root>,
        link_name: Vec<u8>,
    },
    Regular(Box<Part>),
}

impl TargetFile {
    fn new(offer: &FileOffer, name: Vec<u8>, shape: Shape) -> Self {
        Self { offer: offer.clone(), name, shape }
    }

    /// What engines write to.
    ///
    /// # Errors
    /// If `null:` cannot be opened.
    pub fn span_file(&self) -> io::Result<Arc<SpanFile>> {
        match &self.shape {
            Shape::Regular(part) => Ok(part.file.clone()),
            _ => Ok(Arc::new(SpanFile::sink()?)),
        }
    }

    /// Syncs what was written so far and journals these spans: from now on they are durable.
    ///
    /// # Errors
    /// The fault that ends this file.
    pub fn make_durable(&mut self, spans: &[SpanRange]) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        part.make_durable(spans)
            .map_err(|error| io_fault(Side::Target, &self.name, "cannot be synced", &error))
    }

    /// The first step of a commit: mode and time of the complete file.
    ///
    /// # Errors
    /// The fault that ends this file; the temporary stays for the next run.
    pub fn seal(&mut self) -> Result<(), Fault> {
        let result = match &mut self.shape {
            Shape::Null | Shape::Directory { .. } => Ok(()),
            Shape::Symlink { root, link_name } => {
                make_link(root, &self.name, link_name, &self.offer)
            }
            Shape::Regular(part) => part.seal(&self.offer),
        };
        self.named("cannot be given its mode and time", result)
    }

    /// The second step: content, mode and time are durable.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn sync(&mut self) -> Result<(), Fault> {
        let Shape::Regular(part) = &mut self.shape else { return Ok(()) };
        let synced = part.sync();
        self.named("cannot be synced", synced)
    }

    /// The third step: the final name.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn publish(&mut self) -> Result<(), Fault> {
        let result = match &mut self.shape {
            Shape::Null | Shape::Directory { .. } => Ok(()),
            Shape::Symlink { root, link_name } => publish_link(root, &self.name, link_name),
            Shape::Regular(part) => part.publish(),
        };
        self.named("cannot be put under its name", result)
    }

    /// The fourth step: the name is durable.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn sync_directory(&self) -> Result<(), Fault> {
        let result = match &self.shape {
            Shape::Null => Ok(()),
            Shape::Directory { changed } => sync_each(changed),
            Shape::Symlink { root, .. } => {
                root.parent_of(&self.name).and_then(|(parent, _)| Ok(fsync(&parent)?))
            }
            Shape::Regular(part) => fsync(&part.directory).map_err(io::Error::from),
        };
        self.named("its directory cannot be synced", result)
    }

    /// Calls `each` with every directory that its name, or those above it, are entered in.
    ///
    /// # Errors
    /// If one cannot be opened, or what `each` returns.
    pub fn each_directory(
        &self,
        mut each: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match &self.shape {
            Shape::Null => Ok(()),
            Shape::Directory { changed } => changed.iter().try_for_each(|fd| each(fd.as_fd())),
            Shape::Symlink { root, .. } => each(root.parent_of(&self.name)?.0.as_fd()),
            Shape::Regular(part) => each(part.directory.as_fd()),
        }
    }

    fn named(&self, what: &str, result: io::Result<()>) -> Result<(), Fault> {
        result.map_err(|error| io_fault(Side::Target, &self.name, what, &error))
    }

    /// Lets go of it: the temporary stays when there is a journal that makes use of it.
    pub fn give_up(self, keep: bool) {
        match self.shape {
            Shape::Regular(part) if !(keep && part.journal.is_some()) => part.remove(),
            Shape::Symlink { root, link_name } => {
                if let Ok((parent, _)) = root.parent_of(&self.name) {
                    let _ = unlinkat(&parent, &*link_name, AtFlags::empty());
                }
            }
            _ => {}
        }
    }
}

fn make_link(root: &Root, name: &[u8], part: &[u8], offer: &FileOffer) -> io::Result<()> {
    let (parent, _) = root.parent_of(name)?;
    symlinkat(&*offer.link_target, &parent, part)?;
    // A file system that keeps no times of links is no reason to fail.
    let _ = utimensat(&parent, part, &times_of(offer), AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}

fn publish_link(root: &Root, name: &[u8], part: &[u8]) -> io::Result<()> {
    let (parent, last) = root.parent_of(name)?;
    let renamed = renameat(&parent, part, &parent, last);
    if renamed.is_err() {
        let _ = unlinkat(&parent, part, AtFlags::empty());
    }
    Ok(renamed?)
}

/// How a file shall be received.
struct Wanted {
    span_bytes: u64,
    spans: u32,
    digest: Digest,
}

/// The temporary of a regular file.
#[derive(Debug)]
struct Part {
    directory: OwnedFd,
    final_name: Vec<u8>,
    part_name: Vec<u8>,
    journal_name: Vec<u8>,
    file: Arc<SpanFile>,
    /// `None` for a file of one span: it is moved whole or not at all.
    journal: Option<Journal>,
    /// The directory entries of temporary and journal are durable.
    entered: bool,
    /// A sync failed. The kernel reports that once and may have dropped the pages (fsync(2)), so
    /// nothing of this file is believed any more.
    poisoned: bool,
    /// It has its final name: what lies under the temporary's name now is somebody else's.
    published: bool,
}

impl Part {
    /// Opens, locks and preallocates; takes up what an earlier run left when it is of the same.
    fn open(
        root: &Root,
        name: &[u8],
        offer: &FileOffer,
        wanted: &Wanted,
    ) -> Result<(Self, u64, SpanSet), Fault> {
        let Wanted { span_bytes, spans, digest } = *wanted;
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let (directory, last) = root.parent_of(name).map_err(failed)?;
        if root.is_directory(name) {
            let what = "a directory of that name is there";
            let fault = Fault::new(FaultCode::NameRefused, Side::Target, what).at(name);
            return Err(fault.hint("remove it, or choose another target"));
        }
        let part_name = hidden_name(last, PART_SUFFIX);
        let journal_name = hidden_name(last, JOURNAL_SUFFIX);
        let file = open_locked(&directory, &part_name, name)?;
        let identity = identity_of(&file, offer, name, digest).map_err(failed)?;
        let mut part = Self {
            directory,
            final_name: last.to_vec(),
            part_name,
            journal_name,
            file: Arc::new(SpanFile::new(file)),
            journal: None,
            entered: false,
            poisoned: false,
            published: false,
        };
        if spans > 1
            && let Some((span_bytes, durable)) = part.resume(&identity)
        {
            part.preallocate(offer.size_bytes, name)?;
            return Ok((part, span_bytes, durable));
        }
        let fresh = part.start_anew(&identity, span_bytes, spans, name);
        if let Err(fault) = fresh {
            part.remove();
            return Err(fault);
        }
        Ok((part, span_bytes, SpanSet::new(spans)))
    }

    fn open_journal(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &*self.journal_name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    fn resume(&mut self, identity: &Identity) -> Option<(u64, SpanSet)> {
        let (journal, span_bytes, durable) = Journal::resume(self.open_journal().ok()?, identity)?;
        // A temporary that was cut since does not hold what the journal says.
        let size = self.file.file().metadata().ok()?.len();
        (size == identity.size_bytes).then(|| {
            self.journal = Some(journal);
            (span_bytes, durable)
        })
    }

    fn start_anew(
        &mut self,
        identity: &Identity,
        span_bytes: u64,
        spans: u32,
        name: &[u8],
    ) -> Result<(), Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be prepared", &error);
        // The journal first: while it is there, it must not speak of other bytes than these.
        let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
        self.file.file().set_len(0).map_err(failed)?;
        self.preallocate(identity.size_bytes, name)?;
        if spans > 1 {
            let journal = self.open_journal().map_err(failed)?;
            self.journal = Some(Journal::begin(journal, identity, span_bytes).map_err(failed)?);
        }
        Ok(())
    }

    /// Takes the space now, so that a full disk is known before the first byte.
    fn preallocate(&self, size_bytes: u64, name: &[u8]) -> Result<(), Fault> {
        if size_bytes == 0 {
            return Ok(());
        }
        let file = self.file.file();
        let result = loop {
            match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        match result {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let free = FileSystem::of(file).map_or(u64::MAX, |system| system.free_bytes);
                if free < size_bytes {
                    return Err(no_space(name, size_bytes, free));
                }
                file.set_len(size_bytes).map_err(|error| {
                    io_fault(Side::Target, name, "cannot be given its size", &error)
                })
            }
            Err(Errno::NOSPC | Errno::DQUOT) => {
                let free = FileSystem::of(file).map_or(0, |system| system.free_bytes);
                Err(no_space(name, size_bytes, free))
            }
            Err(errno) => {
                Err(io_fault(Side::Target, name, "cannot be preallocated", &errno.into()))
            }
        }
    }

    fn make_durable(&mut self, spans: &[SpanRange]) -> io::Result<()> {
        self.check()?;
        self.poisoned = true;
        self.file.file().sync_data()?;
        if let Some(journal) = &mut self.journal {
            journal.record(spans)?;
        }
        self.poisoned = false;
        if self.journal.is_none() {
            return Ok(());
        }
        if !self.entered {
            fsync(&self.directory)?;
            self.entered = true;
        }
        Ok(())
    }

    /// # Errors
    /// If an earlier sync failed, or the temporary is not under its name any more.
    fn check(&self) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("an earlier sync of it failed"));
        }
        if self.is_there() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "somebody took its temporary away"))
    }

    /// Whether the temporary's name still is this very file's.
    fn is_there(&self) -> bool {
        let there = statat(&self.directory, &*self.part_name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = fstat(self.file.file());
        matches!((there, ours), (Ok(there), Ok(ours))
            if (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.check()?;
        self.poisoned = true;
        self.file.file().sync_all()?;
        self.poisoned = false;
        Ok(())
    }

    fn seal(&self, offer: &FileOffer) -> io::Result<()> {
        self.check()?;
        let file = self.file.file();
        fchmod(file, Mode::from_raw_mode(offer.mode & MODE_BITS))?;
        if has_time(offer) {
            futimens(file, &times_of(offer))?;
        }
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        self.check()?;
        // It has nothing more to say, and as long as the temporary is ours so is the journal.
        if self.journal.take().is_some() {
            let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
        }
        renameat(&self.directory, &*self.part_name, &self.directory, &*self.final_name)?;
        self.published = true;
        Ok(())
    }

    fn remove(&self) {
        if self.published || !self.is_there() {
            return;
        }
        let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
        let _ = unlinkat(&self.directory, &*self.part_name, AtFlags::empty());
    }
}

fn no_space(name: &[u8], needs: u64, found: u64) -> Fault {
    Fault::new(FaultCode::NoSpace, Side::Target, "does not fit")
        .at(name)
        .needs(format!("{needs} bytes of free space"))
        .found(format!("{found} bytes"))
        .hint("free space there, then run the same command again")
}

fn identity_of(
    part: &File,
    offer: &FileOffer,
    name: &[u8],
    digest: Digest,
) -> io::Result<Identity> {
    let stat = fstat(part)?;
    let hash = Token::secret_hash(name);
    Ok(Identity {
        size_bytes: offer.size_bytes,
        mtime_s: offer.mtime_s,
        mtime_ns: offer.mtime_ns,
        source_inode: offer.inode,
        source_device: offer.device,
        target_inode: stat.st_ino,
        target_device: stat.st_dev,
        digest: digest as u32,
        name_hash: hash[..16].try_into().expect("half of 32 bytes"),
    })
}

/// Opens the temporary, made when missing, and locks it: a second writer is refused while the
/// first lives.
fn open_locked(directory: &impl AsFd, part: &[u8], name: &[u8]) -> Result<File, Fault> {
    let begun = Instant::now();
    let failed = |errno: Errno| {
        io_fault(Side::Target, name, "the temporary cannot be opened", &errno.into())
    };
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    loop {
        let file = openat(directory, part, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        let opened = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile || opened.st_nlink > 1 {
            let what = "something else stands where the temporary belongs";
            return Err(Fault::new(FaultCode::NameRefused, Side::Target, what).at(name));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // The holder before us may have renamed it away meanwhile.
                let there = statat(directory, part, AtFlags::SYMLINK_NOFOLLOW);
                if there.is_ok_and(|now| (now.st_ino, now.st_dev) == (opened.st_ino, opened.st_dev))
                {
                    return Ok(file.into());
                }
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let ending = SESSIONS_ENDING.load(Ordering::Relaxed) > 0;
                let patience = if ending { LOCK_PATIENCE_ENDING } else { LOCK_PATIENCE };
                if begun.elapsed() > patience {
                    return Err(locked(name));
                }
                thread::sleep(LOCK_POLL);
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}

fn locked(name: &[u8]) -> Fault {
    Fault::new(FaultCode::Locked, Side::Target, "another transfer is writing to it")
        .at(name)
        .needs("to be the only writer")
        .found("a live one that holds the lock")
        .hint("let that one end, or stop it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const PART: &str = ".x.haul-part";

    fn offer(name: &[u8], size_bytes: u64) -> FileOffer {
        let kind = FileKind::Regular as i32;
        FileOffer { name: name.to_vec(), kind, size_bytes, inode: 1, ..FileOffer::default() }
    }

    fn place(directory: &Path) -> TargetPlace {
        TargetPlace::resolve(&Root::open(directory).unwrap(), b"", true).unwrap()
    }

    fn prepared(directory: &Path, size_bytes: u64) -> TargetFile {
        let offer = offer(b"x", size_bytes);
        match place(directory).prepare(&offer, 64 << 10, Digest::AesGmac).unwrap() {
            Prepared::Ready { target, .. } => target,
            Prepared::Skip => panic!("nothing is there yet"),
        }
    }

    #[test]
    fn a_commit_touches_its_own_temporary_only() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join(PART);
        let mut target = prepared(directory.path(), 4);
        target.seal().unwrap();
        // Somebody else's file stands there now.
        std::fs::remove_file(&part).unwrap();
        std::fs::write(&part, b"theirs").unwrap();
        assert!(target.publish().is_err());
        assert!(!directory.path().join("x").exists());
        target.give_up(false);
        assert_eq!(std::fs::read(&part).unwrap(), b"theirs");
    }

    #[test]
    fn what_is_published_leaves_the_next_writers_temporary_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = prepared(directory.path(), 4);
        first.seal().unwrap();
        first.sync().unwrap();
        first.publish().unwrap();
        let next = prepared(directory.path(), 5);
        first.give_up(true);
        assert!(directory.path().join(PART).exists());
        next.give_up(false);
        assert!(!directory.path().join(PART).exists() && directory.path().join("x").exists());
    }

    #[test]
    fn after_a_failed_sync_nothing_of_the_file_is_published() {
        let directory = tempfile::tempdir().unwrap();
        let mut target = prepared(directory.path(), 4);
        let Shape::Regular(part) = &mut target.shape else { panic!("a regular file") };
        part.poisoned = true;
        assert!(target.make_durable(&[]).is_err() && target.sync().is_err());
        assert!(target.seal().is_err() && target.publish().is_err());
    }

    #[test]
    fn hauls_own_names_are_refused_wherever_they_stand() {
        let directory = tempfile::tempdir().unwrap();
        for name in [&b".a.haul-part"[..], b".a.haul-part/b", b"d/.a.haul-journal"] {
            let refused = place(directory.path()).prepare(&offer(name, 4), 64 << 10, Digest::None);
            assert_eq!(refused.unwrap_err().code(), FaultCode::NameRefused);
        }
    }
}
