//! The journal of a target file: which spans are verified and durable.
//!
//! It lies beside the hidden temporary and holds a header, which says what is moved (source
//! identity, target inode, span size), and records, each a run of spans. Both carry a
//! CRC-32C and the header's own random number, so that a torn tail, a damaged, an older or a
//! foreign journal is never believed: reading stops at the first record that is not whole, and a
//! header that does not fit means a clean restart. docs/decisions/ says why this is not a database.
//!
//! Where the session computes the BLAKE3 value of each span, for `--manifest` or `--verify-target`,
//! a record holds these too: so a later run can read the spans back and compare.

use crate::{
    content::{FileContent, Value},
    token::random_bytes,
};
use haul_protocol::{SpanGrid, SpanIndex, SpanSet, limits, wire::SpanRange};
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
};

const MAGIC: [u8; 8] = *b"haul-jn1";
const HEADER_BYTES: usize = 104;
const RECORD_BYTES: usize = 16;
/// Where a header has its span size.
const SPAN_BYTES_AT: usize = 80;
/// A journal is far smaller: a record for each run of spans that a checkpoint made durable.
const FILE_BYTES_MAX: u64 =
    HEADER_BYTES as u64 + (RECORD_BYTES as u64 * 4 + VALUE_BYTES as u64 * 2) * limits::SPANS_MAX;
const VALUE_BYTES: usize = 32;
/// In a record's count: a value for each span follows. No file has so many spans.
const WITH_VALUES: u32 = 1 << 31;

/// What is moved, and where to: a journal holds only for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub size_bytes: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
    pub source_inode: u64,
    pub source_device: u64,
    /// Of the temporary, so that a journal beside another file is not believed.
    pub target_inode: u64,
    pub target_device: u64,
    /// What verified the spans: what came under another digest is not taken over.
    pub digest: u32,
    /// The first half of the SHA-256 of the target's name below its root.
    pub name_hash: [u8; 16],
}

/// What stands for the size of a file that grows: one number for each span size, so that its
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

#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Binds the records to this header.
    number: u32,
    /// What the values of an earlier run tell of the durable spans.
    pub told: Option<FileContent>,
}

impl Journal {
    /// Begins an empty journal in `file`, which it takes over, and makes it durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(mut file: File, identity: &Identity, span_bytes: u64) -> io::Result<Self> {
        let number = u32::from_le_bytes(random_bytes()?);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&encode_header(identity, span_bytes, number))?;
        file.sync_data()?;
        Ok(Self { file, number, told: None })
    }

    /// Reads the journal in `file`, if it is one of this very transfer: it, the span size and the
    /// spans that are durable.
    #[must_use]
    pub fn resume(mut file: File, identity: &Identity) -> Option<(Self, u64, SpanSet)> {
        file.seek(SeekFrom::Start(0)).ok()?;
        let told = decode(BufReader::new((&file).take(FILE_BYTES_MAX)), identity)?;
        // What comes behind a torn record would otherwise hide the records that follow it.
        file.set_len(told.whole_bytes).ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        let journal = Self { file, number: told.number, told: Some(told.content) };
        Some((journal, told.span_bytes, told.durable))
    }

    /// Says that these spans are durable, with the values of all of them or of none. The caller has
    /// synced the data before.
    ///
    /// # Errors
    /// If it cannot be written or synced: then nothing was promised.
    pub fn record(&mut self, spans: &[SpanRange], values: &[Value]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(spans.len() * RECORD_BYTES + size_of_val(values));
        let mut rest = values;
        for range in spans {
            let (of_range, behind) = rest.split_at(rest.len().min(range.count as usize));
            rest = behind;
            encode_record(range, of_range, self.number, &mut bytes);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }
}

impl Journal {
    /// Takes back what was said of spans, but for those whose values are known.
    ///
    /// # Errors
    /// If it cannot be written or synced: then nobody is to write to the temporary.
    pub fn restart(&mut self, content: Option<&FileContent>) -> io::Result<()> {
        // Less is durable in between, and never more.
        self.file.set_len(HEADER_BYTES as u64)?;
        self.file.seek(SeekFrom::End(0))?;
        let ranges = content.map_or(Vec::new(), |content| content.known().to_ranges());
        let spans = content.into_iter().flat_map(|content| content.known().iter());
        let values: Vec<Value> =
            spans.filter_map(|span| content.and_then(|content| content.value(span))).collect();
        self.record(&ranges, &values)
    }
}

/// What a journal tells.
#[derive(Debug)]
pub struct Told {
    number: u32,
    pub span_bytes: u64,
    pub durable: SpanSet,
    /// What the durable spans hold, as far as their values were journaled.
    pub content: FileContent,
    /// How much of it is whole: header and records.
    pub whole_bytes: u64,
}

/// Reads a journal; `None` when it is not one of this very transfer, or cannot be read.
#[must_use]
pub fn decode(mut journal: impl Read, identity: &Identity) -> Option<Told> {
    let mut header = [0; HEADER_BYTES];
    journal.read_exact(&mut header).ok()?;
    let span_bytes = u64_at(&header, SPAN_BYTES_AT);
    let number = u32_at(&header, 88);
    if header != encode_header(identity, span_bytes, number) {
        return None;
    }
    let grid = SpanGrid::new(identity.size_bytes, span_bytes).ok()?;
    let mut durable = SpanSet::new(grid.count());
    let mut content = FileContent::new(grid);
    let mut whole_bytes = HEADER_BYTES as u64;
    while let Some((range, values)) = read_record(&mut journal, number, &grid).ok()? {
        let end = range.first.checked_add(range.count).filter(|end| *end <= grid.count())?;
        for (at, span) in (range.first..end).map(SpanIndex).enumerate() {
            durable.insert(span);
            match values.get(at) {
                Some(value) => content.insert(span, *value),
                // Moved again, and nobody looked at it.
                None => content.forget(span),
            }
        }
        whole_bytes += (RECORD_BYTES + size_of_val(&values[..])) as u64;
    }
    Some(Told { number, span_bytes, durable, content, whole_bytes })
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

/// The next record; `None` behind the last one that is whole.
fn read_record(
    journal: &mut impl Read,
    number: u32,
    grid: &SpanGrid,
) -> io::Result<Option<(SpanRange, Vec<Value>)>> {
    let mut record = [0; RECORD_BYTES];
    if !read_whole(journal, &mut record)? {
        return Ok(None);
    }
    let count = u32_at(&record, 4);
    let range = SpanRange { first: u32_at(&record, 0), count: count & !WITH_VALUES };
    let mut values = Vec::new();
    if count & WITH_VALUES != 0 {
        // No more memory than a file of so many spans is good for.
        if range.count > grid.count() {
            return Ok(None);
        }
        values.resize(range.count as usize, [0; VALUE_BYTES]);
        if !read_whole(journal, values.as_flattened_mut())? {
            return Ok(None);
        }
    }
    let mut expected = Vec::with_capacity(RECORD_BYTES);
    encode_record(&range, &values, number, &mut expected);
    Ok((record == expected[..RECORD_BYTES]).then_some((range, values)))
}

/// False where the journal ends before.
fn read_whole(journal: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match journal.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode_header(identity: &Identity, span_bytes: u64, number: u32) -> [u8; HEADER_BYTES] {
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
    bytes[92..96].copy_from_slice(&identity.digest.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A run of spans, and behind it their values, if any.
fn encode_record(range: &SpanRange, values: &[Value], number: u32, bytes: &mut Vec<u8>) {
    let with_values = if values.is_empty() { 0 } else { WITH_VALUES };
    let mut covered = Vec::with_capacity(12 + size_of_val(values));
    covered.extend_from_slice(&range.first.to_le_bytes());
    covered.extend_from_slice(&(range.count | with_values).to_le_bytes());
    covered.extend_from_slice(&number.to_le_bytes());
    covered.extend_from_slice(values.as_flattened());
    let crc = crc_fast::crc32_iscsi(&covered);
    let (head, values) = covered.split_at(12);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(values);
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

    fn file_with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// A journal that says spans 0 to 2 and then 7 are durable, as bytes.
    fn written() -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::begin(file.try_clone().unwrap(), &identity(), SPAN).unwrap();
        journal.record(&[SpanRange { first: 0, count: 3 }], &[]).unwrap();
        journal.record(&[SpanRange { first: 7, count: 1 }], &[]).unwrap();
        let mut bytes = Vec::new();
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn durable_in(bytes: &[u8]) -> Option<Vec<u32>> {
        let (_, span_bytes, set) = Journal::resume(file_with(bytes), &identity())?;
        assert_eq!(span_bytes, SPAN);
        Some(set.iter().map(|span| span.0).collect())
    }

    #[test]
    fn what_was_recorded_is_there_after_a_restart() {
        assert_eq!(durable_in(&written()), Some(vec![0, 1, 2, 7]));
    }

    #[test]
    fn a_journal_longer_than_any_buffer_is_read_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::begin(file.try_clone().unwrap(), &identity(), SPAN).unwrap();
        journal.record(&[SpanRange { first: 1, count: 1 }; 20_000], &[]).unwrap();
        journal.record(&[SpanRange { first: 9, count: 1 }], &[]).unwrap();
        let (mut journal, _, set) = Journal::resume(file, &identity()).unwrap();
        assert_eq!(set.iter().map(|span| span.0).collect::<Vec<_>>(), [1, 9]);
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

    /// A journal with the values of spans 0 to 2, then none of 1, then those of 5 and 7, as bytes.
    fn with_values() -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::begin(file.try_clone().unwrap(), &identity(), SPAN).unwrap();
        let range = |first, count| SpanRange { first, count };
        journal.record(&[range(0, 3)], &[[1; 32], [2; 32], [3; 32]]).unwrap();
        journal.record(&[range(1, 1)], &[]).unwrap();
        journal.record(&[range(5, 1), range(7, 1)], &[[6; 32], [8; 32]]).unwrap();
        let mut bytes = Vec::new();
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Durable spans, and those with a value with its first byte.
    type Tale = (Vec<u32>, Vec<(u32, u8)>);

    fn told(bytes: &[u8]) -> Option<Tale> {
        let (journal, _, durable) = Journal::resume(file_with(bytes), &identity())?;
        let content = journal.told.unwrap();
        let values = content.known().iter().map(|span| (span.0, content.value(span).unwrap()));
        let values = values.inspect(|(_, value)| assert_eq!(*value, [value[0]; 32]));
        let values = values.map(|(span, value)| (span, value[0])).collect();
        Some((durable.iter().map(|span| span.0).collect(), values))
    }

    #[test]
    fn values_are_told_with_their_spans_and_no_other_bytes_are_ever_told() {
        let bytes = with_values();
        let all = (vec![0, 1, 2, 5, 7], vec![(0, 1), (2, 3), (5, 6), (7, 8)]);
        assert_eq!(told(&bytes), Some(all.clone()));
        for len in HEADER_BYTES..bytes.len() {
            let (durable, values) = told(&bytes[..len]).unwrap();
            assert!(durable.iter().all(|span| all.0.contains(span)) && durable.len() < 5);
            assert!(values.iter().all(|value| all.1.contains(value) || *value == (1, 2)));
        }
        for bit in HEADER_BYTES * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (durable, values) = told(&damaged).unwrap_or_default();
            assert!(durable.iter().all(|span| all.0.contains(span)) && durable.len() < 5);
            assert!(values.iter().all(|value| all.1.contains(value) || *value == (1, 2)));
        }
    }

    #[test]
    fn a_journal_says_itself_what_it_is_of() {
        let bytes = with_values();
        let (found, told) = decode_any(&bytes[..]).unwrap();
        assert_eq!((found, told.durable.count()), (identity(), 5));
        assert!(is_journal(&bytes) && !is_journal(b"haul-jn"));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_any(&damaged[..]).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_restart_takes_back_what_has_no_value() {
        let file = file_with(&with_values());
        let (mut journal, _, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        let content = journal.told.take();
        journal.restart(content.as_ref()).unwrap();
        journal.record(&[SpanRange { first: 9, count: 1 }], &[[4; 32]]).unwrap();
        let mut bytes = Vec::new();
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        let values = vec![(0, 1), (2, 3), (5, 6), (7, 8), (9, 4)];
        assert_eq!(told(&bytes), Some((vec![0, 2, 5, 7, 9], values)));
        journal.restart(None).unwrap();
        let (_, _, durable) = Journal::resume(file, &identity()).unwrap();
        assert!(durable.is_empty());
    }

    #[test]
    fn records_go_on_behind_a_torn_one() {
        let mut bytes = written();
        bytes.truncate(bytes.len() - 3);
        let file = file_with(&bytes);
        let (mut journal, _, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        journal.record(&[SpanRange { first: 9, count: 1 }], &[]).unwrap();
        let (_, _, set) = Journal::resume(file, &identity()).unwrap();
        assert_eq!(set.iter().map(|span| span.0).collect::<Vec<_>>(), [0, 1, 2, 9]);
    }
}
