//! Draw of a sample of mutants by a seed, the same one each time.

use std::path::Path;

use crate::child;

/// The seed of a commit: each draws others, and a commit the same ones again.
pub fn seed_of_head(root: &Path) -> u64 {
    let output = child::output_of(&mut child::command(root, "git", &["rev-parse", "HEAD"]));
    let hash = output.unwrap_or_default();
    let digits = String::from_utf8_lossy(&hash).chars().take(8).collect::<String>();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Draws `count` of `all`, or all when there are no more, in the order of `all`.
pub fn draw<T: Copy>(all: &[T], count: usize, seed: u64) -> Vec<T> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    let mut state = seed;
    // The end of a shuffle (Fisher and Yates) is not needed once `count` places are drawn.
    for at in 0..count.min(all.len()) {
        let left = (all.len() - at) as u64;
        let step = usize::try_from(next(&mut state) % left).unwrap_or(0);
        order.swap(at, at + step);
    }
    order.truncate(count);
    order.sort_unstable();
    order.into_iter().map(|at| all[at]).collect()
}

/// The next number of splitmix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_draws_the_same_ones_again_and_another_seed_others() {
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(draw(&all, 8, 7), draw(&all, 8, 7));
        assert_ne!(draw(&all, 8, 7), draw(&all, 8, 8));
        let distinct: BTreeSet<u32> = draw(&all, 8, 7).into_iter().collect();
        assert_eq!(distinct.len(), 8);
    }

    #[test]
    fn more_than_there_are_draws_all_in_their_order() {
        assert_eq!(draw(&[3, 1, 2], 9, 5), [3, 1, 2]);
        assert_eq!(draw(&[0; 0], 9, 5), [0; 0]);
    }

    #[test]
    fn many_seeds_reach_every_one() {
        let all: Vec<u32> = (0..40).collect();
        let drawn: BTreeSet<u32> = (0..60).flat_map(|seed| draw(&all, 5, seed)).collect();
        assert_eq!(drawn.len(), all.len());
    }
}
