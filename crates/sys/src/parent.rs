//! `PR_SET_PDEATHSIG`: a process that ends when the one that started it does.

use std::{
    io,
    os::unix::process::{CommandExt, parent_id},
    process::{self, Command},
};

/// Ends what the command starts (SIGKILL) when the thread that starts it is gone, however it ended
/// (prctl(2)). The promise holds across execve(2), so a shell may stand before the program; a
/// program that gets rights by its file (set-user-ID, capabilities) loses it.
pub fn end_with_parent(command: &mut Command) {
    let own = process::id();
    let ask = move || {
        // SAFETY: a number goes in, and nothing is touched but the calling process.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // It may be gone already, and no signal comes then.
        if parent_id() == own { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork(2) and execve(2) it calls prctl(2) and getppid(2), which take no lock
    // and no memory.
    unsafe { command.pre_exec(ask) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let begun = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            end_with_parent(&mut command);
            command.spawn().unwrap()
        });
        let mut child = begun.join().unwrap();
        let ended = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        assert!(ended);
    }
}
