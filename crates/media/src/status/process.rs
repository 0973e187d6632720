//! Use of resources by this process: processor time, descriptors, memory.

use std::{fs, path::Path, time::Duration};

/// Processor time, descriptors and memory of this process, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub cpu: Duration,
    pub open_files: u64,
    /// Most descriptors (RLIMIT_NOFILE, soft); `None` is no limit.
    pub open_files_max: Option<u64>,
    pub resident_bytes: u64,
}

impl Process {
    /// Reads the figures of this process; one that cannot be read is 0.
    pub fn now() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            cpu: haul_sys::usage::of_this_process().unwrap_or_default().cpu,
            open_files: open_files(),
            open_files_max: limit.current,
            resident_bytes: resident_bytes(Path::new("/proc/self/statm")).unwrap_or(0),
        }
    }
}

/// Number of open descriptors: since Linux 6.2 it is the size of the directory (fs/proc/fd.c);
/// before, that is 0 and they are counted.
fn open_files() -> u64 {
    let path = "/proc/self/fd";
    match fs::metadata(path).map_or(0, |directory| directory.len()) {
        0 => fs::read_dir(path).map_or(0, |entries| entries.count() as u64),
        count => count,
    }
}

/// Resident memory in bytes; the second number counts pages (proc_pid_statm(5)).
fn resident_bytes(path: &Path) -> Option<u64> {
    let pages: u64 = fs::read_to_string(path).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_memory_and_time_are_there() {
        let before = Process::now();
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let after = Process::now();
        // Other tests of this process open and close files too.
        assert!(after.open_files >= files.len() as u64, "{before:?} {after:?}");
        assert!(after.resident_bytes > 1 << 20 && after.cpu >= before.cpu, "{after:?}");
        assert_eq!(resident_bytes(Path::new("/proc/self/statm.none")), None);
    }
}
