//! Reads of a file from its disk, not from the page cache. They show what is there now, and not
//! what was written.
//!
//! By O_DIRECT where the file system has it. Elsewhere what is in the page cache is written out and
//! dropped (posix_fadvise(2), POSIX_FADV_DONTNEED) before it is read, and dropped again afterwards.
//! Pages that another process has mapped stay; a file system without a disk, as tmpfs, has nothing
//! else to read from; and what lies below the file system may have a cache of its own.

use super::span_digests::{Digest, DigestOfSpan};
use crate::content::{Part, SpanHasher, Value};
use haul_datapath::{
    SpanFile,
    aligned_buffer::{ALIGN_BYTES, AlignedBuffer},
};
use haul_host::{FileSystem, FsKind};
use rustix::{
    fs::{Advice, Mode, OFlags, fadvise},
    io::Errno,
};
use std::{
    fs::File,
    io,
    num::NonZeroU64,
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes that are read at a time: enough for a disk to be busy, little enough to stay in a
/// processor's cache.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Way in which a file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    /// The file was read through the page cache, which was told to forget it before.
    Dropped,
    /// The file is on tmpfs, with no disk below.
    Memory,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Direct, Self::Dropped, Self::Memory];
}

/// Number of bytes that were read in each way.
#[derive(Debug, Default)]
pub struct WayBytes([AtomicU64; Way::ALL.len()]);

impl WayBytes {
    pub fn add(&self, way: Way, bytes: u64) {
        self.0[way as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn of(&self, way: Way) -> u64 {
        self.0[way as usize].load(Ordering::Relaxed)
    }

    pub fn sum(&self) -> u64 {
        Way::ALL.iter().map(|way| self.of(*way)).sum()
    }
}

/// A file that is read from its disk. Several threads may read parts of it.
#[derive(Debug)]
pub struct ReadBack {
    file: Arc<SpanFile>,
    direct: Option<File>,
    in_memory: bool,
    /// Whether the file system took O_DIRECT and then refused to read so.
    refused: AtomicBool,
}

impl ReadBack {
    /// Opens the file once more, where its file system has O_DIRECT: for reading only, as its mode
    /// may not let it be opened for writing any more.
    #[must_use]
    pub fn new(file: Arc<SpanFile>) -> Self {
        // Opening the link opens the very file, even one that has no name (proc(5)).
        let link = format!("/proc/self/fd/{}", file.file().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        // tmpfs takes O_DIRECT and has nothing to read from but its memory (Linux 6.6).
        let kind = FileSystem::of(file.file()).map(|system| system.kind);
        let in_memory = matches!(kind, Ok(FsKind::Tmpfs));
        let direct = rustix::fs::open(link, flags, Mode::empty()).ok().map(File::from);
        if direct.is_none() {
            // Only what is on the disk can be dropped. Where it may not be synced it is clean.
            let _ = file.file().sync_data();
        }
        Self { file, direct, in_memory, refused: AtomicBool::new(false) }
    }

    #[must_use]
    pub fn file(&self) -> &File {
        self.file.file()
    }

    #[must_use]
    pub fn way(&self) -> Way {
        match self.by_direct() {
            _ if self.in_memory => Way::Memory,
            Some(_) => Way::Direct,
            None => Way::Dropped,
        }
    }

    fn by_direct(&self) -> Option<&File> {
        self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    /// Value of a part that begins at a multiple of [`ALIGN_BYTES`]; `seen` is told how many bytes
    /// were read, and says whether to go on.
    ///
    /// # Errors
    /// What reading says; UnexpectedEof where the file ends before; Interrupted when `seen` said
    /// so.
    pub fn hash(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        part: Part,
        buffer: &mut AlignedBuffer,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Value> {
        let mut hasher = SpanHasher::default();
        hasher.start(offset_bytes);
        self.each(offset_bytes, len_bytes, buffer, seen, &mut |bytes| hasher.update(bytes))?;
        Ok(hasher.finish(part))
    }

    /// Whether a part is all zeros; `seen` is as in [`Self::hash`].
    ///
    /// # Errors
    /// As [`Self::hash`].
    pub fn is_zeros(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        buffer: &mut AlignedBuffer,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<bool> {
        let mut zeros = true;
        let mut look = |bytes: &[u8]| zeros &= bytes.iter().all(|byte| *byte == 0);
        self.each(offset_bytes, len_bytes, buffer, seen, &mut look)?;
        Ok(zeros)
    }

    /// Digest of a span, for a journal; `seen` is as in [`Self::hash`].
    ///
    /// # Errors
    /// As [`Self::hash`].
    pub fn digest(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        buffer: &mut AlignedBuffer,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Digest> {
        let mut digest = DigestOfSpan::default();
        self.each(offset_bytes, len_bytes, buffer, seen, &mut |bytes| digest.update(bytes))?;
        Ok(digest.finish())
    }

    fn each(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        buffer: &mut AlignedBuffer,
        seen: &mut dyn FnMut(u64) -> bool,
        look: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len_bytes {
            let wanted = (len_bytes - done).min(BLOCK_BYTES as u64) as usize;
            let got = self.read(offset_bytes + done, wanted, buffer)?;
            look(&buffer.bytes()[..got]);
            done += got as u64;
            if got < wanted {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends early"));
            }
            if !seen(got as u64) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Reads up to `wanted` bytes; fewer only at the end of the file.
    fn read(&self, offset: u64, wanted: usize, buffer: &mut AlignedBuffer) -> io::Result<usize> {
        let offset = self.file.place(offset);
        if let Some(direct) = self.by_direct() {
            let whole = wanted.next_multiple_of(ALIGN_BYTES as usize);
            match read_full(direct, offset, &mut buffer.bytes_mut()[..whole], ALIGN_BYTES) {
                Ok(got) => return Ok(got.min(wanted)),
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    self.refused.store(true, Ordering::Relaxed);
                    let _ = self.file().sync_data();
                }
                Err(error) => return Err(error),
            }
        }
        self.forget(offset, wanted);
        let got = read_full(self.file(), offset, &mut buffer.bytes_mut()[..wanted], 1)?;
        self.forget(offset, wanted);
        Ok(got)
    }

    fn forget(&self, offset: u64, len: usize) {
        // A file system that forgets nothing has nothing else to read from.
        let _ = fadvise(self.file(), offset, NonZeroU64::new(len as u64), Advice::DontNeed);
    }
}

/// Reads until the buffer is full or the file ends. With O_DIRECT a read that stopped between
/// multiples of `step` has met the end.
fn read_full(file: &File, offset: u64, buffer: &mut [u8], step: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => {
                got += more;
                if !(got as u64).is_multiple_of(step) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(read_back: &ReadBack, offset: u64, len: u64) -> io::Result<Value> {
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        read_back.hash(offset, len, Part::WholeFile, &mut buffer, &mut |_| true)
    }

    #[test]
    fn both_ways_read_what_is_there_to_the_last_byte() {
        // Beside this crate: where temporary files lie there may be no disk.
        for len in [0, 1, 4095, 4096, 4097, BLOCK_BYTES, 2 * BLOCK_BYTES + 511] {
            let file = tempfile::tempfile_in(".").unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| ((at * 7) >> 4) as u8).collect();
            file.write_all_at(&bytes, 0).unwrap();
            let mut read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
            for direct in [true, false] {
                if !direct {
                    read_back.direct = None;
                    assert_ne!(read_back.way(), Way::Direct);
                }
                let whole = hash_of(&read_back, 0, len as u64).unwrap();
                assert_eq!(whole, *blake3::hash(&bytes).as_bytes(), "{len} bytes, {direct}");
                let beyond = hash_of(&read_back, 0, len as u64 + 1).unwrap_err();
                assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }

    #[test]
    fn reading_stops_when_it_is_told_to() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.set_len(10 * BLOCK_BYTES as u64).unwrap();
        let read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        let (mut buffer, mut seen) = (AlignedBuffer::new(BLOCK_BYTES), 0);
        let mut two = |bytes| {
            seen += bytes;
            seen < 2 * BLOCK_BYTES as u64
        };
        let len = 10 * BLOCK_BYTES as u64;
        let stopped = read_back.hash(0, len, Part::WholeFile, &mut buffer, &mut two).unwrap_err();
        assert_eq!((stopped.kind(), seen), (io::ErrorKind::Interrupted, 2 * BLOCK_BYTES as u64));
    }

    #[test]
    fn a_part_is_read_from_where_it_begins() {
        let file = tempfile::tempfile_in(".").unwrap();
        let block = BLOCK_BYTES as u64;
        let bytes: Vec<u8> =
            (0..3 * BLOCK_BYTES).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let mut read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        for direct in [true, false] {
            let (begin, len) = (ALIGN_BYTES as usize, 2 * BLOCK_BYTES - 77);
            let part = &bytes[begin..begin + len];
            let mut seen = Vec::new();
            let mut see = |bytes| {
                seen.push(bytes);
                true
            };
            let digest = read_back.digest(begin as u64, len as u64, &mut buffer, &mut see).unwrap();
            assert_eq!(seen, [block, block - 77]);
            assert_eq!(digest, xxhash_rust::xxh3::xxh3_128(part).to_le_bytes(), "{direct}");
            // A subtree begins at a multiple of its size.
            let mut expected = SpanHasher::default();
            expected.start(block);
            expected.update(&bytes[BLOCK_BYTES..2 * BLOCK_BYTES - 77]);
            let value = read_back.hash(block, block - 77, Part::OfMore, &mut buffer, &mut |_| true);
            assert_eq!(value.unwrap(), expected.finish(Part::OfMore));
            read_back.direct = None;
        }
    }

    #[test]
    fn zeros_are_told_from_a_single_other_byte() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.set_len(3 * BLOCK_BYTES as u64).unwrap();
        file.write_all_at(&[1], BLOCK_BYTES as u64 - 1).unwrap();
        let read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let mut is_zeros = |begin: usize, len: usize| {
            read_back.is_zeros(begin as u64, len as u64, &mut buffer, &mut |_| true).unwrap()
        };
        assert!(is_zeros(0, BLOCK_BYTES - 1) && is_zeros(BLOCK_BYTES, 2 * BLOCK_BYTES));
        assert!(!is_zeros(0, BLOCK_BYTES) && !is_zeros(0, 3 * BLOCK_BYTES) && is_zeros(0, 0));
    }

    /// Case of a file system that takes O_DIRECT and refuses to read so.
    #[test]
    fn where_no_disk_can_be_read_directly_the_page_cache_forgets() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.write_all_at(&[7; 9000], 0).unwrap();
        let mut read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        let kind = FileSystem::of(read_back.file()).unwrap().kind;
        if kind == FsKind::Tmpfs {
            return assert_eq!(read_back.way(), Way::Memory);
        }
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        assert_eq!(read_back.read(0, 9000, &mut buffer).unwrap(), 9000);
        if let Some(direct) = &read_back.direct {
            assert!(rustix::fs::fcntl_getfl(direct).unwrap().contains(OFlags::DIRECT));
            assert_eq!(read_back.way(), Way::Direct, "the end is no refusal");
            // Direct reads begin at multiples of a block.
            assert_eq!(read_back.read(1, 9000, &mut buffer).unwrap(), 8999);
            assert_eq!((&buffer.bytes()[..8999], read_back.way()), (&[7; 8999][..], Way::Dropped));
        }
        assert_eq!(read_back.read(0, 9000, &mut buffer).unwrap(), 9000);
        let cached = haul_sys::cachestat::cached_bytes(read_back.file(), 0, 9000);
        if matches!(kind, FsKind::Ext | FsKind::Xfs)
            && let Ok(cached) = cached
        {
            assert_eq!(cached, 0, "it is read from the disk the next time, too");
        }
        let only_written = tempfile::NamedTempFile::new_in(".").unwrap();
        let only_written = File::options().write(true).open(only_written.path()).unwrap();
        read_back.direct = Some(only_written);
        read_back.refused.store(false, Ordering::Relaxed);
        assert!(read_back.read(0, 9000, &mut buffer).is_err(), "another error is one");
    }

    #[test]
    fn a_file_in_memory_has_no_disk_to_be_read_from() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        assert_eq!(read_back.way(), Way::Memory);
        let bytes = WayBytes::default();
        bytes.add(Way::Memory, 5);
        bytes.add(Way::Memory, 2);
        bytes.add(Way::Direct, 9);
        assert_eq!(Way::ALL.map(|way| bytes.of(way)), [9, 0, 7]);
        assert_eq!(bytes.sum(), 16);
    }
}
