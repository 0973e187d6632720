//! A view for the digest of bytes that no buffer holds: the page cache's own pages.
//!
//! An engine that never has a span's bytes in user space maps them for the tap, a window of some
//! megabytes at a time. Where a file cannot be mapped, bytes are read into a buffer that stays in
//! the processor's cache.

use std::{io, os::unix::fs::FileExt};

use haul_sys::Window;

use crate::{Boundary, EngineError, FileSpan, SpanId, SpanTap, Wire, progress::Progress, socket};

/// Bytes of the buffer: half of the second-level cache of a common server core.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Bytes mapped at a time: unmapping interrupts the other cores, so not too little; and what is
/// mapped counts as this process's memory, so not too much.
const WINDOW_BYTES: u64 = 8 << 20;

/// Shows a tap the bytes of a span that its engine moves without seeing them.
#[derive(Debug)]
pub struct TapView {
    buffer: Box<[u8]>,
    window: Option<SpanWindow>,
}

/// A mapped window, and the part of the span that it shows.
#[derive(Debug)]
struct SpanWindow {
    window: Window,
    span: SpanId,
    from_bytes: u64,
}

impl TapView {
    /// Makes a view with a buffer of [`BUFFER_BYTES`], or less if `buffer_bytes_max` is less.
    #[must_use]
    pub fn new(buffer_bytes_max: usize) -> Self {
        let buffer = vec![0; buffer_bytes_max.clamp(4096, BUFFER_BYTES)].into();
        Self { buffer, window: None }
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

    /// Shows bytes as [`Self::show`] does, through a window on the page cache where the file can be
    /// mapped.
    ///
    /// # Errors
    /// As [`Self::show`]; a file that became shorter is found by reading it once more.
    pub fn show_mapped(
        &mut self,
        span: &FileSpan,
        from_bytes: u64,
        to_bytes: u64,
        tap: &mut dyn SpanTap,
    ) -> io::Result<u64> {
        if span.file.is_repeating() || !self.map(span, from_bytes, to_bytes) {
            return self.show(span, from_bytes, to_bytes, tap);
        }
        let shown = self.window.as_ref().expect("just mapped");
        let start = (from_bytes - shown.from_bytes) as usize;
        let end = (to_bytes - shown.from_bytes) as usize;
        let seen = shown.window.see(start..end, |bytes| tap.see_cold(bytes));
        if end == shown.window.len_bytes() || seen.is_err() {
            self.window = None;
        }
        if let Err(lost) = seen {
            // The tap saw zeros. What pread(2) says of the same bytes tells why.
            let read = read_some(span, from_bytes, to_bytes, &mut self.buffer)?;
            return if read.is_empty() { Ok(0) } else { Err(lost) };
        }
        Ok(to_bytes - from_bytes)
    }

    /// Maps this part of the span, if it can be; true when a window shows it.
    fn map(&mut self, span: &FileSpan, from_bytes: u64, to_bytes: u64) -> bool {
        if let Some(shown) = &self.window
            && shown.span == span.id
            && shown.from_bytes <= from_bytes
            && to_bytes <= shown.from_bytes + shown.window.len_bytes() as u64
        {
            return true;
        }
        self.window = None;
        // Beyond the end there are no pages to look at: pread(2) says so without a signal.
        let offset_bytes = span.offset_bytes + from_bytes;
        let size_bytes = span.file.file().metadata().map_or(0, |file| file.len());
        if size_bytes < span.offset_bytes + to_bytes {
            return false;
        }
        let len_bytes = (span.len_bytes - from_bytes)
            .min(WINDOW_BYTES.max(to_bytes - from_bytes))
            .min(size_bytes - offset_bytes);
        let Ok(window) = Window::open(span.file.file(), offset_bytes, len_bytes as usize) else {
            return false;
        };
        self.window = Some(SpanWindow { window, span: span.id, from_bytes });
        true
    }

    /// Unmaps the file of a span that is over.
    pub fn let_go(&mut self) {
        self.window = None;
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

/// Reads what follows the first `at_bytes` of the span; empty at the end of the file.
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
