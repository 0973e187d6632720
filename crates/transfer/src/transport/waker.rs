//! Waker of a session's thread out of `poll(2)`: an eventfd.

use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Waker that nothing has woken yet.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn wake(&self) {
        // A full counter means that the thread will wake anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the wake-ups so far.
    pub fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
