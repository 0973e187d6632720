//! Random numbers that can be repeated: which packets a path loses depends on a seed.

/// SplitMix64 (Steele, Lea and Flood 2014): small, fast, and good enough to lose packets by.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Makes a generator that gives equal numbers for equal seeds.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any 64-bit number, each as likely as the others.
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

    /// Picks one of `choices`.
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
    fn a_number_below_a_bound_is_below_it() {
        let mut random = Random::from_seed(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..100).any(|_| random.below(3) == 2));
    }
}
