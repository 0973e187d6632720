//! The local end of a connection before it is made: its interface, and an address without a port.

use rustix::io::Errno;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Has all packets of a socket go by one interface (`SO_BINDTODEVICE` of socket(7); without a
/// privilege since Linux 5.7, on a socket that has none yet).
///
/// # Errors
/// What setsockopt(2) says: `ENODEV` where there is no such interface.
pub fn bind_to_interface(socket: impl AsFd, interface: &str) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())
}

/// Leaves the port of a socket that is bound to port 0 open until it connects, so that the same
/// port may serve connections to several peers (`IP_BIND_ADDRESS_NO_PORT` of ip(7)).
///
/// # Errors
/// What setsockopt(2) says.
pub fn bind_without_port(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1_i32.to_ne_bytes())
}

fn set(socket: impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe { libc::setsockopt(socket, level, option, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    use std::net::TcpListener;

    #[test]
    fn a_socket_keeps_to_its_interface_and_one_that_is_not_there_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let by_loopback = near();
        bind_to_interface(&by_loopback, "lo").unwrap();
        bind_without_port(&by_loopback).unwrap();
        connect(&by_loopback, &listener.local_addr().unwrap()).unwrap();
        let error = bind_to_interface(near(), "haul-absent").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    }
}
