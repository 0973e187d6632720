//! Holes of sparse files: runs that read as zeros and take no space. They are found by SEEK_HOLE,
//! sent as a list, and are holes again at the target.

use haul_protocol::{SpanGrid, SpanIndex, SpanSet, limits, message::Extent};
use rustix::{
    fs::{FallocateFlags, SeekFrom, Stat, fallocate, seek},
    io::Errno,
};
use std::{io, os::fd::AsFd};

/// Unit in which st_blocks counts, in bytes (stat(2)).
const BLOCK_BYTES: u64 = 512;
/// Most holes of a file that are looked at; any further ones are left out.
const LOOKED_AT_MAX: usize = 1 << 20;

/// Whether a file of this look can have holes.
#[must_use]
pub fn may_have_holes(stat: &Stat) -> bool {
    let held = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
    u64::try_from(stat.st_size).is_ok_and(|size| held < size)
}

/// Holes of a file of this size, in order; of too many, the largest. None where the file system
/// does not tell.
#[must_use]
pub fn find(file: impl AsFd, size_bytes: u64) -> Vec<Extent> {
    let file = file.as_fd();
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size_bytes && holes.len() < LOOKED_AT_MAX {
        let Ok(begin) = seek(file, SeekFrom::Hole(at)) else { return Vec::new() };
        if begin >= size_bytes {
            break;
        }
        let end = match seek(file, SeekFrom::Data(begin)) {
            Ok(end) => end.min(size_bytes),
            // No data up to the end (lseek(2)).
            Err(Errno::NXIO) => size_bytes,
            Err(_) => return Vec::new(),
        };
        if end <= begin {
            break;
        }
        holes.push(Extent { offset_bytes: begin, len_bytes: end - begin });
        at = end;
    }
    if holes.len() > limits::HOLES_MAX {
        holes.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len_bytes));
        holes.truncate(limits::HOLES_MAX);
        holes.sort_unstable_by_key(|hole| hole.offset_bytes);
    }
    holes
}

/// Adds the spans that lie within a hole: nothing of them has to come.
pub fn add_spans_within(holes: &[Extent], grid: &SpanGrid, spans: &mut SpanSet) {
    each_span_within(holes, grid, |span, _| {
        spans.insert(span);
    });
}

/// Bytes of the spans that lie within a hole.
#[must_use]
pub fn bytes_within(holes: &[Extent], grid: &SpanGrid) -> u64 {
    let mut bytes = 0;
    each_span_within(holes, grid, |_, len_bytes| bytes += len_bytes);
    bytes
}

fn each_span_within(holes: &[Extent], grid: &SpanGrid, mut each: impl FnMut(SpanIndex, u64)) {
    if grid.count() == 0 {
        return;
    }
    let span_bytes = grid.range(SpanIndex(0)).1.max(1);
    for hole in holes {
        let end = hole.offset_bytes.saturating_add(hole.len_bytes);
        let first = hole.offset_bytes.div_ceil(span_bytes);
        for index in first..u64::from(grid.count()) {
            let span = SpanIndex(u32::try_from(index).unwrap_or(u32::MAX));
            let (offset, len) = grid.range(span);
            if offset + len > end {
                break;
            }
            each(span, len);
        }
    }
}

/// Runs of data between the holes.
pub fn data_between(holes: &[Extent], size_bytes: u64) -> impl Iterator<Item = Extent> {
    let begins = std::iter::once(0).chain(holes.iter().map(|h| h.offset_bytes + h.len_bytes));
    let ends = holes.iter().map(|hole| hole.offset_bytes).chain(std::iter::once(size_bytes));
    begins
        .zip(ends)
        .filter(|(begin, end)| begin < end)
        .map(|(begin, end)| Extent { offset_bytes: begin, len_bytes: end - begin })
}

/// Gives back the space of the holes: whatever was written there reads as zeros then. False where
/// the file system knows no holes: nothing has changed.
///
/// # Errors
/// If the file cannot be changed.
pub fn punch(file: impl AsFd, holes: &[Extent]) -> io::Result<bool> {
    let file = file.as_fd();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for hole in holes {
        loop {
            match fallocate(file, flags, hole.offset_bytes, hole.len_bytes) {
                Ok(()) => break,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::os::unix::fs::FileExt;

    fn extent(offset_bytes: u64, len_bytes: u64) -> Extent {
        Extent { offset_bytes, len_bytes }
    }

    #[test]
    fn holes_are_found_and_made_again() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * MIB).unwrap();
        file.write_all_at(&[1; 4096], 2 * MIB).unwrap();
        file.write_all_at(&[1; 4096], 10 * MIB - 4096).unwrap();
        let holes = find(&file, 10 * MIB);
        if holes.is_empty() {
            return haul_testkit::skip::skip("SEEK_HOLE", "a file system that does not tell");
        }
        let second = 2 * MIB + 4096;
        assert_eq!(holes, [extent(0, 2 * MIB), extent(second, 10 * MIB - 4096 - second)]);
        assert!(may_have_holes(&fstat(&file).unwrap()));
        let dense = tempfile::tempfile().unwrap();
        dense.write_all_at(&vec![0; 10 << 20], 0).unwrap();
        assert!(punch(&dense, &holes).unwrap());
        assert_eq!(find(&dense, 10 * MIB), holes);
        file.set_len(0).unwrap();
        assert!(find(&file, 0).is_empty() && !may_have_holes(&fstat(&file).unwrap()));
    }

    #[test]
    fn of_too_many_holes_the_largest_are_told_in_their_order() {
        const BLOCK: u64 = 4096;
        let file = tempfile::tempfile().unwrap();
        // Holes of one block, and every hundredth of two.
        let mut at = 0;
        let mut wanted = Vec::new();
        for number in 0..limits::HOLES_MAX as u64 + 50 {
            let blocks = 1 + u64::from(number % 100 == 99);
            wanted.push(extent(at, blocks * BLOCK));
            at += blocks * BLOCK;
            file.write_all_at(&[1; BLOCK as usize], at).unwrap();
            at += BLOCK;
        }
        let found = find(&file, at);
        if found.is_empty() {
            return haul_testkit::skip::skip("SEEK_HOLE", "a file system that does not tell");
        }
        assert_eq!(found.len(), limits::HOLES_MAX);
        assert!(found.is_sorted_by_key(|hole| hole.offset_bytes));
        let large = |holes: &[Extent]| holes.iter().filter(|h| h.len_bytes > BLOCK).count();
        assert_eq!(large(&found), large(&wanted));
        assert!(found.iter().all(|hole| wanted.contains(hole)));
    }

    #[test]
    fn spans_within_holes_are_those_that_hold_nothing_else() {
        let grid = SpanGrid::new((10 << 16) + 5, 64 << 10).unwrap();
        let mut spans = SpanSet::new(grid.count());
        let holes = [extent(1, 2 << 16), extent(5 << 16, (5 << 16) + 5)];
        add_spans_within(&holes, &grid, &mut spans);
        let found: Vec<u32> = spans.iter().map(|span| span.0).collect();
        assert_eq!(found, [1, 5, 6, 7, 8, 9, 10]);
        assert_eq!(bytes_within(&holes, &grid), (6 << 16) + 5);
        let all: Vec<Extent> = data_between(&holes, (10 << 16) + 5).collect();
        assert_eq!(all, [extent(0, 1), extent((2 << 16) + 1, (3 << 16) - 1)]);
        assert_eq!(data_between(&[], 4).collect::<Vec<_>>(), [extent(0, 4)]);
    }
}
