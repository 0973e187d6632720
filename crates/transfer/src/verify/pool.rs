//! Threads that read files for `haul verify`: a file each, and large files together.

use super::{VerifiedFile, VerifyStatus};
use crate::{
    content::{FileContent, Part},
    locks::{Lock, lock, rank},
    manifest::line::Line,
    name::Name,
    storage::{
        hidden_names::part_name,
        read_back::{BLOCK_BYTES, ReadBack, WayBytes},
        root::{os_path, split_last},
    },
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer, choose};
use haul_protocol::{SpanGrid, SpanIndex};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use std::{
    collections::VecDeque,
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
};

/// Outcome of a line.
pub type Outcome = VerifiedFile;

/// Most lines that wait for a thread.
const LINES_MAX: usize = 256;
/// Bytes of a part in which a larger file is read.
const PART_BYTES: u64 = 16 << 20;

enum Job {
    File(Line),
    Large(Arc<Large>),
}

/// A file that is read by all threads.
struct Large {
    line: Line,
    read_back: ReadBack,
    before: Stat,
    state: Lock<LargeState>,
}

struct LargeState {
    content: FileContent,
    next: u32,
    /// Number of parts that are not read to their end.
    left: u32,
    failed: Option<io::Error>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Number of threads at work, each of which may find a large file.
    busy: usize,
    ended: bool,
}

pub struct Pool {
    directory: PathBuf,
    queue: Lock<Queue, rank::Queue>,
    changed: Condvar,
    results: Sender<Outcome>,
    stopping: AtomicBool,
    pub read: WayBytes,
}

impl Pool {
    pub fn new(directory: PathBuf, results: Sender<Outcome>) -> Self {
        Self {
            directory,
            queue: Lock::default(),
            changed: Condvar::new(),
            results,
            stopping: AtomicBool::new(false),
            read: WayBytes::default(),
        }
    }

    pub fn has_room(&self) -> bool {
        lock(&self.queue).jobs.len() < LINES_MAX
    }

    pub fn give(&self, line: Line) {
        lock(&self.queue).jobs.push_back(Job::File(line));
        self.changed.notify_one();
    }

    /// Notes that no line follows; with `at_once` those that wait are left.
    pub fn end(&self, at_once: bool) {
        if at_once {
            self.stopping.store(true, Ordering::Relaxed);
        }
        let mut queue = lock(&self.queue);
        queue.ended = true;
        if at_once {
            queue.jobs.clear();
        }
        self.changed.notify_all();
    }

    /// Reads files until there are no more, as a thread of the pool.
    pub fn work(&self) {
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        while let Some((job, part)) = self.next() {
            match job {
                Job::File(line) => self.read_file(line, &mut buffer),
                Job::Large(large) => self.read_part(&large, part, &mut buffer),
            }
            lock(&self.queue).busy -= 1;
            self.changed.notify_all();
        }
    }

    /// Takes what to do next, and which part of a large file.
    fn next(&self) -> Option<(Job, SpanIndex)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(Job::Large(large)) = queue.jobs.front() {
                let large = large.clone();
                let mut state = lock(&large.state);
                let part = SpanIndex(state.next);
                state.next += 1;
                let is_last = state.next == state.content.grid().count();
                drop(state);
                if is_last {
                    queue.jobs.pop_front();
                }
                queue.busy += 1;
                return Some((Job::Large(large), part));
            }
            if let Some(job) = queue.jobs.pop_front() {
                queue.busy += 1;
                return Some((job, SpanIndex(0)));
            }
            if queue.ended && queue.busy == 0 {
                return None;
            }
            queue = queue.wait(&self.changed);
        }
    }

    fn read_file(&self, line: Line, buffer: &mut AlignedBuffer) {
        let (file, before) = match self.open(&line) {
            Ok(opened) => opened,
            Err(error) => {
                let missing =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                if missing {
                    return self.tell(&line, VerifyStatus::Missing, 0, self.unfinished(&line));
                }
                return self.tell(&line, VerifyStatus::Unreadable, 0, Some(error));
            }
        };
        let size_bytes = u64::try_from(before.st_size).unwrap_or(0);
        let span_bytes = choose::span_bytes(size_bytes, Some(PART_BYTES));
        let grid = SpanGrid::new(size_bytes, span_bytes).map_err(|e| io::Error::other(e.what));
        let read_back = ReadBack::new(Arc::new(SpanFile::new(file)));
        match grid {
            Err(error) => self.tell(&line, VerifyStatus::Unreadable, size_bytes, Some(error)),
            Ok(grid) if grid.count() <= 1 => {
                let read = self.hash(&read_back, (0, size_bytes), Part::WholeFile, buffer);
                let hash = read.map(Some);
                self.judge(&line, &read_back, &before, hash);
            }
            Ok(grid) => {
                let content = FileContent::new(grid);
                let state = LargeState { content, next: 0, left: grid.count(), failed: None };
                let large = Large { line, read_back, before, state: Lock::new(state) };
                lock(&self.queue).jobs.push_front(Job::Large(Arc::new(large)));
            }
        }
    }

    fn read_part(&self, large: &Large, part: SpanIndex, buffer: &mut AlignedBuffer) {
        let range = lock(&large.state).content.grid().range(part);
        let has_failed = lock(&large.state).failed.is_some();
        let read = if has_failed {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            self.hash(&large.read_back, range, Part::OfMore, buffer)
        };
        let mut state = lock(&large.state);
        state.left -= 1;
        match read {
            Ok(value) => state.content.insert(part, value),
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        if state.left == 0 {
            let hash = match state.failed.take() {
                Some(error) => Err(error),
                None => Ok(state.content.hash()),
            };
            drop(state);
            self.judge(&large.line, &large.read_back, &large.before, hash);
        }
    }

    /// Reason why a file is missing, where a transfer of it broke off.
    fn unfinished(&self, line: &Line) -> Option<io::Error> {
        let (parent, last) = split_last(&line.name);
        let part = self.directory.join(os_path(parent)).join(os_path(&part_name(last)));
        let why = "unfinished: its temporary is there; the same push or pull goes on";
        part.symlink_metadata().is_ok().then(|| io::Error::other(why))
    }

    fn open(&self, line: &Line) -> io::Result<(File, Stat)> {
        // A FIFO of that name would otherwise hold this call up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = self.directory.join(os_path(&line.name));
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok((file, stat))
    }

    fn hash(
        &self,
        read_back: &ReadBack,
        (offset, len): (u64, u64),
        part: Part,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<crate::content::Value> {
        let mut seen = |bytes| {
            self.read.add(read_back.way(), bytes);
            !self.stopping.load(Ordering::Relaxed)
        };
        read_back.hash(offset, len, part, buffer, &mut seen)
    }

    fn judge(
        &self,
        line: &Line,
        read_back: &ReadBack,
        before: &Stat,
        hash: io::Result<Option<crate::content::Value>>,
    ) {
        let size_bytes = u64::try_from(before.st_size).unwrap_or(0);
        let (status, why) = match hash {
            Ok(hash) if hash == Some(line.hash) => (VerifyStatus::Ok, None),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                (VerifyStatus::Unreadable, Some(error))
            }
            _ => {
                let touched = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
                let now = fstat(read_back.file());
                let same = now.is_ok_and(|now| touched(&now) == touched(before));
                let why = || io::Error::other("it was written to while it was read");
                (VerifyStatus::Differs, (!same).then(why))
            }
        };
        self.tell(line, status, size_bytes, why);
    }

    fn tell(&self, line: &Line, status: VerifyStatus, bytes: u64, why: Option<io::Error>) {
        let why = why.map_or(String::new(), |error| error.to_string());
        // Nobody listens any more after Ctrl-C.
        let path = Name(line.name.clone());
        let _ = self.results.send(VerifiedFile { path, status, bytes, why });
    }
}
