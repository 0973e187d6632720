//! The data streams of a session that receives: opened, their events, replaced.

use super::Receiving;
use crate::{
    events::Event,
    locks::lock,
    session::{
        headway::{Carried, Cut},
        receive_stream,
        streams::StreamEvent,
        supply::Connect,
    },
};
use haul_protocol::{
    StreamId,
    wire::{self, Fault, FaultCode},
};
use std::sync::atomic::Ordering;

impl Receiving<'_> {
    pub(super) fn open_streams(&mut self) {
        // The first bytes of a stream may overtake the offers that its engine is chosen by.
        if self.engines.chosen.is_none() && !self.supply.connects() {
            return;
        }
        for (stream, connect) in self.supply.next(self.wants_streams) {
            self.spawn(stream, connect);
        }
    }

    pub(super) fn spawn(&self, stream: StreamId, connect: Connect) {
        let shared = self.shared.clone();
        let candidates =
            self.engines.chosen.as_ref().map_or(Vec::new(), |chosen| chosen.candidates.clone());
        self.shared.streams.spawn(stream, connect, move |socket, figures| {
            lock(&shared.machine).stream_opened(stream).map_err(|error| error.what)?;
            receive_stream::run(&shared, stream, socket, candidates, figures)
        });
    }

    pub(super) fn handle_stream_events(&mut self) {
        for event in self.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let change = self.engines.change(None, stream, from_to, why);
                    self.tell_change(change);
                }
                StreamEvent::Violated { why } => {
                    let what = "a data stream broke the protocol and was closed";
                    let fault = Fault::new(FaultCode::ProtocolViolation, wire::Side::Path, what);
                    (self.events)(Event::Error((&fault.found(why)).into()));
                }
                StreamEvent::Ended { stream, why, carried, in_span } => {
                    self.seen.remove(&stream);
                    lock(&self.shared.machine).stream_closed(stream);
                    if !self.finishing && !self.shared.streams.stopping() {
                        self.replace_stream(why.as_deref(), carried, in_span);
                    }
                }
            }
        }
        self.tell_damage();
        let failed = std::mem::take(&mut *lock(&self.shared.failed));
        for (file, fault) in failed {
            self.fail(file, fault);
        }
    }

    /// A server's log says once that something was damaged or forged; a client's report counts it.
    pub(super) fn tell_damage(&mut self) {
        let is_damaged = self.shared.damaged_spans.load(Ordering::Relaxed) > 0;
        if is_damaged && !self.damage_told && !self.supply.connects() {
            self.damage_told = true;
            let what = "a span arrived damaged or forged; it is asked for again";
            let fault = Fault::new(FaultCode::DataDamaged, wire::Side::Path, what);
            (self.events)(Event::Error((&fault).into()));
        }
    }

    /// The client opens another in the place of one that broke.
    pub(super) fn replace_stream(&mut self, why: Option<&str>, carried: Carried, at_work: bool) {
        // After an orderly end the sender has nothing more to send.
        let Some(why) = why else { return };
        self.watch_headway();
        let others = self.shared.streams.open();
        let others = others.iter().filter(|(_, figures)| figures.in_span);
        let oldest_at_work = others.filter_map(|(_, figures)| figures.opened_at).min();
        match self.supply.replace(why, &Cut { carried, at_work, oldest_at_work }) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect),
            Ok(None) => {}
            Err(end) => self.ended = Some(end),
        }
    }
}
