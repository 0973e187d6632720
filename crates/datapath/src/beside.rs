//! The digest beside the copy-free path: bytes are read once more, into a small buffer.
//!
//! An engine that never has a span's bytes in user space reads them for the tap from the page
//! cache, stride by stride. The buffer is so small that it stays in the processor's cache: this
//! costs .05 to .08 CPU seconds a GB, less than the copy that read-write makes (LIMITS.md).

use std::{io, os::unix::fs::FileExt};

use crate::{Boundary, EngineError, FileSpan, SpanTap, Wire, progress::Progress, socket};

/// Half of the second-level cache of a common server core.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The buffer that bytes are looked at in.
#[derive(Debug)]
pub struct Beside {
    buffer: Box<[u8]>,
}

impl Beside {
    /// Takes [`BUFFER_BYTES`], or less if `buffer_bytes_max` is less.
    #[must_use]
    pub fn new(buffer_bytes_max: usize) -> Self {
        Self { buffer: vec![0; buffer_bytes_max.clamp(4096, BUFFER_BYTES)].into() }
    }

    /// Shows the span's bytes from `from_bytes` to `to_bytes` (counted within the span) to `tap`.
    ///
    /// Returns how many there were: fewer at the end of the file.
    ///
    /// # Errors
    /// What pread(2) says. The tap may have seen some bytes by then.
    pub fn show(
        &mut self,
        span: &FileSpan,
        from_bytes: u64,
        to_bytes: u64,
        tap: &mut dyn SpanTap,
    ) -> io::Result<u64> {
        let mut at_bytes = from_bytes;
        while at_bytes < to_bytes {
            let part = read_some(span, at_bytes, to_bytes, &mut self.buffer)?;
            if part.is_empty() {
                break;
            }
            tap.see(part);
            at_bytes += part.len() as u64;
        }
        Ok(at_bytes - from_bytes)
    }

    /// Sends through the buffer what the tap has already seen, up to `to_bytes` of the span.
    ///
    /// So an engine whose copy-free call is refused leaves wire and tap at the same byte.
    ///
    /// # Errors
    /// Of the wire or the file.
    pub fn send_up_to(
        &mut self,
        wire: &Wire,
        progress: &mut Progress<'_>,
        to_bytes: u64,
    ) -> Result<(), EngineError> {
        while progress.moved_bytes < to_bytes {
            let at_bytes = progress.moved_bytes;
            let part = read_some(progress.span, at_bytes, to_bytes, &mut self.buffer)
                .map_err(|error| progress.file("pread", error))?;
            if part.is_empty() {
                return Err(progress.truncated("pread"));
            }
            socket::send_whole(wire, part, Boundary::Flush)
                .map_err(|(_, error)| progress.wire("send", error))?;
            progress.moved_bytes += part.len() as u64;
        }
        Ok(())
    }
}

/// What follows the first `at_bytes` of the span; empty at the end of the file.
fn read_some<'buffer>(
    span: &FileSpan,
    at_bytes: u64,
    to_bytes: u64,
    buffer: &'buffer mut [u8],
) -> io::Result<&'buffer [u8]> {
    let want_bytes = (to_bytes - at_bytes).min(buffer.len() as u64);
    let (offset_bytes, len_bytes) = span.file.run_at(span.offset_bytes + at_bytes, want_bytes);
    loop {
        match span.file.file().read_at(&mut buffer[..len_bytes as usize], offset_bytes) {
            Ok(got) => return Ok(&buffer[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
