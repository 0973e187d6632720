//! O_DIRECT reads by io_uring in the order of deadlines, then send(2).
//!
//! The page cache has no part in it, and no call waits for the disk.

use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::{
    Delivery, Sending, Sink, Wanted,
    disk_queue::{DiskQueue, Into, Owner, Shape, Ticket},
    truncated,
};
use crate::delivery::Reads;

/// Alignment that O_DIRECT asks of offsets and lengths, of all disks that are sold (open(2));
/// memory is aligned to pages.
const ALIGN_BYTES: u64 = 4096;
/// Most parts of one stream that are read or wait to be sent.
const AHEAD: usize = 2;
/// Time after which a stream that takes nothing of what was read gives it up, when others want the
/// memory.
const HOLD: Duration = Duration::from_secs(1);

pub struct Direct {
    queue: DiskQueue,
    slot_bytes: u64,
    streams: HashMap<Owner, VecDeque<Part>>,
}

/// A part of a file on its way through a slot.
struct Part {
    ticket: Ticket,
    range: Range<u64>,
    state: State,
    /// Time at which the part came, or something of it was sent.
    since: Instant,
}

enum State {
    Reading,
    Ready {
        slot: usize,
        skip: usize,
        len_bytes: usize,
    },
    /// The part was given up to other streams.
    Gone,
    Failed(io::Error),
}

impl Direct {
    /// Sets up io_uring and the memory for what is read.
    ///
    /// # Errors
    /// Where there is no io_uring, or no memory.
    pub fn new(shape: Shape) -> io::Result<Self> {
        let slot_bytes = shape.slot_bytes.next_multiple_of(ALIGN_BYTES);
        let queue = DiskQueue::new(Into::Slots, Shape { slot_bytes, ..shape })?;
        Ok(Self { queue, slot_bytes, streams: HashMap::new() })
    }

    /// Part of the range that one slot takes: to the slot's end, as the disk is read in whole
    /// blocks.
    fn part_of(&self, range: &Range<u64>) -> Range<u64> {
        let first = range.start - range.start % ALIGN_BYTES;
        range.start..range.end.min(first + self.slot_bytes)
    }

    fn read(&mut self, wanted: &Wanted<'_>, range: Range<u64>) {
        let first = range.start - range.start % ALIGN_BYTES;
        let aligned = first..range.end.next_multiple_of(ALIGN_BYTES);
        let file = wanted.file.direct();
        let ticket =
            self.queue.want(wanted.owner, &file, wanted.file.identity, aligned, wanted.due);
        let part = Part { ticket, range, state: State::Reading, since: Instant::now() };
        self.streams.entry(wanted.owner).or_default().push_back(part);
    }

    /// Drops parts that are not wanted, and gets the next that are wanted in line.
    fn read_ahead(&mut self, wanted: &Wanted<'_>) {
        let at = wanted.range.start;
        while let Some(part) = self.streams.get(&wanted.owner).and_then(VecDeque::front) {
            if part.range.start <= at && at < part.range.end && !matches!(part.state, State::Gone) {
                break;
            }
            self.drop_first(wanted.owner);
        }
        loop {
            let parts = self.streams.get(&wanted.owner);
            let last = parts.and_then(VecDeque::back).map_or(at, |part| part.range.end);
            if parts.is_some_and(|parts| parts.len() >= AHEAD) || last >= wanted.range.end {
                return;
            }
            let next = self.part_of(&(last..wanted.range.end));
            self.read(wanted, next);
        }
    }

    fn drop_first(&mut self, owner: Owner) {
        let Some(parts) = self.streams.get_mut(&owner) else { return };
        let Some(part) = parts.pop_front() else { return };
        if parts.is_empty() {
            self.streams.remove(&owner);
        }
        match part.state {
            State::Reading => self.queue.cancel(part.ticket),
            State::Ready { slot, .. } => self.queue.give_back(slot),
            State::Gone | State::Failed(_) => {}
        }
    }

    /// Takes memory from streams that leave it unused for those that wait for memory.
    fn make_room(&mut self, now: Instant) {
        if !self.queue.wants_slots() {
            return;
        }
        for part in self.streams.values_mut().flatten() {
            if let State::Ready { slot, .. } = part.state
                && now.saturating_duration_since(part.since) > HOLD
            {
                self.queue.give_back(slot);
                part.state = State::Gone;
            }
        }
    }
}

impl Delivery for Direct {
    fn send_some(&mut self, sink: &mut dyn Sink, wanted: &Wanted<'_>) -> io::Result<Sending> {
        let mut sent_bytes = 0;
        let mut wanted = wanted.clone();
        loop {
            if wanted.range.is_empty() {
                return Ok(Sending::Bytes(sent_bytes));
            }
            self.read_ahead(&wanted);
            let Some(part) = self.streams.get_mut(&wanted.owner).and_then(VecDeque::front_mut)
            else {
                return Err(truncated());
            };
            let outcome = match &part.state {
                State::Failed(error) => Err(io::Error::new(error.kind(), error.to_string())),
                State::Reading | State::Gone if sent_bytes > 0 => Ok(None),
                State::Reading | State::Gone => return Ok(Sending::Reading),
                State::Ready { slot, skip, len_bytes } => {
                    let from = skip + (wanted.range.start - part.range.start) as usize;
                    let to = (skip
                        + (wanted.range.end.min(part.range.end) - part.range.start) as usize)
                        .min(*len_bytes);
                    match self.queue.bytes(*slot).get(from..to) {
                        None | Some([]) => Err(truncated()),
                        Some(bytes) => sink.send(bytes).map(Some),
                    }
                }
            };
            match outcome {
                Ok(None) => return Ok(Sending::Bytes(sent_bytes)),
                Ok(Some(sent)) => {
                    part.since = Instant::now();
                    sent_bytes += sent as u64;
                    wanted.range.start += sent as u64;
                    if wanted.range.start >= part.range.end {
                        self.drop_first(wanted.owner);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent_bytes > 0 => {
                    return Ok(Sending::Bytes(sent_bytes));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn disk(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn finished(&mut self, now: Instant, goes_on: &mut Vec<Owner>) -> io::Result<()> {
        while let Some(finished) = self.queue.finished()? {
            let parts = self.streams.get_mut(&finished.owner);
            let part = parts
                .and_then(|parts| parts.iter_mut().find(|part| part.ticket == finished.ticket));
            let Some(part) = part else {
                // Its stream has ended meanwhile.
                self.queue.give_back(finished.slot);
                continue;
            };
            part.since = now;
            part.state = match finished.outcome {
                Ok(len_bytes) => State::Ready {
                    slot: finished.slot,
                    skip: (part.range.start % ALIGN_BYTES) as usize,
                    len_bytes,
                },
                Err(error) => {
                    self.queue.give_back(finished.slot);
                    State::Failed(error)
                }
            };
            goes_on.push(finished.owner);
        }
        self.make_room(now);
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        self.queue.start()
    }

    fn is_short(&self) -> bool {
        self.queue.wants_slots()
    }

    fn forget(&mut self, owner: Owner) {
        while self.streams.contains_key(&owner) {
            self.drop_first(owner);
        }
    }

    fn reads(&self) -> Reads {
        self.queue.figures()
    }
}
