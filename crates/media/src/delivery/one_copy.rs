//! sendfile(2): page cache to socket, no user-space buffer.
//!
//! sendfile(2) waits for the disk where the page cache has not what it sends, and all other
//! connections of the loop wait with it. So what is not there is read into the page cache first, by
//! io_uring and in the order of deadlines.
//!
//! Method two-copy reads in the same way, and sends by read(2) and send(2).

use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use haul_sys::cachestat;
use rustix::{
    fs::sendfile,
    io::{Errno, ReadWriteFlags, preadv2},
};

use super::{
    Behind, Delivery, Sending, Sink, Wanted,
    behind::LetGo,
    disk_queue::{DiskQueue, Into, Owner, Shape, Ticket},
    known::{self, Known},
    normal::Normal,
    truncated,
};
use crate::{delivery::Reads, site::OpenFile};

/// The kernel moves at most 0x7ffff000 bytes a call (sendfile(2)).
const CALL_BYTES_MAX: u64 = 0x7fff_f000;
/// Most bytes asked at once whether they are cached: a period of most films.
const CACHED_BYTES_MAX: u64 = 4 << 20;
/// Most parts of one stream that are read or wait to be sent.
const AHEAD: usize = 2;

/// A way of sending what the page cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Uses sendfile(2), where the kernel encrypts or nobody does.
    Sendfile,
    /// Uses read(2) into a buffer and send(2).
    Copy,
}

pub struct OneCopy {
    /// Reads in advance; `None` where there are none: then sendfile(2) waits.
    ahead: Option<Ahead>,
    sends: Sends,
    /// Method for sockets whose bytes this process encrypts, and for sends by copy.
    normal: Normal,
    let_go: LetGo,
}

struct Ahead {
    queue: DiskQueue,
    range_bytes_max: u64,
    streams: HashMap<Owner, VecDeque<Warming>>,
    known: Known,
}

/// A part of a file on its way into the page cache; without a ticket where it was there already.
struct Warming {
    ticket: Option<Ticket>,
    range: Range<u64>,
    is_there: bool,
}

impl OneCopy {
    /// Sets up the reads in advance; without `shape` there are none.
    pub fn new(shape: Option<Shape>, behind: Behind, sends: Sends) -> Self {
        // Where the system forbids io_uring sendfile(2) waits, as it does in other servers.
        let ahead = shape.and_then(|shape| {
            let queue = DiskQueue::new(Into::PageCache, shape).ok()?;
            Some(Ahead {
                queue,
                range_bytes_max: shape.slot_bytes,
                streams: HashMap::new(),
                known: Known::new(),
            })
        });
        Self { ahead, sends, normal: Normal::new(), let_go: LetGo::new(behind) }
    }
}

impl Ahead {
    /// Part of the range, from its beginning, that is cached now; `None` while it is read.
    fn there(&mut self, wanted: &Wanted<'_>) -> Option<Range<u64>> {
        let Range { start, end } = wanted.range;
        let is_past = |first: &Warming| !first.range.contains(&start);
        while self.streams.get(&wanted.owner).and_then(VecDeque::front).is_some_and(is_past) {
            self.drop_first(wanted.owner);
        }
        if !self.streams.contains_key(&wanted.owner) {
            // Most ranges of a popular film are there, and nothing is to be remembered.
            let range = start..end.min(start + CACHED_BYTES_MAX);
            if self.is_known_or_cached(wanted, &range) {
                return Some(range);
            }
        }
        let parts = self.streams.get(&wanted.owner);
        let mut next = parts.and_then(VecDeque::back).map_or(start, |last| last.range.end);
        while next < end && self.streams.get(&wanted.owner).map_or(0, VecDeque::len) < AHEAD {
            let range = next..end.min(next + self.range_bytes_max);
            next = range.end;
            self.warm(wanted, range);
        }
        let first = self.streams.get(&wanted.owner).and_then(VecDeque::front);
        let there = first.filter(|first| first.is_there);
        there.map(|first| start..end.min(first.range.end))
    }

    fn is_known_or_cached(&mut self, wanted: &Wanted<'_>, range: &Range<u64>) -> bool {
        // Who watches alone finds nothing that others have seen.
        if wanted.audience.count() < 2 {
            return is_cached(wanted.file, range);
        }
        let OpenFile { identity, len_bytes, .. } = **wanted.file;
        let now = Instant::now();
        if self.known.is_there(identity, range, now) {
            return true;
        }
        let chunks = known::outward(range, len_bytes);
        let is_cached = is_cached(wanted.file, &chunks);
        if is_cached {
            self.known.note(identity, &chunks, now);
        }
        is_cached
    }

    fn warm(&mut self, wanted: &Wanted<'_>, range: Range<u64>) {
        let ticket = (!is_cached(wanted.file, &range)).then(|| {
            let OpenFile { file, identity, .. } = &**wanted.file;
            self.queue.want(wanted.owner, file, *identity, range.clone(), wanted.due)
        });
        let warming = Warming { is_there: ticket.is_none(), ticket, range };
        self.streams.entry(wanted.owner).or_default().push_back(warming);
    }

    fn drop_first(&mut self, owner: Owner) {
        let Some(parts) = self.streams.get_mut(&owner) else { return };
        if let Some(Warming { ticket: Some(ticket), .. }) = parts.pop_front() {
            self.queue.cancel(ticket);
        }
        if parts.is_empty() {
            self.streams.remove(&owner);
        }
    }
}

/// Whether all pages of a range are in the page cache, and the last has come from the disk.
fn is_cached(file: &OpenFile, range: &Range<u64>) -> bool {
    let len_bytes = range.end - range.start;
    let cached = cachestat::cached_bytes(&file.file, range.start, len_bytes);
    let mut byte = [0];
    let mut is_there = || {
        let mut parts = [io::IoSliceMut::new(&mut byte)];
        preadv2(&file.file, &mut parts, range.end - 1, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
    };
    // Who cannot tell, such as some network file systems, is asked to read.
    cached.is_ok_and(|cached| cached >= len_bytes) && is_there()
}

impl Delivery for OneCopy {
    fn send_some(&mut self, sink: &mut dyn Sink, wanted: &Wanted<'_>) -> io::Result<Sending> {
        let mut wanted = wanted.clone();
        if let Some(ahead) = &mut self.ahead {
            let Some(there) = ahead.there(&wanted) else { return Ok(Sending::Reading) };
            wanted.range = there;
        }
        self.let_go.behind(&wanted);
        let end = wanted.range.end;
        let socket = sink.socket().filter(|_| self.sends == Sends::Sendfile);
        let Some(socket) = socket else { return self.normal.send_some(sink, &wanted) };
        let mut offset = wanted.range.start;
        let len_bytes = (end - offset).min(CALL_BYTES_MAX) as usize;
        let sent = loop {
            match sendfile(socket, &wanted.file.file, Some(&mut offset), len_bytes) {
                Ok(0) => return Err(truncated()),
                Ok(sent) => break sent as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        Ok(Sending::Bytes(sent))
    }

    fn disk(&self) -> Option<BorrowedFd<'_>> {
        self.ahead.as_ref().map(|ahead| ahead.queue.as_fd())
    }

    fn finished(&mut self, _now: Instant, goes_on: &mut Vec<Owner>) -> io::Result<()> {
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        while let Some(finished) = ahead.queue.finished()? {
            ahead.queue.give_back(finished.slot);
            // Where it failed, sendfile(2) waits and says why.
            let mut parts = ahead.streams.get_mut(&finished.owner).into_iter().flatten();
            if let Some(part) = parts.find(|part| part.ticket == Some(finished.ticket)) {
                part.is_there = true;
                goes_on.push(finished.owner);
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        self.ahead.as_mut().map_or(Ok(()), |ahead| ahead.queue.start())
    }

    fn forget(&mut self, owner: Owner) {
        self.let_go.forget(owner);
        if let Some(ahead) = &mut self.ahead {
            while ahead.streams.contains_key(&owner) {
                ahead.drop_first(owner);
            }
        }
    }

    fn reads(&self) -> Reads {
        self.ahead.as_ref().map(|ahead| ahead.queue.figures()).unwrap_or_default()
    }
}
