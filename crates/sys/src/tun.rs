//! TUN devices: network interfaces whose packets a program reads and writes. See tun(4) and
//! Documentation/networking/tuntap.rst of Linux.

use rustix::fs::{Mode, OFlags};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// Makes an interface of this name in the calling thread's network namespace. The interface lives
/// as long as the descriptor; each read(2) takes one IP packet, each write(2) gives one.
///
/// # Errors
/// Without CAP_NET_ADMIN, without /dev/net/tun, or when the name is taken or longer than 15 bytes.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: all fields of `ifreq` are integers, arrays of them or a null pointer.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // The last byte stays zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface's name is too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: TUNSETIFF takes a pointer to an `ifreq`, which lives across the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result == 0 { Ok(device) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_refused_before_the_kernel_sees_it() {
        let error = open("sixteen-bytes-xy").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
