//! Temporary of a regular file that is being received. It is made, locked, preallocated, written,
//! synced and renamed.

pub mod earlier_ranges;
pub mod growing;
mod publish;
mod range;
mod strangers;

use super::{
    aborted::{check_not_aborted, sync_directory},
    attributes::{Attributes, MODE_BITS},
    hidden_names::{JOURNAL_SUFFIX, PART_SUFFIX, hidden_name},
    holes,
    journal::{Circumstances, Identity, Journal, Recorded, Told},
    locked::{create_locked, in_the_way, open_locked},
    open_files::Pass,
    ranges::{Claim, site::Directory},
    root::{Root, join, split_last},
    span_digests::{SpanDigests, outside_holes},
};
use crate::{
    bytes::{hex, random_bytes},
    clocks::boot,
    content::FileContent,
    error::io_fault,
    storage::attributes::has_time,
    token::Token,
};
use earlier_ranges::EarlierRanges;
use haul_datapath::SpanFile;
use haul_host::FileSystem;
use haul_protocol::{
    SpanGrid, SpanSet,
    message::{Digest, Extent, Fault, FaultCode, FileOffer, Growth, Side},
};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, Stat, fallocate, fstat, fstatvfs, openat, statat,
        unlinkat,
    },
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

/// Size from which on the free space is looked at before any is taken: fallocate(2) of more than
/// there is takes all of it until it fails, and others find none meanwhile.
const LOOK_FIRST_FROM_BYTES: u64 = 1 << 20;

/// Most tries for space that is there and was not given; the pauses between them begin with
/// [`TAKE_AGAIN_AFTER`] and grow.
const TAKES_MAX: u32 = 8;
const TAKE_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Conditions under which a file is received.
pub(super) struct Wanted {
    pub span_bytes: u64,
    pub spans: u32,
    pub digest: Digest,
    /// Whether what an earlier run left is read back before it is believed.
    pub recheck: bool,
}

/// The rest that an earlier run left of a file.
#[derive(Clone, Debug)]
pub struct Left {
    /// Change time of the source's inode when the first bytes came; zeros where it is not known.
    pub ctime: (i64, u32),
    pub digests: SpanDigests,
    pub content: FileContent,
    /// Reason for reading back what was left.
    pub suspicion: Option<Suspicion>,
}

/// Reason why what an earlier run left is not believed before it was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// The user asked for it (`--recheck`).
    Asked,
    /// The host started anew since, and what was in memory when it stopped is gone.
    StartedAnew,
    /// The file system has another number, as btrfs may at each mount.
    MountedAnew,
    /// An earlier session was to read the range back, or found that bytes of it are lost.
    Doubted,
    /// Another program wrote to the temporary, cut it, or put another in its place.
    ChangedSince,
}

/// Way in which a file of at most one span comes to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// The file is renamed, and locked until then.
    Locked,
    /// The file has no name before its final one, for this session made its directory and nothing
    /// can be in its way.
    Linked,
    /// The file is made under its own name, for its directory is hidden until all of it is there.
    Staged,
    /// The file is only measured and gets no name.
    Never,
}

/// The temporary of a regular file.
#[derive(Debug)]
pub(super) struct Part {
    pub directory: Arc<OwnedFd>,
    final_name: Vec<u8>,
    part_name: Vec<u8>,
    journal_name: Vec<u8>,
    pub file: Arc<SpanFile>,
    /// Number and device of the file's inode.
    inode: (u64, u64),
    /// Journal of the file; `None` for one of one span, which is moved whole or not at all.
    pub journal: Option<Journal>,
    /// Whether the journal names some span, so that a later run can go on from here.
    has_durable: bool,
    /// Way in which a file that grows is cut; `None` for any other.
    rounds: Option<growing::Rounds>,
    /// Whether the directory entries of temporary and journal are durable.
    entered: bool,
    /// Whether a sync failed. The kernel reports that once and may have dropped the pages
    /// (fsync(2)), so nothing of this file is believed any more.
    pub poisoned: bool,
    /// Whether the file has mode and time already.
    sealed: bool,
    /// Permission bits that the file was made with, where they are its own already.
    mode: Option<u32>,
    /// Whether the file has no name at all before its final one (O_TMPFILE, open(2)): nobody can
    /// lay hands on it, and nothing of it outlives this process.
    nameless: bool,
    /// Whether the file never gets a name, for it was only measured.
    discarded: bool,
    /// Pass of a small file; given back when the file is closed.
    pass: Option<Pass>,
    /// Claim of the range that comes, of a file that other sessions bring the rest of.
    claim: Option<Claim<Directory>>,
    /// Identity of the file that the range is of, but for its size and name.
    whole_identity: Option<Identity>,
    /// Whether ranges that came before this host was started were to be read back.
    has_looked_back: bool,
    /// Reason why they are not all there.
    missing: Option<String>,
}

/// A temporary that was opened, its span size, the spans that are durable, and what an earlier run
/// left.
pub(super) type Opened = (Part, u64, SpanSet, Option<Left>);

/// Outcome of giving a file its name.
#[derive(Debug)]
pub(super) enum Published {
    Named(Named),
    /// The file gets its name once these were read back.
    Awaits(Box<EarlierRanges>),
}

/// Rest of a file that was given its name and is closed.
#[derive(Debug)]
pub(super) struct Named {
    pub directory: Arc<OwnedFd>,
    pub device: u64,
    /// Whether the file was only measured, and has no name.
    pub discarded: bool,
}

impl Part {
    /// Opens, locks and preallocates the temporary of a file of several spans; takes up what an
    /// earlier run left of this very file.
    pub fn open(
        root: &Root,
        name: &[u8],
        offer: &FileOffer,
        wanted: &Wanted,
    ) -> Result<Opened, Fault> {
        let Wanted { span_bytes, spans, digest, .. } = *wanted;
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let (directory, last) = root.parent_of(name).map_err(failed)?;
        let file = open_locked(&directory, &hidden_name(last, PART_SUFFIX), name)?;
        let identity = identity_of(&file, offer, name, digest).map_err(failed)?;
        let inode = (identity.target_inode, identity.target_device);
        let mut part = Self::new(directory, last, file, inode);
        if let Some((told, suspicion)) = part.resume(&identity, offer, wanted) {
            part.preallocate(offer, name)?;
            let span_bytes = told.span_bytes;
            let taken = part.take_over(told, offer, suspicion);
            let (durable, left) = taken.map_err(failed)?;
            return Ok((part, span_bytes, durable, Some(left)));
        }
        let fresh = part.start_anew(&identity, span_bytes, offer, name);
        if let Err(fault) = fresh {
            part.remove();
            return Err(fault);
        }
        Ok((part, span_bytes, SpanSet::new(spans), None))
    }

    /// Takes over what an earlier run left, as far as it may be believed or read back.
    fn take_over(
        &mut self,
        told: Told,
        offer: &FileOffer,
        suspicion: Option<Suspicion>,
    ) -> io::Result<(SpanSet, Left)> {
        let Told { mut durable, digests, content, circumstances, span_bytes, .. } = told;
        if suspicion.is_some()
            && let Ok(grid) = SpanGrid::new(offer.size_bytes, span_bytes)
        {
            let mut unknown = outside_holes(&durable, &offer.holes, &grid);
            for span in durable.iter().filter(|span| digests.get(*span).is_some()) {
                unknown.remove(span);
            }
            self.lose(&unknown)?;
            durable.subtract(&unknown);
        }
        Ok((durable, Left { ctime: circumstances.ctime, digests, content, suspicion }))
    }

    /// Takes back what the journal said of these spans.
    pub fn lose(&mut self, spans: &SpanSet) -> io::Result<()> {
        let Some(journal) = self.journal.as_mut().filter(|_| !spans.is_empty()) else {
            return Ok(());
        };
        self.poisoned = true;
        journal.lose(&spans.to_ranges())?;
        self.poisoned = false;
        Ok(())
    }

    /// Notes that what is durable was read back in this boot, and is as the journal says.
    pub fn confirm_boot(&mut self) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let now = Circumstances { boot: boot(), ..journal.circumstances() };
        journal.confirm(now)
    }

    /// Opens the temporary of a file of at most one span: nothing of an earlier run is of use to
    /// it. Without a name until its end it may have the permission bits `mode` from the beginning.
    pub fn begin_whole(
        root: &Root,
        name: &[u8],
        naming: Naming,
        mode: u32,
        pass: Option<Pass>,
    ) -> Result<Self, Fault> {
        if naming == Naming::Never {
            return Self::begin_discarded(root, name, pass);
        }
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let (directory, last) = root.parent_of(name).map_err(failed)?;
        if matches!(naming, Naming::Linked | Naming::Staged)
            && let Some((file, stat)) = create_nameless(&directory, mode).map_err(failed)?
        {
            let part = Self::new(directory, last, file, (stat.st_ino, stat.st_dev));
            // The umask, or an ACL of the directory, may have taken bits away.
            let mode = Some(stat.st_mode & MODE_BITS);
            return Ok(Self { nameless: true, mode, pass, ..part });
        }
        let part_name = hidden_name(last, PART_SUFFIX);
        let created = create_locked(&directory, &part_name).map_err(failed)?;
        let (file, inode, is_new) = match created {
            Some((file, inode)) => (file, inode, true),
            None => {
                let file = open_locked(&directory, &part_name, name)?;
                let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
                (file, (stat.st_ino, stat.st_dev), false)
            }
        };
        // The journal of an earlier run first: while it is there, it must not speak of other bytes.
        // It may be there alone, for a crash keeps of two new names whichever it likes.
        let _ = unlinkat(&directory, &*hidden_name(last, JOURNAL_SUFFIX), AtFlags::empty());
        if !is_new {
            file.set_len(0).map_err(failed)?;
        }
        Ok(Self { pass, ..Self::new(directory, last, file, inode) })
    }

    /// Opens a file that never gets a name, for what is only measured, where `name` would be or in
    /// the nearest directory above that is there.
    pub fn begin_discarded(root: &Root, name: &[u8], pass: Option<Pass>) -> Result<Self, Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let last = split_last(name).1;
        let above = nearest_directory(root, split_last(name).0);
        let (directory, _) = root.parent_of(&join(above, last)).map_err(failed)?;
        let mode = 0o600;
        let (file, stat) = match create_nameless(&directory, mode).map_err(failed)? {
            Some(created) => created,
            None => create_unlinked(&directory).map_err(failed)?,
        };
        let part = Self::new(directory, last, file, (stat.st_ino, stat.st_dev));
        Ok(Self { nameless: true, discarded: true, pass, ..part })
    }

    fn new(directory: Arc<OwnedFd>, last: &[u8], file: File, inode: (u64, u64)) -> Self {
        Self {
            directory,
            final_name: last.to_vec(),
            part_name: hidden_name(last, PART_SUFFIX),
            journal_name: hidden_name(last, JOURNAL_SUFFIX),
            file: Arc::new(SpanFile::new(file)),
            inode,
            journal: None,
            has_durable: false,
            rounds: None,
            entered: false,
            poisoned: false,
            sealed: false,
            mode: None,
            nameless: false,
            discarded: false,
            pass: None,
            claim: None,
            whole_identity: None,
            has_looked_back: false,
            missing: None,
        }
    }

    pub fn inode(&self) -> (u64, u64) {
        self.inode
    }

    /// Device of the file, and so of its directory: a mount begins at a directory.
    pub fn device(&self) -> u64 {
        self.inode.1
    }

    /// Takes up what the journal says, in spans of at most `wanted_bytes`, but where larger ones
    /// are to be read back first.
    fn resume(
        &mut self,
        identity: &Identity,
        offer: &FileOffer,
        wanted: &Wanted,
    ) -> Option<(Told, Option<Suspicion>)> {
        // To take the journal up gives it another ctime.
        let is_changed = self.claim.is_none() && self.was_changed_since();
        let (mut journal, mut told) = Journal::resume(self.open_journal().ok()?, identity)?;
        // A temporary that was cut since does not hold what the journal says.
        let size = identity.size_bytes;
        if self.claim.is_none() && self.file.file().metadata().ok()?.len() != size {
            return None;
        }
        // Another source, unless its ctime is known: then the sender compares where that differs.
        let knows_ctimes =
            told.circumstances.ctime != (0, 0) && (offer.ctime_s, offer.ctime_ns) != (0, 0);
        if !told.has_source_device && !knows_ctimes {
            return None;
        }
        let is_doubted = self.claim.as_ref().is_some_and(|claim| claim.is_doubted);
        let suspicion = if wanted.recheck {
            Some(Suspicion::Asked)
        } else if told.circumstances.boot != boot() || boot() == [0; 16] {
            Some(Suspicion::StartedAnew)
        } else if is_doubted {
            Some(Suspicion::Doubted)
        } else if !told.has_target_device {
            Some(Suspicion::MountedAnew)
        } else {
            is_changed.then_some(Suspicion::ChangedSince)
        };
        // Smaller spans have no digests of what is to be read back, which a range may always be.
        if wanted.span_bytes < told.span_bytes
            && self.claim.is_none()
            && suspicion.is_none_or(|why| why == Suspicion::Asked)
            && let Ok(smaller) = SpanGrid::new(size, wanted.span_bytes)
        {
            (journal, told) = journal.cut_smaller(identity, &told, smaller).ok()?;
        }
        self.journal = Some(journal);
        self.has_durable = !told.durable.is_empty();
        Some((told, suspicion))
    }

    fn start_anew(
        &mut self,
        identity: &Identity,
        span_bytes: u64,
        offer: &FileOffer,
        name: &[u8],
    ) -> Result<(), Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be prepared", &error);
        // The journal first: while it is there, it must not speak of other bytes than these.
        if unlinkat(&self.directory, &*self.journal_name, AtFlags::empty()) == Err(Errno::ISDIR) {
            return Err(in_the_way(&self.journal_name, name, "a directory"));
        }
        if self.claim.is_none() {
            self.file.file().set_len(0).map_err(failed)?;
        }
        self.preallocate(offer, name)?;
        let journal = self.create_journal().map_err(failed)?;
        // A file that grows has another ctime with each byte.
        let grows = offer.growth != Growth::NotGrowing;
        let ctime = if grows { (0, 0) } else { (offer.ctime_s, offer.ctime_ns) };
        let now = Circumstances { ctime, boot: boot() };
        let begun = Journal::begin(journal, identity, span_bytes, now);
        self.journal = Some(begun.map_err(failed)?);
        Ok(())
    }

    /// Takes the space now, so that a full disk is known before the first byte; but none for holes.
    pub fn preallocate(&self, offer: &FileOffer, name: &[u8]) -> Result<(), Fault> {
        if self.claim.is_some() {
            return self.preallocate_range(offer, name);
        }
        self.preallocate_from(0, offer, name)
    }

    /// Takes the space from `begin_bytes` on: the space before has been taken.
    fn preallocate_from(
        &self,
        begin_bytes: u64,
        offer: &FileOffer,
        name: &[u8],
    ) -> Result<(), Fault> {
        let size_bytes = offer.size_bytes;
        if size_bytes <= begin_bytes {
            return Ok(());
        }
        let file = self.file.file();
        let data = || {
            let runs = holes::data_between(&offer.holes, size_bytes);
            runs.filter_map(|run| behind(&run, begin_bytes))
        };
        let before = fstat(file)
            .map_err(|errno| io_fault(Side::Target, name, "cannot be looked at", &errno.into()))?;
        // What it holds of the part before, which came already, is none of the room for this one.
        let has = u64::try_from(before.st_blocks).unwrap_or_default() * 512;
        let has = has.saturating_sub(begin_bytes);
        let needs = data().map(|run| run.len_bytes).sum::<u64>().saturating_sub(has);
        let free = || FileSystem::of(file).ok().and_then(|system| system.free_bytes);
        if needs >= LOOK_FIRST_FROM_BYTES && unused_bytes(file).is_some_and(|left| left < needs) {
            return Err(no_space(name, needs, free()));
        }
        let give_size = || {
            let given = file.set_len(size_bytes);
            given.map_err(|error| io_fault(Side::Target, name, "cannot be given its size", &error))
        };
        let mut tries = 0;
        while let Err(errno) =
            data().try_for_each(|run| take_space(file, run.offset_bytes, run.len_bytes))
        {
            match errno {
                Errno::OPNOTSUPP | Errno::NOSYS => {
                    let free = free();
                    if free.is_some_and(|free| free < needs) {
                        return Err(no_space(name, needs, free));
                    }
                    return give_size();
                }
                Errno::NOSPC | Errno::DQUOT => {
                    // What it took until it failed would not be found free.
                    let _ = file.set_len(u64::try_from(before.st_size).unwrap_or_default());
                    let free = free();
                    tries += 1;
                    if !may_try_again(free, needs, tries) {
                        return Err(no_space(name, needs, free));
                    }
                    // Others took some of it in vain at the same moment, and gave it back.
                    thread::sleep(TAKE_AGAIN_AFTER * tries);
                }
                errno => {
                    let what = "cannot be preallocated";
                    return Err(io_fault(Side::Target, name, what, &errno.into()));
                }
            }
        }
        if offer.holes.is_empty() { Ok(()) } else { give_size() }
    }

    pub fn make_durable(&mut self, recorded: Recorded<'_>) -> io::Result<()> {
        self.check()?;
        self.poisoned = true;
        self.file.file().sync_data()?;
        if let Some(journal) = &mut self.journal {
            match &self.rounds {
                // Only the last span of a round may be none: its digest is the last, too.
                Some(rounds) => {
                    let spans = &rounds.full_spans(recorded.spans);
                    journal.record(Recorded { spans, ..recorded })?;
                }
                None => journal.record(recorded)?,
            }
            self.has_durable |= !recorded.spans.is_empty();
        }
        check_not_aborted(&self.directory)?;
        self.poisoned = false;
        if self.journal.is_none() {
            return Ok(());
        }
        if !self.entered {
            sync_directory(&self.directory)?;
            self.entered = true;
        }
        Ok(())
    }

    /// Fails for a file that is not believed any more.
    ///
    /// # Errors
    /// If an earlier sync failed.
    fn check_believed(&self) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("an earlier sync of it failed"));
        }
        Ok(())
    }

    /// Fails for a temporary that is not believed any more, or that was taken away.
    ///
    /// # Errors
    /// If an earlier sync failed, or the temporary is not under its name any more.
    fn check(&self) -> io::Result<()> {
        self.check_believed()?;
        if self.nameless || self.is_there() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "somebody took its temporary away"))
    }

    /// Whether the temporary's name still is this very file's.
    fn is_there(&self) -> bool {
        let there = statat(&self.directory, &*self.part_name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| (there.st_ino, there.st_dev) == self.inode)
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_settled_range() {
            return Ok(());
        }
        self.check()?;
        self.poisoned = true;
        self.file.file().sync_all()?;
        self.poisoned = false;
        Ok(())
    }

    /// Fails if a write of the file failed, which is asked after a sync of the whole file system.
    ///
    /// # Errors
    /// If some of it was not written, or an earlier sync failed.
    pub fn check_written(&mut self) -> io::Result<()> {
        self.check_believed()?;
        self.poisoned = true;
        haul_sys::write_back::check(self.file.file())?;
        self.poisoned = false;
        Ok(())
    }

    pub fn seal(&mut self, offer: &FileOffer, attributes: &Attributes) -> io::Result<()> {
        self.check_believed()?;
        if self.sealed {
            return Ok(());
        }
        self.punch(offer)?;
        // Who completes the last range of a file gives it all that it is to have.
        if self.claim.is_none() {
            attributes.apply_to(self.file.file(), self.mode, offer, has_time(offer))?;
        }
        self.sealed = true;
        Ok(())
    }

    /// Gives back the space of the holes that were offered, as [`holes::punch`].
    ///
    /// # Errors
    /// If the file cannot be changed.
    pub fn punch(&self, offer: &FileOffer) -> io::Result<bool> {
        // What an earlier session brought is written by nobody, and may have its name by now.
        if self.was_done() {
            return Ok(true);
        }
        let place = |hole: &Extent| Extent {
            offset_bytes: self.file.place(hole.offset_bytes),
            len_bytes: hole.len_bytes,
        };
        let holes: Vec<Extent> = offer.holes.iter().map(place).collect();
        holes::punch(self.file.file(), &holes)
    }

    /// Writes all of the file. It may have been written before, and damaged.
    pub fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sealed = false;
        self.file.file().write_all_at(bytes, 0)
    }

    /// Whether a later run can make use of the temporary. What was preallocated for a file of which
    /// nothing came is given back.
    pub fn is_of_use(&self) -> bool {
        self.journal.is_some() && self.has_durable
    }

    /// Leaves the temporary and its journal for a later run. The journal becomes the younger of the
    /// two, and so says that all is as it tells.
    pub fn leave(self) {
        if let Some(journal) = &self.journal {
            journal.touch();
        }
    }

    /// Whether this is a claimed range whose file somebody else holds.
    pub fn is_claim_still_written(&self) -> bool {
        self.claim.is_some() && Arc::strong_count(&self.file) > 1
    }

    pub fn remove(&self) {
        if let Some(claim) = &self.claim {
            if !claim.is_done {
                let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
            }
            claim.give_up();
            return;
        }
        if self.nameless || !self.is_there() {
            return;
        }
        let _ = unlinkat(&self.directory, &*self.journal_name, AtFlags::empty());
        let _ = unlinkat(&self.directory, &*self.part_name, AtFlags::empty());
    }
}

/// Whether space is there that was not given in so many tries.
fn may_try_again(free: Option<u64>, needs: u64, tries: u32) -> bool {
    free.is_some_and(|free| free >= needs) && tries <= TAKES_MAX
}

/// Part of a run from `begin_bytes` on.
fn behind(run: &Extent, begin_bytes: u64) -> Option<Extent> {
    let end_bytes = run.offset_bytes + run.len_bytes;
    let offset_bytes = run.offset_bytes.max(begin_bytes);
    (offset_bytes < end_bytes).then(|| Extent { offset_bytes, len_bytes: end_bytes - offset_bytes })
}

fn take_space(file: &File, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset_bytes, len_bytes) {
            Err(Errno::INTR) => {}
            taken => return taken,
        }
    }
}

/// Free bytes, with those kept for root; `None` where the file system counts no blocks.
fn unused_bytes(file: &File) -> Option<u64> {
    let room = fstatvfs(file).ok().filter(|room| room.f_blocks > 0)?;
    Some(room.f_bfree.saturating_mul(room.f_frsize))
}

fn no_space(name: &[u8], needs: u64, found: Option<u64>) -> Fault {
    let found = found.filter(|found| *found < needs);
    let found = found.map_or("less when it was asked for".into(), |found| format!("{found} bytes"));
    Fault::new(FaultCode::NoSpace, Side::Target, "does not fit")
        .at(name)
        .needs(format!("{needs} bytes of free space"))
        .found(found)
        .hint("free space there, then run the same command again")
}

fn identity_of(
    part: &File,
    offer: &FileOffer,
    name: &[u8],
    digest: Digest,
) -> io::Result<Identity> {
    let stat = fstat(part)?;
    // By its last component: the root of one and the same place may be another in the next run.
    let hash = Token::secret_hash(split_last(name).1);
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

/// Makes a file without a name and looks at it; `None` where the file system has no such files, or
/// they could not be given a name later.
fn create_nameless(directory: &impl AsFd, mode: u32) -> io::Result<Option<(File, Stat)>> {
    static HAS_PROC: OnceLock<bool> = OnceLock::new();
    if !HAS_PROC.get_or_init(|| std::path::Path::new("/proc/self/fd").exists()) {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    // Engines open it once more by /proc, which takes rights that a mode like 0444 does not give.
    let mode = Mode::from_raw_mode(mode) | Mode::RUSR | Mode::WUSR;
    let file = match openat(directory, ".", flags, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let stat = fstat(&file)?;
    Ok(Some((file.into(), stat)))
}

/// Makes a file whose name is gone at once, where a file system has none without: nothing of it
/// stays but after a crash between two calls.
fn create_unlinked(directory: &impl AsFd) -> io::Result<(File, Stat)> {
    let number: [u8; 8] = random_bytes()?;
    let name = hidden_name(format!("haul-probe-{}", hex(&number)).as_bytes(), PART_SUFFIX);
    // No link is followed to what is made (O_EXCL, open(2)).
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, &*name, flags, Mode::from_raw_mode(0o600))?;
    unlinkat(directory, &*name, AtFlags::empty())?;
    let stat = fstat(&file)?;
    Ok((file.into(), stat))
}

/// Path of the directory, or of the nearest above it that is there.
fn nearest_directory<'a>(root: &Root, mut name: &'a [u8]) -> &'a [u8] {
    while !name.is_empty() && !root.is_directory(name) {
        name = split_last(name).0;
    }
    name
}

#[cfg(test)]
mod tests;
