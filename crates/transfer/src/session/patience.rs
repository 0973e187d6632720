//! Patience with a peer that answers pings and does nothing that is due: an answer, a goodbye.
//!
//! Streams are watched by their roles, and a peer that is silent is lost. This is for the rest: it
//! ends a session in which only the peer could go on, and did not, in words that name the stage.

use haul_protocol::{
    Awaited,
    message::{Fault, FaultCode, Side},
};
use std::time::{Duration, Instant};

/// Stall timeouts allowed to a server for what costs it nothing.
const STALLS_MAX: u32 = 12;
/// Stall timeouts allowed where a disk has its part, and for a client, which may wait for its user.
const STALLS_MAX_LONG: u32 = 360;
/// The longest interval between two checks; each goes through the open files.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Patience {
    /// The peer is a server, and is not asked for anything that takes long.
    is_quick: bool,
    stall_after: Duration,
    looked_at: Instant,
    /// Progress at the last check: how much was done, and what was due.
    seen: (u64, Option<Awaited>),
    since: Instant,
}

impl Patience {
    #[must_use]
    pub fn new(is_quick: bool, stall_after: Duration) -> Self {
        let now = Instant::now();
        Self { is_quick, stall_after, looked_at: now, seen: (0, None), since: now }
    }

    /// Checks whether the peer still does what is due; `look` says how much was done so far, in any
    /// unit that grows, and what is due.
    ///
    /// # Errors
    /// The fault that ends the session.
    pub fn check(
        &mut self,
        now: Instant,
        look: impl FnOnce() -> (u64, Option<Awaited>),
    ) -> Result<(), Fault> {
        let every = self.stall_after.min(LOOK_EVERY_MAX);
        if now.saturating_duration_since(self.looked_at) < every {
            return Ok(());
        }
        self.looked_at = now;
        let seen = look();
        if seen != self.seen {
            (self.seen, self.since) = (seen, now);
        }
        let waited = now.saturating_duration_since(self.since);
        match seen.1 {
            Some(awaited) if waited > self.limit(awaited) => Err(fault(awaited, waited)),
            _ => Ok(()),
        }
    }

    fn limit(&self, awaited: Awaited) -> Duration {
        // A source whose inode has changed is read again before it is confirmed.
        let needs_disk = matches!(awaited, Awaited::Settlement | Awaited::Confirmation);
        let is_short = self.is_quick && !needs_disk;
        self.stall_after * if is_short { STALLS_MAX } else { STALLS_MAX_LONG }
    }
}

fn fault(awaited: Awaited, waited: Duration) -> Fault {
    let what = match awaited {
        Awaited::Offer => "an offer, or the end of the offers",
        Awaited::Answer => "an answer to what was offered",
        Awaited::Confirmation => "the confirmation of what arrived whole",
        Awaited::StreamEnd => "the end of a data stream that was given up",
        Awaited::Settlement => "files to be durable under their names",
        Awaited::Goodbye => "the goodbye, all files being settled",
    };
    Fault::new(FaultCode::Stalled, Side::Unknown, format!("the other side is due: {what}"))
        .found(format!("nothing but answers to pings for {} s", waited.as_secs()))
        .hint("run the same command again: it goes on with what is not in place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_nothing_that_is_due_is_left_and_who_does_something_is_not() {
        let stall = Duration::from_secs(1);
        let mut patience = Patience::new(true, stall);
        let begun = Instant::now();
        let mut check = |seconds: u32, done: u64, awaited: Option<Awaited>| {
            patience.check(begun + stall * seconds, || (done, awaited))
        };
        assert!(check(2, 1, Some(Awaited::Answer)).is_ok());
        assert!(check(13, 2, Some(Awaited::Answer)).is_ok());
        assert!(check(25, 2, Some(Awaited::Goodbye)).is_ok(), "something else is due");
        assert!(check(500, 2, None).is_ok(), "its streams are at work");
        assert!(check(501, 2, Some(Awaited::Settlement)).is_ok());
        assert!(check(800, 2, Some(Awaited::Settlement)).is_ok(), "a disk may take long");
        assert!(check(801, 2, Some(Awaited::Goodbye)).is_ok());
        let fault = check(815, 2, Some(Awaited::Goodbye)).unwrap_err();
        assert!(fault.what.contains("goodbye") && fault.found.contains("14 s"), "{fault:?}");
        let mut with_client = Patience::new(false, stall);
        let mut check =
            |seconds| with_client.check(begun + stall * seconds, || (1, Some(Awaited::Offer)));
        assert!(check(2).is_ok() && check(300).is_ok() && check(400).is_err());
    }

    /// Runs a check this long after the last change.
    fn check(patience: &mut Patience, at: Duration, awaited: Awaited) -> Result<(), Fault> {
        let begun = patience.since;
        patience.check(begun + at, || (1, Some(awaited)))
    }

    #[test]
    fn a_peer_has_the_whole_of_its_time_and_more_of_it_where_a_disk_has_its_part() {
        let stall = Duration::from_secs(2);
        for (awaited, is_quick, stalls) in [
            (Awaited::Offer, true, STALLS_MAX),
            (Awaited::Answer, true, STALLS_MAX),
            (Awaited::StreamEnd, true, STALLS_MAX),
            (Awaited::Goodbye, true, STALLS_MAX),
            (Awaited::Settlement, true, STALLS_MAX_LONG),
            (Awaited::Confirmation, true, STALLS_MAX_LONG),
            (Awaited::Offer, false, STALLS_MAX_LONG),
            (Awaited::Goodbye, false, STALLS_MAX_LONG),
        ] {
            let mut patience = Patience::new(is_quick, stall);
            // What is due is seen first here: the time runs from now on.
            check(&mut patience, stall, awaited).unwrap();
            check(&mut patience, stall * stalls, awaited).unwrap();
            let fault = check(&mut patience, stall * stalls + LOOK_EVERY_MAX, awaited);
            assert_eq!(fault.unwrap_err().code, FaultCode::Stalled, "{awaited:?}");
        }
    }

    /// Each look goes through the open files.
    #[test]
    fn nothing_is_looked_at_more_often_than_once_a_second_or_stall_timeout() {
        for (stall_ms, every_ms) in [(200, 200), (60_000, 1000)] {
            let mut patience = Patience::new(true, Duration::from_millis(stall_ms));
            let begun = patience.looked_at;
            let mut looks = |at: Duration| {
                let mut looks = 0;
                let look = || {
                    looks += 1;
                    (1, None)
                };
                patience.check(begun + at, look).unwrap();
                looks
            };
            let (every, moment) = (Duration::from_millis(every_ms), Duration::from_nanos(1));
            let looked = [every - moment, every, every * 2 - moment, every * 2].map(&mut looks);
            assert_eq!(looked, [0, 1, 0, 1]);
        }
    }
}
