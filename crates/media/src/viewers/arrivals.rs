//! Arrivals of viewers, each for a film, decided before the first comes.
//!
//! So two servers meet the very same crowd.
//!
//! Numbers are an argument: any generator of evenly spread 64-bit numbers.

use std::time::Duration;

/// Arrival of one viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time from the crowd's beginning.
    pub at: Duration,
    /// Number of the film, from 0.
    pub film: usize,
}

/// Arrivals one after the other within a time, with the films in turn.
#[must_use]
pub fn evenly(viewers: usize, over: Duration, films: usize) -> Vec<Arrival> {
    let at = |viewer: usize| over.mul_f64(viewer as f64 / viewers.max(1) as f64);
    (0..viewers).map(|viewer| Arrival { at: at(viewer), film: viewer % films.max(1) }).collect()
}

/// A Poisson process: the gaps between arrivals are independent, and exponential with this mean.
/// At most `viewers_max` come, all of them before `until`.
#[must_use]
pub fn poisson(
    mean_gap: Duration,
    viewers_max: usize,
    until: Duration,
    popularity: &Zipf,
    numbers: &mut impl FnMut() -> u64,
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut at_s = 0.0;
    while arrivals.len() < viewers_max {
        // Of 0 to below 1 the other way round: the logarithm of 0 is no gap.
        at_s -= mean_gap.as_secs_f64() * (1.0 - share(numbers())).ln();
        let film = popularity.pick(share(numbers()));
        if at_s >= until.as_secs_f64() {
            break;
        }
        arrivals.push(Arrival { at: Duration::from_secs_f64(at_s), film });
    }
    arrivals
}

/// Share from 0 to below 1 out of a number, in steps of 2^-53: all that a float tells apart.
fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// Popularity of films: the i-th is asked for in proportion to 1 / i^(1 - theta).
///
/// So films on demand are counted, where theta 0.271 fits what video shops lent (Dan, Sitaram and
/// Shahabuddin, "Scheduling policies for an on-demand video server with batching", ACM Multimedia
/// 1994). 0 is Zipf's own law, and with 1 all films are as popular.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    /// The shares of the films up to each; the last is 1.
    up_to: Vec<f64>,
}

impl Zipf {
    #[must_use]
    pub fn new(films: usize, theta: f64) -> Self {
        let weight = |film: usize| (film as f64).powf(theta - 1.0);
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = Vec::with_capacity(films);
        for film in 1..=films.max(1) {
            sum += weight(film);
            up_to.push(sum);
        }
        up_to.iter_mut().for_each(|share| *share /= sum);
        Self { up_to }
    }

    /// Share of all requests that is for a film, numbered from 0.
    #[must_use]
    pub fn share(&self, film: usize) -> f64 {
        let before = film.checked_sub(1).map_or(0.0, |before| self.up_to[before]);
        self.up_to[film] - before
    }

    /// Film at a place between 0 and 1.
    fn pick(&self, place: f64) -> usize {
        self.up_to.partition_point(|up_to| *up_to <= place).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::seed::Seed;

    const THETA: f64 = 0.271;

    fn of_seed(seed: u64, viewers: usize, films: usize) -> Vec<Arrival> {
        let mut random = Seed(seed).random();
        let gap = Duration::from_secs(36);
        let popularity = Zipf::new(films, THETA);
        poisson(gap, viewers, Duration::MAX, &popularity, &mut || random.number())
    }

    #[test]
    fn a_crowd_that_comes_evenly_takes_the_films_in_turn() {
        let crowd = evenly(4, Duration::from_secs(8), 3);
        let seconds: Vec<u64> = crowd.iter().map(|one| one.at.as_secs()).collect();
        let films: Vec<usize> = crowd.iter().map(|one| one.film).collect();
        assert_eq!((seconds, films), (vec![0, 2, 4, 6], vec![0, 1, 2, 0]));
        assert_eq!(evenly(0, Duration::ZERO, 0), []);
    }

    /// Weights 1 / i^0.729, worked out by hand for three films: 1, 0.6033, 0.4490.
    #[test]
    fn shares_are_those_of_the_literature() {
        let three = Zipf::new(3, THETA);
        for (film, share) in [(0, 0.4873), (1, 0.2940), (2, 0.2188)] {
            assert!((three.share(film) - share).abs() < 1e-4, "{film}: {}", three.share(film));
        }
        let even = Zipf::new(4, 1.0);
        assert!((0..4).all(|film| (even.share(film) - 0.25).abs() < 1e-12));
        assert_eq!((three.pick(0.0), three.pick(0.9999), three.pick(1.0)), (0, 2, 2));
    }

    /// A film that is asked for with probability p is asked for n p times of n, give or take
    /// sqrt(n p (1 - p)); five times as much does not happen.
    #[test]
    fn films_are_asked_for_as_often_as_they_are_popular() {
        const VIEWERS: usize = 100_000;
        const FILMS: usize = 30;
        let popularity = Zipf::new(FILMS, THETA);
        for seed in [1, 2, 3] {
            let mut counts = [0_u32; FILMS];
            of_seed(seed, VIEWERS, FILMS).iter().for_each(|one| counts[one.film] += 1);
            for (film, count) in counts.iter().enumerate() {
                let share = popularity.share(film);
                let expected = VIEWERS as f64 * share;
                let give = 5.0 * (expected * (1.0 - share)).sqrt();
                let beside = (f64::from(*count) - expected).abs();
                assert!(beside < give, "seed {seed}, film {film}: {count}, not {expected:.0}");
            }
        }
    }

    /// The gaps of a Poisson process have the mean m, and as much as their deviation; e^-1 of them
    /// are longer than m.
    #[test]
    fn gaps_are_exponential() {
        const VIEWERS: usize = 100_000;
        for seed in [1, 2, 3] {
            let arrivals = of_seed(seed, VIEWERS, 1);
            let gaps = arrivals.windows(2).map(|two| (two[1].at - two[0].at).as_secs_f64() / 36.0);
            let gaps: Vec<f64> = gaps.collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let longer = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
            // Five deviations of each: 1, 8^(1/2) and (e^-1 (1 - e^-1))^(1/2), by n^(1/2).
            assert!((mean - 1.0).abs() < 0.016, "seed {seed}: {mean}");
            assert!((variance - 1.0).abs() < 0.045, "seed {seed}: {variance}");
            assert!((longer - (-1.0_f64).exp()).abs() < 0.008, "seed {seed}: {longer}");
        }
    }

    #[test]
    fn a_seed_is_a_crowd_and_nobody_comes_after_the_end() {
        assert_eq!(of_seed(7, 100, 30), of_seed(7, 100, 30));
        assert_ne!(of_seed(7, 100, 30), of_seed(8, 100, 30));
        let mut random = Seed(7).random();
        let until = Duration::from_secs(3600);
        let popularity = Zipf::new(30, THETA);
        let gap = Duration::from_secs(36);
        let hour = poisson(gap, 1000, until, &popularity, &mut || random.number());
        assert!(hour.iter().all(|one| one.at < until) && (50..150).contains(&hour.len()));
    }
}
