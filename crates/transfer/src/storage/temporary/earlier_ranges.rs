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
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};
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

/// Most ranges that a message names.
const SHOWN_MAX: usize = 4;

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
    /// Parts that have such bytes.
    pub lost: Vec<Range<u64>>,
    /// Bytes of which no journal tells, or that could not be read.
    pub unread: Vec<Range<u64>>,
    /// The first error of reading.
    pub error: Option<String>,
}

impl ReadRanges {
    /// Reason why the file gets no name, where not all is there as it came.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let mut found = Vec::new();
        if !self.lost.is_empty() {
            let (lost_bytes, ranges) = (self.lost_bytes, shown(&self.lost));
            found.push(format!("{lost_bytes} bytes are others than had come, in bytes {ranges}"));
        }
        if !self.unread.is_empty() {
            let why = match &self.error {
                Some(error) => format!("cannot be read back ({error})"),
                None => "have no journal to be read back by".into(),
            };
            found.push(format!("bytes {} {why}", shown(&self.unread)));
        }
        (!found.is_empty()).then(|| {
            let found = found.join("; ");
            format!("{found}: run all shards again, until each ends with 0")
        })
    }

    fn failed(&mut self, error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::Interrupted {
            return Err(error);
        }
        self.error.get_or_insert(error.to_string());
        Ok(())
    }
}

fn shown(ranges: &[Range<u64>]) -> String {
    let first = ranges.iter().take(SHOWN_MAX).map(|it| format!("{} to {}", it.start, it.end));
    let first = first.collect::<Vec<_>>().join(", ");
    match ranges.len().saturating_sub(SHOWN_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
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
    /// does not tell of every byte, or that cannot be read, nothing is said. `seen` is told how
    /// many bytes were read, and says whether to go on.
    ///
    /// # Errors
    /// Interrupted when `seen` said so; what the register's calls say.
    pub fn read_back(&self, seen: &mut dyn FnMut(u64) -> bool) -> io::Result<ReadRanges> {
        let mut known = self.earlier.believed.clone();
        let mut read = ReadRanges::default();
        for part in &self.earlier.parts {
            if known.covers(&part.bytes) {
                continue;
            }
            let (told, grid) = match self.told_of(&part.bytes) {
                Ok(Some(told)) => told,
                Ok(None) => continue,
                Err(error) => {
                    read.failed(error)?;
                    continue;
                }
            };
            let mut is_read = true;
            for gap in known.missing_of(&part.bytes) {
                is_read &= self.read_gap(part, &gap, (&told, &grid), &mut read, seen)?;
            }
            if is_read {
                known.insert(&part.bytes);
            }
        }
        read.lost.iter().for_each(|lost| known.insert(lost));
        read.unread = known.missing_of(&self.all());
        Ok(read)
    }

    /// Reads a part of a range back; false where bytes of it are lost, or cannot be read.
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
            let digest = match read_back.digest(offset, len, &mut buffer, seen) {
                Ok(digest) => digest,
                Err(error) => return read.failed(error).map(|()| false),
            };
            read.bytes += len;
            lost_bytes += if told.digests.get(span) == Some(digest) { 0 } else { len };
        }
        self.say(part, said_to..gap.end, lost_bytes == 0, seen)?;
        if lost_bytes > 0 {
            read.lost_bytes += lost_bytes;
            read.lost.push(gap.clone());
        }
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

    /// Contents of a range's journal, where there is one of this file that tells of every span.
    fn told_of(&self, range: &Range<u64>) -> io::Result<Option<(Told, SpanGrid)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let name = range_journal_name(&self.name, range.start);
        let file = match openat(&self.directory, &*name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            opened => File::from(opened?),
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        // What verified the spans as they came counts no more: the digests are of their bytes.
        let digest = digest_of(&file).unwrap_or(self.whole.digest);
        let whole = Identity { digest, ..self.whole };
        let identity = of_range(whole, self.header.number, &self.name, range);
        let mut reader = Noting { file: file.take(FILE_BYTES_MAX), error: None };
        let told = journal::decode(BufReader::new(&mut reader), &identity);
        if let Some(error) = reader.error {
            return Err(error);
        }
        let with_grid = |told: Told| {
            let grid = SpanGrid::new(range.end - range.start, told.span_bytes).ok()?;
            let all = SpanSet::full(grid.count());
            (told.durable == all && *told.digests.known() == all).then_some((told, grid))
        };
        Ok(told.and_then(with_grid))
    }
}

/// Reader that keeps the error with which it ended: who decodes a journal does not tell an error
/// from its end.
struct Noting<R> {
    file: R,
    error: Option<io::Error>,
}

impl<R: Read> Read for Noting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        read.map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                self.error = Some(error);
            }
            kind.into()
        })
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
        let none = ReadRanges::default();
        assert_eq!(read, ReadRanges { bytes: 4 * SPAN, lost_bytes: SPAN, lost, ..none });
        last.was_looked_back(read.missing());
        let why = last.finish_range().unwrap_err().to_string();
        let words = "65536 bytes are others than had come, in bytes 131072 to 262144: run all";
        assert!(why.starts_with(words) && !is_named(&place), "{why}");
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
        last.was_looked_back(read.missing());
        let why = last.finish_range().unwrap_err().to_string();
        assert!(why.starts_with("bytes 0 to 131072 have no journal"), "it looks back once: {why}");
        assert!(!is_named(&place));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_what_is_behind_it_is_read() {
        let (place, mut last, earlier) = completed();
        // The range that is read first.
        let journal = place.path().join(format!(".x.{:016x}.haul-range", CUTS[1].start));
        std::fs::rename(&journal, place.path().join("kept")).unwrap();
        std::fs::create_dir(&journal).unwrap();
        let read = earlier.read_back(&mut |_| true).unwrap();
        assert_eq!((read.bytes, read.error.as_ref()), (2 * SPAN, None), "no file, and no journal");
        assert_eq!(read.unread, std::slice::from_ref(&CUTS[1]));
        let mut read = ReadRanges { unread: vec![0..7; 6], ..read };
        read.failed(io::Error::from_raw_os_error(5)).unwrap();
        let why = read.missing().unwrap();
        assert!(why.contains("0 to 7 and 2 more cannot be read back (Input/output"), "{why}");
        assert!(read.failed(io::ErrorKind::Interrupted.into()).is_err());
        assert!(last.finish_range().is_err() && !is_named(&place));
    }

    /// Case of another reader that had read a part of a range, and ended.
    #[test]
    fn what_another_session_has_read_meanwhile_takes_nothing_from_the_rest() {
        let (place, mut last, earlier) = completed();
        let claim = last.claim.as_ref().unwrap();
        let part = ranges::Part { bytes: 0..SPAN, ctime: (7, 0) };
        let other = (&part, &earlier.earlier);
        say_read_back(claim.site(), &claim.header, other, true, &mut || true).unwrap();
        assert_eq!(earlier.read_back(&mut |_| true).unwrap().missing(), None);
        assert!(last.finish_range().unwrap().is_none() && is_named(&place));
    }

    /// Case of a shard that is run again, as somebody read that it is to be, while another waits.
    #[test]
    fn a_file_that_another_session_has_named_meanwhile_is_no_failure() {
        let (place, mut last, earlier) = completed();
        for bytes in &CUTS[..2] {
            let _ = bring(place.path(), bytes).finish_range();
        }
        assert!(is_named(&place));
        let read = earlier.read_back(&mut |_| true).unwrap();
        assert_eq!(read.unread.len(), 1, "the journals are gone");
        last.was_looked_back(read.missing());
        last.sync().unwrap();
        assert!(last.finish_range().unwrap().is_none());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
