//! Costs of small files on a file system by itself: one thread, no network, no source.
//!
//! They are the floor under every mover of trees.
//!
//!     small_files DIR [FILES] [BYTES]
//!
//! Makes FILES (20000) of BYTES (16384) below new directories in DIR, 200 in each, as haul does
//! (nameless, linked once some hundreds of them are synced) and as tar does (under their names, one
//! sync at the end). Prints a line of JSON for each way: seconds and processor seconds in all, and
//! microseconds a file for each call. What it made stays there.

use rustix::{
    fs::{Advice, AtFlags, CWD, Mode, OFlags, Timespec, Timestamps},
    io::pwrite,
    time::{ClockId, clock_gettime},
};
use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Instant,
};

type Failure = Box<dyn std::error::Error>;

const FILES_A_DIRECTORY: usize = 200;
/// Files that share a sync in haul, more or less.
const FILES_A_SYNC: usize = 400;

#[derive(Clone, Copy)]
enum Way {
    Nameless,
    Named,
}

/// Seconds spent in each call.
#[derive(Default)]
struct Calls(BTreeMap<&'static str, f64>);

impl Calls {
    fn time<T>(&mut self, call: &'static str, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = run();
        *self.0.entry(call).or_default() += begun.elapsed().as_secs_f64();
        done
    }
}

fn make(
    way: Way,
    directory: &OwnedFd,
    name: &str,
    bytes: &[u8],
    calls: &mut Calls,
) -> Result<OwnedFd, Failure> {
    let mode = Mode::from_raw_mode(0o644);
    let (name, flags) = match way {
        Way::Nameless => (".", OFlags::TMPFILE),
        Way::Named => (name, OFlags::CREATE | OFlags::EXCL),
    };
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let file = calls.time("openat", || rustix::fs::openat(directory, name, flags, mode))?;
    if calls.time("pwrite", || pwrite(&file, bytes, 0))? < bytes.len() {
        return Err("a short write: is the disk full?".into());
    }
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 1 };
    let times = Timestamps { last_access: time, last_modification: time };
    calls.time("futimens", || rustix::fs::futimens(&file, &times))?;
    Ok(file)
}

fn run(way: Way, root: &Path, files: usize, bytes: &[u8]) -> Result<Calls, Failure> {
    let mut calls = Calls::default();
    let open = |path: PathBuf| {
        std::fs::create_dir_all(&path)?;
        Ok::<_, Failure>(rustix::fs::openat(CWD, path, OFlags::DIRECTORY, Mode::empty())?)
    };
    let numbers: Vec<usize> = (0..files.div_ceil(FILES_A_DIRECTORY)).collect();
    let directories = numbers.iter().map(|number| open(root.join(format!("d{number}"))));
    let directories = directories.collect::<Result<Vec<_>, _>>()?;
    for first in (0..files).step_by(FILES_A_SYNC) {
        let mut open = Vec::new();
        for file in first..files.min(first + FILES_A_SYNC) {
            let directory = &directories[file / FILES_A_DIRECTORY];
            let name = format!("f{file}");
            let made = make(way, directory, &name, bytes, &mut calls)?;
            open.push((directory, name, made));
        }
        if matches!(way, Way::Nameless) {
            calls.time("syncfs", || rustix::fs::syncfs(&directories[0]))?;
        }
        for (directory, name, file) in open {
            if matches!(way, Way::Nameless) {
                let drop_pages = || rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
                calls.time("fadvise", drop_pages)?;
                let link = || rustix::fs::linkat(&file, "", directory, name, AtFlags::EMPTY_PATH);
                calls.time("linkat", link)?;
            }
            calls.time("close", || drop(file));
        }
    }
    if let Some(directory) = directories.first() {
        calls.time("syncfs", || rustix::fs::syncfs(directory))?;
    }
    Ok(calls)
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().ok_or("small_files DIR [FILES] [BYTES]")?;
    let files = words.next().map_or(Ok(20_000), |word| word.parse())?;
    let bytes = vec![7; words.next().map_or(Ok(16_384), |word| word.parse())?];
    for (way, name) in [(Way::Nameless, "nameless"), (Way::Named, "named")] {
        let root = Path::new(&directory).join(format!("{name}-{}", std::process::id()));
        let (begun, cpu) = (Instant::now(), cpu_s());
        let calls = run(way, &root, files, &bytes)?;
        let each = calls.0.iter().map(|(call, seconds)| {
            format!(", \"{call}_us\": {:.1}", seconds * 1e6 / files.max(1) as f64)
        });
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_s() - cpu);
        let each: String = each.collect();
        println!("{{\"way\": \"{name}\", \"seconds\": {seconds:.2}, \"cpu_s\": {cpu:.2}{each}}}");
    }
    Ok(())
}
