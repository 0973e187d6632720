//! Temporary of a file that is still being written at its source. It is taken up by each round, and
//! by the next run.
//!
//! Its journal holds for whatever size the file comes to have, so it speaks of full spans only: the
//! last, shorter span of a round is durable, but never believed again.

use super::{
    super::{
        hidden_names::{PART_SUFFIX, hidden_name},
        journal::{Identity, Journal, growing_size_bytes, span_bytes_of},
        locked::open_locked,
        root::Root,
    },
    Part, Wanted, identity_of,
};
use crate::{clocks::boot, error::io_fault};
use haul_protocol::{
    SpanGrid, SpanSet, limits,
    message::{Compared, Digest, Fault, FaultCode, FileOffer, Growth, Side, SpanRange},
};
use rustix::fs::fstat;
use std::io;

/// Span size of a file that grows, where none was chosen, in bytes. What came of a span that was
/// not full comes again, so it is small.
const SPAN_BYTES_DEFAULT: u64 = 1 << 20;

/// Way in which a file that grows is cut.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Rounds {
    pub span_bytes: u64,
    /// Size that was offered for this round.
    size_bytes: u64,
    digest: Digest,
}

impl Rounds {
    /// Takes from these spans those that the next round may believe.
    pub fn full_spans(&self, spans: &[SpanRange]) -> Vec<SpanRange> {
        let full = u32::try_from(self.size_bytes / self.span_bytes).unwrap_or(u32::MAX);
        let cut = |range: &SpanRange| {
            let count = range.count.min(full.saturating_sub(range.first.0));
            (count > 0).then_some(SpanRange { first: range.first, count })
        };
        spans.iter().filter_map(cut).collect()
    }
}

/// Span size, in bytes, for a file that grows and has `size_bytes` by now.
#[must_use]
pub fn growing_span_bytes(size_bytes: u64, chosen: Option<u64>) -> u64 {
    let mut span_bytes = chosen.unwrap_or(SPAN_BYTES_DEFAULT);
    while size_bytes.div_ceil(span_bytes) > limits::SPANS_MAX / 2
        && span_bytes < limits::SPAN_BYTES_MAX
    {
        span_bytes *= 2;
    }
    span_bytes
}

/// Grid of the spans of a file that grows.
///
/// # Errors
/// If it has outgrown its span size.
pub fn growing_grid(offer: &FileOffer, span_bytes: u64) -> Result<SpanGrid, Fault> {
    SpanGrid::new(offer.size_bytes, span_bytes).map_err(|_| {
        let most = growing_size_bytes(span_bytes);
        Fault::new(FaultCode::NoSpace, Side::Target, "has outgrown its span size")
            .at(&*offer.name)
            .needs(format!("at most {most} bytes in spans of {span_bytes}"))
            .found(format!("{} bytes", offer.size_bytes))
            .hint("run the same command again, with a larger --span-size: it begins anew")
    })
}

/// Whether what an earlier round left is of use to this one.
#[must_use]
pub fn takes_up(offer: &FileOffer) -> bool {
    match offer.growth {
        Growth::Growing => offer.compared != Compared::OtherContent,
        // Earlier bytes may have changed since they came: somebody has to say that they did not.
        Growth::Grown => offer.compared == Compared::SameContent,
        Growth::NotGrowing => false,
    }
}

/// Temporary of a file that grows, as it was found.
pub(in super::super) struct Found {
    pub part: Part,
    pub span_bytes: u64,
    pub durable: SpanSet,
    /// Whether every byte that was offered is there, though nobody has said whether they are the
    /// same yet.
    pub to_compare: bool,
}

impl Part {
    /// Opens and locks the temporary of a file that grows, and takes up what an earlier round or
    /// run left of it.
    pub fn open_growing(
        root: &Root,
        name: &[u8],
        offer: &FileOffer,
        wanted: &Wanted,
    ) -> Result<Found, Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be created", &error);
        let (directory, last) = root.parent_of(name).map_err(failed)?;
        let file = open_locked(&directory, &hidden_name(last, PART_SUFFIX), name)?;
        let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
        let mut part = Self::new(directory, last, file, (stat.st_ino, stat.st_dev));
        let compares = offer.growth == Growth::Grown
            && offer.compared == Compared::NotCompared
            && stat.st_size.try_into() == Ok(offer.size_bytes);
        if (takes_up(offer) || compares)
            && let Some((span_bytes, durable)) = part.resume_growing(offer, name, wanted, compares)
        {
            part.lengthen(offer, name)?;
            return Ok(Found { part, span_bytes, durable, to_compare: compares });
        }
        let spans = wanted.spans;
        if let Err(fault) = part.begin_anew(offer, name, wanted.span_bytes, wanted.digest) {
            part.remove();
            return Err(fault);
        }
        let durable = SpanSet::new(spans);
        Ok(Found { part, span_bytes: wanted.span_bytes, durable, to_compare: false })
    }

    fn growing_identity(
        &self,
        offer: &FileOffer,
        name: &[u8],
        span_bytes: u64,
        digest: Digest,
    ) -> io::Result<Identity> {
        let identity = identity_of(self.file.file(), offer, name, digest)?;
        let size_bytes = growing_size_bytes(span_bytes);
        Ok(Identity { size_bytes, mtime_s: 0, mtime_ns: 0, ..identity })
    }

    fn resume_growing(
        &mut self,
        offer: &FileOffer,
        name: &[u8],
        wanted: &Wanted,
        compares: bool,
    ) -> Option<(u64, SpanSet)> {
        let digest = wanted.digest;
        let journal = self.open_journal().ok()?;
        let span_bytes = span_bytes_of(&journal)?;
        let identity = self.growing_identity(offer, name, span_bytes, digest).ok()?;
        let (mut journal, mut told) = Journal::resume(journal, &identity)?;
        // A round that waits for a look at the disk would make its file late: what a crash of the
        // host may have spoilt comes again, unless all of it is about to be compared.
        let then = told.circumstances.boot;
        if !(told.has_source_device && told.has_target_device) {
            return None;
        }
        if !compares && (wanted.recheck || then != boot() || then == [0; 16]) {
            return None;
        }
        if wanted.span_bytes < span_bytes {
            let smaller = growing_size_bytes(wanted.span_bytes);
            let smaller = SpanGrid::new(smaller, wanted.span_bytes).ok()?;
            let identity = self.growing_identity(offer, name, wanted.span_bytes, digest).ok()?;
            (journal, told) = journal.cut_smaller(&identity, &told, smaller).ok()?;
        }
        let span_bytes = told.span_bytes;
        let grid = SpanGrid::new(offer.size_bytes, span_bytes).ok()?;
        let len_bytes = self.file.file().metadata().ok()?.len();
        // More than there is at the source: that was cut and written anew.
        if len_bytes > offer.size_bytes {
            return None;
        }
        let mut durable = SpanSet::new(grid.count());
        for span in told.durable.iter() {
            let end_bytes = (u64::from(span.0) + 1) * span_bytes;
            // A temporary that was cut since does not hold what the journal says.
            if end_bytes > len_bytes {
                return None;
            }
            durable.insert(span);
        }
        self.journal = Some(journal);
        self.has_durable = !durable.is_empty();
        self.rounds = Some(Rounds { span_bytes, size_bytes: offer.size_bytes, digest });
        Some((span_bytes, durable))
    }

    /// Begins the temporary anew: what came before is not believed any more.
    fn begin_anew(
        &mut self,
        offer: &FileOffer,
        name: &[u8],
        span_bytes: u64,
        digest: Digest,
    ) -> Result<(), Fault> {
        let failed = |error: io::Error| io_fault(Side::Target, name, "cannot be prepared", &error);
        let identity = self.growing_identity(offer, name, span_bytes, digest).map_err(failed)?;
        self.journal = None;
        self.has_durable = false;
        self.rounds = Some(Rounds { span_bytes, size_bytes: offer.size_bytes, digest });
        self.entered = false;
        self.start_anew(&identity, span_bytes, offer, name)
    }

    /// Makes an open temporary ready for the next round, and gives its durable spans.
    pub fn next_round(
        &mut self,
        offer: &FileOffer,
        name: &[u8],
        last_size_bytes: u64,
    ) -> Result<SpanSet, Fault> {
        let Some(rounds) = self.rounds else {
            return Err(Fault::new(FaultCode::IoFailed, Side::Target, "is no file that grows"));
        };
        let grid = growing_grid(offer, rounds.span_bytes)?;
        if !takes_up(offer) || offer.size_bytes < last_size_bytes {
            self.begin_anew(offer, name, rounds.span_bytes, rounds.digest)?;
            return Ok(SpanSet::new(grid.count()));
        }
        self.rounds = Some(Rounds { size_bytes: offer.size_bytes, ..rounds });
        self.lengthen(offer, name)?;
        Ok(full_spans(&grid, last_size_bytes))
    }

    fn lengthen(&self, offer: &FileOffer, name: &[u8]) -> Result<(), Fault> {
        let len_bytes = self.file.file().metadata().map(|metadata| metadata.len());
        let failed = |error| io_fault(Side::Target, name, "cannot be looked at", &error);
        self.preallocate_from(len_bytes.map_err(failed)?, offer, name)
    }
}

/// Spans that a round of `size_bytes` brought and that the next one need not bring.
#[must_use]
pub fn full_spans(grid: &SpanGrid, size_bytes: u64) -> SpanSet {
    let full = u32::try_from(size_bytes / grid.span_bytes()).unwrap_or(u32::MAX);
    let mut durable = SpanSet::new(grid.count());
    (0..full.min(grid.count())).for_each(|span| {
        durable.insert(haul_protocol::SpanIndex(span));
    });
    durable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::journal::{Circumstances, Recorded};
    use haul_protocol::{SpanIndex, message::FileKind};
    use std::os::unix::fs::FileExt;

    const SPAN: u64 = 64 << 10;

    fn offer(size_bytes: u64, growth: Growth) -> FileOffer {
        FileOffer {
            name: b"x".to_vec(),
            kind: FileKind::Regular,
            size_bytes,
            inode: 7,
            // With each byte that comes the time is another.
            mtime_s: i64::try_from(size_bytes).unwrap(),
            mtime_ns: u32::try_from(size_bytes / SPAN).unwrap(),
            growth,
            ..FileOffer::default()
        }
    }

    fn found(directory: &std::path::Path, offer: &FileOffer) -> Found {
        found_in(directory, offer, SPAN)
    }

    fn found_in(directory: &std::path::Path, offer: &FileOffer, span_bytes: u64) -> Found {
        found_as(directory, offer, span_bytes, false)
    }

    fn found_as(
        directory: &std::path::Path,
        offer: &FileOffer,
        span_bytes: u64,
        recheck: bool,
    ) -> Found {
        let root = Root::open(directory).unwrap();
        let spans = SpanGrid::new(offer.size_bytes, span_bytes).unwrap().count();
        let digest = Digest::AesGmac;
        let wanted = Wanted { span_bytes, spans, digest, recheck };
        Part::open_growing(&root, b"x", offer, &wanted).unwrap()
    }

    fn durable_of(found: &Found) -> Vec<u32> {
        found.durable.iter().map(|span| span.0).collect()
    }

    fn all(found: &mut Found, spans: u32) {
        let spans = &[SpanRange { first: SpanIndex(0), count: spans }];
        found.part.make_durable(Recorded { spans, ..Recorded::default() }).unwrap();
    }

    /// A temporary with two full spans and a half, all of which were said to be durable.
    fn two_and_a_half(directory: &std::path::Path) {
        let mut first = found(directory, &offer(SPAN * 5 / 2, Growth::Growing));
        assert!(durable_of(&first).is_empty());
        all(&mut first, 3);
    }

    #[test]
    fn half_a_span_is_never_believed_by_the_next_round_or_run() {
        let directory = tempfile::tempdir().unwrap();
        two_and_a_half(directory.path());
        let journal = || std::fs::read(directory.path().join(".x.haul-journal")).unwrap();
        let before = journal();
        let mut again = found(directory.path(), &offer(SPAN * 4, Growth::Growing));
        assert_eq!(durable_of(&again), [0, 1]);
        assert_eq!(journal(), before, "spans of the same size are not cut");
        all(&mut again, 4);
        let grown = offer(SPAN * 5, Growth::Growing);
        let durable = again.part.next_round(&grown, b"x", SPAN * 4).unwrap();
        assert_eq!(durable.iter().map(|span| span.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(durable.file_spans(), 5);
    }

    #[test]
    fn spans_that_become_smaller_stay_durable() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = found_in(directory.path(), &offer(SPAN * 10, Growth::Growing), SPAN * 4);
        all(&mut first, 2);
        drop(first);
        let again = found(directory.path(), &offer(SPAN * 11, Growth::Growing));
        assert_eq!((again.span_bytes, durable_of(&again)), (SPAN, (0..8).collect()));
        drop(again);
        let larger = found_in(directory.path(), &offer(SPAN * 11, Growth::Growing), SPAN * 4);
        assert_eq!((larger.span_bytes, durable_of(&larger).len()), (SPAN, 8));
    }

    #[test]
    fn a_source_that_became_shorter_or_another_inode_begins_anew() {
        for other in [
            offer(SPAN * 2, Growth::Growing),
            FileOffer { inode: 8, ..offer(SPAN * 4, Growth::Growing) },
            FileOffer { compared: Compared::OtherContent, ..offer(SPAN * 4, Growth::Growing) },
        ] {
            let directory = tempfile::tempdir().unwrap();
            two_and_a_half(directory.path());
            let again = found(directory.path(), &other);
            assert!(durable_of(&again).is_empty(), "{other:?}");
            drop(again);
            // Nor is what was there before found again afterwards.
            let last = found(directory.path(), &offer(SPAN * 9, Growth::Growing));
            assert!(durable_of(&last).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_temporary_that_was_cut_is_not_believed() {
        for (len_bytes, durable) in [(SPAN, vec![]), (SPAN * 2 - 1, vec![]), (SPAN * 2, vec![0, 1])]
        {
            let directory = tempfile::tempdir().unwrap();
            two_and_a_half(directory.path());
            let part = directory.path().join(".x.haul-part");
            std::fs::File::options().write(true).open(part).unwrap().set_len(len_bytes).unwrap();
            let again = found(directory.path(), &offer(SPAN * 4, Growth::Growing));
            assert_eq!(durable_of(&again), durable);
            assert_eq!(again.part.is_of_use(), !durable.is_empty());
        }
    }

    #[test]
    fn what_another_boot_device_or_wish_leaves_in_doubt_comes_again_unless_it_is_compared() {
        let growing = offer(SPAN * 4, Growth::Growing);
        let grown = offer(SPAN * 5 / 2, Growth::Grown);
        for then in [[9; 16], [0; 16]] {
            let directory = tempfile::tempdir().unwrap();
            let mut first = found(directory.path(), &offer(SPAN * 5 / 2, Growth::Growing));
            all(&mut first, 3);
            let journal = first.part.journal.as_mut().unwrap();
            assert_eq!(journal.circumstances().ctime, (0, 0));
            journal.confirm(Circumstances { boot: then, ..journal.circumstances() }).unwrap();
            drop(first);
            assert!(found(directory.path(), &grown).to_compare);
            assert!(durable_of(&found(directory.path(), &growing)).is_empty());
        }
        let directory = tempfile::tempdir().unwrap();
        two_and_a_half(directory.path());
        assert!(found_as(directory.path(), &grown, SPAN, true).to_compare);
        assert!(durable_of(&found_as(directory.path(), &growing, SPAN, true)).is_empty());
        for other in [FileOffer { device: 9, ..growing }, FileOffer { device: 9, ..grown }] {
            two_and_a_half(directory.path());
            let again = found(directory.path(), &other);
            assert!(durable_of(&again).is_empty() && !again.to_compare, "{other:?}");
        }
    }

    #[test]
    fn only_full_spans_of_a_round_are_told_to_the_journal() {
        let (span_bytes, digest) = (SPAN, Digest::AesGmac);
        let rounds = Rounds { span_bytes, size_bytes: SPAN * 5 / 2, digest };
        let range = |first, count| SpanRange { first: SpanIndex(first), count };
        let told = rounds.full_spans(&[range(0, 1), range(1, 2), range(2, 1), range(7, 1)]);
        assert_eq!(told, [range(0, 1), range(1, 1)]);
        let grid = SpanGrid::new(SPAN * 7 / 2, SPAN).unwrap();
        let full = |size_bytes| full_spans(&grid, size_bytes).iter().map(|span| span.0).max();
        let sizes = [SPAN - 1, SPAN, SPAN * 5 / 2, SPAN * 9];
        assert_eq!(sizes.map(full), [None, Some(0), Some(1), Some(3)]);
    }

    #[test]
    fn a_grown_file_is_believed_only_when_somebody_says_that_it_is_the_same() {
        let same =
            |compared: Compared| FileOffer { compared, ..offer(SPAN * 5 / 2, Growth::Grown) };
        let directory = tempfile::tempdir().unwrap();
        two_and_a_half(directory.path());
        let asked = found(directory.path(), &same(Compared::NotCompared));
        assert!(asked.to_compare);
        drop(asked);
        let kept = found(directory.path(), &same(Compared::SameContent));
        assert_eq!((durable_of(&kept), kept.to_compare), (vec![0, 1], false));
        drop(kept);
        let anew = found(directory.path(), &same(Compared::OtherContent));
        assert!(durable_of(&anew).is_empty() && !anew.to_compare);
        drop(anew);
        // Of another length there is nothing to compare.
        two_and_a_half(directory.path());
        let longer = found(directory.path(), &offer(SPAN * 3, Growth::Grown));
        assert!(durable_of(&longer).is_empty() && !longer.to_compare);
    }

    #[test]
    fn bytes_of_earlier_rounds_stay_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = found(directory.path(), &offer(SPAN * 2, Growth::Growing));
        first.part.file.file().write_all_at(&[7; SPAN as usize * 2], 0).unwrap();
        all(&mut first, 2);
        let same = first.part.next_round(&offer(SPAN * 2, Growth::Growing), b"x", SPAN * 2);
        assert_eq!(same.unwrap().iter().count(), 2);
        first.part.next_round(&offer(SPAN * 3, Growth::Growing), b"x", SPAN * 2).unwrap();
        let bytes = || std::fs::read(directory.path().join(".x.haul-part")).unwrap();
        assert_eq!(bytes().len() as u64, SPAN * 3);
        assert!(bytes()[..SPAN as usize * 2].iter().all(|byte| *byte == 7));
        // Nor does the next run forget what came in a later round.
        all(&mut first, 3);
        drop(first);
        let mut again = found(directory.path(), &offer(SPAN * 3, Growth::Growing));
        assert_eq!(durable_of(&again), [0, 1, 2]);
        let other =
            FileOffer { compared: Compared::OtherContent, ..offer(SPAN * 3, Growth::Growing) };
        for anew in [other, offer(SPAN * 3 - 1, Growth::Growing)] {
            again.part.file.file().write_all_at(&[7; 9], 0).unwrap();
            all(&mut again, 1);
            let durable = again.part.next_round(&anew, b"x", SPAN * 3).unwrap();
            assert!(durable.is_empty() && bytes().iter().all(|byte| *byte == 0), "{anew:?}");
            assert!(!again.part.is_of_use());
        }
        let mut other = Part::begin_whole(
            &Root::open(directory.path()).unwrap(),
            b"y",
            super::super::Naming::Locked,
            0o600,
            None,
        );
        let other = other.as_mut().unwrap();
        assert!(other.next_round(&offer(SPAN, Growth::Growing), b"y", 0).is_err());
    }

    #[test]
    fn the_journal_holds_for_any_size_and_outgrowing_it_is_told() {
        assert_eq!(growing_span_bytes(0, None), SPAN_BYTES_DEFAULT);
        assert_eq!(growing_span_bytes(1 << 40, None), SPAN_BYTES_DEFAULT * 2);
        let half = limits::SPANS_MAX / 2 * SPAN;
        let sizes = [half, half + 1, half * 2 + 1];
        let chosen = sizes.map(|size| growing_span_bytes(size, Some(SPAN)));
        assert_eq!(chosen, [SPAN, SPAN * 2, SPAN * 4]);
        let most = limits::SPAN_BYTES_MAX;
        assert_eq!(growing_span_bytes(u64::MAX, Some(most)), most);
        let fault = growing_grid(&offer(growing_size_bytes(SPAN) + 1, Growth::Growing), SPAN);
        assert!(fault.unwrap_err().hint.contains("--span-size"));
    }
}
