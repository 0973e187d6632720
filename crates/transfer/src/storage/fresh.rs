//! Names that a session has made or replaced so far, or would have in a dry run.

use std::collections::BTreeSet;

/// Most bytes of the names of fresh directories; any others are looked into.
const FRESH_BYTES_MAX: usize = 1 << 20;

/// Directories that a session made: what is offered in them is not there.
#[derive(Debug, Default)]
pub struct Fresh {
    names: BTreeSet<Vec<u8>>,
    /// Files that a dry run would replace.
    replaced: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Fresh {
    /// Notes a directory that was made, or would be.
    pub(super) fn add(&mut self, name: &[u8]) {
        if self.bytes < FRESH_BYTES_MAX && self.names.insert(name.to_vec()) {
            self.bytes += name.len() + size_of::<Vec<u8>>();
        }
    }

    pub(super) fn holds(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }

    pub(super) fn will_replace(&mut self, name: &[u8]) {
        if self.bytes < FRESH_BYTES_MAX && self.replaced.insert(name.to_vec()) {
            self.bytes += name.len() + size_of::<Vec<u8>>();
        }
    }

    pub(super) fn is_replaced(&self, name: &[u8]) -> bool {
        self.replaced.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_noted_up_to_a_bound_and_once() {
        let mut fresh = Fresh::default();
        fresh.add(b"d");
        fresh.will_replace(b"f");
        assert!(fresh.holds(b"d") && !fresh.holds(b"f"));
        assert!(fresh.is_replaced(b"f") && !fresh.is_replaced(b"d"));
        let bytes = 2 * (1 + size_of::<Vec<u8>>());
        assert_eq!(fresh.bytes, bytes);
        fresh.add(b"d");
        fresh.will_replace(b"f");
        assert_eq!(fresh.bytes, bytes);
        // The last one may go beyond the bound, and no other.
        fresh.add(&vec![b'n'; FRESH_BYTES_MAX - bytes - size_of::<Vec<u8>>() - 1]);
        assert_eq!(fresh.bytes, FRESH_BYTES_MAX - 1);
        fresh.add(b"last");
        fresh.add(b"later");
        fresh.will_replace(b"later");
        assert!(fresh.holds(b"last") && !fresh.holds(b"later") && !fresh.is_replaced(b"later"));
        fresh.bytes = FRESH_BYTES_MAX;
        fresh.add(b"at the bound");
        fresh.will_replace(b"at the bound");
        assert!(!fresh.holds(b"at the bound") && !fresh.is_replaced(b"at the bound"));
    }
}
