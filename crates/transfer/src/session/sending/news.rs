//! Memory of the faults that a watch has told, so that each is told once.
//!
//! A watch looks at the same sources again and again.

use haul_protocol::{file_life::is_passing, message::Fault};
use std::collections::HashSet;

/// The most names that are remembered; beyond that all of them are told once more.
const TOLD_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct News {
    told: HashSet<Vec<u8>>,
}

impl News {
    /// Whether a fault is to be told. A watch does not tell of a source that changes or goes away.
    pub fn is_news(&mut self, fault: &Fault) -> bool {
        if is_passing(fault) {
            return false;
        }
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(fault.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::{FaultCode, Side};

    #[test]
    fn a_fault_is_told_once_a_name_and_a_change_never() {
        let mut news = News::default();
        let refused =
            |name: &[u8]| Fault::new(FaultCode::NameRefused, Side::Source, "has no name").at(name);
        assert!(news.is_news(&refused(b"a")) && news.is_news(&refused(b"b")));
        assert!(!news.is_news(&refused(b"a")));
        let changed = Fault::new(FaultCode::SourceChanged, Side::Source, "changed").at(b"c");
        assert!(!news.is_news(&changed));
    }
}
