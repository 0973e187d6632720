//! A run: a file written or read in blocks, one after the other, for a time or for its bytes.
//!
//! Blocks are whole and lie one behind the other. What is written is random, and each page of it
//! is another, so that no disk can compress it or store it once.

use super::{
    scratch_file::{Caching, ScratchFile},
    series::{Recorder, Series},
};
use crate::disk::setting::{Method, Operation, Setting};
use haul_sys::{PageMemory, Ring, usage};
use haul_transfer::Interrupt;
use rustix::io::Errno;
use std::{
    io,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The size of a page, each of which is marked with a number of its own.
const PAGE_BYTES: usize = 4096;

/// The work of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub operation: Operation,
    pub setting: Setting,
    /// Bytes of the file that runs may use.
    pub region_bytes: u64,
    /// The place at which the run begins; at the region's end it goes on at the region's begin.
    pub first_bytes: u64,
    pub len_bytes: u64,
    pub time_max: Duration,
    /// The length of an interval of the run's series.
    pub every: Duration,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All bytes of the run were moved.
    Size,
    Time,
    /// The file system took no more: it is full, or a quota is.
    DiskFull,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Run {
    pub series: Series,
    /// Time from the last block of a write until all was durable.
    pub sync_s: Option<f64>,
    pub ended: Ended,
    /// Processor time of this process.
    pub cpu_s: f64,
    /// The share of the file in the page cache before a read by way of it.
    pub cached_share: Option<f64>,
}

impl Run {
    /// The rate without the sync at the end.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.series.bytes, self.series.seconds)
    }

    /// The rate with the sync at the end, where there was one.
    #[must_use]
    pub fn durable_bytes_per_s(&self) -> f64 {
        rate(self.series.bytes, self.series.seconds + self.sync_s.unwrap_or(0.0))
    }
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// The reason why there is no run.
#[derive(Debug)]
pub enum NoRun {
    Interrupted,
    Refused(Refusal),
}

/// The reason why the disk gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel refused what a run needs.
    #[error("{0}: {1}")]
    Kernel(&'static str, io::Error),
    /// A block failed.
    #[error("cannot {verb} a block of {block_bytes} bytes at byte {at}: {source}")]
    Block {
        /// `read` or `write`.
        verb: &'static str,
        /// Size of the block.
        block_bytes: usize,
        /// Place in the file.
        at: u64,
        /// Answer of the kernel.
        source: io::Error,
    },
    /// No block was done, for the disk is full.
    #[error("nothing was measured: the disk is full")]
    DiskFull,
    /// No block was done in the run's time.
    #[error("nothing was measured: no block was done in time")]
    Late,
    /// The file cannot be made anew.
    #[error("no room for the file any more: {0}")]
    NoRoom(io::Error),
    /// The run that would have written what is to be read came to nothing.
    #[error("nothing was written that could be read")]
    NothingWritten,
}

impl NoRun {
    fn because(what: &'static str, error: io::Error) -> Self {
        Self::Refused(Refusal::Kernel(what, error))
    }
}

/// Whether the file system takes no more: it is full, a quota is, or the file is too large.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| full.contains(&code))
}

/// Does a run, and syncs what was written.
///
/// # Errors
/// If it was interrupted, or could not be done.
pub fn run(load: &Load, scratch: &ScratchFile, interrupt: &Interrupt) -> Result<Run, NoRun> {
    let caching = load.setting.method.caching();
    let cached = scratch
        .set(Caching::PageCache)
        .and_then(|()| scratch.forget_cache(load.region_bytes))
        .map_err(|error| NoRun::because("cannot empty the page cache of the file", error))?;
    scratch.set(caching).map_err(|error| NoRun::because("cannot set O_DIRECT", error))?;
    let mut work = Work {
        load,
        scratch,
        interrupt,
        next: 0,
        start: Instant::now(),
        cpu_before: Duration::ZERO,
        recorder: Recorder::new(load.every),
        ended: None,
    };
    match load.setting.method {
        Method::IoUring => work.by_ring()?,
        Method::Direct | Method::Buffered => work.one_by_one()?,
    }
    let ended = work.ended.unwrap_or(Ended::Size);
    let (recorder, cpu_before) = (work.recorder, work.cpu_before);
    let sync_s = match load.operation {
        Operation::Write => Some(timed_sync(scratch)?),
        Operation::Read => None,
    };
    let reads_cache = load.operation == Operation::Read && caching == Caching::PageCache;
    let run = Run {
        series: recorder.end(),
        sync_s,
        ended,
        cpu_s: cpu().saturating_sub(cpu_before).as_secs_f64(),
        cached_share: reads_cache.then_some(cached),
    };
    if run.series.bytes == 0 {
        return Err(NoRun::Refused(match run.ended {
            Ended::DiskFull => Refusal::DiskFull,
            Ended::Size | Ended::Time => Refusal::Late,
        }));
    }
    Ok(run)
}

fn cpu() -> Duration {
    usage::of_this_process().map(|usage| usage.cpu).unwrap_or_default()
}

fn timed_sync(scratch: &ScratchFile) -> Result<f64, NoRun> {
    let start = Instant::now();
    match scratch.sync() {
        // What was promised and is not there shows now on file systems that promise too much.
        Err(error) if !is_full(&error) => Err(NoRun::because("cannot sync the file", error)),
        _ => Ok(start.elapsed().as_secs_f64()),
    }
}

/// A block under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    offset_bytes: u64,
    done_bytes: usize,
    begun: Instant,
}

struct Work<'run> {
    load: &'run Load,
    scratch: &'run ScratchFile,
    interrupt: &'run Interrupt,
    /// The number of the next block.
    next: u64,
    start: Instant,
    /// Processor time of this process at the start of the run; memory has its bytes by then.
    cpu_before: Duration,
    recorder: Recorder,
    /// The reason why no further block is begun.
    ended: Option<Ended>,
}

impl Work<'_> {
    fn begin_now(&mut self) {
        self.cpu_before = cpu();
        self.start = Instant::now();
    }

    /// Takes the number and the place of the next block; `None` if there is none.
    fn next_block(&mut self, now: Instant) -> Result<Option<(u64, u64)>, NoRun> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(NoRun::Interrupted);
        }
        let block_bytes = self.load.setting.block_bytes as u64;
        let blocks = self.load.region_bytes / block_bytes;
        if self.ended.is_some() || self.next >= self.load.len_bytes / block_bytes || blocks == 0 {
            return Ok(None);
        }
        if now.duration_since(self.start) >= self.load.time_max {
            self.ended = Some(Ended::Time);
            return Ok(None);
        }
        let number = self.next;
        self.next += 1;
        let place = (self.load.first_bytes / block_bytes + number) % blocks;
        Ok(Some((number, place * block_bytes)))
    }

    fn finished(&mut self, flight: &Flight) -> Instant {
        let now = Instant::now();
        let bytes = self.load.setting.block_bytes as u64;
        self.recorder.finished(now - self.start, now - flight.begun, bytes);
        now
    }

    /// Tells of a failed block; `Ok` if the run may end here with what it has.
    fn failed(&mut self, flight: &Flight, error: io::Error) -> Result<(), NoRun> {
        if self.load.operation == Operation::Write && is_full(&error) {
            self.ended = Some(Ended::DiskFull);
            return Ok(());
        }
        let Setting { block_bytes, .. } = self.load.setting;
        let verb = self.load.operation.verb();
        let at = flight.offset_bytes + flight.done_bytes as u64;
        Err(NoRun::Refused(Refusal::Block { verb, block_bytes, at, source: error }))
    }

    /// Moves blocks by pread(2) and pwrite(2): the next block begins when the last one is done.
    fn one_by_one(&mut self) -> Result<(), NoRun> {
        let len_bytes = self.load.setting.block_bytes;
        let mut memory = PageMemory::new(len_bytes)
            .map_err(|error| NoRun::because("cannot take memory for a block", error))?;
        fill(memory.bytes_mut(), 0);
        let file = Arc::clone(self.scratch.file());
        self.begin_now();
        let mut now = self.start;
        while let Some((number, offset_bytes)) = self.next_block(now)? {
            let buffer = memory.bytes_mut();
            if self.load.operation == Operation::Write {
                mark(buffer, number);
            }
            let flight = Flight { offset_bytes, done_bytes: 0, begun: Instant::now() };
            let moved = match self.load.operation {
                Operation::Write => file.write_all_at(buffer, offset_bytes),
                Operation::Read => file.read_exact_at(buffer, offset_bytes),
            };
            match moved {
                Ok(()) => now = self.finished(&flight),
                Err(error) => self.failed(&flight, error)?,
            }
        }
        Ok(())
    }

    /// Moves blocks by io_uring, as many at a time as the depth says.
    fn by_ring(&mut self) -> Result<(), NoRun> {
        let Setting { block_bytes, depth, .. } = self.load.setting;
        let mut ring = Ring::new(depth, block_bytes)
            .map_err(|error| NoRun::because("cannot set up io_uring", error))?;
        for slot in 0..depth as usize {
            fill(ring.slot_mut(slot), slot as u64);
        }
        let mut flights: Vec<Option<Flight>> = vec![None; depth as usize];
        self.begin_now();
        for slot in 0..depth as usize {
            self.begin(&mut ring, &mut flights, slot, self.start)?;
        }
        loop {
            let finished = ring.finished(true);
            let finished =
                finished.map_err(|error| NoRun::because("io_uring does not go on", error))?;
            let Some((slot, moved)) = finished else { return Ok(()) };
            let Some(mut flight) = flights[slot].take() else { continue };
            match moved {
                Ok(0) => {
                    let nothing = io::Error::from(io::ErrorKind::UnexpectedEof);
                    self.failed(&flight, nothing)?;
                }
                Ok(moved) => {
                    flight.done_bytes += moved;
                    if flight.done_bytes < block_bytes {
                        self.start_block(&mut ring, slot, &flight)?;
                        flights[slot] = Some(flight);
                    } else {
                        let now = self.finished(&flight);
                        self.begin(&mut ring, &mut flights, slot, now)?;
                    }
                }
                // Too many things at once for a moment.
                Err(error) if passes(&error) && self.start.elapsed() < self.load.time_max => {
                    self.start_block(&mut ring, slot, &flight)?;
                    flights[slot] = Some(flight);
                }
                Err(error) => self.failed(&flight, error)?,
            }
        }
    }

    fn begin(
        &mut self,
        ring: &mut Ring,
        flights: &mut [Option<Flight>],
        slot: usize,
        now: Instant,
    ) -> Result<(), NoRun> {
        let Some((number, offset_bytes)) = self.next_block(now)? else { return Ok(()) };
        if self.load.operation == Operation::Write {
            mark(ring.slot_mut(slot), number);
        }
        let flight = Flight { offset_bytes, done_bytes: 0, begun: Instant::now() };
        self.start_block(ring, slot, &flight)?;
        flights[slot] = Some(flight);
        Ok(())
    }

    fn start_block(&self, ring: &mut Ring, slot: usize, flight: &Flight) -> Result<(), NoRun> {
        let file = Arc::clone(self.scratch.file());
        let part = flight.done_bytes..self.load.setting.block_bytes;
        let offset_bytes = flight.offset_bytes + flight.done_bytes as u64;
        let started = match self.load.operation {
            Operation::Write => ring.start_write(slot, part, file, offset_bytes),
            Operation::Read => ring.start_read(slot, part, file, offset_bytes),
        };
        started.map_err(|error| NoRun::because("io_uring takes no block", error))
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Fills a buffer with random bytes, which differ by seed.
fn fill(buffer: &mut [u8], seed: u64) {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(buffer);
}

/// Makes each page of a block unlike those of all other blocks.
fn mark(buffer: &mut [u8], number: u64) {
    for (page, at) in buffer.chunks_mut(PAGE_BYTES).zip(0_u64..) {
        let mark = (u128::from(number) << 64) | u128::from(at);
        let len = page.len().min(size_of::<u128>());
        page[..len].copy_from_slice(&mark.to_le_bytes()[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::skip::skip;
    use std::fs::File;

    fn scratch(len_bytes: u64) -> ScratchFile {
        let directory = tempfile::tempdir_in(".").unwrap();
        let scratch = ScratchFile::new(File::open(directory.path()).unwrap()).unwrap();
        scratch.begin_anew(len_bytes).unwrap();
        scratch
    }

    fn load(operation: Operation, method: Method, block_bytes: usize, depth: u32) -> Load {
        Load {
            operation,
            setting: Setting { method, block_bytes, depth },
            region_bytes: 1 << 20,
            first_bytes: 0,
            len_bytes: 1 << 20,
            time_max: Duration::from_secs(60),
            every: Duration::from_millis(100),
        }
    }

    fn done(load: &Load, scratch: &ScratchFile) -> Option<Run> {
        match run(load, scratch, &Interrupt::default()) {
            Ok(run) => Some(run),
            Err(NoRun::Refused(why)) => {
                skip("O_DIRECT and io_uring", &why);
                None
            }
            Err(NoRun::Interrupted) => panic!("nobody interrupted it"),
        }
    }

    #[test]
    fn every_block_is_written_once_and_no_two_pages_are_the_same() {
        for (method, depth) in [(Method::IoUring, 4), (Method::Direct, 1), (Method::Buffered, 1)] {
            let scratch = scratch(1 << 20);
            let load = load(Operation::Write, method, 64 << 10, depth);
            let Some(run) = done(&load, &scratch) else { continue };
            assert_eq!((run.series.bytes, run.ended), (1 << 20, Ended::Size));
            assert_eq!(run.series.delays.len(), 16);
            assert!(run.sync_s.is_some());
            scratch.set(Caching::PageCache).unwrap();
            let mut content = vec![0; 1 << 20];
            scratch.file().read_exact_at(&mut content, 0).unwrap();
            let mut pages: Vec<&[u8]> = content.chunks(PAGE_BYTES).collect();
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), 256, "{method:?}");
        }
    }

    #[test]
    fn a_read_begins_where_it_is_told_and_goes_on_at_the_begin() {
        for (method, depth) in [(Method::IoUring, 3), (Method::Direct, 1), (Method::Buffered, 1)] {
            let scratch = scratch(1 << 20);
            let all = Load { first_bytes: 900 << 10, ..load(Operation::Read, method, 8192, depth) };
            let Some(run) = done(&all, &scratch) else { continue };
            assert_eq!((run.series.bytes, run.sync_s), (1 << 20, None));
            assert_eq!(run.cached_share.is_some(), method == Method::Buffered);
        }
    }

    #[test]
    fn time_ends_a_run_as_well() {
        let scratch = scratch(1 << 20);
        let endless = Load {
            len_bytes: u64::MAX,
            time_max: Duration::from_millis(50),
            ..load(Operation::Write, Method::Buffered, 4096, 1)
        };
        let Some(run) = done(&endless, &scratch) else { return };
        assert_eq!(run.ended, Ended::Time);
        assert!(run.series.seconds >= 0.05 && run.series.bytes > 0);
    }

    #[test]
    fn an_interrupt_ends_it_at_once() {
        let scratch = scratch(1 << 20);
        let endless =
            Load { len_bytes: u64::MAX, ..load(Operation::Write, Method::IoUring, 4096, 8) };
        let interrupt = Interrupt::default();
        interrupt.store(true, Ordering::Relaxed);
        assert!(matches!(
            run(&endless, &scratch, &interrupt),
            Err(NoRun::Interrupted | NoRun::Refused(_))
        ));
    }

    #[test]
    fn a_read_behind_the_files_end_is_said_with_its_place() {
        let scratch = scratch(4096);
        let beyond =
            Load { first_bytes: 512 << 10, ..load(Operation::Read, Method::Buffered, 4096, 1) };
        match run(&beyond, &scratch, &Interrupt::default()) {
            Err(NoRun::Refused(why)) => {
                assert!(why.to_string().contains("at byte 524288"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_disk_that_becomes_full_ends_a_write_with_what_it_took() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (path, image) = (directory.path().join("full"), directory.path().join("image"));
        std::fs::create_dir(&path).unwrap();
        // ext2 cannot take space beforehand.
        let mount = match haul_testkit::mount::Mount::ext2(&path, &image, 8 << 20) {
            Ok(mount) => mount,
            Err(why) => return skip("the right to mount an ext2", &why),
        };
        for (method, depth) in [(Method::Buffered, 1), (Method::Direct, 1), (Method::IoUring, 4)] {
            let scratch = ScratchFile::new(File::open(mount.path()).unwrap()).unwrap();
            let much = Load {
                region_bytes: 32 << 20,
                len_bytes: 32 << 20,
                ..load(Operation::Write, method, 64 << 10, depth)
            };
            let Some(run) = done(&much, &scratch) else { continue };
            assert_eq!(run.ended, Ended::DiskFull, "{method:?}");
            assert!((1 << 20..8 << 20).contains(&run.series.bytes), "{}", run.series.bytes);
        }
    }
}
