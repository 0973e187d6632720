//! Files that are not taken: the fault goes to both sides, and the rest goes on.

use super::Receiving;
use crate::{
    events::{Event, FileEnded},
    file_status::FileStatus,
    problem::Problem,
    storage::target_place::is_in_the_way,
};
use haul_protocol::{
    FileId,
    receiver::Answer,
    wire::{Fault, FaultCode, FileOffer},
};

impl Receiving<'_> {
    /// The machine has refused it: the file that came first under its name stands.
    pub(super) fn name_taken(&mut self, offer: &FileOffer, fault: &Fault) {
        self.tally.failed(offer);
        self.tally.first_problem.get_or_insert_with(|| fault.into());
        (self.events)(Event::Error(Problem::of_file(fault, &offer.name)));
        (self.events)(Event::File(FileEnded::new(offer.name.clone(), FileStatus::Failed, 0)));
    }

    pub(super) fn refuse(&mut self, file: FileId, fault: Fault) {
        if let (Some(removing), Some(offer)) = (&mut self.removing, self.offers.get(&file))
            && fault.code() == FaultCode::NameRefused
            && is_in_the_way(&self.place, offer)
        {
            removing.gives_way(&offer.name);
        }
        self.settled(file, FileStatus::Failed, Some(&fault));
        self.say(file, Answer::Fault(fault));
    }
}
