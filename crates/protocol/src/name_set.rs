//! A set of hashes at little more than their own eight bytes each.
//!
//! A B-tree that is filled in random order takes some 18 bytes for each, a table of hashes up to
//! 20. Here the first bits of a hash choose a sorted list, which grows by an eighth at a time.

use alloc::{vec, vec::Vec};

/// Bits of a hash that choose its list: 1024 lists.
const LIST_BITS: u32 = 10;
/// Hashes that a list makes room for at least when it grows.
const GROWTH_MIN: usize = 4;

/// A set of hashes of names, which are as good as random numbers.
#[derive(Debug, Default)]
pub(crate) struct NameSet {
    /// Sorted lists; none at all while nothing was ever taken.
    lists: Vec<Vec<u64>>,
    count: usize,
}

impl NameSet {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn contains(&self, hash: u64) -> bool {
        self.lists.get(list_of(hash)).is_some_and(|list| list.binary_search(&hash).is_ok())
    }

    pub fn insert(&mut self, hash: u64) {
        if self.lists.is_empty() {
            self.lists = vec![Vec::new(); 1 << LIST_BITS];
        }
        let list = &mut self.lists[list_of(hash)];
        if let Err(place) = list.binary_search(&hash) {
            if list.len() == list.capacity() {
                list.reserve_exact((list.len() / 8).max(GROWTH_MIN));
            }
            list.insert(place, hash);
            self.count += 1;
        }
    }

    pub fn remove(&mut self, hash: u64) {
        let Some(list) = self.lists.get_mut(list_of(hash)) else { return };
        if let Ok(place) = list.binary_search(&hash) {
            list.remove(place);
            self.count -= 1;
        }
    }
}

fn list_of(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - LIST_BITS)).expect("ten bits")
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few lists and few numbers in them, so that the same ones come and go.
        #[test]
        fn a_set_of_names_holds_what_any_set_would(
            steps in prop::collection::vec((any::<bool>(), 0_u64..4, 0_u64..8), 0..300),
        ) {
            let (mut names, mut plain) = (NameSet::default(), BTreeSet::new());
            for (is_insert, list, number) in steps {
                let hash = (list * 341) << (u64::BITS - LIST_BITS) | number;
                if is_insert {
                    names.insert(hash);
                    plain.insert(hash);
                } else {
                    names.remove(hash);
                    plain.remove(&hash);
                }
                prop_assert_eq!(names.len(), plain.len());
            }
            for list in 0..4 {
                for number in 0..8 {
                    let hash = (list * 341) << (u64::BITS - LIST_BITS) | number;
                    prop_assert_eq!(names.contains(hash), plain.contains(&hash));
                }
            }
        }
    }

    #[test]
    fn a_full_list_grows_by_an_eighth_and_one_that_has_room_stays_where_it_is() {
        let mut names = NameSet::default();
        let insert = |hash| {
            names.insert(hash);
            names.lists[0].capacity()
        };
        let mut rooms: Vec<usize> = (0..100).map(insert).collect();
        rooms.dedup();
        let by_four = (1..=10).map(|times| times * 4);
        let by_an_eighth = [45, 50, 56, 63, 70, 78, 87, 97, 109];
        assert_eq!(rooms, by_four.chain(by_an_eighth).collect::<Vec<_>>());
    }

    /// Promise of memory: a side of a session has 64 MiB for everything.
    #[test]
    fn a_name_takes_little_more_than_its_hash() {
        let mut names = NameSet::default();
        let count = 200_000;
        for number in 0..count {
            let hash = blake3::hash(&u64::to_le_bytes(number));
            names.insert(u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("32 bytes")));
        }
        let room: usize = names.lists.iter().map(Vec::capacity).sum();
        assert!(room as u64 <= count * 9 / 8 + 4096, "{room} places for {count} names");
    }
}
