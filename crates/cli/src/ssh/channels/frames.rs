//! Frames of channels on their way: the nine bytes in front, and the end that writes them.

use crate::ssh::frame::THROUGH;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Bytes in front of each frame.
pub const HEADER_BYTES: usize = 9;
/// Bytes of a frame at most.
pub const DATA_BYTES_MAX: usize = 64 << 10;
/// Time that one who ends has to say so while others write.
const LAST_WORD_WAIT_MAX: Duration = Duration::from_millis(500);

pub const OPEN: u8 = b'O';
pub const DATA: u8 = b'D';
pub const CREDIT: u8 = b'C';
pub const END: u8 = b'E';
pub const RESET: u8 = b'R';

/// The front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u8,
    /// Number of the channel.
    pub number: u32,
    /// A length or a credit.
    pub value: u32,
}

impl Header {
    /// Reads what follows the first byte of a frame.
    ///
    /// # Errors
    /// If the input ends, or with [`ErrorKind::InvalidData`] if there is no such frame.
    pub fn read_behind(kind: u8, input: &mut dyn Read) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES - 1];
        input.read_exact(&mut bytes)?;
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let header = Self { kind, number: word(0), value: word(4) };
        if kind == DATA && header.value as usize > DATA_BYTES_MAX {
            return Err(odd(format!("a frame of {} bytes", header.value)));
        }
        Ok(header)
    }

    /// Bytes that follow.
    #[must_use]
    pub fn data_bytes(self) -> usize {
        if self.kind == DATA { self.value as usize } else { 0 }
    }

    #[must_use]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [self.kind; HEADER_BYTES];
        bytes[1..5].copy_from_slice(&self.number.to_be_bytes());
        bytes[5..].copy_from_slice(&self.value.to_be_bytes());
        bytes
    }
}

/// The error of a frame that no end may send.
pub fn odd(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// One end's way into ssh. What is written in one call stays together.
#[derive(Debug)]
pub struct Outgoing(Mutex<Option<File>>);

impl Outgoing {
    #[must_use]
    pub fn new(writer: OwnedFd) -> Self {
        Self(Mutex::new(Some(writer.into())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes both, one behind the other.
    ///
    /// # Errors
    /// If ssh is gone, or this end was closed.
    pub fn say(&self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let mut writer = self.lock();
        let writer = writer.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        writer.write_all(first)?;
        writer.write_all(second)
    }

    /// Says that all is done, unless the writer is held up by what nobody reads.
    ///
    /// # Errors
    /// If it cannot be said.
    pub fn say_through(&self) -> io::Result<()> {
        let deadline = Instant::now() + LAST_WORD_WAIT_MAX;
        loop {
            if let Ok(mut writer) = self.0.try_lock() {
                let writer = writer.as_mut().ok_or(ErrorKind::BrokenPipe)?;
                if has_room(writer) {
                    return writer.write_all(&[THROUGH]);
                }
            }
            if Instant::now() >= deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Says no more, so that the other side sees the end.
    pub fn close(&self) {
        *self.lock() = None;
    }
}

/// Whether a pipe takes a byte at once.
fn has_room(pipe: &File) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
}
