//! pread(2) into a buffer and send(2) out of it: two copies a byte.

use std::{io, ops::Range, os::unix::fs::FileExt};

use rustix::{
    fd::BorrowedFd,
    io::Errno,
    net::{SendFlags, send},
};

use super::{Delivery, truncated};
use crate::site::OpenFile;

/// One buffer for all connections of a loop: what the socket does not take is read again.
const BUFFER_BYTES: usize = 64 << 10;

pub struct Normal {
    buffer: Vec<u8>,
}

impl Normal {
    pub fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES] }
    }
}

impl Delivery for Normal {
    fn send_some(
        &mut self,
        socket: BorrowedFd<'_>,
        file: &OpenFile,
        range: Range<u64>,
    ) -> io::Result<u64> {
        let mut sent_bytes = 0;
        while range.start + sent_bytes < range.end {
            let at = range.start + sent_bytes;
            let len_bytes = (range.end - at).min(BUFFER_BYTES as u64) as usize;
            let read = file.file.read_at(&mut self.buffer[..len_bytes], at)?;
            if read == 0 {
                return Err(truncated());
            }
            match send(socket, &self.buffer[..read], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    sent_bytes += sent as u64;
                    if sent < read {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if sent_bytes > 0 => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(sent_bytes)
    }
}
