//! Sets of a file's bytes, as ranges that neither touch nor overlap.

use std::{collections::BTreeMap, ops::Range};

/// A set of bytes: the begin of each range, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteSet(BTreeMap<u64, u64>);

impl ByteSet {
    /// Adds a range.
    pub fn insert(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut begin, mut end) = (range.start, range.end);
        while let Some((at, until)) = self.last_up_to(end).filter(|(_, until)| *until >= begin) {
            self.0.remove(&at);
            (begin, end) = (begin.min(at), end.max(until));
        }
        self.0.insert(begin, end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((at, until)) =
            self.last_up_to(range.end - 1).filter(|(_, until)| *until > range.start)
        {
            self.0.remove(&at);
            if at < range.start {
                self.0.insert(at, range.start);
            }
            if range.end < until {
                self.0.insert(range.end, until);
            }
        }
    }

    /// Whether every byte of the range is in the set.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.last_up_to(range.start).is_some_and(|(_, end)| end >= range.end)
    }

    /// Whether some byte of the range is in the set.
    #[must_use]
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let last = || self.last_up_to(range.end - 1);
        !range.is_empty() && last().is_some_and(|(_, end)| end > range.start)
    }

    /// The parts of a range that are not in the set.
    #[must_use]
    pub fn missing_of(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Self::default();
        missing.insert(range);
        self.0.iter().for_each(|(begin, end)| missing.remove(&(*begin..*end)));
        missing.0.into_iter().map(|(begin, end)| begin..end).collect()
    }

    /// The last range that begins at or before a byte.
    fn last_up_to(&self, byte: u64) -> Option<(u64, u64)> {
        self.0.range(..=byte).next_back().map(|(begin, end)| (*begin, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 8;

    /// Every set of a few bytes, after every insertion and removal of a range, as flags tell it.
    #[test]
    fn a_set_has_the_bytes_that_were_put_in_and_not_taken_out() {
        let ranges = || (0..BYTES).flat_map(|begin| (begin..=BYTES).map(move |end| begin..end));
        for flags in 0..1_u32 << BYTES {
            let mut set = ByteSet::default();
            let has = |flags: u32, byte: u64| flags >> byte & 1 == 1;
            (0..BYTES).filter(|byte| has(flags, *byte)).for_each(|it| set.insert(&(it..it + 1)));
            for range in ranges() {
                let mask = range.clone().fold(0, |mask, byte| mask | 1 << byte);
                assert_eq!(set.covers(&range), flags & mask == mask, "{set:?} {range:?}");
                assert_eq!(set.touches(&range), flags & mask != 0, "{set:?} {range:?}");
                let missing = set.missing_of(&range);
                let of_missing = missing.iter().flat_map(Clone::clone);
                assert_eq!(of_missing.fold(0, |mask, byte| mask | 1 << byte), mask & !flags);
                for (changed, becomes) in [
                    (ByteSet::insert as fn(&mut ByteSet, &Range<u64>), flags | mask),
                    (ByteSet::remove, flags & !mask),
                ] {
                    let mut other = set.clone();
                    changed(&mut other, &range);
                    let mut expected = ByteSet::default();
                    let bytes = (0..BYTES).filter(|byte| has(becomes, *byte));
                    bytes.for_each(|it| expected.insert(&(it..it + 1)));
                    assert_eq!(other, expected, "{set:?} {range:?}");
                }
            }
        }
    }
}
