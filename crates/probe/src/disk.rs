//! `haul probe disk`: rates and delays of writing and reading, over time and by setting.
//!
//! First profiles: a large file is written and read, past the page cache and by way of it, and what
//! comes in each interval is kept, so that a cache that ends shows as a cliff. Then a sweep: short
//! runs for each block size and depth, in rounds that are interleaved. All of it in one file that
//! has no name (`scratch_file.rs`).

pub mod course;
pub mod explanation;
pub mod plan;
pub mod report;
pub mod run;
pub mod scratch_file;
pub mod series;
pub mod setting;
pub mod tables;
pub mod verdict;

use crate::{
    disk::{
        report::{Cell, DiskReport, Profile, Profiled},
        setting::{DiskRequest, Method, Operation, Setting},
    },
    words,
};
use course::course;
use explanation::{Circumstances, explain};
use haul_host::{
    FileSystem, Host,
    block_device::{Place, Storage},
};
use haul_sys::Ring;
use haul_transfer::{Interrupt, Problem, TransferError};
use plan::Plan;
use run::{Load, NoRun, Refusal, Run};
use rustix::{
    fs::{Mode, OFlags, major, minor},
    io::Errno,
};
use scratch_file::{Caching, ScratchFile, Space};
use std::{fs::File, io, os::unix::fs::MetadataExt, path::Path, time::Duration};

/// The block size of a profile, next to that of haul's own engine (engines/io_uring.rs).
const PROFILE_BLOCK_BYTES: usize = 1 << 20;
const PROFILE_DEPTH: u32 = 8;
/// Intervals of a profile that uses up its time.
const INTERVALS: u32 = 300;
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The least part of the file that a run of the sweep has before it; else the file is made anew.
const FRESH_PARTS: u64 = 4;

/// Measures a disk. `begin` is told each step, with how many there are.
///
/// # Errors
/// If nothing could start, or it was interrupted. Nothing is left in the directory.
pub fn probe(
    request: &DiskRequest,
    interrupt: &Interrupt,
    begin: &mut dyn FnMut(usize, &str),
) -> Result<DiskReport, TransferError> {
    let mut prober = Prober::new(request, interrupt).map_err(TransferError::start)?;
    let profiles = prober.profile_settings();
    let settings = prober.sweep_settings();
    let steps = 2 * (profiles.len() + settings.len() * request.rounds as usize);
    let mut tell = |what: &str| begin(steps, what);
    let done = prober.measure(&profiles, &settings, &mut tell);
    done.map_err(|Interrupted| TransferError::interrupted())?;
    Ok(prober.report())
}

struct Interrupted;

struct Prober<'probe> {
    request: &'probe DiskRequest,
    interrupt: &'probe Interrupt,
    host: Host,
    storage: Storage,
    file_system: FileSystem,
    plan: Plan,
    scratch: ScratchFile,
    space: Space,
    refused: Vec<(Method, String)>,
    profiles: Vec<Profile>,
    cells: Vec<Cell>,
    /// Bytes of the file that were written and can be read.
    written_bytes: u64,
}

impl<'probe> Prober<'probe> {
    fn new(request: &'probe DiskRequest, interrupt: &'probe Interrupt) -> Result<Self, Problem> {
        haul_sys::file_size_limit::survive();
        let shown = request.directory.display();
        let cannot_open = format!("cannot open the directory {shown}");
        let opened = open_directory(&request.directory)
            .map_err(|error| failed(&cannot_open, "", &error, "name a directory on the disk"))?;
        let asked = FileSystem::of(&opened).and_then(|found| {
            let path = std::fs::canonicalize(&request.directory)?;
            Ok((found, path, opened.metadata()?.dev()))
        });
        let (file_system, path, device) = asked.map_err(|error| {
            failed(&format!("cannot ask for the file system of {shown}"), "", &error, "")
        })?;
        let host = Host::read(Path::new("/"));
        let storage = Storage::of(Path::new("/"), &path, major(device), minor(device));
        let cannot_make = format!("cannot make a file in {shown}");
        let needs = "the right to write there";
        let scratch = ScratchFile::new(&opened).map_err(|error| {
            failed(&cannot_make, needs, &error, "name a directory that you may write to")
        })?;
        let plan = plan::plan(request, &host, &file_system, &storage)?;
        let space = scratch.begin_anew(plan.len_bytes).map_err(|error| {
            let needs = format!("{} of free space", words::bytes(plan.len_bytes));
            failed(&cannot_make, &needs, &error, "name a smaller --size or another DIR")
        })?;
        let mut this = Self {
            request,
            interrupt,
            host,
            storage,
            file_system,
            plan,
            scratch,
            space,
            refused: Vec::new(),
            profiles: Vec::new(),
            cells: Vec::new(),
            written_bytes: 0,
        };
        for method in &request.methods {
            if let Some(why) = this.refusal(*method) {
                this.refused.push((*method, why));
            }
        }
        Ok(this)
    }

    /// The reason why a method does not work here.
    fn refusal(&self, method: Method) -> Option<String> {
        if method == Method::Buffered {
            return None;
        }
        if self.storage.place == Place::Memory {
            let kind = &self.storage.file_system;
            return Some(format!("needs a disk, found {kind}: O_DIRECT changes nothing there"));
        }
        let direct = self.scratch.set(Caching::Direct);
        // Set again by each run.
        let _ = self.scratch.set(Caching::PageCache);
        if let Err(error) = direct {
            let kind = self.file_system.kind;
            return Some(format!("needs a file system with O_DIRECT, found {kind}: {error}"));
        }
        if method == Method::IoUring {
            return no_ring(&self.host);
        }
        None
    }

    fn works(&self, method: Method) -> bool {
        self.request.wants(method) && self.refused.iter().all(|(refused, _)| *refused != method)
    }

    /// Settings of the profiles: one past the page cache, one by way of it.
    fn profile_settings(&self) -> Vec<Setting> {
        let request = self.request;
        let past = [Method::IoUring, Method::Direct].into_iter().find(|method| self.works(*method));
        let buffered = Some(Method::Buffered).filter(|method| self.works(*method));
        let blocks = request.block_sizes.iter().copied();
        let block_bytes = nearest(blocks, PROFILE_BLOCK_BYTES, |block| block as f64);
        let depths = request.depths.iter().copied();
        let depth = nearest(depths, PROFILE_DEPTH, f64::from);
        let setting = |method| Setting {
            method,
            block_bytes,
            depth: if method == Method::IoUring { depth } else { 1 },
        };
        past.into_iter().chain(buffered).map(setting).collect()
    }

    /// Settings of the sweep: those past the page cache, or where none of them works by way of it.
    fn sweep_settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        if self.request.rounds == 0 {
            return settings;
        }
        let no_direct = !self.works(Method::Direct) && !self.works(Method::IoUring);
        for &block_bytes in &self.request.block_sizes {
            let single = |method| Setting { method, block_bytes, depth: 1 };
            if self.works(Method::Direct) {
                settings.push(single(Method::Direct));
            }
            if self.works(Method::IoUring) {
                let deep = |&depth| Setting { depth, ..single(Method::IoUring) };
                settings.extend(self.request.depths.iter().map(deep));
            }
            if no_direct && self.works(Method::Buffered) {
                settings.push(single(Method::Buffered));
            }
        }
        settings
    }

    fn measure(
        &mut self,
        profiles: &[Setting],
        settings: &[Setting],
        begin: &mut dyn FnMut(&str),
    ) -> Result<(), Interrupted> {
        for &setting in profiles {
            for operation in [Operation::Write, Operation::Read] {
                begin(&format!("{} over time: {}", operation.verb(), setting.in_words()));
                self.profile(operation, setting)?;
            }
        }
        // What is written in the sweep takes the place of what is read in it.
        for operation in [Operation::Read, Operation::Write] {
            self.sweep(operation, settings, begin)?;
        }
        Ok(())
    }

    fn profile(&mut self, operation: Operation, setting: Setting) -> Result<(), Interrupted> {
        let time_max = self.request.time_max;
        let every = (time_max / INTERVALS).max(INTERVAL_MIN);
        let outcome = match self.ready(operation) {
            Ok(region_bytes) => {
                let load = Load {
                    operation,
                    setting,
                    region_bytes,
                    first_bytes: 0,
                    len_bytes: region_bytes,
                    time_max,
                    every,
                };
                run::run(&load, &self.scratch, self.interrupt)
            }
            Err(why) => Err(NoRun::Refused(why)),
        };
        let outcome = match outcome {
            Ok(run) => Ok(self.profiled(operation, setting, run)),
            Err(NoRun::Refused(why)) => Err(why),
            Err(NoRun::Interrupted) => return Err(Interrupted),
        };
        self.profiles.push(Profile { operation, setting, outcome });
        Ok(())
    }

    /// Makes the file anew for a write, or says how much of it can be read.
    fn ready(&mut self, operation: Operation) -> Result<u64, Refusal> {
        match operation {
            Operation::Write => {
                self.written_bytes = 0;
                let begun = self.scratch.begin_anew(self.plan.len_bytes);
                begun.map_err(Refusal::NoRoom)?;
                Ok(self.plan.len_bytes)
            }
            Operation::Read if self.written_bytes == 0 => Err(Refusal::NothingWritten),
            Operation::Read => Ok(self.written_bytes),
        }
    }

    fn profiled(&mut self, operation: Operation, setting: Setting, run: Run) -> Profiled {
        if operation == Operation::Write {
            self.written_bytes = run.series.bytes;
        }
        let course = course(&run.series.intervals);
        let facts = Circumstances {
            operation,
            method: setting.method,
            dirty_limit_bytes: self.host.dirty_limit_bytes,
            storage: &self.storage,
        };
        let explanation = explain(&course, &facts);
        Profiled { run, course, explanation }
    }

    fn sweep(
        &mut self,
        operation: Operation,
        settings: &[Setting],
        begin: &mut dyn FnMut(&str),
    ) -> Result<(), Interrupted> {
        let mut cells: Vec<Cell> =
            settings.iter().map(|setting| Cell::new(operation, *setting)).collect();
        // Where the next run begins; `None` before the file is made anew.
        let mut next_bytes = (operation == Operation::Read).then_some(0);
        for round in 1..=self.request.rounds {
            for cell in &mut cells {
                let setting = cell.setting.in_words();
                begin(&format!("{}, round {round}: {setting}", operation.verb()));
                if cell.refused.is_none() {
                    self.sweep_once(cell, &mut next_bytes)?;
                }
            }
        }
        self.cells.extend(cells);
        Ok(())
    }

    fn sweep_once(
        &mut self,
        cell: &mut Cell,
        next_bytes: &mut Option<u64>,
    ) -> Result<(), Interrupted> {
        let len_bytes = self.plan.len_bytes;
        let fresh_min = len_bytes / FRESH_PARTS;
        let is_write = cell.operation == Operation::Write;
        let left = |at: u64| len_bytes.saturating_sub(at);
        let goes_on = next_bytes.is_some_and(|at| !is_write || left(at) >= fresh_min);
        let region =
            if goes_on && is_write { Ok(self.plan.len_bytes) } else { self.ready(cell.operation) };
        let region_bytes = match region {
            Ok(region_bytes) => region_bytes,
            Err(why) => {
                cell.refused = Some(why.to_string());
                return Ok(());
            }
        };
        let block_bytes = cell.setting.block_bytes as u64;
        let first = if goes_on { next_bytes.unwrap_or(0) } else { 0 };
        let first_bytes = first.next_multiple_of(block_bytes);
        let load = Load {
            operation: cell.operation,
            setting: cell.setting,
            region_bytes,
            first_bytes,
            len_bytes: if is_write { left(first_bytes) } else { region_bytes },
            time_max: self.request.cell_time(),
            every: INTERVAL_MIN,
        };
        match run::run(&load, &self.scratch, self.interrupt) {
            Ok(run) => {
                *next_bytes = Some(first_bytes + run.series.bytes);
                cell.rates.push(match cell.setting.method {
                    Method::Buffered => run.durable_bytes_per_s(),
                    Method::IoUring | Method::Direct => run.bytes_per_s(),
                });
                cell.cpu_s += run.cpu_s;
                cell.bytes += run.series.bytes;
                // Both have the bounds of `no_delays`.
                let _ = cell.delays.add(&run.series.delays);
                Ok(())
            }
            Err(NoRun::Refused(why)) => {
                cell.refused = Some(why.to_string());
                Ok(())
            }
            Err(NoRun::Interrupted) => Err(Interrupted),
        }
    }

    fn report(self) -> DiskReport {
        let nameless = self.scratch.nameless();
        let found = verdict::Found {
            host: &self.host,
            storage: &self.storage,
            file_system: &self.file_system,
            plan: &self.plan,
            refused: &self.refused,
            profiles: &self.profiles,
            cells: &self.cells,
        };
        let verdict = verdict::of(&found);
        DiskReport {
            directory: self.request.directory.clone(),
            host: self.host,
            storage: self.storage,
            file_system: self.file_system,
            plan: self.plan,
            nameless,
            space: self.space,
            refused: self.refused,
            profiles: self.profiles,
            cells: self.cells,
            verdict,
        }
    }
}

fn failed(what: &str, needs: &str, error: &io::Error, hint: &str) -> Problem {
    Problem::in_general(what, needs, &error.to_string(), hint)
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// The reason why io_uring cannot be used by this process.
fn no_ring(host: &Host) -> Option<String> {
    if host.io_uring_disabled {
        let needs = "needs kernel.io_uring_disabled = 0";
        return Some(format!("{needs}, found that it forbids io_uring to this process"));
    }
    let error = Ring::unregistered(1, 1).err()?;
    let found = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS) => "a kernel without it, or a container that hides it".to_owned(),
        Some(Errno::PERM | Errno::ACCESS) => format!("that it is forbidden here: {error}"),
        _ => error.to_string(),
    };
    Some(format!("needs io_uring, found {found}"))
}

/// The value whose ratio to the wanted one is least.
fn nearest<Value: Copy>(
    values: impl Iterator<Item = Value>,
    wanted: Value,
    number: impl Fn(Value) -> f64,
) -> Value {
    let off = |value: Value| (number(value) / number(wanted)).ln().abs();
    values.min_by(|one, other| off(*one).total_cmp(&off(*other))).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::setting::{BLOCK_SIZES, DEPTHS, TIME_MAX};
    use super::*;

    #[test]
    fn a_profile_takes_what_is_next_to_hauls_own() {
        let blocks = |blocks: &[usize]| nearest(blocks.iter().copied(), 1 << 20, |b| b as f64);
        assert_eq!(blocks(&BLOCK_SIZES), 1 << 20);
        assert_eq!(blocks(&[4096, 64 << 10]), 64 << 10);
        assert_eq!(blocks(&[]), 1 << 20);
        assert_eq!(nearest(DEPTHS.into_iter(), PROFILE_DEPTH, f64::from), 8);
    }

    #[test]
    fn a_run_of_the_sweep_is_short_and_never_longer_than_a_profile() {
        let cell = |time_max| {
            DiskRequest { time_max, ..DiskRequest::new(Path::new("/")) }.cell_time().as_millis()
        };
        assert_eq!(cell(TIME_MAX), 1000);
        assert_eq!(cell(Duration::from_secs(600)), 2000);
        assert_eq!(cell(Duration::from_millis(50)), 50);
    }

    #[test]
    fn where_io_uring_is_switched_off_that_is_the_reason() {
        let host = Host { io_uring_disabled: true, ..Host::default() };
        assert!(no_ring(&host).unwrap().contains("kernel.io_uring_disabled = 0"));
    }

    #[test]
    fn a_probe_leaves_its_directory_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let request = DiskRequest {
            len_bytes: Some(8 << 20),
            time_max: Duration::from_millis(200),
            block_sizes: vec![64 << 10],
            depths: vec![2],
            rounds: 2,
            ..DiskRequest::new(directory.path())
        };
        let mut steps = Vec::new();
        let report = probe(&request, &Interrupt::default(), &mut |count, what| {
            steps.push((count, what.to_owned()));
        })
        .unwrap();
        assert_eq!(steps.len(), steps[0].0, "{steps:?}");
        assert!(report.profiles.iter().any(|profile| profile.outcome.is_ok()));
        assert_eq!(report.plan.len_bytes, 8 << 20);
        let measured = |cell: &Cell| cell.rates.len() == 2 || cell.refused.is_some();
        assert!(!report.cells.is_empty() && report.cells.iter().all(measured));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
