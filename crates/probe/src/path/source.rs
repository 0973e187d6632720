//! Source of a probe of a path. As many of its bytes as are needed are brought out of the page
//! cache before each run.

use haul_host::{FileSystem, FsKind};
use haul_sys::cachestat::cached_bytes;
use haul_transfer::{Beginning, Name, Problem, Side, SourceSpec, TransferError};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use std::{
    fs::{self, File},
    io,
    num::NonZero,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Files of a directory that are looked at, at most: the first ones.
const FILES_MAX: usize = 100_000;
/// The largest share of a cold source that may still be in the page cache.
const COLD_SHARE_MAX: f64 = 0.01;
/// Evictions in vain after which the kernel is not asked any more. It keeps pages that a socket
/// still holds or that are still being read ahead, which takes a slow disk seconds: while it gives
/// pages up it is asked again.
const EVICTIONS_WITHOUT_GAIN_MAX: u32 = 40;
const EVICTIONS_MAX: u32 = 400;
/// The largest unit of the page cache: a huge page (Linux, MAX_PAGECACHE_ORDER, 4 KiB pages).
const FOLIO_BYTES_MAX: u64 = 2 << 20;
const EVICTION_PAUSE: Duration = Duration::from_millis(50);

/// The place of a source's bytes when a run began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Residency {
    /// Bytes made in memory: `zero:`.
    Memory,
    /// Bytes on their disk only.
    Cold,
    /// Bytes of which the page cache has this share, and does not give it up.
    Warm { share: f64 },
    /// Bytes of a file system that is in memory itself.
    MemoryFileSystem,
    /// A place that the kernel does not tell (cachestat(2), Linux 6.5).
    NotKnown,
}

/// A source's regular files, in the order in which they are sent.
#[derive(Clone, Debug)]
pub(super) struct Source {
    files: Vec<(PathBuf, u64)>,
    pub bytes: u64,
    /// Whether there are more files than are looked at.
    pub is_cut: bool,
}

impl Source {
    /// Lists a file, or a directory and all below it.
    ///
    /// # Errors
    /// If it is not there, may not be read, or has no bytes.
    pub fn look(path: &Path) -> Result<Self, TransferError> {
        let failed = |error: io::Error| unreadable(path, &error);
        let stat = fs::metadata(path).map_err(failed)?;
        let mut source = Self { files: Vec::new(), bytes: 0, is_cut: false };
        if stat.is_dir() {
            source.list(path).map_err(failed)?;
        } else {
            File::open(path).map_err(failed)?;
            source.add(path.to_owned(), stat.len());
        }
        if source.bytes > 0 {
            return Ok(source);
        }
        let what = format!("there is nothing to read in {}", path.display());
        let hint = "name a file or a directory that is like what will be moved";
        let found = format!("{} of 0 bytes", crate::path::counted(source.files.len()));
        Err(TransferError::start(Problem::in_general(&what, "a file with bytes", &found, hint)))
    }

    fn add(&mut self, path: PathBuf, len_bytes: u64) {
        self.bytes += len_bytes;
        self.files.push((path, len_bytes));
    }

    /// Lists the files below a directory. Links are not followed; what may not be listed is left
    /// out, as the preflight says.
    fn list(&mut self, top: &Path) -> io::Result<()> {
        let mut directories = vec![top.to_owned()];
        while let Some(directory) = directories.pop() {
            let listed = match fs::read_dir(&directory) {
                Err(error) if directory == top => return Err(error),
                Err(_) => continue,
                Ok(listed) => listed,
            };
            let mut entries: Vec<_> = listed.filter_map(Result::ok).collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let Ok(stat) = entry.metadata() else { continue };
                if stat.is_dir() && directories.len() < FILES_MAX {
                    directories.push(entry.path());
                } else if stat.is_file() {
                    if self.files.len() == FILES_MAX {
                        self.is_cut = true;
                        return Ok(());
                    }
                    self.add(entry.path(), stat.len());
                }
            }
        }
        Ok(())
    }

    /// Takes the first files, with this many bytes; the last of them is cut.
    pub fn first(&self, len_bytes: u64) -> Vec<Beginning> {
        let mut left_bytes = len_bytes.max(1);
        let mut parts = Vec::new();
        for (number, (path, len_bytes)) in self.files.iter().enumerate() {
            if left_bytes == 0 {
                break;
            }
            let len_bytes = left_bytes.min(*len_bytes);
            left_bytes -= len_bytes;
            // No two of them may be called the same, wherever they lie.
            let name = format!("haul-probe-{number}");
            parts.push(Beginning { path: path.clone(), len_bytes, name });
        }
        parts
    }
}

/// Turns the parts into what a push sends.
pub(super) fn specs(parts: &[Beginning]) -> Vec<SourceSpec> {
    parts.iter().cloned().map(SourceSpec::Beginning).collect()
}

/// Asks the kernel to forget these bytes, and says how far it did so.
///
/// # Errors
/// If one cannot be opened.
pub(super) fn make_cold(parts: &[Beginning]) -> Result<Residency, TransferError> {
    let (mut least, mut without_gain) = (f64::INFINITY, 0);
    let mut residency = evict(parts)?;
    for _ in 0..EVICTIONS_MAX {
        let Residency::Warm { share } = residency else { break };
        without_gain = if share < least { 0 } else { without_gain + 1 };
        least = least.min(share);
        if without_gain == EVICTIONS_WITHOUT_GAIN_MAX {
            break;
        }
        thread::sleep(EVICTION_PAUSE);
        residency = evict(parts)?;
    }
    Ok(residency)
}

fn evict(parts: &[Beginning]) -> Result<Residency, TransferError> {
    let (mut cached, mut len_bytes) = (0, 0);
    for part in parts {
        let file = File::open(&part.path).map_err(|error| unreadable(&part.path, &error))?;
        let kind = FileSystem::of(&file).map(|system| system.kind);
        if matches!(kind, Ok(FsKind::Tmpfs)) {
            return Ok(Residency::MemoryFileSystem);
        }
        // Dirty pages are not dropped (posix_fadvise(2)). Where that fails the share says so.
        let _ = rustix::fs::fdatasync(&file);
        // A folio that reaches over the end of what is asked for is kept: it is asked for as well.
        let whole_folios = part.len_bytes + FOLIO_BYTES_MAX;
        let _ = fadvise(&file, 0, NonZero::new(whole_folios), Advice::DontNeed);
        match cached_bytes(&file, 0, part.len_bytes) {
            Ok(bytes) => cached += bytes,
            Err(_) => return Ok(Residency::NotKnown),
        }
        len_bytes += part.len_bytes;
    }
    let share = (cached as f64 / len_bytes.max(1) as f64).min(1.0);
    Ok(if share <= COLD_SHARE_MAX { Residency::Cold } else { Residency::Warm { share } })
}

fn unreadable(path: &Path, error: &io::Error) -> TransferError {
    let what = "the source cannot be read";
    let found = error.to_string();
    let mut problem =
        Problem::in_general(what, "a file or a directory", &found, "check the name and its rights");
    problem.path = Name(path.as_os_str().as_bytes().to_vec());
    problem.side = Side::Source;
    TransferError::start(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> (tempfile::TempDir, Source) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        for (name, len_bytes) in [("a", 10), ("d/b", 0), ("d/c", 20), ("e", 5)] {
            fs::write(directory.path().join(name), vec![7; len_bytes]).unwrap();
        }
        std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
        let source = Source::look(directory.path()).unwrap();
        (directory, source)
    }

    #[test]
    fn of_a_directory_as_many_bytes_are_taken_as_are_wanted() {
        let (_directory, source) = source();
        assert_eq!((source.bytes, source.files.len(), source.is_cut), (35, 4, false));
        for wanted in [1, 10, 11, 34, 35] {
            let parts = source.first(wanted);
            assert_eq!(parts.iter().map(|part| part.len_bytes).sum::<u64>(), wanted);
        }
        assert_eq!(source.first(1000).len(), 4);
        let mut names: Vec<_> = source.first(1000).into_iter().map(|part| part.name).collect();
        names.dedup();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn what_has_no_bytes_or_is_not_there_is_said() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("empty"), b"").unwrap();
        let words = |path: &Path| Source::look(path).unwrap_err().to_string();
        assert!(words(directory.path()).contains("found 1 file of 0 bytes"));
        let missing = words(&directory.path().join("missing"));
        assert!(missing.contains("cannot be read") && missing.contains("No such file"));
    }

    #[test]
    fn a_source_is_cold_or_it_is_said_why_it_is_not() {
        let (_directory, source) = source();
        match make_cold(&source.first(35)).unwrap() {
            Residency::Warm { share } => assert!((COLD_SHARE_MAX..=1.0).contains(&share)),
            residency => assert_ne!(residency, Residency::Memory),
        }
    }
}
