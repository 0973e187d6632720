//! Limit on the files that this process may have open, and the room that the kernel has for them.

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Descriptors that the kernel's table is made to hold, at 8 bytes each.
const DESCRIPTOR_TABLE: u64 = 8192;

/// Raises the number of open files to the hard limit: a session holds two for each file under way.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Not permitted is no harm: fewer files are open at a time then.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Makes the table of descriptors large, in a process that has no second thread yet: with one, each
/// step of its growth waits for all processors (synchronize_rcu in the kernel's fs/file.c), 20 ms.
/// The limit on open files is afterwards what it was.
///
/// # Panics
/// Where debug assertions are on, if there is a second thread.
pub fn grow_descriptor_table() {
    debug_assert_eq!(threads().unwrap_or(1), 1, "the table of descriptors grows before threads");
    let limit = getrlimit(Resource::Nofile);
    raise_open_files_limit();
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(DESCRIPTOR_TABLE);
    let highest = i32::try_from(most.saturating_sub(1)).unwrap_or(0);
    // Without it everything works too.
    let _ = fcntl_dupfd_cloexec(std::io::stderr(), highest);
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Number of threads of this process, where /proc tells.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
