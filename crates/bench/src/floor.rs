//! The bare floor under movers of small files: plain creates by two threads, and one sync.
//!
//! Nothing is read and nothing is sent: each file is made under its own name, written by one call,
//! gets its time and is closed. The directory is durable when the process ends. `haul bench files
//! --small` starts it as a process of its own, so that all that it uses counts.

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{CWD, Mode, OFlags, Timespec, Timestamps, futimens, mkdirat, openat, syncfs},
    io::pwrite,
};
use serde::{Deserialize, Serialize};
use std::{os::fd::OwnedFd, path::PathBuf};

/// Work of the floor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorSpec {
    /// The directory to make.
    pub floor: PathBuf,
    pub files: u64,
    pub file_bytes: usize,
    pub files_a_directory: u64,
    pub threads: u64,
}

/// Makes the files and syncs their file system.
///
/// # Errors
/// Says which call failed.
pub fn run(spec: &FloorSpec) -> Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    mkdirat(CWD, &spec.floor, mode).context("cannot make the floor's directory")?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, &spec.floor, flags, Mode::empty())?;
    let bytes = vec![0xa5; spec.file_bytes];
    std::thread::scope(|threads| {
        let (root, bytes) = (&root, &bytes[..]);
        let make = |first| threads.spawn(move || make_directories(spec, root, first, bytes));
        let running: Vec<_> = (0..spec.threads).map(make).collect();
        for thread in running {
            match thread.join() {
                Ok(made) => made?,
                Err(_) => bail!("a thread of the floor panicked"),
            }
        }
        Ok(())
    })?;
    syncfs(&root).context("cannot sync the floor's file system")
}

/// Makes each directory of one thread, with its files: all threads take directories in turn, and
/// none waits for another's.
fn make_directories(spec: &FloorSpec, root: &OwnedFd, first: u64, bytes: &[u8]) -> Result<()> {
    let directories = spec.files.div_ceil(spec.files_a_directory);
    for number in (first..directories).step_by(spec.threads as usize) {
        let name = format!("d{number:05}");
        mkdirat(root, &name, Mode::from_raw_mode(0o755)).context("mkdirat")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(root, &name, flags, Mode::empty()).context("openat")?;
        let begin = number * spec.files_a_directory;
        for file in begin..spec.files.min(begin + spec.files_a_directory) {
            make_file(&directory, &format!("f{file:08}"), bytes)?;
        }
    }
    Ok(())
}

fn make_file(directory: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_raw_mode(0o644)).context("openat")?;
    let written = pwrite(&file, bytes, 0).context("pwrite")?;
    if written < bytes.len() {
        bail!("only {written} of {} bytes were written: is the disk full?", bytes.len());
    }
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 1 };
    let times = Timestamps { last_access: time, last_modification: time };
    futimens(&file, &times).context("futimens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_makes_every_file_once_whatever_its_threads() {
        let fresh = tempfile::tempdir().unwrap();
        for threads in [1, 2, 5] {
            let floor = fresh.path().join(threads.to_string());
            let spec = FloorSpec {
                floor: floor.clone(),
                files: 7,
                file_bytes: 100,
                files_a_directory: 3,
                threads,
            };
            run(&spec).unwrap();
            let directories = std::fs::read_dir(&floor).unwrap();
            let files: Vec<_> = directories
                .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap())
                .map(|entry| entry.unwrap())
                .collect();
            assert_eq!(files.len(), 7);
            assert!(files.iter().all(|file| file.metadata().unwrap().len() == 100));
        }
    }
}
