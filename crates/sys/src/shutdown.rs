//! Shutdown of a file system as by a power cut (ext4 and XFS). From then on nothing reaches its
//! disk, and every call fails with EIO until it is mounted again (`EXT4_IOC_SHUTDOWN`, Linux 4.11).

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The request that stops a file system, `_IOR('X', 125, __u32)` (fs/ext4/ext4.h); XFS has the same
/// number (fs/xfs/xfs_fs.h).
const SHUTDOWN: libc::Ioctl = 0x8004_587d_u32 as libc::Ioctl;
/// The flag with which not even the journal is written out (`EXT4_GOING_FLAGS_NOLOGFLUSH`).
const WITHOUT_FLUSHING: u32 = 2;

/// Stops the file system that holds this open file or directory. Whatever was not synced is lost.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOTTY where the file system can't.
pub fn power_cut(file: &impl AsFd) -> io::Result<()> {
    let mut flags = WITHOUT_FLUSHING;
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the request reads a `u32` at the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(descriptor, SHUTDOWN, &raw mut flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_cannot_says_so_and_stays() {
        // As good as everything else for a file system without the request.
        let proc = std::fs::File::open("/proc/self/status").unwrap();
        assert!(power_cut(&proc).is_err());
        assert!(std::fs::read("/proc/self/status").is_ok());
    }
}
