//! Random numbers that can be repeated: which packets a path loses depends on a seed.

/// Generator of equal numbers for equal seeds.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Makes a generator that gives equal numbers for equal seeds.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Any 64-bit number, each as likely as the others.
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number less than `bound`, which is not 0.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// Picks one of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<'choices, T>(&mut self, choices: &'choices [T]) -> &'choices T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills `bytes`, each value of a byte as likely as the others.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_a_bound_is_below_it() {
        let mut random = Random::from_seed(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..100).any(|_| random.below(3) == 2));
    }
}
