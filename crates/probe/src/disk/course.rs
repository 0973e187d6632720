//! The course of a rate over time: even, falling at one moment for good, sinking, or with a dip.
//!
//! A pure function over what came in each interval; the device and its caches are explained in
//! `explanation.rs`.

use super::series::Interval;
use serde::Serialize;

/// The least intervals that tell a course.
const POINTS_MIN: usize = 12;
/// The least intervals on either side of a cliff.
const SIDE_MIN: usize = 3;
/// The share of a rate that is left, or less, when it has fallen.
const FALLEN_SHARE: f64 = 0.75;
/// The largest share of intervals on one side that may look like the other: noise.
const STRAY_SHARE_MAX: f64 = 0.2;
/// The largest share of the usual rate within a dip.
const DIP_SHARE: f64 = 0.5;
/// The least part of the run that a dip lasts: a moment is noise.
const DIP_PARTS: usize = 20;
/// The least share of the usual rate that is there again after a dip.
const RECOVERED_SHARE: f64 = 0.75;
/// The part of the end that tells whether a rate has come back.
const TAIL_PARTS: usize = 20;

/// The course of a rate from the begin of a run to its end. Rates are in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Course {
    /// The run was over too soon to tell.
    TooShort,
    Steady,
    Cliff(Cliff),
    /// The rate falls bit by bit, as that of a disk that is written from its outer tracks inwards.
    Sinks {
        from_bytes_per_s: f64,
        to_bytes_per_s: f64,
    },
    Dip(Dip),
}

/// A cliff: the rate falls at one moment and stays low.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cliff {
    pub at_s: f64,
    pub at_bytes: u64,
    pub before_bytes_per_s: f64,
    pub after_bytes_per_s: f64,
}

/// A dip: the rate is low for a while and comes back. Of several, the longest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dip {
    pub from_s: f64,
    pub to_s: f64,
    pub usual_bytes_per_s: f64,
    pub low_bytes_per_s: f64,
}

impl Course {
    /// The rate that goes on for ever, where the run's own mean is not that.
    #[must_use]
    pub fn sustained_bytes_per_s(&self) -> Option<f64> {
        match self {
            Self::Cliff(cliff) => Some(cliff.after_bytes_per_s),
            Self::Sinks { to_bytes_per_s, .. } => Some(*to_bytes_per_s),
            Self::TooShort | Self::Steady | Self::Dip(_) => None,
        }
    }
}

/// Finds the course of a run from its intervals.
#[must_use]
pub fn course(intervals: &[Interval]) -> Course {
    let longest_s = intervals.iter().map(|interval| interval.len_s).fold(0.0, f64::max);
    // What is left over at a run's end is too short for a rate.
    let whole: Vec<&Interval> =
        intervals.iter().filter(|interval| interval.len_s >= longest_s / 2.0).collect();
    let rates: Vec<f64> = whole.iter().map(|interval| interval.bytes_per_s()).collect();
    if rates.len() < POINTS_MIN {
        return Course::TooShort;
    }
    let split = best_split(&rates);
    let (before, after) = (median(&rates[..split]), median(&rates[split..]));
    if falls_for_good(&rates, split, before, after) {
        let (slope, level) = line_through(&rates);
        if squares_of_line(&rates, slope, level) < squares_of_step(&rates, split) {
            return Course::Sinks {
                from_bytes_per_s: level.max(0.0),
                to_bytes_per_s: (level + slope * (rates.len() - 1) as f64).max(0.0),
            };
        }
        return Course::Cliff(Cliff {
            at_s: whole[split - 1].seconds,
            at_bytes: whole[..split].iter().map(|interval| interval.bytes).sum(),
            before_bytes_per_s: before,
            after_bytes_per_s: after,
        });
    }
    dip(&whole, &rates).map_or(Course::Steady, Course::Dip)
}

/// The interval at which the rates fall apart into two levels best, by least squares.
fn best_split(rates: &[f64]) -> usize {
    let sides = SIDE_MIN..=rates.len() - SIDE_MIN;
    let at = |split: usize| (split, squares_of_step(rates, split));
    let best = sides.map(at).min_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(rates.len() / 2, |(split, _)| split)
}

fn squares_of_step(rates: &[f64], split: usize) -> f64 {
    let of_side = |rates: &[f64]| {
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>()
    };
    of_side(&rates[..split]) + of_side(&rates[split..])
}

/// The line through the rates by least squares: slope for each interval, and level of the first.
fn line_through(rates: &[f64]) -> (f64, f64) {
    let middle = (rates.len() - 1) as f64 / 2.0;
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let across = |at: usize| at as f64 - middle;
    let sum = |term: &dyn Fn(usize) -> f64| (0..rates.len()).map(term).sum::<f64>();
    let slope = sum(&|at| across(at) * (rates[at] - mean)) / sum(&|at| across(at).powi(2));
    (slope, mean - slope * middle)
}

fn squares_of_line(rates: &[f64], slope: f64, level: f64) -> f64 {
    let off = |(at, rate): (usize, &f64)| (rate - level - slope * at as f64).powi(2);
    rates.iter().enumerate().map(off).sum()
}

fn falls_for_good(rates: &[f64], split: usize, before: f64, after: f64) -> bool {
    if after > FALLEN_SHARE * before {
        return false;
    }
    let middle = (before + after) / 2.0;
    let stray = |rates: &[f64], is_stray: &dyn Fn(f64) -> bool| {
        let strays = rates.iter().filter(|rate| is_stray(**rate)).count();
        strays as f64 / rates.len() as f64
    };
    let tail = (rates.len() / TAIL_PARTS).max(SIDE_MIN);
    stray(&rates[..split], &|rate| rate < middle) <= STRAY_SHARE_MAX
        && stray(&rates[split..], &|rate| rate > middle) <= STRAY_SHARE_MAX
        && median(&rates[rates.len() - tail..]) < middle
}

/// The longest stretch of low rates that has an end.
fn dip(whole: &[&Interval], rates: &[f64]) -> Option<Dip> {
    let usual = quantile(rates, 0.75);
    let len_min = (rates.len() / DIP_PARTS).max(SIDE_MIN);
    let is_low = |rate: f64| rate < DIP_SHARE * usual;
    let mut longest: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < rates.len() {
        let low = rates[at..].iter().take_while(|rate| is_low(**rate)).count();
        let end = at + low;
        let is_longer = longest.is_none_or(|(from, to)| low > to - from);
        // What is low at the very begin only starts slowly.
        if low >= len_min && at > 0 && is_longer && recovers(&rates[end..], usual) {
            longest = Some((at, end));
        }
        at = end + 1;
    }
    let (from, to) = longest?;
    Some(Dip {
        from_s: whole[from - 1].seconds,
        to_s: whole[to - 1].seconds,
        usual_bytes_per_s: usual,
        low_bytes_per_s: median(&rates[from..to]),
    })
}

fn recovers(rest: &[f64], usual: f64) -> bool {
    rest.len() >= SIDE_MIN && quantile(rest, 0.75) >= RECOVERED_SHARE * usual
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this share of the values lies; 0 where there are none.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The course of these rates, one for each tenth of a second.
    fn of(rates: &[f64]) -> Course {
        let interval = |(at, rate): (usize, &f64)| Interval {
            seconds: (at + 1) as f64 / 10.0,
            len_s: 0.1,
            bytes: (rate / 10.0) as u64,
            operations: 1,
            delays: None,
        };
        course(&rates.iter().enumerate().map(interval).collect::<Vec<_>>())
    }

    /// Noise between -1 and 1, the same numbers each time.
    fn noise(count: usize) -> Vec<f64> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn noisy(levels: &[(usize, f64)], share: f64) -> Vec<f64> {
        let flat: Vec<f64> = levels.iter().flat_map(|(count, rate)| vec![*rate; *count]).collect();
        let noise = noise(flat.len());
        flat.iter().zip(noise).map(|(rate, noise)| rate * (1.0 + share * noise)).collect()
    }

    #[test]
    fn an_even_rate_is_steady_also_with_noise_and_a_few_stalls() {
        assert_eq!(of(&[1e9; 100]), Course::Steady);
        for share in [0.1, 0.3, 0.6] {
            assert_eq!(of(&noisy(&[(300, 1e9)], share)), Course::Steady, "{share}");
        }
        let mut stalls = noisy(&[(100, 1e9)], 0.1);
        for at in [20, 50, 51, 93] {
            stalls[at] = 0.0;
        }
        assert_eq!(of(&stalls), Course::Steady);
        assert_eq!(of(&[0.0; 50]), Course::Steady);
    }

    #[test]
    fn a_run_of_a_second_tells_no_course() {
        assert_eq!(of(&[1e9; POINTS_MIN - 1]), Course::TooShort);
        assert_eq!(of(&[]), Course::TooShort);
    }

    #[track_caller]
    fn cliff(rates: &[f64]) -> Cliff {
        match of(rates) {
            Course::Cliff(cliff) => cliff,
            other => panic!("no cliff: {other:?}"),
        }
    }

    #[test]
    fn a_cliff_is_found_where_it_is_with_both_its_rates() {
        for share in [0.0, 0.1, 0.3] {
            let found = cliff(&noisy(&[(40, 3e9), (160, 1e9)], share));
            assert!((found.at_s - 4.0).abs() < 0.11, "{found:?}");
            assert!((found.at_bytes as f64 / 12e9 - 1.0).abs() < 0.1, "{found:?}");
            assert!((found.before_bytes_per_s / 3e9 - 1.0).abs() < 0.1, "{found:?}");
            assert!((found.after_bytes_per_s / 1e9 - 1.0).abs() < 0.1, "{found:?}");
        }
        // Soon after the begin, and shortly before the end.
        assert!((cliff(&noisy(&[(4, 2e9), (200, 1e9)], 0.1)).at_s - 0.4).abs() < 0.11);
        assert!((cliff(&noisy(&[(200, 2e9), (20, 2e8)], 0.1)).at_s - 20.0).abs() < 0.11);
    }

    #[test]
    fn after_a_cliff_single_intervals_may_be_fast() {
        let mut rates = noisy(&[(50, 2e9), (100, 5e8)], 0.1);
        for at in (55..150).step_by(10) {
            rates[at] = 1.9e9;
        }
        assert!((cliff(&rates).at_s - 5.0).abs() < 0.3);
    }

    #[test]
    fn of_two_steps_down_the_larger_is_the_cliff() {
        let found = cliff(&noisy(&[(60, 3e9), (60, 1e9), (60, 8e8)], 0.05));
        assert!((found.at_s - 6.0).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn what_recovers_is_a_dip_and_no_cliff() {
        for levels in [
            [(50, 2e9), (30, 2e8), (50, 2e9)],
            [(30, 2e9), (70, 2e8), (40, 2e9)],
            [(120, 2e9), (20, 0.0), (10, 2e9)],
        ] {
            let Course::Dip(dip) = of(&noisy(&levels, 0.1)) else {
                panic!("{levels:?}: {:?}", of(&noisy(&levels, 0.1)))
            };
            let from_s = levels[0].0 as f64 / 10.0;
            let to_s = from_s + levels[1].0 as f64 / 10.0;
            assert!((dip.from_s - from_s).abs() < 0.15, "{dip:?}");
            assert!((dip.to_s - to_s).abs() < 0.15, "{dip:?}");
            assert!((dip.usual_bytes_per_s / 2e9 - 1.0).abs() < 0.15, "{dip:?}");
        }
    }

    #[test]
    fn a_rate_that_comes_back_at_the_very_end_has_not_fallen_for_good() {
        let rates = noisy(&[(40, 2e9), (140, 4e8), (20, 2e9)], 0.05);
        assert!(matches!(of(&rates), Course::Dip(_)), "{:?}", of(&rates));
    }

    #[test]
    fn what_rises_is_steady() {
        assert_eq!(of(&noisy(&[(50, 5e8), (100, 2e9)], 0.05)), Course::Steady);
    }

    #[test]
    fn what_falls_bit_by_bit_sinks() {
        let noise = noise(200);
        let rates: Vec<f64> =
            (0..200).map(|at| 2e8 * (1.0 - at as f64 / 400.0 + noise[at] * 0.05)).collect();
        let Course::Sinks { from_bytes_per_s, to_bytes_per_s } = of(&rates) else {
            panic!("{:?}", of(&rates))
        };
        assert!((from_bytes_per_s / 2e8 - 1.0).abs() < 0.05);
        assert!((to_bytes_per_s / 1e8 - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_rest_that_is_too_short_for_a_rate_does_not_count() {
        let interval = |at: usize, len_s: f64, bytes: u64| Interval {
            seconds: at as f64 / 10.0,
            len_s,
            bytes,
            operations: 1,
            delays: None,
        };
        let mut all: Vec<Interval> = (1..=20).map(|at| interval(at, 0.1, 100)).collect();
        all.push(interval(20, 0.001, 0));
        assert_eq!(course(&all), Course::Steady);
    }
}
