//! Signals of the process, taken by those of its threads that do not block them.

use std::io;

/// Leaves the signals that are sent to the process to other threads from now on (signal(7)): none
/// interrupts this one. Threads that it begins later block them too.
///
/// # Errors
/// What pthread_sigmask(3) says.
pub fn leave_to_other_threads() -> io::Result<()> {
    // SAFETY: all-zero is a valid set; sigfillset(3) fills it.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is a live structure.
    let _ = unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: the set is a live structure, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut()) } {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_leaves_them_to_others_blocks_all_that_can_be_blocked() {
        let status = std::thread::spawn(|| {
            leave_to_other_threads().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "{signal}: {status}");
        }
    }
}
