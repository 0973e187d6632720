//! `wait4(2)`: the resources that a child process has used, once it has ended.

use crate::usage::Usage;
use std::{
    io,
    mem::MaybeUninit,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
};

/// Waits for the end of a child; its resources include those of its own children that it waited
/// for.
///
/// The child is taken, as its number may be another process's from then on.
///
/// # Errors
/// What wait4(2) says: there is no such child where somebody else has waited for it.
pub fn wait(child: Child) -> io::Result<(ExitStatus, Usage)> {
    let process = libc::pid_t::try_from(child.id()).map_err(|_| io::ErrorKind::NotFound)?;
    let mut status: libc::c_int = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    const NO_OPTIONS: libc::c_int = 0;
    loop {
        // SAFETY: `status` and `used` are whole and live across the call.
        let result =
            unsafe { libc::wait4(process, &raw mut status, NO_OPTIONS, used.as_mut_ptr()) };
        if result >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeros are a valid value of each field, and the kernel has filled them in.
    let used = unsafe { used.assume_init() };
    Ok((ExitStatus::from_raw(status), Usage::from(used)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, time::Duration};

    #[test]
    fn a_child_has_its_status_and_the_time_of_its_own_children() {
        let loops = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
        let script = format!("sh -c '{loops}'; exit 7");
        let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let (status, used) = wait(child).unwrap();
        assert_eq!(status.code(), Some(7));
        // Much less than it takes: the machine may be fast.
        assert!(used.cpu > Duration::from_millis(1), "{used:?}");
    }
}
