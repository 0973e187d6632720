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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Rights;
    use haul_protocol::{
        FileId,
        message::{Compare, Direction, Fault, FileAnswer, FileOptions, Need, Open, Plan},
    };

    #[test]
    fn a_listing_is_given_where_no_more_is_asked_for_and_no_more_may_be_had_for_good() {
        let open = |dry_run| {
            let file_options = Some(FileOptions { dry_run, ..FileOptions::default() });
            Open { direction: Direction::Pull, file_options, ..Open::default() }
        };
        for (read, single_use, dry_run, expected) in [
            (true, false, true, Giving::Files),
            (true, true, true, Giving::Listing),
            (false, false, true, Giving::Listing),
            (false, true, true, Giving::Listing),
            (false, false, false, Giving::Files),
            (true, true, false, Giving::Files),
        ] {
            let rights = Rights { read, write: false, list: true, delete: false };
            let grant = Grant { single_use, token_id: "id".into(), rights, root: "/".into() };
            let given = Giving::to(&grant, &open(dry_run));
            assert_eq!(given, expected, "read {read} single {single_use} dry {dry_run}");
        }
    }

    #[test]
    fn for_a_listing_no_file_is_read_whatever_is_answered() {
        for (answer, reads) in [
            (Answer::Need(Need::default()), true),
            (Answer::Compare(Compare::default()), true),
            (Answer::Skip, false),
            (Answer::Fault(Fault::default()), false),
            (Answer::Plan(Plan::default()), false),
        ] {
            let answer = FileAnswer { file: FileId(1), answer };
            assert!(Giving::Files.allows(&answer));
            assert_eq!(Giving::Listing.allows(&answer), !reads, "{answer:?}");
        }
    }
}
