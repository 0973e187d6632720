//! Random numbers that a test can be repeated with. The seed is printed, and taken from
//! `HAUL_TEST_SEED` where that is set.

pub use haul_emulator::random::Random;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that names the seed to repeat a test with.
pub const SEED_VARIABLE: &str = "HAUL_TEST_SEED";

/// The beginning of a test's random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Takes the seed from `HAUL_TEST_SEED`, else a new one. Either is printed, to repeat the test
    /// with.
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
        Random::from_seed(self.0)
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
    }
}
