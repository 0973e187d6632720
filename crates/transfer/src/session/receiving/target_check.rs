//! Check of the target (`--verify-target`) before a file gets its name.
//!
//! It is read back from its disk, and every span must be what arrived.
//!
//! The comparison is with the BLAKE3 value that each span had when its digest agreed, so a disk, a
//! controller or a file system that keeps other bytes than it was given is found here.

use crate::session::{contents::Contents, receiving::committer::SharedTarget};
use crate::{
    clocks::thread_cpu_ns,
    content::FileContent,
    error::io_fault,
    locks::{Lock, lock},
    storage::{
        holes,
        open_files::empty_files_max,
        read_back::{BLOCK_BYTES, ReadBack, Way, WayBytes},
    },
};
use haul_datapath::aligned_buffer::AlignedBuffer;
use haul_protocol::{
    FileId, SpanGrid, SpanIndex, SpanSet, limits,
    message::{Fault, FaultCode, Side},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

/// Files read at a time, for each thread: while one is hashed the disk reads another.
const FILES_A_THREAD: usize = 4;

/// Reads back the files that a session received.
#[derive(Debug, Default)]
pub struct TargetCheck {
    contents: Arc<Contents>,
    /// Files are being read just now.
    pub at_work: AtomicBool,
    /// The session is over: what is not read yet is left for the next one.
    pub stopping: AtomicBool,
    read: WayBytes,
    /// Processor time of the threads that read, in nanoseconds.
    cpu_ns: AtomicU64,
}

/// A file that is read back.
struct Reading {
    read_back: ReadBack,
    content: FileContent,
    name: Vec<u8>,
    /// The first span that is not as it arrived, or cannot be read.
    bad: Lock<Option<(SpanIndex, io::Result<()>)>>,
}

impl TargetCheck {
    #[must_use]
    pub fn new(contents: Arc<Contents>) -> Self {
        Self { contents, ..Self::default() }
    }

    /// Ways in which the target was read, in words; nothing where nothing was read.
    #[must_use]
    pub fn ways(&self) -> &'static str {
        match Way::ALL.map(|way| self.read.of(way) > 0) {
            [false, false, false] => "",
            [true, false, false] => "O_DIRECT",
            [false, true, false] => "the page cache, after it was told to forget them",
            [false, false, true] => "memory, as it is on tmpfs",
            _ => "O_DIRECT, and some through the page cache, after it forgot them, or from tmpfs",
        }
    }

    /// Processor time that reading took, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// Reads these files back, and returns the outcome of each. `None`: it was stopped.
    pub fn check(&self, files: &[(FileId, SharedTarget)]) -> Option<Vec<Result<(), Fault>>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        self.at_work.store(true, Ordering::Relaxed);
        // A few at a time: each takes a descriptor more.
        let at_a_time = files_at_a_time(threads, empty_files_max());
        let outcomes = files.chunks(at_a_time).flat_map(|some| self.check_some(some, threads));
        let outcomes = outcomes.collect();
        self.at_work.store(false, Ordering::Relaxed);
        (!self.stopping.load(Ordering::Relaxed)).then_some(outcomes)
    }

    fn check_some(
        &self,
        files: &[(FileId, SharedTarget)],
        threads: usize,
    ) -> Vec<Result<(), Fault>> {
        let opened: Vec<Result<Option<Reading>, Fault>> =
            files.iter().map(|(file, target)| self.open(*file, target)).collect();
        let readings = opened.iter().filter_map(|opened| opened.as_ref().ok()?.as_ref());
        self.read_all(&readings.collect::<Vec<_>>(), threads);
        let outcome = |opened: Result<Option<Reading>, Fault>| match opened {
            Ok(Some(reading)) => judge(reading),
            Ok(None) => Ok(()),
            Err(fault) => Err(fault),
        };
        opened.into_iter().map(outcome).collect()
    }

    fn open(&self, file: FileId, target: &SharedTarget) -> Result<Option<Reading>, Fault> {
        let (opened, name, offer) = match &*lock(target) {
            Some(target) => (target.to_read_back(), target.name.clone(), target.offer.clone()),
            None => return Ok(None),
        };
        let size_bytes = offer.size_bytes;
        let Some(opened) = opened else { return Ok(None) };
        let failed =
            |error: io::Error| io_fault(Side::Target, &name, "cannot be read back", &error);
        let found_bytes = opened.file().metadata().map_err(failed)?.len();
        let due_bytes = offer.range.map_or(size_bytes, |range| range.file_bytes);
        if found_bytes != due_bytes {
            return Err(damaged(&name, format!("{found_bytes} bytes for {due_bytes}")));
        }
        if size_bytes == 0 {
            return Ok(None);
        }
        let no_record = || damaged(&name, "no record of what arrived".into());
        let content = self.contents.get(file);
        let content = match content {
            // Of a file that is one hole nothing arrived.
            None => SpanGrid::new(size_bytes, limits::SPAN_BYTES_MAX).ok().map(FileContent::new),
            content => content,
        };
        let content = content.ok_or_else(no_record)?;
        let mut within_holes = SpanSet::new(content.grid().count());
        holes::add_spans_within(&offer.holes, content.grid(), &mut within_holes);
        if content.unknown().any(|span| !within_holes.contains(span)) {
            return Err(no_record());
        }
        let read_back = ReadBack::new(opened);
        let bad = Lock::default();
        Ok(Some(Reading { read_back, content, name, bad }))
    }

    /// Reads every span of every file, on several threads.
    fn read_all(&self, readings: &[&Reading], threads: usize) {
        let spans = readings.iter().flat_map(|reading| {
            (0..reading.content.grid().count()).map(move |span| (*reading, SpanIndex(span)))
        });
        let spans: Vec<(&Reading, SpanIndex)> = spans.collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
            while let Some((reading, span)) = spans.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.stopping.load(Ordering::Relaxed) {
                    break;
                }
                self.read_span(reading, *span, &mut buffer);
            }
        };
        if threads.min(spans.len()) <= 1 {
            return work();
        }
        let counted = || {
            work();
            self.cpu_ns.fetch_add(thread_cpu_ns(), Ordering::Relaxed);
        };
        let threads = threads.min(spans.len());
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(counted))));
    }

    fn read_span(&self, reading: &Reading, span: SpanIndex, buffer: &mut AlignedBuffer) {
        let content = &reading.content;
        let (offset, len) = content.grid().range(span);
        let mut seen = |_| !self.stopping.load(Ordering::Relaxed);
        let read_back = &reading.read_back;
        let is_good = match content.value(span) {
            // It lies within a hole: none of its bytes were sent.
            None => read_back.is_zeros(offset, len, buffer, &mut seen),
            Some(expected) => read_back
                .hash(offset, len, content.part(), buffer, &mut seen)
                .map(|value| value == expected),
        };
        self.read.add(read_back.way(), len);
        let bad = match is_good {
            Ok(true) => return,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        let mut first = lock(&reading.bad);
        if first.as_ref().is_none_or(|(found, _)| span < *found) {
            *first = Some((span, bad));
        }
    }
}

/// Number of files that are opened at a time, each with a descriptor of its own.
fn files_at_a_time(threads: usize, descriptors: usize) -> usize {
    (threads * FILES_A_THREAD).min(descriptors)
}

fn judge(reading: Reading) -> Result<(), Fault> {
    let bad = reading.bad.into_inner();
    let Some((span, why)) = bad else { return Ok(()) };
    let (offset, len) = reading.content.grid().range(span);
    match why {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            let what = format!("cannot be read back, within {len} bytes from byte {offset} on");
            Err(io_fault(Side::Target, &reading.name, what, &error))
        }
        _ => Err(damaged(
            &reading.name,
            format!("other bytes within {len} bytes from byte {offset} on"),
        )),
    }
}

fn damaged(name: &[u8], found: String) -> Fault {
    Fault::new(FaultCode::DataDamaged, Side::Target, "is on its disk not what arrived")
        .at(name)
        .needs("the bytes that were verified when they arrived")
        .found(found)
        .hint("do not trust that disk: see the kernel's log of that host and the disk's own health")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::receiving::{
        with_sender::{SPAN, directory, offer},
        with_target::Target,
    };
    use haul_protocol::message::{Extent, FileOffer};
    use haul_testkit::{content, seed::Seed};
    use std::os::unix::fs::FileExt;

    /// Length of a file of three spans.
    const LEN: u64 = 2 * SPAN + 100;

    /// A directory, and the check of what is received there.
    struct Checked {
        _directory: tempfile::TempDir,
        target: Target,
        check: TargetCheck,
    }

    impl Checked {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let target = Target::in_directory(directory.path());
            Self { _directory: directory, target, check: TargetCheck::default() }
        }

        /// Receives a file of `len_bytes`, of which spans arrived as `arrived` says.
        fn file(&mut self, offer: &FileOffer, arrived: &[u32]) -> (FileId, SharedTarget) {
            let (target, _) = self.target.prepare(offer);
            let bytes = content::bytes(Seed(1), offer.size_bytes as usize);
            let grid = SpanGrid::new(offer.size_bytes, SPAN).unwrap();
            if grid.count() > 1 {
                let file = lock(&target).as_ref().unwrap().span_file().unwrap().unwrap();
                file.file().write_all_at(&bytes, 0).unwrap();
            } else {
                lock(&target).as_mut().unwrap().write_whole(&bytes, None).unwrap();
            }
            let mut of_file = FileContent::new(grid);
            for span in arrived.iter().copied().map(SpanIndex) {
                let (offset, len) = grid.range(span);
                let mut hasher = crate::content::SpanHasher::default();
                hasher.start(offset);
                hasher.update(&bytes[offset as usize..(offset + len) as usize]);
                of_file.insert(span, hasher.finish(of_file.part()));
            }
            if !arrived.is_empty() {
                self.check.contents.begin(offer.file, of_file);
            }
            (offer.file, target)
        }

        fn check_one(&self, file: (FileId, SharedTarget)) -> Result<(), Fault> {
            self.check.check(&[file]).unwrap().pop().unwrap()
        }
    }

    /// Writes bytes that never arrived.
    fn spoil(file: &(FileId, SharedTarget), at: u64, bytes: &[u8]) {
        let file = lock(&file.1).as_ref().unwrap().to_read_back().unwrap();
        file.file().write_all_at(bytes, at).unwrap();
    }

    fn found(fault: Result<(), Fault>) -> String {
        let fault = fault.unwrap_err();
        assert_eq!((fault.code, &*fault.path), (FaultCode::DataDamaged, &b"x"[..]));
        fault.found
    }

    #[test]
    fn files_that_are_as_they_arrived_are_good_and_what_has_no_bytes_is_too() {
        let mut checked = Checked::new();
        assert_eq!(checked.check.ways(), "");
        let one = checked.file(&offer(7, "one", 5), &[0]);
        assert_eq!(checked.check_one(one), Ok(()));
        assert_eq!(checked.check.cpu_ns(), 0, "the thread that asks counts its own");
        let gone = (FileId(6), SharedTarget::default());
        let directory = (FileId(5), checked.target.prepare(&directory(5, "tree")).0);
        let empty = checked.file(&offer(1, "empty", 0), &[]);
        let large = checked.file(&offer(0, "x", LEN), &[0, 1, 2]);
        let all = [gone, directory, empty, large];
        assert_eq!(checked.check.check(&all), Some(vec![Ok(()); 4]));
        assert!(!checked.check.at_work.load(Ordering::Relaxed));
        assert_eq!(checked.check.read.sum(), LEN + 5);
        let is_alone = thread::available_parallelism().map_or(1, usize::from) == 1;
        assert!(checked.check.cpu_ns() > 0 || is_alone);
        checked.check.stopping.store(true, Ordering::Relaxed);
        assert_eq!(checked.check.check(&all), None);
        assert_eq!(checked.check.read.sum(), LEN + 5);
    }

    #[test]
    fn the_first_bytes_that_are_others_are_named() {
        let mut checked = Checked::new();
        let file = checked.file(&offer(0, "x", LEN), &[0, 1, 2]);
        spoil(&file, SPAN + 77, &[0; 3]);
        spoil(&file, 2 * SPAN + 1, &[0; 3]);
        let found = found(checked.check_one(file));
        assert_eq!(found, format!("other bytes within {SPAN} bytes from byte {SPAN} on"));
    }

    #[test]
    fn a_file_of_another_length_and_one_of_which_nobody_knows_what_arrived_are_not_believed() {
        let mut checked = Checked::new();
        let file = checked.file(&offer(0, "x", LEN), &[0, 1, 2]);
        spoil(&file, LEN, b"y");
        assert_eq!(found(checked.check_one(file)), format!("{} bytes for {LEN}", LEN + 1));
        let mut checked = Checked::new();
        let file = checked.file(&offer(0, "x", LEN), &[0, 2]);
        assert_eq!(found(checked.check_one(file)), "no record of what arrived");
        let mut checked = Checked::new();
        let file = checked.file(&offer(0, "x", LEN), &[]);
        assert_eq!(found(checked.check_one(file)), "no record of what arrived");
    }

    #[test]
    fn a_hole_is_read_back_as_zeros() {
        let hole = |from, len| Extent { offset_bytes: from, len_bytes: len };
        let with = |hole| FileOffer { holes: vec![hole], ..offer(0, "x", LEN) };
        let mut checked = Checked::new();
        let file = checked.file(&with(hole(SPAN, SPAN)), &[0, 2]);
        spoil(&file, SPAN, &[0; SPAN as usize]);
        assert_eq!(checked.check_one(file.clone()), Ok(()));
        spoil(&file, SPAN + 9, b"y");
        assert!(found(checked.check_one(file)).starts_with("other bytes"));
        // Of one that is all hole nothing arrives at all.
        let mut checked = Checked::new();
        let file = checked.file(&with(hole(0, LEN)), &[]);
        spoil(&file, 0, &[0; LEN as usize]);
        assert_eq!(checked.check_one(file), Ok(()));
    }

    #[test]
    fn the_first_bad_span_is_kept_whichever_is_found_first() {
        let mut checked = Checked::new();
        let file = checked.file(&offer(0, "x", LEN), &[0, 1, 2]);
        spoil(&file, SPAN, &[0; 3]);
        spoil(&file, 2 * SPAN, &[0; 3]);
        let reading = checked.check.open(file.0, &file.1).unwrap().unwrap();
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        for (span, first) in [(0, None), (2, Some(2)), (1, Some(1)), (2, Some(1))] {
            checked.check.read_span(&reading, SpanIndex(span), &mut buffer);
            let found = lock(&reading.bad).as_ref().map(|(span, _)| span.0);
            assert_eq!(found, first, "after {span}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_another_fault_than_what_ends_early() {
        let mut checked = Checked::new();
        for (kind, code) in [
            (io::ErrorKind::UnexpectedEof, FaultCode::DataDamaged),
            (io::ErrorKind::Other, FaultCode::IoFailed),
        ] {
            let file = checked.file(&offer(0, "x", LEN), &[0, 1, 2]);
            let reading = checked.check.open(file.0, &file.1).unwrap().unwrap();
            *lock(&reading.bad) = Some((SpanIndex(1), Err(kind.into())));
            let fault = judge(reading).unwrap_err();
            assert_eq!((fault.code, &*fault.path), (code, &b"x"[..]), "{fault:?}");
            drop(lock(&file.1).take());
        }
    }

    #[test]
    fn ways_of_reading_are_told_in_words() {
        let words = |ways: &[Way]| {
            let check = TargetCheck::default();
            ways.iter().for_each(|way| check.read.add(*way, 1));
            check.ways()
        };
        assert_eq!(words(&[]), "");
        assert_eq!(words(&[Way::Direct]), "O_DIRECT");
        assert!(words(&[Way::Dropped]).starts_with("the page cache"));
        assert!(words(&[Way::Memory]).starts_with("memory"));
        assert!(words(&[Way::Direct, Way::Memory]).starts_with("O_DIRECT, and some"));
    }

    #[test]
    fn few_files_for_each_thread_are_open_at_a_time() {
        assert_eq!([files_at_a_time(3, 100), files_at_a_time(3, 5)], [12, 5]);
    }
}
