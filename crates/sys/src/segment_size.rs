//! `TCP_MAXSEG`: the most payload bytes in one segment of a connection, both ways.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The smallest segment that Linux takes (`TCP_MIN_MSS`, include/net/tcp.h).
const SEGMENT_BYTES_MIN: u32 = 88;
/// The largest segment that Linux takes (`MAX_TCP_WINDOW`).
const SEGMENT_BYTES_MAX: u32 = 32_767;

/// Bounds the segments of a connection. Set before the connection is made, the bound holds for what
/// this side sends and, as the MSS that the SYN says, for what the peer sends (tcp(7)).
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_segment_bytes_max(socket: impl AsFd, segment_bytes: u32) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let value = segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).cast_signed();
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_info::TcpInfo;
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    use std::net::TcpListener;

    #[test]
    fn both_sides_of_a_connection_keep_to_what_its_client_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_segment_bytes_max(&near, 536).unwrap();
        connect(&near, &listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for side in [TcpInfo::of(&near).unwrap(), TcpInfo::of(&far).unwrap()] {
            assert!((400..=536).contains(&side.mss_bytes), "{side:?}");
        }
    }
}
