//! `SO_RCVLOWAT`: bytes that have to be there before a sleeping receiver is woken.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Sets the bytes for which a receiver waits; 1 is the system's own. With more, poll(2) waits for
/// that many or for the connection's end (socket(7)), and the kernel enlarges the receive buffer to
/// hold them.
///
/// recv(2) is no substitute: it takes the bytes that are there, and if it wants more it sleeps till
/// as many as set here have come anew.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_receive_low_water(socket: impl AsFd, low_water_bytes: u32) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let value = libc::c_int::try_from(low_water_bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    fn is_readable(socket: &TcpStream, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        poll(&mut fds, Some(&wait)).unwrap() > 0
    }

    #[test]
    fn a_receiver_sleeps_until_enough_has_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        set_receive_low_water(&near, 1000).unwrap();
        far.write_all(&[7; 999]).unwrap();
        assert!(!is_readable(&near, Duration::from_millis(50)));
        far.write_all(&[7]).unwrap();
        assert!(is_readable(&near, Duration::from_secs(5)));
        near.read_exact(&mut [0; 1000]).unwrap();
        set_receive_low_water(&near, 1).unwrap();
        far.write_all(&[7]).unwrap();
        assert!(is_readable(&near, Duration::from_secs(5)));
    }
}
