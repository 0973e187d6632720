//! Rule of what happens next to a file, once the receiver has said how its offer came out.
//!
//! [`next_step`] is a pure function: whoever drives a [`Sender`](crate::Sender) asks it at each
//! [`Settled`](crate::SenderEvent::Settled), and does what it says. So the rule by which a source
//! is removed, or a file is offered once more, stands in one place, and a simulation reaches it.

use crate::{
    ProtocolError,
    message::{Compare, Compared, Fault, FaultCode, FileKind, FileOffer, Growth, Plan, Side},
    sender::FileOutcome,
};

/// The sender's knowledge of an offer on which its next step depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferFacts {
    pub kind: FileKind,
    pub growth: Growth,
    /// The word that the offer brought of a file of the same size at the receiver.
    pub compared: Compared,
    /// The file is held open and sent while it is written.
    pub is_followed: bool,
    /// The source failed while the receiver's answer was on its way.
    pub source_failed: bool,
    pub file_options: LifeOptions,
}

/// The options of a transfer that decide how its files go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeOptions {
    /// A file of the same size at the receiver is compared by its content.
    pub compare_content: bool,
    /// A dry run: nothing is sent, and the receiver says what it would do.
    pub dry_run: bool,
    /// Sources are removed once they are durable at the receiver.
    pub move_sources: bool,
    /// The sources are looked at again and again: what changes is sent as it is later.
    pub watches: bool,
}

/// The step that follows an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// A round of a file that is followed is durable, and others follow.
    NextRound,
    /// A file that is followed changed while its last bytes were sent: it is looked at again.
    ChangedAgain,
    /// The source's content is compared with the receiver's; another offer tells how that came out.
    Compare(Compare),
    /// The receiver cannot make the hard link: its content is offered.
    OfferAsFile,
    /// The source changed or went away, and a watch sends it as it is by then.
    ComesLater(Fault),
    /// The file's life in this session is over.
    Ends(FileEnd),
    /// No receiver may answer such an offer so: the session ends.
    Refused(ProtocolError),
}

/// The end of a file's life in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct FileEnd {
    pub result: EndResult,
    /// The source may be removed, in a move, or counts as removed in a dry run.
    pub frees_source: bool,
}

impl FileEnd {
    /// Whether the file is at the receiver, or would be after a dry run.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        !matches!(self.result, EndResult::Failed(_))
    }
}

/// Ways in which a file ends.
#[derive(Clone, Debug, PartialEq)]
pub enum EndResult {
    Done,
    Skipped,
    Planned(Plan),
    Failed(Fault),
}

impl OfferFacts {
    /// Gathers the facts of an offer.
    #[must_use]
    pub fn new(offer: &FileOffer, is_followed: bool, file_options: LifeOptions) -> Self {
        let (kind, growth, compared) = (offer.kind, offer.growth, offer.compared);
        Self { kind, growth, compared, is_followed, source_failed: false, file_options }
    }

    /// Whether the receiver may ask for the content's digest to be compared.
    #[must_use]
    pub fn may_be_compared(&self) -> bool {
        let is_wanted = self.file_options.compare_content || self.growth == Growth::Grown;
        self.kind == FileKind::Regular && is_wanted && self.compared == Compared::NotCompared
    }

    /// Whether another offer of the same file may follow the receiver's answer. While such an offer
    /// is open, the offers have no end.
    #[must_use]
    pub fn may_be_offered_again(&self) -> bool {
        self.kind == FileKind::HardLink || self.may_be_compared()
    }

    fn is_round(&self) -> bool {
        self.is_followed && self.growth == Growth::Growing
    }

    /// Whether the receiver has the very bytes of the source, as far as anybody can know.
    fn frees_source(&self, result: &EndResult) -> bool {
        let is_there = match result {
            EndResult::Done | EndResult::Planned(_) => true,
            // By size and time alone a file is taken for the same: no source is removed for that.
            EndResult::Skipped => {
                self.kind != FileKind::Regular || self.compared == Compared::SameContent
            }
            EndResult::Failed(_) => false,
        };
        self.file_options.move_sources && is_there && !self.source_failed
    }
}

/// Finds the step that follows `outcome` of an offer.
#[must_use]
pub fn next_step(outcome: FileOutcome, offer: &OfferFacts) -> NextStep {
    let result = match outcome {
        FileOutcome::Failed(fault) if offer.is_followed && is_source_changed(&fault) => {
            return NextStep::ChangedAgain;
        }
        FileOutcome::Done | FileOutcome::Skipped if offer.is_round() => {
            return NextStep::NextRound;
        }
        FileOutcome::Compare(compare) if offer.may_be_compared() => {
            return NextStep::Compare(compare);
        }
        FileOutcome::Compare(_) => return refused("a file was to be compared that may not be"),
        FileOutcome::Planned(_) if !offer.file_options.dry_run || offer.is_followed => {
            return refused("a plan for a file that is no part of a dry run");
        }
        FileOutcome::Failed(fault)
            if offer.kind == FileKind::HardLink && fault.code == FaultCode::KindUnsupported =>
        {
            return NextStep::OfferAsFile;
        }
        // Of a file that is followed, what was written is lost.
        FileOutcome::Failed(fault)
            if offer.file_options.watches
                && offer.growth == Growth::NotGrowing
                && is_passing(&fault) =>
        {
            return NextStep::ComesLater(fault);
        }
        FileOutcome::Failed(fault) => EndResult::Failed(fault),
        FileOutcome::Done => EndResult::Done,
        FileOutcome::Skipped => EndResult::Skipped,
        FileOutcome::Planned(plan) => EndResult::Planned(plan),
    };
    let frees_source = offer.frees_source(&result);
    NextStep::Ends(FileEnd { result, frees_source })
}

fn refused(what: &str) -> NextStep {
    NextStep::Refused(ProtocolError::new(what))
}

/// Whether a fault says that the source is not what was offered any more.
#[must_use]
pub fn is_source_changed(fault: &Fault) -> bool {
    fault.code == FaultCode::SourceChanged && fault.side == Side::Source
}

/// Whether a fault passes in a watch: its source changed, or is gone.
#[must_use]
pub fn is_passing(fault: &Fault) -> bool {
    let codes = [FaultCode::SourceChanged, FaultCode::NotFound];
    fault.side == Side::Source && codes.contains(&fault.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [FileKind; 4] =
        [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::HardLink];
    const GROWTHS: [Growth; 3] = [Growth::NotGrowing, Growth::Growing, Growth::Grown];
    const COMPARED: [Compared; 3] =
        [Compared::NotCompared, Compared::SameContent, Compared::OtherContent];

    fn outcomes() -> std::vec::Vec<FileOutcome> {
        let fault = |code, side| FileOutcome::Failed(Fault::new(code, side, "it failed"));
        std::vec![
            FileOutcome::Done,
            FileOutcome::Skipped,
            FileOutcome::Compare(Compare::default()),
            FileOutcome::Planned(Plan::default()),
            fault(FaultCode::SourceChanged, Side::Source),
            fault(FaultCode::SourceChanged, Side::Target),
            fault(FaultCode::NotFound, Side::Source),
            fault(FaultCode::KindUnsupported, Side::Target),
            fault(FaultCode::NoSpace, Side::Target),
        ]
    }

    /// Visits every combination of facts and outcome, with the step that follows.
    fn each(mut look: impl FnMut(&OfferFacts, &FileOutcome, &NextStep)) {
        let file_options = (0..16).map(|bits| LifeOptions {
            compare_content: bits & 1 > 0,
            dry_run: bits & 2 > 0,
            move_sources: bits & 4 > 0,
            watches: bits & 8 > 0,
        });
        for file_options in file_options {
            for (kind, growth, compared) in KINDS.iter().flat_map(|kind| {
                let of_growth = move |growth| COMPARED.map(|compared| (*kind, growth, compared));
                GROWTHS.into_iter().flat_map(of_growth)
            }) {
                for bits in 0..4 {
                    let (is_followed, source_failed) = (bits & 1 > 0, bits & 2 > 0);
                    let offer = OfferFacts {
                        kind,
                        growth,
                        compared,
                        is_followed,
                        source_failed,
                        file_options,
                    };
                    for outcome in outcomes() {
                        look(&offer, &outcome, &next_step(outcome.clone(), &offer));
                    }
                }
            }
        }
    }

    #[test]
    fn a_source_is_freed_only_in_a_move_and_where_its_very_bytes_are_there() {
        let mut freed = 0;
        each(|offer, outcome, step| {
            let NextStep::Ends(FileEnd { frees_source: true, result }) = step else { return };
            freed += 1;
            assert!(offer.file_options.move_sources && !offer.source_failed, "{offer:?}");
            assert!(!offer.is_followed || offer.growth != Growth::Growing, "{offer:?}");
            match outcome {
                FileOutcome::Done => assert_eq!(*result, EndResult::Done),
                FileOutcome::Planned(_) => assert!(offer.file_options.dry_run, "{offer:?}"),
                FileOutcome::Skipped => assert!(
                    offer.kind != FileKind::Regular || offer.compared == Compared::SameContent,
                    "{offer:?}"
                ),
                other => panic!("{other:?} frees a source of {offer:?}"),
            }
        });
        assert!(freed > 0);
    }

    #[test]
    fn another_offer_follows_only_one_that_keeps_the_offers_open() {
        let mut again = 0;
        each(|offer, outcome, step| {
            if matches!(step, NextStep::Compare(_) | NextStep::OfferAsFile) {
                again += 1;
                assert!(offer.may_be_offered_again(), "{offer:?} {outcome:?}");
            }
        });
        assert!(again > 0);
    }

    #[test]
    fn a_file_is_compared_once_at_most() {
        each(|offer, _, step| {
            let NextStep::Compare(_) = step else { return };
            for compared in [Compared::SameContent, Compared::OtherContent] {
                let after = OfferFacts { compared, ..*offer };
                let again = next_step(FileOutcome::Compare(Compare::default()), &after);
                assert!(matches!(again, NextStep::Refused(_)), "{after:?}");
            }
        });
    }

    #[test]
    fn what_only_a_dry_run_has_is_refused_elsewhere() {
        each(|offer, outcome, step| {
            let is_plan = matches!(outcome, FileOutcome::Planned(_));
            if is_plan && !offer.file_options.dry_run {
                assert!(matches!(step, NextStep::Refused(_)), "{offer:?}");
            }
        });
    }

    #[test]
    fn rounds_go_on_and_whole_files_end() {
        each(|offer, outcome, step| {
            let is_settled = matches!(outcome, FileOutcome::Done | FileOutcome::Skipped);
            let is_round = offer.is_followed && offer.growth == Growth::Growing;
            if is_settled {
                assert_eq!(*step == NextStep::NextRound, is_round, "{offer:?}");
            }
            if !offer.is_followed {
                let goes_on = matches!(step, NextStep::NextRound | NextStep::ChangedAgain);
                assert!(!goes_on, "{offer:?}");
            }
            if matches!(step, NextStep::ComesLater(_)) {
                assert!(
                    offer.file_options.watches && offer.growth == Growth::NotGrowing,
                    "{offer:?}"
                );
            }
        });
    }

    #[test]
    fn in_a_move_every_source_goes_whose_bytes_are_there_and_no_other() {
        each(|offer, _, step| {
            let NextStep::Ends(FileEnd { frees_source, result }) = step else { return };
            let is_same =
                offer.kind != FileKind::Regular || offer.compared == Compared::SameContent;
            let is_there = match result {
                EndResult::Done | EndResult::Planned(_) => true,
                EndResult::Skipped => is_same,
                EndResult::Failed(_) => false,
            };
            let goes = offer.file_options.move_sources && !offer.source_failed && is_there;
            assert_eq!(*frees_source, goes, "{offer:?} {result:?}");
        });
    }

    #[test]
    fn content_is_compared_of_files_where_that_is_asked_for_or_follows_a_growing_one() {
        each(|offer, _, _| {
            let options = offer.file_options;
            let is_due = options.compare_content || offer.growth == Growth::Grown;
            let may = is_due
                && offer.kind == FileKind::Regular
                && offer.compared == Compared::NotCompared;
            assert_eq!(offer.may_be_compared(), may, "{offer:?}");
            let is_link = offer.kind == FileKind::HardLink;
            assert_eq!(offer.may_be_offered_again(), may || is_link, "{offer:?}");
        });
    }

    #[test]
    fn a_source_that_changed_is_looked_at_again_where_it_is_followed_or_watched() {
        each(|offer, outcome, step| {
            let FileOutcome::Failed(fault) = outcome else { return };
            let of_source = fault.side == Side::Source;
            let changed = of_source && fault.code == FaultCode::SourceChanged;
            let passes = changed || of_source && fault.code == FaultCode::NotFound;
            let watched =
                offer.file_options.watches && offer.growth == Growth::NotGrowing && passes;
            let is_again = *step == NextStep::ChangedAgain;
            assert_eq!(is_again, offer.is_followed && changed, "{offer:?} {fault:?}");
            let comes_later = matches!(step, NextStep::ComesLater(_));
            assert_eq!(comes_later, watched && !is_again, "{offer:?} {fault:?}");
            assert_eq!((is_source_changed(fault), is_passing(fault)), (changed, passes));
        });
    }

    #[test]
    fn a_file_is_in_place_unless_it_failed() {
        let fault = Fault::new(FaultCode::NoSpace, Side::Target, "it failed");
        for (result, is_in_place) in [
            (EndResult::Done, true),
            (EndResult::Skipped, true),
            (EndResult::Planned(Plan::default()), true),
            (EndResult::Failed(fault), false),
        ] {
            assert_eq!(FileEnd { result, frees_source: false }.is_in_place(), is_in_place);
        }
    }
}
