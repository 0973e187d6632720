//! Reads that the streams of a loop want from the disk, in the order of their deadlines.
//!
//! The earliest deadline comes first; deadlines that are close together count as one, and within
//! them the order is that of the file and its offset, so that a disk with a head sweeps once
//! (SCAN-EDF: Reddy and Wyllie, "Disk scheduling in a multimedia I/O system", ACM Multimedia 1993).
//! Streams without a rate have no deadline and come after those that have one.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use haul_sys::Ring;
use rustix::io::Errno;

use super::parts::Parts;
use crate::{delivery::Reads, site::Identity};

/// Number of a stream, as its loop gives it.
pub type Owner = usize;

/// Deadline of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    At(Instant),
    /// No deadline: read when nobody with one waits.
    Sometime,
}

/// Name of a read, and its place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Deadline in whole quanta since the queue's beginning; without a deadline the last.
    quantum: u64,
    file: Identity,
    offset: u64,
    number: u64,
}

/// A read that waits in line, or is in flight.
#[derive(Debug)]
struct Read {
    owner: Owner,
    file: Arc<File>,
    range: Range<u64>,
    due: Due,
    wanted: Instant,
}

/// Place that bytes are read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// The own memory of a slot.
    Slots,
    /// The page cache.
    PageCache,
}

/// A read that is over. Its slot is the taker's, until it is given back.
#[derive(Debug)]
pub struct Finished {
    pub owner: Owner,
    pub ticket: Ticket,
    pub slot: usize,
    pub outcome: io::Result<usize>,
}

/// Sizes of a disk queue, and how it orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub slots: usize,
    /// Longest read, in bytes.
    pub slot_bytes: u64,
    /// Most reads that the disk has at a time.
    pub depth: usize,
    /// Deadlines within this time count as one.
    pub quantum: Duration,
}

pub struct DiskQueue {
    ring: Ring,
    into: Into,
    /// Longest read, in bytes.
    slot_bytes: u64,
    parts: Parts,
    depth: usize,
    quantum: Duration,
    begun: Instant,
    waiting: BTreeMap<Ticket, Read>,
    in_flight: Vec<Option<(Ticket, Read)>>,
    in_flight_count: usize,
    /// Free slots: the one used last is taken first, as its memory is warm and the others' may
    /// never be touched.
    free: Vec<usize>,
    numbered: u64,
    figures: Reads,
}

impl DiskQueue {
    /// Sets up io_uring, with slots of memory where reads go into them.
    ///
    /// # Errors
    /// Where there is no io_uring, or no memory for its slots.
    pub fn new(into: Into, shape: Shape) -> io::Result<Self> {
        let slots = u32::try_from(shape.slots).map_err(io::Error::other)?;
        let ring = match into {
            Into::Slots => Ring::unregistered(slots, shape.slot_bytes as usize)?,
            Into::PageCache => Ring::for_warming(slots, shape.slot_bytes)?,
        };
        Ok(Self {
            ring,
            into,
            slot_bytes: shape.slot_bytes,
            parts: Parts::default(),
            depth: shape.depth,
            quantum: shape.quantum,
            begun: Instant::now(),
            waiting: BTreeMap::new(),
            in_flight: (0..shape.slots).map(|_| None).collect(),
            in_flight_count: 0,
            free: (0..shape.slots).rev().collect(),
            numbered: 0,
            figures: Reads::default(),
        })
    }

    /// Puts a read in line. The range is no longer than a slot, and aligned as the file needs it.
    pub fn want(
        &mut self,
        owner: Owner,
        file: &Arc<File>,
        identity: Identity,
        range: Range<u64>,
        due: Due,
    ) -> Ticket {
        self.numbered += 1;
        let ticket = Ticket {
            quantum: self.quantum_of(due),
            file: identity,
            offset: range.start,
            number: self.numbered,
        };
        let read = Read { owner, file: file.clone(), range, due, wanted: Instant::now() };
        self.waiting.insert(ticket, read);
        ticket
    }

    fn quantum_of(&self, due: Due) -> u64 {
        let Due::At(due) = due else { return u64::MAX };
        let since = due.saturating_duration_since(self.begun).as_nanos();
        u64::try_from(since / self.quantum.as_nanos().max(1)).unwrap_or(u64::MAX - 1)
    }

    /// Takes a read that nobody wants any longer out of the line; one in flight ends and comes out.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Gives the disk as many reads as it may have at a time.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    pub fn start(&mut self) -> io::Result<()> {
        while self.in_flight_count < self.depth {
            let Some(slot) = self.free.pop() else { break };
            let Some((ticket, read)) = self.waiting.pop_first() else {
                self.free.push(slot);
                break;
            };
            let (file, range) = (read.file.clone(), read.range.clone());
            let len_bytes = (range.end - range.start) as usize;
            let started = match self.into {
                Into::Slots => self.ring.start_read(slot, 0..len_bytes, file, range.start),
                Into::PageCache => {
                    let part_bytes = self.parts.of(ticket.file.0, self.slot_bytes);
                    self.ring.start_warm(slot, file, range, part_bytes)
                }
            };
            if let Err(error) = started {
                self.waiting.insert(ticket, read);
                if self.ring.is_idle(slot) {
                    self.free.push(slot);
                }
                let is_short = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
                return if is_short { Ok(()) } else { Err(error) };
            }
            self.in_flight[slot] = Some((ticket, read));
            self.in_flight_count += 1;
        }
        Ok(())
    }

    /// Takes the next read that is over, if one is.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    pub fn finished(&mut self) -> io::Result<Option<Finished>> {
        self.take(false)
    }

    /// Waits for a finished read; `None` where none is in flight.
    ///
    /// # Errors
    /// As `finished`.
    pub fn wait(&mut self) -> io::Result<Option<Finished>> {
        self.take(true)
    }

    fn take(&mut self, waits: bool) -> io::Result<Option<Finished>> {
        let Some((slot, outcome)) = self.ring.finished(waits)? else { return Ok(None) };
        let Some((ticket, read)) = self.in_flight[slot].take() else {
            return Err(io::Error::other("a read ended that nobody began"));
        };
        self.in_flight_count -= 1;
        self.figures.finished += 1;
        self.figures.read_bytes += read.range.end - read.range.start;
        let now = Instant::now();
        self.figures.time += now.saturating_duration_since(read.wanted);
        self.figures.late += u64::from(matches!(read.due, Due::At(due) if due < now));
        Ok(Some(Finished { owner: read.owner, ticket, slot, outcome }))
    }

    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    #[must_use]
    pub fn bytes(&self, slot: usize) -> &[u8] {
        self.ring.slot(slot)
    }

    pub fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Whether reads wait while the slots are all taken.
    #[must_use]
    pub fn wants_slots(&self) -> bool {
        self.free.is_empty() && !self.waiting.is_empty()
    }

    #[must_use]
    pub fn figures(&self) -> Reads {
        let waiting = self.waiting.len() as u64;
        Reads { waiting, in_flight: self.in_flight_count as u64, ..self.figures }
    }
}

impl AsFd for DiskQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const SHAPE: Shape =
        Shape { slots: 2, slot_bytes: 4096, depth: 1, quantum: Duration::from_millis(100) };

    /// A queue of the test; `None` where io_uring is forbidden.
    fn queue() -> Option<DiskQueue> {
        DiskQueue::new(Into::Slots, SHAPE).ok()
    }

    fn file() -> Arc<File> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 100_000], 0).unwrap();
        Arc::new(file)
    }

    fn next(queue: &mut DiskQueue) -> Finished {
        queue.start().unwrap();
        loop {
            if let Some(finished) = queue.finished().unwrap() {
                return finished;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_earliest_deadline_comes_first_and_within_one_the_disks_order() {
        let Some(mut queue) = queue() else { return };
        let (file, start) = (file(), queue.begun);
        let at = |ms: u64| Due::At(start + Duration::from_millis(ms));
        for (owner, inode, offset, due) in [
            (1, 1, 0, Due::Sometime),
            (2, 9, 50_000, at(350)),
            (3, 9, 10_000, at(390)),
            (4, 2, 90_000, at(310)),
            (5, 9, 0, at(120)),
            (6, 1, 0, at(3_600_000)),
        ] {
            queue.want(owner, &file, (7, inode), offset..offset + 100, due);
        }
        let gone = queue.want(7, &file, (7, 9), 0..100, at(0));
        queue.cancel(gone);
        let order: Vec<Owner> = (0..6)
            .map(|_| {
                let finished = next(&mut queue);
                assert_eq!(finished.outcome.unwrap(), 100);
                queue.give_back(finished.slot);
                finished.owner
            })
            .collect();
        assert_eq!(order, [5, 4, 3, 2, 6, 1]);
        assert_eq!((queue.figures().finished, queue.figures().read_bytes), (6, 600));
    }

    #[test]
    fn no_more_is_read_than_there_are_slots() {
        let Some(mut queue) = queue() else { return };
        let file = file();
        for owner in 0..3 {
            queue.want(owner, &file, (1, 1), 0..100, Due::Sometime);
        }
        let held = [next(&mut queue), next(&mut queue)];
        queue.start().unwrap();
        assert!(queue.wants_slots() && queue.figures().in_flight == 0, "{:?}", queue.figures());
        queue.give_back(held[0].slot);
        assert_eq!(next(&mut queue).owner, 2);
        assert!(!queue.wants_slots());
    }
}
