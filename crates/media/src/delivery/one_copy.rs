//! sendfile(2): page cache to socket, no user-space buffer.

use std::{io, ops::Range};

use rustix::{fd::BorrowedFd, fs::sendfile, io::Errno};

use super::{Delivery, truncated};
use crate::site::OpenFile;

/// The kernel moves at most 0x7ffff000 bytes a call (sendfile(2)).
const CALL_BYTES_MAX: u64 = 0x7fff_f000;

pub struct OneCopy;

impl Delivery for OneCopy {
    fn send_some(
        &mut self,
        socket: BorrowedFd<'_>,
        file: &OpenFile,
        range: Range<u64>,
    ) -> io::Result<u64> {
        let mut offset = range.start;
        let len_bytes = (range.end - range.start).min(CALL_BYTES_MAX) as usize;
        loop {
            match sendfile(socket, &file.file, Some(&mut offset), len_bytes) {
                Ok(0) => return Err(truncated()),
                Ok(sent) => return Ok(sent as u64),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
