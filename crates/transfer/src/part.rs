//! A part of a tree, chosen by the names alone: what one of several machines moves of it.
//!
//! Each name belongs to one part, by rendezvous hashing (Thaler and Ravishankar, 1998): every part
//! gets a score for the name, and the highest has it. So the machines need not talk, and with a
//! part more only the names that it takes change their part.

use crate::{error::problem, problem::Problem};
use std::{fmt, str::FromStr};
use xxhash_rust::xxh3::xxh3_64;

/// Most parts of a tree: a name is scored for each.
pub const PARTS_MAX: u32 = 4096;

/// One of several parts of a tree, as `2/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the part, from 0.
    index: u32,
    /// Number of all parts.
    count: u32,
}

impl Part {
    /// Takes the number of a part, counted from 1, and the number of all parts.
    ///
    /// # Errors
    /// If there is no such part, or there are more than [`PARTS_MAX`].
    pub fn new(number: u32, count: u32) -> Result<Self, Problem> {
        if (1..=PARTS_MAX).contains(&count) && (1..=count).contains(&number) {
            return Ok(Self { index: number - 1, count });
        }
        let needs = format!("K/N with K from 1 to N, and N up to {PARTS_MAX}");
        let hint = "number the runs from 1 to N";
        Err(problem("there is no such part", &needs, &format!("{number}/{count}"), hint))
    }

    /// Whether a file of this name, as the receiver has it, belongs to the part.
    #[must_use]
    pub fn takes(self, name: &[u8]) -> bool {
        let hash = xxh3_64(name);
        let own = score(hash, self.index);
        // Of equal scores the first part's counts.
        (0..self.index).all(|other| score(hash, other) < own)
            && (self.index + 1..self.count).all(|other| score(hash, other) <= own)
    }
}

impl FromStr for Part {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let numbers = text.split_once('/').map(|(number, count)| (number.parse(), count.parse()));
        match numbers {
            Some((Ok(number), Ok(count))) => Self::new(number, count),
            _ => Err(problem("cannot read the part", "K/N, as 2/16", text, "K begins at 1")),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

/// Score of a part for a name's hash: the output function of SplitMix64 (Steele, Lea and Flood,
/// 2014) on the hash and the part's place in its sequence.
fn score(hash: u64, index: u32) -> u64 {
    let mixed = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let place = (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed(hash ^ mixed(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(count: u32) -> Vec<Part> {
        (1..=count).map(|number| Part::new(number, count).unwrap()).collect()
    }

    fn owner(name: &str, parts: &[Part]) -> usize {
        let owners: Vec<_> =
            (0..parts.len()).filter(|at| parts[*at].takes(name.as_bytes())).collect();
        assert_eq!(owners.len(), 1, "{name}");
        owners[0]
    }

    #[test]
    fn each_name_belongs_to_one_part_and_all_have_about_as_many() {
        let all = parts(7);
        let mut counts = [0; 7];
        for n in 0..14_000 {
            counts[owner(&format!("run/{n:05}.fits"), &all)] += 1;
        }
        // 2000 each; the standard deviation is 41.
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_part_more_takes_names_and_moves_none_between_the_others() {
        let (few, more) = (parts(4), parts(5));
        let mut taken = 0;
        for n in 0..5000 {
            let name = format!("d/{n}");
            let (before, after) = (owner(&name, &few), owner(&name, &more));
            taken += usize::from(after == 4);
            assert!(after == before || after == 4, "{name}: {before} {after}");
        }
        assert!((850..1150).contains(&taken), "{taken}");
    }

    /// Machines with different builds of haul have to agree.
    #[test]
    fn the_owner_of_a_name_never_changes() {
        let all = parts(16);
        let owners = ["a", "run7/a.fits", "run7/b.fits", "x/y/z", ""].map(|name| owner(name, &all));
        assert_eq!(owners, [11, 11, 2, 9, 5]);
    }

    #[test]
    fn what_is_no_part_is_refused_in_words() {
        assert_eq!("2/16".parse::<Part>().unwrap().to_string(), "2/16");
        for text in ["0/4", "5/4", "1/0", "1/4097", "1", "a/4", "/", "-1/4", "1/4/2", ""] {
            let refused = text.parse::<Part>().unwrap_err().to_string();
            assert!(refused.contains("K/N"), "{text}: {refused}");
        }
    }
}
