//! Times at which connections are to be looked at again: at most one for each.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Instant,
};

#[derive(Debug)]
pub struct Timers<Key> {
    /// Keys by when they are due; the number tells apart what is due at the same instant, in the
    /// order of setting.
    due: BTreeMap<(Instant, u64), Key>,
    places: HashMap<Key, (Instant, u64)>,
    set_count: u64,
}

impl<Key: Copy + Eq + Hash> Default for Timers<Key> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), places: HashMap::new(), set_count: 0 }
    }
}

impl<Key: Copy + Eq + Hash> Timers<Key> {
    pub fn set(&mut self, key: Key, at: Instant) {
        self.clear(key);
        self.set_count += 1;
        let place = (at, self.set_count);
        self.due.insert(place, key);
        self.places.insert(key, place);
    }

    pub fn clear(&mut self, key: Key) {
        if let Some(place) = self.places.remove(&key) {
            self.due.remove(&place);
        }
    }

    pub fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Takes out the earliest key that is due by `now`; it is not set any longer.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let key = entry.remove();
        self.places.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_earliest_comes_first_and_a_new_time_takes_the_place_of_the_old() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        for (key, ms) in [(1, 30), (2, 10), (3, 10), (1, 5), (4, 20)] {
            timers.set(key, at(ms));
        }
        timers.clear(4);
        timers.clear(9);
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.pop(at(4)), None);
        let due: Vec<i32> = std::iter::from_fn(|| timers.pop(at(10))).collect();
        assert_eq!(due, [1, 2, 3]);
        assert_eq!((timers.next(), timers.places.len()), (None, 0));
    }
}
