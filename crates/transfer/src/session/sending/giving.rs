//! Extent of what a receiver gets by its rights: files, or no more than their listing.

use crate::{
    rights::{self, Right},
    state::Grant,
};
use haul_protocol::message::{self, Answer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    Files,
    /// Names, sizes and times: whatever the receiver answers, no file is read for it.
    Listing,
}

impl Giving {
    /// Decides what the receiver gets. A dry run that needs the right to list only gets no more
    /// than a listing, if the receiver has no other right, or a token for one transfer, as a
    /// listing does not use it up.
    #[must_use]
    pub fn to(grant: &Grant, open: &message::Open) -> Self {
        let may_have_files = grant.rights.allows(Right::Read) && !grant.single_use;
        if rights::lists_only(open) && !may_have_files { Self::Listing } else { Self::Files }
    }

    pub(super) fn allows(self, answer: &message::FileAnswer) -> bool {
        self == Self::Files || !matches!(answer.answer, Answer::Need(_) | Answer::Compare(_))
    }
}
