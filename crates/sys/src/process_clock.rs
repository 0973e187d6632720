//! `clock_getcpuclockid(3)`: the processor time of another process, to the nanosecond.
//!
//! /proc/PID/stat says the same in ticks of a hundredth of a second.

use std::{io, mem::MaybeUninit, time::Duration};

/// Processor time of all threads of the process, in user and in kernel mode; those that have ended
/// count too.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn cpu_time_of(process: u32) -> io::Result<Duration> {
    let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::NotFound)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` lives across the call, which writes nothing else.
    let failed = unsafe { libc::clock_getcpuclockid(process, &raw mut clock) };
    if failed != 0 {
        // The number is the result itself, not errno (clock_getcpuclockid(3)).
        return Err(match failed {
            libc::ESRCH => io::ErrorKind::NotFound.into(),
            number => io::Error::from_raw_os_error(number),
        });
    }
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `time` is a whole `struct timespec` that lives across the call.
    let result = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    if result != 0 {
        // The process has ended in between: its clock is no clock any more (EINVAL).
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: zeros are a valid value of each field, and the kernel has filled them in.
    let time = unsafe { time.assume_init() };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_works_uses_time_and_one_that_is_gone_has_no_clock() {
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let mut busy = busy.spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut used = Duration::ZERO;
        while used < Duration::from_millis(5) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            used = cpu_time_of(busy.id()).unwrap();
        }
        let _ = (busy.kill(), busy.wait());
        assert!(used >= Duration::from_millis(5), "{used:?}");
        let gone = cpu_time_of(busy.id()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
