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
