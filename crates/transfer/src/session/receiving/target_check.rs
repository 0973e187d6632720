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
    /// Spans that lie within a hole: none of their bytes were sent.
    within_holes: SpanSet,
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
        let at_a_time = (threads * FILES_A_THREAD).min(empty_files_max());
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
        if found_bytes != size_bytes {
            return Err(damaged(&name, format!("{found_bytes} bytes for {size_bytes}")));
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
        Ok(Some(Reading { read_back, content, within_holes, name, bad }))
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
            None if reading.within_holes.contains(span) => {
                read_back.is_zeros(offset, len, buffer, &mut seen)
            }
            expected => read_back
                .hash(offset, len, content.part(), buffer, &mut seen)
                .map(|value| expected == Some(value)),
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
