//! Ranges of a file that came before this host was started, whoever brought them. They are read
//! back, each by its journal, before the file gets its name.
//!
//! Nothing is locked meanwhile, so that a session may bring such a range again at any time.

use super::{Part, range::of_range};
use crate::storage::{
    hidden_names::range_journal_name,
    journal::{self, FILE_BYTES_MAX, Identity, Told, digest_of},
    ranges::{self, Earlier, register::Header, say_read_back, site::Directory},
    read_back::{BLOCK_BYTES, ReadBack},
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer};
use haul_protocol::{SpanGrid, SpanSet};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use std::{
    fs::File,
    io::{self, BufReader, Read},
    ops::Range,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time after which it is said how far a range was read: whoever reads on begins there.
const SAY_EVERY: Duration = Duration::from_secs(300);

/// Ranges that are to be read back, and what is needed for it.
#[derive(Debug)]
pub struct EarlierRanges {
    directory: Arc<OwnedFd>,
    name: Vec<u8>,
    header: Header,
    file: File,
    whole: Identity,
    earlier: Earlier,
}

/// Outcome of reading ranges back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRanges {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that are not what was journaled.
    pub lost_bytes: u64,
    /// Ranges that have such bytes.
    pub lost: Vec<Range<u64>>,
    /// Bytes of which no journal tells, so that they cannot be compared.
    pub unread: Vec<Range<u64>>,
}

impl Part {
    /// Ranges of the file that came before this host was started.
    pub(super) fn earlier_ranges(&self) -> io::Result<Option<EarlierRanges>> {
        let (Some(claim), Some(whole)) = (&self.claim, self.whole_identity) else {
            return Ok(None);
        };
        Ok(Some(EarlierRanges {
            directory: self.directory.clone(),
            name: self.final_name.clone(),
            header: claim.header,
            file: self.file.file().try_clone()?,
            whole,
            earlier: claim.earlier()?,
        }))
    }
}

impl EarlierRanges {
    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.earlier.believed.missing_of(&self.all()))
    }

    fn all(&self) -> Range<u64> {
        0..self.header.whole.size_bytes
    }

    /// Reads them back, and says of each in the register whether it is there. Of one whose journal
    /// does not tell of every byte nothing is said. `seen` is told how many bytes were read, and
    /// says whether to go on.
    ///
    /// # Errors
    /// Interrupted when `seen` said so; what reading and the register's calls say.
    pub fn read_back(&self, seen: &mut dyn FnMut(u64) -> bool) -> io::Result<ReadRanges> {
        let mut known = self.earlier.believed.clone();
        let mut read = ReadRanges::default();
        for part in &self.earlier.parts {
            if known.covers(&part.bytes) {
                continue;
            }
            let Some((told, grid)) = self.told_of(&part.bytes) else { continue };
            let mut is_lost = false;
            for gap in known.missing_of(&part.bytes) {
                is_lost |= !self.read_gap(part, &gap, (&told, &grid), &mut read, seen)?;
            }
            if is_lost {
                read.lost.push(part.bytes.clone());
            } else {
                known.insert(&part.bytes);
            }
        }
        read.lost.iter().for_each(|lost| known.insert(lost));
        read.unread = known.missing_of(&self.all());
        Ok(read)
    }

    /// Reads a part of a range back; false where bytes of it are lost.
    fn read_gap(
        &self,
        part: &ranges::Part,
        gap: &Range<u64>,
        (told, grid): (&Told, &SpanGrid),
        read: &mut ReadRanges,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<bool> {
        let begin = part.bytes.start;
        let file = SpanFile::from_place(self.file.try_clone()?, begin);
        let read_back = ReadBack::new(Arc::new(file));
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let (mut said_to, mut said_at, mut lost_bytes) = (gap.start, Instant::now(), 0);
        for span in told.durable.iter() {
            let (offset, len) = grid.range(span);
            let place = begin + offset;
            if place + len <= gap.start || place >= gap.end {
                continue;
            }
            if said_at.elapsed() >= SAY_EVERY && lost_bytes == 0 && place > said_to {
                self.say(part, said_to..place, true, seen)?;
                (said_to, said_at) = (place, Instant::now());
            }
            let digest = read_back.digest(offset, len, &mut buffer, seen)?;
            read.bytes += len;
            lost_bytes += if told.digests.get(span) == Some(digest) { 0 } else { len };
        }
        read.lost_bytes += lost_bytes;
        self.say(part, said_to..gap.end, lost_bytes == 0, seen)?;
        Ok(lost_bytes == 0)
    }

    /// Says of a part of a range whether it is there.
    fn say(
        &self,
        part: &ranges::Part,
        bytes: Range<u64>,
        is_there: bool,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let site = Directory::of(self.directory.clone(), &self.name);
        let part = ranges::Part { bytes, ..part.clone() };
        say_read_back(&site, &self.header, (&part, &self.earlier), is_there, &mut || seen(0))
    }

    /// Contents of a range's journal, where that is of this file and tells of every span.
    fn told_of(&self, range: &Range<u64>) -> Option<(Told, SpanGrid)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let name = range_journal_name(&self.name, range.start);
        let file = File::from(openat(&self.directory, &*name, flags, Mode::empty()).ok()?);
        if FileType::from_raw_mode(fstat(&file).ok()?.st_mode) != FileType::RegularFile {
            return None;
        }
        // What verified the spans as they came counts no more: the digests are of their bytes.
        let whole = Identity { digest: digest_of(&file)?, ..self.whole };
        let identity = of_range(whole, self.header.number, &self.name, range);
        let told = journal::decode(BufReader::new(file.take(FILE_BYTES_MAX)), &identity)?;
        let grid = SpanGrid::new(range.end - range.start, told.span_bytes).ok()?;
        let all = SpanSet::full(grid.count());
        (told.durable == all && *told.digests.known() == all).then_some((told, grid))
    }
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|it| it.end - it.start).sum()
}

#[cfg(test)]
mod tests {
    use super::{super::Wanted, *};
    use crate::storage::{
        journal::Recorded, root::Root, span_digests::DigestOfSpan, target_rules::TargetRules,
    };
    use haul_protocol::{
        SpanIndex,
        message::{Digest, FileOffer, FileRange, SpanRange},
    };
    use std::{os::unix::fs::FileExt, path::Path};

    const SPAN: u64 = 64 << 10;
    /// Ranges of a file of six spans.
    const CUTS: [Range<u64>; 3] = [0..2 * SPAN, 2 * SPAN..4 * SPAN, 4 * SPAN..6 * SPAN];

    fn open(place: &Path, bytes: &Range<u64>) -> Part {
        let range = FileRange { offset_bytes: bytes.start, file_bytes: 6 * SPAN };
        let offer = FileOffer {
            size_bytes: bytes.end - bytes.start,
            range: Some(range),
            ctime_s: 7,
            ..FileOffer::default()
        };
        let spans = (offer.size_bytes / SPAN) as u32;
        let wanted = Wanted { span_bytes: SPAN, spans, digest: Digest::AesGmac, recheck: false };
        let root = Root::open(place).unwrap();
        let rules = Arc::new(TargetRules::default());
        Part::open_range(&root, b"x", &offer, &wanted, &rules).unwrap().unwrap().0
    }

    /// Brings the bytes of a range.
    fn bring(place: &Path, bytes: &Range<u64>) -> Part {
        let mut part = open(place, bytes);
        let mut digests = Vec::new();
        for span in 0..(bytes.end - bytes.start) / SPAN {
            let content = vec![(bytes.start / SPAN + span) as u8 + 1; SPAN as usize];
            part.file.file().write_all_at(&content, part.file.place(span * SPAN)).unwrap();
            let mut digest = DigestOfSpan::default();
            digest.update(&content);
            digests.push(digest.finish());
        }
        let spans = &[SpanRange { first: SpanIndex(0), count: digests.len() as u32 }];
        part.make_durable(Recorded { spans, digests: &digests, values: &[] }).unwrap();
        part
    }

    /// Makes what the register says that of before this host's start.
    fn age(place: &Path) {
        let register = place.join(".x.haul-ranges");
        let mut bytes = std::fs::read(&register).unwrap();
        let (header, records) = bytes.split_at_mut(96);
        for record in records.chunks_exact_mut(52) {
            record[32] ^= 1;
            record[40..48].fill(0);
            let crc = crc_fast::crc32_iscsi(&[&record[..48], &header[72..80]].concat());
            record[48..].copy_from_slice(&crc.to_le_bytes());
        }
        std::fs::write(register, bytes).unwrap();
    }

    /// A directory where two ranges came before the start, and the third came now.
    fn completed() -> (tempfile::TempDir, Part, EarlierRanges) {
        let place = tempfile::tempdir().unwrap();
        for bytes in &CUTS[..2] {
            assert!(bring(place.path(), bytes).finish_range().unwrap().is_none());
        }
        age(place.path());
        let mut last = bring(place.path(), &CUTS[2]);
        let earlier = last.finish_range().unwrap().unwrap();
        assert_eq!(earlier.bytes(), 4 * SPAN);
        (place, last, earlier)
    }

    fn is_named(place: &tempfile::TempDir) -> bool {
        place.path().join("x").exists()
    }

    #[test]
    fn what_is_there_is_read_and_the_file_gets_its_name() {
        let (place, mut last, earlier) = completed();
        let mut seen = 0;
        let read = earlier.read_back(&mut |bytes| {
            seen += bytes;
            true
        });
        assert_eq!(read.unwrap(), ReadRanges { bytes: 4 * SPAN, ..ReadRanges::default() });
        assert!(seen == 4 * SPAN && !is_named(&place));
        assert!(last.finish_range().unwrap().is_none() && is_named(&place));
    }

    #[test]
    fn what_is_lost_is_named_and_comes_again() {
        let (place, mut last, earlier) = completed();
        last.file.file().write_all_at(b"others", 2 * SPAN + 9).unwrap();
        let read = earlier.read_back(&mut |_| true).unwrap();
        let lost = vec![CUTS[1].clone()];
        let expected = ReadRanges { bytes: 4 * SPAN, lost_bytes: SPAN, lost, unread: vec![] };
        assert_eq!(read, expected);
        assert!(last.finish_range().is_err() && !is_named(&place));
        drop(last);
        // The first counts from now on.
        let mut again = bring(place.path(), &CUTS[1]);
        assert!(again.finish_range().unwrap().is_none() && is_named(&place));
    }

    #[test]
    fn what_was_read_before_an_end_is_not_read_again() {
        let (place, last, earlier) = completed();
        let mut left = 2 * SPAN;
        let ended = earlier.read_back(&mut |bytes| {
            left = left.saturating_sub(bytes);
            left > 0 || bytes == 0
        });
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::Interrupted);
        drop(last);
        assert!(!is_named(&place));
        let mut again = open(place.path(), &CUTS[2]);
        assert!(again.was_done());
        let earlier = again.finish_range().unwrap().unwrap();
        assert!(earlier.bytes() <= 4 * SPAN);
        assert_eq!(earlier.read_back(&mut |_| true).unwrap().bytes, earlier.bytes());
        assert!(again.finish_range().unwrap().is_none() && is_named(&place));
    }

    #[test]
    fn a_range_without_a_whole_journal_is_not_read() {
        let (place, mut last, earlier) = completed();
        std::fs::remove_file(place.path().join(".x.0000000000000000.haul-range")).unwrap();
        let read = earlier.read_back(&mut |_| true).unwrap();
        let unread = vec![CUTS[0].clone()];
        assert_eq!(read, ReadRanges { bytes: 2 * SPAN, unread, ..ReadRanges::default() });
        assert!(last.finish_range().is_err(), "it looks back once");
        assert!(!is_named(&place));
    }

    /// Case of a shard that is run again, as somebody read that it is to be, while another waits.
    #[test]
    fn a_file_that_another_session_has_named_meanwhile_is_no_failure() {
        let (place, mut last, earlier) = completed();
        for bytes in &CUTS[..2] {
            let _ = bring(place.path(), bytes).finish_range();
        }
        assert!(is_named(&place));
        assert_eq!(earlier.read_back(&mut |_| true).unwrap().lost_bytes, 0);
        last.sync().unwrap();
        assert!(last.finish_range().unwrap().is_none());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
