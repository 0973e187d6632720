//! `getrusage(2)`: processor time and switches of this process, and disk reads of a thread.

use std::{io, mem::MaybeUninit, time::Duration};

/// Resources that the process has used since it began; threads that have ended count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, in user and in kernel mode together.
    pub cpu: Duration,
    /// Times that a thread gave its processor up because it waited.
    pub voluntary_switches: u64,
    /// Times that a thread lost its processor to another.
    pub involuntary_switches: u64,
}

/// Reads the resources that this process has used so far.
///
/// # Errors
/// What getrusage(2) says: nothing, on a kernel that knows the call.
pub fn of_this_process() -> io::Result<Usage> {
    read(libc::RUSAGE_SELF).map(Usage::from)
}

impl From<libc::rusage> for Usage {
    fn from(found: libc::rusage) -> Self {
        Self {
            cpu: duration(found.ru_utime) + duration(found.ru_stime),
            voluntary_switches: u64::try_from(found.ru_nvcsw).unwrap_or(0),
            involuntary_switches: u64::try_from(found.ru_nivcsw).unwrap_or(0),
        }
    }
}

/// Blocks of 512 bytes that the calling thread has read from disks so far, what the kernel read
/// ahead for it included.
///
/// # Errors
/// What getrusage(2) says: nothing, on a kernel that knows the call.
pub fn blocks_read_by_this_thread() -> io::Result<u64> {
    Ok(u64::try_from(read(libc::RUSAGE_THREAD)?.ru_inblock).unwrap_or(0))
}

fn read(whose: libc::c_int) -> io::Result<libc::rusage> {
    let mut found = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `found` is a whole `struct rusage` that lives across the call.
    let result = unsafe { libc::getrusage(whose, found.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a valid value of each field, and the kernel has filled them in.
    Ok(unsafe { found.assume_init() })
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_switches_of_threads_that_ended_are_counted() {
        let before = of_this_process().unwrap();
        let work = || {
            let start = std::time::Instant::now();
            let mut sum = 0_u64;
            while start.elapsed() < Duration::from_millis(60) {
                sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        std::thread::spawn(work).join().unwrap();
        let after = of_this_process().unwrap();
        // Much less than was worked: the machine may be busy.
        assert!(after.cpu - before.cpu >= Duration::from_millis(1), "{before:?} {after:?}");
        assert!(after.voluntary_switches > before.voluntary_switches);
    }

    #[test]
    fn blocks_are_counted_for_the_thread_that_reads_them() {
        const LEN_BYTES: u64 = 1 << 20;
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; LEN_BYTES as usize]).unwrap();
        let read = || {
            let before = blocks_read_by_this_thread().unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len() as u64, LEN_BYTES);
            (blocks_read_by_this_thread().unwrap() - before) * 512
        };
        assert_eq!(read(), 0, "it is in the page cache");
        if let Err(why) = haul_testkit::page_cache::forget(&path, 0..LEN_BYTES) {
            return haul_testkit::skip::skip("a disk below this directory", why);
        }
        assert!(read() >= LEN_BYTES / 2);
    }
}
