//! Trait of a sending role's stages, each of which has one concern beside the moving of bytes.
//!
//! The role tells every stage, in [one order](super::stages_in_order), of each source that is met,
//! of each offer, and of how it was settled. What comes next to a file is not theirs to decide:
//! that is [`file_life`](haul_protocol::file_life)'s, and a stage does its part of it.

use super::context::Context;
use crate::{content::FileContent, name::Name, storage::source::SourceEntry};
use haul_protocol::{
    FileId,
    file_life::{EndResult, FileEnd, NextStep},
};
use std::time::Instant;

/// A source that the walk came to.
pub(super) struct Found {
    pub entry: Box<SourceEntry>,
    /// The source's writer has said that it is complete.
    pub is_complete: bool,
    pub now: Instant,
}

/// An offer that is out at the receiver.
pub(super) struct Offered<'a> {
    pub file: FileId,
    pub entry: &'a SourceEntry,
    /// The number that the same file was offered under before.
    pub before: Option<FileId>,
}

/// An offer whose outcome is known, and what comes next to its file.
pub(super) struct Settled {
    pub file: FileId,
    pub entry: SourceEntry,
    pub step: NextStep,
    /// The content's digest by spans, as far as it was sent, for the manifest.
    pub content: Option<FileContent>,
    /// The file's name at the receiver, where that is not the one of the offer.
    pub stored_as: Option<Name>,
    /// The receiver said how the offer came out; otherwise it failed on this side, after its offer
    /// was settled.
    pub is_told: bool,
    pub now: Instant,
}

impl Settled {
    /// The end of the file's life, if this settles it.
    pub fn end(&self) -> Option<&FileEnd> {
        match &self.step {
            NextStep::Ends(end) => Some(end),
            _ => None,
        }
    }

    pub fn has_failed(&self) -> bool {
        self.end().is_some_and(|end| matches!(end.result, EndResult::Failed(_)))
    }
}

/// One concern of a sending role, told of every source and offer.
pub(super) trait Stage {
    /// Takes a source that was met, and passes it on. `None`: the stage keeps it to have it offered
    /// later, or it is not sent.
    fn met(&mut self, found: Found, _context: &mut Context<'_>) -> Option<Found> {
        Some(found)
    }

    /// Notes that a source was offered.
    fn offered(&mut self, _offered: &Offered<'_>, _context: &mut Context<'_>) {}

    /// Acts on the outcome of an offer.
    fn settled(&mut self, _settled: &mut Settled, _context: &mut Context<'_>) {}

    /// Does what is due by now, or what a thread of the stage has brought.
    fn tick(&mut self, _now: Instant, _context: &mut Context<'_>) {}

    /// Whether the stage keeps sources that are yet to be offered.
    fn keeps_some(&self) -> bool {
        false
    }

    /// Whether the stage can keep no more: the walk waits.
    fn is_full(&self) -> bool {
        false
    }

    /// Ends the threads of the stage.
    fn stop(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file_options::FileOptions, session::sending::without_peer};
    use haul_protocol::message::Fault;

    /// A stage that does nothing.
    struct Idle;

    impl Stage for Idle {}

    fn entry() -> SourceEntry {
        use crate::storage::source::Location;
        let (offer, location, links) = (Default::default(), Location::Zero, 1);
        SourceEntry { offer, location, links, size_bytes: 0, is_moved: false }
    }

    #[test]
    fn a_stage_passes_on_what_it_meets_and_keeps_nothing_unless_it_says_so() {
        let mut hear = |_| {};
        let mut context = without_peer::begin(FileOptions::default(), &mut hear).context;
        let found = Found { entry: Box::new(entry()), is_complete: true, now: Instant::now() };
        let passed = Idle.met(found, &mut context);
        assert!(passed.is_some_and(|found| found.is_complete));
        assert!(!Idle.keeps_some() && !Idle.is_full());
    }

    #[test]
    fn only_an_end_settles_a_file_and_only_a_failure_fails_it() {
        let ends = |result| NextStep::Ends(FileEnd { result, frees_source: true });
        for (step, has_ended, has_failed) in [
            (ends(EndResult::Done), true, false),
            (ends(EndResult::Skipped), true, false),
            (ends(EndResult::Failed(Fault::default())), true, true),
            (NextStep::NextRound, false, false),
            (NextStep::ComesLater(Fault::default()), false, false),
        ] {
            let (file, content, stored_as, is_told) = (FileId(0), None, None, true);
            let (entry, now) = (entry(), Instant::now());
            let settled = Settled { file, entry, step, content, stored_as, is_told, now };
            assert_eq!(settled.end().is_some_and(|end| end.frees_source), has_ended);
            assert_eq!(settled.has_failed(), has_failed);
        }
    }
}
