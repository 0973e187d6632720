//! Data streams of a session that sends: opened, watched, replaced, given up.

use super::{context::Context, loss::LossWatch};
use crate::{
    locks::lock,
    session::{
        engine_orders::{Chosen, Engines},
        headway::{Carried, Cut},
        listening::SILENT_AFTER_PING,
        sending::send_spans,
        streams::{self, StreamEvent},
        supply::{Connect, Supply},
    },
};
use haul_protocol::{StreamId, message::StreamProgress};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest wait for the streams to say their orderly end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The data streams of a role that sends, and the engines they send with.
pub(super) struct DataStreams {
    pub supply: Supply,
    /// The engines, chosen at the first regular file for all streams.
    pub engines: Engines,
    pub forced_engine: Option<String>,
    pub loss: LossWatch,
    pub watch: Watch,
}

/// Times at which each stream last got something through.
pub(super) struct Watch {
    pub stall_after: Duration,
    /// Time when the receiver last said anything.
    pub heard_at: Instant,
    pub receiver: BTreeMap<StreamId, StreamProgress>,
    seen: BTreeMap<StreamId, (u64, Instant)>,
    /// Streams that were given up and have not ended yet.
    stalled: BTreeSet<StreamId>,
}

impl Watch {
    pub fn new(stall_after: Duration, now: Instant) -> Self {
        Self {
            stall_after,
            heard_at: now,
            receiver: BTreeMap::new(),
            seen: BTreeMap::new(),
            stalled: BTreeSet::new(),
        }
    }
}

impl DataStreams {
    /// Opens the streams that are due, and handles the events of all.
    pub fn tick(&mut self, context: &mut Context<'_>) {
        self.open(context);
        self.handle_events(context);
    }

    /// Looks at the streams, the disk and the path.
    pub fn watch(&mut self, now: Instant, context: &mut Context<'_>) {
        self.watch_stalls(now, context);
        self.watch_disk(now, context);
        self.watch_loss(now, context);
    }

    fn open(&mut self, context: &Context<'_>) {
        // As soon as there is something to send, if it is wanted: by then the streams are there.
        let wanted = self.engines.chosen.is_some();
        for (stream, connect) in self.supply.next(wanted) {
            self.spawn(stream, connect, context);
        }
    }

    fn spawn(&self, stream: StreamId, connect: Connect, context: &Context<'_>) {
        let shared = context.shared.clone();
        let chosen = self.engines.chosen.clone().unwrap_or_else(|| Arc::new(Chosen::last_resort()));
        let set_up = context.shared.setup.clone();
        context.shared.streams.spawn(
            stream,
            move || {
                let socket = connect()?;
                streams::set_up_sender(&socket, &set_up);
                Ok(socket)
            },
            move |socket, figures| {
                lock(&shared.machine).stream_opened(stream)?;
                send_spans::run(&shared, stream, socket, &chosen, figures)
            },
        );
    }

    fn handle_events(&mut self, context: &mut Context<'_>) {
        for event in context.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let change = self.engines.change(None, stream, from_to, why);
                    context.tell_change(change);
                }
                // A sender reads nothing of its streams.
                StreamEvent::Violated { .. } => {}
                StreamEvent::Ended { stream, why, carried, .. } => {
                    self.watch.seen.remove(&stream);
                    if context.finishing || context.shared.streams.stopping() {
                        continue;
                    }
                    let why = why.map_or_else(|| "it was closed".into(), |why| why.to_string());
                    let at_work = self.watch.stalled.remove(&stream)
                        || lock(&context.shared.machine).awaits_acknowledgement(stream);
                    lock(&context.shared.machine).drop_stream(stream, &why);
                    self.replace(&why, (carried, at_work), context);
                }
            }
        }
    }

    fn replace(
        &mut self,
        why: &str,
        (carried, at_work): (Carried, bool),
        context: &mut Context<'_>,
    ) {
        self.watch_headway(context);
        let others = context.shared.streams.open();
        let machine = lock(&context.shared.machine);
        let others = others.iter().filter(|(stream, _)| machine.awaits_acknowledgement(*stream));
        let oldest_at_work = others.filter_map(|(_, figures)| figures.opened_at).min();
        drop(machine);
        match self.supply.replace(why, &Cut { carried, at_work, oldest_at_work }) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect, context),
            Ok(None) => {}
            Err(end) => context.ended = Some(end),
        }
    }

    /// Stops the streams and waits for their orderly end.
    pub fn end(&self, context: &Context<'_>) {
        context.shared.streams.request_stop();
        // With the lock held in between, no stream misses the notice.
        drop(lock(&context.shared.machine));
        context.shared.spans.notify_all();
        context.shared.streams.join_within(END_PATIENCE);
    }

    /// Tells the supply of progress: a span verified, as bytes that move only show that a stream
    /// lives.
    fn watch_headway(&mut self, context: &mut Context<'_>) {
        let machine = lock(&context.shared.machine);
        context.tally.verified_bytes = machine.verified_bytes();
        let has_files = machine.has_files();
        drop(machine);
        self.supply.watch_headway(context.tally.headway(), has_files);
    }

    /// Gives up streams that have something under way and get nothing through.
    fn watch_stalls(&mut self, now: Instant, context: &mut Context<'_>) {
        if context.finishing {
            return;
        }
        self.watch_headway(context);
        let stall_after = self.supply.stall_after(now, self.watch.stall_after);
        // What a receiver said before it fell silent says nothing of now.
        let is_heard = now.saturating_duration_since(self.watch.heard_at) < SILENT_AFTER_PING;
        let mut stalled = Vec::new();
        for (stream, figures) in context.shared.streams.open() {
            if figures.hung_up {
                lock(&context.shared.machine).drop_stream(stream, "reset");
                context.shared.streams.shut(stream);
                context.shared.spans.notify_all();
                continue;
            }
            if let Some(event) = self.supply.narrowed(&figures.tcp) {
                context.tell(event);
            }
            if self.supply.swallows_sent(&figures.tcp) {
                lock(&context.shared.machine).drop_stream(stream, "its first segments vanish");
                context.shared.streams.shut(stream);
                continue;
            }
            let received = self.watch.receiver.get(&stream);
            let moved =
                figures.tcp.bytes_acked.saturating_add(received.map_or(0, |r| r.received_bytes));
            let entry = self.watch.seen.entry(stream).or_insert((moved, now));
            let waits = lock(&context.shared.machine).awaits_acknowledgement(stream);
            if entry.0 != moved || !waits {
                *entry = (moved, now);
            }
            let still = now.saturating_duration_since(entry.1);
            if still > stall_after {
                stalled.push((stream, still, is_heard && received.is_some_and(|r| r.on_storage)));
                entry.1 = now;
            }
        }
        for (stream, still, on_storage) in stalled {
            let (stage, what) = if on_storage {
                ("target_disk", "the receiver waits for its disk; waiting on")
            } else {
                ("network", "nothing arrives on a stream; opening another")
            };
            let told = self.supply.stall((stage, what), still, context.tally.headway());
            told.into_iter().for_each(|event| context.tell(event));
            if !on_storage {
                // Its spans go to others at once, and it ends later: it was at work all the same.
                self.watch.stalled.insert(stream);
                lock(&context.shared.machine).drop_stream(stream, "stalled");
                context.shared.streams.shut(stream);
            }
        }
    }
}
