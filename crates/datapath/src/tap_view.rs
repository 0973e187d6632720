//! A view for the digest of bytes that no buffer holds: the page cache's own pages.
//!
//! An engine that never has a span's bytes in user space maps them for the tap, a window of some
//! megabytes at a time. Where a file cannot be mapped, bytes are read into a buffer that stays in
//! the processor's cache.

use std::io;

use haul_sys::Window;
use rustix::io::{pread, retry_on_intr};

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
        self.read(span, from_bytes, to_bytes, |part| tap.see(part))
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
            let there_bytes = self.read(span, from_bytes, to_bytes, |_| ())?;
            let is_whole = there_bytes == to_bytes - from_bytes;
            return if is_whole { Err(lost) } else { Ok(there_bytes) };
        }
        Ok(to_bytes - from_bytes)
    }

    /// Reads the span's bytes from `from_bytes` to `to_bytes`; returns how many there are: fewer at
    /// the end of the file.
    fn read(
        &mut self,
        span: &FileSpan,
        from_bytes: u64,
        to_bytes: u64,
        mut see: impl FnMut(&[u8]),
    ) -> io::Result<u64> {
        let mut at_bytes = from_bytes;
        while at_bytes != to_bytes {
            let part = read_some(span, at_bytes, to_bytes, &mut self.buffer)?;
            if part.is_empty() {
                break;
            }
            see(part);
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
            socket::send_whole_to(wire.socket(), part, Boundary::Flush)
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
    let part = &mut buffer[..len_bytes as usize];
    let got = retry_on_intr(|| pread(span.file.file(), &mut *part, offset_bytes))?;
    Ok(&buffer[..got])
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

    #[derive(Default)]
    struct Seen {
        all: Vec<u8>,
        /// How many of them came from the page cache's own pages.
        mapped: u64,
    }

    impl SpanTap for Seen {
        fn see(&mut self, bytes: &[u8]) {
            self.all.extend_from_slice(bytes);
        }

        fn see_cold(&mut self, bytes: &[u8]) {
            self.mapped += bytes.len() as u64;
            self.see(bytes);
        }
    }

    /// Makes a file whose bytes tell where they are, other ones for each `salt`.
    fn file_of(len_bytes: usize, salt: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> =
            (0..len_bytes).map(|at| ((at + salt) % 65_521 % 256) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).unwrap();
        (file, content)
    }

    #[test]
    fn a_view_shows_what_is_asked_for_wherever_its_window_is() {
        const MIB: u64 = 1 << 20;
        const LEN_BYTES: u64 = 20 * MIB;
        const OFFSET_BYTES: u64 = 5003;
        let whole = (LEN_BYTES + OFFSET_BYTES) as usize;
        // The second goes on behind its span.
        let files = [file_of(whole, 0), file_of(whole + (1 << 20), 77)];
        let span = |number: usize| FileSpan {
            id: SpanId(number as u64),
            offset_bytes: OFFSET_BYTES,
            ..span_of(&files[number].0, LEN_BYTES)
        };
        let mut view = TapView::new(BUFFER_BYTES);
        // Parts of a span, and where the window is then.
        for (number, from_bytes, to_bytes, window_bytes) in [
            (0, 0, MIB, Some(0..8 * MIB)),
            (0, MIB, 5 * MIB, Some(0..8 * MIB)),
            // Another span at the same place.
            (1, 5 * MIB, 6 * MIB, Some(5 * MIB..13 * MIB)),
            // Behind the window, in front of it, and over its end.
            (1, 14 * MIB, 15 * MIB, Some(14 * MIB..LEN_BYTES)),
            (1, 13 * MIB, 14 * MIB, Some(13 * MIB..LEN_BYTES)),
            (1, 2 * MIB, 3 * MIB, Some(2 * MIB..10 * MIB)),
            (1, 9 * MIB, 11 * MIB, Some(9 * MIB..17 * MIB)),
            // To the window's end: it is not needed any more.
            (1, 16 * MIB, 17 * MIB, None),
            // More than a window holds.
            (0, 2, 9 * MIB + 1, None),
            (0, LEN_BYTES - 1, LEN_BYTES, None),
            (0, 0, 1, Some(0..8 * MIB)),
        ] {
            let mut seen = Seen::default();
            let shown = view.show_mapped(&span(number), from_bytes, to_bytes, &mut seen).unwrap();
            assert_eq!(shown, to_bytes - from_bytes);
            let place = |at| (OFFSET_BYTES + at) as usize;
            let there = &files[number].1[place(from_bytes)..place(to_bytes)];
            assert!(seen.all == there, "{from_bytes} to {to_bytes} of {number}");
            assert_eq!(seen.mapped, shown);
            let window = view
                .window
                .as_ref()
                .map(|shown| shown.from_bytes..shown.from_bytes + shown.window.len_bytes() as u64);
            assert_eq!(window, window_bytes, "{from_bytes} to {to_bytes} of {number}");
        }
        view.let_go();
        assert!(view.window.is_none());
    }

    #[test]
    fn what_is_behind_the_end_of_a_file_is_not_shown() {
        const OFFSET_BYTES: u64 = 5003;
        let (file, content) = file_of(105_003, 0);
        let content = &content[OFFSET_BYTES as usize..];
        let span = FileSpan { offset_bytes: OFFSET_BYTES, ..span_of(&file, 200_000) };
        for (from_bytes, to_bytes, there_bytes) in [
            (0, 100_000, 100_000),
            (0, 100_001, 100_000),
            (99_999, 150_000, 1),
            (100_000, 100_001, 0),
        ] {
            let (mut view, mut seen) = (TapView::new(BUFFER_BYTES), Seen::default());
            let shown = view.show_mapped(&span, from_bytes, to_bytes, &mut seen).unwrap();
            assert_eq!(shown, there_bytes, "{from_bytes} to {to_bytes}");
            let from = from_bytes as usize;
            assert!(seen.all == content[from..from + there_bytes as usize]);
        }
        let mut view = TapView::new(BUFFER_BYTES);
        view.show_mapped(&span, 0, 50_000, &mut Seen::default()).unwrap();
        let window = view.window.as_ref().map(|shown| shown.window.len_bytes());
        assert_eq!(window, Some(100_000), "a window ends with the file");
    }

    /// Touches every byte of a file that was cut, and then makes it as long as it was.
    struct Regrows(Sum, File);

    impl SpanTap for Regrows {
        fn see(&mut self, bytes: &[u8]) {
            self.0.see(bytes);
            self.1.set_len(2 << 20).unwrap();
        }
    }

    /// The tap saw zeros where the file had other bytes by the time of its end.
    #[test]
    fn a_file_that_is_whole_again_when_it_is_read_once_more_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 << 20).unwrap();
        let span = span_of(&file, 2 << 20);
        let mut view = TapView::new(BUFFER_BYTES);
        view.show_mapped(&span, 0, 4096, &mut Sum::default()).unwrap();
        file.set_len(4096).unwrap();
        let mut tap = Regrows(Sum::default(), file);
        assert!(view.show_mapped(&span, 4096, 1 << 20, &mut tap).is_err());
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
