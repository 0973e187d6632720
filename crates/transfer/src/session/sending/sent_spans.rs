//! Digests with which the spans of a session's files were sent.
//!
//! With them a source can be read again and compared: 40 bytes of memory a span, while its file is
//! open.

use crate::locks::{Lock, lock};
use haul_protocol::{
    FileId, SpanGrid, SpanIndex,
    frame::{PayloadStatus, SpanHeader},
};
use std::collections::BTreeMap;

/// A span that was sent, with its status and digest.
#[derive(Clone, Copy, Debug)]
pub struct SentSpan {
    pub header: SpanHeader,
    pub status: PayloadStatus,
    pub digest: [u8; 16],
}

/// The spans sent of all files that are not settled; of a span that went out twice, the last time.
#[derive(Debug, Default)]
pub struct SentSpans {
    files: Lock<BTreeMap<FileId, BTreeMap<SpanIndex, SentSpan>>>,
}

impl SentSpans {
    pub fn sent(&self, span: SpanIndex, sent: SentSpan) {
        lock(&self.files).entry(sent.header.file).or_default().insert(span, sent);
    }

    /// Spans of a file that were sent so far.
    #[must_use]
    pub fn of(&self, file: FileId) -> Vec<SentSpan> {
        lock(&self.files).get(&file).map_or(Vec::new(), |spans| spans.values().copied().collect())
    }

    /// Forgets the spans of a file that is settled.
    pub fn forget(&self, file: FileId) {
        lock(&self.files).remove(&file);
    }

    /// Says whether a span that left with this status is kept, in a file cut by this grid: a file
    /// of one span is looked at before its trailer leaves, and only if something is odd then, once
    /// more.
    #[must_use]
    pub fn keeps(grid: &SpanGrid, status: PayloadStatus) -> bool {
        status == PayloadStatus::Whole || (grid.count() > 1 && status != PayloadStatus::Abandoned)
    }
}
