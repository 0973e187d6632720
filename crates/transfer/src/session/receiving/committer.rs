//! Committer of what arrived: syncs and journals about once a second, and commits whole files.
//!
//! Two threads a session, beside the streams, so that no stream ever waits for a sync: one syncs,
//! the other puts what is synced under its name.

mod staged;

pub use staged::staged_max;

use crate::session::{contents::Contents, receiving::target_check::TargetCheck};
use crate::{
    clocks::elapsed_ns,
    locks::{Lock, lock, rank},
    storage::{
        aborted::check_not_aborted, in_place::Looked, journal::Recorded,
        open_files::empty_files_max, root::Root, span_digests::Digest, target::TargetFile,
        temporary::earlier_ranges::EarlierRanges,
    },
};
use haul_host::{FileSystem, FsKind};
use haul_protocol::{
    FileId, SpanIndex,
    message::{Fault, SpanRange},
};
use rustix::fs::syncfs;
use std::{
    collections::{BTreeMap, VecDeque, btree_map},
    fs::File,
    sync::{
        Arc, Condvar,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time that verified spans wait before they are synced and journaled.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// Time, in multiples of the last sync's, in which files that come one after the other are let come
/// together: a sync has a part that does not depend on how many files share it, and holds up who
/// makes new ones. But the longer files wait for one, the more of them are open.
const GATHER_FACTOR: u32 = 2;
const GATHER_MAX: Duration = Duration::from_millis(30);
/// Divisor of the last sync's time in which files come together, on a disk whose syncs take long.
const GATHER_SLOW_DIVISOR: u32 = 2;
const GATHER_SLOW_MAX: Duration = Duration::from_millis(100);
/// Count of files that share a sync well enough: no more are waited for.
const GATHER_FILES: usize = 2048;

/// Bytes of small files of hidden directories that share a sync.
const STAGED_BYTES: u64 = 256 << 20;
/// Time after which such files are synced though few came.
const STAGED_EVERY: Duration = CHECKPOINT_EVERY;
/// Time without another such file after which all are synced: the sender may wait for room among
/// its offers.
const STAGED_QUIET: Duration = Duration::from_millis(50);

/// Count of files from which on one sync of the file system costs less than one of each file.
const GROUP_MIN: usize = 4;

/// A target shared by streams, committer and session.
pub type SharedTarget = Arc<Lock<Option<TargetFile>, rank::Target>>;

/// A span that no checkpoint has journaled, with the digest of its content, where that is known.
type Unjournaled = (SpanIndex, Option<Digest>);

/// A result of the committer, for the session's thread.
#[derive(Debug)]
pub enum Committed {
    Done(FileId),
    /// The sync of the file, or putting it under its name, failed.
    Failed(FileId, Fault),
    /// The range is durable, and its file gets its name once these were read back: it is to be
    /// committed again then.
    Awaits(FileId, Box<EarlierRanges>),
}

#[derive(Debug, Default)]
struct Undurable {
    target: Option<SharedTarget>,
    spans: Vec<Unjournaled>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Queue {
    undurable: BTreeMap<FileId, Undurable>,
    commits: VecDeque<FileId>,
    staged: StagedFiles,
    /// Hidden directories are to get their names, as nothing more comes.
    shows_all: bool,
    /// Targets to let go of, each with whether it stays for a resume.
    given_up: Vec<(SharedTarget, bool)>,
    /// Targets given up that streams still write to, and whose lock must outlast that.
    still_written: Vec<(SharedTarget, bool)>,
    /// The committer sleeps until it has something to do.
    idle: bool,
    /// Haste is called for: no file is to wait for others.
    hurried: bool,
    /// All files have come: those that are there wait for nothing.
    has_all: bool,
    /// Files whose content is durable: the publisher puts them under their names.
    synced: VecDeque<Entry>,
    /// The publisher is at work on files that it has taken.
    publishing: bool,
    /// Files under their names, which are not durable yet.
    named: Vec<Entry>,
    ending: bool,
    /// The publisher has nothing more to expect.
    published_all: bool,
}

impl Queue {
    /// Whether any file is between its content and its name.
    fn is_publishing(&self) -> bool {
        self.publishing || !self.synced.is_empty()
    }

    /// Whether no file is on its way to its name.
    fn is_through(&self) -> bool {
        let is_idle =
            self.commits.is_empty() && self.named.is_empty() && self.staged.files.is_empty();
        is_idle && !self.is_publishing()
    }

    /// Whether the committer has to get up.
    fn has_work(&self, staged_max: usize) -> bool {
        !self.commits.is_empty()
            || self.shows_all
            || self.is_staged_due(Instant::now(), staged_max)
            || !self.named.is_empty()
            || !self.given_up.is_empty()
            || (self.ending && !self.is_publishing())
    }
}

/// Small files of hidden directories, which only wait for a sync of their file system.
#[derive(Debug, Default)]
struct StagedFiles {
    files: VecDeque<FileId>,
    bytes: u64,
    /// Times when the first and the last of them came.
    came: Option<(Instant, Instant)>,
}

impl StagedFiles {
    fn push(&mut self, file: FileId, bytes: u64) {
        let now = Instant::now();
        self.files.push_back(file);
        self.bytes += bytes;
        self.came = Some((self.came.map_or(now, |(first, _)| first), now));
    }

    /// Time from which on they are not to wait for others, which `most` of them never do.
    fn due_at(&self, most: usize) -> Option<Instant> {
        let (first, last) = self.came?;
        let is_many = self.files.len() >= most || self.bytes >= STAGED_BYTES;
        Some(if is_many { first } else { (first + STAGED_EVERY).min(last + STAGED_QUIET) })
    }
}

impl Queue {
    fn is_staged_due(&self, now: Instant, most: usize) -> bool {
        let is_asked = self.has_all || self.hurried || self.ending || self.shows_all;
        self.staged.due_at(most).is_some_and(|due_at| is_asked || due_at <= now)
    }
}

/// Work that the committer has got up for.
struct Due {
    commits: VecDeque<FileId>,
    staged: VecDeque<FileId>,
    named: Vec<Entry>,
    shows_all: bool,
    /// No file is to come any more.
    has_all: bool,
    ending: bool,
}

#[derive(Default)]
struct Shared {
    queue: Lock<Queue>,
    changed: Condvar,
    to_publish: Condvar,
    results: Lock<VecDeque<Committed>>,
    /// Faults of hidden directories that were to be shown.
    show_faults: Lock<Vec<Fault>>,
    /// All that may be shown has its name.
    has_shown: AtomicBool,
    /// Count of small files of hidden directories that are not to wait for others.
    staged_max: usize,
    /// A sync of a whole file system failed, which is told once and may have been the failure of
    /// names that came meanwhile: each file and each directory is asked from then on.
    asks_each: AtomicBool,
    durable_bytes: AtomicU64,
    sync_ns: AtomicU64,
    /// Time when the sync under way began.
    sync_begun: Lock<Option<Instant>>,
    read_back_ns: AtomicU64,
    /// Time when the reading back under way began.
    read_back_begun: Lock<Option<Instant>>,
    cpu_ns: AtomicU64,
    publisher_cpu_ns: AtomicU64,
    contents: Arc<Contents>,
    /// Check that reads files back before they get their names, where that was asked for.
    check: Option<TargetCheck>,
    /// Root below which is checked where names lead; without it no file gets one.
    root: Option<Arc<Root>>,
}

/// Costs of what became durable, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Wall time in syncs and renames.
    pub sync_ns: u64,
    /// Wall time in which files were read back from their disk.
    pub read_back_ns: u64,
    /// Processor time of the committer's threads.
    pub cpu_ns: u64,
}

pub struct Committer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts the threads; `wake` is called when there are results. The values in `contents` are
    /// journaled; with `check` files are read back before they get their names. Without a `root` no
    /// file gets one. `staged_max` small files of hidden directories share a sync, [`staged_max`]
    /// of a path.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(
        wake: impl Fn() + Clone + Send + 'static,
        contents: Arc<Contents>,
        check: Option<TargetCheck>,
        root: Option<Arc<Root>>,
        staged_max: usize,
    ) -> std::io::Result<Self> {
        let shared = Shared { contents, check, root, staged_max, ..Shared::default() };
        let shared = Arc::new(shared);
        let mut this = Self { shared: shared.clone(), threads: Vec::new() };
        let (of_publisher, wake_too) = (shared.clone(), wake.clone());
        let publisher = thread::Builder::new().name("haul-publisher".into());
        this.threads.push(publisher.spawn(move || of_publisher.publish_all(&wake_too))?);
        let committer = thread::Builder::new().name("haul-committer".into());
        this.threads.push(committer.spawn(move || shared.run(&wake))?);
        Ok(this)
    }

    #[must_use]
    pub fn handle(&self) -> CommitterHandle {
        CommitterHandle(self.shared.clone())
    }

    /// Ends the threads; what is verified by then is synced and journaled first.
    pub fn stop(&mut self) {
        if let Some(check) = &self.shared.check {
            check.stopping.store(true, Ordering::Relaxed);
        }
        let mut queue = lock(&self.shared.queue);
        queue.ending = true;
        // Without a committer nobody else says so.
        if self.threads.len() < 2 {
            queue.published_all = true;
        }
        drop(queue);
        self.shared.changed.notify_all();
        self.shared.to_publish.notify_all();
        for thread in self.threads.drain(..) {
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
    /// Takes a span that is written and verified; it is durable after the next checkpoint.
    pub fn verified(
        &self,
        file: FileId,
        target: &SharedTarget,
        span: (SpanIndex, Option<Digest>),
        bytes: u64,
    ) {
        let mut queue = lock(&self.0.queue);
        let entry = queue.undurable.entry(file).or_default();
        entry.target.get_or_insert_with(|| target.clone());
        entry.spans.push(span);
        entry.bytes += bytes;
    }

    /// Takes files whose only span is written and verified. No checkpoint makes it durable, as
    /// nothing could go on from there; its commit does.
    pub fn verified_whole(&self, files: impl Iterator<Item = (FileId, SharedTarget, u64)>) {
        let mut queue = lock(&self.0.queue);
        for (file, target, bytes) in files {
            let entry = queue.undurable.entry(file).or_default();
            entry.target.get_or_insert(target);
            entry.bytes += bytes;
        }
    }

    /// Commits a file: all spans are verified and the source is confirmed, so it gets its name.
    pub fn commit(&self, file: FileId, target: &SharedTarget) {
        let is_light = lock(target).as_ref().is_some_and(TargetFile::is_light);
        let mut queue = lock(&self.0.queue);
        let undurable = queue.undurable.entry(file).or_default();
        undurable.target.get_or_insert_with(|| target.clone());
        let bytes = undurable.bytes;
        let is_enough = if is_light {
            queue.staged.push(file, bytes);
            let count = queue.staged.files.len();
            count == self.0.staged_max || count == 1
        } else {
            queue.commits.push_back(file);
            queue.commits.len() == GATHER_FILES || queue.idle
        };
        if is_enough {
            queue.idle = false;
            self.0.changed.notify_all();
        }
    }

    /// Has all hidden directories get their names: nothing more comes.
    pub fn show_all(&self) {
        lock(&self.0.queue).shows_all = true;
        self.0.changed.notify_all();
    }

    /// Whether that is done.
    #[must_use]
    pub fn has_shown(&self) -> bool {
        self.0.has_shown.load(Ordering::Acquire)
    }

    /// Faults of hidden directories that did not get their names, or whose names may not last.
    #[must_use]
    pub fn take_show_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut *lock(&self.0.show_faults))
    }

    /// Hastens the commits: another file waits for descriptors that files hold until they have
    /// names.
    pub fn hurry(&self) {
        lock(&self.0.queue).hurried = true;
        self.0.changed.notify_all();
    }

    /// Tells the committer that every file that is to come is on its way to its name.
    pub fn has_all(&self) {
        let mut queue = lock(&self.0.queue);
        if !std::mem::replace(&mut queue.has_all, true) {
            self.0.changed.notify_all();
        }
    }

    /// Gives a file up: its spans wait for nothing any more. Letting go of the target waits for a
    /// sync of it that may be under way, so the committer does that.
    pub fn give_up(&self, file: FileId, target: Option<SharedTarget>, keep: bool) {
        let mut queue = lock(&self.0.queue);
        queue.undurable.remove(&file);
        queue.given_up.extend(target.map(|target| (target, keep)));
        self.0.changed.notify_all();
    }

    /// Takes the first results, at most `most`; tells, too, whether there are others.
    #[must_use]
    pub fn take_results(&self, most: usize) -> (Vec<Committed>, bool) {
        let mut results = lock(&self.0.results);
        let taken = results.len().min(most);
        (results.drain(..taken).collect(), !results.is_empty())
    }

    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.0.durable_bytes.load(Ordering::Relaxed)
    }

    /// Whether files are being read back, which takes its time.
    #[must_use]
    pub fn is_reading_back(&self) -> bool {
        self.0.check.as_ref().is_some_and(|check| check.at_work.load(Ordering::Relaxed))
    }

    /// Counts time in which other ranges of a file were read back before its name.
    pub fn spent_reading_back(&self, ns: u64) {
        self.0.read_back_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Ways in which files were read back, in words.
    #[must_use]
    pub fn read_back_ways(&self) -> &'static str {
        self.0.check.as_ref().map_or("", TargetCheck::ways)
    }

    /// Takes bytes that have to come again off the count of durable ones.
    pub fn forget_durable(&self, bytes: u64) {
        let durable = &self.0.durable_bytes;
        let _ = durable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |durable| {
            Some(durable.saturating_sub(bytes))
        });
    }

    #[must_use]
    pub fn costs(&self) -> Costs {
        let cpu_ns = [&self.0.cpu_ns, &self.0.publisher_cpu_ns];
        let cpu_ns: u64 = cpu_ns.iter().map(|ns| ns.load(Ordering::Relaxed)).sum();
        let cpu_ns = cpu_ns + self.0.check.as_ref().map_or(0, TargetCheck::cpu_ns);
        let wall_ns = |ended: &AtomicU64, begun: &Lock<Option<Instant>>| {
            ended.load(Ordering::Relaxed) + lock(begun).map_or(0, elapsed_ns)
        };
        Costs {
            sync_ns: wall_ns(&self.0.sync_ns, &self.0.sync_begun),
            read_back_ns: wall_ns(&self.0.read_back_ns, &self.0.read_back_begun),
            cpu_ns,
        }
    }
}

impl Shared {
    fn run(&self, wake: &dyn Fn()) {
        let mut checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
        let mut gather = Duration::ZERO;
        loop {
            self.gather(gather);
            let due = self.wait_until(checkpoint_at);
            self.let_go();
            gather = Duration::ZERO;
            if !due.staged.is_empty() {
                self.commit_staged(&due.staged, due.has_all);
            }
            self.show_hidden(due.shows_all);
            let Due { commits, named, ending, .. } = due;
            if !commits.is_empty() || !named.is_empty() {
                let begun = Instant::now();
                self.commit(&commits, named);
                gather = gather_for(commits.len(), begun.elapsed());
            }
            if ending || Instant::now() >= checkpoint_at {
                self.checkpoint();
                checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
            }
            self.cpu_ns.store(crate::clocks::thread_cpu_ns(), Ordering::Relaxed);
            if !lock(&self.results).is_empty() || self.has_shown.load(Ordering::Acquire) {
                wake();
            }
            let mut queue = lock(&self.queue);
            if ending && queue.is_through() {
                queue.published_all = true;
                self.to_publish.notify_all();
                drop(queue);
                if let Some(root) = &self.root {
                    root.hidden_directories().iter().for_each(|it| it.remove_if_useless(root));
                }
                return;
            }
        }
    }

    fn sync_begins(&self) -> Instant {
        *lock(&self.sync_begun).insert(Instant::now())
    }

    fn sync_ended(&self, begun: Instant) {
        let mut open = lock(&self.sync_begun);
        *open = None;
        self.sync_ns.fetch_add(elapsed_ns(begun), Ordering::Relaxed);
    }

    /// Waits for files to come together that are to share a sync.
    fn gather(&self, mut left: Duration) {
        let deadline = Instant::now() + left;
        let mut queue = lock(&self.queue);
        let waits = |queue: &Queue| {
            !queue.has_all && !queue.ending && !queue.hurried && queue.commits.len() < GATHER_FILES
        };
        while !left.is_zero() && waits(&queue) {
            queue = queue.wait_timeout(&self.changed, left);
            left = deadline.saturating_duration_since(Instant::now());
        }
        queue.hurried = false;
    }

    /// Waits for commits, names to sync, targets to let go of, or the deadline.
    fn wait_until(&self, deadline: Instant) -> Due {
        let mut queue = lock(&self.queue);
        while !queue.has_work(self.staged_max) {
            let due_at = queue.staged.due_at(self.staged_max);
            let wakes_at = due_at.map_or(deadline, |due_at| due_at.min(deadline));
            let left = wakes_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue.idle = true;
            queue = queue.wait_timeout(&self.changed, left);
        }
        queue.idle = false;
        let is_staged_due = queue.is_staged_due(Instant::now(), self.staged_max);
        let staged =
            if is_staged_due { std::mem::take(&mut queue.staged).files } else { [].into() };
        Due {
            commits: std::mem::take(&mut queue.commits),
            staged,
            named: std::mem::take(&mut queue.named),
            shows_all: std::mem::take(&mut queue.shows_all),
            has_all: queue.has_all,
            ending: queue.ending,
        }
    }

    /// Puts files under their names while the committer syncs those behind them.
    fn publish_all(&self, wake: &dyn Fn()) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.synced.is_empty() {
                if queue.published_all {
                    return;
                }
                queue = queue.wait(&self.to_publish);
            }
            let mut batch = Vec::from(std::mem::take(&mut queue.synced));
            queue.publishing = true;
            drop(queue);
            let count = batch.len();
            self.read_back(&mut batch);
            let begun = Instant::now();
            self.publish(&mut batch);
            // A file that is replaced is removed by the rename, which takes a disk its time.
            self.sync_ns.fetch_add(elapsed_ns(begun), Ordering::Relaxed);
            if batch.len() < count {
                // Some have failed, or wait.
                wake();
            }
            self.publisher_cpu_ns.store(crate::clocks::thread_cpu_ns(), Ordering::Relaxed);
            let mut queue = lock(&self.queue);
            queue.publishing = false;
            queue.named.extend(batch);
            self.changed.notify_all();
        }
    }

    /// Puts files under their names, and takes those out of the batch that have to wait for that.
    fn publish(&self, batch: &mut Vec<Entry>) {
        batch.retain(|entry| {
            let Some(published) = lock(&entry.target).as_mut().map(TargetFile::publish) else {
                // Given up meanwhile: the session knows.
                return false;
            };
            let told = match published {
                Ok(None) => return true,
                Ok(Some(earlier)) => {
                    self.durable_bytes.fetch_add(entry.bytes, Ordering::Relaxed);
                    Committed::Awaits(entry.file, earlier)
                }
                Err(fault) => Committed::Failed(entry.file, fault),
            };
            lock(&self.results).push_back(told);
            false
        });
    }

    /// Takes files out of a batch that are not on their disk as they arrived.
    fn read_back(&self, batch: &mut Vec<Entry>) {
        let Some(check) = &self.check else { return };
        let files: Vec<_> = batch.iter().map(|entry| (entry.file, entry.target.clone())).collect();
        let begun = *lock(&self.read_back_begun).insert(Instant::now());
        let outcomes = check.check(&files);
        *lock(&self.read_back_begun) = None;
        self.read_back_ns.fetch_add(elapsed_ns(begun), Ordering::Relaxed);
        // Stopped: they are taken up again by another session.
        let Some(outcomes) = outcomes else { return batch.clear() };
        let mut outcomes = outcomes.into_iter();
        batch.retain(|entry| match outcomes.next() {
            Some(Err(fault)) => {
                lock(&self.results).push_back(Committed::Failed(entry.file, fault));
                false
            }
            Some(Ok(())) | None => true,
        });
    }

    fn let_go(&self) {
        // Not in the head of the loop, where the queue would stay locked until its end.
        let (given_up, before, ending) = {
            let mut queue = lock(&self.queue);
            let given_up = std::mem::take(&mut queue.given_up);
            (given_up, std::mem::take(&mut queue.still_written), queue.ending)
        };
        let mut still_written = Vec::new();
        for (target, keep) in before.into_iter().chain(given_up) {
            let mut there = lock(&target);
            // All streams have ended before the committer does.
            if !ending && there.as_ref().is_some_and(TargetFile::is_range_still_written) {
                drop(there);
                still_written.push((target, keep));
            } else if let Some(target) = there.take() {
                target.give_up(keep);
            }
        }
        lock(&self.queue).still_written = still_written;
    }

    /// Makes the content of files durable, all of them one step at a time, so that many share a
    /// sync: it is also that of the names of those before them.
    fn commit(&self, files: &VecDeque<FileId>, mut named: Vec<Entry>) {
        let begun = self.sync_begins();
        let mut batch = self.take_batch(files, empty_files_max());
        self.settle_rounds(&mut batch);
        self.journal_ranges(&mut batch);
        self.each(&mut batch, TargetFile::seal);
        let directories =
            |entry: &Entry| lock(&entry.target).as_ref().map_or(1, TargetFile::new_directories);
        let syncs = batch.len() + named.iter().map(directories).sum::<usize>();
        let grouped = syncs >= GROUP_MIN && !self.asks_each.load(Ordering::Acquire);
        if grouped && sync_file_systems(batch.iter().chain(&named)) {
            // syncfs(2) tells of a write that failed once only, and each file tells of its own: the
            // failure may have been told of when another group was synced.
            self.each(&mut batch, TargetFile::check_written);
        } else {
            self.asks_each.fetch_or(grouped, Ordering::AcqRel);
            self.each(&mut batch, TargetFile::sync);
            self.each(&mut named, |target| target.sync_directory());
        }
        self.sync_ended(begun);
        lock(&self.queue).synced.extend(batch);
        self.to_publish.notify_all();
        if let Some(root) = &self.root {
            let mut looked = Looked::below(root.clone());
            self.each(&mut named, |target| target.check_in_place(&mut looked));
        }
        self.tell_lists(&mut named);
        self.done(named);
    }

    /// Says of files that they are durable, under their names.
    fn done(&self, named: Vec<Entry>) {
        for entry in named {
            // Closed here, and not when the session's thread gets to it.
            drop(lock(&entry.target).take());
            self.durable_bytes.fetch_add(entry.bytes, Ordering::Relaxed);
            lock(&self.results).push_back(Committed::Done(entry.file));
        }
    }

    /// Takes a batch of files, but leaves those behind `empty_max` empty ones for the next: all of
    /// a batch are open at once.
    fn take_batch(&self, files: &VecDeque<FileId>, empty_max: usize) -> Vec<Entry> {
        let mut unopened = 0;
        let mut batch = Vec::with_capacity(files.len());
        for (at, file) in files.iter().enumerate() {
            if unopened == empty_max {
                let mut queue = lock(&self.queue);
                files.iter().skip(at).rev().for_each(|file| queue.commits.push_front(*file));
                break;
            }
            let Some(entry) = self.take(*file) else { continue };
            unopened +=
                usize::from(lock(&entry.target).as_ref().is_some_and(TargetFile::is_unopened));
            batch.push(entry);
        }
        batch
    }

    fn take(&self, file: FileId) -> Option<Entry> {
        let undurable = lock(&self.queue).undurable.remove(&file)?;
        let Undurable { target, spans, bytes } = undurable;
        Some(Entry { file, target: target?, spans, bytes })
    }

    /// Settles the rounds of files that grow, which get no name yet: what came is synced and
    /// journaled, and stays where it is.
    fn settle_rounds(&self, batch: &mut Vec<Entry>) {
        batch.retain_mut(|entry| {
            let mut target = lock(&entry.target);
            let Some(file) = target.as_mut().filter(|file| file.is_growing()) else { return true };
            let (spans, digests) = sorted(std::mem::take(&mut entry.spans));
            let (spans, digests) = (&*ranges_of(&spans), &*digests);
            let settled = match file.make_durable(Recorded { spans, digests, values: &[] }) {
                Ok(()) => {
                    self.durable_bytes.fetch_add(entry.bytes, Ordering::Relaxed);
                    Committed::Done(entry.file)
                }
                Err(fault) => Committed::Failed(entry.file, fault),
            };
            lock(&self.results).push_back(settled);
            false
        });
    }

    /// Journals the last spans of ranges: after a crash of the host a range is read back by its
    /// journal, also when it was told as durable, as long as the file has no name.
    fn journal_ranges(&self, batch: &mut Vec<Entry>) {
        batch.retain_mut(|entry| {
            let mut target = lock(&entry.target);
            let Some(file) = target.as_mut().filter(|file| file.is_range()) else { return true };
            let (spans, digests) = sorted(std::mem::take(&mut entry.spans));
            let values = &*self.contents.values(entry.file, &spans).unwrap_or_default();
            let (spans, digests) = (&*ranges_of(&spans), &*digests);
            let mut journaled = file.journal_holes();
            if !spans.is_empty() && journaled.is_ok() {
                journaled = file.make_durable(Recorded { spans, digests, values });
            }
            let failed = journaled.map_err(|fault| Committed::Failed(entry.file, fault));
            failed.map_err(|failed| lock(&self.results).push_back(failed)).is_ok()
        });
    }

    /// Does one step for all files of a batch; a file whose step fails is out.
    fn each(
        &self,
        batch: &mut Vec<Entry>,
        mut step: impl FnMut(&mut TargetFile) -> Result<(), Fault>,
    ) {
        batch.retain(|entry| {
            // Given up meanwhile: the session knows.
            let Some(result) = lock(&entry.target).as_mut().map(&mut step) else { return false };
            if let Err(fault) = result {
                lock(&self.results).push_back(Committed::Failed(entry.file, fault));
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
            let (target, spans, bytes) = {
                let mut queue = lock(&self.queue);
                let Some(entry) = queue.undurable.get_mut(&file) else { continue };
                let spans = std::mem::take(&mut entry.spans);
                (entry.target.clone(), spans, std::mem::take(&mut entry.bytes))
            };
            let (spans, digests) = sorted(spans);
            let values = &*self.contents.values(file, &spans).unwrap_or_default();
            let (spans, digests) = (&*ranges_of(&spans), &*digests);
            let recorded = Recorded { spans, digests, values };
            let begun = self.sync_begins();
            let result =
                target.and_then(|target| Some(lock(&target).as_mut()?.make_durable(recorded)));
            self.sync_ended(begun);
            match result {
                Some(Ok(())) => {
                    self.durable_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Some(Err(fault)) => {
                    lock(&self.queue).undurable.remove(&file);
                    lock(&self.results).push_back(Committed::Failed(file, fault));
                }
                // Given up meanwhile; a stream may have told of another span of it since.
                None => {
                    lock(&self.queue).undurable.remove(&file);
                }
            }
        }
    }
}

/// Time that files have to come together after a sync of `files` of them that took `took`: few that
/// come one by one wait for nothing.
fn gather_for(files: usize, took: Duration) -> Duration {
    if files < GROUP_MIN {
        return Duration::ZERO;
    }
    let slow = (took / GATHER_SLOW_DIVISOR).min(GATHER_SLOW_MAX);
    (took * GATHER_FACTOR).min(GATHER_MAX).max(slow)
}

/// A file on its way to its name.
#[derive(Debug)]
struct Entry {
    file: FileId,
    target: SharedTarget,
    /// Spans of the file that are not journaled, which one that grows and a range still need.
    spans: Vec<Unjournaled>,
    bytes: u64,
}

/// Syncs every file system whole that these files, directories and links are on (syncfs(2)), and
/// says whether all are: there may be others mounted below the root.
///
/// Only where that is known to write everything out: on a FUSE file system it may do nothing.
fn sync_file_systems<'entry>(entries: impl Iterator<Item = &'entry Entry>) -> bool {
    let mut systems = BTreeMap::new();
    for entry in entries {
        let found = lock(&entry.target).as_ref().map_or(Ok(()), |target| {
            target.each_directory(|device, directory| {
                if let btree_map::Entry::Vacant(new) = systems.entry(device) {
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
            && check_not_aborted(directory).is_ok()
    })
}

/// Sorts spans in rising order, with the digests of all of them, or none.
fn sorted(mut spans: Vec<Unjournaled>) -> (Vec<SpanIndex>, Vec<Digest>) {
    spans.sort_unstable();
    let digests: Option<Vec<Digest>> = spans.iter().map(|(_, digest)| *digest).collect();
    (spans.into_iter().map(|(span, _)| span).collect(), digests.unwrap_or_default())
}

/// Gathers sorted spans as runs.
fn ranges_of(spans: &[SpanIndex]) -> Vec<SpanRange> {
    let mut ranges: Vec<SpanRange> = Vec::new();
    for span in spans {
        match ranges.last_mut() {
            Some(last) if last.first.0 + last.count == span.0 => last.count += 1,
            _ => ranges.push(SpanRange { first: *span, count: 1 }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
