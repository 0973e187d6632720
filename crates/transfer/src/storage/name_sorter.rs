//! Sorter of any number of names in little memory. Runs of them lie on disk, merged when they are
//! read.
//!
//! Names that come in order, as a walk lists them, are one run.

use super::root::Root;
use crate::packed_names::{PackedNames, in_walk_order};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    sync::Arc,
};

/// Most bytes of names in memory before they are written as a run.
const RUN_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read of a run at a time.
const READ_BYTES: usize = 64 << 10;

/// Collects names to be sorted.
#[derive(Debug, Default)]
pub struct NameSorter {
    names: PackedNames,
    bytes: usize,
    file: Option<BufWriter<File>>,
    written: u64,
    /// Begin and end of each run in the file, in bytes.
    runs: Vec<(u64, u64)>,
    last: Vec<u8>,
}

impl NameSorter {
    /// Adds a name; `root` is where the runs are written, as a file without a name.
    ///
    /// # Errors
    /// If a run cannot be written.
    pub fn push(&mut self, name: &[u8], root: &Root) -> io::Result<()> {
        self.bytes += name.len() + size_of::<(u32, u16)>();
        self.names.push(name);
        if self.bytes >= RUN_BYTES_MAX { self.write_run(root) } else { Ok(()) }
    }

    fn write_run(&mut self, root: &Root) -> io::Result<()> {
        self.names.sort();
        if self.file.is_none() {
            self.file = Some(BufWriter::with_capacity(READ_BYTES, unnamed_file(root)?));
        }
        let file = self.file.as_mut().expect("just made");
        let begin = self.written;
        for name in self.names.iter() {
            let len = u16::try_from(name.len()).expect("a name has at most 4095 bytes");
            file.write_all(&len.to_le_bytes())?;
            file.write_all(name)?;
            self.written += 2 + u64::from(len);
        }
        let first = self.names.get(0).unwrap_or_default();
        let goes_on = in_walk_order(&self.last, first) == Ordering::Less;
        match self.runs.last_mut().filter(|_| goes_on) {
            Some(run) => run.1 = self.written,
            None => self.runs.push((begin, self.written)),
        }
        self.last = self.names.get(self.names.len().saturating_sub(1)).unwrap_or_default().to_vec();
        self.names = PackedNames::default();
        self.bytes = 0;
        Ok(())
    }

    /// Ends the adding of names and gives them in order.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn sorted(mut self) -> io::Result<SortedNames> {
        self.names.sort();
        let file = match self.file {
            Some(writer) => Some(Arc::new(writer.into_inner().map_err(|e| e.into_error())?)),
            None => None,
        };
        Ok(SortedNames { file, runs: self.runs, names: Arc::new(self.names) })
    }
}

/// Names that can be read in order, as often as is needed.
#[derive(Debug)]
pub struct SortedNames {
    file: Option<Arc<File>>,
    runs: Vec<(u64, u64)>,
    names: Arc<PackedNames>,
}

impl SortedNames {
    /// All names in the order of a walk, each once.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read(&self) -> io::Result<NameReader> {
        let mut reader = NameReader { runs: BinaryHeap::new(), last: None };
        if let Some(file) = &self.file {
            for &(at, end) in &self.runs {
                let run = Reader { file: file.clone(), at, end, buffer: Vec::new(), taken: 0 };
                reader.add(Run::OnDisk(run))?;
            }
        }
        reader.add(Run::InMemory(self.names.clone(), 0))?;
        Ok(reader)
    }
}

/// A file that nobody else sees and that is gone when it is closed.
fn unnamed_file(root: &Root) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    openat(root, ".", flags, mode)
        .or_else(|_| openat(CWD, std::env::temp_dir(), flags, mode))
        .map(File::from)
        .map_err(|errno| {
            let what = format!("no file without a name, for the names that were offered: {errno}");
            io::Error::other(what)
        })
}

#[derive(Debug)]
struct Reader {
    file: Arc<File>,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    taken: usize,
}

impl Reader {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(len) = self.take(2)? else { return Ok(None) };
        let len = u16::from_le_bytes([len[0], len[1]]);
        self.take(len.into())?.map(Some).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn take(&mut self, len: usize) -> io::Result<Option<Vec<u8>>> {
        if self.buffer.len() - self.taken < len {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let begin = self.buffer.len();
            let left = usize::try_from(self.end - self.at).unwrap_or(READ_BYTES);
            let more = left.min(READ_BYTES.max(len));
            self.buffer.resize(begin + more, 0);
            self.file.read_exact_at(&mut self.buffer[begin..], self.at)?;
            self.at += more as u64;
        }
        let taken = self.buffer.get(self.taken..self.taken + len).map(<[u8]>::to_vec);
        self.taken += taken.as_ref().map_or(0, Vec::len);
        Ok(taken)
    }
}

#[derive(Debug)]
enum Run {
    OnDisk(Reader),
    InMemory(Arc<PackedNames>, usize),
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::OnDisk(reader) => reader.next(),
            Self::InMemory(names, at) => {
                *at += 1;
                Ok(names.get(*at - 1).map(<[u8]>::to_vec))
            }
        }
    }
}

/// A run and its first name that was not given yet; the least is the greatest of a heap.
#[derive(Debug)]
struct Head {
    name: Vec<u8>,
    run: Run,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        in_walk_order(&other.name, &self.name)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Gives names in the order of a walk.
#[derive(Debug)]
pub struct NameReader {
    runs: BinaryHeap<Head>,
    last: Option<Vec<u8>>,
}

impl NameReader {
    fn add(&mut self, mut run: Run) -> io::Result<()> {
        if let Some(name) = run.next()? {
            self.runs.push(Head { name, run });
        }
        Ok(())
    }

    /// The next name.
    ///
    /// # Errors
    /// If a run cannot be read.
    pub fn next_name(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let Some(Head { name, run }) = self.runs.pop() {
            self.add(run)?;
            if self.last.as_ref() != Some(&name) {
                self.last = Some(name.clone());
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(names: impl Iterator<Item = String>) -> (Vec<String>, usize) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut sorter = NameSorter::default();
        names.for_each(|name| sorter.push(name.as_bytes(), &root).unwrap());
        let runs = sorter.runs.len();
        let sorted = sorter.sorted().unwrap();
        let mut sorted = sorted.read().unwrap();
        let mut all = Vec::new();
        while let Some(name) = sorted.next_name().unwrap() {
            all.push(String::from_utf8(name).unwrap());
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        (all, runs)
    }

    #[test]
    fn many_names_come_out_sorted_and_once() {
        let name = |n: u64| format!("d{:03}/{}", n % 101, n.wrapping_mul(0x9e37_79b9) % 1_000_003);
        let (all, runs) = sorted((0..700_000).chain(0..1000).map(name));
        let mut expected: Vec<String> = (0..700_000).map(name).collect();
        expected.sort_by(|a, b| in_walk_order(a.as_bytes(), b.as_bytes()));
        expected.dedup();
        assert!(runs > 1 && all == expected, "{runs} runs, {} names", all.len());
    }

    #[test]
    fn names_in_order_are_one_run() {
        let (all, runs) = sorted((0..500_000).map(|n| format!("d/{n:07}")));
        assert_eq!((all.len(), runs), (500_000, 1));
        assert_eq!(sorted(std::iter::empty()).0.len(), 0);
    }

    #[test]
    fn a_run_is_written_once_its_bytes_are_enough_and_read_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut sorter = NameSorter::default();
        // With its place each takes 4096 bytes.
        let long = 4096 - size_of::<(u32, u16)>();
        let name = |number: usize| format!("{number:04}{}", "n".repeat(long - 4)).into_bytes();
        let most = RUN_BYTES_MAX / 4096;
        for number in (0..most - 1).rev() {
            sorter.push(&name(number), &root).unwrap();
        }
        assert!(sorter.runs.is_empty() && sorter.bytes == RUN_BYTES_MAX - 4096);
        sorter.push(&name(most - 1), &root).unwrap();
        let bytes = (most * (2 + long)) as u64;
        assert_eq!((sorter.runs.clone(), sorter.bytes), (vec![(0, bytes)], 0));
        // What comes behind goes on with the run, and what does not is another.
        for number in most..2 * most {
            sorter.push(&name(number), &root).unwrap();
        }
        assert_eq!(sorter.runs, [(0, 2 * bytes)]);
        for number in 0..most {
            sorter.push(&name(number), &root).unwrap();
        }
        assert_eq!(sorter.runs, [(0, 2 * bytes), (2 * bytes, 3 * bytes)]);
        sorter.push(b"last", &root).unwrap();
        let sorted = sorter.sorted().unwrap();
        for _ in 0..2 {
            let mut reader = sorted.read().unwrap();
            for number in 0..2 * most {
                assert_eq!(reader.next_name().unwrap(), Some(name(number)), "{number}");
            }
            assert_eq!(reader.next_name().unwrap(), Some(b"last".to_vec()));
            assert_eq!(reader.next_name().unwrap(), None);
        }
    }

    #[test]
    fn a_run_that_was_cut_off_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let file = unnamed_file(&root).unwrap();
        file.write_all_at(&[5, 0, b'a', b'b'], 0).unwrap();
        let file = Arc::new(file);
        let names = Arc::new(PackedNames::default());
        let end_of = |end| SortedNames {
            file: Some(file.clone()),
            runs: vec![(0, end)],
            names: names.clone(),
        };
        for end in [4, 9] {
            assert_eq!(end_of(end).read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn names_that_lie_within_one_piece_of_a_run_are_read_and_written_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut sorter = NameSorter::default();
        sorter.push(b"a", &root).unwrap();
        sorter.push(b"b", &root).unwrap();
        sorter.write_run(&root).unwrap();
        let file = sorter.file.as_ref().unwrap();
        assert_eq!((file.buffer().len(), file.get_ref().metadata().unwrap().len()), (6, 0));
        let SortedNames { file, runs, .. } = sorter.sorted().unwrap();
        assert_eq!(runs, [(0, 6)]);
        let file = file.unwrap();
        let mut reader = Reader { file, at: 0, end: 6, buffer: Vec::new(), taken: 0 };
        assert_eq!(reader.next().unwrap(), Some(b"a".to_vec()));
        assert_eq!((reader.at, reader.taken, reader.buffer.len()), (6, 3, 6));
    }

    #[test]
    fn heads_of_runs_are_equal_by_their_names() {
        let head = |name: &str| Head {
            name: name.into(),
            run: Run::InMemory(Arc::new(PackedNames::default()), 0),
        };
        assert!(head("a") == head("a") && head("a") != head("b"));
    }
}
