//! Facts about a settled file until its line is written, and their bytes in a waiting file.

use super::Origin;
use crate::{
    content::{FileContent, Value},
    storage::root::os_path,
};
use haul_protocol::{SpanGrid, SpanIndex, message::FileOffer};
use std::{os::unix::ffi::OsStrExt, path::Path};

/// A settled file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub size_bytes: u64,
    /// Modification time of the source; `zero:` has none.
    pub mtime: (i64, u32),
    /// Number and device of the source's inode.
    pub inode: (u64, u64),
    pub known: Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    Failed,
    Hash(Value),
    /// Values of several spans, or of none; the others are read.
    Spans {
        content: Option<FileContent>,
        origin: Origin,
    },
}

impl Record {
    #[must_use]
    pub fn new(offer: &FileOffer, known: Known) -> Self {
        Self {
            size_bytes: offer.size_bytes,
            mtime: (offer.mtime_s, offer.mtime_ns),
            inode: (offer.inode, offer.device),
            known,
        }
    }

    #[must_use]
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        let key = |record: &Self| (record.size_bytes, record.mtime, record.inode);
        key(self) == key(other)
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(80);
        bytes.extend_from_slice(&self.size_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.mtime.0.to_le_bytes());
        bytes.extend_from_slice(&self.mtime.1.to_le_bytes());
        bytes.extend_from_slice(&self.inode.0.to_le_bytes());
        bytes.extend_from_slice(&self.inode.1.to_le_bytes());
        match &self.known {
            Known::Failed => bytes.push(0),
            Known::Hash(hash) => {
                bytes.push(1);
                bytes.extend_from_slice(hash);
            }
            Known::Spans { content, origin } => {
                bytes.push(2);
                let (kind, path) = match origin {
                    Origin::Nowhere => (0, Path::new("")),
                    Origin::Zeros => (1, Path::new("")),
                    Origin::Source(path) => (2, path.as_path()),
                    Origin::Target(path) => (3, path.as_path()),
                };
                let path = path.as_os_str().as_bytes();
                bytes.push(kind);
                bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
                bytes.extend_from_slice(path);
                encode_content(content.as_ref(), &mut bytes);
            }
        }
        bytes
    }

    /// Decodes the bytes of [`Self::encode`]; `None` for any others.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (size_bytes, mtime_s, mtime_ns) = (rest.u64()?, rest.u64()? as i64, rest.u32()?);
        let inode = (rest.u64()?, rest.u64()?);
        let known = match rest.take::<1>()? {
            [0] => Known::Failed,
            [1] => Known::Hash(rest.take()?),
            [2] => {
                let [kind] = rest.take()?;
                let len = rest.u32()? as usize;
                let path = os_path(rest.bytes(len)?).to_owned();
                let origin = match kind {
                    0 => Origin::Nowhere,
                    1 => Origin::Zeros,
                    2 => Origin::Source(path),
                    _ => Origin::Target(path),
                };
                Known::Spans { content: decode_content(size_bytes, &mut rest)?, origin }
            }
            _ => return None,
        };
        Some(Self { size_bytes, mtime: (mtime_s, mtime_ns), inode, known })
    }
}

/// Encodes the span size, or 0, and then each known span with its value.
fn encode_content(content: Option<&FileContent>, bytes: &mut Vec<u8>) {
    let span_bytes = content.map_or(0, |content| content.grid().span_bytes());
    bytes.extend_from_slice(&span_bytes.to_le_bytes());
    let Some(content) = content else { return };
    for span in content.known().iter() {
        bytes.extend_from_slice(&span.0.to_le_bytes());
        bytes.extend_from_slice(&content.value(span).expect("it is known"));
    }
}

fn decode_content(size_bytes: u64, rest: &mut Rest<'_>) -> Option<Option<FileContent>> {
    let span_bytes = rest.u64()?;
    if span_bytes == 0 {
        return Some(None);
    }
    let grid = SpanGrid::new(size_bytes, span_bytes).ok()?;
    let mut content = FileContent::new(grid);
    while !rest.0.is_empty() {
        let span = Some(rest.u32()?).filter(|span| *span < grid.count())?;
        content.insert(SpanIndex(span), rest.take()?);
    }
    Some(Some(content))
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.bytes(LEN)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let offer = FileOffer {
            size_bytes: 5 * 65_536 - 1,
            mtime_s: -7,
            mtime_ns: 999_999_999,
            inode: u64::MAX,
            device: 3,
            ..FileOffer::default()
        };
        let mut content = FileContent::new(SpanGrid::new(offer.size_bytes, 65_536).unwrap());
        content.insert(SpanIndex(1), [7; 32]);
        content.insert(SpanIndex(4), [9; 32]);
        let path = |name: &[u8]| os_path(name).to_owned();
        for known in [
            Known::Failed,
            Known::Hash([5; 32]),
            Known::Spans { content: None, origin: Origin::Source(path(b"a/\xff")) },
            Known::Spans { content: Some(content.clone()), origin: Origin::Zeros },
            Known::Spans { content: Some(content), origin: Origin::Target(path(b"b")) },
            Known::Spans { content: None, origin: Origin::Nowhere },
        ] {
            let record = Record::new(&offer, known);
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes), Some(record));
            assert_eq!(Record::decode(&bytes[..36]), None);
        }
    }
}
