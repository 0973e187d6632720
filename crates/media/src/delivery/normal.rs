//! pread(2) into a buffer and send(2) out of it: two copies a byte.

use std::{io, os::unix::fs::FileExt};

use super::{Delivery, Sending, Sink, Wanted, truncated};

/// Bytes of the one buffer for all connections of a loop: what the socket does not take is read
/// again.
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
    fn send_some(&mut self, sink: &mut dyn Sink, wanted: &Wanted<'_>) -> io::Result<Sending> {
        let range = &wanted.range;
        let mut sent_bytes = 0;
        while range.start + sent_bytes < range.end {
            let at = range.start + sent_bytes;
            let len_bytes = (range.end - at).min(BUFFER_BYTES as u64) as usize;
            let read = wanted.file.file.read_at(&mut self.buffer[..len_bytes], at)?;
            if read == 0 {
                return Err(truncated());
            }
            match sink.send(&self.buffer[..read]) {
                Ok(sent) => {
                    sent_bytes += sent as u64;
                    if sent < read {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent_bytes > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Sending::Bytes(sent_bytes))
    }
}
