//! Temporary of a range: one that other sessions write to as well, each to a range of its own.

use super::{
    Opened, Part, Wanted, earlier_ranges::EarlierRanges, identity_of, no_space, take_space,
    unused_bytes,
};
use crate::{
    error::io_fault,
    storage::{
        hidden_names::range_journal_name,
        holes,
        journal::{Identity, Recorded},
        ranges::{self, Claim, Finished, Refused, register::Whole, site::Directory},
        root::Root,
        span_digests::{Digest, digest_of_zeros},
        target_rules::TargetRules,
    },
    token::Token,
};
use haul_datapath::SpanFile;
use haul_host::FileSystem;
use haul_protocol::{
    SpanGrid, SpanSet,
    message::{Extent, Fault, FaultCode, FileOffer, FileRange, Side},
};
use rustix::{
    fs::{AtFlags, fstat, statat},
    io::Errno,
};
use std::{io, ops::Range, sync::Arc, time::Duration};

/// Time for which a range is waited for: its holder may be a session that is just ending.
/// Less than half of the time after which a silent side is given up.
const PATIENCE: Duration = Duration::from_secs(3);

impl Part {
    /// Claims a range of a file and opens the temporary that all its ranges come into; takes up
    /// what an earlier run left of the range. `None`: the file has its name already.
    pub fn open_range(
        root: &Root,
        name: &[u8],
        offer: &FileOffer,
        wanted: &Wanted,
        rules: &Arc<TargetRules>,
    ) -> Result<Option<Opened>, Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let FileRange { offset_bytes, file_bytes } = offer.range.unwrap_or_default();
        let (directory, last) = root.parent_of(name).map_err(failed)?;
        let whole_offer = FileOffer { size_bytes: file_bytes, range: None, ..offer.clone() };
        let site = Directory::of(directory.clone(), last).giving(&whole_offer, rules);
        let bytes = offset_bytes..offset_bytes + offer.size_bytes;
        let part = ranges::Part { bytes, ctime: (offer.ctime_s, offer.ctime_ns) };
        let patience = (wanted.recheck, PATIENCE);
        let claim = match ranges::claim(site, &whole(&whole_offer, last), part, patience) {
            Ok(claim) => claim,
            Err(Refused::There) => return Ok(None),
            Err(refused) => return Err(fault_of(refused, name)),
        };
        let file = claim.site().open_temporary().map_err(failed)?;
        let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
        let whole_identity = identity_of(&file, offer, name, wanted.digest).map_err(failed)?;
        let identity = of_range(whole_identity, claim.header.number, last, &claim.part().bytes);
        let mut part = Self::new(directory, last, file, (stat.st_ino, stat.st_dev));
        part.whole_identity = Some(whole_identity);
        part.part_name = claim.site().temporary_name().to_vec();
        part.journal_name = range_journal_name(last, offset_bytes);
        let is_done = claim.is_done;
        part.begin_at(offset_bytes, claim).map_err(failed)?;
        if is_done {
            return Ok(Some((part, wanted.span_bytes, SpanSet::full(wanted.spans), None)));
        }
        if let Some((told, suspicion)) = part.resume(&identity, offer, wanted) {
            part.preallocate(offer, name)?;
            let span_bytes = told.span_bytes;
            let (durable, left) = part.take_over(told, offer, suspicion).map_err(failed)?;
            return Ok(Some((part, span_bytes, durable, Some(left))));
        }
        if let Err(fault) = part.start_anew(&identity, wanted.span_bytes, offer, name) {
            part.remove();
            return Err(fault);
        }
        Ok(Some((part, wanted.span_bytes, SpanSet::new(wanted.spans), None)))
    }

    /// Holds the claim, and counts spans from the begin of its range.
    fn begin_at(&mut self, offset_bytes: u64, claim: Claim<Directory>) -> io::Result<()> {
        let file = self.file.file().try_clone()?;
        self.file = Arc::new(SpanFile::from_place(file, offset_bytes));
        self.claim = Some(claim);
        Ok(())
    }

    /// Whether nothing of the range was to come: an earlier session has brought it.
    pub fn was_done(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_done)
    }

    /// Notes that ranges of before this host's start were read back, and why not all is there.
    pub fn was_looked_back(&mut self, missing: Option<String>) {
        self.missing = missing;
    }

    /// Whether all that came of the range was told as durable.
    pub fn is_settled_range(&self) -> bool {
        self.was_done() || self.has_looked_back
    }

    /// Whether a range comes that was not durable before.
    pub fn is_range_to_come(&self) -> bool {
        self.claim.is_some() && !self.is_settled_range()
    }

    /// Takes the space of a range. What there is of it from before is kept where there is too
    /// little for the rest.
    pub(super) fn preallocate_range(&self, offer: &FileOffer, name: &[u8]) -> Result<(), Fault> {
        let file = self.file.file();
        let data = || holes::data_between(&offer.holes, offer.size_bytes);
        let needs = data().map(|run| run.len_bytes).sum::<u64>();
        let free = || FileSystem::of(file).ok().and_then(|system| system.free_bytes);
        let is_new = self.journal.is_none();
        if is_new && unused_bytes(file).is_some_and(|left| left < needs) {
            return Err(no_space(name, needs, free()));
        }
        for run in data() {
            match take_space(file, self.file.place(run.offset_bytes), run.len_bytes) {
                // Some file systems take none before it is written.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    if is_new {
                        // What it took until it failed would not be found free.
                        let (offset_bytes, len_bytes) = (self.file.place(0), offer.size_bytes);
                        let _ = holes::punch(file, &[Extent { offset_bytes, len_bytes }]);
                    }
                    return Err(no_space(name, needs, free()));
                }
                Err(errno) => {
                    let what = "cannot be preallocated";
                    return Err(io_fault(Side::Target, name, what, &errno.into()));
                }
            }
        }
        Ok(())
    }

    /// Journals the spans that lie within holes, as the zeros that they are.
    pub fn journal_holes(&mut self, offer: &FileOffer) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let grid = SpanGrid::new(offer.size_bytes, journal.span_bytes());
        let grid = grid.map_err(|error| io::Error::other(error.what))?;
        let mut within = SpanSet::new(grid.count());
        holes::add_spans_within(&offer.holes, &grid, &mut within);
        if within.is_empty() {
            return Ok(());
        }
        // Only the last span has another length.
        let mut last = (0, Digest::default());
        let mut digest_of = |span| {
            let len_bytes = grid.range(span).1;
            if len_bytes != last.0 {
                last = (len_bytes, digest_of_zeros(len_bytes));
            }
            last.1
        };
        let digests: Vec<Digest> = within.iter().map(&mut digest_of).collect();
        let (spans, digests) = (&*within.to_ranges(), &*digests);
        journal.record(Recorded { spans, digests, values: &[] })?;
        self.has_durable = true;
        Ok(())
    }

    /// Says that the range is durable; gives the file its name if it was the last one. Where ranges
    /// are to be read back before that, it gives these, once.
    pub(super) fn finish_range(&mut self) -> io::Result<Option<EarlierRanges>> {
        self.check_believed()?;
        let finished = match self.claim.as_ref().map_or(Ok(Finished::Waiting), Claim::finish) {
            Ok(Finished::StartedAnew) if !self.has_looked_back => {
                self.has_looked_back = true;
                self.earlier_ranges()
            }
            Ok(Finished::StartedAnew | Finished::Reopened) if self.missing.is_some() => {
                Err(io::Error::other(self.missing.clone().unwrap_or_default()))
            }
            finished => finished.and_then(no_name).map(|()| None),
        };
        match finished {
            // Another session completed the last range meanwhile, and this one had nothing to do.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_settled_range() => {
                let there = statat(&self.directory, &*self.final_name, AtFlags::SYMLINK_NOFOLLOW);
                let is_ours = |now: rustix::fs::Stat| (now.st_ino, now.st_dev) == self.inode;
                if there.is_ok_and(is_ours) { Ok(None) } else { Err(error) }
            }
            finished => finished,
        }
    }
}

/// Why a file whose range is at its end gets no name though all who brought the others were told
/// that they are done.
fn no_name(finished: Finished) -> io::Result<()> {
    let why = match finished {
        Finished::Named | Finished::Waiting => return Ok(()),
        Finished::OutOfStep => {
            "the inode of its source has changed since other ranges of it came: run their shards \
             again"
        }
        Finished::StartedAnew => {
            "the server's host was started anew since other ranges of it came: run all shards \
             again, until each ends with 0"
        }
        Finished::Reopened => {
            "ranges of it that other runs had brought are read back, or come again: run all shards \
             again, until each ends with 0"
        }
        Finished::Lost => {
            "ranges of it that other runs had brought are not there any more, as its source or its \
             hidden files were replaced or removed: run all shards again, until each ends with 0"
        }
    };
    Err(io::Error::other(why))
}

fn whole(offer: &FileOffer, last: &[u8]) -> Whole {
    let hash = Token::secret_hash(last);
    Whole {
        size_bytes: offer.size_bytes,
        mtime_s: offer.mtime_s,
        mtime_ns: offer.mtime_ns,
        source_inode: offer.inode,
        source_device: offer.device,
        name_hash: hash[..16].try_into().expect("half of 32 bytes"),
    }
}

/// Identity of a range: of no other one, and of the temporary that the register of that number
/// speaks of.
pub(super) fn of_range(whole: Identity, number: u64, last: &[u8], bytes: &Range<u64>) -> Identity {
    let place = [number.to_le_bytes(), bytes.start.to_le_bytes()].concat();
    let hash = Token::secret_hash(&[last, &[0], &*place].concat());
    Identity {
        size_bytes: bytes.end - bytes.start,
        name_hash: hash[..16].try_into().expect("half of 32 bytes"),
        ..whole
    }
}

fn fault_of(refused: Refused, name: &[u8]) -> Fault {
    let locked = |what: &str, found: &str| {
        Fault::new(FaultCode::Locked, Side::Target, what)
            .at(name)
            .needs("to be the only writer of this range")
            .found(found)
            .hint("let that one end, or stop it; then run the same command again")
    };
    match refused {
        Refused::Held => locked("another session brings this range", "a live one that holds it"),
        Refused::OtherSource => {
            locked("ranges of another source come into it", "live sessions that bring them")
        }
        Refused::There | Refused::Full => {
            Fault::new(FaultCode::IoFailed, Side::Target, "comes in too many ranges")
                .at(name)
                .needs("a file of at most some ten thousand ranges")
                .hint("remove the hidden files beside it, and plan with larger ranges")
        }
        Refused::Failed(error) => match Errno::from_io_error(&error) {
            Some(Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let what = "cannot come in ranges here";
                Fault::new(FaultCode::IoFailed, Side::Target, what)
                    .at(name)
                    .needs("a file system with locks of POSIX (fcntl_locking(2)), on all hosts")
                    .found(error.to_string())
                    .hint("mount it with them (Lustre: -o flock), or plan with --whole-files")
            }
            _ => io_fault(Side::Target, name, "cannot be claimed", &error),
        },
    }
}
