//! Leftovers of a bench or a demo that was killed. They are its directory, and file systems that
//! are mounted in it. The next one of its kind, of the same user, in the same place and on the same
//! machine, removes them.
//!
//! In such a directory lies a file that says which machine works there, locked (flock(2)): the
//! kernel takes the lock from whoever is gone. What has no such file is somebody else's.

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, fstat, openat},
    process::geteuid,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const MARK: &str = ".haul-works-here";
const MARK_BYTES_MAX: u64 = 256;

/// A directory of one run, removed when this is dropped.
#[derive(Debug)]
pub struct OwnDirectory {
    directory: TempDir,
    _mark: File,
}

impl OwnDirectory {
    /// Makes a directory in `parent` whose name begins with `prefix`. What killed runs left under
    /// such names is removed.
    ///
    /// # Errors
    /// If none can be made there.
    pub fn new(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_all(parent, prefix);
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let path = directory.path().join(MARK);
        let mut mark = File::options().read(true).write(true).create_new(true).open(path)?;
        // It waits for another run that looks at it just now. Where there are no locks, nobody
        // takes it for a leftover either.
        let _ = flock(&mark, FlockOperation::LockExclusive);
        mark.write_all(machine().as_bytes())?;
        Ok(Self { directory, _mark: mark })
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// A name of this machine: one that it keeps, else one that it has until it starts again.
fn machine() -> String {
    ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// Removes leftovers of killed runs. What cannot be removed stays: another user's, most of the
/// time.
fn remove_all(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let Ok(Some(left)) = Leftover::at(&entry.path()) else { continue };
        for place in left.mounts().unwrap_or_default() {
            // Lazily, as whoever still looks at it is no reason to keep it; its loop device goes
            // with it.
            let _ = Command::new("umount").arg("-l").arg(place).output();
        }
        if left.mounts().is_ok_and(|mounts| mounts.is_empty()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A directory whose owner is gone.
struct Leftover {
    /// The place of the directory, whatever its name has come to mean meanwhile.
    path: PathBuf,
    _mark: File,
}

impl Leftover {
    /// Takes the directory at `path` as a leftover; `None` where it is another's, or its owner
    /// works.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags | OFlags::DIRECTORY, Mode::empty())?;
        let is_own = fstat(&directory)?.st_uid == geteuid().as_raw();
        let mark = openat(&directory, MARK, flags | OFlags::NONBLOCK, Mode::empty())?;
        let mut mark = File::from(mark);
        if !is_own || flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let mut text = String::new();
        (&mut mark).take(MARK_BYTES_MAX).read_to_string(&mut text)?;
        let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
        let is_of_here = !text.is_empty() && text == machine();
        Ok(is_of_here.then_some(Self { path, _mark: mark }))
    }

    fn mounts(&self) -> io::Result<Vec<PathBuf>> {
        let mounts = fs::read("/proc/self/mounts")?;
        let lines = mounts.split(|byte| *byte == b'\n');
        let places = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(1));
        Ok(places.map(unescaped).filter(|place| place.starts_with(&self.path)).collect())
    }
}

/// Decodes a path of /proc/self/mounts, where a space is `\040` (proc_pid_mounts(5), getmntent(3)).
fn unescaped(text: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let code = behind.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => plain.push(*first),
        }
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_bench_of_this_machine_left_goes_and_nothing_else() {
        let parent = tempfile::tempdir_in(".").unwrap();
        let make = |name: &str, machine: Option<&str>| {
            let directory = parent.path().join(name);
            fs::create_dir_all(directory.join("films")).unwrap();
            fs::write(directory.join("films/film"), "film").unwrap();
            if let Some(machine) = machine {
                fs::write(directory.join(MARK), machine).unwrap();
            }
            directory
        };
        let left = make("haul-bench-left", Some(&machine()));
        let others = [
            make("haul-bench-results", None),
            make("haul-bench-of-another-machine", Some("another")),
            make("haul-bench-begun", Some("")),
            make("other", Some(&machine())),
        ];
        symlink(&others[3], parent.path().join("haul-bench-link")).unwrap();
        let first = OwnDirectory::new(parent.path(), "haul-bench-").unwrap();
        assert!(!left.exists());
        let second = OwnDirectory::new(parent.path(), "haul-bench-").unwrap();
        assert!(others.iter().all(|other| other.join("films/film").exists()));
        assert!(first.path().exists() && second.path() != first.path());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }

    #[test]
    fn mounts_have_their_own_names() {
        assert_eq!(unescaped(br"/a\040b\134c\9"), Path::new(r"/a b\c\9"));
    }
}
