//! Data streams of a session that receives: opened, watched, replaced, given up.

use super::context::Context;
use crate::{
    events::Event,
    locks::lock,
    problem::Problem,
    problem::Side,
    session::{
        engine_orders::{Chosen, Engines},
        headway::{Carried, Cut},
        receiving::receive_spans,
        streams::{StreamError, StreamEvent, StreamFigures},
        supply::{Connect, Supply},
    },
    transport::segments,
};
use haul_protocol::{
    StreamId,
    frame::HEADER_BYTES,
    message::{self, Fault, FaultCode},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Interval of the look whether any span is to come, which asks all open files.
const LACKS_EVERY: Duration = Duration::from_millis(100);

/// The data streams of a role that receives, and the engines they receive with.
pub(super) struct DataStreams {
    pub supply: Supply,
    /// The engines, chosen at the first regular file for all streams.
    pub engines: Engines,
    pub forced_engine: Option<String>,
    stall_after: Duration,
    stillness: Stillness,
    damage_told: bool,
    /// The sender's streams wait for the network, as far as it told.
    network_holds_sender: bool,
}

impl DataStreams {
    pub fn new(supply: Supply, forced_engine: Option<String>, stall_after: Duration) -> Self {
        Self {
            supply,
            engines: Engines::new(Side::Target),
            forced_engine,
            stall_after,
            stillness: Stillness::new(Instant::now()),
            damage_told: false,
            network_holds_sender: false,
        }
    }

    /// Opens the streams that are due, and handles the events of all.
    pub fn tick(&mut self, context: &mut Context<'_>) {
        self.open(context);
        self.handle_events(context);
    }

    /// Watches the streams and the disk. `is_reading`: some file is being read here.
    pub fn watch(&mut self, is_reading: bool, now: Instant, context: &mut Context<'_>) {
        self.watch_streams(is_reading, now, context);
        self.watch_disk(now, context);
    }

    fn open(&mut self, context: &Context<'_>) {
        // The first bytes of a stream may overtake the offers that its engine is chosen by.
        if self.engines.chosen.is_none() && !self.supply.connects() {
            return;
        }
        for (stream, connect) in self.supply.next(context.wants_streams) {
            self.spawn(stream, connect, context);
        }
    }

    fn spawn(&self, stream: StreamId, connect: Connect, context: &Context<'_>) {
        let shared = context.shared.clone();
        let chosen = self.engines.chosen.clone().unwrap_or_else(|| Arc::new(Chosen::last_resort()));
        context.shared.streams.spawn(stream, connect, move |socket, figures| {
            lock(&shared.machine).stream_opened(stream)?;
            receive_spans::run(&shared, stream, socket, &chosen, figures)
        });
    }

    fn handle_events(&mut self, context: &mut Context<'_>) {
        for event in context.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let change = self.engines.change(None, stream, from_to, why);
                    context.tell_change(change);
                }
                StreamEvent::Violated { why } => {
                    let what = "a data stream broke the protocol and was closed";
                    let fault = Fault::new(FaultCode::ProtocolViolation, message::Side::Path, what);
                    context.tell(Event::Error(Problem::of(&fault.found(why.what))));
                }
                StreamEvent::Ended { stream, why: Some(StreamError::Renewal), .. } => {
                    self.stillness.seen.remove(&stream);
                    lock(&context.shared.machine).stream_closed(stream);
                    self.renew(context);
                }
                StreamEvent::Ended { stream, why, carried, in_span } => {
                    self.stillness.seen.remove(&stream);
                    lock(&context.shared.machine).stream_closed(stream);
                    if !context.finishing && !context.shared.streams.stopping() {
                        let why = why.map(|why| why.to_string());
                        self.replace(why.as_deref(), carried, in_span, context);
                    }
                }
            }
        }
        self.tell_damage(context);
        let failed = std::mem::take(&mut *lock(&context.shared.failed));
        for (file, fault) in failed {
            context.fail(file, fault);
        }
    }

    /// Tells once, in a server's log, that a span was damaged or forged; a client's report counts
    /// it.
    fn tell_damage(&mut self, context: &mut Context<'_>) {
        let is_damaged = context.shared.damaged_spans.load(Ordering::Relaxed) > 0;
        if is_damaged && !self.damage_told && !self.supply.connects() {
            self.damage_told = true;
            let what = "a span arrived damaged or forged; it is asked for again";
            let fault = Fault::new(FaultCode::DataDamaged, message::Side::Path, what);
            context.tell(Event::Error(Problem::of(&fault)));
        }
    }

    /// Opens another stream, with another key, in place of one that ended for its key's sake.
    fn renew(&self, context: &Context<'_>) {
        if context.finishing || context.shared.streams.stopping() {
            return;
        }
        if let Some((stream, connect)) = self.supply.renew() {
            self.spawn(stream, connect, context);
        }
    }

    /// Opens another stream in place of one that broke, where this side is the client.
    fn replace(
        &mut self,
        why: Option<&str>,
        carried: Carried,
        at_work: bool,
        context: &mut Context<'_>,
    ) {
        // After an orderly end the sender has nothing more to send.
        let Some(why) = why else { return };
        self.watch_headway(context);
        let others = context.shared.streams.open();
        let others = others.iter().filter(|(_, figures)| figures.in_span);
        let oldest_at_work = others.filter_map(|(_, figures)| figures.opened_at).min();
        match self.supply.replace(why, &Cut { carried, at_work, oldest_at_work }) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect, context),
            Ok(None) => {}
            Err(end) => context.ended = Some(end),
        }
    }

    /// Gives up all streams, as nothing comes on any of them though files are open.
    fn give_up_all(
        &mut self,
        open: &[(StreamId, StreamFigures)],
        still: Duration,
        context: &mut Context<'_>,
    ) {
        let on_storage = open.iter().any(|(_, figures)| figures.on_storage());
        let (stage, what) = if on_storage {
            ("target_disk", "what arrived waits for this host's disk; waiting on")
        } else {
            ("network", "nothing arrives on any stream; opening others")
        };
        self.tell_stall((stage, what), still, context);
        if !on_storage {
            open.iter().for_each(|(stream, _)| context.shared.streams.shut(*stream));
            // They ended as if all had come: nobody signs that, and it has not.
            if open.is_empty() {
                let why = "every stream ended before all had come";
                self.replace(Some(why), Carried::default(), true, context);
            }
        }
    }

    fn tell_stall(
        &mut self,
        words: (&'static str, &str),
        still: Duration,
        context: &mut Context<'_>,
    ) {
        let told = self.supply.stall(words, still, context.tally.headway());
        told.into_iter().for_each(|event| context.tell(event));
    }

    /// Tells the supply of progress: a span verified, as bytes that move only show that a stream
    /// lives.
    fn watch_headway(&mut self, context: &mut Context<'_>) {
        context.tally.verified_bytes = context.shared.verified_bytes.load(Ordering::Relaxed);
        let has_files = lock(&context.shared.machine).has_open_files();
        self.supply.watch_headway(context.tally.headway(), has_files);
    }

    /// Takes the times of the server's streams by stage, as it told them.
    pub fn heard_figures(&mut self, figures: &message::Figures) {
        self.network_holds_sender = network_holds(figures);
    }

    /// Reopens streams where the server sends and nothing arrives on any, not even the first
    /// segment: the packets may be too large for the path.
    fn reopen_where_nothing_arrives(
        &mut self,
        open: &[(StreamId, StreamFigures)],
        now: Instant,
        context: &mut Context<'_>,
    ) {
        for (_, figures) in open {
            if let Some(event) = self.supply.narrowed(&figures.tcp) {
                context.tell(event);
            }
        }
        let is_suspect = self.network_holds_sender && context.wants_streams;
        if is_suspect && have_brought_nothing(open, now) {
            let vanish = open.iter().filter(|(_, figures)| self.supply.swallows(&figures.tcp));
            vanish.for_each(|(stream, _)| context.shared.streams.shut(*stream));
        }
    }

    /// Gives up a stream in the middle of a span that brings nothing; when nothing comes on any
    /// stream though files are open, all are given up.
    fn watch_streams(&mut self, is_reading: bool, now: Instant, context: &mut Context<'_>) {
        if !self.supply.connects() || context.finishing {
            return;
        }
        self.watch_headway(context);
        let stall_after = self.supply.stall_after(now, self.stall_after);
        let open = context.shared.streams.open();
        self.reopen_where_nothing_arrives(&open, now, context);
        // Files that are being compared wait for this host's disk, and what is read back from it
        // needs nothing from the wire. What is whole waits for a word of the sender, which may read
        // its source once more, or for a sync.
        let reads = is_reading || context.shared.committer.is_reading_back();
        let lacks_spans = || lock(&context.shared.machine).lacks_spans();
        let stalled = match self.stillness.look(now, &open, stall_after, reads, lacks_spans) {
            Still::All(still) => return self.give_up_all(&open, still, context),
            Still::These(stalled) => stalled,
        };
        for (stream, still, on_storage) in stalled {
            let (stage, what) = if on_storage {
                ("target_disk", "what arrived waits for this host's disk; waiting on")
            } else {
                ("network", "nothing arrives on a stream; opening another")
            };
            self.tell_stall((stage, what), still, context);
            if !on_storage {
                context.shared.streams.shut(stream);
            }
        }
    }
}

/// Streams on which nothing comes, though something should.
#[derive(Debug, PartialEq, Eq)]
enum Still {
    /// None brought anything for so long.
    All(Duration),
    /// Streams that brought nothing for so long in the middle of a span, and whether what arrived
    /// on each waits for this host's disk.
    These(Vec<(StreamId, Duration, bool)>),
}

/// Memory of when streams last brought something.
struct Stillness {
    /// Bytes that each stream had brought, and the time when they last grew.
    seen: BTreeMap<StreamId, (u64, Instant)>,
    all_seen: (u64, Instant),
    /// Whether spans were to come, and when that was looked at.
    lacks_spans: (bool, Option<Instant>),
}

impl Stillness {
    fn new(now: Instant) -> Self {
        Self { seen: BTreeMap::new(), all_seen: (0, now), lacks_spans: (false, None) }
    }

    /// Looks which streams brought nothing for longer than `stall_after`; each is told once for
    /// every such time. `reads`: this side is busy with its disk. `lacks_spans`: spans are to come.
    fn look(
        &mut self,
        now: Instant,
        open: &[(StreamId, StreamFigures)],
        stall_after: Duration,
        reads: bool,
        lacks_spans: impl FnOnce() -> bool,
    ) -> Still {
        let total: u64 = open.iter().map(|(_, figures)| figures.tcp.bytes_received).sum();
        if self.lacks_spans.1.is_none_or(|at| now.saturating_duration_since(at) >= LACKS_EVERY) {
            self.lacks_spans = (lacks_spans(), Some(now));
        }
        if total != self.all_seen.0 || !self.lacks_spans.0 || reads {
            self.all_seen = (total, now);
        }
        let still = now.saturating_duration_since(self.all_seen.1);
        if still > stall_after {
            self.all_seen.1 = now;
            return Still::All(still);
        }
        let mut stalled = Vec::new();
        for (stream, figures) in open {
            let moved = figures.tcp.bytes_received;
            let entry = self.seen.entry(*stream).or_insert((moved, now));
            if entry.0 != moved || !figures.in_span {
                *entry = (moved, now);
            }
            let still = now.saturating_duration_since(entry.1);
            if still > stall_after {
                stalled.push((*stream, still, figures.on_storage()));
                entry.1 = now;
            }
        }
        Still::These(stalled)
    }
}

/// Whether a sender's streams wait for the network most of the time, as far as it told.
fn network_holds(figures: &message::Figures) -> bool {
    let of_network = [
        message::Stage::SendCongestionWindow,
        message::Stage::SendReceiverWindow,
        message::Stage::SendBuffer,
    ];
    let sum_ns = |stages: &[message::Stage]| -> u64 {
        let of_stages = figures.stages.iter().filter(|time| stages.contains(&time.stage));
        of_stages.map(|time| time.ns).sum()
    };
    // Several streams may share one span's wait: those without work are idle.
    let busy_ns = figures.streams_ns.saturating_sub(sum_ns(&[message::Stage::Idle]));
    sum_ns(&of_network) > busy_ns / 2
}

/// Whether no stream has brought more than a header, though each was opened a while ago.
fn have_brought_nothing(open: &[(StreamId, StreamFigures)], now: Instant) -> bool {
    let waits = |figures: &StreamFigures| {
        let opened = figures.opened_at.map(|at| now.saturating_duration_since(at));
        figures.tcp.bytes_received <= HEADER_BYTES as u64 && opened >= Some(segments::NOTHING_AFTER)
    };
    !open.is_empty() && open.iter().all(|(_, figures)| waits(figures))
}

#[cfg(test)]
mod tests;
