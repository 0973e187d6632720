//! Blocks of files read or written beside the stream's thread: by a ring or by a second thread.

use std::{
    fs::File,
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
};

use haul_sys::Ring;
use rustix::io::{pread, pwrite, retry_on_intr};

pub(crate) use crate::aligned_buffer::ALIGN_BYTES;
use crate::aligned_buffer::AlignedBuffer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A read into a slot or a write out of it.
#[derive(Debug)]
pub(crate) struct Job {
    pub direction: Direction,
    pub file: Arc<File>,
    pub offset_bytes: u64,
    /// The part of the slot that the job moves.
    pub part: Range<usize>,
}

/// Slots of memory, and the jobs that run on them beside the caller.
///
/// A slot is idle until a job starts on it and from when the job appears in `finished`.
pub(crate) trait BlockQueue: Send {
    fn slot_count(&self) -> usize;
    fn slot_bytes(&self) -> usize;
    /// The memory of an idle slot, which begins at a page.
    fn slot(&self, slot: usize) -> &[u8];
    fn slot_mut(&mut self, slot: usize) -> &mut [u8];
    fn start(&mut self, slot: usize, job: Job) -> io::Result<()>;
    /// The next job that is over: its slot, and bytes moved or its error. `None` if there is none
    /// yet; with `block` only if nothing is in flight.
    fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>>;
}

/// Number and size in bytes of the slots that fit into `buffer_bytes_max`: two at least, of a page
/// at least.
pub(crate) fn slots_within(
    buffer_bytes_max: usize,
    slots_max: usize,
    slot_bytes_max: usize,
) -> (usize, usize) {
    let align = ALIGN_BYTES as usize;
    let slot_bytes = (buffer_bytes_max / 2 / align * align).clamp(align, slot_bytes_max);
    ((buffer_bytes_max / slot_bytes).clamp(2, slots_max), slot_bytes)
}

impl BlockQueue for Ring {
    fn slot_count(&self) -> usize {
        Ring::slot_count(self)
    }

    fn slot_bytes(&self) -> usize {
        Ring::slot_bytes(self)
    }

    fn slot(&self, slot: usize) -> &[u8] {
        Ring::slot(self, slot)
    }

    fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        Ring::slot_mut(self, slot)
    }

    fn start(&mut self, slot: usize, job: Job) -> io::Result<()> {
        match job.direction {
            Direction::Read => self.start_read(slot, job.part, job.file, job.offset_bytes),
            Direction::Write => self.start_write(slot, job.part, job.file, job.offset_bytes),
        }
    }

    fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
        Ring::finished(self, block)
    }
}

struct Task {
    slot: usize,
    buffer: AlignedBuffer,
    job: Job,
}

struct Finished {
    slot: usize,
    buffer: AlignedBuffer,
    moved: io::Result<usize>,
}

/// A thread that does the jobs one after the other.
pub(crate) struct WorkerThread {
    /// Buffers of the slots; `None` while the worker has the buffer.
    slots: Vec<Option<AlignedBuffer>>,
    slot_bytes: usize,
    /// The way to the worker; `None` only while dropping.
    tasks: Option<Sender<Task>>,
    results: Receiver<Finished>,
    worker: Option<JoinHandle<()>>,
}

impl WorkerThread {
    pub(crate) fn new(name: &str, slot_count: usize, slot_bytes: usize) -> io::Result<Self> {
        let (tasks, todo) = channel();
        let (finished, results) = channel();
        let worker = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&todo, &finished))?;
        Ok(Self {
            slots: (0..slot_count).map(|_| Some(AlignedBuffer::new(slot_bytes))).collect(),
            slot_bytes,
            tasks: Some(tasks),
            results,
            worker: Some(worker),
        })
    }
}

fn work(todo: &Receiver<Task>, finished: &Sender<Finished>) {
    while let Ok(Task { slot, mut buffer, job }) = todo.recv() {
        let memory = &mut buffer.bytes_mut()[job.part.clone()];
        let moved = retry_on_intr(|| match job.direction {
            Direction::Read => pread(&job.file, &mut *memory, job.offset_bytes),
            Direction::Write => pwrite(&job.file, memory, job.offset_bytes),
        });
        // The file is closed before its job is known to be over.
        drop(job);
        let moved = moved.map_err(io::Error::from);
        if finished.send(Finished { slot, buffer, moved }).is_err() {
            return;
        }
    }
}

/// The error where the worker has ended: it ends only when its queue does, so this tells of a bug
/// in it.
fn gone() -> io::Error {
    io::Error::other("the thread beside the stream has ended")
}

impl BlockQueue for WorkerThread {
    fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn slot(&self, slot: usize) -> &[u8] {
        self.slots[slot].as_ref().expect("only idle slots are looked at").bytes()
    }

    fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        self.slots[slot].as_mut().expect("only idle slots are looked at").bytes_mut()
    }

    fn start(&mut self, slot: usize, job: Job) -> io::Result<()> {
        let buffer = self.slots[slot].take().expect("a job starts on an idle slot");
        let tasks = self.tasks.as_ref().ok_or_else(gone)?;
        tasks.send(Task { slot, buffer, job }).map_err(|_| gone())
    }

    fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
        let next = match self.results.try_recv() {
            Err(TryRecvError::Empty) if !block || self.slots.iter().all(Option::is_some) => {
                return Ok(None);
            }
            Err(TryRecvError::Empty) => self.results.recv(),
            Err(TryRecvError::Disconnected) => Err(RecvError),
            Ok(finished) => Ok(finished),
        };
        let Finished { slot, buffer, moved } = next.map_err(|_| gone())?;
        self.slots[slot] = Some(buffer);
        Ok(Some((slot, moved)))
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fit_into_the_memory_allowed() {
        assert_eq!(slots_within(64 << 20, 8, 1 << 20), (8, 1 << 20));
        assert_eq!(slots_within(3 << 20, 8, 1 << 20), (3, 1 << 20));
        assert_eq!(slots_within(100_000, 8, 1 << 20), (2, 49_152));
        assert_eq!(slots_within(0, 8, 1 << 20), (2, 4096));
    }

    #[test]
    fn the_worker_writes_and_reads_in_order() {
        let mut queue = WorkerThread::new("worker", 2, 8192).unwrap();
        assert_eq!((queue.slot_count(), queue.slot_bytes()), (2, 8192));
        let file = Arc::new(tempfile::tempfile().unwrap());
        let job = |direction| Job { direction, file: file.clone(), offset_bytes: 5, part: 0..9 };
        queue.slot_mut(0)[..9].copy_from_slice(b"in a slot");
        queue.start(0, job(Direction::Write)).unwrap();
        queue.start(1, job(Direction::Read)).unwrap();
        for slot in 0..2 {
            let (finished, moved) = queue.finished(true).unwrap().unwrap();
            assert_eq!((finished, moved.unwrap()), (slot, 9));
        }
        assert_eq!(&queue.slot(1)[..9], b"in a slot");
        assert_eq!(queue.slot(1).as_ptr().align_offset(4096), 0);
        assert!(queue.finished(true).unwrap().is_none());
    }

    /// A file that is being written to when its queue goes would change behind everybody's back.
    #[test]
    fn a_queue_that_goes_waits_for_its_jobs() {
        const BYTES: usize = 64 << 20;
        let mut queue = WorkerThread::new("worker", 1, BYTES).unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let job = Job {
            direction: Direction::Write,
            file: file.clone(),
            offset_bytes: 0,
            part: 0..BYTES,
        };
        queue.start(0, job).unwrap();
        drop(queue);
        assert_eq!(Arc::strong_count(&file), 1, "the job is over");
        assert_eq!(file.metadata().unwrap().len(), BYTES as u64);
    }
}
