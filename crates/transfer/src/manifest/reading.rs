//! Reads of this side's own files for the manifest, as far as a run did not move them.

use super::{Origin, record::Record};
use crate::{
    Interrupt,
    content::{FileContent, SpanHasher, Value},
    locks::{Lock, lock},
};
use haul_datapath::{SpanFile, choose};
use haul_protocol::{SpanGrid, SpanIndex};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Bytes that are read at a time: they stay in a processor's cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Size from which on a file is read by several threads.
const THREADS_FROM_BYTES: u64 = 32 << 20;

/// Hash of the file, and how many bytes were read for it.
///
/// # Errors
/// If the file cannot be read or is not the one that was moved any more.
pub fn complete(
    record: &Record,
    content: Option<&FileContent>,
    origin: &Origin,
    interrupt: &Interrupt,
) -> io::Result<(Value, u64)> {
    let span_bytes = choose::span_bytes(record.size_bytes, None);
    let grid = SpanGrid::new(record.size_bytes, span_bytes).map_err(|e| io::Error::other(e.what));
    let content = match content {
        Some(content) => content.clone(),
        None => FileContent::new(grid?),
    };
    let (path, source) = match origin {
        Origin::Nowhere => return Err(io::Error::other("it was not kept")),
        Origin::Zeros => return read_unknown(content, &SpanFile::zeros()?, interrupt),
        Origin::Source(path) => (path, true),
        Origin::Target(path) => (path, false),
    };
    let file = open(path, source)?;
    let before = fstat(&file)?;
    check(record, &before, source)?;
    let opened = SpanFile::new(file);
    let read = read_unknown(content, &opened, interrupt)?;
    let after = fstat(opened.file())?;
    let touched = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime);
    if touched(&before) != touched(&after) {
        return Err(io::Error::other("it was written to while it was read"));
    }
    Ok(read)
}

fn open(path: &Path, follow: bool) -> io::Result<File> {
    // A FIFO that took the file's place would otherwise hold this call up.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Fails if the file is not what was moved: the source itself, or a target with its size and time.
fn check(record: &Record, stat: &Stat, source: bool) -> io::Result<()> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let has_size = u64::try_from(stat.st_size) == Ok(record.size_bytes);
    // What came from `zero:` has a time of its own.
    let has_time = record.inode == (0, 0)
        || (stat.st_mtime, u32::try_from(stat.st_mtime_nsec))
            == (record.mtime.0, Ok(record.mtime.1));
    let is_it = !source || (stat.st_ino, stat.st_dev) == record.inode;
    if is_file && has_size && has_time && is_it {
        return Ok(());
    }
    Err(io::Error::other("it changed since it was moved"))
}

fn read_unknown(
    mut content: FileContent,
    file: &SpanFile,
    interrupt: &Interrupt,
) -> io::Result<(Value, u64)> {
    let unknown: Vec<SpanIndex> = content.unknown().collect();
    let grid = *content.grid();
    let read_bytes = unknown.iter().map(|span| grid.range(*span).1).sum();
    let threads = if read_bytes < THREADS_FROM_BYTES {
        1
    } else {
        thread::available_parallelism().map_or(1, usize::from).min(unknown.len())
    };
    let next = AtomicUsize::new(0);
    let results: Lock<io::Result<Vec<(SpanIndex, Value)>>> = Lock::new(Ok(Vec::new()));
    let work = || {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Some(span) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
            let value = hash_span(file, &content, *span, &mut buffer, interrupt);
            let mut results = lock(&results);
            match (&mut *results, value) {
                (Ok(values), Ok(value)) => values.push((*span, value)),
                (results, Err(error)) => *results = Err(error),
                (Err(_), _) => {}
            }
            if results.is_err() {
                return;
            }
        }
    };
    if threads == 1 {
        work();
    } else {
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
    let results = results.into_inner();
    results?.into_iter().for_each(|(span, value)| content.insert(span, value));
    let hash = content.hash().ok_or_else(|| io::Error::other("it was not read to its end"))?;
    Ok((hash, read_bytes))
}

fn hash_span(
    file: &SpanFile,
    content: &FileContent,
    span: SpanIndex,
    buffer: &mut [u8],
    interrupt: &Interrupt,
) -> io::Result<Value> {
    let (mut at, len) = content.grid().range(span);
    let end = at + len;
    let mut hasher = SpanHasher::default();
    hasher.start(at);
    while at < end {
        let (offset, some) = file.run_at(at, (end - at).min(buffer.len() as u64));
        match file.file().read_at(&mut buffer[..some as usize], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                hasher.update(&buffer[..got]);
                at += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(hasher.finish(content.part()))
}
