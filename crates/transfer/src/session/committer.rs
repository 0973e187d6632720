//! Makes what arrived durable: syncs and journals about once a second, and commits whole files.
//!
//! One thread a session, beside the streams, so that no stream ever waits for a sync.

use super::{lock, streams::elapsed_ns};
use crate::storage::target::TargetFile;
use haul_host::{FileSystem, FsKind};
use haul_protocol::{
    FileId, SpanIndex,
    wire::{Fault, SpanRange},
};
use rustix::fs::{fstat, syncfs};
use std::{
    collections::{BTreeMap, VecDeque, btree_map},
    fs::File,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long verified spans wait before they are synced and journaled.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// From this many files on, one sync of the file system costs less than one of each file.
const GROUP_MIN: usize = 4;

/// A target shared by streams, committer and session.
pub type SharedTarget = Arc<Mutex<Option<TargetFile>>>;

/// What a committer did, for the session's thread.
#[derive(Debug)]
pub enum Committed {
    Done(FileId),
    /// The sync, or putting it under its name, failed.
    Failed(FileId, Fault),
}

#[derive(Debug, Default)]
struct Undurable {
    target: Option<SharedTarget>,
    spans: Vec<SpanIndex>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Queue {
    undurable: BTreeMap<FileId, Undurable>,
    commits: VecDeque<FileId>,
    /// To be let go of, and whether what is there stays for a resume.
    given_up: Vec<(SharedTarget, bool)>,
    ending: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    results: Mutex<Vec<Committed>>,
    durable_bytes: AtomicU64,
    sync_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

pub struct Committer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread; `wake` is called when there are results.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = thread::Builder::new()
            .name("haul-committer".into())
            .spawn(move || of_thread.run(&wake))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    #[must_use]
    pub fn handle(&self) -> CommitterHandle {
        CommitterHandle(self.shared.clone())
    }

    /// Ends the thread; what is verified by then is synced and journaled first.
    pub fn stop(&mut self) {
        lock(&self.shared.queue).ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Clone)]
pub struct CommitterHandle(Arc<Shared>);

impl CommitterHandle {
    /// A span is written and verified; it is durable after the next checkpoint.
    pub fn verified(&self, file: FileId, target: &SharedTarget, span: SpanIndex, bytes: u64) {
        let mut queue = lock(&self.0.queue);
        let entry = queue.undurable.entry(file).or_default();
        entry.target.get_or_insert_with(|| target.clone());
        entry.spans.push(span);
        entry.bytes += bytes;
    }

    /// All spans are verified and the source is confirmed: put it under its name.
    pub fn commit(&self, file: FileId, target: &SharedTarget) {
        let mut queue = lock(&self.0.queue);
        queue.undurable.entry(file).or_default().target.get_or_insert_with(|| target.clone());
        queue.commits.push_back(file);
        self.0.changed.notify_all();
    }

    /// The file is given up: its spans wait for nothing any more. Letting go of the target waits
    /// for a sync of it that may be under way, so the committer does that.
    pub fn give_up(&self, file: FileId, target: Option<SharedTarget>, keep: bool) {
        let mut queue = lock(&self.0.queue);
        queue.undurable.remove(&file);
        queue.given_up.extend(target.map(|target| (target, keep)));
        self.0.changed.notify_all();
    }

    #[must_use]
    pub fn take_results(&self) -> Vec<Committed> {
        std::mem::take(&mut *lock(&self.0.results))
    }

    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.0.durable_bytes.load(Ordering::Relaxed)
    }

    /// Wall time in syncs and renames, and processor time, in nanoseconds.
    #[must_use]
    pub fn costs_ns(&self) -> (u64, u64) {
        (self.0.sync_ns.load(Ordering::Relaxed), self.0.cpu_ns.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn run(&self, wake: &dyn Fn()) {
        let mut checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
        let mut named = Vec::new();
        loop {
            let (commits, ending) = self.wait_until(checkpoint_at, &named);
            self.let_go();
            if !commits.is_empty() || !named.is_empty() {
                named = self.commit(&commits, named);
            }
            if ending || Instant::now() >= checkpoint_at {
                self.checkpoint();
                checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
            }
            self.cpu_ns.store(super::streams::thread_cpu_ns(), Ordering::Relaxed);
            if !lock(&self.results).is_empty() {
                wake();
            }
            if ending && named.is_empty() {
                return;
            }
        }
    }

    /// Waits for something to do; not at all when files stand under names that are not durable.
    fn wait_until(&self, deadline: Instant, named: &[Entry]) -> (VecDeque<FileId>, bool) {
        let mut queue = lock(&self.queue);
        let waits =
            |queue: &Queue| queue.commits.is_empty() && queue.given_up.is_empty() && !queue.ending;
        while named.is_empty() && waits(&queue) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = self
                .changed
                .wait_timeout(queue, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        (std::mem::take(&mut queue.commits), queue.ending)
    }

    fn let_go(&self) {
        for (target, keep) in std::mem::take(&mut lock(&self.queue).given_up) {
            if let Some(target) = lock(&target).take() {
                target.give_up(keep);
            }
        }
    }

    /// Puts files under their names, all of them one step at a time, so that many share a sync:
    /// that of their content is also that of the names of those before them. Returns the files
    /// whose names are not durable yet.
    fn commit(&self, files: &VecDeque<FileId>, mut named: Vec<Entry>) -> Vec<Entry> {
        let begun = Instant::now();
        let mut batch: Vec<Entry> = files.iter().filter_map(|file| self.take(*file)).collect();
        self.each(&mut batch, TargetFile::seal);
        let grouped = batch.len() + named.len() >= GROUP_MIN;
        if !(grouped && sync_file_systems(batch.iter().chain(&named))) {
            self.each(&mut batch, TargetFile::sync);
            self.each(&mut named, |target| target.sync_directory());
        }
        self.each(&mut batch, TargetFile::publish);
        self.sync_ns.fetch_add(elapsed_ns(begun), Ordering::Relaxed);
        for entry in named {
            self.durable_bytes.fetch_add(entry.bytes, Ordering::Relaxed);
            lock(&self.results).push(Committed::Done(entry.file));
        }
        batch
    }

    fn take(&self, file: FileId) -> Option<Entry> {
        let undurable = lock(&self.queue).undurable.remove(&file)?;
        Some(Entry { file, target: undurable.target?, bytes: undurable.bytes })
    }

    /// One step for all; whose step fails is out.
    fn each(
        &self,
        batch: &mut Vec<Entry>,
        mut step: impl FnMut(&mut TargetFile) -> Result<(), Fault>,
    ) {
        batch.retain(|entry| {
            // Given up meanwhile: the session knows.
            let Some(result) = lock(&entry.target).as_mut().map(&mut step) else { return false };
            if let Err(fault) = result {
                lock(&self.results).push(Committed::Failed(entry.file, fault));
                return false;
            }
            true
        });
    }

    fn checkpoint(&self) {
        let files: Vec<FileId> = {
            let queue = lock(&self.queue);
            let waiting = queue.undurable.iter().filter(|(_, entry)| !entry.spans.is_empty());
            waiting.map(|(file, _)| *file).collect()
        };
        for file in files {
            let (target, mut spans, bytes) = {
                let mut queue = lock(&self.queue);
                let Some(entry) = queue.undurable.get_mut(&file) else { continue };
                let spans = std::mem::take(&mut entry.spans);
                (entry.target.clone(), spans, std::mem::take(&mut entry.bytes))
            };
            spans.sort_unstable();
            let begun = Instant::now();
            let result =
                target.and_then(|t| lock(&t).as_mut().map(|t| t.make_durable(&ranges_of(&spans))));
            self.sync_ns.fetch_add(elapsed_ns(begun), Ordering::Relaxed);
            match result {
                Some(Ok(())) => {
                    self.durable_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Some(Err(fault)) => {
                    lock(&self.queue).undurable.remove(&file);
                    lock(&self.results).push(Committed::Failed(file, fault));
                }
                // Given up meanwhile; a stream may have told of another span of it since.
                None => {
                    lock(&self.queue).undurable.remove(&file);
                }
            }
        }
    }
}

/// A file on its way to its name.
struct Entry {
    file: FileId,
    target: SharedTarget,
    bytes: u64,
}

/// True when every file system that these files, directories and links are on is synced whole
/// (syncfs(2)): there may be others mounted below the root.
///
/// Only where that is known to write everything out: on a FUSE file system it may do nothing.
fn sync_file_systems<'entry>(entries: impl Iterator<Item = &'entry Entry>) -> bool {
    let mut systems = BTreeMap::new();
    for entry in entries {
        let found = lock(&entry.target).as_ref().map_or(Ok(()), |target| {
            target.each_directory(|directory| {
                if let btree_map::Entry::Vacant(new) = systems.entry(fstat(directory)?.st_dev) {
                    new.insert(File::from(directory.try_clone_to_owned()?));
                }
                Ok(())
            })
        });
        if found.is_err() {
            return false;
        }
    }
    systems.values().all(|directory| {
        let kind = FileSystem::of(directory).map(|system| system.kind);
        matches!(kind, Ok(FsKind::Ext | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs | FsKind::Tmpfs))
            && syncfs(directory).is_ok()
    })
}

/// Sorted spans as runs.
fn ranges_of(spans: &[SpanIndex]) -> Vec<SpanRange> {
    let mut ranges: Vec<SpanRange> = Vec::new();
    for span in spans {
        match ranges.last_mut() {
            Some(last) if last.first + last.count == span.0 => last.count += 1,
            _ => ranges.push(SpanRange { first: span.0, count: 1 }),
        }
    }
    ranges
}
