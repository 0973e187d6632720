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
