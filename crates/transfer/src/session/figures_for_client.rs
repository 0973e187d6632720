//! Wrapper of a server's role, which ends it with its right and tells figures to who wants them.

use crate::{
    session::{
        reported::Reported,
        right_lost::RightLost,
        role::{Pumped, Role},
    },
    storage::waited_for::Held,
};
use haul_protocol::{
    Message, ProtocolError,
    message::{self, Fault},
};
use std::time::{Duration, Instant};

/// Interval at which a server tells its figures: half of the client's, which is a second.
const FIGURES_EVERY: Duration = Duration::from_millis(500);

/// A role of a server, with figures for the client that wants them.
pub struct TellingFigures<R> {
    pub role: R,
    token_id: String,
    right_lost: RightLost,
    wanted: bool,
    told_at: Instant,
    due: Option<message::Figures>,
}

impl<R> TellingFigures<R> {
    pub fn new(role: R, (token_id, right_lost): (String, RightLost), wanted: bool) -> Self {
        Self { role, token_id, right_lost, wanted, told_at: Instant::now(), due: None }
    }
}

impl<R: Reported> Role for TellingFigures<R> {
    /// Drops what is said once the right is lost: nothing is done or answered for it any more.
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        if self.right_lost.fault().is_some() {
            return Ok(());
        }
        self.role.handle(message)
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.right_lost.check()?;
        let pumped = self.role.pump(now);
        if self.wanted && now.saturating_duration_since(self.told_at) >= FIGURES_EVERY {
            self.told_at = now;
            self.due = Some(self.role.figures());
        }
        pumped
    }

    fn heard(&mut self, at: Instant) {
        self.role.heard(at);
    }

    fn poll_message(&mut self) -> Option<Message> {
        if self.right_lost.fault().is_some() {
            return None;
        }
        self.role.poll_message().or_else(|| self.due.take().map(Message::Figures))
    }

    fn has_last_word(&self) -> bool {
        self.role.has_last_word()
    }

    fn moved_bytes(&self) -> u64 {
        self.role.moved_bytes()
    }

    fn holds(&self, held: &Held) -> bool {
        matches!(held, Held::TokenId(id) if *id == self.token_id) || self.role.holds(held)
    }

    fn ends_in_order(&mut self, now: Instant) -> bool {
        self.role.ends_in_order(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{events::Event, name::Name, session::tally::Tally};
    use haul_protocol::message::{FaultCode, Figures, Ping, Side, SideReport};

    /// A role that notes what it is asked.
    #[derive(Default)]
    struct Noting {
        tally: Tally,
        heard_at: Option<Instant>,
        handled: Vec<Message>,
        messages: Vec<Message>,
        /// Answer to each question that has two.
        says: bool,
    }

    impl Role for Noting {
        fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
            self.handled.push(message);
            if self.says { Ok(()) } else { Err(ProtocolError::new("no")) }
        }

        fn pump(&mut self, _now: Instant) -> Result<Pumped, Fault> {
            if self.says { Ok(Pumped::GoOn) } else { Err(Fault::default()) }
        }

        fn heard(&mut self, at: Instant) {
            self.heard_at = Some(at);
        }

        fn poll_message(&mut self) -> Option<Message> {
            self.messages.pop()
        }

        fn has_last_word(&self) -> bool {
            self.says
        }

        fn moved_bytes(&self) -> u64 {
            77
        }

        fn holds(&self, held: &Held) -> bool {
            self.says && matches!(held, Held::File(1, 2))
        }

        fn ends_in_order(&mut self, _now: Instant) -> bool {
            self.says
        }
    }

    impl Reported for Noting {
        const SENDS: bool = true;

        fn figures(&self) -> Figures {
            Figures { streams_ns: 5, stages: Vec::new() }
        }

        fn tally(&self) -> &Tally {
            &self.tally
        }

        fn tell(&mut self, _event: Event) {}

        fn stop(&mut self) {}

        fn report(&self) -> SideReport {
            SideReport::default()
        }

        fn take_peer_report(&mut self) -> Option<SideReport> {
            None
        }

        fn largest_lag(&self) -> Option<crate::events::Lag> {
            None
        }

        fn current(&self) -> Option<Name> {
            None
        }
    }

    fn telling(says: bool, wanted: bool) -> TellingFigures<Noting> {
        let role = Noting { says, ..Noting::default() };
        TellingFigures::new(role, ("token".into(), RightLost::default()), wanted)
    }

    #[test]
    fn a_role_whose_right_is_lost_hears_nothing_more_and_ends_with_the_reason() {
        let mut telling = telling(true, true);
        let (now, ping) = (Instant::now(), || Message::Ping(Ping { number: 3 }));
        telling.handle(ping()).unwrap();
        telling.pump(now).unwrap();
        let fault = Fault::new(FaultCode::TokenRevoked, Side::Unknown, "it was revoked");
        telling.right_lost.set(fault.clone());
        telling.right_lost.set(Fault::default());
        telling.handle(ping()).unwrap();
        assert_eq!(telling.role.handled, [ping()], "the second is dropped");
        assert_eq!(telling.pump(now + FIGURES_EVERY).unwrap_err(), fault);
        telling.role.messages.push(ping());
        assert_eq!(telling.poll_message(), None, "what waits is not said either");
    }

    #[test]
    fn all_that_a_session_asks_reaches_the_role_and_its_answer_the_session() {
        for says in [true, false] {
            let (mut telling, now) = (telling(says, false), Instant::now());
            let ping = Message::Ping(Ping { number: 3 });
            assert_eq!(telling.handle(ping.clone()).is_ok(), says);
            assert_eq!(telling.role.handled, [ping]);
            assert_eq!(telling.pump(now).is_ok(), says);
            telling.heard(now);
            assert_eq!(telling.role.heard_at, Some(now));
            assert_eq!((telling.has_last_word(), telling.ends_in_order(now)), (says, says));
            assert_eq!(telling.moved_bytes(), 77);
            let held = |id: &str| Held::TokenId(id.into());
            let holds = [Held::File(1, 2), held("token"), held("other"), Held::File(2, 1)]
                .map(|held| telling.holds(&held));
            assert_eq!(holds, [says, true, false, false]);
        }
    }

    #[test]
    fn figures_are_told_twice_a_second_to_the_client_that_wants_them_behind_what_is_due() {
        let (mut wanted, mut unwanted) = (telling(true, true), telling(true, false));
        let (begun, moment) = (wanted.told_at, Duration::from_nanos(1));
        unwanted.told_at = begun;
        let figures = || Some(Message::Figures(Figures { streams_ns: 5, stages: Vec::new() }));
        for (after, expected) in [
            (FIGURES_EVERY - moment, None),
            (FIGURES_EVERY, figures()),
            (FIGURES_EVERY * 2 - moment, None),
            (FIGURES_EVERY * 2, figures()),
        ] {
            wanted.pump(begun + after).unwrap();
            let ping = Message::Ping(Ping { number: 1 });
            wanted.role.messages.push(ping.clone());
            assert_eq!(wanted.poll_message(), Some(ping));
            assert_eq!((wanted.poll_message(), wanted.poll_message()), (expected, None));
            unwanted.pump(begun + after).unwrap();
            assert_eq!(unwanted.poll_message(), None);
        }
    }
}
