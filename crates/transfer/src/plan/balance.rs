//! Distribution of batches of names over shards, so that bytes and files are about equal in each.
//!
//! Longest processing time first (Graham, 1969): the batches by falling bytes, each to the shard
//! that is then least full, which is the sum of its shares of all bytes and of all files. So small
//! files fill up what large ones have left uneven.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Names that stay together: they lie one behind the other in the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Place of the first line in the list of all, in bytes.
    pub from: u64,
    /// Bytes of the lines.
    pub len: u64,
    pub files: u64,
    pub bytes: u64,
    /// Begin of the range of its only file that the batch is, where that was cut.
    pub range: Option<u64>,
    /// Whether the batch goes on in the directory in which the one before it ended.
    pub goes_on: bool,
}

/// Batches of each shard, in the order of the walk.
#[must_use]
pub fn distribute(mut batches: Vec<Batch>, shards: usize) -> Vec<Vec<Batch>> {
    let total = |of: fn(&Batch) -> u64| batches.iter().map(|one| u128::from(of(one))).sum::<u128>();
    let (all_bytes, all_files) = (total(|batch| batch.bytes), total(|batch| batch.files));
    batches.sort_by_key(|batch| (Reverse(batch.bytes), batch.from, batch.range));
    let mut lists = vec![Vec::new(); shards];
    // The load of a shard, multiplied by all bytes and all files, and its number; the least first.
    let mut loads: BinaryHeap<_> = (0..shards).map(|shard| Reverse((0_u128, shard))).collect();
    for batch in batches {
        let Some(mut least) = loads.peek_mut() else { break };
        let Reverse((load, shard)) = &mut *least;
        lists[*shard].push(batch);
        *load += u128::from(batch.bytes) * all_files + u128::from(batch.files) * all_bytes.max(1);
    }
    for list in &mut lists {
        list.sort_by_key(|batch| (batch.from, batch.range));
    }
    lists
}

/// Cuts a walk into batches that are small beside a shard: at most a 64th of one, as far as the
/// walk has come, so that what is left over at the end is little.
///
/// A directory is in one batch where it is no larger than a 32nd of a shard: the run that has all
/// of a new directory hides it until its end, and each of its files is made under its name.
#[derive(Debug)]
pub struct Cutting {
    shards: u64,
    files: u64,
    bytes: u64,
    batches: Vec<Batch>,
    open: Batch,
}

/// Batches that a shard is made of, at least, before the pieces of directories are put together.
const BATCHES_OF_SHARD: u64 = 64;
/// Directories that a shard is made of, at least, where each is in one batch.
const DIRECTORIES_OF_SHARD: u64 = 32;
/// Most files of a batch.
const FILES_MAX: u64 = 4096;

impl Cutting {
    #[must_use]
    pub fn new(shards: u32) -> Self {
        let (files, bytes, batches, open) = (0, 0, Vec::new(), Batch::default());
        Self { shards: shards.into(), files, bytes, batches, open }
    }

    /// Takes the next name: the bytes of its line, and of its file. `goes_on`: it is in the same
    /// directory as the name before it.
    pub fn take(&mut self, line_bytes: u64, file_bytes: u64, goes_on: bool) {
        let (files_max, bytes_max) = self.limits(BATCHES_OF_SHARD);
        let Batch { files, bytes, .. } = self.open;
        let is_full = files >= files_max || (files > 0 && bytes + file_bytes > bytes_max);
        // The rest of a directory is alone, so that it can be put together with its begin.
        let is_apart = self.open.goes_on || 2 * files > files_max || 2 * bytes > bytes_max;
        if is_full || (files > 0 && !goes_on && is_apart) {
            self.close();
        }
        if self.open.files == 0 {
            self.open.goes_on = goes_on;
        }
        self.open.len += line_bytes;
        self.open.files += 1;
        self.open.bytes += file_bytes;
        self.files += 1;
        self.bytes += file_bytes;
    }

    /// Most files and bytes of a batch of which each shard has so many.
    fn limits(&self, batches_of_shard: u64) -> (u64, u64) {
        let batches = self.shards * batches_of_shard;
        ((self.files / batches).clamp(1, FILES_MAX), self.bytes / batches)
    }

    fn close(&mut self) {
        let next = Batch { from: self.open.from + self.open.len, ..Batch::default() };
        self.batches.push(std::mem::replace(&mut self.open, next));
    }

    /// All batches, with how many files and bytes they have.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Batch>, u64, u64) {
        if self.open.files > 0 {
            self.close();
        }
        (self.whole_directories(), self.files, self.bytes)
    }

    /// Batches in which the pieces of each directory that is small beside a shard are one.
    fn whole_directories(&self) -> Vec<Batch> {
        let (files_max, bytes_max) = self.limits(DIRECTORIES_OF_SHARD);
        let mut all = Vec::with_capacity(self.batches.len());
        for pieces in self.batches.chunk_by(|_, next| next.goes_on) {
            let total = |of: fn(&Batch) -> u64| pieces.iter().map(of).sum::<u64>();
            let (files, bytes) = (total(|piece| piece.files), total(|piece| piece.bytes));
            if files <= files_max && bytes <= bytes_max {
                all.push(Batch { len: total(|piece| piece.len), files, bytes, ..pieces[0] });
            } else {
                all.extend_from_slice(pieces);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of a tree, without a source of chance.
    fn sizes(count: u64, of: fn(u64) -> u64) -> Vec<u64> {
        let mix = |n: u64| (n.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..count).map(|n| of(mix(n))).collect()
    }

    /// Batches of a tree in which each directory has so many files.
    fn batches(sizes: &[u64], of_directory: usize, shards: u32) -> (Vec<Batch>, u64, u64) {
        let mut cutting = Cutting::new(shards);
        for (number, size) in sizes.iter().enumerate() {
            cutting.take(50, *size, number % of_directory != 0);
        }
        cutting.finish()
    }

    /// Largest deviation of a shard from the mean, of bytes and of files.
    fn deviation(sizes: &[u64], of_directory: usize, shards: u32) -> (f64, f64) {
        let (batches, files, bytes) = batches(sizes, of_directory, shards);
        assert_eq!((files, bytes), (sizes.len() as u64, sizes.iter().sum::<u64>()));
        let lists = distribute(batches, shards as usize);
        let mut places: Vec<_> = lists.iter().flatten().map(|it| (it.from, it.len)).collect();
        places.sort_unstable();
        let end = places.iter().fold(0, |at, (from, len)| {
            assert_eq!(at, *from, "each line is in one shard");
            from + len
        });
        assert_eq!(end, 50 * sizes.len() as u64);
        let worst = |of: fn(&Batch) -> u64, all: u64| {
            let mean = all as f64 / f64::from(shards);
            let loads = lists.iter().map(|list| list.iter().map(of).sum::<u64>() as f64);
            loads.map(|load| (load - mean).abs() / mean).fold(0.0, f64::max)
        };
        (worst(|batch| batch.bytes, bytes.max(1)), worst(|batch| batch.files, files))
    }

    #[test]
    fn bytes_and_files_are_within_five_percent_in_each_shard() {
        for shards in [2, 7, 16] {
            for (what, sizes) in [
                ("equal", sizes(20_000, |_| 1 << 20)),
                ("even", sizes(20_000, |n| n % (1 << 20))),
                ("skewed", sizes(20_000, |n| 1 << (n % 24))),
                ("some large", sizes(20_000, |n| if n % 100 == 0 { 1 << 30 } else { n % 5000 })),
                ("empty", sizes(20_000, |_| 0)),
            ] {
                for of_directory in [1, 10, 100, 20_000] {
                    let (bytes, files) = deviation(&sizes, of_directory, shards);
                    let bytes = if what == "empty" { 0.0 } else { bytes };
                    let which = format!("{what}, {of_directory}, {shards}");
                    assert!(bytes < 0.05 && files < 0.05, "{which}: {bytes} {files}");
                }
            }
        }
    }

    #[test]
    fn a_directory_that_is_small_beside_a_shard_is_in_one() {
        let sizes = sizes(200_000, |n| n % 4096);
        for of_directory in [1, 7, 100, 1000] {
            let (batches, ..) = batches(&sizes, of_directory, 4);
            let directory = |line: u64| line / 50 / of_directory as u64;
            let goes_on = |batch: &&Batch| !(batch.from / 50).is_multiple_of(of_directory as u64);
            let cut: Vec<u64> =
                batches.iter().filter(goes_on).map(|batch| directory(batch.from)).collect();
            assert!(cut.is_empty(), "{of_directory}: {cut:?}");
            assert!(batches.len() < 5000, "{of_directory}: {}", batches.len());
        }
        let empty = vec![0; 200_000];
        let count = batches(&empty, 1, 4).0.len();
        assert!(count < 5000, "directories of one empty file each: {count}");
        let (batches, ..) = batches(&sizes, 10_000, 4);
        assert!(batches.len() >= 4 * 32, "larger ones are cut: {}", batches.len());
    }

    #[test]
    fn a_file_larger_than_a_shard_has_one_and_the_rest_is_equal() {
        let mut all = sizes(5000, |n| n % 1000);
        all.insert(2500, 1 << 40);
        let lists = distribute(batches(&all, 100, 4).0, 4);
        let counts: Vec<u64> =
            lists.iter().map(|list| list.iter().map(|batch| batch.files).sum()).collect();
        assert_eq!(counts.iter().filter(|count| **count == 1).count(), 1, "{counts:?}");
        assert!(counts.iter().filter(|count| **count > 1500).count() == 3, "{counts:?}");
    }
}
