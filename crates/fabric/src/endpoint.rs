//! One end of a pair: waiting for its completions, and noticing that the other end has gone.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use haul_fabric_sys::{Channel, Completion, Operation};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::{Error, Wait};

/// Time that is polled before an end sleeps, where that pays: twice the round trip of a fast card
/// and a wake-up (fi_pingpong over verbs takes 1 to 3 microseconds, a wake-up some 5).
const SPIN: Duration = Duration::from_micros(20);
/// Polls between two looks at the lifeline, each of which is a system call, many times as long as a
/// poll of shared memory.
const POLLS_A_LOOK: u32 = 256;
/// Longest sleep before the lifeline is looked at again.
const SLICE: Duration = Duration::from_millis(5);
/// Completions after which the lifeline is looked at though others are there: a look is a system
/// call.
const LOOK_AFTER: u32 = 16;
/// Time without a completion after which a peer that says nothing more has left.
const GRACE: Duration = Duration::from_millis(500);

/// State of the TCP connection beside a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifeline {
    Whole,
    /// The peer says nothing more; what it sent before may still be under way.
    PeerSaysNoMore,
    Cut,
}

/// An end of a pair, which has an endpoint and to which the memory of operations comes back.
pub(crate) trait End {
    fn endpoint(&mut self) -> &mut Endpoint;

    /// Takes back what belonged to an operation that is over.
    fn over(&mut self, completion: Completion) -> Result<(), Error>;

    /// Waits until an operation is over.
    fn await_one(&mut self) -> Result<(), Error> {
        let completion = self.endpoint().wait()?;
        self.over(completion)
    }

    /// Takes back the memory of all operations that are over by now, without waiting.
    fn take_all(&mut self) -> Result<(), Error> {
        while let Some(completion) = self.endpoint().poll()? {
            self.over(completion)?;
        }
        Ok(())
    }

    /// Posts an operation, waiting while the queue is full.
    fn post(&mut self, operation: Operation) -> Result<(), Error> {
        let mut operation = operation;
        while let Some(back) = self.endpoint().post(operation)? {
            operation = back;
            self.await_one()?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub channel: Channel,
    lifeline: OwnedFd,
    wait: Wait,
    spin_pays: bool,
    /// Completions since the lifeline was last looked at.
    unlooked: u32,
}

impl Endpoint {
    pub fn new(channel: Channel, lifeline: OwnedFd, wait: Wait) -> Self {
        Self { channel, lifeline, wait, spin_pays: true, unlooked: 0 }
    }

    pub fn lifeline(&self) -> &OwnedFd {
        &self.lifeline
    }

    /// Posts an operation; `Err` with the operation while the queue is full.
    pub fn post(&mut self, operation: Operation) -> Result<Option<Operation>, Error> {
        match self.channel.post(operation) {
            Ok(()) => Ok(None),
            Err((operation, error)) if error.is_again() => Ok(Some(operation)),
            Err((_, error)) => Err(self.peer_gone_or(error)),
        }
    }

    /// Sends a short message that has no completion; `false` while the queue is full.
    pub fn inject(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        match self.channel.inject(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.is_again() => Ok(false),
            Err(error) => Err(self.peer_gone_or(error)),
        }
    }

    /// Takes a completion that is there.
    ///
    /// # Errors
    /// [`Error::PeerGone`] soon after this side has cut the lifeline, however much still comes.
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let found = self.channel.poll().map_err(|error| self.peer_gone_or(error))?;
        self.unlooked += u32::from(found.is_some());
        if self.unlooked == LOOK_AFTER {
            self.unlooked = 0;
            if self.lifeline_state() == Lifeline::Cut {
                return Err(Error::PeerGone);
            }
        }
        Ok(found)
    }

    /// Waits for a completion.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the lifeline ends before one comes.
    pub fn wait(&mut self) -> Result<Completion, Error> {
        if let Some(completion) = self.poll()? {
            self.spin_pays = true;
            return Ok(completion);
        }
        let begun = Instant::now();
        let mut polls = 0_u32;
        loop {
            if let Some(completion) = self.poll()? {
                self.spin_pays = begun.elapsed() < SPIN;
                return Ok(completion);
            }
            match self.wait {
                Wait::Poll => {
                    polls = polls.wrapping_add(1);
                    if !polls.is_multiple_of(POLLS_A_LOOK) {
                        continue;
                    }
                }
                Wait::Adaptive if self.spin_pays && begun.elapsed() < SPIN => {
                    // The peer may need this very processor.
                    thread::yield_now();
                    continue;
                }
                Wait::Adaptive | Wait::Sleep => {
                    let found = self.channel.wait(SLICE);
                    if let Some(completion) = found.map_err(|error| self.peer_gone_or(error))? {
                        self.spin_pays = begun.elapsed() < SPIN;
                        return Ok(completion);
                    }
                }
            }
            match self.lifeline_state() {
                Lifeline::Cut => return Err(Error::PeerGone),
                Lifeline::PeerSaysNoMore if begun.elapsed() > GRACE => return Err(Error::PeerGone),
                Lifeline::PeerSaysNoMore | Lifeline::Whole => {}
            }
        }
    }

    /// Waits until the peer has closed the lifeline, at most this long, while completions go on.
    pub fn await_peer_close(&mut self, timeout: Duration) {
        let begun = Instant::now();
        while self.lifeline_state() == Lifeline::Whole && begun.elapsed() < timeout {
            if self.channel.wait(Duration::from_millis(1)).is_err() {
                return;
            }
        }
    }

    fn lifeline_state(&self) -> Lifeline {
        state_of(&self.lifeline)
    }

    /// The error of a call, or that the peer has left, of which it is then a consequence.
    fn peer_gone_or(&self, error: haul_fabric_sys::Error) -> Error {
        match self.lifeline_state() {
            // A peer that goes ends the connection of the pair before the lifeline.
            Lifeline::Whole if error.code == Errno::SHUTDOWN.raw_os_error() => Error::PeerGone,
            Lifeline::Whole => error.into(),
            Lifeline::PeerSaysNoMore | Lifeline::Cut => Error::PeerGone,
        }
    }

    /// The error of an operation that failed.
    pub fn failed(&self, error: haul_fabric_sys::Error) -> Error {
        self.peer_gone_or(error)
    }

    /// Tells the peer that nothing more is sent.
    pub fn say_no_more(&self) {
        // A connection that is gone already needs to hear nothing.
        let _ = rustix::net::shutdown(self.lifeline.as_fd(), rustix::net::Shutdown::Write);
    }
}

/// Whether the peer has closed the TCP connection, or somebody has cut it.
pub(crate) fn has_ended(lifeline: &OwnedFd) -> bool {
    state_of(lifeline) != Lifeline::Whole
}

fn state_of(lifeline: &OwnedFd) -> Lifeline {
    let mut polled = [PollFd::new(lifeline, PollFlags::RDHUP)];
    // One that cannot be looked at has no events.
    let _ = poll(&mut polled, Some(&rustix::event::Timespec::default()));
    let found = polled[0].revents();
    if found.intersects(PollFlags::HUP.union(PollFlags::ERR)) {
        Lifeline::Cut
    } else if found.contains(PollFlags::RDHUP) {
        Lifeline::PeerSaysNoMore
    } else {
        Lifeline::Whole
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Shutdown, TcpListener, TcpStream},
        sync::mpsc,
    };

    use haul_fabric_sys::{Buffer, Reach, Source};
    use haul_testkit::{FabricWay, fabric_ways};

    use super::*;
    use crate::Fabric;

    /// More operations than the queue of any provider takes at once.
    const OPERATIONS_MAX: usize = 1 << 16;
    const LONG: Duration = Duration::from_secs(20);

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn ends(way: FabricWay) -> (Endpoint, Endpoint) {
        let (near, far) = sockets();
        let open = |local| Fabric::open(way.provider.parse().unwrap(), local).unwrap();
        let listening = open(way.far).listen([7; 16]).unwrap();
        let contact = listening.contact().clone();
        let accepted = thread::spawn(move || listening.accept(far.into(), LONG).unwrap());
        let near = open(way.near).connect(&contact, near.into(), LONG).unwrap();
        let far = accepted.join().unwrap();
        (near.into_endpoint(), far.into_endpoint())
    }

    /// An operation that receives, or sends, one page.
    fn page(end: &Endpoint, is_send: bool) -> Operation {
        let buffer = Buffer::new(end.channel.domain(), 4096, Reach::Local).unwrap();
        if is_send {
            Operation::Send(Source::Buffer(buffer, 0..4096))
        } else {
            Operation::Receive(buffer)
        }
    }

    #[test]
    fn a_full_queue_gives_the_operation_back_and_is_no_error() {
        for way in fabric_ways() {
            let (mut near, _far) = ends(way);
            // tcp takes every send, and shm has another error for a receive too much.
            let is_send = way.provider != "tcp";
            let is_full = (0..OPERATIONS_MAX).any(|_| {
                let operation = page(&near, is_send);
                near.post(operation).unwrap().is_some()
            });
            assert!(is_full, "{way:?}");
            let (mut near, _far) = ends(way);
            let is_full = (0..OPERATIONS_MAX).any(|_| !near.inject(&[1; 8]).unwrap());
            assert!(is_full || way.provider == "tcp", "{way:?}");
        }
    }

    #[test]
    fn what_no_room_in_the_queue_would_mend_is_an_error() {
        for way in fabric_ways() {
            let (mut near, _far) = ends(way);
            let too_long = near.channel.domain().info().inject_bytes_max() + 1;
            let error = near.inject(&vec![1; too_long]).unwrap_err();
            assert!(matches!(error, Error::Call { call: "fi_inject", .. }), "{way:?}: {error:?}");
            // Whether one receive too much finds a full queue is the provider's choice.
            let refused = (0..OPERATIONS_MAX).find_map(|_| {
                let operation = page(&near, false);
                near.channel.post(operation).err()
            });
            // tcp of libfabric 2.1 takes all of them.
            let Some((operation, error)) = refused else { continue };
            assert_eq!(near.post(operation).is_err(), !error.is_again(), "{way:?}: {error:?}");
        }
    }

    /// Case of a peer whose connection of the pair ends before its lifeline is seen to.
    #[test]
    fn a_pair_that_was_shut_down_is_a_peer_that_has_left_and_other_errors_are_told() {
        for way in fabric_ways() {
            let (near, _far) = ends(way);
            let failed = |errno: Errno| {
                let code = errno.raw_os_error();
                near.failed(haul_fabric_sys::Error { call: "fi_send", code })
            };
            assert_eq!(failed(Errno::SHUTDOWN), Error::PeerGone, "{way:?}");
            assert!(matches!(failed(Errno::IO), Error::Call { call: "fi_send", .. }), "{way:?}");
        }
    }

    /// Case of a stream that is cut while it is behind: a look at each message would cost as many
    /// system calls.
    #[test]
    fn an_end_looks_at_its_lifeline_after_sixteen_completions_and_not_before() {
        for way in fabric_ways() {
            let (mut near, mut far) = ends(way);
            let count = LOOK_AFTER as usize;
            for _ in 0..count {
                let operation = page(&near, false);
                assert!(near.post(operation).unwrap().is_none(), "{way:?}");
            }
            rustix::net::shutdown(near.lifeline(), rustix::net::Shutdown::Both).unwrap();
            let (begun, mut came, mut sent) = (Instant::now(), 0, 0);
            let ended = loop {
                assert!(begun.elapsed() < LONG, "{way:?}: {came} of {sent} messages came");
                if sent < count && far.inject(&[1; 8]).unwrap() {
                    sent += 1;
                }
                // A provider moves bytes while it is asked.
                far.channel.poll().unwrap();
                match near.poll() {
                    Ok(found) => came += usize::from(found.is_some()),
                    Err(error) => break error,
                }
            };
            assert_eq!((ended, came), (Error::PeerGone, count - 1), "{way:?}");
        }
    }

    /// Case of a peer that says no more and holds its endpoint: what it sent last may still come.
    #[test]
    fn a_peer_that_says_no_more_has_left_when_nothing_came_for_a_while() {
        for way in fabric_ways() {
            let (mut near, far) = ends(way);
            far.say_no_more();
            let begun = Instant::now();
            let lifeline = near.lifeline().try_clone().unwrap();
            let (over, is_over) = mpsc::channel::<()>();
            // An end that would wait for ever is cut, and has waited for too long.
            let cuts = thread::spawn(move || {
                if is_over.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
                    rustix::net::shutdown(&lifeline, rustix::net::Shutdown::Both).unwrap();
                }
            });
            assert_eq!(near.wait().unwrap_err(), Error::PeerGone, "{way:?}");
            drop(over);
            cuts.join().unwrap();
            assert!((GRACE..LONG).contains(&begun.elapsed()), "{way:?}: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn a_lifeline_is_whole_until_its_peer_says_no_more_or_it_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (OwnedFd::from(near), listener.accept().unwrap().0)
        };
        let (near, far) = pair();
        assert_eq!((state_of(&near), has_ended(&near)), (Lifeline::Whole, false));
        far.shutdown(Shutdown::Write).unwrap();
        assert_eq!((state_of(&near), has_ended(&near)), (Lifeline::PeerSaysNoMore, true));
        let (near, _far) = pair();
        rustix::net::shutdown(&near, rustix::net::Shutdown::Both).unwrap();
        assert_eq!((state_of(&near), has_ended(&near)), (Lifeline::Cut, true));
    }
}
