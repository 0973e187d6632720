//! Map of values that each end at a time of their own.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Instant,
};

/// Numbered values, each until a time of its own. What is over costs a look at it alone, however
/// many there are.
#[derive(Debug)]
pub(super) struct Timed<V> {
    values: HashMap<u64, (Instant, V)>,
    /// Ends of all values, those that were taken out before among them.
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl<V> Default for Timed<V> {
    fn default() -> Self {
        Self { values: HashMap::default(), ends: BinaryHeap::default() }
    }
}

impl<V> Timed<V> {
    pub fn insert(&mut self, number: u64, until: Instant, value: V) {
        self.values.insert(number, (until, value));
        self.ends.push(Reverse((until, number)));
    }

    pub fn remove(&mut self, number: u64) -> Option<(Instant, V)> {
        self.values.remove(&number)
    }

    /// Takes out a value that is over, if there is one.
    pub fn take_over(&mut self, now: Instant) -> Option<V> {
        while self.ends.peek().is_some_and(|Reverse((until, _))| *until <= now) {
            let Reverse((until, number)) = self.ends.pop()?;
            if self.values.get(&number).is_some_and(|(own, _)| *own == until) {
                return self.values.remove(&number).map(|(_, value)| value);
            }
        }
        None
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|(_, value)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_is_taken_once_when_it_is_over() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut timed = Timed::default();
        for (number, s) in [(1, 5), (2, 3), (3, 9), (4, 4)] {
            timed.insert(number, at(s), number);
        }
        assert_eq!(timed.take_over(at(2)), None);
        // Taken out, and put in again for longer.
        assert_eq!(timed.remove(4), Some((at(4), 4)));
        timed.insert(4, at(7), 40);
        assert_eq!(timed.remove(3), Some((at(9), 3)));
        let mut over = |now| std::iter::from_fn(|| timed.take_over(now)).collect::<Vec<_>>();
        assert_eq!(over(at(6)), [2, 1]);
        assert_eq!(over(at(60)), [40]);
        assert!(timed.is_empty() && timed.remove(3).is_none());
    }
}
