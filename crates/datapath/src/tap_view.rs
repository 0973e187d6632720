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
            let there_bytes = self.count(span, from_bytes, to_bytes)?;
            let is_whole = there_bytes == to_bytes - from_bytes;
            return if is_whole { Err(lost) } else { Ok(there_bytes) };
        }
        Ok(to_bytes - from_bytes)
    }

    /// Reads the span's bytes from `from_bytes` to `to_bytes`; returns how many there are: fewer at
    /// the end of the file.
    fn count(&mut self, span: &FileSpan, from_bytes: u64, to_bytes: u64) -> io::Result<u64> {
        let mut at_bytes = from_bytes;
        while at_bytes < to_bytes {
            let part = read_some(span, at_bytes, to_bytes, &mut self.buffer)?;
            if part.is_empty() {
                break;
            }
            at_bytes += part.len() as u64;
        }
        Ok(at_bytes - from_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpanFile;
    use std::{fs::File, sync::Arc};

    /// Touches every byte, as a digest does.
    #[derive(Default)]
    struct Sum(u64);

    impl SpanTap for Sum {
        fn see(&mut self, bytes: &[u8]) {
            self.0 += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }

    fn span_of(file: &File, len_bytes: u64) -> FileSpan {
        let file = Arc::new(SpanFile::new(file.try_clone().unwrap()));
        FileSpan { id: SpanId(1), file, offset_bytes: 0, len_bytes }
    }

    #[test]
    fn a_file_cut_within_a_mapped_range_is_shorter_and_not_broken() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 << 20).unwrap();
        let span = span_of(&file, 2 << 20);
        let (mut view, mut sum) = (TapView::new(BUFFER_BYTES), Sum::default());
        assert_eq!(view.show_mapped(&span, 0, 4096, &mut sum).unwrap(), 4096);
        // The first buffer of the range is there, and its last is not.
        file.set_len(1 << 20).unwrap();
        assert!(view.window.is_some(), "a window is open");
        let shown = view.show_mapped(&span, 4096, 2 << 20, &mut sum).unwrap();
        assert_eq!(shown, (1 << 20) - 4096);
    }
}
