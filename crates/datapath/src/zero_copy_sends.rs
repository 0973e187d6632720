//! Sends of one wire whose memory the kernel still reads, and the spans that wait for them.
//!
//! Each send has a number, which the kernel counts too. A slot of memory is free again, and a span
//! is done, when notices have come for all of its sends. A send is entered before anything else is
//! asked of the kernel, so that no notice comes before its entry.

use std::{collections::VecDeque, io};

use haul_sys::zero_copy::{self, Notice};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    Boundary, SpanDone, SpanId, StageTimes, Wire,
    copy_watch::{CopyWatch, IfCopied},
    socket,
    stopwatch::timed,
};

/// A send that is not known to be over.
struct Sent {
    slot: usize,
    flight: u64,
    bytes: u64,
    noticed: bool,
}

/// A span with sends that are not over, or that is still being sent.
struct Flight {
    /// Number of the try: a span may come again while an earlier try is still in flight.
    number: u64,
    id: SpanId,
    moved_bytes: u64,
    copied_bytes: u64,
    sends_in_flight: u32,
    /// Whether all of the span has been handed to the kernel.
    ended: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    sends_in_flight: u32,
    /// Whether more sends of the slot may follow.
    open: bool,
}

/// Time that the peer may take to bring a notice of a connection that has ended; later it is gone.
const ENDED_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

pub(crate) struct ZeroCopySends {
    /// Sends in the order of their numbers.
    sends: VecDeque<Sent>,
    /// Number of the first send in `sends`.
    first_number: u32,
    flights: VecDeque<Flight>,
    /// Spans begun so far.
    begun: u64,
    slots: Vec<Slot>,
    freed: Vec<usize>,
    copies: CopyWatch,
    /// Whether the kernel refused to lock memory for a send, with nothing in flight.
    refused: bool,
}

impl ZeroCopySends {
    /// Begins to send on a wire that has never sent without a copy.
    ///
    /// # Errors
    /// Where the kernel or the wire does not know such sends, or has already done some.
    pub(crate) fn new(wire: &Wire, slot_count: usize, if_copied: IfCopied) -> io::Result<Self> {
        if zero_copy::is_allowed(wire.socket())? {
            let found = "needs a connection whose sends are not yet counted, found one that \
                         another engine has sent on with MSG_ZEROCOPY";
            return Err(io::Error::new(io::ErrorKind::Unsupported, found));
        }
        zero_copy::allow(wire.socket())?;
        Ok(Self {
            sends: VecDeque::new(),
            first_number: 0,
            flights: VecDeque::new(),
            begun: 0,
            slots: vec![Slot::default(); slot_count],
            freed: Vec::new(),
            copies: CopyWatch::new(if_copied),
            refused: false,
        })
    }

    pub(crate) fn begin(&mut self, id: SpanId) {
        self.begun += 1;
        self.flights.push_back(Flight {
            number: self.begun,
            id,
            moved_bytes: 0,
            copied_bytes: 0,
            sends_in_flight: 0,
            ended: false,
        });
    }

    /// Ends the last span begun: it is with the kernel, or it has failed and is nobody's any
    /// longer.
    pub(crate) fn end(&mut self, whole: bool) {
        if whole {
            if let Some(flight) = self.flights.back_mut() {
                flight.ended = true;
            }
        } else {
            self.flights.pop_back();
        }
    }

    /// Sends `bytes`, which are in `slot`, as a part of the last span begun.
    ///
    /// Where the wire holds all slots but two, the bytes are copied: the disk goes on reading, and
    /// the wire is not held up by the memory of this engine.
    ///
    /// # Errors
    /// Those of the wire.
    pub(crate) fn send(
        &mut self,
        wire: &Wire,
        slot: usize,
        bytes: &[u8],
        times: &mut StageTimes,
    ) -> io::Result<()> {
        self.slots[slot].open = true;
        let held = self.slots.iter().filter(|slot| slot.sends_in_flight > 0).count();
        let mut sent = 0;
        if held + 2 >= self.slots.len() {
            sent += self.copy(wire, bytes, times)?;
        }
        while sent < bytes.len() {
            let flags = socket::send_flags(Boundary::Flush);
            let outcome =
                timed(&mut times.send_ns, || zero_copy::send(wire.socket(), &bytes[sent..], flags));
            match outcome {
                Ok(moved) => {
                    self.enter(slot, moved as u64);
                    sent += moved;
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {
                    // Too many notices wait (net.core.optmem_max), or RLIMIT_MEMLOCK is reached.
                    if self.sends.is_empty() {
                        self.refused = true;
                        sent += self.copy(wire, &bytes[sent..], times)?;
                    } else {
                        self.wait(wire, times)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn enter(&mut self, slot: usize, bytes: u64) {
        let Some(flight) = self.flights.back_mut() else { return };
        flight.moved_bytes += bytes;
        flight.sends_in_flight += 1;
        self.slots[slot].sends_in_flight += 1;
        self.sends.push_back(Sent { slot, flight: flight.number, bytes, noticed: false });
    }

    fn copy(&mut self, wire: &Wire, bytes: &[u8], times: &mut StageTimes) -> io::Result<usize> {
        timed(&mut times.send_ns, || socket::send_whole_to(wire.socket(), bytes, Boundary::Flush))
            .map_err(|(_, error)| error)?;
        if let Some(flight) = self.flights.back_mut() {
            flight.moved_bytes += bytes.len() as u64;
            flight.copied_bytes += bytes.len() as u64;
        }
        Ok(bytes.len())
    }

    /// Closes a slot, of which nothing more is sent: it is free when its notices have come.
    pub(crate) fn close(&mut self, slot: usize) {
        self.slots[slot].open = false;
        if self.slots[slot].sends_in_flight == 0 {
            self.freed.push(slot);
        }
    }

    /// Slots that have become free since this was last asked.
    pub(crate) fn take_freed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.freed)
    }

    /// Takes the notices that are there. True if there was one.
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub(crate) fn collect(&mut self, wire: &Wire) -> io::Result<bool> {
        let mut any = false;
        while !self.sends.is_empty()
            && let Some(notice) = zero_copy::take_notice(wire.socket())?
        {
            any = true;
            self.take(&notice);
        }
        Ok(any)
    }

    /// Takes the notice of a run of sends; the numbers begin again behind the last of 32 bits.
    fn take(&mut self, notice: &Notice) {
        let first = notice.first.wrapping_sub(self.first_number) as usize;
        let count = notice.last.wrapping_sub(notice.first) as usize + 1;
        for at in first..first.saturating_add(count).min(self.sends.len()) {
            self.noticed(at, notice.copied);
        }
        while self.sends.front().is_some_and(|sent| sent.noticed) {
            self.sends.pop_front();
            self.first_number = self.first_number.wrapping_add(1);
        }
    }

    fn noticed(&mut self, at: usize, copied: bool) {
        let sent = &mut self.sends[at];
        if std::mem::replace(&mut sent.noticed, true) {
            return;
        }
        let copied_bytes = if copied { sent.bytes } else { 0 };
        self.copies.count(sent.bytes, copied_bytes);
        let (slot, number) = (sent.slot, sent.flight);
        self.slots[slot].sends_in_flight -= 1;
        if self.slots[slot].sends_in_flight == 0 && !self.slots[slot].open {
            self.freed.push(slot);
        }
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.sends_in_flight -= 1;
            flight.copied_bytes += copied_bytes;
        }
    }

    /// Waits for a notice, while sends are in flight.
    ///
    /// # Errors
    /// When the connection has ended and brings none.
    pub(crate) fn wait(&mut self, wire: &Wire, times: &mut StageTimes) -> io::Result<()> {
        let mut patience = None;
        while !self.sends.is_empty() && !self.collect(wire)? {
            let mut fds = [PollFd::new(wire.socket(), PollFlags::empty())];
            let polled = timed(&mut times.send_ns, || poll(&mut fds, patience.as_ref()));
            match polled {
                Ok(0) => return Err(socket::closed()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(_) => {}
            }
            if self.collect(wire)? {
                return Ok(());
            }
            // Woken, and not by a notice: the connection has ended (POLLERR, POLLHUP). What it
            // still held is let go at that moment, so its last notices are on their way.
            if patience.is_some() {
                let error = rustix::net::sockopt::socket_error(wire.socket())?;
                return Err(error.err().map_or_else(socket::closed, Into::into));
            }
            patience = Some(ENDED_PATIENCE);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn wait_for_all(&mut self, wire: &Wire, times: &mut StageTimes) -> io::Result<()> {
        while !self.sends.is_empty() {
            self.wait(wire, times)?;
        }
        Ok(())
    }

    /// Checks that sending without a copy is worth while here.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check(&self, slot_bytes: usize) -> io::Result<()> {
        if self.refused && self.copies.may_give_up() {
            // The kernel counts two pages more for where the bytes begin and end
            // (mm_account_pinned_pages).
            let needs_kib = (slot_bytes + 2 * rustix::param::page_size()) >> 10;
            let found = format!(
                "needs {needs_kib} KiB of locked memory for a send, found that the kernel does \
                 not grant it (ENOBUFS): raise RLIMIT_MEMLOCK (ulimit -l)"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, found));
        }
        self.copies.check(|copied, all| {
            format!("the kernel copied {copied} of {all} bytes in spite of MSG_ZEROCOPY")
        })
    }

    /// Hands over the spans that are finished.
    pub(crate) fn hand_over(&mut self, done: &mut Vec<SpanDone>) {
        self.flights.retain(|flight| {
            let over = flight.ended && flight.sends_in_flight == 0;
            if over {
                let Flight { id, moved_bytes, copied_bytes, .. } = *flight;
                done.push(SpanDone { id, moved_bytes, copied_bytes });
            }
            !over
        });
    }

    pub(crate) fn spans_in_flight(&self) -> u32 {
        self.flights.len() as u32
    }

    pub(crate) fn oldest_span(&self) -> Option<SpanId> {
        self.flights.front().map(|flight| flight.id)
    }

    /// Forgets all sends and spans, as the wire is dead: what it has not said yet it never will.
    pub(crate) fn abandon(&mut self) {
        self.flights.clear();
        self.sends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(if_copied: IfCopied, first_number: u32) -> ZeroCopySends {
        ZeroCopySends {
            sends: VecDeque::new(),
            first_number,
            flights: VecDeque::new(),
            begun: 0,
            slots: vec![Slot::default(); 4],
            freed: Vec::new(),
            copies: CopyWatch::new(if_copied),
            refused: false,
        }
    }

    fn handed_over(sends: &mut ZeroCopySends) -> Vec<(u64, u64, u64)> {
        let mut done = Vec::new();
        sends.hand_over(&mut done);
        done.iter().map(|done| (done.id.0, done.moved_bytes, done.copied_bytes)).collect()
    }

    /// The kernel may tell of later sends first, of several at once, and of none twice.
    #[test]
    fn a_slot_is_free_and_a_span_is_done_when_all_of_their_sends_are_over() {
        for first in [0, 7, u32::MAX - 1, u32::MAX] {
            let at = |number: u32| first.wrapping_add(number);
            let notice = |from, to, copied| Notice { first: at(from), last: at(to), copied };
            let mut sends = sends(IfCopied::GoOn, first);
            sends.begin(SpanId(5));
            for (slot, bytes) in [(0, 100), (0, 20), (1, 3)] {
                sends.slots[slot].open = true;
                sends.enter(slot, bytes);
            }
            sends.close(0);
            sends.take(&notice(2, 2, false));
            assert_eq!(sends.take_freed(), [0; 0], "more of slot 1 may follow");
            sends.close(1);
            assert_eq!(sends.take_freed(), [1]);
            sends.take(&notice(1, 1, true));
            assert_eq!(sends.take_freed(), [0; 0], "a send of slot 0 is under way");
            sends.end(true);
            assert_eq!((handed_over(&mut sends), sends.spans_in_flight()), (vec![], 1));
            assert_eq!(sends.oldest_span(), Some(SpanId(5)));
            sends.take(&notice(0, 2, true));
            assert_eq!(sends.take_freed(), [0]);
            let done = handed_over(&mut sends);
            assert_eq!(done, [(5, 123, 120)], "what was noticed counts once");
            assert_eq!((sends.sends.len(), sends.first_number), (0, at(3)));
            sends.begin(SpanId(6));
            sends.enter(2, 1);
            sends.take(&notice(3, 3, false));
            sends.end(true);
            assert_eq!(handed_over(&mut sends), [(6, 1, 0)], "the next number follows");
        }
    }

    #[test]
    fn a_span_that_is_still_being_sent_is_not_done_and_one_that_failed_never() {
        let mut sends = sends(IfCopied::GoOn, 0);
        sends.begin(SpanId(1));
        sends.enter(0, 10);
        sends.take(&Notice { first: 0, last: 0, copied: false });
        assert_eq!(handed_over(&mut sends), [], "more of it follows");
        sends.enter(0, 10);
        sends.end(false);
        // The same span comes again while a send of the first try is under way.
        sends.begin(SpanId(1));
        sends.enter(1, 7);
        sends.end(true);
        sends.take(&Notice { first: 1, last: 1, copied: true });
        assert_eq!(handed_over(&mut sends), [], "the notice was of the first try");
        sends.take(&Notice { first: 2, last: 2, copied: false });
        assert_eq!(handed_over(&mut sends), [(1, 7, 0)]);
        sends.begin(SpanId(2));
        sends.enter(0, 1);
        sends.abandon();
        assert_eq!((sends.spans_in_flight(), sends.oldest_span()), (0, None));
    }

    #[test]
    fn a_kernel_that_locks_no_memory_is_a_reason_to_give_up_but_not_for_a_study() {
        for (if_copied, refused, gives_up) in [
            (IfCopied::GiveUp, false, false),
            (IfCopied::GiveUp, true, true),
            (IfCopied::GoOn, true, false),
        ] {
            let sends = ZeroCopySends { refused, ..sends(if_copied, 0) };
            let why = sends.check(1 << 20).err().map(|error| error.to_string());
            let says = |why: String| why.contains("needs 1032 KiB of locked memory");
            assert_eq!(why.map(says), gives_up.then_some(true));
        }
    }

    /// A wire, and the bytes that come out of its other end until it is closed.
    fn drained() -> (Wire, std::thread::JoinHandle<usize>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut far, &mut all).unwrap();
            all.len()
        });
        (Wire::Tcp(near.into()), reader)
    }

    #[test]
    fn where_the_wire_holds_all_slots_but_two_bytes_are_copied() {
        let (wire, reader) = drained();
        let times = &mut StageTimes::default();
        let mut sends = ZeroCopySends::new(&wire, 3, IfCopied::GoOn).unwrap();
        sends.begin(SpanId(1));
        sends.send(&wire, 0, &[7; 100], times).unwrap();
        let copied = |sends: &ZeroCopySends| sends.flights.back().map(|it| it.copied_bytes);
        assert_eq!((copied(&sends), sends.sends.len()), (Some(0), 1));
        for copied_bytes in [50, 100] {
            sends.send(&wire, 1, &[7; 50], times).unwrap();
            assert_eq!((copied(&sends), sends.sends.len()), (Some(copied_bytes), 1));
        }
        sends.wait_for_all(&wire, times).unwrap();
        assert!(sends.sends.is_empty());
        sends.wait(&wire, times).unwrap();
        drop(wire);
        assert_eq!(reader.join().unwrap(), 200);
    }

    #[test]
    fn a_wire_that_was_shut_down_is_no_lack_of_memory() {
        let (wire, reader) = drained();
        let times = &mut StageTimes::default();
        let mut sends = ZeroCopySends::new(&wire, 4, IfCopied::GoOn).unwrap();
        sends.begin(SpanId(1));
        sends.send(&wire, 0, &[7; 10], times).unwrap();
        sends.wait_for_all(&wire, times).unwrap();
        rustix::net::shutdown(wire.socket(), rustix::net::Shutdown::Both).unwrap();
        let error = sends.send(&wire, 0, &[7], times).unwrap_err();
        assert!(error.kind() == io::ErrorKind::BrokenPipe && !sends.refused, "{error}");
        drop(wire);
        assert_eq!(reader.join().unwrap(), 10);
    }
}
