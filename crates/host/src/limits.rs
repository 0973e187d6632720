//! Limits of the kernel for this process: locked memory, open files, and its page size.

use rustix::process::{Resource, getrlimit};

/// Soft limit of locked memory (RLIMIT_MEMLOCK): it counts the pages pinned by MSG_ZEROCOPY and by
/// registered buffers.
pub(crate) fn memlock_bytes() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Soft limit of open files (RLIMIT_NOFILE).
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_may_open_files_and_has_pages() {
        assert!(open_files_max() > 0);
        assert!(page_bytes().is_power_of_two() && page_bytes() >= 4096);
    }
}
