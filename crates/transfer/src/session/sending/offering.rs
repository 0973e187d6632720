//! Offering of files: from the walk, through the stages, to the receiver.

use super::{
    Sending, Sources,
    context::ToOffer,
    stage::{Found, Offered},
    watching::Next,
};
use crate::{
    locks::lock,
    session::sending::send_spans::Source,
    storage::{source::SourceEntry, walk::Listed},
};
use haul_protocol::{
    message::{self, Fault, FaultCode},
    name::check_relative_name,
};
use std::time::Instant;

/// The most files offered at a time, before what came in meanwhile is looked at.
const OFFERS_A_PUMP: usize = 256;

/// Progress of the offers of a session.
#[derive(Debug, Default)]
pub(super) struct Offering {
    /// Count of open files that another offer may follow.
    pub may_return: usize,
    /// The walk has come to its end.
    pub listed_all: bool,
    /// The receiver was told that no offer follows.
    pub ended: bool,
}

impl Sending<'_> {
    pub(super) fn offer_files(&mut self, now: Instant) {
        for _ in 0..OFFERS_A_PUMP {
            if self.offering.ended || !lock(&self.context.shared.machine).may_offer() {
                return;
            }
            if let Some(next) = self.context.to_offer.pop_front() {
                self.offer(next);
                continue;
            }
            if self.stages.in_order().any(|stage| stage.is_full()) {
                return;
            }
            let Sources::Listed(walk) = &mut self.sources else { return };
            if walk.must_wait() {
                return;
            }
            match walk.next() {
                None => match self.watch_on(now) {
                    Next::Walk => {}
                    Next::Rest => return,
                    Next::End => {
                        self.offering.listed_all = true;
                        self.context.tally.total_known = self.stages.following.is_none();
                        return self.end_offers();
                    }
                },
                Some(Listed::Failed(fault)) if self.context.moved_earlier.explains(&fault) => {}
                Some(Listed::Failed(fault)) => self.context.not_offered(fault),
                Some(Listed::LeftOut(fault)) => self.context.left_out(fault),
                Some(Listed::Entry(entry)) => match check_relative_name(&entry.offer.name) {
                    Ok(()) => self.meet(entry, now),
                    Err(why) => {
                        let what = "cannot be offered under this name";
                        let fault = Fault::new(FaultCode::NameRefused, message::Side::Source, what);
                        self.context.not_offered(fault.at(entry.offer.name).found(why));
                    }
                },
            }
        }
        // There is more: come back at once.
        self.context.shared.streams.wake();
    }

    /// Finds the next step when the walk is at its end.
    fn watch_on(&mut self, now: Instant) -> Next {
        let is_open = self.has_open();
        let (Some(watching), Sources::Listed(walk)) =
            (&mut self.stages.watching, &mut self.sources)
        else {
            return Next::End;
        };
        let next = watching.next(walk, is_open, now);
        if let Some(deaf) = watching.take_deafness() {
            self.context.tell(deaf);
        }
        next
    }

    /// Whether any file is under way.
    pub(super) fn has_open(&mut self) -> bool {
        !lock(&self.context.shared.sources).is_empty() || self.keeps_some()
    }

    /// Whether any file is kept to be offered.
    fn keeps_some(&mut self) -> bool {
        !self.context.to_offer.is_empty() || self.stages.in_order().any(|stage| stage.keeps_some())
    }

    fn end_offers(&mut self) {
        if self.offering.may_return == 0 && !self.keeps_some() {
            self.offering.ended = true;
            let (files, bytes) =
                (self.context.tally.offered_files, self.context.tally.offered_bytes);
            lock(&self.context.shared.machine).end_offers(files, bytes);
        }
    }

    fn meet(&mut self, entry: Box<SourceEntry>, now: Instant) {
        let mut found = Found { entry, is_complete: false, now };
        for stage in self.stages.in_order() {
            match stage.met(found, &mut self.context) {
                Some(passed) => found = passed,
                None => return,
            }
        }
        self.offer(ToOffer { entry: *found.entry, before: None });
    }

    fn offer(&mut self, ToOffer { entry, before }: ToOffer) {
        if let Err(fault) = self.streams.choose_engines(&entry, &mut self.context) {
            self.context.refuse(fault);
        }
        let context = &mut self.context;
        self.offering.may_return +=
            usize::from(context.facts(&entry, false).may_be_offered_again());
        let file = lock(&context.shared.machine).offer(entry.offer.clone());
        context.tally.offered(&entry.offer);
        let offered = Offered { file, entry: &entry, before };
        for stage in self.stages.in_order() {
            stage.offered(&offered, context);
        }
        lock(&context.shared.sources).insert(file, Source::new(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::{
            moved_earlier::MovedEarlier,
            sending::{
                start::SendingOptions,
                without_peer::{self, offers, pumped},
            },
            tally::OfferLimits,
        },
        storage::walk::{Walk, WalkOptions},
    };
    use haul_protocol::{
        FileId, Message,
        message::{Answer, FileAnswer},
    };
    use std::{fs, path::Path};

    fn begin<'a>(
        directory: &Path,
        change: impl FnOnce(&mut SendingOptions),
        hear: &'a mut dyn FnMut(Event),
    ) -> Sending<'a> {
        let walk = without_peer::walk_in(directory, WalkOptions::default());
        let mut options = without_peer::options(FileOptions::default());
        change(&mut options);
        without_peer::sending(walk, options, hear)
    }

    fn files(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| fs::write(directory.path().join(name), "12345").unwrap());
        directory
    }

    fn skip(sending: &mut Sending<'_>, file: u32) {
        let answer = FileAnswer { file: FileId(file), answer: Answer::Skip };
        let skipped = crate::session::role::Role::handle(sending, Message::FileAnswer(answer));
        skipped.expect("an honest message");
    }

    #[test]
    fn no_more_files_are_offered_than_may_be_open_and_the_next_when_one_is_settled() {
        let directory = files(&["a", "b", "c"]);
        let mut hear = |_| {};
        let few = |options: &mut SendingOptions| {
            options.offers = OfferLimits { files: 2, bytes: 1 << 20 };
        };
        let mut sending = begin(directory.path(), few, &mut hear);
        let now = Instant::now();
        assert_eq!(offers(&pumped(&mut sending, now)).len(), 2);
        assert_eq!(pumped(&mut sending, now), []);
        skip(&mut sending, 1);
        assert_eq!(offers(&pumped(&mut sending, now))[0].name, b"c");
    }

    #[test]
    fn what_cannot_be_found_is_told_unless_this_run_has_moved_it() {
        for is_moved in [false, true] {
            let directory = files(&[]);
            let missing = directory.path().join("missing");
            let mut told = Vec::new();
            let mut hear = |event| told.push(event);
            let source = crate::options::SourceSpec::Path(missing.clone().into());
            let walk: Walk =
                crate::storage::named_sources::walk_named(&[source], WalkOptions::default());
            let mut moved_earlier = MovedEarlier::default();
            moved_earlier.sources.push(missing.into_os_string().into_encoded_bytes());
            if is_moved {
                let hash = std::hash::BuildHasher::hash_one(&moved_earlier.hashes, &b"missing"[..]);
                moved_earlier.names.insert(hash);
            }
            let options = without_peer::options(FileOptions::default());
            let options = SendingOptions { moved_earlier, ..options };
            let mut sending = without_peer::sending(walk, options, &mut hear);
            pumped(&mut sending, Instant::now());
            assert_eq!(sending.tally().failed_files, u64::from(!is_moved));
            drop(sending);
            assert_eq!(told.len(), usize::from(!is_moved), "{told:?}");
        }
    }

    #[test]
    fn what_is_of_no_kind_that_is_sent_is_left_out() {
        let directory = files(&["a"]);
        let made = std::process::Command::new("mkfifo").arg(directory.path().join("b")).status();
        assert!(made.unwrap().success());
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut sending = begin(directory.path(), |_| {}, &mut hear);
        assert_eq!(offers(&pumped(&mut sending, Instant::now())).len(), 1);
        assert_eq!(sending.tally().left_out_files, 1);
        drop(sending);
        assert!(matches!(&told[..], [Event::LeftOut(_)]), "{told:?}");
    }

    #[test]
    fn a_name_of_hard_links_is_kept_until_the_first_is_in_place() {
        let directory = files(&["a"]);
        fs::hard_link(directory.path().join("a"), directory.path().join("b")).unwrap();
        let mut hear = |_| {};
        let mut sending = begin(directory.path(), |_| {}, &mut hear);
        let now = Instant::now();
        assert!(!sending.keeps_some() && !sending.has_open());
        let messages = pumped(&mut sending, now);
        assert_eq!((offers(&messages).len(), messages.len()), (1, 1), "the offers do not end");
        assert!(sending.keeps_some() && sending.has_open());
        skip(&mut sending, 0);
        let messages = pumped(&mut sending, now);
        assert_eq!((offers(&messages).len(), messages.len()), (1, 1), "it may go as a file yet");
        assert!(!sending.keeps_some() && sending.has_open());
        skip(&mut sending, 1);
        let messages = pumped(&mut sending, now);
        assert!(matches!(&messages[..], [Message::OffersEnd(_), Message::Finish(_)]));
        assert!(!sending.has_open());
    }

    #[test]
    fn an_offer_that_a_stage_asks_for_comes_before_the_next_of_the_walk() {
        let directory = files(&["a", "b"]);
        let mut hear = |_| {};
        let mut sending = begin(directory.path(), |_| {}, &mut hear);
        let entry = without_peer::files(directory.path()).remove(1);
        sending.context.offer(entry, None);
        assert!(sending.keeps_some() && sending.has_open());
        let messages = pumped(&mut sending, Instant::now());
        let names: Vec<_> = offers(&messages).iter().map(|offer| offer.name.clone()).collect();
        assert_eq!(names, [b"b", b"a", b"b"]);
        assert_eq!(sending.tally().offered_files, 3);
    }

    #[test]
    fn an_engine_that_cannot_send_ends_the_session_at_the_first_file() {
        let directory = files(&["a"]);
        let mut hear = |_| {};
        let forced = |options: &mut SendingOptions| options.engine = Some("no-such-engine".into());
        let mut sending = begin(directory.path(), forced, &mut hear);
        let refused = crate::session::role::Role::pump(&mut sending, Instant::now());
        assert_eq!(refused.unwrap_err().code, FaultCode::EngineRefused);
    }

    #[test]
    fn the_totals_of_what_is_followed_are_not_known() {
        for follow in [false, true] {
            let directory = files(&["a"]);
            let mut hear = |_| {};
            let change = |options: &mut SendingOptions| {
                options.file_options.recording.follow = follow;
            };
            let mut sending = begin(directory.path(), change, &mut hear);
            pumped(&mut sending, Instant::now());
            assert!(sending.offering.listed_all);
            assert_eq!(sending.tally().total_known, !follow);
        }
    }

    #[test]
    fn a_tree_of_more_files_than_one_pump_offers_is_offered_by_several() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..OFFERS_A_PUMP + 10 {
            fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        let mut hear = |_| {};
        let many = |options: &mut SendingOptions| {
            options.offers = OfferLimits { files: 10_000, bytes: 1 << 20 };
        };
        let mut sending = begin(directory.path(), many, &mut hear);
        sending.offer_files(Instant::now());
        assert_eq!(sending.tally().offered_files, OFFERS_A_PUMP as u64);
        sending.offer_files(Instant::now());
        assert_eq!(sending.tally().offered_files, OFFERS_A_PUMP as u64 + 10);
        assert!(sending.offering.ended);
    }
}
