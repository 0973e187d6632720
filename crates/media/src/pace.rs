//! A stream's schedule: which bytes may go when, and until when they have to be there.
//!
//! Time is cut into periods. At the beginning of each the bytes of the next are released, and by
//! its end the client must have them: so a server sends once a period for each stream, and a player
//! that begins with the start-up bytes has always a period in hand. The scheme is that of servers
//! of media on demand (Gemmell et al., "Multimedia storage servers: a tutorial", IEEE Computer
//! 28(5), 1995).
//!
//! The clock is an argument.

use std::time::{Duration, Instant};

/// The rate of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    pub bits_per_s: u64,
}

/// Slowest rate of a stream, slower than any sound.
const RATE_MIN_BITS_PER_S: u64 = 1_000;
const RATE_MAX_BITS_PER_S: u64 = 1_000_000_000_000;

impl Rate {
    /// A rate in bits a second; `None` where no stream can be paced to it: below 1 kbit/s or above
    /// 1 Tbit/s.
    #[must_use]
    pub fn new(bits_per_s: u64) -> Option<Self> {
        (RATE_MIN_BITS_PER_S..=RATE_MAX_BITS_PER_S)
            .contains(&bits_per_s)
            .then_some(Self { bits_per_s })
    }

    /// Reads `1500k`, `2M`, `2.5Mbit`, `800000` as bits a second.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches("/s").trim_end_matches("bit");
        let (number, unit) = match text.char_indices().last()? {
            (at, 'k' | 'K') => (&text[..at], 1e3),
            (at, 'M') => (&text[..at], 1e6),
            (at, 'G') => (&text[..at], 1e9),
            _ => (text, 1.0),
        };
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        Self::new((number.parse::<f64>().ok()? * unit).round() as u64)
    }

    /// Multiplies the rate, within the slowest and the fastest.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let bits_per_s = (self.bits_per_s as f64 * factor) as u64;
        Self { bits_per_s: bits_per_s.clamp(RATE_MIN_BITS_PER_S, RATE_MAX_BITS_PER_S) }
    }

    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = u128::from(self.bits_per_s) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

/// The shortest wait for a period.
const NEXT_MIN: Duration = Duration::from_micros(100);

/// Period and start-up of all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    pub period: Duration,
    /// Length of film that a stream gets at once, in the time that it plays: a player's buffer.
    pub start_up: Duration,
}

impl Default for Pacing {
    /// The period of the study (Kim, KICS 2002).
    fn default() -> Self {
        Self { period: Duration::from_secs(3), start_up: Duration::from_secs(6) }
    }
}

/// The schedule of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    rate: Rate,
    pacing: Pacing,
    /// The first period's beginning; later by what the client held the stream back.
    begun: Instant,
    /// Periods over which the start-up comes.
    start_up_periods: u32,
    /// Length of the answer's head and body.
    len_bytes: u64,
    /// The period whose end was looked at last.
    judged: u64,
}

/// The state of a client at the end of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// Bytes of the body and its head, from the beginning.
    pub bytes: u64,
    /// Time since the client last said how many bytes it has.
    pub ago: Duration,
    /// The client took no more.
    pub is_full: bool,
    /// Bytes given to the socket, from the beginning.
    pub sent_bytes: u64,
}

/// The judgement at the end of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    pub verdict: Verdict,
    /// Time for which all was there before the end; or less than nothing: what missing bytes play.
    pub slack_ms: i64,
    /// Film in the hand of a player that began to play with the first byte, in milliseconds.
    pub buffer_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    /// The network, or the client, was too slow.
    Missed,
    /// The server had not sent all in time: the disk, or this machine, was too slow.
    MissedHere,
    /// The client took no more: a player that is paused. The schedule waits for it.
    HeldBack,
    /// All of the answer is there, and nothing is due any more.
    Over,
}

impl Schedule {
    #[must_use]
    pub fn new(rate: Rate, pacing: Pacing, len_bytes: u64, now: Instant) -> Self {
        Self { rate, pacing, begun: now, start_up_periods: 1, len_bytes, judged: 0 }
    }

    /// Spreads the start-up over several periods.
    #[must_use]
    pub fn with_start_up_in(self, periods: u32) -> Self {
        Self { start_up_periods: periods.max(1), ..self }
    }

    /// Delays the schedule: nothing is released for this time.
    #[must_use]
    pub fn later(self, wait: Duration) -> Self {
        Self { begun: self.begun + wait, ..self }
    }

    /// Begins a waiting schedule now, with nothing but its beginning sent.
    pub fn restart(&mut self, now: Instant) {
        self.begun = now;
        self.judged = 0;
    }

    #[must_use]
    pub fn period(&self) -> Duration {
        self.pacing.period
    }

    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Periods that are over by `now`.
    fn periods(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.begun).as_nanos();
        u64::try_from(nanos / self.pacing.period.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// Bytes released when this number of periods is over: the start-up, or its part, and one
    /// period ahead.
    fn released(&self, periods: u64) -> u64 {
        let whole = u64::from(self.start_up_periods);
        let part = periods.saturating_add(1).min(whole);
        let ahead = u128::from(self.rate.bytes_in(self.pacing.start_up)) * u128::from(part);
        let ahead = u64::try_from(ahead / u128::from(whole)).unwrap_or(u64::MAX);
        let of_period = self.rate.bytes_in(self.pacing.period).max(1);
        ahead
            .saturating_add(of_period.saturating_mul(periods.saturating_add(1)))
            .min(self.len_bytes)
    }

    /// Bytes that may have been sent by `now`, from the beginning.
    #[must_use]
    pub fn allowed_bytes(&self, now: Instant) -> u64 {
        if now < self.begun { 0 } else { self.released(self.periods(now)) }
    }

    /// Whether a period has ended since the last time that one was judged.
    #[must_use]
    pub fn has_to_judge(&self, now: Instant) -> bool {
        self.periods(now) > self.judged
    }

    /// Time at which the next period begins, and the one before is to be judged.
    #[must_use]
    pub fn next(&self, now: Instant) -> Instant {
        if now < self.begun {
            return self.begun.max(now + NEXT_MIN);
        }
        let period = self.pacing.period.as_nanos().max(1);
        let over = now.saturating_duration_since(self.begun).as_nanos() % period;
        let left = u64::try_from(period - over).unwrap_or(u64::MAX);
        // Never now: who waits for it must not find it due without end.
        now + Duration::from_nanos(left).max(NEXT_MIN)
    }

    /// Judges whether the client had by `now` what was released a period before. `None` where no
    /// period has ended since the last time.
    pub fn judge(&mut self, now: Instant, there: There) -> Option<Judged> {
        let There { bytes: there_bytes, ago, is_full, sent_bytes } = there;
        let periods = self.periods(now);
        if periods <= self.judged {
            return None;
        }
        self.judged = periods;
        let due_bytes = self.released(periods - 1);
        let slack_ms = if there_bytes >= due_bytes {
            i64::try_from(ago.min(self.pacing.period).as_millis()).unwrap_or(i64::MAX)
        } else {
            -self.play_ms(due_bytes - there_bytes).max(1)
        };
        let played = now.saturating_duration_since(self.begun).as_millis();
        let buffer_ms =
            self.play_ms(there_bytes).saturating_sub(i64::try_from(played).unwrap_or(i64::MAX));
        let judged = |verdict| Some(Judged { verdict, slack_ms, buffer_ms });
        if there_bytes >= self.len_bytes {
            return judged(Verdict::Over);
        }
        if there_bytes >= due_bytes {
            return judged(Verdict::Met);
        }
        if is_full {
            self.hold(now, due_bytes, there_bytes);
            self.judged = self.periods(now);
            return judged(Verdict::HeldBack);
        }
        judged(if sent_bytes < due_bytes { Verdict::MissedHere } else { Verdict::Missed })
    }

    /// Delays the schedule by what was not taken: the client gets it when it reads on, in its time.
    fn hold(&mut self, now: Instant, due_bytes: u64, there_bytes: u64) {
        let missing_bits = u128::from(due_bytes - there_bytes) * 8;
        let late = missing_bits * 1_000_000_000 / u128::from(self.rate.bits_per_s);
        let mut late = Duration::from_nanos(u64::try_from(late).unwrap_or(u64::MAX));
        if due_bytes == self.len_bytes {
            // Little may be missing of the end, and nobody shall look 25 times a second.
            late = late.max(self.pacing.period);
        }
        self.begun += late.min(now.saturating_duration_since(self.begun));
    }

    /// Time for which a number of bytes plays, in milliseconds.
    fn play_ms(&self, bytes: u64) -> i64 {
        let ms = u128::from(bytes) * 8_000 / u128::from(self.rate.bits_per_s);
        i64::try_from(ms).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits_per_s) in [
            ("1500k", Some(1_500_000)),
            ("2M", Some(2_000_000)),
            ("2.5Mbit", Some(2_500_000)),
            ("2.5Mbit/s", Some(2_500_000)),
            ("1G", Some(1_000_000_000)),
            ("800000", Some(800_000)),
            ("0", None),
            ("10", None),
            ("-2M", None),
            ("1e9", None),
            ("M", None),
            ("", None),
            ("inf", None),
            ("9999999G", None),
        ] {
            let rate = bits_per_s.map(|bits_per_s| Rate { bits_per_s });
            assert_eq!(Rate::parse(text), rate, "{text}");
        }
    }

    /// A schedule of 8 kbit/s, which is 1000 bytes a second.
    fn schedule(len_bytes: u64) -> (Schedule, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let rate = Rate { bits_per_s: 8_000 };
        let at = move |ms: u64| start + Duration::from_millis(ms);
        (Schedule::new(rate, Pacing::default(), len_bytes, start), at)
    }

    #[test]
    fn bytes_are_released_a_period_ahead_and_no_more_than_there_are() {
        let (schedule, at) = schedule(20_000);
        for (ms, bytes, next) in [
            (0, 9_000, 3_000),
            (2_999, 9_000, 3_000),
            (3_000, 12_000, 6_000),
            (8_999, 15_000, 9_000),
            (60_000, 20_000, 63_000),
        ] {
            assert_eq!(schedule.allowed_bytes(at(ms)), bytes, "{ms}");
            assert_eq!(schedule.next(at(ms)), at(next), "{ms}");
        }
    }

    #[test]
    fn one_that_waits_releases_nothing_and_then_what_it_would_have() {
        let (schedule, at) = schedule(20_000);
        let schedule = schedule.later(Duration::from_secs(4));
        for (ms, bytes, next) in
            [(0, 0, 4_000), (3_999, 0, 4_000), (4_000, 9_000, 7_000), (7_000, 12_000, 10_000)]
        {
            assert_eq!(schedule.allowed_bytes(at(ms)), bytes, "{ms}");
            assert_eq!(schedule.next(at(ms)), at(next), "{ms}");
            assert_eq!(schedule.has_to_judge(at(ms)), ms >= 7_000, "{ms}");
        }
    }

    #[test]
    fn each_period_is_judged_once() {
        let (mut schedule, at) = schedule(1_000_000);
        let there = |bytes| There {
            bytes,
            ago: Duration::from_millis(2_700),
            is_full: false,
            sent_bytes: 12_000,
        };
        assert_eq!(schedule.judge(at(2_999), there(0)), None);
        let met = Judged { verdict: Verdict::Met, slack_ms: 2_700, buffer_ms: 6_000 };
        assert_eq!(schedule.judge(at(3_000), there(9_000)), Some(met));
        assert_eq!(schedule.judge(at(3_001), there(9_000)), None);
        let missed = Judged { verdict: Verdict::Missed, slack_ms: -500, buffer_ms: 5_490 };
        assert_eq!(schedule.judge(at(6_010), there(11_500)), Some(missed));
        let here = schedule.judge(at(9_000), there(12_000)).map(|one| one.verdict);
        assert_eq!(here, Some(Verdict::MissedHere));
    }

    #[test]
    fn a_player_that_is_paused_is_owed_nothing_and_goes_on_where_it_was() {
        let (mut schedule, at) = schedule(1_000_000);
        let mut verdict = |ms, bytes| {
            let there = There { bytes, is_full: true, ..There::default() };
            schedule.judge(at(ms), there).map(|one| one.verdict)
        };
        assert_eq!(verdict(3_000, 9_000), Some(Verdict::Met));
        // It took half a period and was paused for 27 s.
        assert_eq!(verdict(6_000, 10_500), Some(Verdict::HeldBack));
        for second in 7..33 {
            verdict(second * 1_000, 10_500);
        }
        // No flood when it reads on: a period in advance, as always.
        assert!(schedule.allowed_bytes(at(33_000)) <= 10_500 + 2 * 3_000);
    }

    #[test]
    fn a_start_up_that_takes_longer_comes_in_equal_parts() {
        let (schedule, at) = schedule(100_000);
        let schedule = schedule.with_start_up_in(3);
        for (ms, bytes) in [(0, 5_000), (3_000, 10_000), (6_000, 15_000), (9_000, 18_000)] {
            assert_eq!(schedule.allowed_bytes(at(ms)), bytes, "{ms}");
        }
    }

    /// A television that buffers half a period has always half a period in hand.
    #[test]
    fn who_takes_little_at_a_time_keeps_its_lead() {
        let (mut schedule, at) = schedule(1_000_000);
        let (mut now, mut taken) = (at(0), 0);
        for _ in 0..400 {
            now += Duration::from_millis(100);
            let played = (now - at(0)).as_millis() as u64;
            taken = (played + 1_500).min(schedule.allowed_bytes(now));
            let is_full = taken < schedule.allowed_bytes(now);
            let there = There { bytes: taken, is_full, ..There::default() };
            let judged = schedule.judge(now, there).map(|one| one.verdict);
            assert!(!matches!(judged, Some(Verdict::Missed | Verdict::MissedHere)), "{judged:?}");
            assert!(taken >= played, "dry at {played}");
        }
        assert!(taken > 40_000);
    }

    /// A player whose last bytes play for less than a period was looked at 25 times a second.
    #[test]
    fn a_player_that_is_paused_before_the_end_is_judged_once_a_period() {
        let (mut schedule, at) = schedule(9_100);
        let there = There { bytes: 9_080, is_full: true, ..There::default() };
        let mut now = at(0);
        let mut judged = 0;
        while now < at(60_000) {
            now = schedule.next(now);
            judged += u32::from(schedule.judge(now, there).is_some());
        }
        assert!((19..=20).contains(&judged), "{judged}");
        assert_eq!(schedule.allowed_bytes(now), 9_100);
    }

    proptest::proptest! {
        #[test]
        fn what_is_released_never_shrinks(
            bits in 1_000_u64..10_000_000_000,
            steps in proptest::collection::vec(0_u64..5_000, 1..40),
        ) {
            let start = Instant::now();
            let rate = Rate { bits_per_s: bits };
            let schedule = Schedule::new(rate, Pacing::default(), u64::MAX, start);
            let (mut now, mut before) = (start, 0);
            for step in steps {
                now += Duration::from_millis(step);
                let allowed = schedule.allowed_bytes(now);
                proptest::prop_assert!(allowed >= before && schedule.next(now) > now);
                before = allowed;
            }
        }
    }
}
