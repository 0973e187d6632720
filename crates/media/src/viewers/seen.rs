//! Figures of what a crowd of viewers saw.

use std::{io, time::Duration};

use hdrhistogram::Histogram;

/// Longest time that is told apart, in microseconds: an hour late is late enough.
const TIME_MAX_US: u64 = 3_600_000_000;

/// Quantiles of many times: the one that half of them keep, the one that 99 of 100 keep, and the
/// longest, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Quantiles {
    fn of(times_us: &Histogram<u64>) -> Option<Self> {
        let at = |share| times_us.value_at_quantile(share) as f64 / 1e3;
        (!times_us.is_empty()).then(|| Self {
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: times_us.max() as f64 / 1e3,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Seen {
    /// Viewers answered with 200 or 206.
    pub streams: u64,
    /// Viewers answered with 503.
    pub refused: u64,
    /// Viewers not answered, or with something else, or broken off.
    pub failed: u64,
    /// First reason why a viewer failed.
    pub why_failed: Option<String>,
    pub periods: u64,
    /// Periods that were not there in time.
    pub misses: u64,
    /// Lateness of all periods, in microseconds; 0 where one was in time.
    pub lateness_us: Histogram<u64>,
    /// Time from each request to the first byte of its film, in microseconds.
    pub first_byte_us: Histogram<u64>,
    /// Time from each request to what the player needs to begin, in microseconds.
    pub start_up_us: Histogram<u64>,
    pub received_bytes: u64,
    /// Time of all viewers, from the request on.
    pub watched: Duration,
}

impl Seen {
    pub(super) fn nothing() -> io::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, TIME_MAX_US, 3).map_err(io::Error::other);
        Ok(Self {
            streams: 0,
            refused: 0,
            failed: 0,
            why_failed: None,
            periods: 0,
            misses: 0,
            lateness_us: histogram()?,
            first_byte_us: histogram()?,
            start_up_us: histogram()?,
            received_bytes: 0,
            watched: Duration::ZERO,
        })
    }

    /// Lateness of periods; `None` where there were none.
    #[must_use]
    pub fn lateness(&self) -> Option<Quantiles> {
        Quantiles::of(&self.lateness_us)
    }

    /// Times to the first bytes; `None` where none came.
    #[must_use]
    pub fn first_byte(&self) -> Option<Quantiles> {
        Quantiles::of(&self.first_byte_us)
    }

    /// Times until players could begin; `None` where none could.
    #[must_use]
    pub fn start_up(&self) -> Option<Quantiles> {
        Quantiles::of(&self.start_up_us)
    }

    /// Adds what another crowd saw.
    pub fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.refused += other.refused;
        self.failed += other.failed;
        self.why_failed = self.why_failed.take().or_else(|| other.why_failed.clone());
        self.periods += other.periods;
        self.misses += other.misses;
        self.received_bytes += other.received_bytes;
        self.watched += other.watched;
        for (own, others) in [
            (&mut self.lateness_us, &other.lateness_us),
            (&mut self.first_byte_us, &other.first_byte_us),
            (&mut self.start_up_us, &other.start_up_us),
        ] {
            own.add(others).expect("all have the same bounds");
        }
    }

    /// Counts a period by how late it came.
    pub(super) fn tell(&mut self, late: Duration) {
        self.periods += 1;
        self.misses += u64::from(!late.is_zero());
        record(&mut self.lateness_us, late);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failed += 1;
        self.why_failed.get_or_insert(why);
    }
}

pub(super) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_crowds_are_one_larger_one() {
        let mut one = Seen::nothing().unwrap();
        assert_eq!(one.lateness(), None);
        let mut other = one.clone();
        one.tell(Duration::ZERO);
        other.tell(Duration::from_millis(20));
        other.fail("why".to_owned());
        one.add(&other);
        assert_eq!((one.periods, one.misses, one.failed), (2, 1, 1));
        assert_eq!(one.why_failed.as_deref(), Some("why"));
        let late = one.lateness().unwrap();
        assert!(late.p50_ms < 1.0 && (late.max_ms - 20.0).abs() < 0.1, "{late:?}");
    }
}
