//! Settling of offers: what an outcome means for the file, the stages and the counts.

use super::{Sending, stage::Settled};
use crate::{
    events::{Event, FileEnded},
    file_status::FileStatus,
    locks::lock,
    name::Name,
    problem::Problem,
    session::sending::send_spans::Source,
    storage::source::SourceEntry,
};
use haul_protocol::{
    FileId,
    file_life::{EndResult, NextStep, OfferFacts, next_step},
    message::{Fault, FileKind, Growth},
    sender::FileOutcome,
};
use std::{sync::Arc, time::Instant};

/// Outcome of an offer, as the receiver told it.
pub(super) struct Told {
    pub file: FileId,
    pub outcome: FileOutcome,
    /// The source had failed by the time of the outcome.
    pub source_failed: bool,
}

impl Sending<'_> {
    /// Settles an offer of whose outcome the receiver has told.
    pub(super) fn settled(&mut self, told: Told, now: Instant) {
        let file = told.file;
        let source = lock(&self.context.shared.sources).remove(&file);
        let Some(Source { entry, stored_as, .. }) = source else { return };
        self.context.shared.sent.forget(file);
        let entry = Arc::unwrap_or_clone(entry);
        self.offering.may_return -=
            usize::from(self.context.facts(&entry, false).may_be_offered_again());
        self.settle((entry, stored_as), told, true, now);
    }

    /// Fails a file on this side whose offer is settled already.
    pub(super) fn failed_here(&mut self, failed: (FileId, SourceEntry, Fault), now: Instant) {
        let (file, entry, fault) = failed;
        let outcome = FileOutcome::Failed(fault);
        self.settle((entry, None), Told { file, outcome, source_failed: true }, false, now);
    }

    /// Takes the next step of a file. `is_told`: the receiver said how it came out.
    fn settle(
        &mut self,
        (entry, stored_as): (SourceEntry, Option<Name>),
        Told { file, outcome, source_failed }: Told,
        is_told: bool,
        now: Instant,
    ) {
        let following = self.stages.following.as_ref();
        let is_followed = following.is_some_and(|following| following.follows(file));
        let facts = self.context.facts(&entry, is_followed);
        let step = next_step(outcome, &OfferFacts { source_failed, ..facts });
        let content = self.context.shared.contents.take(file);
        let mut settled = Settled { file, entry, step, content, stored_as, is_told, now };
        for stage in self.stages.in_order() {
            stage.settled(&mut settled, &mut self.context);
        }
        if is_told {
            self.count(settled);
        } else if let NextStep::Ends(end) = settled.step
            && let EndResult::Failed(fault) = end.result
        {
            self.context.not_offered(fault);
        }
    }

    /// Counts the outcome of an offer, and tells of a file that has ended.
    fn count(&mut self, settled: Settled) {
        let Settled { entry, step, stored_as, .. } = settled;
        let (context, offer) = (&mut self.context, entry.offer);
        let end = match step {
            NextStep::Ends(end) => end,
            NextStep::Refused(error) => return context.refuse(error.to_fault()),
            NextStep::NextRound | NextStep::ChangedAgain => return,
            NextStep::Compare(_) if offer.growth != Growth::NotGrowing => return,
            NextStep::Compare(_) | NextStep::OfferAsFile | NextStep::ComesLater(_) => {
                return context.tally.forget_offer(&offer);
            }
        };
        let is_directory = offer.kind == FileKind::Directory;
        let ended = FileEnded::new(offer.name.clone(), FileStatus::Done, offer.size_bytes);
        let mut ended = FileEnded { stored_as, is_directory, ..ended };
        match end.result {
            EndResult::Done => context.tally.done(&offer),
            EndResult::Skipped => {
                ended.status = FileStatus::Skipped;
                context.tally.skipped(&offer);
            }
            EndResult::Planned(plan) => {
                context.tally.plan(&offer, plan.replaces);
                ended.status = FileStatus::planned(plan.replaces);
                ended.stored_as = Some(Name(plan.stored_as)).filter(|name| !name.0.is_empty());
            }
            EndResult::Failed(fault) => {
                ended.status = FileStatus::Failed;
                context.tally.failed(&offer);
                context.tell(Event::Error(Problem::of_file(&fault, &offer.name)));
            }
        }
        context.tell(Event::File(ended));
    }
}
