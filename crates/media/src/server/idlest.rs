//! Finder of the connection that has waited longest for its next request.
//!
//! It needs no look at all of them: while the server is full, each new connection asks.

use std::{collections::VecDeque, time::Instant};

/// Number of entries above which those that are over are thrown out: at the earliest when there are
/// twice as many as were left the last time, so that it costs the same whatever stays.
const ENTRIES_MIN: usize = 64;

/// Connections by when they became idle; that one is idle no longer is found out when it is asked.
#[derive(Debug)]
pub(super) struct Idlest {
    entries: VecDeque<(usize, Instant)>,
    entries_max: usize,
}

impl Default for Idlest {
    fn default() -> Self {
        Self { entries: VecDeque::new(), entries_max: ENTRIES_MIN }
    }
}

impl Idlest {
    /// Adds connection `key`, idle since `since`, which is no earlier than any before it. `is_idle`
    /// says whether one still is.
    pub fn push(&mut self, key: usize, since: Instant, is_idle: impl Fn(usize, Instant) -> bool) {
        // Of requests that came together, all are answered at the same time.
        if self.entries.back() == Some(&(key, since)) {
            return;
        }
        if self.entries.len() >= self.entries_max {
            self.entries.retain(|(key, since)| is_idle(*key, *since));
            self.entries_max = (2 * self.entries.len()).max(ENTRIES_MIN);
        }
        self.entries.push_back((key, since));
    }

    /// Removes and returns the idlest connection; it is not known here any longer.
    pub fn pop(&mut self, is_idle: impl Fn(usize, Instant) -> bool) -> Option<usize> {
        while let Some((key, since)) = self.entries.pop_front() {
            if is_idle(key, since) {
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, time::Duration};

    #[test]
    fn the_one_that_waits_longest_is_found_and_the_others_are_forgotten() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut idlest = Idlest::default();
        let mut idle: HashMap<usize, Instant> = HashMap::new();
        // Ten connections, each of which asked a thousand times.
        for round in 0..1_000 {
            for key in 0..10 {
                let since = at(round * 10 + key as u64);
                idle.insert(key, since);
                idlest.push(key, since, |key, since| idle.get(&key) == Some(&since));
                idlest.push(key, since, |_, _| panic!("it is known"));
            }
        }
        assert!(idlest.entries.len() <= ENTRIES_MIN, "{}", idlest.entries.len());
        // The first works now, and the third has asked again.
        idle.remove(&0);
        idle.insert(2, at(20_000));
        idlest.push(2, at(20_000), |key, since| idle.get(&key) == Some(&since));
        let mut order = Vec::new();
        while let Some(key) = idlest.pop(|key, since| idle.get(&key) == Some(&since)) {
            order.push(key);
        }
        assert_eq!(order, [1, 3, 4, 5, 6, 7, 8, 9, 2]);
    }
}
