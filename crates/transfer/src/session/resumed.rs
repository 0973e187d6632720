//! Bytes that earlier runs left of the files that are not settled.
//!
//! Those of a file that fails count for nothing, as they have no part in what is in place.

use crate::session::tally::Tally;
use haul_protocol::FileId;
use std::collections::BTreeMap;

/// Bytes taken up from earlier runs, and those of holes, by file; of files that have any.
#[derive(Debug, Default)]
pub struct TakenUpBytes {
    files: BTreeMap<FileId, (u64, u64)>,
}

impl TakenUpBytes {
    /// Adds bytes taken up and holes, and keeps them by `file`, unless they are counted elsewhere.
    pub fn add(&mut self, tally: &mut Tally, file: Option<FileId>, resumed: u64, holes: u64) {
        tally.resumed_bytes += resumed;
        tally.hole_bytes += holes;
        if let Some(file) = file.filter(|_| resumed + holes > 0) {
            let of_file = self.files.entry(file).or_default();
            *of_file = (of_file.0 + resumed, of_file.1 + holes);
        }
    }

    /// Takes off bytes of an earlier run that are not there any more.
    pub fn lost(&mut self, tally: &mut Tally, file: FileId, bytes: u64) {
        tally.resumed_bytes = tally.resumed_bytes.saturating_sub(bytes);
        if let Some((resumed, _)) = self.files.get_mut(&file) {
            *resumed = resumed.saturating_sub(bytes);
        }
    }

    /// Ends the account of a file; if it failed, its bytes are taken off.
    pub fn file_ended(&mut self, tally: &mut Tally, file: FileId, failed: bool) {
        let Some((resumed, holes)) = self.files.remove(&file).filter(|_| failed) else { return };
        tally.resumed_bytes = tally.resumed_bytes.saturating_sub(resumed);
        tally.hole_bytes = tally.hole_bytes.saturating_sub(holes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_of_a_file_that_fails_is_not_there_of_those_in_place() {
        let (mut tally, mut taken_up) = (Tally::default(), TakenUpBytes::default());
        taken_up.add(&mut tally, Some(FileId(1)), 100, 20);
        taken_up.add(&mut tally, Some(FileId(2)), 7, 0);
        taken_up.lost(&mut tally, FileId(1), 30);
        assert_eq!((tally.resumed_bytes, tally.hole_bytes), (77, 20));
        taken_up.file_ended(&mut tally, FileId(1), true);
        taken_up.file_ended(&mut tally, FileId(2), false);
        taken_up.file_ended(&mut tally, FileId(2), true);
        assert_eq!((tally.resumed_bytes, tally.hole_bytes), (7, 0));
    }

    #[test]
    fn a_file_is_kept_as_long_as_it_is_open_and_has_any() {
        for (resumed, holes) in [(7, 0), (0, 7), (3, 4)] {
            let (mut tally, mut taken_up) = (Tally::default(), TakenUpBytes::default());
            taken_up.add(&mut tally, Some(FileId(1)), resumed, holes);
            taken_up.add(&mut tally, Some(FileId(1)), resumed, holes);
            taken_up.add(&mut tally, None, 100, 200);
            taken_up.add(&mut tally, Some(FileId(2)), 0, 0);
            assert_eq!(taken_up.files.len(), 1, "of the others nothing can be taken off");
            let counted = (tally.resumed_bytes, tally.hole_bytes);
            assert_eq!(counted, (100 + 2 * resumed, 200 + 2 * holes));
            taken_up.file_ended(&mut tally, FileId(1), true);
            assert_eq!((tally.resumed_bytes, tally.hole_bytes), (100, 200));
            assert!(taken_up.files.is_empty());
        }
    }
}
