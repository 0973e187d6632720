//! Journal of a target file: which spans are verified and durable.
//!
//! It lies beside the hidden temporary and holds a header, which says what is moved (source
//! identity, target inode, span size), and records, each a run of spans. Both carry a
//! CRC-32C and the header's own random number, so that a torn tail, a damaged, an older or a
//! foreign journal is never believed: reading stops at the first record that is not whole, and a
//! header that does not fit means a clean restart. docs/decisions/ says why this is not a database.
//!
//! A record holds the digest of each span, so that a later run can read it back and compare: after
//! a crash of the host, which the header's boot id tells, or where the source's ctime is another.
//! Where the session computes the BLAKE3 value of each span, for `--manifest` or `--verify-target`,
//! a record holds these too.

use super::span_digests::{Digest, SpanDigests};
use crate::{
    bytes::random_bytes,
    content::{FileContent, Value},
};
use haul_protocol::{SpanGrid, SpanIndex, SpanSet, limits, message::SpanRange};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
};

const MAGIC: [u8; 8] = *b"haul-jn2";
const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 16;
/// Offset of the span size in a header.
const SPAN_BYTES_AT: usize = 80;
/// Offset of the digest's number in a header.
const DIGEST_AT: usize = 92;
/// Most bytes of a journal, which is far smaller: a record for each run of spans that a checkpoint
/// made durable.
pub const FILE_BYTES_MAX: u64 =
    HEADER_BYTES as u64 + (RECORD_BYTES as u64 * 4 + CONTENT_BYTES as u64 * 2) * limits::SPANS_MAX;
const VALUE_BYTES: usize = 32;
const DIGEST_BYTES: usize = 16;
/// Most bytes that a record holds of each span.
const CONTENT_BYTES: usize = VALUE_BYTES + DIGEST_BYTES;
/// Flag in a record's count: a digest, or a value, for each span follows, or the spans are not
/// durable after all. No file has so many spans.
const WITH_VALUES: u32 = 1 << 31;
const WITH_DIGESTS: u32 = 1 << 30;
const LOST: u32 = 1 << 29;
const COUNT: u32 = LOST - 1;

/// Identity of what is moved, and where to: a journal holds only for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Length of the source.
    pub size_bytes: u64,
    /// Modification time of the source, in seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time.
    pub mtime_ns: u32,
    /// Inode of the source.
    pub source_inode: u64,
    /// Device of the source.
    pub source_device: u64,
    /// Inode of the temporary, so that a journal beside another file is not believed.
    pub target_inode: u64,
    /// Device of the temporary.
    pub target_device: u64,
    /// Digest that verified the spans: what came under another digest is not taken over.
    pub digest: u32,
    /// The first half of the SHA-256 of the target's name in its directory.
    pub name_hash: [u8; 16],
}

/// Circumstances under which the first of the durable spans came, as far as they tell whether the
/// spans are still right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Change time of the source's inode, in seconds and nanoseconds; zeros: not known.
    pub ctime: (i64, u32),
    /// Boot of this host: a crash in between may have kept the journal and not the data.
    pub boot: [u8; 16],
}

/// Spans that are durable now, with the digests and the BLAKE3 values of all of them, or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded<'a> {
    pub spans: &'a [SpanRange],
    pub digests: &'a [Digest],
    pub values: &'a [Value],
}

/// Number that stands for the size of a file that grows: one number for each span size, so that its
/// journal holds for every size that the file comes to have.
#[must_use]
pub fn growing_size_bytes(span_bytes: u64) -> u64 {
    span_bytes.saturating_mul(limits::SPANS_MAX).min(limits::FILE_BYTES_MAX)
}

/// The span size that a journal says, which nobody has checked.
#[must_use]
pub fn span_bytes_of(file: &File) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SPAN_BYTES_AT as u64).ok()?;
    let span_bytes = u64::from_le_bytes(bytes);
    SpanGrid::new(0, span_bytes).is_ok().then_some(span_bytes)
}

/// The digest that a journal says verified its spans, which nobody has checked.
#[must_use]
pub fn digest_of(file: &File) -> Option<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, DIGEST_AT as u64).ok()?;
    Some(u32::from_le_bytes(bytes))
}

#[derive(Debug)]
pub struct Journal {
    file: File,
    header: Header,
    /// Whether the journal names other numbers of devices than the identity.
    is_renumbered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    identity: Identity,
    span_bytes: u64,
    /// Number that binds the records to this header.
    number: u32,
    circumstances: Circumstances,
}

impl Journal {
    /// Begins an empty journal in `file`, which it takes over, and makes it durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(
        mut file: File,
        identity: &Identity,
        span_bytes: u64,
        circumstances: Circumstances,
    ) -> io::Result<Self> {
        let number = u32::from_le_bytes(random_bytes()?);
        let header = Header { identity: *identity, span_bytes, number, circumstances };
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header.encode())?;
        file.sync_data()?;
        Ok(Self { file, header, is_renumbered: false })
    }

    /// Reads the journal in `file`, if it is one of this very transfer.
    #[must_use]
    pub fn resume(mut file: File, identity: &Identity) -> Option<(Self, Told)> {
        file.seek(SeekFrom::Start(0)).ok()?;
        let told = decode(BufReader::new((&file).take(FILE_BYTES_MAX)), identity)?;
        // What comes behind a torn record would otherwise hide the records that follow it.
        file.set_len(told.whole_bytes).ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        let (span_bytes, number, circumstances) =
            (told.span_bytes, told.number, told.circumstances);
        let header = Header { identity: *identity, span_bytes, number, circumstances };
        let is_renumbered = !(told.has_source_device && told.has_target_device);
        Some((Self { file, header, is_renumbered }, told))
    }

    /// Records that these spans are durable. The caller has synced the data before.
    ///
    /// # Errors
    /// If it cannot be written or synced: then nothing was promised.
    pub fn record(&mut self, recorded: Recorded<'_>) -> io::Result<()> {
        let Recorded { spans, digests, values } = recorded;
        let mut bytes = Vec::with_capacity(
            spans.len() * RECORD_BYTES + size_of_val(digests) + size_of_val(values),
        );
        let (mut digests, mut values) = (digests, values);
        for range in spans {
            let (of_range, behind) = digests.split_at(digests.len().min(range.count as usize));
            digests = behind;
            let (values_of_range, behind) = values.split_at(values.len().min(range.count as usize));
            values = behind;
            encode_record(range, of_range, values_of_range, self.header.number, &mut bytes);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }

    /// Gives the journal the ctime of this moment. Where that fails the temporary is read back.
    pub fn touch(&self) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let _ = futimens(&self.file, &times);
    }

    /// Cuts the journal to smaller spans, which are whole parts of those before; what was durable
    /// stays so. The digests and values of the larger spans are of no use to the smaller ones.
    ///
    /// # Errors
    /// If it cannot be written or synced: less may be durable than was, and never more.
    pub fn cut_smaller(
        self,
        identity: &Identity,
        told: &Told,
        smaller: SpanGrid,
    ) -> io::Result<(Self, Told)> {
        let span_bytes = smaller.span_bytes();
        let parts = u32::try_from(told.span_bytes / span_bytes).map_err(io::Error::other)?;
        let ranges = told.durable.to_ranges().into_iter().map(|range| {
            let first = range.first.0.saturating_mul(parts);
            let end = (range.first.0 + range.count).saturating_mul(parts).min(smaller.count());
            SpanRange { first: SpanIndex(first), count: end.saturating_sub(first) }
        });
        let ranges = ranges.filter(|range| range.count > 0).collect::<Vec<_>>();
        let durable = SpanSet::from_ranges(smaller.count(), &ranges);
        let durable = durable.map_err(|error| io::Error::other(error.what))?;
        let mut journal = Self::begin(self.file, identity, span_bytes, told.circumstances)?;
        journal.record(Recorded { spans: &ranges, ..Recorded::default() })?;
        let told = Told {
            number: journal.header.number,
            span_bytes,
            circumstances: told.circumstances,
            has_source_device: true,
            has_target_device: true,
            durable,
            digests: SpanDigests::new(smaller.count()),
            content: FileContent::new(smaller),
            whole_bytes: (HEADER_BYTES + ranges.len() * RECORD_BYTES) as u64,
        };
        Ok((journal, told))
    }

    /// Takes back what was said of these spans: they are not what came.
    ///
    /// # Errors
    /// If it cannot be written or synced: then nobody is to write to the temporary.
    pub fn lose(&mut self, spans: &[SpanRange]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(spans.len() * RECORD_BYTES);
        for range in spans {
            let range = SpanRange { count: range.count | LOST, ..*range };
            encode_record(&range, &[], &[], self.header.number, &mut bytes);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }

    /// Records that the durable spans are known to be right under these circumstances.
    ///
    /// # Errors
    /// If it cannot be written or synced.
    pub fn confirm(&mut self, circumstances: Circumstances) -> io::Result<()> {
        if self.header.circumstances == circumstances && !self.is_renumbered {
            return Ok(());
        }
        self.header.circumstances = circumstances;
        // All of it lies in one sector of a disk; a torn one is not believed.
        self.file.write_all_at(&self.header.encode(), 0)?;
        self.file.sync_data()?;
        self.is_renumbered = false;
        Ok(())
    }

    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.header.span_bytes
    }

    #[must_use]
    pub fn circumstances(&self) -> Circumstances {
        self.header.circumstances
    }
}

/// Contents of a journal.
#[derive(Debug)]
pub struct Told {
    number: u32,
    pub span_bytes: u64,
    pub circumstances: Circumstances,
    /// Whether the journal names the devices of the identity that was asked for.
    pub has_source_device: bool,
    pub has_target_device: bool,
    pub durable: SpanSet,
    /// Digests of the durable spans, as far as they were journaled.
    pub digests: SpanDigests,
    /// BLAKE3 values of the durable spans.
    pub content: FileContent,
    /// Bytes of the journal that are whole: header and records.
    pub whole_bytes: u64,
}

/// Reads a journal; `None` when it is not one of this very transfer, or cannot be read. That a
/// device has another number is told, and for the caller to judge.
#[must_use]
pub fn decode(mut journal: impl Read, identity: &Identity) -> Option<Told> {
    let mut header = [0; HEADER_BYTES];
    journal.read_exact(&mut header).ok()?;
    let span_bytes = u64_at(&header, SPAN_BYTES_AT);
    let number = u32_at(&header, 88);
    let ctime = (u64_at(&header, 96).cast_signed(), u32_at(&header, 104));
    let boot = header[108..124].try_into().expect("sixteen bytes");
    let circumstances = Circumstances { ctime, boot };
    // A file system may get another number when it is mounted again.
    let (source_device, target_device) = (u64_at(&header, 40), u64_at(&header, 56));
    let named = Identity { source_device, target_device, ..*identity };
    let whole = Header { identity: named, span_bytes, number, circumstances };
    if header != whole.encode() {
        return None;
    }
    let grid = SpanGrid::new(identity.size_bytes, span_bytes).ok()?;
    let mut told = Told {
        number,
        span_bytes,
        circumstances,
        has_source_device: source_device == identity.source_device,
        has_target_device: target_device == identity.target_device,
        durable: SpanSet::new(grid.count()),
        digests: SpanDigests::new(grid.count()),
        content: FileContent::new(grid),
        whole_bytes: HEADER_BYTES as u64,
    };
    while let Some(record) = read_record(&mut journal, number, &grid).ok()? {
        told.take(&record, &grid)?;
    }
    Some(told)
}

impl Told {
    /// Takes a record over; `None` where the file has no such spans.
    fn take(&mut self, record: &Record, grid: &SpanGrid) -> Option<()> {
        let Record { range, is_lost, digests, values } = record;
        let end = range.first.0.checked_add(range.count).filter(|end| *end <= grid.count())?;
        for (at, span) in (range.first.0..end).map(SpanIndex).enumerate() {
            if *is_lost {
                self.durable.remove(span);
            } else {
                self.durable.insert(span);
            }
            match digests.get(at) {
                Some(digest) => self.digests.insert(span, *digest),
                // Moved again, and nobody looked at it.
                None => self.digests.forget(span),
            }
            match values.get(at) {
                Some(value) => self.content.insert(span, *value),
                None => self.content.forget(span),
            }
        }
        let bytes = RECORD_BYTES + size_of_val(&digests[..]) + size_of_val(&values[..]);
        self.whole_bytes += bytes as u64;
        Some(())
    }
}

/// True for the first bytes of a journal.
#[must_use]
pub fn is_journal(begin: &[u8]) -> bool {
    begin.starts_with(&MAGIC)
}

/// Reads a journal of whatever transfer; `None` when it is damaged or none.
#[must_use]
pub fn decode_any(mut journal: impl Read) -> Option<(Identity, Told)> {
    let mut header = [0; HEADER_BYTES];
    journal.read_exact(&mut header).ok()?;
    let identity = Identity {
        size_bytes: u64_at(&header, 8),
        mtime_s: u64_at(&header, 16).cast_signed(),
        mtime_ns: u32_at(&header, 24),
        source_inode: u64_at(&header, 32),
        source_device: u64_at(&header, 40),
        target_inode: u64_at(&header, 48),
        target_device: u64_at(&header, 56),
        digest: u32_at(&header, 92),
        name_hash: header[64..80].try_into().expect("sixteen bytes"),
    };
    let told = decode((&header[..]).chain(journal.take(FILE_BYTES_MAX)), &identity)?;
    Some((identity, told))
}

/// A run of spans.
struct Record {
    range: SpanRange,
    is_lost: bool,
    digests: Vec<Digest>,
    values: Vec<Value>,
}

/// The next record; `None` behind the last one that is whole.
fn read_record(
    journal: &mut impl Read,
    number: u32,
    grid: &SpanGrid,
) -> io::Result<Option<Record>> {
    let mut head = [0; RECORD_BYTES];
    if !read_whole(journal, &mut head)? {
        return Ok(None);
    }
    let flags = u32_at(&head, 4) & !COUNT;
    let range = SpanRange { first: SpanIndex(u32_at(&head, 0)), count: u32_at(&head, 4) & COUNT };
    let (mut digests, mut values) = (Vec::new(), Vec::new());
    // No more memory than a file of so many spans is good for.
    if flags & !LOST != 0 && range.count > grid.count() {
        return Ok(None);
    }
    if flags & WITH_DIGESTS != 0 {
        digests.resize(range.count as usize, [0; DIGEST_BYTES]);
    }
    if flags & WITH_VALUES != 0 {
        values.resize(range.count as usize, [0; VALUE_BYTES]);
    }
    if !read_whole(journal, digests.as_flattened_mut())?
        || !read_whole(journal, values.as_flattened_mut())?
    {
        return Ok(None);
    }
    let is_lost = flags & LOST != 0;
    let said = SpanRange { count: range.count | (flags & LOST), ..range };
    let mut expected = Vec::with_capacity(RECORD_BYTES);
    encode_record(&said, &digests, &values, number, &mut expected);
    let is_whole = head == expected[..RECORD_BYTES];
    Ok(is_whole.then_some(Record { range, is_lost, digests, values }))
}

/// Fills the buffer; false where the journal ends before.
fn read_whole(journal: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match journal.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let Self { identity, span_bytes, number, circumstances } = self;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&identity.size_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&identity.mtime_s.to_le_bytes());
        bytes[24..28].copy_from_slice(&identity.mtime_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&identity.source_inode.to_le_bytes());
        bytes[40..48].copy_from_slice(&identity.source_device.to_le_bytes());
        bytes[48..56].copy_from_slice(&identity.target_inode.to_le_bytes());
        bytes[56..64].copy_from_slice(&identity.target_device.to_le_bytes());
        bytes[64..80].copy_from_slice(&identity.name_hash);
        bytes[SPAN_BYTES_AT..88].copy_from_slice(&span_bytes.to_le_bytes());
        bytes[88..92].copy_from_slice(&number.to_le_bytes());
        bytes[DIGEST_AT..96].copy_from_slice(&identity.digest.to_le_bytes());
        bytes[96..104].copy_from_slice(&circumstances.ctime.0.to_le_bytes());
        bytes[104..108].copy_from_slice(&circumstances.ctime.1.to_le_bytes());
        bytes[108..124].copy_from_slice(&circumstances.boot);
        let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Bytes of a record: a run of spans, and behind it their digests and values, if any.
fn encode_record(
    range: &SpanRange,
    digests: &[Digest],
    values: &[Value],
    number: u32,
    bytes: &mut Vec<u8>,
) {
    let with_digests = if digests.is_empty() { 0 } else { WITH_DIGESTS };
    let with_values = if values.is_empty() { 0 } else { WITH_VALUES };
    let mut covered = Vec::with_capacity(12 + size_of_val(digests) + size_of_val(values));
    covered.extend_from_slice(&range.first.0.to_le_bytes());
    covered.extend_from_slice(&(range.count | with_digests | with_values).to_le_bytes());
    covered.extend_from_slice(&number.to_le_bytes());
    covered.extend_from_slice(digests.as_flattened());
    covered.extend_from_slice(values.as_flattened());
    let crc = crc_fast::crc32_iscsi(&covered);
    let (head, content) = covered.split_at(12);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(content);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 64 << 10;

    fn identity() -> Identity {
        Identity {
            size_bytes: SPAN * 10 - 1,
            mtime_s: -5,
            mtime_ns: 7,
            source_inode: 1,
            source_device: 2,
            target_inode: 3,
            target_device: 4,
            digest: 4,
            name_hash: [5; 16],
        }
    }

    const THEN: Circumstances = Circumstances { ctime: (-9, 8), boot: [6; 16] };

    fn begin(file: &File) -> Journal {
        Journal::begin(file.try_clone().unwrap(), &identity(), SPAN, THEN).unwrap()
    }

    fn spans(spans: &[SpanRange]) -> Recorded<'_> {
        Recorded { spans, ..Recorded::default() }
    }

    fn file_with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// A journal that says spans 0 to 2 and then 7 are durable, as bytes.
    fn written() -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        let mut journal = begin(&file);
        journal.record(spans(&[SpanRange { first: SpanIndex(0), count: 3 }])).unwrap();
        journal.record(spans(&[SpanRange { first: SpanIndex(7), count: 1 }])).unwrap();
        all_of(&file)
    }

    fn durable_in(bytes: &[u8]) -> Option<Vec<u32>> {
        let (_, told) = Journal::resume(file_with(bytes), &identity())?;
        assert_eq!((told.span_bytes, told.circumstances), (SPAN, THEN));
        Some(told.durable.iter().map(|span| span.0).collect())
    }

    #[test]
    fn spans_that_become_smaller_stay_durable() {
        let larger = identity();
        let grid = |span_bytes| SpanGrid::new(larger.size_bytes, span_bytes).unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut journal =
            Journal::begin(file.try_clone().unwrap(), &larger, SPAN * 4, THEN).unwrap();
        let first = [SpanRange { first: SpanIndex(0), count: 1 }];
        let digests = [[9; 16]];
        journal.record(Recorded { spans: &first, digests: &digests, values: &[[7; 32]] }).unwrap();
        journal.record(spans(&[SpanRange { first: SpanIndex(2), count: 1 }])).unwrap();
        let (journal, told) = Journal::resume(file.try_clone().unwrap(), &larger).unwrap();
        let (_, cut) = journal.cut_smaller(&larger, &told, grid(SPAN)).unwrap();
        let (_, again) = Journal::resume(file, &larger).unwrap();
        assert_eq!((again.span_bytes, &again.durable), (SPAN, &cut.durable));
        assert_eq!((again.circumstances, again.whole_bytes), (THEN, cut.whole_bytes));
        assert_eq!(cut.durable.bytes(&grid(SPAN)), told.durable.bytes(&grid(SPAN * 4)));
        let durable = cut.durable.iter().map(|span| span.0);
        assert_eq!(durable.collect::<Vec<_>>(), [0, 1, 2, 3, 8, 9]);
        assert!(again.content.known().is_empty(), "nobody knows values of these spans");
        assert!(again.digests.get(SpanIndex(0)).is_none(), "nor their digests");
    }

    #[test]
    fn what_was_recorded_is_there_after_a_restart() {
        assert_eq!(durable_in(&written()), Some(vec![0, 1, 2, 7]));
    }

    #[test]
    fn a_journal_longer_than_any_buffer_is_read_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        let mut journal = begin(&file);
        journal.record(spans(&[SpanRange { first: SpanIndex(1), count: 1 }; 20_000])).unwrap();
        journal.record(spans(&[SpanRange { first: SpanIndex(9), count: 1 }])).unwrap();
        let (mut journal, told) = Journal::resume(file, &identity()).unwrap();
        assert_eq!(told.durable.iter().map(|span| span.0).collect::<Vec<_>>(), [1, 9]);
        assert_eq!(journal.file.stream_position().unwrap(), journal.file.metadata().unwrap().len());
    }

    #[test]
    fn a_journal_cut_anywhere_tells_less_and_never_more() {
        let bytes = written();
        for len in 0..bytes.len() {
            let expected = match len.checked_sub(HEADER_BYTES) {
                None => None,
                Some(0..RECORD_BYTES) => Some(vec![]),
                Some(_) => Some(vec![0, 1, 2]),
            };
            assert_eq!(durable_in(&bytes[..len]), expected, "{len} bytes");
        }
    }

    #[test]
    fn any_flipped_bit_gives_less_and_never_more() {
        let bytes = written();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let told = durable_in(&damaged);
            assert!(matches!(told.as_deref(), None | Some([] | [0, 1, 2])), "bit {bit}: {told:?}");
        }
    }

    #[test]
    fn a_journal_of_another_transfer_is_not_believed() {
        let others = [
            Identity { mtime_ns: 8, ..identity() },
            Identity { size_bytes: 5, ..identity() },
            Identity { source_inode: 9, ..identity() },
            Identity { target_inode: 9, ..identity() },
            Identity { digest: 1, ..identity() },
            Identity { name_hash: [0; 16], ..identity() },
        ];
        for other in others {
            assert!(Journal::resume(file_with(&written()), &other).is_none());
        }
        // Records of an older journal that lay in the same place.
        let mut mixed = written();
        let older = written();
        mixed[HEADER_BYTES + RECORD_BYTES..].copy_from_slice(&older[HEADER_BYTES + RECORD_BYTES..]);
        assert_eq!(durable_in(&mixed), Some(vec![0, 1, 2]));
    }

    #[test]
    fn other_numbers_of_devices_are_told_and_confirmed() {
        let moved = Identity { source_device: 20, target_device: 40, ..identity() };
        let file = file_with(&written());
        let (mut journal, told) = Journal::resume(file.try_clone().unwrap(), &moved).unwrap();
        assert!(!told.has_source_device && !told.has_target_device && told.durable.count() == 4);
        journal.confirm(THEN).unwrap();
        let (_, told) = Journal::resume(file, &moved).unwrap();
        assert!(told.has_source_device && told.has_target_device && told.durable.count() == 4);
    }

    /// Case of one disk that was mounted again, the source's or the target's.
    #[test]
    fn one_other_number_of_a_device_is_confirmed_too() {
        for moved in [
            Identity { source_device: 20, ..identity() },
            Identity { target_device: 40, ..identity() },
        ] {
            let file = file_with(&written());
            let (mut journal, _) = Journal::resume(file.try_clone().unwrap(), &moved).unwrap();
            journal.confirm(THEN).unwrap();
            let (_, told) = Journal::resume(file, &moved).unwrap();
            assert!(told.has_source_device && told.has_target_device);
        }
    }

    #[test]
    fn a_journal_that_is_touched_has_the_time_of_that_moment() {
        let file = file_with(&written());
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let (journal, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        journal.touch();
        assert!(file.metadata().unwrap().modified().unwrap() > before);
    }

    #[test]
    fn spans_that_the_file_does_not_have_make_its_journal_none_and_all_of_them_do_not() {
        let file = tempfile::tempfile().unwrap();
        let mut journal = begin(&file);
        let all = [SpanRange { first: SpanIndex(0), count: 10 }];
        journal
            .record(Recorded { spans: &all, digests: &[[1; 16]; 10], values: &[[2; 32]; 10] })
            .unwrap();
        let (durable, digests, values) = told(&all_of(&file)).unwrap();
        assert_eq!((durable.len(), digests.len(), values.len()), (10, 10, 10));
        for (first, count) in [(0, 11), (10, 1), (u32::MAX, 1)] {
            let file = file_with(&written());
            let (mut journal, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
            journal.record(spans(&[SpanRange { first: SpanIndex(first), count }])).unwrap();
            assert!(Journal::resume(file, &identity()).is_none(), "{count} spans from {first}");
        }
    }

    #[test]
    fn a_journal_of_which_the_disk_gives_only_a_part_is_not_believed() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk gives no more"))
            }
        }
        let bytes = written();
        assert!(decode(&bytes[..], &identity()).is_some());
        assert!(decode((&bytes[..]).chain(Broken), &identity()).is_none());
    }

    /// A journal with digests and values of spans 0 to 2, then none of 1, then those of 5 and 7,
    /// then digests alone of 8, of which 7 is lost, as bytes.
    fn with_values() -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        let mut journal = begin(&file);
        let range = |first, count| SpanRange { first: SpanIndex(first), count };
        let (digests, values) = ([[1; 16], [2; 16], [3; 16]], [[1; 32], [2; 32], [3; 32]]);
        let first = [range(0, 3)];
        journal.record(Recorded { spans: &first, digests: &digests, values: &values }).unwrap();
        journal.record(spans(&[range(1, 1)])).unwrap();
        let (digests, values) = ([[6; 16], [8; 16]], [[6; 32], [8; 32]]);
        let both = [range(5, 1), range(7, 1)];
        journal.record(Recorded { spans: &both, digests: &digests, values: &values }).unwrap();
        let digests = [[9; 16]];
        let last = [range(8, 1)];
        journal.record(Recorded { spans: &last, digests: &digests, values: &[] }).unwrap();
        journal.lose(&[range(7, 1)]).unwrap();
        all_of(&file)
    }

    #[test]
    fn the_most_bytes_are_four_records_a_span_of_which_two_have_digest_and_value() {
        let one = SpanRange { first: SpanIndex(0), count: 1 };
        let len_of = |digests: &[Digest], values: &[Value]| {
            let mut bytes = Vec::new();
            encode_record(&one, digests, values, 1, &mut bytes);
            bytes.len() as u64
        };
        let whole = len_of(&[[0; DIGEST_BYTES]], &[[0; VALUE_BYTES]]);
        let of_a_span = 2 * whole + 2 * len_of(&[], &[]);
        assert_eq!(FILE_BYTES_MAX, HEADER_BYTES as u64 + limits::SPANS_MAX * of_a_span);
    }

    fn all_of(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Numbers of the durable spans; those with a digest, and those with a value, with its first
    /// byte.
    type Tale = (Vec<u32>, Vec<(u32, u8)>, Vec<(u32, u8)>);

    fn told(bytes: &[u8]) -> Option<Tale> {
        let (_, told) = Journal::resume(file_with(bytes), &identity())?;
        let content = &told.content;
        let values = content.known().iter().map(|span| (span.0, content.value(span).unwrap()));
        let values = values.inspect(|(_, value)| assert_eq!(*value, [value[0]; 32]));
        let digest = |span| Some((span, told.digests.get(SpanIndex(span))?));
        let digests = (0..10).filter_map(digest);
        let digests = digests.inspect(|(_, digest)| assert_eq!(*digest, [digest[0]; 16]));
        Some((
            told.durable.iter().map(|span| span.0).collect(),
            digests.map(|(span, digest)| (span, digest[0])).collect(),
            values.map(|(span, value)| (span, value[0])).collect(),
        ))
    }

    #[test]
    fn digests_and_values_are_told_with_their_spans_and_no_other_bytes_are_ever_told() {
        let bytes = with_values();
        let (durable, digests) = (vec![0, 1, 2, 5, 8], vec![(0, 1), (2, 3), (5, 6), (8, 9)]);
        let values = vec![(0, 1), (2, 3), (5, 6)];
        assert_eq!(told(&bytes), Some((durable, digests, values)));
        // Whatever is not whole, nothing is told that was never said.
        let said = |(durable, digests, values): Tale| {
            assert!(durable.iter().all(|span| [0, 1, 2, 5, 7, 8].contains(span)));
            let (known, last) = ([(0, 1), (1, 2), (2, 3), (5, 6), (7, 8)], [(8, 9)]);
            assert!(digests.iter().all(|known_| known.contains(known_) || last.contains(known_)));
            assert!(values.iter().all(|value| known.contains(value)));
        };
        for len in HEADER_BYTES..bytes.len() {
            said(told(&bytes[..len]).unwrap());
        }
        for bit in HEADER_BYTES * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            said(told(&damaged).unwrap_or_default());
        }
    }

    #[test]
    fn a_journal_says_itself_what_it_is_of() {
        let bytes = with_values();
        let (found, told) = decode_any(&bytes[..]).unwrap();
        assert_eq!((found, told.durable.count(), told.circumstances), (identity(), 5, THEN));
        assert!(is_journal(&bytes) && !is_journal(b"haul-jn"));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_any(&damaged[..]).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_lost_may_come_again_and_the_circumstances_are_those_last_confirmed() {
        let file = file_with(&with_values());
        let (mut journal, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        let now = Circumstances { ctime: (3, 4), boot: [1; 16] };
        journal.confirm(now).unwrap();
        let (again, digests) = ([SpanRange { first: SpanIndex(7), count: 1 }], [[5; 16]]);
        journal.record(Recorded { spans: &again, digests: &digests, values: &[] }).unwrap();
        let (journal, told) = Journal::resume(file, &identity()).unwrap();
        assert_eq!((journal.circumstances(), told.circumstances), (now, now));
        assert_eq!(told.digests.get(SpanIndex(7)), Some([5; 16]));
        assert!(told.durable.contains(SpanIndex(7)) && told.content.value(SpanIndex(7)).is_none());
    }

    #[test]
    fn records_go_on_behind_a_torn_one() {
        let mut bytes = written();
        bytes.truncate(bytes.len() - 3);
        let file = file_with(&bytes);
        let (mut journal, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        journal.record(spans(&[SpanRange { first: SpanIndex(9), count: 1 }])).unwrap();
        let (_, told) = Journal::resume(file, &identity()).unwrap();
        assert_eq!(told.durable.iter().map(|span| span.0).collect::<Vec<_>>(), [0, 1, 2, 9]);
    }
}
