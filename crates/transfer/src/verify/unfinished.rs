//! Comparison of an unfinished transfer (`haul verify`): its temporary against its journal.
//!
//! A journal tells which spans are durable, and by digests what they hold: XXH3-128 of each, or
//! BLAKE3 where the transfer computed that, for `--manifest` (of a pull) or `--verify-target`.

use super::{Run, VerifiedFile, VerifyReport, VerifyRequest, VerifyStatus};
use crate::{
    Interrupt,
    content::FileContent,
    error::{TransferError, problem},
    locks::{Lock, lock},
    name::Name,
    storage::{
        hidden_names::part_of_journal,
        journal::{Told, decode_any, is_journal},
        read_back::{BLOCK_BYTES, ReadBack, WayBytes},
        root::os_path,
    },
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer};
use haul_protocol::{ProtocolError, SpanGrid, SpanIndex, SpanSet};
use rustix::{
    fs::{Mode, OFlags, fstat},
    io::Errno,
};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Report on how far the transfer came, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnfinishedReport {
    /// Length of the whole file.
    pub size_bytes: u64,
    /// Bytes from which the same command goes on.
    pub durable_bytes: u64,
    /// Durable bytes with a digest in the journal: they were read and compared.
    pub compared_bytes: u64,
}

/// Whether the file at `path` is no manifest but a journal.
pub fn is_one(path: &Path) -> bool {
    let mut begin = [0; 8];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && is_journal(&begin)
}

struct Found {
    path: PathBuf,
    read_back: ReadBack,
    grid: SpanGrid,
    told: Told,
}

impl Found {
    /// Durable spans of which the journal has a digest.
    fn known(&self) -> SpanSet {
        let mut unknown = self.told.durable.clone();
        unknown.subtract(self.told.content.known());
        unknown.subtract(self.told.digests.known());
        let mut known = self.told.durable.clone();
        known.subtract(&unknown);
        known
    }

    /// Whether a span holds what the journal says; `seen` as in [`ReadBack::hash`].
    fn is_same(
        &self,
        span: SpanIndex,
        buffer: &mut AlignedBuffer,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<bool> {
        let (offset, len) = self.grid.range(span);
        let content: &FileContent = &self.told.content;
        if let Some(value) = content.value(span) {
            let hash = self.read_back.hash(offset, len, content.part(), buffer, seen)?;
            return Ok(hash == value);
        }
        let digest = self.read_back.digest(offset, len, buffer, seen)?;
        Ok(self.told.digests.get(span) == Some(digest))
    }
}

/// Compares the temporary with the journal.
pub(super) fn verify(
    request: &VerifyRequest,
    run: Run<'_>,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<VerifyReport, TransferError> {
    let found = open(&request.manifest)
        .map_err(|found| TransferError::start(cannot(&request.manifest, &found)))?;
    let mut run = run;
    run.report.files = 1;
    let (bad, read) = read(&found, threads, interrupt);
    if interrupt.load(Ordering::Relaxed) {
        return Err(TransferError::interrupted());
    }
    let durable_bytes = found.told.durable.bytes(&found.grid);
    let compared_bytes = found.known().bytes(&found.grid);
    let (status, why) = match bad {
        Some((span, None)) => {
            let (offset, len) = found.grid.range(span);
            let why = format!("other bytes within {len} bytes from byte {offset} on");
            (VerifyStatus::Differs, why)
        }
        Some((_, Some(error))) => (VerifyStatus::Unreadable, error.to_string()),
        None if compared_bytes < durable_bytes => {
            let why = "the journal has no digest of some durable spans: an older version wrote \
                       it, or the spans were made smaller since";
            (VerifyStatus::Unknown, why.to_owned())
        }
        None => (VerifyStatus::Ok, String::new()),
    };
    let path = Name(found.path.as_os_str().as_bytes().to_vec());
    run.count(VerifiedFile { path, status, bytes: compared_bytes, why });
    let size_bytes = found.grid.size_bytes();
    let unfinished = UnfinishedReport { size_bytes, durable_bytes, compared_bytes };
    Ok(VerifyReport { unfinished: Some(unfinished), ..run.finish(&read) })
}

fn cannot(journal: &Path, found: &Unusable) -> crate::problem::Problem {
    let what = format!("cannot verify by the journal {}", journal.display());
    let needs = "a whole journal, and the temporary of the same transfer beside it";
    problem(&what, needs, &found.to_string(), "the same push or pull again uses or removes both")
}

/// Reason why nothing can be verified by a journal.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("a damaged journal")]
    Damaged,
    #[error("a journal under another name than haul gives it")]
    Renamed,
    #[error("{path}: {errno}")]
    Temporary { path: PathBuf, errno: Errno },
    #[error("{0} is another file")]
    AnotherFile(PathBuf),
    #[error("{}", .0.what)]
    Spans(ProtocolError),
}

/// Opens the temporary that the journal speaks of.
fn open(journal: &Path) -> Result<Found, Unusable> {
    let input = BufReader::new(File::open(journal)?);
    let (identity, told) = decode_any(input).ok_or(Unusable::Damaged)?;
    let name = journal.file_name().unwrap_or_default().as_bytes();
    let part = part_of_journal(name).ok_or(Unusable::Renamed)?;
    let path = journal.with_file_name(os_path(&part));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty())
        .map_err(|errno| Unusable::Temporary { path: path.clone(), errno })?;
    let stat = fstat(&file).map_err(io::Error::from)?;
    let is_it = (stat.st_ino, stat.st_dev) == (identity.target_inode, identity.target_device)
        && u64::try_from(stat.st_size) == Ok(identity.size_bytes);
    if !is_it {
        return Err(Unusable::AnotherFile(path));
    }
    let grid = SpanGrid::new(identity.size_bytes, told.span_bytes).map_err(Unusable::Spans)?;
    let read_back = ReadBack::new(Arc::new(SpanFile::new(file.into())));
    Ok(Found { path, read_back, grid, told })
}

/// First span that is not what it was, or the error of the first that cannot be read.
type Bad = Option<(SpanIndex, Option<io::Error>)>;

/// Reads every span that is known.
fn read(found: &Found, threads: usize, interrupt: &Interrupt) -> (Bad, WayBytes) {
    let spans: Vec<SpanIndex> = found.known().iter().collect();
    let (next, bytes) = (AtomicUsize::new(0), WayBytes::default());
    let bad: Lock<Bad> = Lock::new(None);
    let work = || {
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        while let Some(span) = spans.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut seen = |read| {
                bytes.add(found.read_back.way(), read);
                !interrupt.load(Ordering::Relaxed)
            };
            let why = match found.is_same(*span, &mut buffer, &mut seen) {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            let mut first = lock(&bad);
            if first.as_ref().is_none_or(|(before, _)| span < before) {
                *first = Some((*span, why));
            }
            if interrupt.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let bad = bad.into_inner();
    (bad, bytes)
}
