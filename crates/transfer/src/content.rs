//! BLAKE3 hash of what a file holds. It is computed while the spans move, in any order.
//!
//! BLAKE3 is a tree over chunks of 1 KiB, in which the size of every left subtree is a power of two
//! (section 2.1 of the BLAKE3 paper). So is that of a span, which begins at a multiple of it: it is
//! a subtree whose value can be computed alone. The values together give the hash of the file, the
//! same that `b3sum` prints.

use blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};
use haul_protocol::{SpanGrid, SpanIndex, SpanSet};

/// The hash of a whole file, or the value of one of its subtrees.
pub type Value = [u8; 32];

/// The hash of no bytes.
#[must_use]
pub fn hash_of_nothing() -> Value {
    *blake3::hash(b"").as_bytes()
}

/// Kind of a span: a whole file, or a part of one. The root of the tree is finished in another way
/// than a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    WholeFile,
    OfMore,
}

impl Part {
    #[must_use]
    pub fn of(spans: u32) -> Self {
        if spans <= 1 { Self::WholeFile } else { Self::OfMore }
    }
}

/// Hashes one span after the other.
#[derive(Debug, Default)]
pub struct SpanHasher {
    hasher: Hasher,
}

impl SpanHasher {
    /// Begins a span at an offset that is a multiple of the span size.
    pub fn start(&mut self, offset_bytes: u64) {
        self.hasher = Hasher::new();
        self.hasher.set_input_offset(offset_bytes);
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Finishes what was seen since `start`.
    #[must_use]
    pub fn finish(&self, part: Part) -> Value {
        match part {
            Part::WholeFile => *self.hasher.finalize().as_bytes(),
            Part::OfMore => self.hasher.finalize_non_root(),
        }
    }
}

/// The values of a file's spans, as far as they are known: 32 bytes of memory for each span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    grid: SpanGrid,
    known: SpanSet,
    values: Vec<Value>,
}

impl FileContent {
    /// Values of a file that is cut in this way, none of which is known yet.
    #[must_use]
    pub fn new(grid: SpanGrid) -> Self {
        let spans = grid.count();
        Self { grid, known: SpanSet::new(spans), values: vec![[0; 32]; spans as usize] }
    }

    #[must_use]
    pub fn grid(&self) -> &SpanGrid {
        &self.grid
    }

    /// Part of the file that each of its spans is.
    #[must_use]
    pub fn part(&self) -> Part {
        Part::of(self.grid.count())
    }

    /// Spans whose values are not known.
    pub fn unknown(&self) -> impl Iterator<Item = SpanIndex> + '_ {
        (0..self.grid.count()).map(SpanIndex).filter(|span| !self.known.contains(*span))
    }

    /// Notes the value of a span, in the place of what was known of it.
    ///
    /// # Panics
    /// If the file has no such span.
    pub fn insert(&mut self, span: SpanIndex, value: Value) {
        self.known.insert(span);
        self.values[span.0 as usize] = value;
    }

    /// Forgets the value of a span that was moved again by somebody who did not look at it.
    pub fn forget(&mut self, span: SpanIndex) {
        self.known.remove(span);
    }

    #[must_use]
    pub fn known(&self) -> &SpanSet {
        &self.known
    }

    #[must_use]
    pub fn value(&self, span: SpanIndex) -> Option<Value> {
        self.known.contains(span).then(|| self.values[span.0 as usize])
    }

    /// The hash of the file, once every span is known.
    #[must_use]
    pub fn hash(&self) -> Option<Value> {
        if !self.known.is_full() {
            return None;
        }
        Some(match &self.values[..] {
            [] => hash_of_nothing(),
            [whole] => *whole,
            values => {
                let (left, right) = values.split_at(left_of(values.len()));
                *merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes()
            }
        })
    }
}

/// Number of the spans in the left subtree: the largest power of two that leaves some.
fn left_of(spans: usize) -> usize {
    spans.div_ceil(2).next_power_of_two()
}

fn merged(values: &[Value]) -> Value {
    if let [value] = values {
        return *value;
    }
    let (left, right) = values.split_at(left_of(values.len()));
    merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// Hexadecimal text of a value, in lower case as `b3sum` writes it.
#[must_use]
pub fn hex_of(value: &Value) -> String {
    crate::bytes::hex(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 64 << 10;

    fn bytes_of(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    }

    #[test]
    fn spans_in_any_order_give_the_hash_of_the_whole() {
        for spans in [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33] {
            for less in [0, 1, 1023, 1024, SPAN - 1] {
                let len = (spans * SPAN).saturating_sub(less);
                let bytes = bytes_of(len);
                let grid = SpanGrid::new(len, SPAN).unwrap();
                let mut content = FileContent::new(grid);
                let mut hasher = SpanHasher::default();
                let (odd, even): (Vec<u32>, Vec<u32>) =
                    (0..grid.count()).rev().partition(|span| span % 2 == 1);
                for span in odd.into_iter().chain(even) {
                    assert_eq!(content.hash(), None);
                    let (offset, len) = grid.range(SpanIndex(span));
                    hasher.start(offset);
                    for piece in bytes[offset as usize..(offset + len) as usize].chunks(70_001) {
                        hasher.update(piece);
                    }
                    content.insert(SpanIndex(span), hasher.finish(Part::of(grid.count())));
                }
                let whole = *blake3::hash(&bytes).as_bytes();
                assert_eq!(content.hash(), Some(whole), "{spans} spans less {less}");
            }
        }
    }

    #[test]
    fn a_span_that_comes_again_counts_as_it_came_last() {
        let bytes = bytes_of(2 * SPAN);
        let mut content = FileContent::new(SpanGrid::new(2 * SPAN, SPAN).unwrap());
        let mut hasher = SpanHasher::default();
        for (span, of) in [(0, vec![1; SPAN as usize]), (0, bytes[..SPAN as usize].to_vec())] {
            hasher.start(0);
            hasher.update(&of);
            content.insert(SpanIndex(span), hasher.finish(Part::OfMore));
        }
        hasher.start(SPAN);
        hasher.update(&bytes[SPAN as usize..]);
        content.insert(SpanIndex(1), hasher.finish(Part::OfMore));
        assert_eq!(content.hash(), Some(*blake3::hash(&bytes).as_bytes()));
    }
}
