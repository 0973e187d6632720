//! Bounds on how many files may be open at a time. A process of few descriptors gets there too, and
//! no session takes what the others need.
//!
//! A small file is open from its only span until it has its name, and many share one sync: the
//! streams wait before they open more of them than this process can have. What is free is shared
//! anew by who comes: a session may hold no more than it leaves, and each always has one.

use crate::locks::{Guard, Lock, lock};
use rustix::process::{Resource, getrlimit};
use std::{
    sync::{
        Arc, Condvar, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Most small files that all sessions receive at a time; more than half of it gains a session
/// nothing, for a sync of as many takes longer than its fixed part.
const SMALL_FILES_MAX: u64 = 8192;
/// Most empty files that one session opens at a time.
const EMPTY_FILES_MAX: u64 = 4096;
/// Most large files that one session receives at a time; each has a journal and a set of its spans
/// too.
const LARGE_FILES_MAX: u64 = 64;
/// Most large files that all sessions together receive at a time.
const LARGE_FILES_MAX_ALL: u64 = 4096;
const KEPT_FILES_MAX: u64 = 32;
/// Most directories that all sessions together have hidden until they are there.
const HIDDEN_DIRECTORIES_MAX_ALL: u64 = 4096;
/// Most directories that one session has hidden: each has a list to sync with each group of files.
const HIDDEN_DIRECTORIES_MAX_EACH: u64 = 64;
/// Most directories of a narrow mode that all sessions together keep from being narrowed.
const FILLED_DIRECTORIES_MAX: u64 = 1024;
/// Most directories of a narrow mode that one session keeps from being narrowed.
const FILLED_DIRECTORIES_MAX_EACH: u64 = 64;
/// Most files that a session opens at a time to read them ahead.
const AHEAD_FILES_MAX: u64 = 256;
/// Most files that all sessions together have read ahead and keep open for their streams.
const AHEAD_KEPT_FILES_MAX: u64 = 2048;
/// Most files that one session has read ahead and keeps open for its streams.
const AHEAD_KEPT_FILES_MAX_EACH: u64 = 512;
/// Interval at which a wait for a file's turn looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Number of files that this process may open: a quarter is for small files being received, each
/// with a directory of its own at worst; about as much for large ones, with their directories and
/// journals; the rest for sockets, pipes, rings and sources.
fn descriptors() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// One part of so many of these descriptors; one at least, and no more than `most`.
fn part_of(descriptors: u64, parts: u64, most: u64) -> u64 {
    (descriptors / parts).clamp(1, most)
}

/// Most files that grow which a session keeps open between two rounds.
#[must_use]
pub fn kept_files_max() -> usize {
    part_of(descriptors(), 32, KEPT_FILES_MAX) as usize
}

/// Most files that a session opens at a time to read them ahead, which takes a moment.
#[must_use]
pub fn ahead_files_max() -> usize {
    part_of(descriptors(), 32, AHEAD_FILES_MAX) as usize
}

/// Most empty files that a session opens at a time, without a [`Pass`]: they have a name in a
/// moment.
#[must_use]
pub fn empty_files_max() -> usize {
    part_of(descriptors(), 16, EMPTY_FILES_MAX) as usize
}

/// The files of one kind that all sessions of this process have open.
#[derive(Debug)]
struct Gate {
    counts: Lock<Counts>,
    changed: Condvar,
    most: u64,
    most_each: u64,
}

#[derive(Debug, Default)]
struct Counts {
    open: u64,
    /// Threads that wait, counted because even waking nobody is a system call, one for each small
    /// file.
    waiting: u64,
}

impl Gate {
    fn new(most: u64, most_each: u64) -> Self {
        Self { counts: Lock::default(), changed: Condvar::new(), most, most_each }
    }

    fn lock(&self) -> Guard<'_, Counts> {
        lock(&self.counts)
    }
}

/// Right of one session to its files that may be open; shared by its streams.
#[derive(Clone, Debug)]
pub struct Share {
    gate: &'static Gate,
    held: Arc<AtomicU64>,
}

impl Share {
    /// Share of the files of one span that are being received.
    #[must_use]
    pub fn of_small_files() -> Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        let most = part_of(descriptors(), 4, SMALL_FILES_MAX);
        Self::of(GATE.get_or_init(|| Gate::new(most, most)))
    }

    /// Share of the files of more than one span.
    #[must_use]
    pub fn of_large_files() -> Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        let most = part_of(descriptors(), 16, LARGE_FILES_MAX_ALL);
        Self::of(GATE.get_or_init(|| Gate::new(most, LARGE_FILES_MAX)))
    }

    /// Share of the files that were read ahead and that no stream has taken.
    #[must_use]
    pub fn of_ahead_files() -> Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        let most = part_of(descriptors(), 8, AHEAD_KEPT_FILES_MAX);
        Self::of(GATE.get_or_init(|| Gate::new(most, AHEAD_KEPT_FILES_MAX_EACH)))
    }

    /// Share of the directories that a session fills and keeps others from narrowing.
    #[must_use]
    pub fn of_filled_directories() -> Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        let most = part_of(descriptors(), 64, FILLED_DIRECTORIES_MAX);
        Self::of(GATE.get_or_init(|| Gate::new(most, FILLED_DIRECTORIES_MAX_EACH)))
    }

    /// Share of the directories that a session has hidden until all of them is there, each with up
    /// to three descriptors for as long: of itself, its list and the directory above. Others that
    /// the session makes have their names at once.
    #[must_use]
    pub fn of_hidden_directories() -> Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        let most = part_of(descriptors(), 48, HIDDEN_DIRECTORIES_MAX_ALL);
        Self::of(GATE.get_or_init(|| Gate::new(most, HIDDEN_DIRECTORIES_MAX_EACH)))
    }

    /// Share of a gate that no other test has.
    #[cfg(test)]
    pub(super) fn of_own_gate(most: u64) -> Self {
        Self::of(Box::leak(Box::new(Gate::new(most, most))))
    }

    fn of(gate: &'static Gate) -> Self {
        Self { gate, held: Arc::default() }
    }

    /// Takes a pass that is free now.
    #[must_use]
    pub fn take(&self) -> Option<Pass> {
        self.take_of(&mut self.gate.lock())
    }

    /// Waits for a pass; `None` when `is_over` says that nobody wants it any more.
    ///
    /// Who waits must have let all files that he opened go on to their names: their passes come
    /// back then.
    pub fn wait(&self, is_over: impl Fn() -> bool) -> Option<Pass> {
        let mut counts = self.gate.lock();
        loop {
            if let Some(pass) = self.take_of(&mut counts) {
                return Some(pass);
            }
            if is_over() {
                return None;
            }
            counts.waiting += 1;
            counts = counts.wait_timeout(&self.gate.changed, LOOK_EVERY);
            counts.waiting -= 1;
        }
    }

    fn take_of(&self, counts: &mut Counts) -> Option<Pass> {
        let held = self.held.load(Ordering::Relaxed);
        let leaves_enough = held < self.gate.most_each && held + counts.open < self.gate.most;
        (held == 0 || leaves_enough).then(|| {
            counts.open += 1;
            self.held.store(held + 1, Ordering::Relaxed);
            Pass(self.clone())
        })
    }
}

/// Right to have one more file open, until it is dropped.
#[derive(Debug)]
pub struct Pass(Share);

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.0.gate.lock();
        counts.open -= 1;
        self.0.held.fetch_sub(1, Ordering::Relaxed);
        let somebody_waits = counts.waiting > 0;
        drop(counts);
        if somebody_waits {
            self.0.gate.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(most: u64, most_each: u64) -> &'static Gate {
        Box::leak(Box::new(Gate::new(most, most_each)))
    }

    fn take_all(share: &Share) -> Vec<Pass> {
        std::iter::from_fn(|| share.take()).collect()
    }

    #[test]
    fn who_waits_gets_the_pass_that_comes_back_or_leaves() {
        let share = Share::of(gate(8, 8));
        let held = take_all(&share);
        assert!(held.len() == 4 && share.wait(|| true).is_none());
        let of_thread = share.clone();
        let waiting = std::thread::spawn(move || of_thread.wait(|| false).is_some());
        drop(held);
        assert!(waiting.join().unwrap());
        assert_eq!(share.gate.lock().open, 0);
    }

    /// Regression: one client that never confirmed its files held all passes, and the others' files
    /// waited.
    #[test]
    fn whatever_sessions_hold_the_next_one_has_its_share() {
        let gate = gate(64, 64);
        let held: Vec<_> = (0..20).map(|_| take_all(&Share::of(gate))).collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts[..7], [32, 16, 8, 4, 2, 1, 1]);
        assert!(counts[7..].iter().all(|count| *count == 1), "{counts:?}");
        let most = Share::of(self::gate(64, 5));
        assert_eq!(take_all(&most).len(), 5);
    }

    #[test]
    fn few_descriptors_give_few_files_and_one_at_least() {
        let files = [(20_000, 625), (64, 2), (31, 1), (0, 1), (u64::MAX, 1000)];
        for (descriptors, expected) in files {
            assert_eq!(part_of(descriptors, 32, 1000), expected, "{descriptors}");
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(descriptors(), limit);
        let all = [kept_files_max(), ahead_files_max(), empty_files_max()];
        let parts = [(32, KEPT_FILES_MAX), (32, AHEAD_FILES_MAX), (16, EMPTY_FILES_MAX)];
        assert_eq!(all, parts.map(|(part, most)| part_of(limit, part, most) as usize));
    }

    /// The gate is the process's: other tests may hold some of it, which leaves fewer.
    #[test]
    fn files_read_ahead_take_no_more_of_the_descriptors_than_half_of_an_eighth() {
        let most = part_of(descriptors(), 8, AHEAD_KEPT_FILES_MAX);
        let count = take_all(&Share::of_ahead_files()).len() as u64;
        let most_each = most.div_ceil(2).min(AHEAD_KEPT_FILES_MAX_EACH);
        assert!((1..=most_each).contains(&count), "{count} of {most}");
    }

    /// The gate is the process's: other tests may hold some of it, which leaves fewer.
    #[test]
    fn directories_that_are_filled_take_no_more_of_the_descriptors_than_half_of_a_64th() {
        let most = part_of(descriptors(), 64, FILLED_DIRECTORIES_MAX);
        let count = take_all(&Share::of_filled_directories()).len() as u64;
        let most_each = most.div_ceil(2).min(FILLED_DIRECTORIES_MAX_EACH);
        assert!((1..=most_each).contains(&count), "{count} of {most}");
    }

    /// The gate is the process's: other tests may hold some of it, which leaves fewer.
    #[test]
    fn hidden_directories_take_no_more_of_the_descriptors_than_half_of_a_16th() {
        let most = part_of(descriptors(), 48, HIDDEN_DIRECTORIES_MAX_ALL);
        let count = take_all(&Share::of_hidden_directories()).len() as u64;
        let most_each = most.div_ceil(2).min(HIDDEN_DIRECTORIES_MAX_EACH);
        assert!((1..=most_each).contains(&count), "{count} of {most}");
    }

    #[test]
    fn who_waits_is_counted_until_the_wait_is_over() {
        let share = Share::of(gate(2, 2));
        let held = share.take().unwrap();
        assert!(share.take().is_none(), "half of it is for others");
        let looks = AtomicU64::new(0);
        let over = share.wait(|| looks.fetch_add(1, Ordering::Relaxed) == 2);
        assert!(over.is_none());
        assert_eq!((looks.load(Ordering::Relaxed), share.gate.lock().waiting), (3, 0));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| share.wait(|| false).is_some());
            while share.gate.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(share.gate.lock().waiting, 1);
            drop(held);
            assert!(waiting.join().unwrap());
        });
        assert_eq!((share.gate.lock().waiting, share.held.load(Ordering::Relaxed)), (0, 0));
    }
}
