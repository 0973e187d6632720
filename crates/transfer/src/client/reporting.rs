//! A role of a client that also tells its user about progress, limits and silence.
//!
//! Progress is told about once a second.

use crate::{
    client::{
        account::{Figured, Heard},
        outage::{self, Silence},
    },
    clocks::now_ms,
    events::{Event, Explained, Limiting, Progress},
    problem::Side,
    session::{
        headway::Headway,
        reported::Reported,
        role::{Pumped, Role},
        stages,
        streams::Streams,
    },
    verdict::{self, Rate},
};
use haul_protocol::{
    Message, ProtocolError,
    message::{self, Fault},
};
use haul_sys::tcp_info::TcpInfo;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Least length of an interval, which lasts until more has come.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Length after which an interval ends even where nothing more comes.
const INTERVAL_MAX: Duration = Duration::from_millis(1500);

/// Whether an interval is over. What arrives is told in steps, several a second: an interval that
/// did not end with one would hold two of them or three, and show rates that the link never had.
fn is_over(interval: Duration, has_more: bool) -> bool {
    interval >= INTERVAL_MAX || (has_more && interval >= INTERVAL_MIN)
}

/// Meter of a role's progress, which it tells about once a second.
pub struct Meter {
    begun: Instant,
    done_before: u64,
    told_at: Instant,
    told_bytes: u64,
    /// Bytes moved at the last look.
    seen_bytes: u64,
    pub streams: Arc<Streams>,
    path: verdict::Path,
    limit_bytes_per_s: Option<u64>,
    mine_before: message::Figures,
    theirs_before: message::Figures,
    /// Last figures of the server's streams.
    pub theirs: message::Figures,
    pub heard: Heard,
}

impl Meter {
    /// Makes a meter. `done_before`: files that earlier sessions of the run have put in place.
    pub fn new(begun: Instant, done_before: u64, streams: &Arc<Streams>) -> Self {
        Self {
            begun,
            done_before,
            told_at: Instant::now(),
            told_bytes: 0,
            seen_bytes: 0,
            streams: streams.clone(),
            path: verdict::Path::default(),
            limit_bytes_per_s: None,
            mine_before: message::Figures::default(),
            theirs_before: message::Figures::default(),
            theirs: message::Figures::default(),
            heard: Heard::new(Instant::now()),
        }
    }

    /// Takes the figures that the server has told.
    fn hear<R: Reported>(&mut self, role: &R, theirs: message::Figures) {
        let both = Figured { mine: role.figures(), theirs: theirs.clone() };
        self.heard.figures(Instant::now(), both);
        self.theirs = theirs;
    }

    /// Adds the facts that the verdict on each interval needs.
    pub fn judging(self, path: verdict::Path, limit_bytes_per_s: Option<u64>) -> Self {
        Self { path, limit_bytes_per_s, ..self }
    }

    /// The verdict on the last interval, from both sides' figures: what held it back; nothing where
    /// no byte came and the server said nothing.
    fn judge<R: Reported>(&mut self, role: &R, bytes: u64, seconds: f64) -> Judged {
        let mine = role.figures();
        let of_mine = stages::since(&mine, &self.mine_before);
        let of_theirs = stages::since(&self.theirs, &self.theirs_before);
        self.mine_before = mine;
        self.theirs_before = self.theirs.clone();
        let interval = Duration::from_secs_f64(seconds);
        if bytes == 0 && self.heard.is_missing(Instant::now(), interval) {
            return (None, Vec::new());
        }
        let rate = Rate { bytes, seconds, limit: self.limit_bytes_per_s };
        let (source, target) =
            if R::SENDS { (&of_mine, &of_theirs) } else { (&of_theirs, &of_mine) };
        verdict::of_interval(source, target, self.path, &rate)
    }

    fn progress<R: Reported>(&mut self, role: &R, now: Instant) -> Option<Progress> {
        let tally = role.tally();
        let interval = now.saturating_duration_since(self.told_at);
        let before = tally.there_before();
        let moved = tally.received_bytes.saturating_sub(before);
        let has_more = std::mem::replace(&mut self.seen_bytes, moved) != moved;
        if !is_over(interval, has_more) {
            return None;
        }
        let interval_bytes = moved.saturating_sub(self.told_bytes);
        let seconds = interval.as_secs_f64();
        self.told_at = now;
        self.told_bytes = self.told_bytes.max(moved);
        let sockets = self.streams.socket_figures();
        let resent = || sockets.iter().map(|s| u64::from(s.tcp.total_retransmits)).sum();
        let on_wire = |tcp: &TcpInfo| match R::SENDS {
            true => tcp.bytes_sent.saturating_sub(tcp.bytes_retransmitted),
            false => tcp.bytes_received,
        };
        let (limiting, stages) = self.judge(role, interval_bytes, seconds);
        Some(Progress {
            seconds: stages::round(self.begun.elapsed().as_secs_f64(), 2),
            bytes_received: tally.received_bytes.max(before),
            bytes_durable: tally.durable_bytes.max(before),
            bytes_on_wire: sockets.iter().map(|socket| on_wire(&socket.tcp)).sum(),
            bytes_total: tally.offered_bytes,
            gbit_per_s: stages::round_rate(interval_bytes as f64 * 8.0 / 1e9 / seconds),
            interval_bytes,
            interval_seconds: stages::round(seconds, 3),
            // Only who sends knows of them.
            retransmits: R::SENDS.then(resent),
            streams: self.streams.open_count(),
            files_done: self.done_before + tally.counts().done,
            files_settled: tally.settled_files().min(tally.files_total()),
            files_total: tally.files_total(),
            total_known: tally.total_known,
            current: role.current(),
            limiting,
            stages,
        })
    }
}

/// The verdict on an interval: what held it back, and the stages' shares.
type Judged = (Option<Limiting>, Vec<(String, f64)>);

/// A role of a client, with progress for its user.
pub struct Reporting<R> {
    pub role: R,
    pub meter: Meter,
    /// Facts that the server told of its host, and when they were heard.
    pub facts: Option<(message::HostFacts, u64)>,
    /// Whether the server was asked how it chose, and what it does.
    pub explain: bool,
    pub their_side: Side,
    /// Host and port of the server.
    pub server: String,
    pub silence: Silence,
    pub headway: Arc<Headway>,
    /// Time for which a stream may get nothing through.
    pub stall_after: Duration,
}

impl<R: Reported> Reporting<R> {
    fn tell_silence(&mut self, now: Instant) {
        if let Some((state, since)) = self.silence.look(now) {
            let why = "the connection stands and nothing comes";
            let gone = now.saturating_duration_since(since);
            // The time for coming back begins with the first stream that is given up, or with the
            // whole session.
            let lost_after = self.headway.lost_after().min(self.stall_after);
            let lost_in = lost_after.saturating_sub(gone);
            let wait_for = gone + self.headway.given_up_in(now, lost_in);
            self.role.tell(outage::event(state, &self.server, why, since, wait_for));
        }
    }
}

impl<R: Reported> Role for Reporting<R> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        match message {
            Message::Facts(facts) => {
                self.facts = Some((facts, now_ms()));
                Ok(())
            }
            Message::Explained(explained) if self.explain => {
                self.role.tell(Explained::from_message(&explained, self.their_side).into());
                Ok(())
            }
            Message::Figures(figures) => {
                self.role.heard_figures(&figures);
                self.silence.heard_figures();
                self.meter.hear(&self.role, figures);
                Ok(())
            }
            message => self.role.handle(message),
        }
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        let pumped = self.role.pump(now);
        if let Some(progress) = self.meter.progress(&self.role, now) {
            self.role.tell(Event::Progress(progress));
        }
        self.tell_silence(now);
        pumped
    }

    fn heard(&mut self, at: Instant) {
        self.silence.heard(at);
        self.headway.heard(at);
        self.role.heard(at);
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.role.poll_message()
    }

    fn has_last_word(&self) -> bool {
        self.role.has_last_word()
    }

    fn ends_in_order(&mut self, now: Instant) -> bool {
        self.role.ends_in_order(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored from a link of 800 Mbit/s: 476, 612, 918, 612, 918 Mbit/s.
    #[test]
    fn a_steady_rate_shows_as_one_though_it_is_told_in_steps() {
        let turn = Duration::from_millis(100);
        let (mut told_turn, mut told_steps, mut rates) = (0, 0, Vec::new());
        for at in 1..200_u32 {
            let steps = at / 4;
            if is_over(turn * (at - told_turn), at % 4 == 0) {
                rates.push(f64::from(steps - told_steps) / f64::from(at - told_turn));
                (told_turn, told_steps) = (at, steps);
            }
        }
        assert!(rates.len() > 10 && rates.iter().all(|rate| *rate == 0.25), "{rates:?}");
        assert!(!is_over(INTERVAL_MIN, false) && is_over(INTERVAL_MAX, false));
    }
}
