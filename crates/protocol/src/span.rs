//! A file cut into spans of one size, and sets of such spans.

use crate::{ProtocolError, SpanIndex, limits};
use alloc::{vec, vec::Vec};

/// Division of a file: spans of `span_bytes`, the last one shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanGrid {
    size_bytes: u64,
    span_bytes: u64,
}

impl SpanGrid {
    /// Divides a file of this size.
    ///
    /// # Errors
    /// If the span size is not a power of two within the limits, or the file would have too many.
    pub fn new(size_bytes: u64, span_bytes: u64) -> Result<Self, ProtocolError> {
        let allowed = limits::SPAN_BYTES_MIN..=limits::SPAN_BYTES_MAX;
        if !span_bytes.is_power_of_two() || !allowed.contains(&span_bytes) {
            return Err(ProtocolError::new("a span size is a power of two of 64 KiB to 1 GiB"));
        }
        if size_bytes.div_ceil(span_bytes) > limits::SPANS_MAX {
            return Err(ProtocolError::new("a file has more than 2^20 spans"));
        }
        Ok(Self { size_bytes, span_bytes })
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// Count of the spans; none for an empty file.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.size_bytes.div_ceil(self.span_bytes)).expect("at most 2^20 spans")
    }

    /// Offset and length of a span, in bytes; length 0 beyond the end.
    #[must_use]
    pub fn range(&self, span: SpanIndex) -> (u64, u64) {
        let offset = u64::from(span.0) * self.span_bytes;
        (offset, self.size_bytes.saturating_sub(offset).min(self.span_bytes))
    }

    /// Finds the span that has exactly this offset and length.
    #[must_use]
    pub fn find(&self, offset_bytes: u64, len_bytes: u64) -> Option<SpanIndex> {
        let index = u32::try_from(offset_bytes / self.span_bytes).ok().map(SpanIndex)?;
        let fits = index.0 < self.count() && self.range(index) == (offset_bytes, len_bytes);
        fits.then_some(index)
    }
}

/// A run of spans of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRange {
    pub first: SpanIndex,
    pub count: u32,
}

/// A set of spans of one file, with a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSet {
    bits: Vec<u64>,
    len: u32,
    count: u32,
}

impl SpanSet {
    /// Makes an empty set of a file that has `len` spans.
    #[must_use]
    pub fn new(len: u32) -> Self {
        Self { bits: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    #[must_use]
    pub fn full(len: u32) -> Self {
        let mut bits = vec![u64::MAX; len.div_ceil(64) as usize];
        if let Some(last) = bits.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        Self { bits, len, count: len }
    }

    /// Makes a set out of runs of spans.
    ///
    /// # Errors
    /// If a range leaves the file or overlaps an earlier one.
    pub fn from_ranges(len: u32, ranges: &[SpanRange]) -> Result<Self, ProtocolError> {
        let mut set = Self::new(len);
        for range in ranges {
            let end = range.first.0.checked_add(range.count).filter(|&end| end <= len);
            let Some(end) = end else {
                return Err(ProtocolError::new("a range of spans leaves the file"));
            };
            for index in range.first.0..end {
                if !set.insert(SpanIndex(index)) {
                    return Err(ProtocolError::new("ranges of spans overlap"));
                }
            }
        }
        Ok(set)
    }

    #[must_use]
    pub fn contains(&self, span: SpanIndex) -> bool {
        span.0 < self.len && self.bits[span.0 as usize / 64] >> (span.0 % 64) & 1 == 1
    }

    /// Adds a span; true when it was not in the set before.
    ///
    /// # Panics
    /// If the file has no such span.
    pub fn insert(&mut self, span: SpanIndex) -> bool {
        assert!(span.0 < self.len, "span {} of {}", span.0, self.len);
        let word = &mut self.bits[span.0 as usize / 64];
        let bit = 1 << (span.0 % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Takes a span out; true when it was in the set.
    pub fn remove(&mut self, span: SpanIndex) -> bool {
        let had = self.contains(span);
        if had {
            self.bits[span.0 as usize / 64] &= !(1 << (span.0 % 64));
            self.count -= 1;
        }
        had
    }

    /// Takes the spans of another set of the same file out.
    pub fn subtract(&mut self, other: &Self) {
        for (at, bits) in self.bits.iter_mut().enumerate() {
            *bits &= !other.bits.get(at).copied().unwrap_or(0);
        }
        self.count = self.bits.iter().map(|bits| bits.count_ones()).sum();
    }

    /// Count of the spans that the file has.
    #[must_use]
    pub fn file_spans(&self) -> u32 {
        self.len
    }

    /// Count of the spans in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all spans of the file are in the set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Finds the first span of the set at or behind `from`.
    #[must_use]
    pub fn first_from(&self, from: SpanIndex) -> Option<SpanIndex> {
        let mut word = from.0 as usize / 64;
        let mut mask = u64::MAX << (from.0 % 64);
        while word < self.bits.len() {
            let found = self.bits[word] & mask;
            if found != 0 {
                return Some(SpanIndex(word as u32 * 64 + found.trailing_zeros()));
            }
            mask = u64::MAX;
            word += 1;
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = SpanIndex> + '_ {
        let mut from = Some(SpanIndex(0));
        core::iter::from_fn(move || {
            let found = self.first_from(from?)?;
            from = found.0.checked_add(1).map(SpanIndex);
            Some(found)
        })
    }

    /// Lists the set as runs, lowest first.
    #[must_use]
    pub fn to_ranges(&self) -> Vec<SpanRange> {
        let mut ranges: Vec<SpanRange> = Vec::new();
        for span in self.iter() {
            match ranges.last_mut() {
                Some(last) if last.first.0 + last.count == span.0 => last.count += 1,
                _ => ranges.push(SpanRange { first: span, count: 1 }),
            }
        }
        ranges
    }

    /// Length of the spans in the set, in bytes.
    #[must_use]
    pub fn bytes(&self, grid: &SpanGrid) -> u64 {
        let whole = u64::from(self.count) * grid.span_bytes();
        let last = SpanIndex(self.len.wrapping_sub(1));
        if self.contains(last) { whole - grid.span_bytes() + grid.range(last).1 } else { whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_taken_out_of_a_set_is_gone_and_nothing_else() {
        let (mut all, mut some) = (SpanSet::full(130), SpanSet::new(130));
        for span in [0, 63, 64, 129] {
            some.insert(SpanIndex(span));
        }
        all.subtract(&some);
        assert_eq!((all.count(), all.iter().count()), (126, 126));
        assert!(some.iter().all(|span| !all.contains(span)));
        all.subtract(&some);
        assert_eq!(all.count(), 126);
    }

    #[test]
    fn a_file_is_cut_without_gap_or_overlap() {
        let grid = SpanGrid::new((3 << 20) + 1, 1 << 20).expect("valid");
        assert_eq!(grid.count(), 4);
        assert_eq!(grid.range(SpanIndex(3)), (3 << 20, 1));
        assert_eq!(grid.find(3 << 20, 1), Some(SpanIndex(3)));
        assert_eq!(grid.find(3 << 20, 2), None);
        assert_eq!(grid.find(4 << 20, 0), None);
        assert_eq!(SpanGrid::new(0, 1 << 20).expect("valid").count(), 0);
        assert!(SpanGrid::new(1, 3 << 20).is_err());
        assert!(SpanGrid::new(u64::MAX, 1 << 30).is_err());
    }

    #[test]
    fn a_file_has_as_many_spans_as_the_limit_says_and_no_more() {
        let span_bytes = limits::SPAN_BYTES_MIN;
        let most = limits::SPANS_MAX * span_bytes;
        let grid = SpanGrid::new(most, span_bytes).expect("at the limit");
        assert_eq!(u64::from(grid.count()), limits::SPANS_MAX);
        assert_eq!((grid.size_bytes(), grid.span_bytes()), (most, span_bytes));
        assert!(SpanGrid::new(most + 1, span_bytes).is_err());
    }

    #[test]
    fn a_span_that_the_file_does_not_have_is_in_no_set() {
        for len in [64, 300] {
            let mut set = SpanSet::full(len);
            assert!(!set.contains(SpanIndex(len)), "{len}");
            assert!(!set.remove(SpanIndex(len)), "{len}");
            assert!(set.is_full() && !set.is_empty(), "{len}");
        }
        assert!(SpanSet::new(64).is_empty() && !SpanSet::new(64).is_full());
    }

    #[test]
    fn runs_that_overlap_or_leave_the_file_make_no_set() {
        let set = |runs: &[(u32, u32)]| {
            let run = |&(first, count)| SpanRange { first: SpanIndex(first), count };
            SpanSet::from_ranges(10, &runs.iter().map(run).collect::<Vec<_>>())
        };
        assert_eq!(set(&[(4, 6), (0, 4)]), Ok(SpanSet::full(10)));
        for wrong in [[(0, 2), (1, 1)], [(0, 2), (9, 2)], [(0, 2), (u32::MAX, 1)]] {
            assert!(set(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn neighbours_of_a_set_are_told_as_one_run() {
        let mut set = SpanSet::new(10);
        for span in [2, 3, 4, 6] {
            set.insert(SpanIndex(span));
        }
        let run = |first, count| SpanRange { first: SpanIndex(first), count };
        assert_eq!(set.to_ranges(), [run(2, 3), run(6, 1)]);
    }

    #[test]
    fn a_full_set_holds_every_span_and_no_other() {
        for len in [0, 1, 63, 64, 65, 128, 300] {
            let mut set = SpanSet::new(len);
            (0..len).for_each(|index| assert!(set.insert(SpanIndex(index))));
            assert_eq!(SpanSet::full(len), set);
        }
    }

    proptest! {
        #[test]
        fn ranges_tell_the_whole_set(
            members in proptest::collection::btree_set(0u32..300, 0..200),
        ) {
            let mut set = SpanSet::new(300);
            for &member in &members {
                assert!(set.insert(SpanIndex(member)));
            }
            assert_eq!(set.count() as usize, members.len());
            assert!(set.iter().map(|span| span.0).eq(members.iter().copied()));
            assert_eq!(SpanSet::from_ranges(300, &set.to_ranges()), Ok(set.clone()));
            let grid = SpanGrid::new(299 * (64 << 10) + 5, 64 << 10).expect("valid");
            let bytes: u64 = set.iter().map(|span| grid.range(span).1).sum();
            assert_eq!(set.bytes(&grid), bytes);
        }
    }
}
