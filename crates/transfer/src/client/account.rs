//! Account of a whole run's time: the figures of its sessions, put together by one rule.
//!
//! A session counts from its first figures to the last word of the server. While the server was
//! silent, and between two sessions, nothing could be moved: that time is no stage's, and is told
//! by itself.

use super::outage::SILENT_AFTER;
use crate::session::stages::{self, added_up};
use haul_protocol::message::Figures;
use std::time::{Duration, Instant};

/// Figures of both sides at one moment, or of the time between two.
#[derive(Clone, Debug, Default)]
pub struct Figured {
    pub mine: Figures,
    pub theirs: Figures,
}

impl Figured {
    fn since(&self, before: &Self) -> Self {
        Self {
            mine: stages::since(&self.mine, &before.mine),
            theirs: stages::since(&self.theirs, &before.theirs),
        }
    }

    fn add(&mut self, other: &Self) {
        added_up(&mut self.mine, &other.mine);
        added_up(&mut self.theirs, &other.theirs);
    }
}

/// Figures of a session, while it runs.
#[derive(Clone, Debug)]
pub struct Heard {
    begun: Instant,
    /// The time when the server last told its figures, and both sides' figures then.
    last: Option<(Instant, Figured)>,
    /// Figures that were added while the server was silent.
    away: Figured,
    away_time: Duration,
}

impl Heard {
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begun: now, last: None, away: Figured::default(), away_time: Duration::ZERO }
    }

    /// Takes both sides' figures, when the server has told its own.
    pub fn figures(&mut self, now: Instant, both: Figured) {
        if let Some((at, before)) = &self.last {
            let gap = now.saturating_duration_since(*at);
            if gap >= SILENT_AFTER {
                self.away.add(&both.since(before));
                self.away_time += gap;
            }
        }
        self.last = Some((now, both));
    }

    /// Whether the server tells its figures, and has not for so long that an interval has none of
    /// them.
    #[must_use]
    pub fn is_missing(&self, now: Instant, interval: Duration) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|(at, _)| now.saturating_duration_since(*at) >= interval)
    }

    fn settled(self, both: &Figured, away: Duration) -> Settled {
        Settled { figures: both.since(&self.away), away: self.away_time + away }
    }

    /// Settles a session that ended in order, by what both sides reported.
    #[must_use]
    pub fn finished(self, both: &Figured) -> Settled {
        self.settled(both, Duration::ZERO)
    }

    /// Settles a session that was lost. `both` counts where the server never told its figures.
    #[must_use]
    pub fn lost(mut self, now: Instant, both: &Figured) -> Settled {
        match self.last.take() {
            Some((at, last)) => self.settled(&last, now.saturating_duration_since(at)),
            None if now.saturating_duration_since(self.begun) < SILENT_AFTER => {
                self.settled(both, Duration::ZERO)
            }
            None => {
                let away = now.saturating_duration_since(self.begun);
                self.settled(&Figured::default(), away)
            }
        }
    }
}

/// The part that an ended session adds to the run.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    figures: Figured,
    away: Duration,
}

/// Figures of all sessions of a run, added up.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub figures: Figured,
    /// Bytes verified in the sessions that were lost.
    pub bytes: u64,
    /// Time without a connection, or with one on which the server was silent.
    pub away: Duration,
    lost_at: Option<Instant>,
}

impl Account {
    pub fn add(&mut self, session: &Settled) {
        self.figures.add(&session.figures);
        self.away += session.away;
    }

    pub fn lost(&mut self, now: Instant, verified_bytes: u64) {
        self.bytes += verified_bytes;
        self.lost_at = Some(now);
    }

    /// Ends an outage: another session was opened.
    pub fn back(&mut self, now: Instant) {
        let lost = self.lost_at.take().map(|at| now.saturating_duration_since(at));
        self.away += lost.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{self, Path, Rate};
    use haul_protocol::message::{SideReport, Stage, StageTime};

    const S: u64 = 1_000_000_000;

    fn figures(streams_s: u64, stages: &[(Stage, u64)]) -> Figures {
        let time = |(stage, s): &(Stage, u64)| StageTime { stage: *stage, ns: s * S };
        Figures { streams_ns: streams_s * S, stages: stages.iter().map(time).collect() }
    }

    /// Figures of a sender that waits in its socket, and a receiver in its own, on two streams.
    fn after(seconds: u64) -> Figured {
        let each = 2 * seconds;
        Figured {
            mine: figures(each, &[(Stage::SendBuffer, each)]),
            theirs: figures(each, &[(Stage::Receive, each)]),
        }
    }

    fn judged(account: &Account, seconds: f64, last_bytes: u64, limit: Option<u64>) -> Rate {
        let seconds = seconds - account.away.as_secs_f64();
        Rate { bytes: account.bytes + last_bytes, seconds, limit }
    }

    fn side(figures: &Figures) -> SideReport {
        let (stages, streams_ns) = (figures.stages.clone(), figures.streams_ns);
        SideReport { stages, streams_ns, threads: 2, ..SideReport::default() }
    }

    /// Stored from a push with `--bwlimit` whose server was started again midway: the intervals
    /// said `limit 97 %` and the report `send buffer, 56 %`.
    #[test]
    fn a_limit_that_was_kept_to_before_and_after_an_outage_is_the_verdict() {
        let begun = Instant::now();
        let second = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut account = Account::default();
        let mut first = Heard::new(begun);
        (1..=5).for_each(|at| first.figures(second(at), after(at)));
        account.add(&first.lost(second(12), &after(12)));
        account.lost(second(12), 5 * 40);
        account.back(second(15));
        assert_eq!(account.away, Duration::from_secs(10));
        account.add(&Heard::new(second(15)).finished(&after(5)));
        let rate = judged(&account, 20.0, 5 * 40, Some(41));
        let (mine, theirs) = (side(&account.figures.mine), side(&account.figures.theirs));
        let (verdict, stages) = verdict::of_reports(&mine, &theirs, Path::Network, &rate);
        assert_eq!((verdict.stage.as_str(), verdict.share), ("limit", 1.0), "{verdict:?}");
        assert_eq!(stages.first().map(|(stage, _)| stage.as_str()), Some("limit"));
    }

    /// Stored from a server that was stopped for 15 s: its streams had waited, and `receiver
    /// window, 52 %` was the verdict.
    #[test]
    fn a_silence_within_a_session_is_no_stage_s() {
        let begun = Instant::now();
        let second = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut heard = Heard::new(begun);
        heard.figures(second(1), after(1));
        heard.figures(second(2), after(2));
        assert!(heard.is_missing(second(4), Duration::from_secs(1)));
        let mut silent = after(17);
        silent.mine.stages.push(StageTime { stage: Stage::SourceDisk, ns: 9 * S });
        heard.figures(second(17), silent.clone());
        assert!(!heard.is_missing(second(17), Duration::from_secs(1)));
        let mut account = Account::default();
        account.add(&heard.finished(&silent));
        assert_eq!(account.away, Duration::from_secs(15));
        assert_eq!(account.figures.mine.streams_ns, 4 * S);
        let disk = account.figures.mine.stages.iter().find(|time| time.ns == 9 * S);
        assert_eq!(disk, None, "{account:?}");
    }

    #[test]
    fn a_session_that_was_cut_before_it_told_anything_counts_only_while_it_was_short() {
        let (begun, mut account) = (Instant::now(), Account::default());
        account.add(&Heard::new(begun).lost(begun + Duration::from_millis(400), &after(1)));
        assert_eq!((account.figures.mine.streams_ns, account.away), (2 * S, Duration::ZERO));
        let silent = Duration::from_secs(20);
        account.add(&Heard::new(begun).lost(begun + silent, &after(20)));
        assert_eq!((account.figures.mine.streams_ns, account.away), (2 * S, silent));
    }
}
