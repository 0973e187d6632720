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

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::StreamId;

    fn sent(file: u32, offset_bytes: u64, digest: u8) -> SentSpan {
        let (file, stream) = (FileId(file), StreamId(0));
        let header = SpanHeader { file, offset_bytes, len_bytes: 10, sequence: 0, stream };
        SentSpan { header, status: PayloadStatus::Whole, digest: [digest; 16] }
    }

    #[test]
    fn a_span_is_kept_as_it_went_out_last_until_its_file_is_settled() {
        let spans = SentSpans::default();
        for (span, sent) in [(1, sent(7, 10, 1)), (0, sent(7, 0, 2)), (1, sent(7, 10, 3))] {
            spans.sent(SpanIndex(span), sent);
        }
        spans.sent(SpanIndex(0), sent(8, 0, 4));
        let digests =
            |file| spans.of(FileId(file)).iter().map(|sent| sent.digest[0]).collect::<Vec<_>>();
        assert_eq!((digests(7), digests(8), digests(9)), (vec![2, 3], vec![4], vec![]));
        spans.forget(FileId(7));
        assert_eq!((digests(7), digests(8)), (vec![], vec![4]));
    }

    #[test]
    fn a_span_that_can_be_looked_at_again_is_kept_unless_it_was_given_up() {
        use PayloadStatus::{Abandoned, Confirmed, Whole};
        const SPAN: u64 = 64 << 10;
        for (size_bytes, kept) in [(SPAN, [true, false, false]), (SPAN + 1, [true, true, false])] {
            let grid = SpanGrid::new(size_bytes, SPAN).unwrap();
            let keeps = |status| SentSpans::keeps(&grid, status);
            assert_eq!([Whole, Confirmed, Abandoned].map(keeps), kept, "{size_bytes}");
        }
    }
}
