//! Ranges of large files, which several runs bring: what a shard of a plan has of each.

use haul_protocol::message::Extent;
use std::collections::BTreeMap;

/// Ranges of files, by the path of each file below its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRanges(BTreeMap<Vec<u8>, Vec<Cut>>);

/// A range of a file that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// Size of the whole file when it was cut.
    pub file_bytes: u64,
    /// Modification time of the file when it was cut: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Inode of the file when it was cut.
    pub inode: u64,
}

impl FileRanges {
    pub(crate) fn push(&mut self, path: &[u8], cut: Cut) {
        self.0.entry(path.to_vec()).or_default().push(cut);
    }

    pub(crate) fn of(&self, path: &[u8]) -> Option<&[Cut]> {
        self.0.get(path).map(Vec::as_slice)
    }

    /// Whether no file comes in ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Cut {
    /// The part of a hole that lies within this range, counted from its begin.
    pub(crate) fn within(&self, hole: &Extent) -> Option<Extent> {
        let begin = hole.offset_bytes.max(self.offset_bytes);
        let hole_end = hole.offset_bytes.saturating_add(hole.len_bytes);
        let end = hole_end.min(self.offset_bytes + self.len_bytes);
        let offset_bytes = begin - self.offset_bytes;
        (begin < end).then(|| Extent { offset_bytes, len_bytes: end - begin })
    }
}
