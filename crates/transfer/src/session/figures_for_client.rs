//! Wrapper of a server's role, which sends figures to the client that wants them.

use crate::{
    session::{
        reported::Reported,
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
    wanted: bool,
    told_at: Instant,
    due: Option<message::Figures>,
}

impl<R> TellingFigures<R> {
    pub fn new(role: R, token_id: String, wanted: bool) -> Self {
        Self { role, token_id, wanted, told_at: Instant::now(), due: None }
    }
}

impl<R: Reported> Role for TellingFigures<R> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        self.role.handle(message)
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
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
    use haul_protocol::message::{Figures, Ping, SideReport};

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
        TellingFigures::new(role, "token".into(), wanted)
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
