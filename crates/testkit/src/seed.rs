//! Random numbers that a test can be repeated with: the seed is printed, and taken from
//! `HAUL_TEST_SEED` where that is set.

use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that names the seed to repeat a test with.
pub const SEED_VARIABLE: &str = "HAUL_TEST_SEED";

/// Where a test's random numbers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of `HAUL_TEST_SEED`, else a new one. Either is printed, to repeat the test with.
    ///
    /// # Panics
    /// If the variable holds no number: the test would not be the one that was asked for.
    #[must_use]
    pub fn from_env_or_random() -> Self {
        let seed = match std::env::var(SEED_VARIABLE) {
            Ok(text) => text
                .trim()
                .parse()
                .unwrap_or_else(|error| panic!("{SEED_VARIABLE}={text} is no number: {error}")),
            Err(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
            }
        };
        println!("{SEED_VARIABLE}={seed}");
        Self(seed)
    }

    /// A generator that always gives the same numbers for the same seed.
    #[must_use]
    pub fn random(self) -> Random {
        Random { state: self.0 }
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): small, fast, and good enough for tests.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`, which is not 0.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<'choices, T>(&mut self, choices: &'choices [T]) -> &'choices T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let take = |seed| {
            let mut random = Seed(seed).random();
            [random.number(), random.below(10), random.number()]
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        // The first number of the reference implementation for seed 0.
        assert_eq!(Seed(0).random().number(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_number_below_a_bound_is_below_it() {
        let mut random = Seed(1).random();
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..100).any(|_| random.below(3) == 2));
    }
}
