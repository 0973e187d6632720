//! Receiving role of a session: prepares targets, feeds the committer, settles files.
//!
//! What happens to a file beside that is the business of its stages: see `stage`.

mod answering;
pub(crate) mod committer;
mod comparing;
mod context;
mod data_streams;
mod directories;
mod engine;
mod expected;
mod growing;
mod manifest_lines;
pub(crate) mod pack;
mod progress;
pub(crate) mod receive_spans;
mod rechecking;
mod removing;
mod room;
mod rounds;
mod settling;
mod showing;
mod stage;
mod stages_in_order;
mod start;
pub(crate) mod target_check;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod with_sender;
#[cfg(test)]
mod with_target;
#[cfg(test)]
mod without_peer;

use super::{
    growth::growth,
    patience::Patience,
    role::{EventSink, Pumped, Role, SessionEnd},
    stages::Part,
    streams::{StreamSetup, Streams},
    supply::Source,
    tally::Tally,
};
use crate::{
    events::{Event, Lag},
    locks::lock,
    name::{Name, printable},
    problem::{Problem, Side},
    selection::Arriving,
    storage::{target_place::TargetPlace, waited_for::Held},
};
use answering::Answering;
use committer::Committer;
use context::Context;
use data_streams::DataStreams;
pub use expected::Expected;
use haul_protocol::{
    Awaited, Message, ProtocolError, ReceiverEvent,
    message::{self, Fault, FaultCode},
};
use stage::Stage;
use stages_in_order::Stages;
pub use start::ReceivingOptions;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

pub struct Receiving<'a> {
    context: Context<'a>,
    committer: Committer,
    answering: Answering,
    stages: Stages,
    streams: DataStreams,
    /// Selection of files by the client, which has yet to say it.
    selection: Option<Arriving>,
    patience: Patience,
    pub peer_report: Option<message::SideReport>,
    /// Count of the sender's messages that bring the transfer on.
    handled: u64,
}

impl<'a> Receiving<'a> {
    /// Starts a role that receives to `place`, with the thread of its committer.
    ///
    /// # Errors
    /// If no thread can be had for the committer.
    pub fn new(
        place: TargetPlace,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: Source,
        mut options: ReceivingOptions,
        events: EventSink<'a>,
    ) -> std::io::Result<Self> {
        let (expected, selection) = (options.expected.take(), options.selection.take());
        let begun = options.begin(place, setup, streams, source, events)?;
        Ok(Self {
            context: begun.context,
            committer: begun.committer,
            answering: Answering::new(expected),
            stages: begun.stages,
            streams: begun.streams,
            selection,
            patience: begun.patience,
            peer_report: None,
            handled: 0,
        })
    }

    /// Figures of this side, for the report.
    #[must_use]
    pub fn report(&self) -> message::SideReport {
        let (shared, recheck) = (&self.context.shared, &self.stages.rechecking.tally);
        let because = self.streams.engines.because();
        let why = shared.setup.why_not_kernel().filter(|_| !because.is_empty());
        let because = why.map_or(because.clone(), |why| format!("{because}; {why}"));
        message::SideReport {
            read_back: shared.committer.read_back_ways().into(),
            bad_spans: shared.damaged_spans.load(Ordering::Relaxed),
            rechecked_bytes: recheck.bytes,
            recheck_lost_bytes: recheck.lost_bytes,
            recheck_ns: recheck.ns,
            throttled_ns: shared.streams.throttled_ns(),
            updated_attributes: self.context.place.updated_attributes(),
            ..self.part().report(because)
        }
    }

    fn part(&self) -> Part {
        let shared = &self.context.shared;
        Part::of_receiver(&shared.streams, shared.committer.costs())
    }

    /// Time of this side's streams by stage, so far.
    #[must_use]
    pub fn figures(&self) -> message::Figures {
        self.part().figures()
    }

    /// Takes the times of the server's streams by stage, as it told them.
    pub fn heard_figures(&mut self, figures: &message::Figures) {
        self.streams.heard_figures(figures);
    }

    /// The counts of this session.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.context.tally
    }

    /// Tells this side's user something.
    pub fn tell(&mut self, event: Event) {
        self.context.tell(event);
    }

    /// Name of the first file that is under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        self.context.current()
    }

    /// The largest lag of this side behind a file that grows.
    #[must_use]
    pub fn largest_lag(&self) -> Option<Lag> {
        self.stages.rounds.largest_lag()
    }

    /// Ends the streams, makes durable what is verified, and lets go of unfinished files, which
    /// stay for a resume.
    pub fn stop(&mut self) {
        let context = &mut self.context;
        context.shared.streams.stop();
        self.stages.in_order().for_each(|stage| stage.stop());
        self.committer.stop();
        context.count_progress();
        context.tally.verified_bytes = context.shared.verified_bytes.load(Ordering::Relaxed);
        // Not in the head of the loop, where they would stay locked until its end.
        let targets = std::mem::take(&mut *lock(&context.shared.targets));
        for target in targets.into_values() {
            if let Some(target) = lock(&target.shared).take() {
                target.give_up(true);
            }
        }
    }

    fn handle_events(&mut self) {
        loop {
            let Some(event) = lock(&self.context.shared.machine).poll_event() else { break };
            self.handle_event(event);
            self.take_settled();
        }
    }

    fn handle_event(&mut self, event: ReceiverEvent) {
        let context = &mut self.context;
        match event {
            ReceiverEvent::Offered(offer) => self.offered(&Arc::new(offer)),
            ReceiverEvent::NameTaken { offer, fault } => self.name_taken(&offer, &fault),
            ReceiverEvent::OffersEnd { .. } => {
                context.tally.total_known = true;
                expected::find_missing(self.answering.expected.as_deref(), context);
            }
            ReceiverEvent::AllVerified(_) => {}
            ReceiverEvent::Commit(file) => {
                let targets = lock(&context.shared.targets);
                let target = targets.get(&file).map(|target| target.shared.clone());
                drop(targets);
                if let Some(target) = target {
                    context.shared.committer.commit(file, &target);
                }
            }
            ReceiverEvent::GivenUp { file, fault } => self.given_up(file, fault),
            ReceiverEvent::CloseStream { stream, .. } => context.shared.streams.shut(stream),
            ReceiverEvent::Notice(message::Notice { fault: Some(fault), .. })
                if fault.code == FaultCode::KindUnsupported =>
            {
                context.tally.left_out_files += 1;
                if let Some(removing) = &mut self.stages.removing {
                    // The source has it: what was made in its place here stays.
                    removing.keep(&fault.path);
                }
                context.tell(Event::LeftOut(Problem::of(&fault)));
            }
            ReceiverEvent::Notice(message::Notice { fault: Some(fault), .. })
                if context.moved_earlier.explains(&fault) => {}
            ReceiverEvent::Notice(message::Notice { fault: Some(fault), .. }) => {
                // A source that could not even be offered, or of which no more is.
                self.stages.rounds.source_failed(&fault.path, context);
                context.failed_beside(&fault);
            }
            ReceiverEvent::Notice(notice) => context.tell(Event::Fallback {
                side: Side::Source,
                from_to: printable(&notice.what),
                why: printable(&notice.why),
            }),
            ReceiverEvent::Finished(report) => {
                self.peer_report = Some(report);
                self.say_goodbye();
            }
            ReceiverEvent::Refused(fault) => context.refuse(fault),
        }
    }

    /// Says goodbye as soon as nothing more comes, so that the sender need not ask.
    fn say_goodbye(&mut self) {
        if self.context.finishing && self.peer_report.is_some() && self.context.ended.is_none() {
            self.stop();
            self.context.ended = Some(SessionEnd::Finished);
        }
        let context = &mut self.context;
        if !lock(&context.shared.machine).may_finish()
            || !self.stages.in_order().all(|stage| stage.finish(context))
        {
            return;
        }
        context.finishing = true;
        self.tell_unkept_time();
        let report = self.report();
        lock(&self.context.shared.machine).finish(report);
        // The sender may have said his already.
        self.say_goodbye();
    }

    /// Tells once that files will be taken for others by the next run.
    fn tell_unkept_time(&mut self) {
        let TargetPlace::Below { rules, .. } = &self.context.place else { return };
        if let Some(why) = rules.attributes.take_unkept_time() {
            self.context.tell_fallback("modification times", why);
        }
    }

    /// Takes a part of the client's selection of files.
    fn take_selection(&mut self, part: message::Selection) -> Result<(), ProtocolError> {
        let Some(arriving) = &mut self.selection else {
            return Err(ProtocolError::new("a selection that was not announced"));
        };
        let Some(selection) = arriving.take(part)? else { return Ok(()) };
        self.selection = None;
        match selection.compile() {
            Ok(matcher) => self.context.matcher = Some(matcher),
            Err(problem) => {
                let code = FaultCode::NameRefused;
                let fault = Fault::new(code, message::Side::Unknown, problem.what);
                self.context.refuse(fault.found(problem.found));
            }
        }
        Ok(())
    }
}

impl Role for Receiving<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        self.handled += u64::from(!matches!(message, Message::Notice(_)));
        let follows = self.context.place.file_options().recording.follow;
        match message {
            Message::Selection(part) => self.take_selection(part)?,
            Message::FileOffer(offer) if growth(&offer).is_some() && !follows => {
                return Err(ProtocolError::new("a file that grows, though none is followed"));
            }
            message => lock(&self.context.shared.machine).handle(message)?,
        }
        self.handle_events();
        Ok(())
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.handle_events();
        self.streams.tick(&mut self.context);
        self.handle_commits();
        self.tell_unkept_time();
        for stage in self.stages.in_order() {
            stage.tick(now, &mut self.context);
        }
        self.answer_waiting();
        self.take_settled();
        self.handle_events();
        if lock(&self.context.shared.machine).is_all_confirmed() {
            self.context.shared.committer.has_all();
        }
        self.say_goodbye();
        let is_reading = self.stages.comparing.is_busy() || self.stages.rechecking.is_busy();
        self.streams.watch(is_reading, now, &mut self.context);
        let (shared, recording) =
            (&self.context.shared, self.context.place.file_options().recording);
        let done = self.handled.wrapping_add(shared.verified_bytes.load(Ordering::Relaxed));
        // What nobody has written yet is not due.
        let is_due = |awaited: &Awaited| {
            *awaited != Awaited::Offer || !(recording.follow || recording.watch)
        };
        let awaits = || lock(&shared.machine).awaits().filter(is_due);
        self.patience.check(now, || (done, awaits()))?;
        if !self.context.finishing {
            self.context.tell_progress(now);
        }
        match self.context.ended.take() {
            Some(SessionEnd::Refused(fault)) => Err(fault),
            Some(end) => Ok(Pumped::Ended(end)),
            None => Ok(Pumped::GoOn),
        }
    }

    fn poll_message(&mut self) -> Option<Message> {
        let explained = self.streams.engines.take_explained();
        explained.or_else(|| lock(&self.context.shared.machine).poll_message())
    }

    fn holds(&self, held: &Held) -> bool {
        let is_staged = |inode: (u64, u64)| {
            let root = self.context.place.root();
            root.is_some_and(|root| {
                root.hidden_directories().iter().any(|it| it.locked_inode() == inode)
            })
        };
        match held {
            Held::File(inode, device) if is_staged((*inode, *device)) => true,
            held => self.context.shared.holds(held),
        }
    }

    /// Ends a watch when its user wants it to; it is complete when nothing is under way then.
    fn ends_in_order(&mut self, _now: Instant) -> bool {
        let context = &mut self.context;
        let watches =
            self.streams.supply.connects() && context.place.file_options().recording.watch;
        if !watches || lock(&context.shared.machine).has_open_files() {
            return false;
        }
        self.stages.directories.finish(context);
        context.ended.get_or_insert(SessionEnd::Finished);
        true
    }

    fn moved_bytes(&self) -> u64 {
        self.context.shared.streams.moved_bytes()
    }

    /// Says no: this side's report is out by the time of the sender's, so nothing is left to say.
    fn has_last_word(&self) -> bool {
        false
    }
}
