//! State that every stage of a receiving role may use: streams, open files, counts, events.

use super::stage::Settled;
use crate::{
    events::Event,
    file_status::FileStatus,
    locks::lock,
    name::Name,
    problem::Problem,
    problem::Side,
    selection::Matcher,
    session::{
        disclosure::Telling,
        engine_orders::{Change, told_to_both},
        moved_earlier::MovedEarlier,
        receiving::receive_spans::ReceiveShared,
        resumed::TakenUpBytes,
        role::{EventSink, SessionEnd},
        tally::Tally,
    },
    storage::{open_files::Pass, target_place::TargetPlace},
};
use haul_protocol::{
    FileId, StreamId,
    message::{self, Fault, FaultCode, FileOffer},
    receiver::Answer,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

/// A file that was offered and is not settled.
pub(super) struct OpenFile {
    pub offer: Arc<FileOffer>,
    /// The file's name here, where that is not the one offered.
    pub stored_as: Option<Name>,
    /// The file's share of the large ones that may be open, if it has more than one span.
    pub pass: Option<Pass>,
}

/// Rules by which a session answers offers.
#[derive(Clone, Copy)]
pub(super) struct AnswerRules {
    /// Knowledge of files that are there which the sender may be told.
    pub telling: Telling,
    /// No file is asked for, wherever it would go.
    pub dry_run: bool,
    pub span_bytes: Option<u64>,
    /// Files are read back from their disk before they get their names.
    pub verify_target: bool,
    /// The sender has capability 2: it sends again what is found lost.
    pub peer_rechecks: bool,
}

pub(super) struct Context<'a> {
    pub shared: Arc<ReceiveShared>,
    pub place: TargetPlace,
    pub rules: AnswerRules,
    /// Patterns of the user: what they leave out is not removed either.
    pub matcher: Option<Matcher>,
    /// Files of a move that an earlier session of the run brought.
    pub moved_earlier: MovedEarlier,
    pub tally: Tally,
    pub taken_up: TakenUpBytes,
    pub open: BTreeMap<FileId, OpenFile>,
    /// Files that are settled, of which the stages are yet to be told.
    pub settled: VecDeque<Settled>,
    /// Streams are wanted: at least one span has yet to come.
    pub wants_streams: bool,
    /// Time when the sender was last told how far this side is.
    pub progress_at: Option<Instant>,
    /// The goodbye has been said.
    pub finishing: bool,
    pub ended: Option<SessionEnd>,
    pub events: EventSink<'a>,
}

impl Context<'_> {
    pub fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// Ends the session for a fault.
    pub fn refuse(&mut self, fault: Fault) {
        self.ended = Some(SessionEnd::Refused(fault));
    }

    /// Finds the offer of a file that is open.
    pub fn offer(&self, file: FileId) -> Option<&FileOffer> {
        self.open.get(&file).map(|open| &*open.offer)
    }

    /// Answers an offer.
    pub fn answer(&mut self, file: FileId, answer: Answer) {
        let answered = lock(&self.shared.machine).answer(file, answer);
        if let Err(error) = answered {
            self.refuse(error.to_fault());
        }
    }

    /// Settles a file, whose life in this session is over.
    pub fn settle(&mut self, file: FileId, status: FileStatus, fault: Option<Fault>) {
        let Some(OpenFile { offer, stored_as, .. }) = self.open.remove(&file) else { return };
        let content = self.shared.contents.take(file);
        self.settled.push_back(Settled { file, offer, stored_as, status, fault, content });
    }

    /// Fails a file that is being received, on this side.
    pub fn fail(&mut self, file: FileId, fault: Fault) {
        if !self.open.contains_key(&file) {
            return;
        }
        self.cut_short(file, &fault);
        // What its disk has changed is of no use any more.
        self.drop_target(file, fault.code != FaultCode::DataDamaged);
        self.settle(file, FileStatus::Failed, Some(fault.clone()));
        lock(&self.shared.machine).file_failed(file, fault);
    }

    /// Keeps the hidden directory of a file hidden, where the disk was full: what is missing comes
    /// by another run.
    pub fn cut_short(&self, file: FileId, fault: &Fault) {
        if fault.code != FaultCode::NoSpace {
            return;
        }
        let root = self.place.root();
        let name = self.offer(file).map(|offer| self.place.name_of(offer));
        if let (Some(root), Some(name)) = (root, name)
            && let Some(directory) = root.hidden_directory_of(&name)
        {
            directory.cut_short();
        }
    }

    /// Lets go of a target. `keep`: it stays for a resume.
    pub fn drop_target(&mut self, file: FileId, keep: bool) {
        let target = lock(&self.shared.targets).remove(&file);
        self.shared.committer.give_up(file, target.map(|target| target.shared), keep);
    }

    /// Tells this side's user of a failure beside the files under way, and counts it.
    pub fn failed_beside(&mut self, fault: &Fault) {
        self.tally.failed_files += 1;
        self.tally.first_problem.get_or_insert_with(|| Problem::of(fault));
        self.tell(Event::Error(Problem::of(fault)));
    }

    /// Tells both sides' users of a failure at the end, and counts it.
    pub fn failed_late(&mut self, fault: Fault) {
        self.failed_beside(&fault);
        let notice = message::Notice { fault: Some(fault), ..message::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    /// Tells both sides' users that something is done in another way here, or not at all.
    pub fn tell_fallback(&mut self, from_to: &str, why: String) {
        self.tell_change(Some(told_to_both(Side::Target, StreamId(0), from_to.into(), why)));
    }

    /// Tells both sides' users of a change of engines, or of another way.
    pub fn tell_change(&mut self, change: Option<Change>) {
        let Some((notice, event)) = change else { return };
        lock(&self.shared.machine).notice(notice);
        self.tell(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        session::{
            receiving::{
                ReceivingOptions,
                with_sender::{SPAN, Session, directory, offer},
                without_peer::{self, begin},
            },
            streams::StreamSetup,
        },
    };
    use haul_protocol::{Message, frame::PayloadStatus, message::Side};

    const FILE: FileId = FileId(0);

    fn fault(code: FaultCode) -> Fault {
        Fault::new(code, Side::Target, "cannot be written").at("x")
    }

    /// Runs a test in a session to which a file was offered, and returns what it told.
    fn told(test: impl FnOnce(&mut Context<'_>)) -> Vec<Event> {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut context = begin(TargetPlace::Null, &mut hear).context;
        let (name, kind) = (b"x".to_vec(), message::FileKind::Regular);
        let offer = FileOffer { file: FILE, name, kind, size_bytes: 10, ..FileOffer::default() };
        lock(&context.shared.machine).handle(Message::FileOffer(offer.clone())).unwrap();
        context.open.insert(FILE, OpenFile { offer: offer.into(), stored_as: None, pass: None });
        test(&mut context);
        drop(context);
        told
    }

    fn messages(context: &Context<'_>) -> Vec<Message> {
        let mut machine = lock(&context.shared.machine);
        std::iter::from_fn(|| machine.poll_message()).collect()
    }

    fn need() -> Answer {
        let durable = haul_protocol::SpanSet::new(1);
        let (stored_as, earlier) = (Vec::new(), Default::default());
        Answer::Need { span_bytes: 64 << 10, durable, stored_as, earlier }
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_once_on_both_sides() {
        let told = told(|context| {
            context.answer(FILE, need());
            assert!(matches!(&messages(context)[..], [Message::FileAnswer(_)]));
            for _ in 0..2 {
                context.fail(FILE, fault(FaultCode::IoFailed));
            }
            let [Message::FileSettled(settled)] = &messages(context)[..] else { panic!("one") };
            assert_eq!(settled.fault, Some(fault(FaultCode::IoFailed)));
            assert!(context.open.is_empty() && context.offer(FILE).is_none());
            let settled = context.settled.pop_front().unwrap();
            assert_eq!((settled.file, settled.status), (FILE, FileStatus::Failed));
            assert_eq!(settled.fault, Some(fault(FaultCode::IoFailed)));
            assert!(context.settled.is_empty());
        });
        assert!(told.is_empty(), "the stages are told first: {told:?}");
    }

    #[test]
    fn a_file_that_is_answered_twice_ends_the_session() {
        told(|context| {
            assert_eq!(context.offer(FILE).map(|offer| offer.size_bytes), Some(10));
            context.answer(FILE, need());
            assert!(context.ended.is_none());
            context.answer(FILE, need());
            let Some(SessionEnd::Refused(why)) = &context.ended else { panic!("it goes on") };
            assert!(why.what.contains("twice"), "{why:?}");
        });
    }

    #[test]
    fn a_failure_at_the_end_is_told_to_both_sides_and_the_first_is_kept() {
        let told = told(|context| {
            context.failed_late(fault(FaultCode::NoSpace));
            context.failed_late(fault(FaultCode::IoFailed));
            let faults = messages(context).into_iter().map(|message| match message {
                Message::Notice(notice) => notice.fault.map(|fault| fault.code),
                other => panic!("{other:?}"),
            });
            let codes = [FaultCode::NoSpace, FaultCode::IoFailed].map(Some);
            assert_eq!(faults.collect::<Vec<_>>(), codes);
            assert_eq!(context.tally.failed_files, 2);
            let first = Problem::of(&fault(FaultCode::NoSpace)).to_string();
            let kept = context.tally.first_problem.as_ref().map(ToString::to_string);
            assert_eq!(kept, Some(first));
        });
        assert!(matches!(&told[..], [Event::Error(_), Event::Error(_)]), "{told:?}");
    }

    #[test]
    fn another_way_is_told_to_both_sides() {
        let told = told(|context| {
            context.tell_fallback("free space", "too little".into());
            let [Message::Notice(notice)] = &messages(context)[..] else { panic!("one") };
            assert_eq!(notice.why, "too little");
        });
        assert!(matches!(&told[..], [Event::Fallback { .. }]), "{told:?}");
    }

    /// Runs a test in a session that receives below a directory.
    fn below(at: &std::path::Path, test: impl FnOnce(&mut Session<'_>)) {
        let place = without_peer::place(at, FileOptions::default());
        let options = ReceivingOptions { span_bytes: Some(SPAN), ..without_peer::options() };
        let mut hear = |_| {};
        let mut session = Session::begin(place, options, StreamSetup::of_nobody(), &mut hear);
        test(&mut session);
        session.role.stop();
    }

    fn ask(session: &mut Session<'_>, offer: FileOffer) {
        let file = offer.file.0;
        session.say(Message::FileOffer(offer));
        session.until("an answer", |it| it.answer_to(file).is_some());
    }

    #[test]
    fn a_full_disk_keeps_the_hidden_directory_of_a_file_hidden_and_nothing_else_does() {
        for (file, code, stays_hidden) in [
            (1, FaultCode::NoSpace, true),
            (1, FaultCode::IoFailed, false),
            (2, FaultCode::NoSpace, false),
        ] {
            let place = tempfile::tempdir().unwrap();
            below(place.path(), |session| {
                ask(session, directory(0, "tree"));
                ask(session, offer(1, "tree/x", 10));
                ask(session, offer(2, "other", 10));
                let hidden = session.role.context.place.root().unwrap().hidden_directories();
                session.role.context.fail(FileId(file), fault(code));
                assert_eq!(hidden[0].stays_hidden(), stays_hidden, "{file}, {code:?}");
            });
        }
    }

    #[test]
    fn what_came_of_a_file_stays_for_another_run_unless_its_disk_has_changed_it() {
        for (code, stays) in [(FaultCode::IoFailed, true), (FaultCode::DataDamaged, false)] {
            let place = tempfile::tempdir().unwrap();
            below(place.path(), |session| {
                ask(session, offer(0, "x", 3 * SPAN));
                let mut stream = session.stream();
                let span = stream.span(0, 0, &[7; SPAN as usize], PayloadStatus::Whole);
                stream.write(&span);
                session.until("durable", |it| {
                    it.role.context.shared.committer.durable_bytes() == SPAN
                });
                session.role.context.fail(FileId(0), fault(code));
                assert!(lock(&session.role.context.shared.targets).is_empty());
            });
            assert_eq!(place.path().join(".x.haul-part").exists(), stays, "{code:?}");
        }
    }
}
