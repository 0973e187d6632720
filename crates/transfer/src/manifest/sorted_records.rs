//! Sorter of any number of records in bounded memory. What does not fit waits, sorted, in a file.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufWriter, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
};

/// Most bytes of records in memory, with what it takes to find them.
const MEMORY_BYTES_MAX: usize = 8 << 20;
/// Most bytes that are read of all runs together while they are merged.
const MERGE_BYTES_MAX: u64 = 8 << 20;
const RUN_BYTES_MAX: u64 = 256 << 10;
const RUN_BYTES_MIN: u64 = 4 << 10;
/// Bytes of the lengths of a key and of a value, in front of them.
const HEAD_BYTES: usize = 8;

/// Sorter of records, which are added in any order and taken in that of their keys, equal keys in
/// the order in which they came.
#[derive(Debug)]
pub struct SortedRecords {
    /// File without a name: nothing is left of it, however this process ends.
    file: File,
    file_bytes: u64,
    runs: Vec<Range<u64>>,
    arena: Vec<u8>,
    records: Vec<InMemory>,
    memory_bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct InMemory {
    at: usize,
    key_bytes: u32,
    value_bytes: u32,
}

impl SortedRecords {
    /// Sorter whose records wait in a file in `directory`.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile_in(directory)?,
            file_bytes: 0,
            runs: Vec::new(),
            arena: Vec::new(),
            records: Vec::new(),
            memory_bytes_max: MEMORY_BYTES_MAX,
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If they cannot be written to the file.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let record = InMemory {
            at: self.arena.len(),
            key_bytes: u32::try_from(key.len()).map_err(io::Error::other)?,
            value_bytes: u32::try_from(value.len()).map_err(io::Error::other)?,
        };
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.records.push(record);
        let taken = self.arena.len() + self.records.len() * size_of::<InMemory>();
        if taken >= self.memory_bytes_max { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> io::Result<()> {
        let arena = &self.arena;
        let key = |record: &InMemory| &arena[record.at..record.at + record.key_bytes as usize];
        self.records.sort_by(|one, other| key(one).cmp(key(other)));
        let begin = self.file_bytes;
        let mut output = BufWriter::with_capacity(RUN_BYTES_MAX as usize, &self.file);
        for record in &self.records {
            let bytes = (record.key_bytes + record.value_bytes) as usize;
            output.write_all(&record.key_bytes.to_le_bytes())?;
            output.write_all(&record.value_bytes.to_le_bytes())?;
            output.write_all(&arena[record.at..record.at + bytes])?;
            self.file_bytes += (HEAD_BYTES + bytes) as u64;
        }
        output.flush()?;
        drop(output);
        self.runs.push(begin..self.file_bytes);
        self.arena.clear();
        self.records.clear();
        Ok(())
    }

    /// Gives the records in the order of their keys.
    ///
    /// # Errors
    /// If they cannot be written to the file, or read back.
    pub fn into_sorted(mut self) -> io::Result<Merge> {
        self.write_run()?;
        let share = MERGE_BYTES_MAX / self.runs.len() as u64;
        let buffer_bytes = share.clamp(RUN_BYTES_MIN, RUN_BYTES_MAX) as usize;
        let mut merge = Merge { file: self.file, runs: Vec::new(), heap: BinaryHeap::new() };
        for (number, rest) in self.runs.into_iter().enumerate() {
            merge.runs.push(Run { rest, buffer: Vec::new(), at: 0, buffer_bytes });
            merge.refill(number)?;
        }
        Ok(merge)
    }
}

/// Rest of a run that is being merged.
#[derive(Debug)]
struct Run {
    rest: Range<u64>,
    buffer: Vec<u8>,
    at: usize,
    buffer_bytes: usize,
}

impl Run {
    fn take(&mut self, file: &File, len: usize) -> io::Result<Vec<u8>> {
        let mut taken = Vec::with_capacity(len);
        while taken.len() < len {
            if self.at == self.buffer.len() {
                let left = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
                self.buffer.resize(left.min(self.buffer_bytes), 0);
                file.read_exact_at(&mut self.buffer, self.rest.start)?;
                self.rest.start += self.buffer.len() as u64;
                self.at = 0;
                if self.buffer.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let some = (len - taken.len()).min(self.buffer.len() - self.at);
            taken.extend_from_slice(&self.buffer[self.at..self.at + some]);
            self.at += some;
        }
        Ok(taken)
    }

    fn is_over(&self) -> bool {
        self.at == self.buffer.len() && self.rest.is_empty()
    }
}

/// Record at the front of a run: key, number of the run, value.
type Next = (Vec<u8>, usize, Vec<u8>);

/// Records in the order of their keys.
#[derive(Debug)]
pub struct Merge {
    file: File,
    runs: Vec<Run>,
    /// Next record of each run.
    heap: BinaryHeap<Reverse<Next>>,
}

impl Merge {
    fn refill(&mut self, number: usize) -> io::Result<()> {
        let run = &mut self.runs[number];
        if run.is_over() {
            return Ok(());
        }
        let head = run.take(&self.file, HEAD_BYTES)?;
        let len = |at: usize| {
            u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let key = run.take(&self.file, len(0))?;
        let value = run.take(&self.file, len(4))?;
        self.heap.push(Reverse((key, number, value)));
        Ok(())
    }

    fn next_record(&mut self) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(Reverse((key, number, value))) = self.heap.pop() else { return Ok(None) };
        self.refill(number)?;
        Ok(Some((key, value)))
    }
}

impl Iterator for Merge {
    type Item = io::Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(memory_bytes_max: usize, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut sorter = SortedRecords::new(&std::env::temp_dir()).unwrap();
        sorter.memory_bytes_max = memory_bytes_max;
        records.iter().for_each(|(key, value)| sorter.add(key, value).unwrap());
        assert!(sorter.arena.len() < memory_bytes_max);
        sorter.into_sorted().unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn records_come_sorted_by_bytes_and_equal_keys_as_they_were_added() {
        let mut random = haul_testkit::seed::Seed::from_env_or_random().random();
        let records: Vec<(Vec<u8>, Vec<u8>)> = (0..5000u32)
            .map(|number| {
                let mut key = vec![0; random.below(6) as usize];
                random.fill(&mut key);
                key.iter_mut().for_each(|byte| *byte &= 0x83);
                (key, number.to_le_bytes().repeat(random.below(4) as usize))
            })
            .collect();
        let mut expected = records.clone();
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        for memory_bytes_max in [1, 100, 5000, 1 << 20] {
            assert_eq!(sorted(memory_bytes_max, &records), expected, "{memory_bytes_max}");
        }
        assert_eq!(sorted(100, &[]), []);
    }

    #[test]
    fn a_record_longer_than_any_buffer_is_kept() {
        let long = vec![7; 3 << 20];
        let records = [(b"b".to_vec(), long.clone()), (b"a".to_vec(), long.clone())];
        let [first, second] = <[_; 2]>::try_from(sorted(1, &records)).unwrap();
        assert!(first == (b"a".to_vec(), long.clone()) && second == (b"b".to_vec(), long));
    }
}
