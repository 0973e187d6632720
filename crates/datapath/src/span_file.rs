//! A file as engines see it: buffered, with O_DIRECT on demand, repeating, or a sink.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
};

use rustix::{
    fs::{MemfdFlags, Mode, OFlags},
    io::Errno,
};

/// An open file that spans lie in.
#[derive(Debug)]
pub struct SpanFile {
    file: File,
    kind: Kind,
    /// Place in the file where the bytes that are moved begin.
    base_bytes: u64,
    /// The file opened once more with O_DIRECT, or why that cannot be.
    direct: OnceLock<Result<Arc<File>, Errno>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Repeating { window_bytes: u64 },
    Sink,
}

impl SpanFile {
    /// A file opened without O_DIRECT and O_APPEND.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self::of_kind(file, Kind::Plain)
    }

    /// The bytes from `base_bytes` on of a file opened without O_DIRECT and O_APPEND: spans are
    /// counted from there, by [`SpanFile::place`].
    #[must_use]
    pub fn from_place(file: File, base_bytes: u64) -> Self {
        Self { base_bytes, ..Self::new(file) }
    }

    /// A file without end, whose first `window_bytes` come again and again.
    ///
    /// # Panics
    /// If the window is empty.
    #[must_use]
    pub fn repeating(file: File, window_bytes: u64) -> Self {
        assert!(window_bytes > 0, "an empty window repeats nothing");
        Self::of_kind(file, Kind::Repeating { window_bytes })
    }

    /// An endless file of zeros: the source `zero:SIZE`. Its window is in memory.
    ///
    /// # Errors
    /// What memfd_create(2) and ftruncate(2) say.
    pub fn zeros() -> io::Result<Self> {
        /// Bytes of the window: as much as one call moves; small beside the processor's cache.
        const WINDOW_BYTES: u64 = 1 << 20;
        let window = File::from(rustix::fs::memfd_create("zeros", MemfdFlags::CLOEXEC)?);
        // Allocated, because a hole costs a lookup and a page of zeros for every read.
        rustix::fs::fallocate(&window, rustix::fs::FallocateFlags::empty(), 0, WINDOW_BYTES)?;
        Ok(Self::repeating(window, WINDOW_BYTES))
    }

    /// The target `null:`, which keeps nothing; below it is /dev/null, so that any engine that
    /// only writes can serve it.
    ///
    /// # Errors
    /// If /dev/null cannot be opened.
    pub fn sink() -> io::Result<Self> {
        let file = File::options().write(true).open("/dev/null")?;
        Ok(Self::of_kind(file, Kind::Sink))
    }

    fn of_kind(file: File, kind: Kind) -> Self {
        Self { file, kind, base_bytes: 0, direct: OnceLock::new() }
    }

    /// The file as it was opened; of a repeating one its window.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The place in the file of a byte that is counted from where the moved bytes begin.
    #[must_use]
    pub fn place(&self, offset_bytes: u64) -> u64 {
        self.base_bytes + offset_bytes
    }

    #[must_use]
    pub fn is_sink(&self) -> bool {
        self.kind == Kind::Sink
    }

    #[must_use]
    pub fn is_repeating(&self) -> bool {
        matches!(self.kind, Kind::Repeating { .. })
    }

    /// Whether bytes can be read back: the file was opened for reading too.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.file);
        flags.is_ok_and(|flags| (flags & OFlags::ACCMODE) != OFlags::WRONLY)
    }

    /// The place in [`SpanFile::file`] of the bytes at `offset_bytes`, and how many of `len_bytes`
    /// lie there in one piece: all of them but in a repeating file.
    #[must_use]
    pub fn run_at(&self, offset_bytes: u64, len_bytes: u64) -> (u64, u64) {
        match self.kind {
            Kind::Plain | Kind::Sink => (offset_bytes, len_bytes),
            Kind::Repeating { window_bytes } => {
                let offset_bytes = offset_bytes % window_bytes;
                (offset_bytes, len_bytes.min(window_bytes - offset_bytes))
            }
        }
    }

    /// Opens this file once more with O_DIRECT, with the rights that it has.
    ///
    /// # Errors
    /// EINVAL where the file system has no O_DIRECT, ENOENT without /proc, EACCES where the file
    /// may not be opened again, EOPNOTSUPP for repeating files and sinks: no disk is below them.
    pub fn direct(&self) -> io::Result<&Arc<File>> {
        self.direct.get_or_init(|| self.open_direct()).as_ref().map_err(|errno| (*errno).into())
    }

    fn open_direct(&self) -> Result<Arc<File>, Errno> {
        if self.kind != Kind::Plain {
            return Err(Errno::OPNOTSUPP);
        }
        let rights = rustix::fs::fcntl_getfl(&self.file)? & OFlags::ACCMODE;
        // Opening the link opens the very file, even one that has lost its name (proc(5)).
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = rights.union(OFlags::DIRECT).union(OFlags::CLOEXEC);
        Ok(Arc::new(File::from(rustix::fs::open(link, flags, Mode::empty())?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_repeating_file_ends_at_the_windows_end() {
        let file = SpanFile::repeating(tempfile::tempfile().unwrap(), 100);
        assert_eq!(file.run_at(0, 1000), (0, 100));
        assert_eq!(file.run_at(230, 1000), (30, 70));
        assert_eq!(file.run_at(230, 7), (30, 7));
        assert_eq!(SpanFile::new(tempfile::tempfile().unwrap()).run_at(230, 1000), (230, 1000));
    }

    #[test]
    fn a_file_without_a_name_is_opened_directly() {
        use std::os::unix::fs::FileExt;
        let file = SpanFile::new(tempfile::tempfile_in(".").unwrap());
        file.file().write_all_at(&[7; 8192], 0).unwrap();
        match file.direct() {
            Ok(direct) => assert_eq!(direct.metadata().unwrap().len(), 8192),
            Err(error) => haul_testkit::skip::skip("O_DIRECT", error.to_string()),
        }
    }

    #[test]
    fn neither_a_repeating_file_nor_a_sink_has_a_disk() {
        for (file, is_repeating) in
            [(SpanFile::zeros().unwrap(), true), (SpanFile::sink().unwrap(), false)]
        {
            assert_eq!(file.direct().unwrap_err().raw_os_error(), Some(95));
            assert_eq!((file.is_repeating(), file.is_sink()), (is_repeating, !is_repeating));
        }
    }

    #[test]
    fn a_file_says_whether_it_can_be_read_back() {
        assert!(SpanFile::new(tempfile::tempfile().unwrap()).is_readable());
        assert!(!SpanFile::sink().unwrap().is_readable());
    }
}
