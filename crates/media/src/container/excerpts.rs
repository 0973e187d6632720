//! Parts of a file, read on demand, up to a number of bytes and of reads.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Most bytes read of one file, all reads together.
const READ_BYTES_MAX: usize = 4 << 20;
const READS_MAX: u32 = 256;
/// Most bytes that can be asked for at once.
pub const EXCERPT_BYTES_MAX: usize = 64 << 10;
/// Least bytes read at once, as fields lie near each other.
const WINDOW_BYTES: usize = 4 << 10;

/// Bytes that are read by their place, such as a file.
pub trait ReadAt {
    /// Reads bytes as pread(2): less than the buffer holds at the end, and perhaps before.
    ///
    /// # Errors
    /// Those of the disk.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

pub struct Excerpts<'file> {
    file: &'file dyn ReadAt,
    len_bytes: u64,
    /// Bytes that were read last; `window_at` is where they lie.
    window: Vec<u8>,
    window_at: u64,
    bytes_left: usize,
    reads_left: u32,
}

impl<'file> Excerpts<'file> {
    pub fn new(file: &'file dyn ReadAt, len_bytes: u64) -> Self {
        Self {
            file,
            // The kernel counts a file's bytes in 63 bits: so no place overflows in 64.
            len_bytes: len_bytes.min(i64::MAX as u64),
            window: Vec::new(),
            window_at: 0,
            bytes_left: READ_BYTES_MAX,
            reads_left: READS_MAX,
        }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Reads `count` bytes from `at` on. `None` where the file has fewer, or too much was read
    /// already.
    pub fn get(&mut self, at: u64, count: usize) -> Option<&[u8]> {
        let end = at.checked_add(u64::try_from(count).ok()?)?;
        if end > self.len_bytes || count > EXCERPT_BYTES_MAX {
            return None;
        }
        if !self.holds(at, count) {
            self.load(at, count)?;
        }
        let from = usize::try_from(at - self.window_at).ok()?;
        self.window.get(from..from + count)
    }

    /// Reads bytes at a place, and fewer where the file ends before.
    pub fn get_up_to(&mut self, at: u64, count: usize) -> Option<&[u8]> {
        let there = self.len_bytes.checked_sub(at)?;
        self.get(at, count.min(usize::try_from(there).unwrap_or(usize::MAX)))
    }

    pub fn array<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        self.get(at, N)?.try_into().ok()
    }

    pub fn u32(&mut self, at: u64) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    pub fn u64(&mut self, at: u64) -> Option<u64> {
        self.array(at).map(u64::from_be_bytes)
    }

    fn holds(&self, at: u64, count: usize) -> bool {
        let before = at.checked_sub(self.window_at).and_then(|it| usize::try_from(it).ok());
        before.is_some_and(|it| it.saturating_add(count) <= self.window.len())
    }

    fn load(&mut self, at: u64, count: usize) -> Option<()> {
        let there = usize::try_from(self.len_bytes - at).unwrap_or(usize::MAX);
        let wanted = count.max(WINDOW_BYTES).min(there);
        self.bytes_left = self.bytes_left.checked_sub(wanted)?;
        self.window.resize(wanted, 0);
        self.window_at = at;
        let mut filled = 0;
        while filled < wanted {
            self.reads_left = self.reads_left.checked_sub(1)?;
            let read = self.file.read_at(&mut self.window[filled..], at + filled as u64);
            match read {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) => {
                    filled = 0;
                    break;
                }
            }
        }
        // A file that got shorter since it was measured.
        self.window.truncate(filled);
        (filled >= count).then_some(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::Cell;

    impl ReadAt for [u8] {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = usize::try_from(offset).ok().and_then(|from| self.get(from..));
            let rest = rest.unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    impl ReadAt for Vec<u8> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            ReadAt::read_at(&self[..], buffer, offset)
        }
    }

    /// Bytes that count what is read of them, and as many zeros behind them as one likes.
    pub struct Counted<'bytes> {
        pub bytes: &'bytes [u8],
        pub read_bytes: Cell<usize>,
        pub reads: Cell<u32>,
    }

    impl<'bytes> Counted<'bytes> {
        pub fn new(bytes: &'bytes [u8]) -> Self {
            Self { bytes, read_bytes: Cell::new(0), reads: Cell::new(0) }
        }

        #[track_caller]
        pub fn assert_bounded(&self) {
            assert!(self.read_bytes.get() <= READ_BYTES_MAX, "{} bytes", self.read_bytes.get());
            assert!(self.reads.get() <= READS_MAX, "{} reads", self.reads.get());
        }
    }

    impl ReadAt for Counted<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            buffer.fill(0);
            ReadAt::read_at(self.bytes, buffer, offset)?;
            self.read_bytes.set(self.read_bytes.get() + buffer.len());
            self.reads.set(self.reads.get() + 1);
            Ok(buffer.len())
        }
    }

    #[test]
    fn what_is_near_is_read_once() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let counted = Counted::new(&bytes);
        let mut excerpts = Excerpts::new(&counted, 10_000);
        assert_eq!(excerpts.u32(0), Some(0x0001_0203));
        assert_eq!(excerpts.u64(8), Some(0x0809_0a0b_0c0d_0e0f));
        assert_eq!((counted.reads.get(), counted.read_bytes.get()), (1, WINDOW_BYTES));
        assert_eq!(excerpts.get(9_990, 10), Some(&bytes[9_990..]));
        assert_eq!(excerpts.get_up_to(9_990, 100).map(<[u8]>::len), Some(10));
        assert_eq!(excerpts.get(9_990, 11), None);
        assert_eq!(excerpts.get(u64::MAX, 11), None);
        assert_eq!(excerpts.get_up_to(10_001, 1), None);
        assert_eq!(counted.reads.get(), 2);
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let counted = Counted::new(&[]);
        let mut excerpts = Excerpts::new(&counted, u64::MAX);
        assert_eq!(excerpts.get(0, EXCERPT_BYTES_MAX + 1), None);
        for number in 0..10_000_u64 {
            excerpts.get(number << 20, EXCERPT_BYTES_MAX);
        }
        counted.assert_bounded();
        let mut excerpts = Excerpts::new(&counted, u64::MAX);
        counted.read_bytes.set(0);
        counted.reads.set(0);
        let got = (0..10_000_u64).filter(|number| excerpts.u32(number << 20).is_some()).count();
        assert_eq!(got, READS_MAX as usize);
        counted.assert_bounded();
    }

    #[test]
    fn a_file_that_got_shorter_is_told_from_zeros() {
        let bytes = vec![1_u8; 100];
        let mut excerpts = Excerpts::new(&bytes, 200);
        assert_eq!(excerpts.u32(90), Some(0x0101_0101));
        assert_eq!(excerpts.u32(98), None);
        assert_eq!(excerpts.u32(150), None);
    }
}
