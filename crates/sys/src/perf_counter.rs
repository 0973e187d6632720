//! `perf_event_open(2)`: the number of system calls that a process makes.
//!
//! Counts the tracepoint `raw_syscalls:sys_enter`, or that of one call, for the calling thread and
//! for all threads and processes that it starts afterwards, directly or not. Needs a kernel with
//! tracepoints, a tracefs that this user may read, and the right to count (root, or CAP_PERFMON and
//! read access to tracefs).

use std::{
    fs::{self, File},
    io::{self, Read},
    os::fd::{FromRawFd, RawFd},
    path::{Path, PathBuf},
};

/// Mount points of tracefs: by itself since Linux 4.1, below debugfs before.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracepoint of all system calls.
const ALL_CALLS: &str = "raw_syscalls/sys_enter";

/// The type of an event that is a tracepoint (PERF_TYPE_TRACEPOINT of
/// include/uapi/linux/perf_event.h).
const TYPE_TRACEPOINT: u32 = 2;
/// The bit `inherit` of `struct perf_event_attr`: threads that are started later count too.
const FLAG_INHERIT: u64 = 1 << 1;
/// The flag that closes the counter on execve(2) (PERF_FLAG_FD_CLOEXEC).
const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;

/// The attributes of an event, in the first published form of `struct perf_event_attr`, which every
/// kernel takes (PERF_ATTR_SIZE_VER0, 64 bytes).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    event_type: u32,
    size_bytes: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// A count of system calls since it was opened.
#[derive(Debug)]
pub struct SystemCallCounter(File);

impl SystemCallCounter {
    /// Begins to count the calls of this thread and of those that it starts from now on.
    ///
    /// # Errors
    /// `NotFound` without tracefs, `PermissionDenied` where this user may not read it or may not
    /// count (perf_event_open(2)).
    pub fn open() -> io::Result<Self> {
        Self::open_at(&tracefs()?)
    }

    /// Begins to count as [`Self::open`] does, by a tracefs that is mounted at this place.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_at(tracefs: &Path) -> io::Result<Self> {
        Self::of_tracepoint(read_id(tracefs, ALL_CALLS)?)
    }

    /// Begins to count the calls of one name, such as `openat`, as [`Self::open_at`] does for all.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no call of this name, else those of [`Self::open`].
    pub fn open_named(tracefs: &Path, call: &str) -> io::Result<Self> {
        Self::of_tracepoint(read_id(tracefs, &format!("syscalls/sys_enter_{call}"))?)
    }

    fn of_tracepoint(id: u64) -> io::Result<Self> {
        let attributes = PerfEventAttr {
            event_type: TYPE_TRACEPOINT,
            size_bytes: size_of::<PerfEventAttr>() as u32,
            config: id,
            flags: FLAG_INHERIT,
            ..PerfEventAttr::default()
        };
        const THIS_THREAD: libc::pid_t = 0;
        const ANY_PROCESSOR: libc::c_int = -1;
        const NO_GROUP: libc::c_int = -1;
        // SAFETY: `attributes` has the kernel's layout, says its size, and lives across the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                THIS_THREAD,
                ANY_PROCESSOR,
                NO_GROUP,
                OPEN_CLOEXEC,
            )
        };
        let descriptor = RawFd::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
        let Some(descriptor) = descriptor else { return Err(io::Error::last_os_error()) };
        // SAFETY: the kernel has just given this descriptor, and nobody else has it.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// The calls so far, of all threads together.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn count(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The place where this host has mounted tracefs, for this user to read.
///
/// # Errors
/// `NotFound` without tracefs, `PermissionDenied` where this user may not read it.
pub fn tracefs() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for root in TRACEFS.map(Path::new) {
        match read_id(root, ALL_CALLS) {
            Ok(_) => return Ok(root.to_owned()),
            // That one may not look is the better answer than that nothing is there.
            Err(error) if last.kind() == io::ErrorKind::NotFound => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

fn read_id(tracefs: &Path, tracepoint: &str) -> io::Result<u64> {
    let text = fs::read_to_string(tracefs.join("events").join(tracepoint).join("id"))?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_threads_that_were_started_later_are_counted() {
        let counter = match SystemCallCounter::open() {
            Ok(counter) => counter,
            Err(error) => {
                return haul_testkit::skip::skip("the right to count", error.to_string());
            }
        };
        let call = |times: usize| {
            for _ in 0..times {
                let _ = rustix::fs::statvfs("/");
            }
        };
        let first = counter.count().unwrap();
        call(1000);
        let second = counter.count().unwrap();
        assert!((1000..1200).contains(&(second - first)), "{first} {second}");
        std::thread::spawn(move || call(5000)).join().unwrap();
        let third = counter.count().unwrap();
        assert!((5000..6000).contains(&(third - second)), "{second} {third}");
    }

    #[test]
    fn one_call_is_counted_by_its_name_in_processes_too() {
        let counter = tracefs().and_then(|root| SystemCallCounter::open_named(&root, "unlinkat"));
        let counter = match counter {
            Ok(counter) => counter,
            Err(error) => {
                return haul_testkit::skip::skip("the right to count", error.to_string());
            }
        };
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..20).map(|at| directory.path().join(at.to_string())).collect();
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let mut remove = std::process::Command::new("rm");
        assert!(remove.args(&files).status().unwrap().success());
        assert_eq!(counter.count().unwrap(), 20);
    }

    #[test]
    fn an_unknown_call_is_not_found_or_not_to_be_seen() {
        let error = SystemCallCounter::open_named(Path::new(TRACEFS[0]), "no_such").unwrap_err();
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
