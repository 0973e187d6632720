//! Cutting of large files into ranges, which several shards move at once.
//!
//! A file is cut where it is a large part of a shard's share, at multiples of a stripe, so that
//! each stripe of a parallel file system is written by one session.

use super::{
    balance::Batch,
    line::{Line, LineRange},
};
use haul_protocol::limits::SPAN_BYTES_MIN;
use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// Unit of the places at which a file may be cut, in bytes.
pub const STRIPE_UNIT_BYTES: u64 = SPAN_BYTES_MIN;
/// Stripe where none is known.
const STRIPE_BYTES: u64 = 64 << 20;
/// Part of a shard's share from which on a file is large: smaller ones leave shards uneven by less
/// than 5 %.
const LARGE_OF_SHARE: u64 = 20;
/// Stripes that a file has at least before it is cut.
pub(super) const STRIPES_MIN: u64 = 16;
/// Smallest file that may be cut, whatever its stripe is.
pub(super) const CUT_BYTES_MIN: u64 = STRIPES_MIN * STRIPE_UNIT_BYTES;

/// Treatment of files that are large beside a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeFiles {
    /// Each is in one shard.
    Whole,
    /// Files are cut at multiples of the stripe; `None`: of the source's own, where it tells them.
    Cut {
        /// Bytes of a stripe, a multiple of [`STRIPE_UNIT_BYTES`].
        stripe_bytes: Option<u64>,
    },
}

/// Takes the large files out of the batches and shares them out: to each shard as many of their
/// bytes as to any other, in ranges that are as few as can be.
pub(super) fn cut(
    lines: &mut File,
    batches: &mut Vec<Batch>,
    (source, shards): (&Path, u32),
    files: LargeFiles,
) -> io::Result<Vec<Vec<Batch>>> {
    let mut lists = vec![Vec::new(); shards as usize];
    let LargeFiles::Cut { stripe_bytes } = files else { return Ok(lists) };
    let share_bytes = batches.iter().map(|batch| batch.bytes).sum::<u64>() / u64::from(shards);
    let is_large = |batch: &Batch| batch.files == 1 && batch.bytes > share_bytes / LARGE_OF_SHARE;
    let mut large = Vec::new();
    for batch in batches.iter().filter(|batch| is_large(batch)) {
        let stripe_bytes = match stripe_bytes {
            Some(bytes) => bytes,
            None => stripe_of(source, &read_line(lines, batch)?),
        };
        if batch.bytes >= STRIPES_MIN.saturating_mul(stripe_bytes) {
            large.push((*batch, stripe_bytes));
        }
    }
    // No two batches have a line in common.
    let cut: HashSet<u64> = large.iter().map(|(batch, _)| batch.from).collect();
    batches.retain(|batch| !cut.contains(&batch.from));
    share_out(&large, &mut lists);
    Ok(lists)
}

/// Shares the files out as if they lay one behind the other.
fn share_out(large: &[(Batch, u64)], lists: &mut [Vec<Batch>]) {
    let all_bytes = large.iter().map(|(batch, _)| u128::from(batch.bytes)).sum::<u128>();
    let shards = lists.len() as u128;
    let end_of = |shard: usize| all_bytes * (shard as u128 + 1) / shards;
    let (mut shard, mut before) = (0, 0);
    for (batch, stripe_bytes) in large {
        let mut begin = 0;
        while begin < batch.bytes {
            let is_last = shard + 1 == lists.len();
            // The multiple of the stripe that is next to the end of the shard's share.
            let due = u64::try_from(end_of(shard).saturating_sub(before)).unwrap_or(u64::MAX);
            let due = due.saturating_add(stripe_bytes / 2) / stripe_bytes * stripe_bytes;
            let end = if is_last { batch.bytes } else { batch.bytes.min(due) };
            if end > begin {
                let range = (end - begin < batch.bytes).then_some(begin);
                lists[shard].push(Batch { bytes: end - begin, range, ..*batch });
                begin = end;
            }
            if due <= batch.bytes && !is_last {
                shard += 1;
            }
        }
        before += u128::from(batch.bytes);
    }
}

/// Writes the line of a range.
pub(super) fn write_range(
    lines: &mut File,
    batch: &Batch,
    range_begin: u64,
    to: &mut impl Write,
) -> io::Result<()> {
    let line = read_line(lines, batch)?;
    let file_bytes = line.bytes;
    let range = (batch.bytes < file_bytes).then_some(LineRange { range_begin, file_bytes });
    serde_json::to_writer(&mut *to, &Line { bytes: batch.bytes, ..line }.with_range(range))?;
    to.write_all(b"\n")
}

fn read_line(lines: &mut File, batch: &Batch) -> io::Result<Line> {
    let mut text = vec![0; usize::try_from(batch.len).unwrap_or(usize::MAX)];
    lines.seek(SeekFrom::Start(batch.from))?;
    lines.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Stripe of a file: its own where the source tells it, else the usual one.
pub(super) fn stripe_of(source: &Path, line: &Line) -> u64 {
    lustre_stripe(source, line).unwrap_or(STRIPE_BYTES)
}

/// Stripe of a file on Lustre, as its layout says it (lustre_user.h, `lov_user_md`).
fn lustre_stripe(source: &Path, line: &Line) -> Option<u64> {
    let path = source.join(std::ffi::OsStr::from_bytes(&line.path.0));
    let mut layout = [0; 4096];
    let len = rustix::fs::getxattr(&path, "lustre.lov", &mut layout).ok()?;
    stripe_of_layout(&layout[..len])
}

/// Stripe of a plain layout; `None` for others, as those of several components.
fn stripe_of_layout(layout: &[u8]) -> Option<u64> {
    /// LOV_USER_MAGIC_V1 and LOV_USER_MAGIC_V3.
    const PLAIN: [u32; 2] = [0x0BD1_0BD0, 0x0BD3_0BD0];
    let number = |at: usize| {
        Some(u32::from_le_bytes(layout.get(at..at + 4)?.try_into().expect("four bytes")))
    };
    let stripe_bytes = u64::from(number(24)?);
    let is_known = PLAIN.contains(&number(0)?) && stripe_bytes > 0;
    (is_known && stripe_bytes.is_multiple_of(STRIPE_UNIT_BYTES)).then_some(stripe_bytes)
}

#[cfg(test)]
mod tests {
    use super::{
        super::balance::{Cutting, distribute},
        *,
    };

    const MIB: u64 = 1 << 20;

    fn file(from: u64, bytes: u64) -> Batch {
        Batch { from, len: 50, files: 1, bytes, ..Batch::default() }
    }

    fn cut_all(batches: &[Batch], shards: u32, stripe_bytes: u64) -> Vec<Vec<Batch>> {
        let stripe_bytes = Some(stripe_bytes);
        let mut lines = tempfile::tempfile().unwrap();
        let (files, mut rest) = (LargeFiles::Cut { stripe_bytes }, batches.to_vec());
        let lists = cut(&mut lines, &mut rest, (Path::new("/"), shards), files).unwrap();
        let small = distribute(rest, shards as usize);
        lists.into_iter().zip(small).map(|(list, small)| [list, small].concat()).collect()
    }

    #[test]
    fn every_byte_of_a_cut_file_is_in_one_range_that_begins_at_a_stripe() {
        for (bytes, stripe) in [(999 * MIB + 7, MIB), (64 * MIB, 4 * MIB), (700 * MIB, 3 * MIB)] {
            let lists = cut_all(&[file(0, bytes)], 4, stripe);
            let ranges: Vec<(u64, u64)> =
                lists.iter().flatten().map(|it| (it.range.unwrap(), it.bytes)).collect();
            assert_eq!(ranges.len(), 4);
            let end = ranges.iter().fold(0, |at, (begin, len)| {
                assert!(at == *begin && begin.is_multiple_of(stripe), "{bytes} {ranges:?}");
                begin + len
            });
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn shards_are_equal_within_five_percent_whatever_files_are_larger_than_one() {
        let mixes: [&[u64]; 4] =
            [&[20_000], &[20_000, 9000, 100, 100, 30], &[5000; 7], &[90_000, 1, 2, 3, 40_000]];
        for mix in mixes {
            let files: Vec<Batch> =
                mix.iter().zip(0..).map(|(mib, at)| file(at * 50, mib * MIB)).collect();
            for shards in [2, 4, 7, 16] {
                let lists = cut_all(&files, shards, MIB);
                let mean = mix.iter().sum::<u64>() as f64 * MIB as f64 / f64::from(shards);
                for list in &lists {
                    let bytes = list.iter().map(|batch| batch.bytes).sum::<u64>() as f64;
                    assert!((bytes / mean - 1.0).abs() < 0.05, "{mix:?} {shards}: {bytes} {mean}");
                }
            }
        }
    }

    /// Sizes of a random tree, shards and a stripe, by the generator of Steele, Lea and Flood
    /// (SplitMix64, 2014).
    fn tree(seed: u64) -> (Vec<u64>, u32, u64) {
        let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let mut next = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let shards = [2, 4, 7, 16][next() as usize % 4];
        let stripe_bytes = [MIB, 4 * MIB, 64 * MIB][next() as usize % 3];
        let count = [30, 100, 300, 1000, 3000][next() as usize % 5];
        let (kind, equal) = (next() % 5, next() % (4000 * MIB));
        let size = |_| match kind {
            0 => equal,
            1 => next() % (3000 * MIB),
            2 => 500 * MIB + next() % (2500 * MIB),
            3 if next() % 2 == 0 => next() % 5000,
            3 => next() % (3000 * MIB),
            _ => next() >> (24 + next() % 40),
        };
        ((0..count).map(size).collect(), shards, stripe_bytes)
    }

    /// Bounds of the deviation in docs/fleets.md.
    #[test]
    fn shards_of_random_trees_differ_by_six_percent_or_by_little_more_than_a_whole_file() {
        let (mut uneven, mut even) = (0, 0);
        for seed in 0..1500 {
            let (sizes, shards, stripe_bytes) = tree(seed);
            let mut cutting = Cutting::new(shards);
            sizes.iter().for_each(|size| cutting.take(50, *size, true));
            let (batches, _, bytes) = cutting.finish();
            let lists = cut_all(&batches, shards, stripe_bytes);
            let share = bytes as f64 / f64::from(shards);
            // The largest file that stays in one piece, though it is a large part of a shard.
            let may_be_cut = |size: &&u64| **size >= STRIPES_MIN * stripe_bytes;
            let is_large = |size: &&u64| **size as f64 > share / 20.0;
            let whole = sizes.iter().filter(|it| is_large(it) && !may_be_cut(it)).max();
            let whole = whole.map_or(0.0, |size| *size as f64);
            let bound = (share * 0.06).max(whole * 1.5).max(stripe_bytes as f64);
            let loads = lists.iter().map(|list| list.iter().map(|it| it.bytes).sum::<u64>() as f64);
            let worst = loads.map(|load| (load - share).abs()).fold(0.0, f64::max);
            assert!(worst <= bound, "seed {seed}: {worst} of {share}, {whole} is whole");
            if whole > 0.0 { uneven += 1 } else { even += 1 }
        }
        assert!(uneven > 50 && even > 50, "{uneven} {even}");
    }

    #[test]
    fn a_file_that_is_small_beside_a_shard_or_a_stripe_stays_whole() {
        let mut files = vec![file(0, 100 * MIB)];
        files.extend((1..100).map(|at| file(at * 50, 100 * MIB)));
        let lists = cut_all(&files, 4, MIB);
        assert!(lists.iter().flatten().all(|batch| batch.range.is_none()));
        let lists = cut_all(&[file(0, 1000 * MIB)], 4, 64 * MIB);
        assert!(lists.iter().flatten().all(|batch| batch.range.is_none()), "15.6 stripes");
        let (mut lines, mut batches) = (tempfile::tempfile().unwrap(), vec![file(0, 9000 * MIB)]);
        let place = (Path::new("/"), 2);
        let lists = cut(&mut lines, &mut batches, place, LargeFiles::Whole).unwrap();
        assert!(lists == [[], []] && batches == [file(0, 9000 * MIB)]);
    }

    #[test]
    fn the_stripe_of_a_plain_lustre_layout_is_known() {
        let layout = |magic: u32, stripe: u32| {
            let mut bytes = vec![0; 56];
            bytes[..4].copy_from_slice(&magic.to_le_bytes());
            bytes[24..28].copy_from_slice(&stripe.to_le_bytes());
            bytes
        };
        assert_eq!(stripe_of_layout(&layout(0x0BD1_0BD0, 1 << 20)), Some(1 << 20));
        assert_eq!(stripe_of_layout(&layout(0x0BD3_0BD0, 4 << 20)), Some(4 << 20));
        assert_eq!(stripe_of_layout(&layout(0x0BD6_0BD0, 1 << 20)), None, "of components");
        assert_eq!(stripe_of_layout(&layout(0x0BD1_0BD0, 1000)), None);
        assert_eq!(stripe_of_layout(&[0; 20]), None);
    }
}
