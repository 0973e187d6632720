//! Sending role of a session: lists and offers files, feeds the streams, confirms sources.
//!
//! What happens to a file beside that is the business of its stages: see `stage`.

mod comparing;
mod context;
mod data_streams;
mod engine;
pub mod following;
mod giving;
mod hard_links;
mod key_use;
mod loss;
mod manifest_lines;
mod moving;
mod news;
mod offering;
pub(crate) mod pack;
mod reading_ahead;
mod rereading;
pub(crate) mod send_spans;
pub(crate) mod sent_spans;
mod settling;
mod sources;
mod stage;
mod stages_in_order;
mod start;
#[cfg(test)]
mod tests;
mod watching;
#[cfg(test)]
mod without_peer;

use super::{
    patience::Patience,
    role::{EventSink, LOOKED_AT_MAX, Pumped, Role, SessionEnd},
    stages::Part,
    streams::{StreamSetup, Streams},
    supply::Source,
    tally::Tally,
};
use crate::{
    events::{Event, FileEnded, Lag},
    locks::lock,
    name::{Name, printable},
    problem::{Problem, Side},
    storage::holes,
};
use context::Context;
use data_streams::DataStreams;
use following::{Following, Written};
pub use giving::Giving;
use haul_protocol::{
    FileId, Message, ProtocolError, SenderEvent, SpanGrid,
    message::{self, Fault, FileKind},
};
use offering::Offering;
use settling::Told;
pub use sources::Sources;
use stages_in_order::Stages;
pub use start::SendingOptions;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The longest time that the goodbye of a watch may take, once its user ends it.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(10);

pub struct Sending<'a> {
    context: Context<'a>,
    sources: Sources,
    giving: Giving,
    stages: Stages,
    streams: DataStreams,
    offering: Offering,
    patience: Patience,
    pub peer_report: Option<message::SideReport>,
    /// Count of the receiver's messages that bring the transfer on.
    handled: u64,
    interrupted_at: Option<Instant>,
}

impl<'a> Sending<'a> {
    /// Starts a role that sends `sources`.
    pub fn new(
        sources: Sources,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: Source,
        options: SendingOptions,
        events: EventSink<'a>,
    ) -> Self {
        let giving = options.giving;
        let begun = options.begin(&sources, setup, streams, source, events);
        Self {
            context: begun.context,
            sources,
            giving,
            stages: begun.stages,
            streams: begun.streams,
            offering: Offering::default(),
            patience: begun.patience,
            peer_report: None,
            handled: 0,
            interrupted_at: None,
        }
    }

    /// Figures of this side, for the report.
    #[must_use]
    pub fn report(&self) -> message::SideReport {
        let shared = &self.context.shared;
        let mut because = self.streams.engines.because();
        if !because.is_empty() {
            let congestion = shared.setup.congestion.because.clone();
            let parts = [Some(because), shared.setup.why_not_kernel(), Some(congestion)];
            because = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        }
        let throttled_ns = shared.streams.throttled_ns();
        let sources_removed = self.context.tally.sources_removed;
        let of_streams = Part::of_sender(&shared.streams).report(because);
        of_role(of_streams, throttled_ns, sources_removed)
    }

    /// Time of this side's streams by stage, so far.
    #[must_use]
    pub fn figures(&self) -> message::Figures {
        Part::of_sender(&self.context.shared.streams).figures()
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

    /// Name of the first regular file that is under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        let sources = lock(&self.context.shared.sources);
        let mut offers = sources.values().take(LOOKED_AT_MAX).map(|source| &source.entry.offer);
        let file = offers.find(|offer| offer.kind == FileKind::Regular)?;
        Some(Name(file.name.clone()))
    }

    /// The largest lag of the target behind a file that was followed.
    #[must_use]
    pub fn largest_lag(&self) -> Option<Lag> {
        self.stages.following.as_ref().and_then(|following| following.lag.largest.clone())
    }

    /// Takes the memory of followed files, with which another session of this run goes on.
    pub fn take_written(&mut self) -> Written {
        self.stages.following.as_mut().map(Following::take_written).unwrap_or_default()
    }

    /// Ends the streams; what was sent and not acknowledged is sent again by another session.
    pub fn stop(&mut self) {
        self.context.shared.spans.notify_all();
        self.context.shared.streams.stop();
        self.stages.in_order().for_each(|stage| stage.stop());
    }

    fn handle_events(&mut self, now: Instant) {
        loop {
            let Some(event) = lock(&self.context.shared.machine).poll_event() else { break };
            self.handle_event(event, now);
        }
        while let Some(failed) = self.context.failed_here.pop_front() {
            self.failed_here(failed, now);
        }
    }

    fn handle_event(&mut self, event: SenderEvent, now: Instant) {
        let context = &mut self.context;
        match event {
            SenderEvent::Resumed { file, bytes, span_bytes, earlier } => {
                self.stages.rereading.keep_earlier(file, span_bytes, earlier, context);
                self.resumed(file, bytes, span_bytes);
            }
            SenderEvent::StoredAs { file, name } => {
                if let Some(source) = lock(&context.shared.sources).get_mut(&file) {
                    source.stored_as = Some(Name(name));
                }
            }
            SenderEvent::Removed(names) => self.removed(names),
            SenderEvent::CheckSource(file) => self.stages.rereading.check_source(file, context),
            SenderEvent::SpanDamaged { .. } => context.tally.resent_spans += 1,
            SenderEvent::Lost { file, bytes } => {
                self.stages.taken_up.lost(&mut context.tally, file, bytes);
                self.stages.rereading.lost(file);
            }
            SenderEvent::StreamClosed(stream) => context.shared.streams.shut(stream),
            SenderEvent::Settled { file, outcome, source_failed } => {
                self.settled(Told { file, outcome, source_failed }, now);
            }
            SenderEvent::Progress(progress) => {
                // Nobody has more than there is, whatever he says.
                let tally = &mut context.tally;
                let received = progress.received_bytes.min(tally.offered_bytes);
                tally.received_bytes = tally.received_bytes.max(received);
                let durable = progress.durable_bytes.min(received);
                tally.durable_bytes = tally.durable_bytes.max(durable);
                let streams = progress.streams.into_iter();
                self.streams.watch.receiver = streams.map(|s| (s.stream, s)).collect();
            }
            SenderEvent::Notice(message::Notice { fault: Some(fault), .. }) => {
                context.tally.failed_files += 1;
                context.tell(Event::Error(Problem::of(&fault)));
            }
            SenderEvent::Notice(notice) => context.tell(Event::Fallback {
                side: Side::Target,
                from_to: printable(&notice.what),
                why: printable(&notice.why),
            }),
            SenderEvent::Finished(report) => self.peer_report = Some(report),
            SenderEvent::Refused(fault) => context.refuse(fault),
        }
    }

    /// Counts the bytes of a file that are there already; those of holes count apart, as they were
    /// never sent.
    fn resumed(&mut self, file: FileId, bytes: u64, span_bytes: u64) {
        let context = &mut self.context;
        let holes = lock(&context.shared.sources).get(&file).map_or(0, |source| {
            let offer = &source.entry.offer;
            let grid = SpanGrid::new(offer.size_bytes, span_bytes);
            grid.map_or(0, |grid| holes::bytes_within(&offer.holes, &grid)).min(bytes)
        });
        let following = self.stages.following.as_mut();
        let of_round = following.and_then(|f| f.resumed(file, bytes, span_bytes));
        let bytes = of_round.unwrap_or(bytes - holes);
        // What grows is counted by rounds.
        let of_file = of_round.is_none().then_some(file);
        self.stages.taken_up.add(&mut context.tally, of_file, bytes, holes);
        if bytes > 0 {
            let why = "these are at the target already".into();
            context.tell(Event::Resume { bytes, why });
        }
    }

    fn removed(&mut self, names: Vec<Vec<u8>>) {
        self.context.tally.removed_files += names.len() as u64;
        let status = self.context.file_options.removal_status();
        for name in names {
            self.context.tell(Event::File(FileEnded::new(name, status.clone(), 0)));
        }
    }

    /// Takes a part of the client's selection of files.
    fn take_selection(&mut self, part: message::Selection) -> Result<(), ProtocolError> {
        match self.sources.select(part)? {
            Ok(true) => self.stages.watching = self.sources.watching(self.context.file_options),
            Ok(false) => {}
            Err(fault) => self.context.refuse(fault),
        }
        Ok(())
    }

    /// Says goodbye once all is settled.
    fn finish(&mut self) {
        let context = &mut self.context;
        let is_over = self.offering.listed_all && lock(&context.shared.machine).all_settled();
        if context.finishing || !is_over {
            return;
        }
        context.finishing = true;
        self.stages.moving.remove_rest(context);
        self.streams.end(context);
        let report = self.report();
        lock(&self.context.shared.machine).finish(report);
    }
}

/// Completes the figures of a role's streams by those of the role itself.
fn of_role(
    of_streams: message::SideReport,
    throttled_ns: u64,
    sources_removed: u64,
) -> message::SideReport {
    message::SideReport { throttled_ns, sources_removed, ..of_streams }
}

impl Role for Sending<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        let is_told_only = matches!(message, Message::Progress(_) | Message::Notice(_));
        self.handled += u64::from(!is_told_only);
        match message {
            Message::Selection(part) => self.take_selection(part),
            Message::FileAnswer(answer) if !self.giving.allows(&answer) => Err(ProtocolError::new(
                "a receiver that may only list asked for a file or what it holds",
            )),
            message => lock(&self.context.shared.machine).handle(message),
        }
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.offer_files(now);
        self.handle_events(now);
        for stage in self.stages.in_order() {
            stage.tick(now, &mut self.context);
        }
        self.streams.tick(&mut self.context);
        // After the streams' events: a stream that closed may have let spans go.
        self.handle_events(now);
        self.offer_files(now);
        self.streams.watch(now, &mut self.context);
        self.context.shared.spans.notify_all();
        self.finish();
        // What verifies a span is a message, too.
        let (done, machine) = (self.handled, &self.context.shared.machine);
        self.patience.check(now, || (done, lock(machine).awaits()))?;
        if self.context.finishing && self.peer_report.is_some() {
            self.context.ended.get_or_insert(SessionEnd::Finished);
        }
        match self.context.ended.take() {
            Some(SessionEnd::Refused(fault)) if !self.context.finishing => Err(fault),
            Some(end) => Ok(Pumped::Ended(end)),
            None => Ok(Pumped::GoOn),
        }
    }

    fn heard(&mut self, at: Instant) {
        self.streams.watch.heard_at = at;
    }

    fn poll_message(&mut self) -> Option<Message> {
        let explained = self.streams.engines.take_explained();
        explained.or_else(|| lock(&self.context.shared.machine).poll_message())
    }

    /// Ends a watch when its user wants it to; it is complete when nothing is under way then.
    fn ends_in_order(&mut self, now: Instant) -> bool {
        let is_open = !self.context.finishing && self.has_open();
        let Some(watching) = self.stages.watching.as_mut().filter(|_| !is_open) else {
            return false;
        };
        watching.end().into_iter().for_each(|fault| self.context.source_failed(fault));
        let since = *self.interrupted_at.get_or_insert(now);
        self.streams.supply.connects() && now.saturating_duration_since(since) < GOODBYE_PATIENCE
    }

    fn moved_bytes(&self) -> u64 {
        self.context.shared.streams.moved_bytes()
    }

    /// Whether this side is a server: a client has no time to lose, and what it says at the end is
    /// for the server's log.
    fn has_last_word(&self) -> bool {
        !self.streams.supply.connects()
    }
}
