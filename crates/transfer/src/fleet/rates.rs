//! Bytes over time, in as many intervals as a chart shows, however long the time is.

use std::collections::BTreeMap;

/// Intervals of the whole fleet, and of each node.
pub const FLEET_INTERVALS_MAX: u64 = 512;
pub const NODE_INTERVALS_MAX: u64 = 128;
/// Length of an interval at first.
const WIDTH_MS: u64 = 1000;

/// Bytes that came in each of the intervals of a time.
///
/// All intervals have one length, which doubles when there would be too many of them.
#[derive(Clone, Debug)]
pub struct Rates {
    intervals_max: u64,
    width_ms: u64,
    /// Bytes by the number of the interval since 1970.
    bytes: BTreeMap<u64, f64>,
}

impl Rates {
    pub(super) fn new(intervals_max: u64) -> Self {
        Self { intervals_max, width_ms: WIDTH_MS, bytes: BTreeMap::new() }
    }

    /// Adds bytes that came evenly over a time, in milliseconds since 1970.
    pub(super) fn add(&mut self, from_ms: u64, to_ms: u64, bytes: u64) {
        let to_ms = to_ms.max(from_ms.saturating_add(1));
        self.make_room(from_ms, to_ms);
        let per_ms = bytes as f64 / (to_ms - from_ms) as f64;
        for at in from_ms / self.width_ms..=(to_ms - 1) / self.width_ms {
            let begin = from_ms.max(at * self.width_ms);
            let end = to_ms.min((at + 1).saturating_mul(self.width_ms));
            *self.bytes.entry(at).or_default() += per_ms * (end - begin) as f64;
        }
    }

    /// Makes the intervals longer until all of them are few enough, with this time.
    fn make_room(&mut self, from_ms: u64, to_ms: u64) {
        loop {
            let (mut first, mut last) = (from_ms / self.width_ms, (to_ms - 1) / self.width_ms);
            if let (Some((low, _)), Some((high, _))) =
                (self.bytes.first_key_value(), self.bytes.last_key_value())
            {
                (first, last) = (first.min(*low), last.max(*high));
            }
            if last - first < self.intervals_max {
                return;
            }
            self.width_ms *= 2;
            for (at, bytes) in std::mem::take(&mut self.bytes) {
                *self.bytes.entry(at / 2).or_default() += bytes;
            }
        }
    }

    /// Length of an interval in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.width_ms as f64 / 1000.0
    }

    /// Begin of each interval, in milliseconds since 1970, with its rate in Gbit/s; intervals
    /// without a byte between others, too.
    #[must_use]
    pub fn points(&self) -> Vec<(u64, f64)> {
        let keys = (self.bytes.first_key_value(), self.bytes.last_key_value());
        let (Some((first, _)), Some((last, _))) = keys else { return Vec::new() };
        let rate = |at| self.bytes.get(&at).map_or(0.0, |bytes| bytes * 8e-9 / self.seconds());
        (*first..=*last).map(|at| (at * self.width_ms, rate(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(rates: &Rates) -> f64 {
        rates.points().iter().map(|(_, rate)| rate * rates.seconds() * 1e9 / 8.0).sum()
    }

    #[test]
    fn bytes_are_spread_over_the_time_that_they_took() {
        let mut rates = Rates::new(8);
        rates.add(500, 2500, 4000);
        rates.add(5000, 5000, 7);
        let bytes: Vec<f64> = rates.points().iter().map(|(_, rate)| rate * 1e9 / 8.0).collect();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(
            bytes.iter().zip([1000.0, 2000.0, 1000.0, 0.0, 0.0, 7.0]).all(|(a, b)| near(*a, b)),
            "{bytes:?}"
        );
    }

    #[test]
    fn a_long_time_has_no_more_intervals_and_loses_no_byte() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut rates = Rates::new(16);
            for at in order {
                rates.add(1_000_000 * at, 1_000_000 * at + 1500, 1000);
            }
            rates.add(0, 9_000_000, 500);
            assert!(rates.points().len() <= 16, "{}", rates.points().len());
            assert!((total(&rates) - 4500.0).abs() < 1e-3, "{}", total(&rates));
        }
        let mut rates = Rates::new(4);
        rates.add(0, 1, 1);
        rates.add(u64::MAX - 1, u64::MAX, 1);
        assert!(rates.points().len() <= 4);
    }
}
