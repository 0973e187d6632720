//! Workshop of a bench: its fresh directory, and the file that is sent, made warm or cold.
//!
//! Everything is below one directory, which goes when the bench ends; of a bench that was killed,
//! when the next begins.

use crate::caller::Caller;
use anyhow::{Context, Result, bail, ensure};
use haul_host::{FileSystem, FsKind, Host};
use haul_report::{steps::Steps, units};
use haul_scratch::{data_file, leftovers::OwnDirectory};
use haul_sys::cachestat::cached_bytes;
use haul_transfer::Problem;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

/// Beginning of the names of a bench's directories.
const PREFIX: &str = "haul-bench-";
/// The name of the file that is sent; names are relative, so that any directory can be used.
pub const SOURCE: &str = "source.bin";
/// The name of the file that is written.
pub const TARGET: &str = "target.bin";
/// Bytes read at once to bring a file into the page cache.
const READ_BYTES: usize = 1 << 20;
/// Largest share of a cold file that may still be in the page cache: the kernel keeps a page that
/// somebody looks at this very moment.
pub const COLD_SHARE_MAX: f64 = 0.01;
/// Tries to read a file into the page cache.
const WARMINGS_MAX: u32 = 3;
/// Smallest share of a warm file in the page cache.
const WARM_SHARE_MIN: f64 = 0.99;

/// Whether the page cache has the source when a measurement begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Residency {
    Warm,
    Cold,
}

impl Residency {
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// The fresh directory that a bench works in.
#[derive(Debug)]
pub struct Workshop {
    directory: OwnDirectory,
    pub host: Host,
    caller: Caller,
}

impl Workshop {
    /// Makes a fresh directory in `parent`.
    ///
    /// # Errors
    /// If no directory can be made in `parent`.
    pub fn new(parent: &Path, caller: &Caller) -> Result<Self, Problem> {
        let directory = OwnDirectory::new(parent, PREFIX).map_err(|error| {
            let what = format!("cannot make a directory in {}", parent.display());
            let hint = "name another directory with --dir";
            let needs = "the right to write there";
            Problem::in_general(&what, needs, &error.to_string(), hint)
        })?;
        Ok(Self { directory, host: Host::read(Path::new("/")), caller: caller.clone() })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Begins a line about this many steps.
    pub fn steps(&self, count: usize) -> Steps {
        (self.caller.steps)(count)
    }

    pub fn source(&self) -> PathBuf {
        self.path().join(SOURCE)
    }

    pub fn target(&self) -> PathBuf {
        self.path().join(TARGET)
    }

    pub fn file_system(&self) -> Result<FileSystem> {
        let directory = File::open(self.path()).context("cannot open the fresh directory")?;
        FileSystem::of(&directory).context("cannot ask for the file system")
    }

    /// Checks that the bench may go on.
    ///
    /// # Errors
    /// If the user wants to stop.
    pub fn go_on(&self) -> Result<()> {
        if self.caller.interrupt.load(Ordering::Relaxed) {
            bail!("interrupted; everything it made is removed");
        }
        Ok(())
    }

    /// Bytes that may be written in the workshop. As much as anyone asks for where the file system
    /// does not say.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.file_system()?.free_bytes.unwrap_or(u64::MAX))
    }

    /// Checks that the file system has room for this much, and leaves some.
    ///
    /// # Errors
    /// Says how much is free.
    pub fn has_room(&self, len_bytes: u64) -> Result<()> {
        let free_bytes = self.free_bytes()?;
        let needs_bytes = len_bytes.saturating_add(ROOM_BYTES);
        ensure!(
            free_bytes >= needs_bytes,
            "needs {} free in {}, found {}: take a smaller --size, or another --dir",
            units::bytes(needs_bytes),
            self.path().display(),
            units::bytes(free_bytes)
        );
        Ok(())
    }

    /// Makes the source of random bytes, if there is room for it and `others_bytes` beside it.
    pub fn make_source(&self, len_bytes: u64, others_bytes: u64) -> Result<()> {
        self.has_room(len_bytes.saturating_add(others_bytes))?;
        data_file::make(&self.source(), len_bytes, None, || self.go_on())?;
        let file = File::open(self.source())?;
        rustix::fs::fsync(&file).context("cannot sync the source")?;
        Ok(())
    }

    /// Removes the target of the run before: nothing is measured while it is in the way.
    pub fn remove_target(&self) -> Result<()> {
        remove(&self.target()).context("cannot remove the last target")
    }

    /// Removes the source, if there is one.
    pub fn remove_source(&self) -> Result<()> {
        remove(&self.source()).context("cannot remove the last source")
    }

    /// Brings the file into the page cache or out of it.
    ///
    /// Says why that cannot be: a tmpfs is nowhere else, and not all memory is ours.
    pub fn bring(&self, file: &Path, len_bytes: u64, wanted: Residency) -> Result<Option<String>> {
        let tmpfs = self.file_system()?.kind == FsKind::Tmpfs;
        let share = match wanted {
            Residency::Warm => self.warm_patiently(file, len_bytes)?,
            Residency::Cold => self.evict_patiently(file, len_bytes, tmpfs)?,
        };
        let reached = match wanted {
            Residency::Warm => share >= WARM_SHARE_MIN,
            Residency::Cold => share <= COLD_SHARE_MAX,
        };
        if reached {
            return Ok(None);
        }
        let because = if tmpfs { ": a tmpfs is in memory only" } else { "" };
        let (wanted, found) = (wanted.name(), units::percent(share));
        Ok(Some(format!("needs a {wanted} source, found {found} in the page cache{because}")))
    }

    /// Reads a file until the page cache has it: while others need memory, the first of its pages
    /// may be gone when the last one comes.
    fn warm_patiently(&self, file: &Path, len_bytes: u64) -> Result<f64> {
        let mut share = warm(file, len_bytes, || self.go_on())?;
        for _ in 1..WARMINGS_MAX {
            if share >= WARM_SHARE_MIN {
                break;
            }
            share = warm(file, len_bytes, || self.go_on())?;
        }
        Ok(share)
    }

    /// Takes this much memory and gives it back, if half of what is free is as much: a virtual
    /// machine's host hands out memory page by page, so that the first who needs a page waits for
    /// it, and buffered writes are several times slower than those of the next.
    pub fn touch_memory(&self, len_bytes: u64) -> Result<()> {
        let len_bytes = len_bytes.min(self.host.memory_available_bytes / 2) as usize;
        let mut taken = Vec::new();
        for at_bytes in (0..len_bytes).step_by(TOUCH_BYTES) {
            self.go_on()?;
            // A zero would be a page that all share.
            taken.push(std::hint::black_box(vec![1_u8; TOUCH_BYTES.min(len_bytes - at_bytes)]));
        }
        Ok(())
    }

    /// Asks the kernel to forget a file until it does; a tmpfs keeps all that it has, however often
    /// it is asked.
    fn evict_patiently(&self, file: &Path, len_bytes: u64, tmpfs: bool) -> Result<f64> {
        let mut share = evict(file, len_bytes)?;
        for _ in 1..EVICTIONS_MAX {
            if share <= COLD_SHARE_MAX || tmpfs {
                break;
            }
            self.go_on()?;
            thread::sleep(EVICTION_PAUSE);
            share = evict(file, len_bytes)?;
        }
        if share > COLD_SHARE_MAX && !tmpfs && len_bytes <= ANEW_BYTES_MAX {
            make_anew(file)?;
            share = evict(file, len_bytes)?;
        }
        Ok(share)
    }
}

/// Removes a file, if it is there.
fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file by a new one of the same bytes: nothing else holds its pages.
fn make_anew(file: &Path) -> Result<()> {
    let what = || format!("cannot copy {}", file.display());
    let copy = file.with_extension("anew");
    std::fs::copy(file, &copy).with_context(what)?;
    std::fs::rename(&copy, file).with_context(what)
}

/// Tries to make the kernel forget a file, and the pause between them. It keeps pages that are in a
/// socket's buffers, and those of a run that has just ended may be there for a moment.
const EVICTIONS_MAX: u32 = 50;
const EVICTION_PAUSE: Duration = Duration::from_millis(20);
/// Largest file that is made anew to be cold: of a small one the pages that sendfile(2) sent last
/// are more than may stay, and the kernel keeps them until the next traffic on that core
/// (skb_attempt_defer_free).
const ANEW_BYTES_MAX: u64 = 64 << 20;

/// Bytes left free on any disk that a bench writes to.
pub const ROOM_BYTES: u64 = 256 << 20;

/// Bytes of memory that are taken at once, between two looks at whether to go on.
const TOUCH_BYTES: usize = 256 << 20;

/// Reads the file once; returns the share of it that is in the page cache then.
pub fn warm(file: &Path, len_bytes: u64, go_on: impl Fn() -> Result<()>) -> Result<f64> {
    let what = || format!("cannot read {}", file.display());
    let opened = File::open(file).with_context(what)?;
    if cached_share(&opened, len_bytes)? < 1.0 {
        let mut buffer = vec![0; READ_BYTES];
        let mut at_bytes = 0;
        while at_bytes < len_bytes {
            go_on()?;
            let want = (len_bytes - at_bytes).min(READ_BYTES as u64) as usize;
            opened.read_exact_at(&mut buffer[..want], at_bytes).with_context(what)?;
            at_bytes += want as u64;
        }
    }
    cached_share(&opened, len_bytes)
}

/// Writes the file back and asks the kernel to forget it; returns the share that it still has.
pub fn evict(file: &Path, len_bytes: u64) -> Result<f64> {
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    // Dirty pages are not dropped (posix_fadvise(2)).
    rustix::fs::fdatasync(&opened).context("cannot sync the source")?;
    let whole_file = None;
    fadvise(&opened, 0, whole_file, Advice::DontNeed).context("cannot evict the source")?;
    cached_share(&opened, len_bytes)
}

fn cached_share(file: &File, len_bytes: u64) -> Result<f64> {
    let cached = cached_bytes(file, 0, len_bytes).context("cannot look into the page cache")?;
    Ok(cached as f64 / len_bytes.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN_BYTES: u64 = 4 << 20;

    #[test]
    fn a_cold_source_is_out_of_the_page_cache_and_a_warm_one_is_in_it() {
        let workshop = Workshop::new(Path::new("."), &Caller::default()).unwrap();
        workshop.make_source(LEN_BYTES, 0).unwrap();
        let source = workshop.source();
        match workshop.bring(&source, LEN_BYTES, Residency::Cold).unwrap() {
            None => {}
            Some(why) if workshop.file_system().unwrap().kind == FsKind::Tmpfs => {
                return haul_testkit::skip::skip("a file system with a disk", &why);
            }
            Some(why) => panic!("{why}"),
        }
        let cached = |path: &Path| cached_bytes(File::open(path).unwrap(), 0, LEN_BYTES).unwrap();
        assert!(cached(&source) <= LEN_BYTES / 100);
        assert_eq!(workshop.bring(&source, LEN_BYTES, Residency::Warm).unwrap(), None);
        assert_eq!(cached(&source), LEN_BYTES);
        let path = workshop.path().to_owned();
        drop(workshop);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_does_not_fit_is_not_begun() {
        let workshop = Workshop::new(&std::env::temp_dir(), &Caller::default()).unwrap();
        let refused = workshop.make_source(1 << 60, 0).unwrap_err().to_string();
        assert!(refused.contains("needs 1.00 EiB free"), "{refused}");
        assert!(!workshop.source().exists());
    }
}
