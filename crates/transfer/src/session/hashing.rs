//! Threads that read files beside the session's thread.
//!
//! They read whole files for their BLAKE3, to tell whether what is at the target is the same as the
//! source; and what is to be looked at once more.

use crate::locks::{Lock, lock};
use haul_datapath::SpanFile;
use haul_protocol::FileId;
use rustix::io::{pread, retry_on_intr};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Count of threads: one reads while another computes, and more would only share the disk.
const THREADS: usize = 2;

/// The BLAKE3 of a file's content.
pub type Content = [u8; 32];

/// Result of reading a file.
pub type Hashed<T> = (FileId, io::Result<T>);

/// A file and its reading; the flag says that nobody waits for it any more.
type Job<T> = (FileId, Box<dyn FnOnce(&AtomicBool) -> io::Result<T> + Send>);

/// Threads that read files, started when the first file comes.
pub struct Hashing<T = Content> {
    wake: Arc<dyn Fn() + Send + Sync>,
    jobs: Option<mpsc::Sender<Job<T>>>,
    results: Arc<Lock<Vec<Hashed<T>>>>,
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Files that were given and whose results were not taken yet.
    open: BTreeSet<FileId>,
}

impl<T: Send + 'static> Hashing<T> {
    /// Starts with no file; `wake` is called when there is a result.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            wake: Arc::new(wake),
            jobs: None,
            results: Arc::default(),
            ending: Arc::default(),
            threads: Vec::new(),
            open: BTreeSet::new(),
        }
    }

    /// Has a file read by `read` on one of the threads.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin(
        &mut self,
        file: FileId,
        read: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<()> {
        if self.jobs.is_none() {
            self.start()?;
        }
        let jobs = self.jobs.as_ref().expect("just started");
        self.open.insert(file);
        jobs.send((file, Box::new(read)))
            .map_err(|_| io::Error::other("the threads that read files have ended"))
    }

    fn start(&mut self) -> io::Result<()> {
        let (jobs, taken) = mpsc::channel();
        let taken = Arc::new(Lock::<_>::new(taken));
        for number in 0..THREADS {
            let (taken, results) = (taken.clone(), self.results.clone());
            let (ending, wake) = (self.ending.clone(), self.wake.clone());
            let name = format!("haul-compare-{number}");
            self.threads.push(thread::Builder::new().name(name).spawn(move || {
                loop {
                    let job: Result<Job<T>, _> = lock(&taken).recv();
                    let Ok((file, read)) = job else { return };
                    let hashed = read(&ending);
                    lock(&results).push((file, hashed));
                    wake();
                }
            })?);
        }
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Takes the results since the last call.
    pub fn take_results(&mut self) -> Vec<Hashed<T>> {
        let results = std::mem::take(&mut *lock(&self.results));
        for (file, _) in &results {
            self.open.remove(file);
        }
        results
    }

    /// Whether any file is given whose result was not taken yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the result of this file was not taken yet.
    #[must_use]
    pub fn has(&self, file: FileId) -> bool {
        self.open.contains(&file)
    }
}

impl Hashing {
    /// Hashes the first `len_bytes` of the file that `open` gives.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin_hash(
        &mut self,
        file: FileId,
        len_bytes: u64,
        open: impl FnOnce() -> io::Result<Arc<SpanFile>> + Send + 'static,
    ) -> io::Result<()> {
        self.begin(file, move |ending| open().and_then(|file| hash(&file, len_bytes, ending)))
    }
}

impl<T> Hashing<T> {
    /// Ends the threads, in the middle of a file too.
    pub fn stop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<T> Drop for Hashing<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn hash(file: &SpanFile, len_bytes: u64, ending: &AtomicBool) -> io::Result<Content> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < len_bytes {
        if ending.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let take = usize::try_from(len_bytes - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let got = retry_on_intr(|| pread(file.file(), &mut chunk[..take], file.place(at)))?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&chunk[..got]);
        at += got as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, time::Duration};

    #[test]
    fn files_are_hashed_and_those_that_cannot_be_read_say_so() {
        let (told, tells) = mpsc::channel();
        let mut hashing = Hashing::new(move || {
            let _ = told.send(());
        });
        let mut file = tempfile::tempfile().unwrap();
        let bytes = vec![7; 3 * CHUNK_BYTES + 5];
        file.write_all(&bytes).unwrap();
        let opened = Arc::new(SpanFile::new(file));
        let too_long = opened.clone();
        let len = bytes.len() as u64;
        hashing.begin_hash(FileId(1), len, move || Ok(opened)).unwrap();
        hashing.begin_hash(FileId(2), len + 1, move || Ok(too_long)).unwrap();
        hashing.begin_hash(FileId(3), 0, || Err(io::ErrorKind::NotFound.into())).unwrap();
        let mut results = Vec::new();
        while results.len() < 3 {
            tells.recv_timeout(Duration::from_secs(60)).unwrap();
            results.extend(hashing.take_results());
        }
        results.sort_by_key(|(file, _)| *file);
        assert_eq!(results[0].1.as_ref().unwrap(), blake3::hash(&bytes).as_bytes());
        assert!(results[1].1.is_err() && results[2].1.is_err() && !hashing.is_busy());
    }
    #[test]
    fn no_more_is_hashed_than_is_asked_for_and_what_cannot_be_read_ends_it() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = vec![7; CHUNK_BYTES + 5000];
        file.write_all(&bytes).unwrap();
        let (file, goes_on) = (SpanFile::new(file), AtomicBool::new(false));
        for len in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1000] {
            let hashed = hash(&file, len as u64, &goes_on).unwrap();
            assert_eq!(hashed, *blake3::hash(&bytes[..len]).as_bytes(), "{len}");
        }
        let directory = SpanFile::new(std::fs::File::open("/").unwrap());
        let error = hash(&directory, 10, &goes_on).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let error = hash(&file, 10, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_file_is_under_way_until_its_result_is_taken() {
        let mut hashing: Hashing<u8> = Hashing::new(|| {});
        assert!(!hashing.is_busy() && !hashing.has(FileId(1)));
        hashing.begin(FileId(1), |_| Ok(7)).unwrap();
        assert!(hashing.is_busy() && hashing.has(FileId(1)) && !hashing.has(FileId(2)));
        let deadline = std::time::Instant::now() + Duration::from_secs(8);
        let mut results = Vec::new();
        while results.is_empty() {
            assert!(std::time::Instant::now() < deadline, "it is read");
            results = hashing.take_results();
        }
        assert!(matches!(results[..], [(FileId(1), Ok(7))]) && !hashing.is_busy());
    }

    #[test]
    fn reading_ends_with_the_one_who_asked() {
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        let mut hashing: Hashing<()> = Hashing::new(|| {});
        hashing
            .begin(FileId(1), move |ending| {
                while !ending.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(50));
                told.store(true, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        drop(hashing);
        assert!(ended.load(Ordering::Relaxed), "it was waited for");
    }
}
