//! Readahead of many files in one call, by which the disk gets few large requests.
//!
//! A read that may not wait (RWF_NOWAIT) starts the kernel's readahead and ends at once
//! (`filemap_get_pages` of mm/filemap.c). io_uring takes many of them in one call and under one
//! plug (`io_submit_sqes` of io_uring/io_uring.c), so that the block layer joins what lies side by
//! side on the disk. Calls for one file at a time, as posix_fadvise(2), are never joined.

use std::{fs::File, io, os::fd::AsRawFd};

use io_uring::{IoUring, opcode, squeue, types::Fd};
use rustix::io::Errno;

use crate::{PageMemory, ring::passes};

/// Outcome of asking for a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The first `bytes` of them are in the page cache; the disk was asked for the others.
    Cached { bytes: u64 },
    /// The disk was asked for them.
    OnItsWay,
    /// The file system takes no reads that may not wait: nobody was asked.
    Refused,
}

/// A ring that asks for files; its reads go to memory that nobody looks at.
pub struct BatchedReadahead {
    /// Closed before the memory is unmapped, as it is the first field.
    ring: IoUring,
    sink: PageMemory,
    is_broken: bool,
}

impl std::fmt::Debug for BatchedReadahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchedReadahead").finish_non_exhaustive()
    }
}

impl BatchedReadahead {
    /// Most files that are asked for in one call: few enough that the disk has work soon.
    pub const FILES_MAX: usize = 64;

    /// Makes a ring for files of which at most so many bytes are asked for.
    ///
    /// # Errors
    /// EPERM where io_uring is disabled, ENOSYS where the kernel has none or one of before
    /// Linux 5.11, whose reads may not start readahead, ENOMEM.
    pub fn new(len_bytes_max: usize) -> io::Result<Self> {
        let entries = Self::FILES_MAX as u32;
        // Linux 5.19 has the flag.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(Errno::NOSYS.into());
        }
        Ok(Self { ring, sink: PageMemory::new(len_bytes_max)?, is_broken: false })
    }

    /// Asks for the first bytes of files, so many of each, without waiting for the disk.
    ///
    /// # Errors
    /// What io_uring_enter(2) says. The ring is of no use from then on.
    ///
    /// # Panics
    /// If there are more than [`Self::FILES_MAX`] files.
    pub fn ask(&mut self, files: &[(&File, u64)]) -> io::Result<Vec<Asked>> {
        assert!(files.len() <= Self::FILES_MAX, "{} files", files.len());
        if self.is_broken {
            return Err(Errno::IO.into());
        }
        // Until all have ended: what is left then was written to nobody's memory and to no file's.
        self.is_broken = true;
        for (number, (file, len_bytes)) in files.iter().enumerate() {
            let len_bytes = (*len_bytes).min(self.sink.len_bytes() as u64) as u32;
            let entry =
                opcode::Read::new(Fd(file.as_raw_fd()), self.sink.start().cast(), len_bytes)
                    .rw_flags(libc::RWF_NOWAIT)
                    .build()
                    .user_data(number as u64);
            self.push(&entry);
        }
        let mut asked = vec![Asked::Refused; files.len()];
        let mut left = files.len();
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Err(error) if !passes(&error) => return Err(error),
                _ => {}
            }
            for event in self.ring.completion() {
                asked[event.user_data() as usize] = outcome(event.result());
                left -= 1;
            }
        }
        self.is_broken = false;
        Ok(asked)
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory is mapped until the ring is closed, or for ever (see `drop`); nobody
        // looks at it, so that reads may write it at the same time. The files are borrowed until
        // their reads have ended, or the ring is of no use.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the queue has an entry for every file");
    }
}

fn outcome(result: i32) -> Asked {
    match u64::try_from(result) {
        Ok(bytes) => Asked::Cached { bytes },
        Err(_) if -result == libc::EAGAIN => Asked::OnItsWay,
        Err(_) => Asked::Refused,
    }
}

impl Drop for BatchedReadahead {
    fn drop(&mut self) {
        if self.is_broken {
            // A read may still write there.
            self.sink.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{page_cache, skip::skip};
    use std::fs;

    /// Makes a ring; `None` where io_uring is forbidden.
    fn ring(len_bytes_max: usize) -> Option<BatchedReadahead> {
        BatchedReadahead::new(len_bytes_max).map_err(|why| skip("io_uring", why.to_string())).ok()
    }

    #[test]
    fn cold_files_come_into_the_page_cache_and_warm_ones_are_told() {
        const LEN_BYTES: u64 = 100 << 10;
        let Some(mut ring) = ring(LEN_BYTES as usize) else { return };
        let directory = tempfile::tempdir_in(".").unwrap();
        let make = |number: usize| {
            let path = directory.path().join(number.to_string());
            fs::write(&path, vec![7; LEN_BYTES as usize]).unwrap();
            path
        };
        let paths: Vec<_> = (0..BatchedReadahead::FILES_MAX).map(make).collect();
        for path in &paths[1..] {
            if let Err(why) = page_cache::forget(path, 0..LEN_BYTES) {
                return skip("a disk below this directory", why);
            }
        }
        let files: Vec<_> = paths.iter().map(|path| File::open(path).unwrap()).collect();
        let all: Vec<_> = files.iter().map(|file| (file, LEN_BYTES)).collect();
        let cached = || {
            let of = |file| crate::cachestat::cached_bytes(file, 0, LEN_BYTES).unwrap();
            files.iter().map(of).sum::<u64>()
        };
        assert_eq!(cached(), LEN_BYTES);
        let asked = ring.ask(&all).unwrap();
        assert_eq!(asked[0], Asked::Cached { bytes: LEN_BYTES });
        assert!(asked[1..].iter().all(|asked| *asked == Asked::OnItsWay), "{asked:?}");
        // Pages have their place there as soon as the disk is asked for them.
        assert_eq!(cached(), LEN_BYTES * files.len() as u64);
        for mut file in &files {
            io::copy(&mut file, &mut io::sink()).unwrap();
        }
        let asked = ring.ask(&all[..9]).unwrap();
        assert_eq!(asked, [Asked::Cached { bytes: LEN_BYTES }; 9]);
    }

    #[test]
    fn of_files_that_are_longer_the_first_bytes_are_asked_for() {
        let Some(mut ring) = ring(4096) else { return };
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 9000]).unwrap();
        let file = File::open(path).unwrap();
        match ring.ask(&[(&file, 9000), (&file, 5)]).unwrap()[..] {
            [Asked::Refused, Asked::Refused] => skip("a file system that takes RWF_NOWAIT", "none"),
            ref asked => {
                assert_eq!(asked, [Asked::Cached { bytes: 4096 }, Asked::Cached { bytes: 5 }]);
            }
        }
        assert_eq!(ring.ask(&[]).unwrap(), []);
    }

    #[test]
    fn a_file_that_takes_no_such_reads_is_told_of_beside_others() {
        let Some(mut ring) = ring(4096) else { return };
        let directory = File::open(".").unwrap();
        let zero = File::open("/dev/zero").unwrap();
        let asked = ring.ask(&[(&directory, 1), (&zero, 7), (&directory, 1)]).unwrap();
        assert_eq!((asked[0], asked[2]), (Asked::Refused, Asked::Refused));
        assert_eq!(outcome(-libc::EAGAIN), Asked::OnItsWay);
        assert_eq!(outcome(-libc::EOPNOTSUPP), Asked::Refused);
        assert_eq!(outcome(0), Asked::Cached { bytes: 0 });
    }

    #[test]
    fn a_ring_that_failed_is_of_no_use() {
        let Some(mut ring) = ring(4096) else { return };
        ring.is_broken = true;
        let file = tempfile::tempfile().unwrap();
        assert!(ring.ask(&[(&file, 1)]).is_err());
    }
}
