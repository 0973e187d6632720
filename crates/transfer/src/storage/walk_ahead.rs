//! Looks ahead of a walk: several threads have a cold disk read inodes that it comes to next.
//!
//! A walk looks at one name after the other, so that a cold disk has one inode to read at a time.
//! Where that turns out to be slow, these threads look at the names first, each directory's in the
//! order of their inodes. What they see is thrown away: the walk finds it in the kernel's memory,
//! and tells what is wrong with it. Nothing but directories is opened, and none on another device.

use super::{
    root::{Links, Root},
    tree::Tree,
};
use crate::locks::{Lock, lock};
use haul_sys::usage;
use rustix::fs::{AtFlags, Dir, FileType, fstat, statat};
use std::{
    collections::VecDeque,
    ffi::CString,
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Number of threads: inodes lie close to each other, so that few reads bring many.
const THREADS: usize = 8;
/// A thread's stack: it calls the kernel and little else.
const STACK_BYTES: usize = 256 << 10;
/// Most entries that are looked at ahead of the walk.
const AHEAD_MAX: u64 = 8192;
/// Most entries of a directory that are looked at: the kernel would forget others meanwhile.
const ENTRIES_MAX: usize = 65_536;
/// Number of names that a thread takes at a time.
const CHUNK: usize = 32;
/// Number of looks of which the time is added up.
const LOOKS: u32 = 64;
/// Time of a look, on average, from which on the disk is waited for: one in memory takes 2 us.
const SLOW: Duration = Duration::from_micros(25);
/// Time of a look, on average, from which on a file system answers late, whatever it waits for.
const LATE: Duration = Duration::from_micros(100);
/// Most tasks that wait.
const TASKS_MAX: usize = 256;
/// Number of entries that the walk comes to between two calls to threads that are far ahead.
const CALL_EVERY: u64 = 512;

/// Times of a walk's own looks, which tell whether it waits for a disk.
#[derive(Debug, Default)]
pub struct Pace {
    looks: u32,
    took: Duration,
    /// Blocks that the walk's thread had read from disks when it was last asked.
    read_blocks: Option<u64>,
}

impl Pace {
    /// Takes the time of a look; true where those of late were slow, and disks were read meanwhile:
    /// a thread without a processor waits, too. `read_blocks` tells how many blocks of disks the
    /// thread has read.
    pub fn is_slow(&mut self, took: Duration, read_blocks: impl Fn() -> u64) -> bool {
        let before = *self.read_blocks.get_or_insert_with(&read_blocks);
        let is_slow = self.mean(took).map(|mean| mean > SLOW);
        is_slow.is_some_and(|is_slow| {
            let now = *self.read_blocks.insert(read_blocks());
            is_slow && before < now
        })
    }

    /// Takes the time of a look; true where those of late took long by the clock. The file system
    /// of a network tells of no blocks.
    pub fn is_late(&mut self, took: Duration) -> bool {
        self.mean(took).is_some_and(|mean| mean > LATE)
    }

    /// Takes the time of a look; the mean of several once they are there.
    fn mean(&mut self, took: Duration) -> Option<Duration> {
        self.looks += 1;
        self.took += took;
        if self.looks < LOOKS {
            return None;
        }
        let mean = self.took / LOOKS;
        (self.looks, self.took) = (0, Duration::ZERO);
        Some(mean)
    }
}

/// Blocks that the calling thread has read from disks; none where the kernel does not tell.
pub fn blocks_read() -> u64 {
    usage::blocks_read_by_this_thread().unwrap_or(0)
}

/// Threads that look ahead of a walk; they end when it is dropped.
#[derive(Debug)]
pub struct WalkAhead(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tasks: Lock<VecDeque<Task>>,
    changed: Condvar,
    looked_at: AtomicU64,
    walked: AtomicU64,
    is_over: AtomicBool,
}

/// A part of the work. What was added last comes first, as the walk goes down before it goes on.
#[derive(Debug)]
enum Task {
    /// All entries of a directory, which was not read yet.
    All(Arc<Root>, Vec<u8>),
    /// All entries of all directories in a directory, behind this name.
    Below(Arc<Root>, Vec<u8>, Vec<u8>),
    /// Directories by name in another, of which those from `next` on are left.
    Directories { root: Arc<Root>, path: Vec<u8>, names: Vec<CString>, next: usize },
    /// Entries of a directory, of which those from `next` on are left.
    Entries { directory: Arc<OwnedFd>, names: Arc<Vec<CString>>, next: usize },
}

impl WalkAhead {
    /// Starts the threads.
    #[must_use]
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        for number in 0..THREADS {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(format!("haul-look-{number}"));
            // With fewer threads the walk is slower, and the same.
            let _ = thread.stack_size(STACK_BYTES).spawn(move || shared.work());
        }
        Self(shared)
    }

    /// Adds all entries of a directory.
    pub fn look_at(&self, tree: &Tree) {
        self.0.add(Task::All(tree.root.clone(), tree.path.clone()));
    }

    /// Adds all entries of the directories that are in this one, behind the name `after`.
    pub fn look_below(&self, tree: &Tree, after: &[u8]) {
        self.0.add(Task::Below(tree.root.clone(), tree.path.clone(), after.to_vec()));
    }

    /// Notes that the walk has come to another entry.
    pub fn walked(&self) {
        let walked = self.0.walked.fetch_add(1, Ordering::Relaxed);
        if walked.is_multiple_of(CALL_EVERY) {
            drop(lock(&self.0.tasks));
            self.0.changed.notify_all();
        }
    }
}

impl Drop for WalkAhead {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        drop(std::mem::take(&mut *lock(&self.0.tasks)));
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn add(&self, task: Task) {
        let mut tasks = lock(&self.tasks);
        tasks.push_front(task);
        // Each may hold a directory open. The furthest ahead is given up: the walk looks itself.
        tasks.truncate(TASKS_MAX);
        drop(tasks);
        // One thread for each task, which adds what it finds.
        self.changed.notify_one();
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            match task {
                Task::All(root, path) => self.read_directory(&root, &path),
                Task::Below(root, path, after) => self.read_below(root, path, &after),
                Task::Directories { root, path, mut names, next } => {
                    let name = std::mem::take(&mut names[next]);
                    let directory = super::root::join(&path, name.as_bytes());
                    if next + 1 < names.len() {
                        self.add(Task::Directories {
                            root: root.clone(),
                            path,
                            names,
                            next: next + 1,
                        });
                    }
                    self.read_directory(&root, &directory);
                }
                Task::Entries { directory, names, next } => {
                    let end = names.len().min(next + CHUNK);
                    if end < names.len() {
                        let (directory, names) = (directory.clone(), names.clone());
                        self.add(Task::Entries { directory, names, next: end });
                    }
                    self.look(&directory, &names[next..end]);
                }
            }
        }
    }

    /// Waits for the next task; `None` at the end.
    fn next(&self) -> Option<Task> {
        let mut tasks = lock(&self.tasks);
        loop {
            if self.is_over.load(Ordering::SeqCst) {
                return None;
            }
            let looked_at = self.looked_at.load(Ordering::Relaxed);
            let ahead = looked_at.saturating_sub(self.walked.load(Ordering::Relaxed));
            if ahead <= AHEAD_MAX
                && let Some(task) = tasks.pop_front()
            {
                return Some(task);
            }
            tasks = tasks.wait(&self.changed);
        }
    }

    fn look(&self, directory: &OwnedFd, names: &[CString]) {
        for name in names {
            // Seen by the walk, once it is there.
            let _ = statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        }
        self.looked_at.fetch_add(names.len() as u64, Ordering::Relaxed);
    }

    fn read_directory(&self, root: &Root, path: &[u8]) {
        let Some(directory) = open(root, path) else { return };
        let mut entries = entries(&directory, |_| true);
        entries.sort_unstable_by_key(|(inode, _)| *inode);
        let names: Vec<CString> = entries.into_iter().map(|(_, name)| name).collect();
        if !names.is_empty() {
            let (directory, names) = (Arc::new(directory), Arc::new(names));
            self.add(Task::Entries { directory, names, next: 0 });
        }
    }

    fn read_below(&self, root: Arc<Root>, path: Vec<u8>, after: &[u8]) {
        let Some(directory) = open(&root, &path) else { return };
        let mut entries = entries(&directory, |kind| kind == FileType::Directory);
        entries.retain(|(_, name)| name.as_bytes() > after);
        let mut names: Vec<CString> = entries.into_iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        if !names.is_empty() {
            self.add(Task::Directories { root, path, names, next: 0 });
        }
    }
}

/// Opens a directory, if it is on the device of its root.
fn open(root: &Root, path: &[u8]) -> Option<OwnedFd> {
    let found = root.stat(path, Links::Refuse).ok()?;
    if found.st_dev != fstat(root).ok()?.st_dev {
        return None;
    }
    root.open_directory(path, Links::Refuse).ok()
}

/// Inodes and names of a directory's entries, as far as there are not too many.
fn entries(directory: &OwnedFd, is_meant: impl Fn(FileType) -> bool) -> Vec<(u64, CString)> {
    let Ok(read) = Dir::read_from(directory) else { return Vec::new() };
    let all = read.map_while(Result::ok).take(ENTRIES_MAX);
    let is_own = |name: &[u8]| matches!(name, b"." | b"..");
    all.filter(|entry| is_meant(entry.file_type()) && !is_own(entry.file_name().to_bytes()))
        .map(|entry| (entry.ino(), entry.file_name().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{mount::Mount, skip::skip};
    use std::{fs, path::Path, time::Instant};

    fn tree_of(path: &Path) -> Tree {
        let root = Root::open(path).unwrap();
        Tree { root, path: Vec::new(), name: b"t".to_vec() }
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < deadline, "never {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_pace_is_slow_where_a_disk_is_read_and_the_mean_of_its_looks_is_long() {
        let (fast, slow) = (Duration::from_micros(2), Duration::from_micros(100));
        let looks = |took: &dyn Fn(u32) -> Duration, blocks: &dyn Fn(u32) -> u64| {
            let mut pace = Pace::default();
            (0..10 * LOOKS).filter(|look| pace.is_slow(took(*look), || blocks(*look))).count()
        };
        assert_eq!(looks(&|_| fast, &u64::from), 0);
        assert_eq!(looks(&|_| slow, &u64::from), 10);
        assert_eq!(looks(&|_| SLOW, &u64::from), 0, "it is more than that which is slow");
        assert_eq!(looks(&|_| slow, &|_| 7), 0, "it waits, but for no disk");
        let late = |took: Duration| {
            let mut pace = Pace::default();
            (0..10 * LOOKS).filter(|_| pace.is_late(took)).count()
        };
        assert_eq!((late(LATE), late(LATE + fast)), (0, 10));
        // One that took a moment.
        let once = |look: u32| if look % LOOKS == 5 { slow * 10 } else { fast };
        assert_eq!(looks(&once, &u64::from), 0);
    }

    #[test]
    fn all_entries_are_looked_at_and_the_threads_end_with_it() {
        let directory = tempfile::tempdir().unwrap();
        for (above, files) in [("a", 40), ("b", 100), ("c/d", 7)] {
            let path = directory.path().join(above);
            fs::create_dir_all(&path).unwrap();
            (0..files).for_each(|file| fs::write(path.join(file.to_string()), b"").unwrap());
        }
        std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
        let tree = tree_of(directory.path());
        let ahead = WalkAhead::start();
        let looked_at = || ahead.0.looked_at.load(Ordering::Relaxed);
        ahead.look_at(&tree);
        wait_until("looked at", || looked_at() == 4);
        // What is in b, and d.
        ahead.look_below(&tree, b"a");
        wait_until("looked at", || looked_at() == 4 + 100 + 1);
        ahead.look_at(&tree.below(b"gone"));
        let shared = Arc::downgrade(&ahead.0);
        drop(ahead);
        wait_until("ended", || shared.strong_count() == 0);
    }

    #[test]
    fn the_threads_keep_near_the_walk() {
        let directory = tempfile::tempdir().unwrap();
        let many = AHEAD_MAX * 2;
        let at = |file: u64| directory.path().join(file.to_string());
        fs::write(at(0), b"").unwrap();
        // Names of one inode are made faster.
        (1..many).for_each(|file| fs::hard_link(at(0), at(file)).unwrap());
        let ahead = WalkAhead::start();
        ahead.look_at(&tree_of(directory.path()));
        let looked_at = || ahead.0.looked_at.load(Ordering::Relaxed);
        wait_until("looked at", || looked_at() > AHEAD_MAX);
        thread::sleep(Duration::from_millis(20));
        assert!(looked_at() <= AHEAD_MAX + (THREADS * CHUNK) as u64 + CHUNK as u64);
        (0..many).for_each(|_| ahead.walked());
        wait_until("looked at", || looked_at() == many);
    }

    #[test]
    fn threads_do_all_that_they_are_given_and_rest_then() {
        let directory = tempfile::tempdir().unwrap();
        for above in ["a", "b", "c"] {
            let path = directory.path().join(above);
            fs::create_dir_all(&path).unwrap();
            (0..CHUNK).for_each(|file| fs::write(path.join(file.to_string()), b"").unwrap());
        }
        let tree = tree_of(directory.path());
        let ahead = WalkAhead::start();
        let looked_at = || ahead.0.looked_at.load(Ordering::Relaxed);
        // More than one task for each thread, of which any might have ended.
        let times = 2 * THREADS as u64;
        (0..times).for_each(|_| ahead.look_below(&tree, b""));
        wait_until("looked at", || looked_at() == times * 3 * CHUNK as u64);
        (0..times).for_each(|_| ahead.look_at(&tree));
        wait_until("looked at", || looked_at() == times * (3 * CHUNK as u64 + 3));
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            assert!(lock(&ahead.0.tasks).is_empty());
        }
    }

    #[test]
    fn what_lies_on_another_device_is_not_looked_into() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mounted");
        fs::create_dir(&path).unwrap();
        let _mount = match Mount::tmpfs(&path, "1m") {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a tmpfs", &why),
        };
        fs::write(path.join("file"), b"").unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert!(open(&root, b"").is_some() && open(&root, b"mounted").is_none());
        assert!(open(&root, b"gone").is_none());
        let names = entries(&fs::File::open(&path).unwrap().into(), |_| true);
        let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, [c"file".to_owned()]);
    }
}
