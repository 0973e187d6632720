//! Digests of the durable spans of an unfinished file. The XXH3-128 of each span's bytes is enough
//! to tell later whether a disk, or a source, still has the bytes that were verified.
//!
//! It holds against accidents, not against a person who means harm: whoever may write to the
//! temporary or the source may write anything there anyway. 16 bytes of memory a span.

use super::holes;
use haul_protocol::{SpanGrid, SpanIndex, SpanSet, message::Extent};
use xxhash_rust::xxh3::Xxh3Default;

/// XXH3-128, seed 0, of a span's bytes, little-endian.
pub type Digest = [u8; 16];

/// Digests of a file's spans, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanDigests {
    known: SpanSet,
    digests: Vec<Digest>,
}

impl SpanDigests {
    /// Digests of a file of `spans` spans, none of which is known yet.
    #[must_use]
    pub fn new(spans: u32) -> Self {
        Self { known: SpanSet::new(spans), digests: vec![[0; 16]; spans as usize] }
    }

    /// Notes the digest of a span, in the place of what was known of it.
    ///
    /// # Panics
    /// If the file has no such span.
    pub fn insert(&mut self, span: SpanIndex, digest: Digest) {
        self.known.insert(span);
        self.digests[span.0 as usize] = digest;
    }

    pub fn forget(&mut self, span: SpanIndex) {
        self.known.remove(span);
    }

    #[must_use]
    pub fn known(&self) -> &SpanSet {
        &self.known
    }

    #[must_use]
    pub fn get(&self, span: SpanIndex) -> Option<Digest> {
        self.known.contains(span).then(|| self.digests[span.0 as usize])
    }

    /// Digest of what these spans hold, but for those within a hole (SPEC.md, 7.6). `None` where
    /// one of them is not known.
    #[must_use]
    pub fn of_all(&self, spans: &SpanSet, holes: &[Extent], grid: &SpanGrid) -> Option<Digest> {
        let mut of_all = DigestOfAll::default();
        for span in outside_holes(spans, holes, grid).iter() {
            of_all.add(span, &self.get(span)?);
        }
        Some(of_all.finish())
    }
}

/// Spans without those that lie within a hole.
#[must_use]
pub fn outside_holes(spans: &SpanSet, holes: &[Extent], grid: &SpanGrid) -> SpanSet {
    let (mut within, mut outside) = (SpanSet::new(grid.count()), spans.clone());
    holes::add_spans_within(holes, grid, &mut within);
    outside.subtract(&within);
    outside
}

/// Joins the digests of spans, in rising order, each bound to its place.
#[derive(Default)]
pub struct DigestOfAll(Xxh3Default);

impl DigestOfAll {
    pub fn add(&mut self, span: SpanIndex, digest: &Digest) {
        self.0.update(&span.0.to_le_bytes());
        self.0.update(digest);
    }

    #[must_use]
    pub fn finish(&self) -> Digest {
        self.0.digest128().to_le_bytes()
    }
}

/// Computes the digest of one span after the other.
#[derive(Default)]
pub struct DigestOfSpan(Xxh3Default);

impl DigestOfSpan {
    pub fn start(&mut self) {
        self.0.reset();
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    #[must_use]
    pub fn finish(&self) -> Digest {
        self.0.digest128().to_le_bytes()
    }
}

/// Digest of a span of zeros.
#[must_use]
pub fn digest_of_zeros(len_bytes: u64) -> Digest {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut digest = DigestOfSpan::default();
    let mut left = len_bytes;
    while left > 0 {
        let take = left.min(ZEROS.len() as u64);
        digest.update(&ZEROS[..take as usize]);
        left -= take;
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_128;

    const SPAN: u64 = 64 << 10;

    #[test]
    fn a_digest_of_all_binds_each_span_to_its_place_and_leaves_holes_out() {
        let grid = SpanGrid::new(4 * SPAN, SPAN).unwrap();
        let of = |digests: [u8; 4], holes: &[Extent]| {
            let mut known = SpanDigests::new(4);
            for (span, digest) in digests.into_iter().enumerate().filter(|(_, digest)| *digest > 0)
            {
                known.insert(SpanIndex(span as u32), [digest; 16]);
            }
            known.of_all(&SpanSet::full(4), holes, &grid)
        };
        let first = Extent { offset_bytes: 0, len_bytes: SPAN };
        assert_eq!(of([1, 2, 3, 4], &[]), of([1, 2, 3, 4], &[]));
        assert_ne!(of([1, 2, 3, 4], &[]), of([2, 1, 3, 4], &[]), "two spans are swapped");
        assert_ne!(of([1, 2, 3, 4], &[]), of([1, 2, 3, 4], &[first]));
        assert_eq!(of([1, 2, 3, 4], &[first]), of([9, 2, 3, 4], &[first]));
        assert_eq!(of([0, 2, 3, 4], &[]), None, "one is not known");
        assert!(of([0, 2, 3, 4], &[first]).is_some());
    }

    #[test]
    fn a_span_is_known_from_its_note_on_until_it_is_forgotten() {
        let mut digests = SpanDigests::new(4);
        for (span, digest) in [(1, [1; 16]), (3, [3; 16]), (3, [9; 16])] {
            digests.insert(SpanIndex(span), digest);
        }
        digests.forget(SpanIndex(1));
        assert_eq!(digests.known().iter().collect::<Vec<_>>(), [SpanIndex(3)]);
        let found = [0, 1, 3].map(|span| digests.get(SpanIndex(span)));
        assert_eq!(found, [None, None, Some([9; 16])]);
    }

    /// Values that are pinned for other implementations: SPEC.md, 7.6.
    #[test]
    fn a_digest_of_all_is_what_the_specification_says() {
        let mut bytes = Vec::new();
        let mut of_all = DigestOfAll::default();
        for (span, text) in [(3_u32, "one span"), (9, "another")] {
            let digest = xxh3_128(text.as_bytes()).to_le_bytes();
            of_all.add(SpanIndex(span), &digest);
            bytes.extend_from_slice(&span.to_le_bytes());
            bytes.extend_from_slice(&digest);
        }
        assert_eq!(of_all.finish(), xxh3_128(&bytes).to_le_bytes());
    }
}
