//! A run's bytes and delays over time: per interval, and in sum.
//!
//! Nothing here reads a clock: what happened when is said by the caller.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The longest delay that is told, in nanoseconds; a longer one counts as this long.
const DELAY_NS_MAX: u64 = 3600 * 1_000_000_000;
const DIGITS: u8 = 3;
/// Intervals of a series, at most; the last one takes all that still comes.
const INTERVALS_MAX: usize = 4096;

/// Delays of operations, from their start to their end, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Delays {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

impl Delays {
    /// Summarises a histogram of nanoseconds; `None` where nothing was done.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Some(Self {
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        })
    }
}

/// The work of a run between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The end of the interval, from the run's begin on.
    pub seconds: f64,
    pub len_s: f64,
    pub bytes: u64,
    pub operations: u64,
    /// Delays of the operations that ended in the interval; `None` where none did.
    pub delays: Option<Delays>,
}

impl Interval {
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        if self.len_s > 0.0 { self.bytes as f64 / self.len_s } else { 0.0 }
    }
}

/// A whole run: its intervals, and their sums.
#[derive(Clone, Debug)]
pub struct Series {
    pub intervals: Vec<Interval>,
    /// Delays of all operations, in nanoseconds.
    pub delays: Histogram<u64>,
    pub bytes: u64,
    /// Time from the run's begin to the end of its last operation.
    pub seconds: f64,
}

/// A recorder of what a run does, interval by interval.
#[derive(Debug)]
pub struct Recorder {
    every: Duration,
    begun_at: Duration,
    last_at: Duration,
    bytes: u64,
    delays: Histogram<u64>,
    intervals: Vec<Interval>,
    all_bytes: u64,
    all_delays: Histogram<u64>,
}

/// An empty histogram of delays, in nanoseconds.
#[must_use]
pub fn no_delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1, DELAY_NS_MAX, DIGITS).expect("these bounds and digits are valid")
}

impl Recorder {
    /// Begins to record, with intervals of this length.
    ///
    /// # Panics
    /// If intervals have no length.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        assert!(!every.is_zero(), "an interval lasts some time");
        Self {
            every,
            begun_at: Duration::ZERO,
            last_at: Duration::ZERO,
            bytes: 0,
            delays: no_delays(),
            intervals: Vec::new(),
            all_bytes: 0,
            all_delays: no_delays(),
        }
    }

    /// Records an operation that was over at `at` from the run's begin on, and had taken `delay`.
    pub fn finished(&mut self, at: Duration, delay: Duration, bytes: u64) {
        while at >= self.begun_at + self.every && self.intervals.len() < INTERVALS_MAX {
            self.close(self.begun_at + self.every);
        }
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.delays.saturating_record(delay_ns);
        self.bytes += bytes;
        self.last_at = self.last_at.max(at);
    }

    fn close(&mut self, at: Duration) {
        self.intervals.push(Interval {
            seconds: at.as_secs_f64(),
            len_s: (at - self.begun_at).as_secs_f64(),
            bytes: self.bytes,
            operations: self.delays.len(),
            delays: Delays::of(&self.delays),
        });
        self.all_bytes += self.bytes;
        self.all_delays.add(&self.delays).expect("both have the same bounds");
        self.bytes = 0;
        self.delays.reset();
        self.begun_at = at;
    }

    /// Ends the recording and returns the series.
    #[must_use]
    pub fn end(mut self) -> Series {
        if !self.delays.is_empty() {
            self.close(self.last_at.max(self.begun_at));
        }
        Series {
            intervals: self.intervals,
            delays: self.all_delays,
            bytes: self.all_bytes,
            seconds: self.last_at.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_interval_has_its_bytes_and_its_delays() {
        let mut recorder = Recorder::new(ms(100));
        for at in 1..=20_u64 {
            let delay = if at <= 10 { ms(1) } else { ms(4) };
            recorder.finished(ms(at * 10 - 1), delay, 1000);
        }
        let series = recorder.end();
        assert_eq!(series.intervals.len(), 2);
        let delays = |at: usize| series.intervals[at].delays.unwrap();
        assert_eq!((series.intervals[0].bytes, series.intervals[0].operations), (10_000, 10));
        assert!((delays(0).p50_us - 1000.0).abs() < 2.0, "{:?}", delays(0));
        assert!((delays(1).p99_us - 4000.0).abs() < 5.0, "{:?}", delays(1));
        assert!((series.intervals[0].bytes_per_s() - 100_000.0).abs() < 1e-6);
        assert_eq!((series.bytes, series.delays.len()), (20_000, 20));
        assert!((series.seconds - 0.199).abs() < 1e-9);
    }

    #[test]
    fn a_stall_is_intervals_without_bytes_and_then_one_long_delay() {
        let mut recorder = Recorder::new(ms(100));
        recorder.finished(ms(50), ms(50), 10);
        recorder.finished(ms(350), ms(300), 10);
        let series = recorder.end();
        let bytes: Vec<u64> = series.intervals.iter().map(|interval| interval.bytes).collect();
        assert_eq!(bytes, [10, 0, 0, 10]);
        assert!(series.intervals[1].delays.is_none());
        let all = Delays::of(&series.delays).unwrap();
        assert!((all.max_us / 300_000.0 - 1.0).abs() < 0.001, "{all:?}");
        assert!((series.intervals[3].len_s - 0.05).abs() < 1e-9);
    }

    #[test]
    fn bytes_are_never_lost_however_long_it_takes() {
        let mut recorder = Recorder::new(ms(1));
        for at in 0..3 * INTERVALS_MAX as u64 {
            recorder.finished(ms(at), ms(1), 7);
        }
        let series = recorder.end();
        assert_eq!(series.intervals.len(), INTERVALS_MAX + 1);
        let sum: u64 = series.intervals.iter().map(|interval| interval.bytes).sum();
        assert_eq!((sum, series.bytes), (7 * 3 * INTERVALS_MAX as u64, sum));
        assert!(Recorder::new(ms(1)).end().intervals.is_empty());
    }

    #[test]
    fn a_delay_beyond_the_scale_counts_as_the_longest() {
        let mut recorder = Recorder::new(ms(100));
        recorder.finished(ms(1), Duration::MAX, 1);
        recorder.finished(ms(2), Duration::ZERO, 1);
        let delays = Delays::of(&recorder.end().delays).unwrap();
        assert!((delays.max_us / 3.6e9 - 1.0).abs() < 0.01, "{delays:?}");
    }
}
