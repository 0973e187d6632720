//! The file that a probe writes and reads: it has no name, so nothing is left of it.
//!
//! By O_TMPFILE where the file system has that; otherwise it is made with a hidden name that is
//! removed at once. Its space is given back when the process ends, also by kill -9. NFS gives an
//! open file without a name a hidden one (`.nfs...`) until then.

use haul_sys::cachestat::cached_bytes;
use rustix::{
    fs::{
        Advice, AtFlags, FallocateFlags, Mode, OFlags, fadvise, fallocate, fcntl_getfl,
        fcntl_setfl, fdatasync, ftruncate, openat, unlinkat,
    },
    io::Errno,
};
use std::{fs::File, io, os::fd::AsFd, sync::Arc};

/// Names that are tried for a file: other probes may run in the same directory.
const NAMES_MAX: u32 = 100;

/// Whether reads and writes go by the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    PageCache,
    /// Reads and writes past the page cache (O_DIRECT).
    Direct,
}

/// The way in which the file lost its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nameless {
    /// A file that never had a name (O_TMPFILE, open(2)).
    FromTheStart,
    /// A file that had a hidden name for a moment.
    ByUnlink,
}

/// Whether the file's space is taken before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Taken,
    /// Space found while writing: the file system cannot take it before (fallocate(2)).
    FoundOnTheWay,
}

#[derive(Debug)]
pub struct ScratchFile {
    file: Arc<File>,
    nameless: Nameless,
}

impl ScratchFile {
    /// Makes a file without a name in the directory.
    ///
    /// # Errors
    /// Those of open(2) and unlink(2).
    pub fn new(directory: impl AsFd) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        match openat(&directory, ".", flags | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
            Ok(file) => {
                let file = Arc::new(File::from(file));
                return Ok(Self { file, nameless: Nameless::FromTheStart });
            }
        }
        Self::unlinked(directory)
    }

    fn unlinked(directory: impl AsFd) -> io::Result<Self> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let process = std::process::id();
        for number in 0..NAMES_MAX {
            let name = format!(".haul-probe-{process}-{number}");
            match openat(&directory, &name, flags, Mode::from_raw_mode(0o600)) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    unlinkat(&directory, &name, AtFlags::empty())?;
                    let file = Arc::new(File::from(file));
                    return Ok(Self { file, nameless: Nameless::ByUnlink });
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    #[must_use]
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    #[must_use]
    pub fn nameless(&self) -> Nameless {
        self.nameless
    }

    /// Sets which way reads and writes go from now on.
    ///
    /// # Errors
    /// EINVAL where the file system has no O_DIRECT; what posix_fadvise(2) says.
    pub fn set(&self, caching: Caching) -> io::Result<()> {
        let flags = fcntl_getfl(&self.file)?;
        let wanted = match caching {
            Caching::PageCache => flags - OFlags::DIRECT,
            Caching::Direct => flags | OFlags::DIRECT,
        };
        if wanted != flags {
            fcntl_setfl(&self.file, wanted)?;
        }
        if caching == Caching::PageCache {
            // The kernel reads twice as far ahead (posix_fadvise(2)); fio and cp ask for it too.
            let whole_file = None;
            fadvise(&self.file, 0, whole_file, Advice::Sequential)?;
        }
        Ok(())
    }

    /// Empties the file and takes space for `len_bytes`, as a transfer does for its target.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT, EFBIG: it does not fit.
    pub fn begin_anew(&self, len_bytes: u64) -> io::Result<Space> {
        self.set(Caching::PageCache)?;
        ftruncate(&self.file, 0)?;
        loop {
            return match fallocate(&self.file, FallocateFlags::empty(), 0, len_bytes) {
                Ok(()) => Ok(Space::Taken),
                Err(Errno::INTR) => continue,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Space::FoundOnTheWay),
                Err(error) => {
                    // What was found before the disk was full is given back.
                    let _ = ftruncate(&self.file, 0);
                    Err(error.into())
                }
            };
        }
    }

    /// Waits until all that was written is durable.
    ///
    /// # Errors
    /// What fdatasync(2) says.
    pub fn sync(&self) -> io::Result<()> {
        fdatasync(&self.file).map_err(io::Error::from)
    }

    /// Asks the kernel to forget the file's pages; returns the share of `len_bytes` that it still
    /// has.
    ///
    /// # Errors
    /// What fdatasync(2), posix_fadvise(2) and cachestat(2) say.
    pub fn forget_cache(&self, len_bytes: u64) -> io::Result<f64> {
        // Dirty pages are not dropped (posix_fadvise(2)).
        self.sync()?;
        let whole_file = None;
        fadvise(&self.file, 0, whole_file, Advice::DontNeed)?;
        let cached = cached_bytes(&self.file, 0, len_bytes)?;
        Ok(cached as f64 / len_bytes.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn neither_kind_of_file_is_seen_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        for made in [ScratchFile::new(&opened), ScratchFile::unlinked(&opened)] {
            let scratch = made.unwrap();
            assert_ne!(scratch.begin_anew(1 << 20).unwrap(), Space::FoundOnTheWay);
            scratch.file().write_all_at(b"here", 8).unwrap();
            let mut read = [0; 4];
            scratch.file().read_exact_at(&mut read, 8).unwrap();
            assert_eq!(&read, b"here");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let unlinked = ScratchFile::unlinked(&opened).unwrap();
        assert_eq!(unlinked.nameless(), Nameless::ByUnlink);
    }

    #[test]
    fn names_that_others_have_are_left_to_them() {
        let directory = tempfile::tempdir().unwrap();
        let process = std::process::id();
        let taken = directory.path().join(format!(".haul-probe-{process}-0"));
        std::fs::write(&taken, "theirs").unwrap();
        ScratchFile::unlinked(File::open(directory.path()).unwrap()).unwrap();
        assert_eq!(std::fs::read(&taken).unwrap(), b"theirs");
    }

    #[test]
    fn direct_can_be_switched_on_and_off_and_the_cache_forgets() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let scratch = ScratchFile::new(File::open(directory.path()).unwrap()).unwrap();
        scratch.begin_anew(1 << 20).unwrap();
        if let Err(error) = scratch.set(Caching::Direct) {
            return haul_testkit::skip::skip("O_DIRECT", error.to_string());
        }
        let flags = || fcntl_getfl(scratch.file()).unwrap();
        assert!(flags().contains(OFlags::DIRECT));
        scratch.set(Caching::PageCache).unwrap();
        assert!(!flags().contains(OFlags::DIRECT));
        scratch.file().write_all_at(&vec![7; 1 << 20], 0).unwrap();
        assert!(scratch.forget_cache(1 << 20).unwrap() < 0.1);
    }

    #[test]
    fn more_than_the_disk_has_is_refused_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = ScratchFile::new(File::open(directory.path()).unwrap()).unwrap();
        match scratch.begin_anew(1 << 60) {
            Err(error) => println!("{error}"),
            Ok(space) => assert_eq!(space, Space::FoundOnTheWay),
        }
        assert_eq!(scratch.file().metadata().unwrap().len(), 0);
    }
}
