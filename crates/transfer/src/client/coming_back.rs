//! Coming back after a session was lost: when it is tried, when given up, and in which words.

use super::{Client, connect_failure::ConnectFailure};
use crate::{
    error::{TransferError, problem},
    events::{ConnectionState, Event},
    problem::{Problem, Side},
    session::tally::Tally,
    words,
};
use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

/// Most first handshakes begun where the network breaks them; afterwards `--retry-for` counts.
const FIRST_HANDSHAKES_MAX: u32 = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// Least time that a server has for each step of opening a session.
const STEP_TIMEOUT_MIN: Duration = Duration::from_secs(2);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(3);

/// State that a run keeps between its sessions.
pub(super) struct ComingBack {
    /// The reason why the last session was lost; `None` before the first one.
    pub lost: Option<String>,
    /// Time since which the connection is lost and nothing has got on.
    pub lost_at: Instant,
    first_handshakes: u32,
    /// Sessions tried since anything has got on.
    tries: u32,
    delay: Duration,
    /// Whether the user knows that a server is waited for.
    waiting_told: bool,
}

impl ComingBack {
    pub fn new() -> Self {
        Self {
            lost: None,
            lost_at: Instant::now(),
            first_handshakes: 0,
            tries: 0,
            delay: RETRY_DELAY_MIN,
            waiting_told: false,
        }
    }
}

impl Client<'_> {
    /// Time that a step of opening a session may take: `most`, or no longer than there is for
    /// coming back, once that runs.
    pub(super) fn within_time_left(&self, most: Duration) -> Duration {
        let left = self.headway.left(Instant::now());
        left.map_or(most, |left| most.min(left.max(STEP_TIMEOUT_MIN)))
    }

    /// Waits until it is time to try again, after no session could be opened.
    ///
    /// # Errors
    /// If it is no use, or the time for it is over.
    pub(super) fn not_connected(
        &self,
        back: &mut ComingBack,
        failure: ConnectFailure,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TransferError> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(TransferError::interrupted());
        }
        let Some(why) = &back.lost else {
            back.first_handshakes += 1;
            if self.options.wait && failure.is_passing() {
                return self.wait_for_server(back, failure, on_event);
            }
            let is_over = self.headway.is_over(Instant::now());
            if failure.is_cut() && back.first_handshakes < FIRST_HANDSHAKES_MAX && !is_over {
                return self.pause(&mut back.delay);
            }
            return Err(failure.into_start());
        };
        if self.headway.is_over(Instant::now()) || !failure.is_passing() {
            if let ConnectFailure::NoWay { error, .. } = &failure {
                let hint = "run the same command again: it goes on where it stopped";
                return Err(self.lost_for_good(why, ["", error, hint]));
            }
            return Err(self.did_not_come_back(why, &failure.problem()));
        }
        on_event(self.outage(ConnectionState::Lost, why, back.lost_at));
        self.pause(&mut back.delay)
    }

    /// Waits for a server that is not there yet: with `--wait` the first connection is tried again,
    /// too.
    fn wait_for_server(
        &self,
        back: &mut ComingBack,
        failure: ConnectFailure,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TransferError> {
        if self.headway.is_over(Instant::now()) {
            let mut problem = failure.problem();
            let seconds = self.options.retry_for.as_secs();
            problem.found = format!("{}, for {seconds} s (--retry-for)", problem.found);
            return Err(TransferError::Unavailable(Box::new(problem)));
        }
        if !back.waiting_told {
            back.waiting_told = true;
            let Problem { what, found, .. } = failure.problem();
            on_event(Event::Waiting {
                server: self.url.server(),
                seconds: self.options.retry_for.as_secs_f64(),
                why: if found.is_empty() { what } else { found },
            });
        }
        self.pause(&mut back.delay)
    }

    /// Waits until it is time for the next session, after one was lost.
    ///
    /// # Errors
    /// If the time for coming back is over.
    pub(super) fn session_lost(
        &self,
        back: &mut ComingBack,
        why: String,
        tally: &Tally,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TransferError> {
        let now = Instant::now();
        self.headway.verified(tally.headway());
        if let Some((before, after)) = self.headway.session_lost(now) {
            let from_to = format!("spans of {} -> {}", words::bytes(before), words::bytes(after));
            let why = "connections are cut before a span is through".into();
            on_event(Event::Fallback { side: Side::Path, from_to, why });
        }
        if tally.headway() > 0 {
            back.delay = RETRY_DELAY_MIN;
            back.tries = 0;
        }
        if tally.headway() > 0 || back.lost.is_none() {
            back.lost_at = now;
        }
        on_event(self.outage(ConnectionState::Lost, &why, back.lost_at));
        // Streams that stalled may have used up the time: a session is tried at least once.
        let is_tried = back.tries > 0 || self.options.retry_for.is_zero();
        if self.headway.is_over(now) && is_tried {
            return Err(self.cannot_go_on(&why));
        }
        back.tries += 1;
        back.lost = Some(why);
        self.pause(&mut back.delay)
    }

    /// The error of a run whose sessions open while nothing gets through them.
    fn cannot_go_on(&self, why: &str) -> TransferError {
        let Some(cause) = self.headway.cause() else {
            return self.did_not_come_back(why, &problem("nothing more arrived", "", "", ""));
        };
        let (server, seconds) = (self.url.server(), self.options.retry_for.as_secs());
        let span = words::bytes(cause.span_bytes);
        let carried = words::bytes(cause.carried_bytes);
        let problem = problem(
            &format!("every data connection to {server} was cut before a span was through"),
            &format!("one span of {span} verified within {seconds} s (--retry-for)"),
            &format!("{} cuts, none after more than {carried}; the last: {why}", cause.connections),
            "look for what ends connections on the way (a firewall, a proxy, a VPN), then run the \
             same command again: it goes on where it stopped",
        );
        TransferError::broken(Problem { side: Side::Path, ..problem })
    }

    fn did_not_come_back(&self, why: &str, last: &Problem) -> TransferError {
        let seconds = self.options.retry_for.as_secs();
        let needs = format!("the server within {seconds} s (--retry-for)");
        let hint = "run the same command again when it is reachable: it goes on where it stopped";
        self.lost_for_good(why, [&needs, &last.to_string(), hint])
    }

    /// The error of a connection that was lost and is not back; needs, found and hint behind it.
    fn lost_for_good(&self, why: &str, [needs, found, hint]: [&str; 3]) -> TransferError {
        let server = self.url.server();
        let what = format!("the connection to {server} was lost ({why}) and did not come back");
        TransferError::broken(Problem { side: Side::Path, ..problem(&what, needs, found, hint) })
    }

    /// Waits, each time longer, but not beyond the time for coming back.
    fn pause(&self, delay: &mut Duration) -> Result<(), TransferError> {
        let left = self.headway.left(Instant::now());
        let left = left.map_or(*delay, |left| left.max(RETRY_DELAY_MIN));
        let until = Instant::now() + (*delay).min(left);
        while Instant::now() < until {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(TransferError::interrupted());
            }
            thread::sleep(Duration::from_millis(20).min(*delay));
        }
        *delay = (*delay * 2).min(RETRY_DELAY_MAX);
        Ok(())
    }
}
