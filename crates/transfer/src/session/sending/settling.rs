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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        session::sending::without_peer::{self, offers, pumped, wait_until},
        storage::walk::WalkOptions,
    };
    use haul_protocol::{
        Message,
        file_life::FileEnd,
        message::{Answer, Compare, Compared, FaultCode, FileAnswer, Plan, Side},
    };
    use std::{fs, path::Path};

    fn begin<'a>(
        directory: &Path,
        file_options: FileOptions,
        hear: &'a mut dyn FnMut(Event),
    ) -> Sending<'a> {
        let walk = without_peer::walk_in(directory, WalkOptions::default());
        without_peer::sending(walk, without_peer::options(file_options), hear)
    }

    fn answer(sending: &mut Sending<'_>, file: u32, answer: Answer) {
        let answer = Message::FileAnswer(FileAnswer { file: FileId(file), answer });
        crate::session::role::Role::handle(sending, answer).expect("an honest message");
    }

    fn no_space() -> Fault {
        Fault::new(FaultCode::NoSpace, Side::Target, "the disk is full")
    }

    /// Files that ended, in the order in which they did.
    fn ended(told: Vec<Event>) -> Vec<FileEnded> {
        let ended = |event| match event {
            Event::File(ended) => Some(ended),
            _ => None,
        };
        told.into_iter().filter_map(ended).collect()
    }

    #[test]
    fn each_outcome_is_told_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("a")).unwrap();
        ["b", "c"].iter().for_each(|name| fs::write(directory.path().join(name), "12345").unwrap());
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut sending = begin(directory.path(), FileOptions::default(), &mut hear);
        let now = Instant::now();
        pumped(&mut sending, now);
        answer(&mut sending, 0, Answer::Skip);
        answer(&mut sending, 1, Answer::Fault(no_space()));
        answer(&mut sending, 2, Answer::Skip);
        pumped(&mut sending, now);
        let tally = sending.tally();
        assert_eq!((tally.skipped_files, tally.skipped_directories, tally.failed_files), (2, 1, 1));
        assert_eq!((tally.skipped_bytes, tally.offered_files), (5, 3));
        drop(sending);
        assert!(told.iter().any(|event| matches!(event, Event::Error(it) if it.path.0 == b"b")));
        let named = |it: FileEnded| (it.path.0, it.status.name(), it.is_directory, it.bytes);
        let ended: Vec<_> = ended(told).into_iter().map(named).collect();
        let of = |name: &[u8], status: FileStatus, is_directory, bytes| {
            (name.to_vec(), status.name(), is_directory, bytes)
        };
        assert_eq!(
            ended,
            [
                of(b"a", FileStatus::Skipped, true, 0),
                of(b"b", FileStatus::Failed, false, 5),
                of(b"c", FileStatus::Skipped, false, 5),
            ]
        );
    }

    #[test]
    fn a_plan_says_whether_something_is_replaced_and_under_which_name() {
        let directory = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| fs::write(directory.path().join(name), "12345").unwrap());
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let file_options = FileOptions { dry_run: true, ..FileOptions::default() };
        let mut sending = begin(directory.path(), file_options, &mut hear);
        pumped(&mut sending, Instant::now());
        let plan = |replaces, stored_as: &[u8]| {
            Answer::Plan(Plan { replaces, stored_as: stored_as.into(), ..Plan::default() })
        };
        answer(&mut sending, 0, plan(true, b""));
        answer(&mut sending, 1, plan(false, b"other"));
        pumped(&mut sending, Instant::now());
        let tally = sending.tally();
        assert_eq!((tally.planned_files, tally.planned_bytes, tally.replaced_files), (2, 10, 1));
        drop(sending);
        let planned = ended(told).into_iter().map(|it| (it.status, it.stored_as));
        let other = Some(Name(b"other".to_vec()));
        let expected = [(FileStatus::WouldReplace, None), (FileStatus::WouldCopy, other)];
        assert_eq!(planned.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_answer_that_no_receiver_may_give_ends_the_session() {
        let directory = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| fs::write(directory.path().join(name), "12345").unwrap());
        let mut hear = |_| {};
        let mut sending = begin(directory.path(), FileOptions::default(), &mut hear);
        pumped(&mut sending, Instant::now());
        answer(&mut sending, 0, Answer::Plan(Plan::default()));
        let refused = crate::session::role::Role::pump(&mut sending, Instant::now());
        assert!(refused.unwrap_err().what.contains("a plan for a file"));
    }

    /// Case of a source that failed while the word that the target has it was on its way.
    #[test]
    fn a_source_that_failed_meanwhile_is_not_removed_by_a_move() {
        for has_failed in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink("nowhere", directory.path().join("link")).unwrap();
            let mut hear = |_| {};
            let file_options = FileOptions { move_sources: true, ..FileOptions::default() };
            let walk = WalkOptions { is_moved: true, ..WalkOptions::default() };
            let walk = without_peer::walk_in(directory.path(), walk);
            let options = without_peer::options(file_options);
            let mut sending = without_peer::sending(walk, options, &mut hear);
            pumped(&mut sending, Instant::now());
            if has_failed {
                let fault = Fault::new(FaultCode::IoFailed, Side::Source, "cannot be read");
                lock(&sending.context.shared.machine).source_failed(FileId(0), fault);
            }
            answer(&mut sending, 0, Answer::Skip);
            pumped(&mut sending, Instant::now());
            assert_eq!(directory.path().join("link").is_symlink(), has_failed);
            assert_eq!(sending.tally().sources_removed, u64::from(!has_failed));
        }
    }

    fn ends(messages: &[Message]) -> bool {
        messages.iter().any(|message| matches!(message, Message::OffersEnd(_)))
    }

    #[test]
    fn a_file_that_is_compared_is_offered_again_and_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "12345").unwrap();
        let mut hear = |_| {};
        let file_options = FileOptions { compare_content: true, ..FileOptions::default() };
        let mut sending = begin(directory.path(), file_options, &mut hear);
        let now = Instant::now();
        assert!(!ends(&pumped(&mut sending, now)), "it may be offered again");
        let blake3 = *blake3::hash(b"12345").as_bytes();
        answer(&mut sending, 0, Answer::Compare(Compare { blake3 }));
        let mut messages = Vec::new();
        wait_until("compared", || {
            messages.extend(pumped(&mut sending, now));
            !messages.is_empty()
        });
        assert_eq!(offers(&messages)[0].compared, Compared::SameContent);
        messages.extend(pumped(&mut sending, now));
        assert!(ends(&messages), "there is no third offer");
        assert_eq!(sending.tally().offered_files, 1);
        answer(&mut sending, 1, Answer::Skip);
        let messages = pumped(&mut sending, now);
        assert!(messages.iter().any(|message| matches!(message, Message::Finish(_))));
        assert_eq!((sending.tally().skipped_files, sending.tally().offered_bytes), (1, 5));
    }

    #[test]
    fn a_file_that_cannot_be_compared_fails_on_this_side_and_is_told_to_both() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "12345").unwrap();
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let file_options = FileOptions { compare_content: true, ..FileOptions::default() };
        let mut sending = begin(directory.path(), file_options, &mut hear);
        let now = Instant::now();
        pumped(&mut sending, now);
        fs::remove_file(directory.path().join("a")).unwrap();
        answer(&mut sending, 0, Answer::Compare(Compare::default()));
        let mut messages = Vec::new();
        wait_until("compared", || {
            messages.extend(pumped(&mut sending, now));
            ends(&messages)
        });
        assert!(matches!(&messages[0], Message::Notice(notice) if notice.fault.is_some()));
        assert_eq!((sending.tally().failed_files, sending.tally().offered_files), (1, 0));
        drop(sending);
        assert!(matches!(&told[..], [Event::Error(problem)] if problem.path.0 == b"a"), "{told:?}");
    }

    /// Offers of what grew are taken off the counts by their own stage.
    #[test]
    fn what_is_not_at_its_end_is_neither_told_nor_counted() {
        let fault = Fault::default;
        for (growth, step, offered) in [
            (Growth::NotGrowing, NextStep::Compare(Compare::default()), 0),
            (Growth::Grown, NextStep::Compare(Compare::default()), 1),
            (Growth::Growing, NextStep::NextRound, 1),
            (Growth::Grown, NextStep::ChangedAgain, 1),
            (Growth::NotGrowing, NextStep::OfferAsFile, 0),
            (Growth::NotGrowing, NextStep::ComesLater(fault()), 0),
            (
                Growth::NotGrowing,
                NextStep::Ends(FileEnd { result: EndResult::Done, frees_source: false }),
                1,
            ),
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("a"), "12345").unwrap();
            let mut told = Vec::new();
            let mut hear = |event| told.push(event);
            let mut sending = begin(directory.path(), FileOptions::default(), &mut hear);
            pumped(&mut sending, Instant::now());
            let mut entry = without_peer::files(directory.path()).remove(0);
            entry.offer.growth = growth;
            let (file, content, stored_as, is_told) = (FileId(0), None, None, true);
            let (is_end, now) = (matches!(step, NextStep::Ends(_)), Instant::now());
            let case = format!("{growth:?} {step:?}");
            sending.count(Settled { file, entry, step, content, stored_as, is_told, now });
            let tally = sending.tally();
            assert_eq!((tally.offered_files, tally.done_files), (offered, is_end.into()), "{case}");
            drop(sending);
            assert_eq!(told.len(), usize::from(is_end), "{case}");
        }
    }
}
