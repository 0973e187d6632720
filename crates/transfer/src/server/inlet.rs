//! Inlet of a server: connections that it has not accepted itself.

use super::canonical;
use crate::{
    locks::{Lock, lock},
    transport::waker::Waker,
};
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

/// Most connections that wait for the server to take them.
const WAITING_MAX: usize = 64;

/// The way into a server for connections that it has not accepted itself: ones that this host has
/// made to a client that cannot come, or that another program carries. They show who they are as
/// all others do.
#[derive(Clone, Debug)]
pub struct Inlet {
    waiting: Arc<Lock<VecDeque<(TcpStream, SocketAddr)>>>,
    waker: Waker,
}

impl Inlet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { waiting: Arc::default(), waker: Waker::new()? })
    }

    /// Gives a connection to the server. One that has ended leaves it waiting.
    ///
    /// # Errors
    /// If the connection has ended, or the server leaves too many waiting.
    pub fn give(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        let peer = canonical(socket.peer_addr()?);
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING_MAX {
            return Err(io::Error::other("the server takes no more connections"));
        }
        waiting.push_back((socket, peer));
        drop(waiting);
        self.waker.wake();
        Ok(())
    }

    pub(super) fn take(&self) -> Option<(TcpStream, SocketAddr)> {
        self.waker.clear();
        let mut waiting = lock(&self.waiting);
        let taken = waiting.pop_front();
        if !waiting.is_empty() {
            self.waker.wake();
        }
        taken
    }
}

/// Readable once a connection waits.
impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
