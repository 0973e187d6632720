//! The directory of a plan's reports, opened so that no link of another user leads elsewhere.

use rustix::{
    fs::{Dir, FileType, Mode, OFlags, fstat, open, openat},
    io::Errno,
};
use std::{
    fs::{DirBuilder, File},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// Most reports of one shard: a run more is not kept.
pub const ATTEMPTS_MAX: u32 = 1000;

/// The directory of the reports, which nobody but its user can write.
#[derive(Debug)]
pub struct Reports(OwnedFd);

/// The path of a plan's reports.
pub fn path_of(plan: &Path) -> PathBuf {
    plan.join("reports")
}

/// The name of the report of a run.
pub fn name_of(shard: u32, attempt: u32) -> String {
    format!("shard-{shard:05}.{attempt}.jsonl")
}

/// Shard and attempt of a report by its name; `None` for the name of anything else.
fn numbers(name: &str) -> Option<(u32, u32)> {
    let (shard, attempt) = name.strip_prefix("shard-")?.strip_suffix(".jsonl")?.split_once('.')?;
    let (shard, attempt) = (shard.parse().ok()?, attempt.parse().ok()?);
    (name == name_of(shard, attempt)).then_some((shard, attempt))
}

impl Reports {
    /// Opens the directory of a plan's reports, and makes it where it is not there.
    pub fn make(plan: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path_of(plan)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(plan),
        }
    }

    /// Opens the directory of a plan's reports.
    pub fn open(plan: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path_of(plan), flags, Mode::empty()).map_err(no_link)?;
        check_owner(&directory)?;
        Ok(Self(directory))
    }

    /// Makes the file of the next run of a shard, and tells the number of the run.
    pub fn create(&self, shard: u32) -> io::Result<(File, u32)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for attempt in 1..=ATTEMPTS_MAX {
            let mode = Mode::from_raw_mode(0o600);
            match openat(&self.0, name_of(shard, attempt), flags | OFlags::CLOEXEC, mode) {
                Err(Errno::EXIST) => {}
                other => return Ok((other?.into(), attempt)),
            }
        }
        let found = format!("shard {shard} has {ATTEMPTS_MAX} reports, the most that are kept");
        Err(io::Error::other(found))
    }

    /// Opens a report, which is a file of this user's or root's.
    pub fn report(&self, shard: u32, attempt: u32) -> io::Result<File> {
        // A pipe in its place would otherwise be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = name_of(shard, attempt);
        let file = openat(&self.0, name, flags, Mode::empty()).map_err(no_link)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no file"));
        }
        check_owner(&file)?;
        Ok(file.into())
    }

    /// Shard and attempt of each report that is there, in no order.
    pub fn list(&self) -> io::Result<impl Iterator<Item = io::Result<(u32, u32)>>> {
        let entries = Dir::read_from(&self.0)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) => numbers(entry.file_name().to_str().ok()?).map(Ok),
            Err(error) => Some(Err(error.into())),
        }))
    }
}

fn no_link(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other("it is a symbolic link"),
        error => error.into(),
    }
}

/// Checks that nobody else has made this, or can write it: a report says what is at the target.
fn check_owner(file: &OwnedFd) -> io::Result<()> {
    let stat = fstat(file)?;
    let (owner, mode) = (stat.st_uid, stat.st_mode);
    let own = rustix::process::geteuid().as_raw();
    if (owner == own || owner == 0) && mode & 0o022 == 0 {
        return Ok(());
    }
    let found = format!("others can write it: owner {owner}, mode {:o}", mode & 0o777);
    Err(io::Error::other(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_shard_and_attempt_or_is_none_of_ours() {
        assert_eq!(numbers(&name_of(7, 12)), Some((7, 12)));
        for other in ["shard-7.1.jsonl", "shard-00007.jsonl", "shard-00007.01.jsonl", ".nfs1", ""] {
            assert_eq!(numbers(other), None, "{other}");
        }
    }
}
