//! Play time of an MPEG stream, from a few readings of the clock that lie in it.
//!
//! The clock of both MPEG streams counts 90 kHz in 33 bits (ISO/IEC 13818-1, 2.4.2.1 and 2.5.2):
//! after 26.5 hours it begins again, and where streams were joined it jumps. So the file is cut
//! into parts of one size, the clock is read where each begins, and a part whose time does not fit
//! the others' is left out.

use std::time::Duration;

use super::{excerpts::Excerpts, scaled, time_of_ticks};

pub const TICKS_PER_S: u64 = 90_000;
const CLOCK_BITS: u32 = 33;
/// Parts that a file is cut into: a film has scenes of few bytes and of many, but eighths of it do
/// not differ by more than `TIMES_MEDIAN_MAX`.
const PARTS: u64 = 8;
const TIMES_MEDIAN_MAX: u128 = 4;
/// Least bytes of an hour of a stream; fewer are a jump, or a lie.
const BYTES_PER_HOUR_MIN: u128 = 100_000;

/// Reading of the clock at a byte of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub at: u64,
    pub ticks: u64,
}

/// Bytes and ticks from one reading to the next.
#[derive(Clone, Copy, Debug)]
struct Part {
    len_bytes: u64,
    ticks: u64,
}

impl Part {
    fn of(pair: &[Reading]) -> Option<Self> {
        let [first, second] = pair else { return None };
        let ticks = second.ticks.wrapping_sub(first.ticks) % (1 << CLOCK_BITS);
        let len_bytes = second.at.checked_sub(first.at)?;
        let bytes_per_hour = u128::from(len_bytes) * u128::from(TICKS_PER_S * 3_600);
        let is_plausible =
            ticks > 0 && len_bytes > 0 && bytes_per_hour >= BYTES_PER_HOUR_MIN * u128::from(ticks);
        is_plausible.then_some(Self { len_bytes, ticks })
    }

    /// Whether the part's time a byte is at most `times` that of another part.
    fn is_at_most(&self, times: u128, other: &Self) -> bool {
        u128::from(self.ticks) * u128::from(other.len_bytes)
            <= times * u128::from(other.ticks) * u128::from(self.len_bytes)
    }
}

/// Play time of a stream from `begin` on. `next` finds the first reading at a place or behind it,
/// `last` the last of the file; both look only so far.
pub fn play_time(
    excerpts: &mut Excerpts,
    begin: u64,
    mut next: impl FnMut(&mut Excerpts, u64) -> Option<Reading>,
    last: impl FnOnce(&mut Excerpts) -> Option<Reading>,
) -> Option<Duration> {
    let whole = excerpts.len_bytes().checked_sub(begin)?;
    let mut readings = Vec::new();
    for number in 0..PARTS {
        let at = begin + whole / PARTS * number;
        readings.extend(next(excerpts, at));
    }
    readings.extend(last(excerpts));
    readings.dedup_by_key(|reading| reading.at);
    time_of(&readings, whole)
}

/// Play time of `whole` bytes, by readings of the clock within them.
fn time_of(readings: &[Reading], whole: u64) -> Option<Duration> {
    let mut parts: Vec<Part> = readings.windows(2).filter_map(Part::of).collect();
    parts.sort_by(|one, other| {
        (u128::from(one.ticks) * u128::from(other.len_bytes))
            .cmp(&(u128::from(other.ticks) * u128::from(one.len_bytes)))
    });
    let median = *parts.get(parts.len() / 2)?;
    parts.retain(|part| {
        part.is_at_most(TIMES_MEDIAN_MAX, &median) && median.is_at_most(TIMES_MEDIAN_MAX, part)
    });
    let ticks = parts.iter().map(|part| part.ticks).sum();
    let len_bytes = parts.iter().map(|part| part.len_bytes).sum();
    scaled(time_of_ticks(ticks, TICKS_PER_S)?, len_bytes, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that begins at `first` and runs 1000 s over 9,000,000 bytes.
    fn readings(first: u64) -> Vec<Reading> {
        (0..=8_u64)
            .map(|number| Reading {
                at: number * 1_125_000,
                ticks: (first + number * 125 * TICKS_PER_S) % (1 << CLOCK_BITS),
            })
            .collect()
    }

    #[track_caller]
    fn assert_seconds(readings: &[Reading], seconds: u64) {
        let time = time_of(readings, 9_000_000).unwrap();
        assert_eq!(time.as_secs_f64().round() as u64, seconds, "{readings:?}");
    }

    #[test]
    fn the_clock_may_begin_again_within() {
        assert_seconds(&readings(0), 1_000);
        assert_seconds(&readings((1 << CLOCK_BITS) - 300 * TICKS_PER_S), 1_000);
        assert_seconds(&readings((1 << CLOCK_BITS) - 1), 1_000);
    }

    #[test]
    fn jumps_of_the_clock_are_not_counted() {
        for jump in [-2_000_i64, -200, 1_000, 50_000] {
            let mut readings = readings(5_000 * TICKS_PER_S);
            for reading in &mut readings[5..] {
                reading.ticks = reading.ticks.wrapping_add_signed(jump * 90_000) % (1 << 33);
            }
            assert_seconds(&readings, 1_000);
        }
    }

    #[test]
    fn readings_that_are_missing_are_made_up_for() {
        let all = readings(0);
        assert_seconds(&all[..5], 1_000);
        assert_seconds(&[all[1], all[4]], 1_000);
        assert_eq!(time_of(&all[..1], 9_000_000), None);
        assert_eq!(time_of(&[], 9_000_000), None);
    }

    #[test]
    fn a_clock_that_stands_or_flies_tells_nothing() {
        let still = [0, 1_000].map(|at| Reading { at, ticks: 5 });
        assert_eq!(time_of(&still, 2_000), None);
        let back = [Reading { at: 0, ticks: 5 }, Reading { at: 1_000, ticks: 4 }];
        assert_eq!(time_of(&back, 2_000), None);
    }
}
