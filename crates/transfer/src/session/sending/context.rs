//! State that every stage of a sending role may use: streams, counts, events, offers to make.

use super::news::News;
use crate::{
    events::Event,
    file_options::FileOptions,
    locks::lock,
    problem::Problem,
    session::{
        engine_orders::Change,
        moved_earlier::MovedEarlier,
        role::{EventSink, SessionEnd},
        sending::send_spans::SendShared,
        tally::Tally,
    },
    storage::source::SourceEntry,
};
use haul_protocol::{
    FileId,
    file_life::OfferFacts,
    message::{self, Fault},
};
use std::{collections::VecDeque, sync::Arc};

/// An offer that a stage asks for.
pub(super) struct ToOffer {
    pub entry: SourceEntry,
    /// The number that the file was offered under before.
    pub before: Option<FileId>,
}

pub(super) struct Context<'a> {
    pub shared: Arc<SendShared>,
    pub file_options: FileOptions,
    pub tally: Tally,
    /// Offers that the stages ask for; the walk goes on after them.
    pub to_offer: VecDeque<ToOffer>,
    /// Files that failed on this side after their offers were settled.
    pub failed_here: VecDeque<(FileId, SourceEntry, Fault)>,
    /// Faults that were told, of a watch, which finds the same ones again and again.
    pub news: Option<News>,
    /// Files of a move that an earlier session of the run brought.
    pub moved_earlier: MovedEarlier,
    /// The goodbye has been said: the end of a stream is no loss any more.
    pub finishing: bool,
    pub ended: Option<SessionEnd>,
    pub events: EventSink<'a>,
}

impl Context<'_> {
    pub fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// Queues a source to be offered, after those that wait already.
    pub fn offer(&mut self, entry: SourceEntry, before: Option<FileId>) {
        self.to_offer.push_back(ToOffer { entry, before });
    }

    pub fn facts(&self, entry: &SourceEntry, is_followed: bool) -> OfferFacts {
        OfferFacts::new(&entry.offer, is_followed, self.file_options.life())
    }

    /// Ends the session for a fault.
    pub fn refuse(&mut self, fault: Fault) {
        self.ended = Some(SessionEnd::Refused(fault));
    }

    /// Tells both sides' users, once, of a source that could not be offered.
    pub fn not_offered(&mut self, fault: Fault) {
        if self.is_news(&fault) {
            self.source_failed(fault);
        }
    }

    /// Tells both sides' users of a source that failed and is not under way at the receiver.
    pub fn source_failed(&mut self, fault: Fault) {
        self.tally.failed_files += 1;
        self.tell(Event::Error(Problem::of(&fault)));
        self.tally.first_problem.get_or_insert_with(|| Problem::of(&fault));
        self.notice(fault);
    }

    /// Tells both sides' users, once, of a source of a kind that is not sent.
    pub fn left_out(&mut self, fault: Fault) {
        if self.is_news(&fault) {
            self.tally.left_out_files += 1;
            self.tell(Event::LeftOut(Problem::of(&fault)));
            self.notice(fault);
        }
    }

    fn is_news(&mut self, fault: &Fault) -> bool {
        self.news.as_mut().is_none_or(|news| news.is_news(fault))
    }

    fn notice(&self, fault: Fault) {
        let notice = message::Notice { fault: Some(fault), ..message::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    /// Tells both sides' users of a change of engines.
    pub fn tell_change(&mut self, change: Option<Change>) {
        let Some((notice, event)) = change else { return };
        lock(&self.shared.machine).notice(notice);
        self.tell(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::sending::without_peer;
    use haul_protocol::{
        Message,
        message::{FaultCode, Side},
    };

    fn fault(path: &str) -> Fault {
        Fault::new(FaultCode::NotPermitted, Side::Source, "cannot be read").at(path)
    }

    /// Tells of faults and takes what both sides' users hear of them: events here, notices there.
    fn told(watch: bool, tell: impl FnOnce(&mut Context<'_>)) -> (Vec<String>, Vec<String>, Tally) {
        let mut file_options = FileOptions::default();
        file_options.recording.watch = watch;
        let mut here = Vec::new();
        let mut hear = |event| match event {
            Event::Error(problem) => here.push(format!("failed {}", problem.what)),
            Event::LeftOut(problem) => here.push(format!("left out {}", problem.what)),
            other => here.push(format!("{other:?}")),
        };
        let mut context = without_peer::begin(file_options, &mut hear).context;
        tell(&mut context);
        let mut machine = lock(&context.shared.machine);
        let notices = std::iter::from_fn(|| machine.poll_message()).map(|message| match message {
            Message::Notice(message::Notice { fault: Some(fault), .. }) => {
                String::from_utf8(fault.path).expect("a name")
            }
            other => panic!("{other:?}"),
        });
        let notices = notices.collect();
        drop(machine);
        let tally = std::mem::take(&mut context.tally);
        drop(context);
        (here, notices, tally)
    }

    #[test]
    fn what_cannot_be_offered_is_told_to_both_sides_and_the_first_is_kept() {
        let (here, notices, tally) = told(false, |context| {
            ["a", "b", "b"].iter().for_each(|path| context.not_offered(fault(path)));
        });
        assert_eq!((here.len(), &notices[..]), (3, &["a", "b", "b"].map(String::from)[..]));
        assert!(here.iter().all(|told| told.starts_with("failed")), "{here:?}");
        assert_eq!((tally.failed_files, tally.left_out_files), (3, 0));
        assert_eq!(tally.first_problem.map(|first| first.to_string().contains('a')), Some(true));
    }

    #[test]
    fn a_watch_tells_of_each_source_once() {
        let (here, notices, tally) = told(true, |context| {
            for path in ["a", "b", "a"] {
                context.not_offered(fault(path));
                context.left_out(fault(&format!("fifo-{path}")));
            }
        });
        assert_eq!(notices, ["a", "fifo-a", "b", "fifo-b"]);
        assert_eq!((here.len(), tally.failed_files, tally.left_out_files), (4, 2, 2));
        assert!(here[1].starts_with("left out"), "{here:?}");
    }

    #[test]
    fn a_change_of_engines_is_told_to_both_sides() {
        use crate::{problem::Side, session::engine_orders::told_to_both};
        use haul_protocol::StreamId;
        let mut hear = Vec::new();
        let mut told = |event| hear.push(event);
        let mut context = without_peer::begin(FileOptions::default(), &mut told).context;
        context.tell_change(None);
        let change = told_to_both(Side::Source, StreamId(3), "-> splice".into(), "slow".into());
        context.tell_change(Some(change.clone()));
        let notice = lock(&context.shared.machine).poll_message();
        assert_eq!(notice, Some(Message::Notice(change.0)));
        drop(context);
        assert!(matches!(&hear[..], [Event::Fallback { why, .. }] if why == "slow"), "{hear:?}");
    }

    #[test]
    fn a_refusal_ends_the_session_with_its_fault() {
        let (here, notices, _) = told(false, |context| {
            context.refuse(fault("x"));
            assert!(matches!(&context.ended, Some(SessionEnd::Refused(why)) if *why == fault("x")));
        });
        assert_eq!((here, notices), (Vec::new(), Vec::new()), "the session's end tells it");
    }
}
