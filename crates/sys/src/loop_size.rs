//! The part of its file that a loop device shows (`LOOP_SET_STATUS64`, loop(4)). Whatever lies
//! beyond fails with EIO, as on a disk that is gone, whichever file system is on it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The request that sets a loop device's status (include/uapi/linux/loop.h).
const SET_STATUS: libc::Ioctl = 0x4C04;
const GET_STATUS: libc::Ioctl = 0x4C05;

/// The status of a loop device: `struct loop_info64`, as far as it is looked at.
#[repr(C)]
struct LoopInfo {
    device_inode_rdevice_offset: [u64; 4],
    size_limit: u64,
    rest: [u64; 24],
}

/// Shows only the first bytes of the file; 0: all of them again. Requests under way are waited for.
///
/// # Errors
/// ENXIO where it is no loop device, or has no file.
pub fn limit(device: &File, bytes: u64) -> io::Result<()> {
    let mut info = LoopInfo { device_inode_rdevice_offset: [0; 4], size_limit: 0, rest: [0; 24] };
    let descriptor = device.as_fd().as_raw_fd();
    // SAFETY: the request fills a `loop_info64` at the pointer, which is as large and lives on.
    let got = unsafe { libc::ioctl(descriptor, GET_STATUS, &raw mut info) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    info.size_limit = bytes;
    // SAFETY: the request reads a `loop_info64` at the pointer.
    let set = unsafe { libc::ioctl(descriptor, SET_STATUS, &raw const info) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_the_kernels_and_what_is_no_loop_device_says_so() {
        assert_eq!(size_of::<LoopInfo>(), 232);
        assert!(limit(&File::open("/proc/self/status").unwrap(), 0).is_err());
    }
}
