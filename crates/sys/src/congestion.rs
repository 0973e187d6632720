//! `TCP_CONGESTION`: the congestion control that one connection uses.
//!
//! Without CAP_NET_ADMIN only those of net.ipv4.tcp_allowed_congestion_control may be chosen.

use std::{io, os::fd::AsFd};

/// The name of the socket's congestion control, for example `cubic`.
///
/// # Errors
/// What getsockopt(2) says.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(rustix::net::sockopt::tcp_congestion(socket)?)
}

/// Chooses the socket's congestion control by its name.
///
/// # Errors
/// `NotFound` if the kernel has no such control, `PermissionDenied` if it is not allowed here.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_congestion(socket, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn reno_is_always_there_and_an_unknown_one_is_refused() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        set_congestion(&socket, "reno").unwrap();
        assert_eq!(congestion(&socket).unwrap(), "reno");
        let error = set_congestion(&socket, "no-such-thing").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(congestion(&socket).unwrap(), "reno");
    }
}
