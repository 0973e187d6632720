//! Moments of a round when figures are taken: its begin, each interval, and where counting begins.

use haul_host::cpu_quota::Throttling;
use haul_protocol::message;
use std::time::{Duration, Instant};

/// Interval at which the sockets of a round are looked at in between.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The moments of a round, the same on both sides, each by its own clock.
#[derive(Clone, Debug)]
pub struct Marks {
    at: Vec<Duration>,
    /// Index of the moment where counting begins.
    counted_from: usize,
    begun: Instant,
    taken: usize,
    throttling: Throttling,
}

impl Marks {
    /// Makes the marks of a round that begins now.
    #[must_use]
    pub fn begin(probe: &message::Probe) -> Self {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let (omit, time, interval) = (ms(probe.omit_ms), ms(probe.time_ms), ms(probe.interval_ms));
        let steps = |from: Duration, until: Duration| {
            let step = move |count: u32| from + interval * count;
            (0..).map(step).take_while(move |at| *at < until)
        };
        let mut at: Vec<Duration> = steps(Duration::ZERO, omit).collect();
        let counted_from = at.len();
        // A last interval of less than half of the others belongs to the one before.
        let end = omit + time;
        at.extend(steps(omit, end).take_while(|at| *at == omit || end - *at >= interval / 2));
        at.push(end);
        Self { at, counted_from, begun: Instant::now(), taken: 0, throttling: Throttling::begin() }
    }

    #[must_use]
    pub fn counted_from(&self) -> usize {
        self.counted_from
    }

    /// Number of the moments of a round.
    #[must_use]
    pub fn count(&self) -> usize {
        self.at.len()
    }

    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// The next moment to wait for; `None` when all have passed.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.at.get(self.taken).map(|at| self.begun + *at)
    }

    /// Notes that the figures of this moment are taken.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Time since the round began in which this process's CPU quota held it.
    #[must_use]
    pub fn throttled_ns(&self) -> u64 {
        self.throttling.ns()
    }

    #[must_use]
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(omit_ms: u32, time_ms: u32, interval_ms: u32) -> (Vec<u128>, usize) {
        let probe = message::Probe { omit_ms, time_ms, interval_ms, ..Default::default() };
        let marks = Marks::begin(&probe);
        (marks.at.iter().map(Duration::as_millis).collect(), marks.counted_from())
    }

    #[test]
    fn figures_are_taken_at_both_ends_and_where_counting_begins() {
        assert_eq!(marks(0, 1000, 500), (vec![0, 500, 1000], 0));
        assert_eq!(marks(750, 1000, 500), (vec![0, 500, 750, 1250, 1750], 2));
        assert_eq!(marks(0, 1100, 500), (vec![0, 500, 1100], 0), "no interval of 100 ms");
        assert_eq!(marks(0, 100, 500), (vec![0, 100], 0));
    }
}
