//! Settling of files that are durable, given up, or refused by the machine.
//!
//! It makes the counts, and tells the user.

use super::{Receiving, stage::Settled};
use crate::{
    events::{Event, FileEnded},
    file_status::FileStatus,
    locks::lock,
    problem::Problem,
    session::{growth::growth, receiving::committer::Committed},
};
use haul_protocol::{
    FileId,
    file_life::is_passing,
    message::{Fault, FaultCode, FileKind, FileOffer},
};

/// Files that the committer is through with which are taken in one turn: what is said of them goes
/// to the sender, and takes no memory here, before the next ones are.
const COMMITTED_A_TURN: usize = 512;

impl Receiving<'_> {
    /// Takes files that the committer has made durable, or could not.
    pub(super) fn handle_commits(&mut self) {
        let context = &mut self.context;
        let (committed, has_more) = context.shared.committer.take_results(COMMITTED_A_TURN);
        if has_more {
            context.shared.streams.wake();
        }
        for committed in committed {
            match committed {
                Committed::Done(file) => {
                    if !self.stages.rounds.is_settled(file, context) {
                        lock(&context.shared.targets).remove(&file);
                        context.settle(file, FileStatus::Done, None);
                    }
                    lock(&context.shared.machine).committed(file, Ok(()));
                }
                Committed::Failed(file, fault) => context.fail(file, fault),
                Committed::Awaits(file, earlier) => {
                    self.stages.rechecking.begin_earlier(file, earlier, context);
                }
            }
        }
    }

    /// Fails a second file of a name, which the machine has refused: the one that came first
    /// stands.
    pub(super) fn name_taken(&mut self, offer: &FileOffer, fault: &Fault) {
        let context = &mut self.context;
        context.tally.failed(offer);
        context.tally.first_problem.get_or_insert_with(|| Problem::of(fault));
        context.tell(Event::Error(Problem::of_file(fault, &offer.name)));
        context.tell(Event::File(FileEnded::new(offer.name.clone(), FileStatus::Failed, 0)));
    }

    /// Settles a file that the sender gave up, or that cannot be had.
    pub(super) fn given_up(&mut self, file: FileId, fault: Fault) {
        let context = &mut self.context;
        let grows = context.offer(file).is_some_and(|offer| growth(offer).is_some());
        let changed = fault.code == FaultCode::SourceChanged;
        // Of a source that changed nothing is of use any more, unless that is what it shall do.
        context.drop_target(file, grows || !changed);
        let watches = context.place.file_options().recording.watch;
        let comes_later = !grows && watches && is_passing(&fault);
        let goes_on = comes_later || grows && changed;
        if !goes_on {
            return context.settle(file, FileStatus::Failed, Some(fault));
        }
        let Some(open) = context.open.remove(&file) else { return };
        if grows {
            self.stages.rounds.given_up(&open.offer.name);
        } else {
            // It is sent as it is later, or not at all.
            context.tally.forget_offer(&open.offer);
        }
    }

    /// Tells the stages of the files that are settled, counts them, and tells the user.
    pub(super) fn take_settled(&mut self) {
        while let Some(mut settled) = self.context.settled.pop_front() {
            for stage in self.stages.in_order() {
                stage.settled(&mut settled, &mut self.context);
            }
            if !settled.is_round() {
                self.count(settled);
            }
        }
    }

    fn count(&mut self, settled: Settled) {
        let Settled { offer, stored_as, status, fault, .. } = settled;
        let context = &mut self.context;
        match status {
            FileStatus::Done => context.tally.done(&offer),
            FileStatus::Skipped => context.tally.skipped(&offer),
            FileStatus::Failed => context.tally.failed(&offer),
            FileStatus::WouldCopy | FileStatus::WouldReplace => {
                context.tally.plan(&offer, status == FileStatus::WouldReplace);
            }
            FileStatus::Removed | FileStatus::WouldRemove => {}
        }
        if let Some(fault) = fault {
            context.tell(Event::Error(Problem::of_file(&fault, &offer.name)));
        }
        let is_directory = offer.kind == FileKind::Directory;
        let ended = FileEnded::new(offer.name.clone(), status, offer.size_bytes);
        context.tell(Event::File(FileEnded { stored_as, is_directory, ..ended }));
    }
}
