//! Lag of a target behind files that are written while they are sent, told about once a second.

use crate::{events::Lag, name::Name};
use std::{collections::BTreeMap, time::Instant};

/// The most files whose lag is told at a time.
const FILES_MAX: usize = 4096;

/// Meter of the lag: the last of each file about once a second, and the largest at the end.
#[derive(Default)]
pub struct LagMeter {
    latest: BTreeMap<Name, Lag>,
    told_at: Option<Instant>,
    pub largest: Option<Lag>,
}

/// Interval between two reports of the lag.
const TELL_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

impl LagMeter {
    /// Remembers how far a file is behind.
    pub fn see(&mut self, lag: Lag) {
        if self.latest.len() >= FILES_MAX && !self.latest.contains_key(&lag.path) {
            return;
        }
        let is_larger = |largest: &Lag| lag.bytes > largest.bytes;
        if self.largest.as_ref().is_none_or(is_larger) {
            self.largest = Some(lag.clone());
        }
        // Between two lines the largest is what counts, and the oldest.
        let latest = self.latest.entry(lag.path.clone()).or_insert_with(|| lag.clone());
        latest.bytes = latest.bytes.max(lag.bytes);
        latest.seconds = latest.seconds.max(lag.seconds);
    }

    /// Takes the lags to tell now, one a file; none before a second has passed.
    pub fn take(&mut self, now: Instant) -> Vec<Lag> {
        let told_at = *self.told_at.get_or_insert(now);
        if now.saturating_duration_since(told_at) < TELL_EVERY {
            return Vec::new();
        }
        self.told_at = Some(now);
        std::mem::take(&mut self.latest).into_values().collect()
    }

    /// Takes the last lag of a complete file, which is zero; `None` if none was ever seen.
    pub fn end(&mut self, name: &[u8]) -> Option<Lag> {
        let path = Name(name.to_vec());
        self.latest.remove(&path);
        self.largest.is_some().then_some(Lag { path, bytes: 0, seconds: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_lines_the_largest_lag_is_what_is_told() {
        let (mut meter, begun) = (LagMeter::default(), Instant::now());
        let lag = |bytes| Lag { path: Name(b"x".to_vec()), bytes, seconds: 1.0 };
        assert!(meter.take(begun).is_empty());
        [3, 9, 4].into_iter().for_each(|bytes| meter.see(lag(bytes)));
        assert!(meter.take(begun + TELL_EVERY / 2).is_empty());
        assert_eq!(meter.take(begun + TELL_EVERY), [lag(9)]);
        // The most bytes are behind just after they were written: the oldest is told with them.
        meter.see(Lag { seconds: 0.4, ..lag(1) });
        meter.see(Lag { seconds: 0.0, ..lag(2) });
        assert_eq!(meter.take(begun + TELL_EVERY * 2), [Lag { seconds: 0.4, ..lag(2) }]);
        assert_eq!(
            (meter.largest.clone(), meter.end(b"x").map(|lag| lag.bytes)),
            (Some(lag(9)), Some(0))
        );
    }

    #[test]
    fn more_files_than_are_told_of_hide_none_that_is_known() {
        let mut meter = LagMeter::default();
        let lag = |number: usize, bytes| {
            let path = Name(number.to_string().into_bytes());
            Lag { path, bytes, seconds: 1.0 }
        };
        assert_eq!(meter.end(b"1"), None, "none was ever seen");
        (0..=FILES_MAX).for_each(|number| meter.see(lag(number, number as u64)));
        assert_eq!(meter.largest, Some(lag(FILES_MAX - 1, FILES_MAX as u64 - 1)));
        meter.see(lag(7, 1 << 20));
        meter.end(b"8");
        meter.see(lag(FILES_MAX, 9));
        let begun = Instant::now();
        assert!(meter.take(begun).is_empty());
        let told = meter.take(begun + TELL_EVERY);
        assert_eq!(told.len(), FILES_MAX);
        let bytes_of = |number| {
            told.iter().find(|told| told.path == lag(number, 0).path).map(|told| told.bytes)
        };
        assert_eq!([7, 8, FILES_MAX].map(bytes_of), [Some(1 << 20), None, Some(9)]);
    }

    #[test]
    fn the_first_of_two_that_lag_as_far_is_the_largest() {
        let mut meter = LagMeter::default();
        let lag = |name: &[u8]| Lag { path: Name(name.to_vec()), bytes: 9, seconds: 1.0 };
        [lag(b"a"), lag(b"b")].into_iter().for_each(|lag| meter.see(lag));
        assert_eq!(meter.largest, Some(lag(b"a")));
        assert_eq!(meter.end(b"b"), Some(Lag { bytes: 0, seconds: 0.0, ..lag(b"b") }));
    }
}
