//! Sources that a move has removed in an earlier session of the same run: nobody misses them.

use crate::source_name::name_of_source;
use haul_protocol::message::{Fault, FaultCode};
use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

/// Files that earlier sessions of a move left at the target, by hashes of their names.
#[derive(Clone, Debug, Default)]
pub struct MovedEarlier {
    pub hashes: RandomState,
    pub names: HashSet<u64>,
    /// Paths of the sources, as the user named them.
    pub sources: Vec<Vec<u8>>,
}

impl MovedEarlier {
    /// Whether a fault says no more than that a source is not there, and it was moved.
    #[must_use]
    pub fn explains(&self, fault: &Fault) -> bool {
        if self.names.is_empty() || fault.code != FaultCode::NotFound {
            return false;
        }
        // What is below a source has its own name in a fault, the source that of its path.
        let is_source = self.sources.contains(&fault.path);
        let name = if is_source { name_of_source(&fault.path) } else { Some(&fault.path[..]) };
        name.is_some_and(|name| self.has(name))
    }

    /// Whether a file of this name was moved.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.names.contains(&self.hashes.hash_one(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::Side;

    #[test]
    fn only_what_was_moved_is_missed_by_nobody() {
        let hashes = RandomState::new();
        let names = ["small", "tree/leaf", "tree"].map(|name| hashes.hash_one(name.as_bytes()));
        let sources = ["/data/small", "tree", "here/"].map(|path| path.as_bytes().to_vec());
        let moved = MovedEarlier { hashes, names: names.into(), sources: sources.into() };
        let fault = |code, path: &str| Fault::new(code, Side::Source, "is not there").at(path);
        for path in ["/data/small", "tree", "tree/leaf"] {
            assert!(moved.explains(&fault(FaultCode::NotFound, path)), "{path}");
            assert!(!moved.explains(&fault(FaultCode::NotPermitted, path)), "{path}");
        }
        for path in ["/other/small", "here/", "tree/other", "leaf", ""] {
            assert!(!moved.explains(&fault(FaultCode::NotFound, path)), "{path}");
        }
        assert!(!MovedEarlier::default().explains(&fault(FaultCode::NotFound, "small")));
    }
}
