//! `SO_MEMINFO`: how full a socket's buffers are, as the kernel accounts for them.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The place of the send buffer's size in the kernel's answer, which only ever grows at its end
/// (`SK_MEMINFO_*` of include/uapi/linux/sock_diag.h).
const SEND_BUFFER: usize = 3;
const WRITE_QUEUED: usize = 5;
const VARIABLES: usize = 9;

/// Kernel memory of a socket, in bytes: more than the payload, by what the kernel keeps beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes that may be queued before the writer has to wait.
    pub send_buffer_bytes: u32,
    /// Bytes that are queued: not yet sent, or not yet acknowledged.
    pub write_queued_bytes: u32,
}

impl SocketMemory {
    /// Asks the kernel about a socket (socket(7), `SO_MEMINFO`, Linux 4.12).
    ///
    /// # Errors
    /// What getsockopt(2) says.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut words = [0_u32; VARIABLES];
        let mut len_bytes = size_of_val(&words) as libc::socklen_t;
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: `words` is writable for `len_bytes` bytes and both live across the call.
        let result = unsafe {
            libc::getsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &raw mut len_bytes,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { send_buffer_bytes: words[SEND_BUFFER], write_queued_bytes: words[WRITE_QUEUED] })
    }

    /// Whether poll(2) does not call the socket writable: less is free than half of what is queued
    /// (`sk_stream_min_wspace()` of include/net/sock.h).
    #[must_use]
    pub fn is_full(&self) -> bool {
        let free_bytes = self.send_buffer_bytes.saturating_sub(self.write_queued_bytes);
        free_bytes < self.write_queued_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn a_buffer_that_nobody_empties_is_full() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let empty = SocketMemory::of(&near).unwrap();
        assert!(empty.send_buffer_bytes > 0 && empty.write_queued_bytes == 0, "{empty:?}");
        assert!(!empty.is_full());
        near.set_nonblocking(true).unwrap();
        let mut sent_bytes = 0;
        while let Ok(bytes) = near.write(&[7; 65536]) {
            sent_bytes += bytes;
        }
        let full = SocketMemory::of(&near).unwrap();
        assert!(full.is_full(), "{full:?} after {sent_bytes} bytes");
        far.read_exact(&mut vec![0; sent_bytes]).unwrap();
        assert!(!SocketMemory::of(&near).unwrap().is_full());
    }

    #[test]
    fn a_file_is_no_socket() {
        assert!(SocketMemory::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
