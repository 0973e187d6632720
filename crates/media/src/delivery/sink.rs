//! Target of a connection's bytes: a socket, which takes them as they are or encrypted.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

pub(crate) trait Sink {
    /// Socket that bytes may go right into: encrypted by nobody, or by the kernel.
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Sends what there is room for, and tells how much that was.
    ///
    /// # Errors
    /// `WouldBlock` where it is full; what the socket says.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// A socket whose bytes this process does not encrypt.
pub(crate) struct Plain<'a>(pub BorrowedFd<'a>);

impl Sink for Plain<'_> {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
