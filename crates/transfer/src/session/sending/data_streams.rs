//! The data streams of a session that sends: opened, their events, replaced, given up.

use super::{END_PATIENCE, Sending};
use crate::{
    locks::lock,
    session::{
        engines::Chosen,
        headway::{Carried, Cut},
        listening::SILENT_AFTER_PING,
        send_stream,
        streams::{self, StreamEvent},
        supply::Connect,
    },
};
use haul_protocol::StreamId;
use std::{sync::Arc, time::Instant};

impl Sending<'_> {
    pub(super) fn open_streams(&mut self) {
        // As soon as there is something to send, if it is wanted: by then the streams are there.
        let wanted = self.engines.chosen.is_some();
        for (stream, connect) in self.supply.next(wanted) {
            self.spawn(stream, connect);
        }
    }

    pub(super) fn spawn(&self, stream: StreamId, connect: Connect) {
        let shared = self.shared.clone();
        let chosen = self.engines.chosen.clone().unwrap_or_else(|| Arc::new(Chosen::last_resort()));
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
                send_stream::run(&shared, stream, socket, &chosen, figures)
            },
        );
    }

    pub(super) fn handle_stream_events(&mut self) {
        for event in self.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let change = self.engines.change(None, stream, from_to, why);
                    self.tell_change(change);
                }
                // A sender reads nothing of its streams.
                StreamEvent::Violated { .. } => {}
                StreamEvent::Ended { stream, why, carried, .. } => {
                    self.watch.seen.remove(&stream);
                    if self.finishing || self.shared.streams.stopping() {
                        continue;
                    }
                    let why = why.unwrap_or_else(|| "it was closed".into());
                    let at_work = self.watch.stalled.remove(&stream)
                        || lock(&self.shared.machine).awaits_acknowledgement(stream);
                    lock(&self.shared.machine).drop_stream(stream, &why);
                    self.replace_stream(&why, carried, at_work);
                }
            }
        }
    }

    pub(super) fn replace_stream(&mut self, why: &str, carried: Carried, at_work: bool) {
        self.watch_headway();
        let others = self.shared.streams.open();
        let machine = lock(&self.shared.machine);
        let others = others.iter().filter(|(stream, _)| machine.awaits_acknowledgement(*stream));
        let oldest_at_work = others.filter_map(|(_, figures)| figures.opened_at).min();
        drop(machine);
        match self.supply.replace(why, &Cut { carried, at_work, oldest_at_work }) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect),
            Ok(None) => {}
            Err(end) => self.ended = Some(end),
        }
    }

    /// Lets the streams say their orderly end.
    pub(super) fn end_streams(&self) {
        self.shared.streams.request_stop();
        // With the lock held in between, no stream misses the notice.
        drop(lock(&self.shared.machine));
        self.shared.spans.notify_all();
        self.shared.streams.join_within(END_PATIENCE);
    }

    /// Progress is a span verified; bytes that move only show that a stream lives.
    pub(super) fn watch_headway(&mut self) {
        let machine = lock(&self.shared.machine);
        self.tally.verified_bytes = machine.verified_bytes();
        let has_files = machine.has_files();
        drop(machine);
        self.supply.watch_headway(self.tally.headway(), has_files);
    }

    /// A stream that has something under way and gets nothing through is given up.
    pub(super) fn watch_streams(&mut self, now: Instant) {
        if self.finishing {
            return;
        }
        self.watch_headway();
        let stall_after = self.supply.stall_after(now, self.watch.stall_after);
        // What a receiver said before it fell silent says nothing of now.
        let is_heard = now.saturating_duration_since(self.watch.heard_at) < SILENT_AFTER_PING;
        let mut stalled = Vec::new();
        for (stream, figures) in self.shared.streams.open() {
            if figures.hung_up {
                lock(&self.shared.machine).drop_stream(stream, "reset");
                self.shared.streams.shut(stream);
                self.shared.spans.notify_all();
                continue;
            }
            if let Some(event) = self.supply.narrowed(&figures.tcp) {
                (self.events)(event);
            }
            if self.supply.swallows_sent(&figures.tcp) {
                lock(&self.shared.machine).drop_stream(stream, "its first segments vanish");
                self.shared.streams.shut(stream);
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
            let told = self.supply.stall((stage, what), still, self.tally.headway());
            told.into_iter().for_each(|event| (self.events)(event));
            if !on_storage {
                // Its spans go to others at once, and it ends later: it was at work all the same.
                self.watch.stalled.insert(stream);
                lock(&self.shared.machine).drop_stream(stream, "stalled");
                self.shared.streams.shut(stream);
            }
        }
    }
}
