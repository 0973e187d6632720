//! Outages of a server, as the user is told: silent, lost or back, and how long it is waited for.

use crate::{
    clocks::now_ms,
    events::{Connection, ConnectionState, Event},
    session::{listening::SILENT_AFTER_PING, stages::round},
};
use std::time::{Duration, Instant};

/// The event of a server that was last there at `since`.
///
/// `wait_for` is how long it is waited for, counted from then; a server that is back has no rest.
#[must_use]
pub fn event(
    state: ConnectionState,
    server: &str,
    why: &str,
    since: Instant,
    wait_for: Duration,
) -> Event {
    let gone = since.elapsed();
    let left = match state {
        ConnectionState::Back => Duration::ZERO,
        ConnectionState::Silent | ConnectionState::Lost => wait_for.saturating_sub(gone),
    };
    let gone_ms = u64::try_from(gone.as_millis()).unwrap_or(u64::MAX);
    Event::Connection(Connection {
        state,
        server: server.to_owned(),
        why: why.to_owned(),
        since_ms: now_ms().saturating_sub(gone_ms),
        seconds: round(gone.as_secs_f64(), 1),
        seconds_left: round(left.as_secs_f64(), 1),
    })
}

/// Silence after which a server that tells its figures twice a second counts as silent.
pub const SILENT_AFTER: Duration = Duration::from_secs(3);

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Watches for a server that says nothing while its connection stands.
#[derive(Debug)]
pub struct Silence {
    heard_at: Instant,
    /// The time when the silence was last told, and since when the server was silent then.
    told: Option<(Instant, Instant)>,
    /// Whether the server tells its figures.
    tells_figures: bool,
}

impl Silence {
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { heard_at: now, told: None, tells_figures: false }
    }

    pub fn heard(&mut self, at: Instant) {
        self.heard_at = self.heard_at.max(at);
    }

    pub fn heard_figures(&mut self) {
        self.tells_figures = true;
    }

    /// Looks whether the server is silent or back: the state to be told now, and since when it is
    /// so.
    pub fn look(&mut self, now: Instant) -> Option<(ConnectionState, Instant)> {
        let after = if self.tells_figures { SILENT_AFTER } else { SILENT_AFTER_PING };
        if now.saturating_duration_since(self.heard_at) < after {
            return self.told.take().map(|(_, since)| (ConnectionState::Back, since));
        }
        let passed = |(at, _)| now.saturating_duration_since(at);
        let is_due = self.told.is_none_or(|told| passed(told) >= TELL_EVERY);
        is_due.then(|| {
            self.told = Some((now, self.heard_at));
            (ConnectionState::Silent, self.heard_at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_told_once_a_second_and_its_return_once() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut silence = Silence::new(begun);
        silence.heard_figures();
        assert_eq!(silence.look(at(2900)), None);
        assert_eq!(silence.look(at(3000)), Some((ConnectionState::Silent, begun)));
        assert_eq!(silence.look(at(3900)), None, "it was just said");
        assert_eq!(silence.look(at(4000)), Some((ConnectionState::Silent, begun)));
        silence.heard(at(4100));
        assert_eq!(silence.look(at(4200)), Some((ConnectionState::Back, begun)), "so long it was");
        assert_eq!(silence.look(at(4300)), None);
        let mut older = Silence::new(begun);
        assert_eq!(older.look(at(7000)), None, "its pongs come every five seconds");
        assert!(older.look(at(8000)).is_some());
    }

    #[test]
    fn an_outage_says_since_when_and_counts_down() {
        let since = Instant::now() - Duration::from_secs(12);
        let minute = Duration::from_secs(60);
        let told = event(ConnectionState::Lost, "dtn1:7117", "reset", since, minute);
        let Event::Connection(told) = told else { panic!("{told:?}") };
        assert_eq!((told.seconds, told.seconds_left), (12.0, 48.0));
        assert!(now_ms() - told.since_ms >= 12_000);
        let over = event(ConnectionState::Lost, "dtn1:7117", "", since, Duration::from_secs(5));
        let Event::Connection(over) = over else { panic!("{over:?}") };
        assert_eq!(over.seconds_left, 0.0, "never less than nothing");
    }
}
