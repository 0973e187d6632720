//! Reading ahead: small files are asked of the disk before a stream comes to them.
//!
//! A stream reads small files one by one, so that a cold disk has no more to do at a time than
//! there are streams. The thread `haul-ahead` opens the files that go out next, asks the kernel for
//! their bytes in the order of their places on the disk, many in one call, and leaves them open for
//! the streams, as far as there are descriptors; the stream finds them in the page cache, or on
//! their way there. It begins when a stream met a file that was not there, and ends when so many
//! are there that nothing is gained: a warm tree never sees it.
//!
//! No error is told here, and at most [`Depth::files`] files of [`BYTES_MAX`] in all are asked for
//! and not taken. A file system that hangs holds up this thread alone.

use crate::{
    locks::{Lock, lock},
    storage::{
        ahead::{Ahead, Asked, Asking, CALL_FILES_MAX, Depth, Place},
        open_files::{Pass, Share, ahead_files_max},
        source::SourceEntry,
    },
};
use haul_datapath::SpanFile;
use haul_protocol::FileId;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};
use std::{
    collections::VecDeque,
    fs::File,
    io::IoSliceMut,
    sync::{
        Arc, Condvar,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Largest file that is copied into a pack: a copy costs less than the calls that avoid one.
pub const SMALL_FILE_BYTES_MAX: u64 = 128 << 10;
/// Most bytes of files that are asked for and that no stream has taken.
const BYTES_MAX: u64 = 16 << 20;
/// Number of files in the page cache, one after the other, at which the thread ends.
const CACHED_MAX: u32 = 64;
/// Time without a file to ask for after which the thread ends.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for streams to take files, or for others to wait for them.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// Number of files of which one is looked at, where reading does not tell whether it waits.
const LOOK_EVERY: u32 = 16;
/// Number of files that are asked for before it is known what the disk takes.
const FILES_FIRST: usize = 32;
/// Value of [`ReadingAhead::wake_from`] while the thread does not wait for a stream.
const AWAKE: u64 = u64::MAX;

/// The thread of a session that reads ahead, as its streams see it.
#[derive(Debug)]
pub struct ReadingAhead {
    is_running: AtomicBool,
    /// Number of the file whose taking wakes the thread, as does that of each behind it.
    wake_from: AtomicU64,
    sleep: Lock<()>,
    woken: Condvar,
}

impl Default for ReadingAhead {
    fn default() -> Self {
        Self {
            is_running: AtomicBool::new(false),
            wake_from: AtomicU64::new(AWAKE),
            sleep: Lock::default(),
            woken: Condvar::new(),
        }
    }
}

impl ReadingAhead {
    /// Whether the thread runs: a file that is cold says nothing new then.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Notes that a stream has taken a file.
    pub fn taken(&self, file: FileId) {
        // Relaxed and first: this is for each file, and the thread seldom waits for this one.
        if u64::from(file.0) >= self.wake_from.load(Ordering::Relaxed)
            && self.wake_from.swap(AWAKE, Ordering::SeqCst) != AWAKE
        {
            drop(lock(&self.sleep));
            self.woken.notify_one();
        }
    }

    /// Waits until a stream has taken the file `from`, but not longer than `most`.
    fn wait(&self, from: u64, most: Duration) {
        let sleep = lock(&self.sleep);
        self.wake_from.store(from, Ordering::SeqCst);
        drop(sleep.wait_timeout(&self.woken, most));
        self.wake_from.store(AWAKE, Ordering::SeqCst);
    }

    /// Begins to read ahead, as a file was met that is not in the page cache.
    pub fn begin(self: &Arc<Self>, queue: impl Queue + 'static) {
        if !self.is_running() && !self.is_running.swap(true, Ordering::SeqCst) {
            let ahead = self.clone();
            // Where no thread is to be had, streams read as they do without one.
            let _ =
                thread::Builder::new().name("haul-ahead".into()).spawn(move || ahead.run(&queue));
        }
    }

    fn run(&self, queue: &dyn Queue) {
        let (mut window, mut depth) = (Window::default(), None);
        let (mut asking, kept) =
            (Asking::new(SMALL_FILE_BYTES_MAX as usize), Share::of_ahead_files());
        let (mut idle_since, mut cached_in_a_row) = (Instant::now(), 0);
        while !queue.is_over() && !is_warm(cached_in_a_row) {
            // The first files are known soon, and streams do not wait for more.
            let files_max = depth.map_or(FILES_FIRST, |depth: Depth| depth.files);
            let batch = next_batch(queue, &mut window, files_max);
            if batch.is_empty() {
                if window.is_of_no_use(idle_since.elapsed()) {
                    break;
                }
                let half = window.half().map_or(AWAKE, |file| u64::from(file.0));
                self.wait(half, WAIT_MAX);
                continue;
            }
            let Depth { by_extent, .. } = *depth.get_or_insert_with(|| Depth::of(&batch[0].1));
            in_order(batch, by_extent, &mut asking, |file, ahead, asked| {
                match asked {
                    Asked::Cached => cached_in_a_row += 1,
                    Asked::OnItsWay => cached_in_a_row = 0,
                }
                if let Some(pass) = kept.take()
                    && let Some(opened) = ahead.into_opened()
                {
                    queue.opened(file, OpenedAhead::new(Arc::new(opened), pass));
                }
                !queue.is_over()
            });
            idle_since = Instant::now();
        }
        self.is_running.store(false, Ordering::SeqCst);
    }
}

/// Whether reading ahead gains nothing, as so many files in a row were in the page cache.
fn is_warm(cached_in_a_row: u32) -> bool {
    cached_in_a_row >= CACHED_MAX
}

/// Files that wait for a stream of a session.
pub trait Queue: Send {
    /// Whether the session is over.
    fn is_over(&self) -> bool;

    /// The file that goes out next.
    fn first(&self) -> Option<FileId>;

    /// At most so many of the files from `first` on, in the order in which they go out; each with
    /// its source where that is to be read ahead.
    fn waiting(&self, first: FileId, most: usize) -> Vec<(FileId, Option<Arc<SourceEntry>>)>;

    /// Takes a file that was read ahead, for the stream that sends it.
    fn opened(&self, file: FileId, opened: OpenedAhead);
}

/// A file that was read ahead and is open for the stream that sends it.
#[derive(Debug)]
pub struct OpenedAhead {
    pub file: Arc<SpanFile>,
    _pass: Pass,
}

impl OpenedAhead {
    #[must_use]
    pub fn new(file: Arc<SpanFile>, pass: Pass) -> Self {
        Self { file, _pass: pass }
    }
}

/// Takes the files to ask for now, as far as there is room in the window.
fn next_batch(queue: &dyn Queue, window: &mut Window, files_max: usize) -> Vec<Waiting> {
    window.taken_before(queue.first());
    let mut batch = Vec::new();
    for (file, entry) in queue.waiting(window.next, window.room(files_max)) {
        if !window.add(file, entry.as_ref().map_or(0, |entry| entry.offer.size_bytes)) {
            break;
        }
        batch.extend(entry.map(|entry| (file, entry)));
    }
    batch
}

/// A file that waits for a stream, and its source.
type Waiting = (FileId, Arc<SourceEntry>);

/// Asks for the bytes of files in the order of their places, for as long as `tell` wants more.
/// Those that cannot be opened are left out.
fn in_order(
    mut batch: Vec<Waiting>,
    by_extent: bool,
    asking: &mut Asking,
    mut tell: impl FnMut(FileId, Ahead, Asked) -> bool,
) {
    batch.sort_by_key(|(_, entry)| Place::of(entry));
    // To know their extents, all of a part are open at a time.
    let part = if by_extent { usize::MAX } else { CALL_FILES_MAX };
    for part in batch.chunks(part.min(ahead_files_max())) {
        let open = |(file, entry): &Waiting| Some((*file, Ahead::open(entry)?));
        let mut opened: Vec<(FileId, Ahead)> = part.iter().filter_map(open).collect();
        if by_extent {
            opened.iter_mut().for_each(|(_, ahead)| ahead.find_extent());
            opened.sort_by_key(|(_, ahead)| ahead.place());
        }
        while !opened.is_empty() {
            let rest = opened.split_off(opened.len().min(CALL_FILES_MAX));
            let files: Vec<&Ahead> = opened.iter().map(|(_, ahead)| ahead).collect();
            let asked = asking.ask(&files);
            for ((file, ahead), asked) in opened.into_iter().zip(asked) {
                if !tell(file, ahead, asked) {
                    return;
                }
            }
            opened = rest;
        }
    }
}

/// Files that were asked for and that no stream has taken, in the order in which they go out.
#[derive(Debug, Default)]
struct Window {
    files: VecDeque<(FileId, u64)>,
    bytes: u64,
    /// Number of the first file that was not asked for.
    next: FileId,
}

impl Window {
    /// Forgets the files that were taken: all before the `first` that waits.
    fn taken_before(&mut self, first: Option<FileId>) {
        while let Some((file, bytes)) = self.files.front()
            && first.is_none_or(|first| *file < first)
        {
            self.bytes -= bytes;
            self.files.pop_front();
        }
        self.next = self.next.max(first.unwrap_or_default());
    }

    /// Number of files to ask for now. None before the half is taken: the more there are of them,
    /// the better their order.
    fn room(&self, files_max: usize) -> usize {
        if self.files.len() > files_max / 2 || self.bytes > BYTES_MAX / 2 {
            return 0;
        }
        files_max - self.files.len()
    }

    /// Adds a file that is asked for; false where it is too many bytes.
    fn add(&mut self, file: FileId, bytes: u64) -> bool {
        if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        self.files.push_back((file, bytes));
        self.bytes += bytes;
        self.next = FileId(file.0.saturating_add(1));
        true
    }

    /// Whether there was nothing to ask for in this time, and nothing waits to be taken.
    fn is_of_no_use(&self, idle: Duration) -> bool {
        self.bytes == 0 && idle >= IDLE_MAX
    }

    /// The file in the middle: once it is taken there is room.
    fn half(&self) -> Option<FileId> {
        self.files.get(self.files.len() / 2).map(|(file, _)| *file)
    }
}

/// A stream's look at whether the files that it reads are in the page cache, by reading them.
#[derive(Debug, Default)]
pub struct CacheLook {
    /// The file system does not tell whether a read waits: one file of several is looked at.
    by_sample: bool,
    files: u32,
}

impl CacheLook {
    /// Reads a file's first bytes. Tells, too, whether they had to be waited for.
    pub fn read(&mut self, file: &File, bytes: &mut [u8]) -> (rustix::io::Result<usize>, bool) {
        let mut is_cold = false;
        if self.by_sample {
            self.files = self.files.wrapping_add(1);
            if self.files.is_multiple_of(LOOK_EVERY) {
                let len_bytes = bytes.len() as u64;
                let cached = haul_sys::cachestat::cached_bytes(file, 0, len_bytes);
                is_cold = cached.is_ok_and(|cached_bytes| cached_bytes < len_bytes);
            }
        } else {
            let mut parts = [IoSliceMut::new(bytes)];
            match AtOnce::of(preadv2(file, &mut parts, 0, ReadWriteFlags::NOWAIT)) {
                AtOnce::Read(got) => return (Ok(got), false),
                AtOnce::Waits => is_cold = true,
                AtOnce::NotTold => self.by_sample = true,
                AtOnce::Unclear => {}
            }
        }
        (retry_on_intr(|| pread(file, &mut *bytes, 0)), is_cold)
    }

    /// A look that the next file is looked at by, on a file system that does not tell.
    #[cfg(test)]
    pub(super) fn that_looks_now() -> Self {
        Self { by_sample: true, files: LOOK_EVERY - 1 }
    }
}

/// Outcome of a read that was not to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtOnce {
    Read(usize),
    /// The bytes are not in the page cache.
    Waits,
    /// The file system does not tell whether a read waits.
    NotTold,
    /// A read that may wait says what is wrong, if anything.
    Unclear,
}

impl AtOnce {
    fn of(read: rustix::io::Result<usize>) -> Self {
        match read {
            // Linux 5.9 and 5.10 say so in the middle of a file, too (preadv2(2), BUGS).
            Ok(0) => Self::Unclear,
            Ok(got) => Self::Read(got),
            Err(Errno::AGAIN) => Self::Waits,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Self::NotTold,
            Err(_) => Self::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::sending::without_peer::wait_until;
    use crate::{
        options::SourceSpec,
        storage::{
            named_sources::walk_named,
            walk::{Listed, WalkOptions},
        },
    };
    use haul_sys::cachestat::cached_bytes;
    use haul_testkit::{page_cache, skip::skip};
    use std::{path::Path, process::Command};

    const FILE_BYTES: u64 = 128 << 10;

    fn numbers(window: &Window) -> Vec<u32> {
        window.files.iter().map(|(file, _)| file.0).collect()
    }

    #[test]
    fn a_window_has_room_once_half_of_it_is_taken() {
        let mut window = Window::default();
        assert_eq!((window.room(8), window.half()), (8, None));
        assert!((0..8).all(|file| window.add(FileId(file), 1)));
        assert_eq!((window.room(8), window.half()), (0, Some(FileId(4))));
        window.taken_before(Some(FileId(3)));
        assert_eq!((window.room(8), window.bytes), (0, 5));
        window.taken_before(Some(FileId(4)));
        assert_eq!((window.room(8), window.next), (4, FileId(8)));
        window.taken_before(None);
        assert_eq!((numbers(&window), window.bytes, window.next), (vec![], 0, FileId(8)));
        // Streams were faster.
        window.taken_before(Some(FileId(20)));
        assert_eq!(window.next, FileId(20));
    }

    #[test]
    fn a_window_holds_so_many_bytes_and_no_more() {
        let mut window = Window::default();
        let all = (0..1000).take_while(|file| window.add(FileId(*file), FILE_BYTES));
        assert_eq!(all.count() as u64, BYTES_MAX / FILE_BYTES);
        assert!(window.bytes <= BYTES_MAX && window.room(1000) == 0);
        window.taken_before(Some(FileId(64)));
        assert!(window.room(1000) > 0);
    }

    #[test]
    fn a_window_is_of_use_while_files_of_it_wait_or_others_were_asked_for() {
        let mut window = Window::default();
        let moment = Duration::from_nanos(1);
        assert!(!window.is_of_no_use(IDLE_MAX - moment) && window.is_of_no_use(IDLE_MAX));
        window.add(FileId(0), 1);
        assert!(!window.is_of_no_use(IDLE_MAX * 2));
    }

    #[test]
    fn the_thread_waits_for_a_file_to_be_taken_and_not_for_long() {
        let ahead = Arc::new(ReadingAhead::default());
        ahead.taken(FileId(7));
        let begun = Instant::now();
        ahead.wait(AWAKE, WAIT_MAX);
        assert!(begun.elapsed() >= WAIT_MAX);
        let (waits, most) = (ahead.clone(), Duration::from_secs(600));
        let waiting = thread::spawn(move || waits.wait(9, most));
        while !waiting.is_finished() {
            ahead.taken(FileId(9));
        }
        waiting.join().unwrap();
        assert!(begun.elapsed() < most);
        assert_eq!(ahead.wake_from.load(Ordering::SeqCst), AWAKE);
    }

    #[test]
    fn only_the_file_that_is_waited_for_and_those_behind_it_wake_the_thread() {
        let ahead = ReadingAhead::default();
        for (taken, is_woken) in [(8, false), (9, true), (10, true)] {
            ahead.wake_from.store(9, Ordering::SeqCst);
            ahead.taken(FileId(taken));
            let is_awake = ahead.wake_from.load(Ordering::SeqCst) == AWAKE;
            assert_eq!(is_awake, is_woken, "{taken}");
        }
    }

    #[test]
    fn a_read_that_is_not_to_wait_tells_whether_it_would_have() {
        for (read, at_once) in [
            (Ok(5), AtOnce::Read(5)),
            (Ok(0), AtOnce::Unclear),
            (Err(Errno::AGAIN), AtOnce::Waits),
            (Err(Errno::OPNOTSUPP), AtOnce::NotTold),
            (Err(Errno::NOSYS), AtOnce::NotTold),
            (Err(Errno::IO), AtOnce::Unclear),
        ] {
            assert_eq!(AtOnce::of(read), at_once, "{read:?}");
        }
    }

    #[test]
    fn where_reading_does_not_tell_one_file_of_several_is_looked_at() {
        let file = tempfile::tempfile().unwrap();
        // A hole that nobody has read has nothing in the page cache.
        file.set_len(9000).unwrap();
        if cached_bytes(&file, 0, 9000).ok() != Some(0) {
            return skip("cachestat(2)", "none");
        }
        let mut look = CacheLook { by_sample: true, files: LOOK_EVERY - 2 };
        let mut bytes = [7; 9000];
        let (read, is_cold) = look.read(&file, &mut bytes[..1]);
        assert!(read == Ok(1) && !is_cold && bytes[..2] == [0, 7], "it is not looked at");
        let file = tempfile::tempfile().unwrap();
        file.set_len(9000).unwrap();
        let (read, is_cold) = look.read(&file, &mut bytes);
        assert!(read == Ok(9000) && is_cold && bytes == [0; 9000]);
        std::os::unix::fs::FileExt::write_all_at(&file, &[8; 9000], 0).unwrap();
        let (read, is_cold) = CacheLook::that_looks_now().read(&file, &mut bytes);
        assert!(read == Ok(9000) && !is_cold && bytes == [8; 9000]);
    }

    #[test]
    fn a_stream_sees_by_reading_that_a_file_is_cold() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 9000]).unwrap();
        let (mut look, mut bytes) = (CacheLook::default(), [0; 9000]);
        let file = File::open(&path).unwrap();
        let (read, is_cold) = look.read(&file, &mut bytes);
        assert!(read.unwrap() == 9000 && !is_cold && bytes == [7; 9000]);
        if look.by_sample {
            return skip("RWF_NOWAIT on a disk below this directory", "none");
        }
        if let Err(why) = page_cache::forget(&path, 0..9000) {
            return skip("a disk below this directory", why);
        }
        let (read, is_cold) = look.read(&file, &mut [0; 9000]);
        assert!(read.unwrap() > 0 && is_cold);
    }

    /// Files that wait for a stream which never comes.
    struct Files {
        entries: Vec<Arc<SourceEntry>>,
        is_over: Arc<AtomicBool>,
        opened: Arc<Lock<Vec<(FileId, OpenedAhead)>>>,
    }

    impl Queue for Files {
        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }

        fn first(&self) -> Option<FileId> {
            Some(FileId(0))
        }

        fn waiting(&self, first: FileId, most: usize) -> Vec<(FileId, Option<Arc<SourceEntry>>)> {
            let all = self.entries.iter().enumerate().skip(first.0 as usize).take(most);
            all.map(|(number, entry)| (FileId(number as u32), Some(entry.clone()))).collect()
        }

        fn opened(&self, file: FileId, opened: OpenedAhead) {
            lock(&self.opened).push((file, opened));
        }
    }

    fn entries(tree: &Path) -> Vec<Arc<SourceEntry>> {
        let walk = walk_named(&[SourceSpec::Path(tree.to_owned().into())], WalkOptions::default());
        let file = |listed| match listed {
            Listed::Entry(entry) if entry.offer.size_bytes > 0 => Some(Arc::new(*entry)),
            _ => None,
        };
        walk.filter_map(file).collect()
    }

    /// Sources of files with so many bytes each.
    fn files(directory: &Path, count: usize, len_bytes: usize) -> Vec<Arc<SourceEntry>> {
        for number in 10..10 + count {
            std::fs::write(directory.join(number.to_string()), vec![7; len_bytes]).unwrap();
        }
        let mut entries = entries(directory);
        entries.sort_by(|one, two| one.offer.name.cmp(&two.offer.name));
        entries
    }

    #[test]
    fn a_batch_is_what_the_window_has_room_for_and_what_is_no_small_file_only_counts() {
        let directory = tempfile::tempdir().unwrap();
        let entries = files(directory.path(), 20, 1000);
        let (is_over, few) = (Arc::default(), entries[..9].to_vec());
        let queue = Files { entries: few.clone(), is_over, opened: Arc::default() };
        let mut window = Window::default();
        let names = |batch: Vec<Waiting>| {
            batch.iter().map(|(_, entry)| entry.offer.name.clone()).collect::<Vec<_>>()
        };
        let expected: Vec<_> = few.iter().map(|entry| entry.offer.name.clone()).collect();
        assert_eq!(names(next_batch(&queue, &mut window, 6)), expected[..6]);
        assert_eq!(window.bytes, 6000);
        assert_eq!(names(next_batch(&queue, &mut window, 6)), [b""; 0], "none was taken");
        assert_eq!(names(next_batch(&queue, &mut window, 32)), expected[6..]);
        // The last that fits is followed by one that does not.
        let mut window = Window::default();
        window.add(FileId(0), BYTES_MAX / 2);
        let mut large = (*entries[0]).clone();
        large.offer.size_bytes = BYTES_MAX / 2;
        let entries = vec![entries[0].clone(), Arc::new(large.clone()), Arc::new(large)];
        let queue = Files { entries, is_over: Arc::default(), opened: Arc::default() };
        assert_eq!(next_batch(&queue, &mut window, 32).len(), 1);
        assert_eq!((window.bytes, window.next), (BYTES_MAX, FileId(2)));
    }

    #[test]
    fn files_are_asked_for_one_after_the_other_while_more_are_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let count = 2 * CALL_FILES_MAX + 10;
        let numbered = |(number, entry)| (FileId(number as u32), entry);
        let batch = files(directory.path(), count, 1000).into_iter().enumerate().map(numbered);
        let batch: Vec<Waiting> = batch.collect();
        std::fs::remove_file(directory.path().join("13")).unwrap();
        let mut asking = Asking::new(1000);
        for by_extent in [false, true] {
            for (wanted, expected) in [(usize::MAX, count - 1), (4, 4)] {
                let mut asked = Vec::new();
                in_order(batch.clone(), by_extent, &mut asking, |file, _, _| {
                    asked.push(file);
                    asked.len() < wanted
                });
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), expected, "{by_extent}");
            }
        }
    }

    /// A session whose files are all taken by streams, and how often its thread looked for others.
    struct Empty {
        is_over: Arc<AtomicBool>,
        looks: Arc<AtomicU64>,
    }

    impl Queue for Empty {
        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }

        fn first(&self) -> Option<FileId> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            None
        }

        fn waiting(&self, _: FileId, _: usize) -> Vec<(FileId, Option<Arc<SourceEntry>>)> {
            Vec::new()
        }

        fn opened(&self, _: FileId, _: OpenedAhead) {
            unreachable!("there are no files");
        }
    }

    #[test]
    fn one_thread_at_a_time_looks_for_files_and_ends_when_there_are_none_for_a_time() {
        let ahead = Arc::new(ReadingAhead::default());
        let (looks, others): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let begin = |looks: &Arc<AtomicU64>| {
            ahead.begin(Empty { is_over: Arc::default(), looks: looks.clone() });
        };
        assert!(!ahead.is_running());
        let begun = Instant::now();
        begin(&looks);
        assert!(ahead.is_running());
        begin(&others);
        wait_until("looked", || looks.load(Ordering::SeqCst) > 3);
        wait_until("at its end", || !ahead.is_running());
        assert!(begun.elapsed() >= IDLE_MAX);
        assert_eq!(others.load(Ordering::SeqCst), 0, "there was a thread");
        begin(&others);
        wait_until("looked", || others.load(Ordering::SeqCst) > 0);
        wait_until("at its end", || !ahead.is_running());
    }

    /// Sources that went away, changed their kind or cannot be read are not its business.
    #[test]
    fn cold_files_come_into_the_cache_beside_broken_ones_until_the_session_is_over() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let paths: Vec<_> = (10..70).map(|n| directory.path().join(format!("f{n}"))).collect();
        for path in &paths {
            std::fs::write(path, [7; 9000]).unwrap();
            if let Err(why) = page_cache::forget(path, 0..9000) {
                return skip("a disk below this directory", why);
            }
        }
        let mut entries = entries(directory.path());
        entries.sort_by(|one, two| one.offer.name.cmp(&two.offer.name));
        assert_eq!(entries.len(), paths.len());
        for path in &paths[3..6] {
            std::fs::remove_file(path).unwrap();
        }
        assert!(Command::new("mkfifo").arg(&paths[4]).status().unwrap().success());
        std::fs::create_dir(&paths[5]).unwrap();
        let (ahead, is_over) = (Arc::new(ReadingAhead::default()), Arc::new(AtomicBool::default()));
        let opened = Arc::<Lock<Vec<(FileId, OpenedAhead)>>>::default();
        ahead.begin(Files { entries, is_over: is_over.clone(), opened: opened.clone() });
        let is_cached = |path: &std::path::PathBuf| {
            cached_bytes(File::open(path).unwrap(), 0, 9000).unwrap() == 9000
        };
        let whole = || paths[..3].iter().chain(&paths[6..]).all(is_cached);
        wait_until("in the cache", whole);
        assert!(ahead.is_running());
        wait_until("open for their streams", || lock(&opened).len() == paths.len() - 3);
        for (file, opened) in lock(&opened).iter() {
            let path = &paths[file.0 as usize];
            let inode = |file: &File| rustix::fs::fstat(file).unwrap().st_ino;
            assert_eq!(inode(opened.file.file()), inode(&File::open(path).unwrap()), "{file:?}");
        }
        is_over.store(true, Ordering::SeqCst);
        wait_until("over", || !ahead.is_running());
    }

    #[test]
    fn the_thread_ends_where_all_is_in_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..2 * CACHED_MAX {
            std::fs::write(directory.path().join(number.to_string()), b"warm").unwrap();
        }
        let entries = entries(directory.path());
        let ahead = Arc::new(ReadingAhead::default());
        ahead.begin(Files { entries, is_over: Arc::default(), opened: Arc::default() });
        wait_until("at its end", || !ahead.is_running());
    }
}
