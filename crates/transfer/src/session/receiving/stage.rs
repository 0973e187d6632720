//! Trait of a receiving role's stages, each of which has one concern beside the moving of bytes.
//!
//! The role tells every stage, in [one order](super::stages_in_order), of each offer and of how it
//! was settled; they have their say before the goodbye too.

use super::context::Context;
use crate::{content::FileContent, file_status::FileStatus, name::Name, session::growth::growth};
use haul_protocol::{
    FileId,
    message::{Fault, FileOffer, Growth},
};
use std::{sync::Arc, time::Instant};

/// A file of which nothing more comes in this session; of one that grows, perhaps a round.
pub(super) struct Settled {
    pub file: FileId,
    pub offer: Arc<FileOffer>,
    /// The file's name here, where that is not the one offered.
    pub stored_as: Option<Name>,
    pub status: FileStatus,
    pub fault: Option<Fault>,
    /// The content's digest by spans, as far as it came, for the manifest.
    pub content: Option<FileContent>,
}

impl Settled {
    pub fn has_failed(&self) -> bool {
        self.status == FileStatus::Failed
    }

    /// Whether this is a round: as the file is now it is there, and its end will tell whether it
    /// stays so.
    pub fn is_round(&self) -> bool {
        growth(&self.offer) == Some(Growth::Growing) && self.status == FileStatus::Skipped
    }
}

/// One concern of a receiving role, told of every offer.
pub(super) trait Stage {
    /// Notes that a file was offered.
    fn offered(&mut self, _offer: &FileOffer, _context: &mut Context<'_>) {}

    /// Acts on a file that is settled.
    fn settled(&mut self, _settled: &mut Settled, _context: &mut Context<'_>) {}

    /// Does what is due by now, or what a thread of the stage has brought.
    fn tick(&mut self, _now: Instant, _context: &mut Context<'_>) {}

    /// Does what is left once no file is open any more. True once that is done.
    fn finish(&mut self, _context: &mut Context<'_>) -> bool {
        true
    }

    /// Ends the threads of the stage.
    fn stop(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_of_a_file_that_grows_is_a_round() {
        for (growth, status, is_round) in [
            (Growth::Growing, FileStatus::Skipped, true),
            (Growth::Growing, FileStatus::Failed, false),
            (Growth::Grown, FileStatus::Skipped, false),
            (Growth::NotGrowing, FileStatus::Skipped, false),
        ] {
            let has_failed = status == FileStatus::Failed;
            let settled = Settled {
                file: FileId(0),
                offer: FileOffer { growth, ..FileOffer::default() }.into(),
                stored_as: None,
                status,
                fault: None,
                content: None,
            };
            assert_eq!(settled.is_round(), is_round, "{growth:?}");
            assert_eq!(settled.has_failed(), has_failed);
        }
    }
}
