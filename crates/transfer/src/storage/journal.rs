//! The journal of a target file: which spans are verified and durable.
//!
//! It lies beside the hidden temporary and holds a header, which says what is moved (source
//! identity, target inode, span size), and records, each a run of spans. Both carry a
//! CRC-32C and the header's own random number, so that a torn tail, a damaged, an older or a
//! foreign journal is never believed: reading stops at the first record that is not whole, and a
//! header that does not fit means a clean restart. docs/decisions/ says why this is not a database.

use crate::token::random_bytes;
use haul_protocol::{SpanGrid, SpanIndex, SpanSet, limits, wire::SpanRange};
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
};

const MAGIC: [u8; 8] = *b"haul-jn1";
const HEADER_BYTES: usize = 104;
const RECORD_BYTES: usize = 16;
/// A journal is far smaller: a record for each run of spans that a checkpoint made durable.
const FILE_BYTES_MAX: u64 = HEADER_BYTES as u64 + RECORD_BYTES as u64 * limits::SPANS_MAX * 4;

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

#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Binds the records to this header.
    number: u32,
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
        Ok(Self { file, number })
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
        Some((Self { file, number: told.number }, told.span_bytes, told.durable))
    }

    /// Says that these spans are durable. The caller has synced the data before.
    ///
    /// # Errors
    /// If it cannot be written or synced: then nothing was promised.
    pub fn record(&mut self, spans: &[SpanRange]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(spans.len() * RECORD_BYTES);
        for range in spans {
            bytes.extend_from_slice(&encode_record(range, self.number));
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }
}

/// What a journal tells.
#[derive(Debug)]
pub struct Told {
    number: u32,
    pub span_bytes: u64,
    pub durable: SpanSet,
    /// How much of it is whole: header and records.
    pub whole_bytes: u64,
}

/// Reads a journal; `None` when it is not one of this very transfer, or cannot be read.
#[must_use]
pub fn decode(mut journal: impl Read, identity: &Identity) -> Option<Told> {
    let mut header = [0; HEADER_BYTES];
    journal.read_exact(&mut header).ok()?;
    let span_bytes = u64_at(&header, 80);
    let number = u32_at(&header, 88);
    if header != encode_header(identity, span_bytes, number) {
        return None;
    }
    let grid = SpanGrid::new(identity.size_bytes, span_bytes).ok()?;
    let mut durable = SpanSet::new(grid.count());
    let mut whole_bytes = HEADER_BYTES as u64;
    loop {
        let mut record = [0; RECORD_BYTES];
        match journal.read_exact(&mut record) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(_) => return None,
        }
        let range = SpanRange { first: u32_at(&record, 0), count: u32_at(&record, 4) };
        if record != encode_record(&range, number) {
            break;
        }
        let end = range.first.checked_add(range.count).filter(|end| *end <= grid.count())?;
        for span in range.first..end {
            durable.insert(SpanIndex(span));
        }
        whole_bytes += RECORD_BYTES as u64;
    }
    Some(Told { number, span_bytes, durable, whole_bytes })
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
    bytes[80..88].copy_from_slice(&span_bytes.to_le_bytes());
    bytes[88..92].copy_from_slice(&number.to_le_bytes());
    bytes[92..96].copy_from_slice(&identity.digest.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn encode_record(range: &SpanRange, number: u32) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&range.first.to_le_bytes());
    bytes[4..8].copy_from_slice(&range.count.to_le_bytes());
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
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
        journal.record(&[SpanRange { first: 0, count: 3 }]).unwrap();
        journal.record(&[SpanRange { first: 7, count: 1 }]).unwrap();
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
        journal.record(&[SpanRange { first: 1, count: 1 }; 20_000]).unwrap();
        journal.record(&[SpanRange { first: 9, count: 1 }]).unwrap();
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

    #[test]
    fn records_go_on_behind_a_torn_one() {
        let mut bytes = written();
        bytes.truncate(bytes.len() - 3);
        let file = file_with(&bytes);
        let (mut journal, _, _) = Journal::resume(file.try_clone().unwrap(), &identity()).unwrap();
        journal.record(&[SpanRange { first: 9, count: 1 }]).unwrap();
        let (_, _, set) = Journal::resume(file, &identity()).unwrap();
        assert_eq!(set.iter().map(|span| span.0).collect::<Vec<_>>(), [0, 1, 2, 9]);
    }
}
