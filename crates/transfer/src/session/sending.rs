//! The sending role of a session: lists and offers files, feeds the streams, confirms the sources.

use super::{
    EventSink, OfferLimits, Pumped, Role, SessionEnd, Tally, lock,
    send_stream::{self, SendShared, Source},
    streams::{self, StreamEvent, StreamSetup, Streams},
    supply::{self, Connect, Supply, fallback_notice},
};
use crate::{
    events::{Event, FileEnded, FileStatus, Name, Problem, Side},
    stages,
    storage::{source::SourceEntry, walk::Walk},
};
use haul_datapath::{EngineInfo, WireKind, choose};
use haul_host::FileSystem;
use haul_protocol::{
    FileId, Message, ProtocolError, Sender, SenderEvent, StreamId,
    name::check_relative_name,
    sender::FileOutcome,
    wire::{self, Fault, FaultCode, FileKind},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// Offered at a time, before what came in meanwhile is looked at.
const OFFERS_A_PUMP: usize = 256;
/// How long the streams may take to say their orderly end.
const END_PATIENCE: Duration = Duration::from_secs(2);

pub struct Sending<'a> {
    shared: Arc<SendShared>,
    walk: Walk,
    supply: Supply,
    events: EventSink<'a>,
    pub tally: Tally,
    pub peer_report: Option<wire::SideReport>,
    /// Chosen at the first regular file, for all streams.
    engines: Option<(Vec<&'static EngineInfo>, String)>,
    forced_engine: Option<String>,
    listed_all: bool,
    finishing: bool,
    ended: Option<SessionEnd>,
    watch: Watch,
}

/// When each stream last got something through.
struct Watch {
    stall_after: Duration,
    seen: BTreeMap<StreamId, (u64, Instant)>,
    receiver: BTreeMap<StreamId, wire::StreamProgress>,
}

impl<'a> Sending<'a> {
    pub fn new(
        walk: Walk,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: supply::Source,
        options: SendingOptions,
        events: EventSink<'a>,
    ) -> Self {
        let supply = Supply::new(source, streams.clone(), setup.clone());
        let shared = Arc::new(SendShared {
            machine: Mutex::new(Sender::new(options.offers.files, options.offers.bytes)),
            spans: Condvar::new(),
            sources: Mutex::default(),
            streams,
            setup,
        });
        Self {
            shared,
            walk,
            supply,
            events,
            tally: Tally::default(),
            peer_report: None,
            engines: None,
            forced_engine: options.engine,
            listed_all: false,
            finishing: false,
            ended: None,
            watch: Watch {
                stall_after: options.stall_after,
                seen: BTreeMap::new(),
                receiver: BTreeMap::new(),
            },
        }
    }

    /// What this side found out, for the report.
    #[must_use]
    pub fn report(&self) -> wire::SideReport {
        let because = self.engines.as_ref().map_or(String::new(), |(_, because)| because.clone());
        let congestion = &self.shared.setup.congestion.because;
        let because =
            if because.is_empty() { String::new() } else { format!("{because}; {congestion}") };
        stages::sender_report(&self.shared.streams.all_figures(), because)
    }

    /// Tells this side's user something.
    pub fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// Ends the streams; what was sent and not acknowledged is sent again by another session.
    pub fn stop(&mut self) {
        self.shared.spans.notify_all();
        self.shared.streams.stop();
    }

    /// Lets the streams say their orderly end.
    fn end_streams(&self) {
        self.shared.streams.request_stop();
        // With the lock held in between, no stream misses the notice.
        drop(lock(&self.shared.machine));
        self.shared.spans.notify_all();
        self.shared.streams.join_within(END_PATIENCE);
    }

    fn offer_files(&mut self) {
        for _ in 0..OFFERS_A_PUMP {
            if self.listed_all || !lock(&self.shared.machine).may_offer() {
                return;
            }
            match self.walk.next() {
                None => {
                    self.listed_all = true;
                    let (files, bytes) = (self.tally.offered_files, self.tally.offered_bytes);
                    lock(&self.shared.machine).end_offers(files, bytes);
                }
                Some(Err(fault)) => {
                    self.unlisted(fault);
                }
                Some(Ok(entry)) => match check_relative_name(&entry.offer.name) {
                    Ok(()) => self.offer(entry),
                    Err(why) => {
                        let what = "cannot be offered under this name";
                        let fault = Fault::new(FaultCode::NameRefused, wire::Side::Source, what);
                        self.unlisted(fault.at(entry.offer.name).found(why));
                    }
                },
            }
        }
        // There is more: come back at once.
        self.shared.streams.wake();
    }

    /// A source that could not be offered: both sides' users read of it.
    fn unlisted(&mut self, fault: Fault) {
        self.tally.failed_files += 1;
        (self.events)(Event::Error((&fault).into()));
        self.tally.first_problem.get_or_insert_with(|| (&fault).into());
        let notice = wire::Notice { fault: Some(fault), ..wire::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    fn offer(&mut self, entry: SourceEntry) {
        if self.engines.is_none()
            && entry.offer.kind() == FileKind::Regular
            && entry.offer.size_bytes > 0
        {
            match self.choose_engines(&entry) {
                Ok(choice) => self.engines = Some(choice),
                Err(fault) => self.ended = Some(SessionEnd::Refused(fault)),
            }
        }
        self.tally.offered_files += 1;
        self.tally.offered_bytes += entry.offer.size_bytes;
        let file = lock(&self.shared.machine).offer(entry.offer.clone());
        lock(&self.shared.sources).insert(file, Source::new(entry));
    }

    /// By the first file of some size, as the others are like it more often than not.
    fn choose_engines(
        &self,
        entry: &SourceEntry,
    ) -> Result<(Vec<&'static EngineInfo>, String), Fault> {
        let setup = &self.shared.setup;
        let opened = entry.open().ok();
        let is_zero = matches!(entry.location, crate::storage::source::Location::Zero);
        let file = opened.as_ref().filter(|_| !is_zero).map(|file| file.file());
        let resident_share = file.map_or(1.0, |file| {
            let size = entry.offer.size_bytes;
            let cached = haul_sys::cachestat::cached_bytes(file, 0, size).unwrap_or(size);
            cached as f64 / size.max(1) as f64
        });
        let facts = choose::SendFacts {
            host: &setup.host,
            wire: WireKind::Tcp,
            file_system: file.and_then(|file| FileSystem::of(file).ok()).map(|fs| fs.kind),
            size_bytes: entry.offer.size_bytes,
            resident_share,
            digest: setup.digest != wire::Digest::None,
            forced: self.forced_engine.as_deref(),
        };
        choose::send_engine(&facts).map(|choice| (choice.candidates, choice.because)).map_err(
            |error| Fault::new(FaultCode::EngineRefused, wire::Side::Source, error.to_string()),
        )
    }

    fn open_streams(&mut self) {
        // As soon as there is something to send, if it is wanted: by then the streams are there.
        let wanted = self.engines.is_some();
        for (stream, connect) in self.supply.next(wanted) {
            self.spawn(stream, connect);
        }
    }

    fn spawn(&self, stream: StreamId, connect: Connect) {
        let shared = self.shared.clone();
        let candidates = self.engines.as_ref().map(|(engines, _)| engines.clone());
        let candidates =
            candidates.unwrap_or_else(|| vec![&haul_datapath::engines::read_write::INFO]);
        let set_up = self.shared.setup.clone();
        self.shared.streams.spawn(
            stream,
            move || {
                let socket = connect()?;
                streams::set_up_sender(&socket, &set_up);
                Ok(socket)
            },
            move |socket, figures| {
                lock(&shared.machine).stream_opened(stream).map_err(|error| error.what)?;
                send_stream::run(&shared, stream, socket, candidates, figures)
            },
        );
    }

    fn handle_stream_events(&mut self) {
        for event in self.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let notice = fallback_notice(stream, &from_to, &why);
                    lock(&self.shared.machine).notice(notice);
                    (self.events)(Event::Fallback { side: Side::Source, from_to, why });
                }
                StreamEvent::Ended { stream, why } => {
                    self.watch.seen.remove(&stream);
                    if self.finishing || self.shared.streams.stopping() {
                        continue;
                    }
                    let why = why.unwrap_or_else(|| "it was closed".into());
                    lock(&self.shared.machine).drop_stream(stream, &why);
                    self.replace_stream(&why);
                }
            }
        }
    }

    fn replace_stream(&mut self, why: &str) {
        match self.supply.replace(why) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect),
            Ok(None) => {}
            Err(end) => self.ended = Some(end),
        }
        self.tally.reconnections = self.supply.reconnections;
    }

    fn handle_events(&mut self) {
        loop {
            let Some(event) = lock(&self.shared.machine).poll_event() else { break };
            match event {
                SenderEvent::Resumed { bytes, .. } => {
                    self.tally.resumed_bytes += bytes;
                    let why = "an earlier run left them at the target, verified".into();
                    (self.events)(Event::Resume { bytes, why });
                }
                SenderEvent::CheckSource(file) => self.check_source(file),
                SenderEvent::SpanDamaged { .. } => self.tally.resent_spans += 1,
                SenderEvent::StreamClosed(stream) => self.shared.streams.shut(stream),
                SenderEvent::Settled { file, outcome } => self.settled(file, outcome),
                SenderEvent::Progress(progress) => {
                    // Nobody has more than there is, whatever he says.
                    let received = progress.received_bytes.min(self.tally.offered_bytes);
                    let durable = progress.durable_bytes.min(received);
                    if received > self.tally.received_bytes {
                        self.supply.works();
                    }
                    self.tally.received_bytes = self.tally.received_bytes.max(received);
                    self.tally.durable_bytes = self.tally.durable_bytes.max(durable);
                    self.watch.receiver =
                        progress.streams.into_iter().map(|s| (StreamId(s.stream), s)).collect();
                }
                SenderEvent::Notice(notice) => (self.events)(Event::Fallback {
                    side: Side::Target,
                    from_to: notice.what,
                    why: notice.why,
                }),
                SenderEvent::Finished(report) => self.peer_report = Some(report),
                SenderEvent::Refused(fault) => self.ended = Some(SessionEnd::Refused(fault)),
            }
        }
    }

    fn check_source(&mut self, file: FileId) {
        let entry = lock(&self.shared.sources).get(&file).map(|source| source.entry.clone());
        let checked = entry.map_or(Ok(()), |entry| entry.check());
        lock(&self.shared.machine).source_checked(file, checked);
    }

    fn settled(&mut self, file: FileId, outcome: FileOutcome) {
        let Some(source) = lock(&self.shared.sources).remove(&file) else { return };
        let offer = source.entry.offer;
        let bytes = offer.size_bytes;
        let status = match &outcome {
            FileOutcome::Done => {
                self.tally.done_files += 1;
                self.tally.done_bytes += bytes;
                FileStatus::Done
            }
            FileOutcome::Skipped => {
                self.tally.skipped_files += 1;
                self.tally.skipped_bytes += bytes;
                FileStatus::Skipped
            }
            FileOutcome::Failed(fault) => {
                self.tally.failed_files += 1;
                (self.events)(Event::Error(Problem::of_file(fault, &offer.name)));
                FileStatus::Failed
            }
        };
        (self.events)(Event::File(FileEnded { path: Name(offer.name), status, bytes }));
    }

    /// A stream that has something under way and gets nothing through is given up.
    fn watch_streams(&mut self, now: Instant) {
        if self.finishing {
            return;
        }
        let mut stalled = Vec::new();
        for (stream, figures) in self.shared.streams.open() {
            if figures.hung_up {
                lock(&self.shared.machine).drop_stream(stream, "reset");
                self.shared.streams.shut(stream);
                self.shared.spans.notify_all();
                continue;
            }
            let received = self.watch.receiver.get(&stream);
            let moved =
                figures.tcp.bytes_acked.saturating_add(received.map_or(0, |r| r.received_bytes));
            let entry = self.watch.seen.entry(stream).or_insert((moved, now));
            let waits = lock(&self.shared.machine).awaits_acknowledgement(stream);
            if entry.0 != moved || !waits {
                *entry = (moved, now);
            }
            let still = now.saturating_duration_since(entry.1);
            if still > self.watch.stall_after {
                stalled.push((stream, still, received.is_some_and(|r| r.on_storage)));
                entry.1 = now;
            }
        }
        for (stream, still, on_storage) in stalled {
            let (stage, what) = if on_storage {
                ("target_disk", "the receiver waits for its disk; waiting on")
            } else {
                ("network", "nothing arrives on a stream; opening another")
            };
            let seconds = still.as_secs_f64();
            (self.events)(Event::Stall { stage: stage.into(), seconds, what: what.into() });
            if !on_storage {
                lock(&self.shared.machine).drop_stream(stream, "stalled");
                self.shared.streams.shut(stream);
            }
        }
    }
}

/// What a sending role is told beside its sources and streams.
pub struct SendingOptions {
    pub offers: OfferLimits,
    pub stall_after: Duration,
    pub engine: Option<String>,
}

impl Role for Sending<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        lock(&self.shared.machine).handle(message)
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.offer_files();
        self.handle_events();
        self.open_streams();
        self.handle_stream_events();
        // After the streams' events: a stream that closed may have let spans go.
        self.handle_events();
        self.offer_files();
        self.watch_streams(now);
        self.shared.spans.notify_all();
        if !self.finishing && self.listed_all && lock(&self.shared.machine).all_settled() {
            self.finishing = true;
            self.end_streams();
            let report = self.report();
            lock(&self.shared.machine).finish(report);
        }
        if self.finishing && self.peer_report.is_some() {
            self.ended.get_or_insert(SessionEnd::Finished);
        }
        match self.ended.take() {
            Some(SessionEnd::Refused(fault)) if !self.finishing => Err(fault),
            Some(end) => Ok(Pumped::Ended(end)),
            None => Ok(Pumped::GoOn),
        }
    }

    fn poll_message(&mut self) -> Option<Message> {
        lock(&self.shared.machine).poll_message()
    }

    /// A client has no time to lose, and what it says at the end is for the server's log.
    fn has_last_word(&self) -> bool {
        !self.supply.connects()
    }
}
