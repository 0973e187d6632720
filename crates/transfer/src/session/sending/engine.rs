//! Choice of the engine that reads and sends, and what the user is told of it.

use super::{context::Context, data_streams::DataStreams};
use crate::{
    events::Explained,
    problem::Side,
    session::{engine_orders::source_of, streams::StreamFigures},
    storage::source::{Location, SourceEntry},
};
use haul_datapath::{WireKind, choose};
use haul_protocol::message::{self, Fault, FaultCode};
use std::{sync::atomic::Ordering, time::Instant};

impl DataStreams {
    /// Chooses the engines by an offered file, if it is the first that has bytes or if they have
    /// become many: the others are like it more often than not. A stream that finds them otherwise
    /// chooses again.
    pub fn choose_engines(
        &mut self,
        entry: &SourceEntry,
        context: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let due = self.engines.offered(&entry.offer);
        context.shared.bulk_bytes.store(self.engines.bulk_bytes(), Ordering::Relaxed);
        let Some(bytes) = due else { return Ok(()) };
        let setup = &context.shared.setup;
        let opened = entry.open().ok();
        let is_zero = matches!(entry.location, Location::Zero);
        let file = opened.as_ref().filter(|_| !is_zero).map(|file| file.file());
        let size_bytes = entry.offer.size_bytes;
        let resident_share = file.map_or(1.0, |file| {
            let cached = haul_sys::cachestat::cached_bytes(file, 0, size_bytes);
            cached.unwrap_or(size_bytes) as f64 / size_bytes.max(1) as f64
        });
        let facts = choose::SendFacts {
            host: &setup.host,
            wire: WireKind::Tcp,
            source: if is_zero { choose::Source::Zeros } else { source_of(file) },
            size_bytes: bytes,
            resident_share,
            digest: setup.sees_bytes(),
            forced: self.forced_engine.as_deref(),
        };
        let choice = choose::send_engine(&facts).map_err(|error| {
            Fault::new(FaultCode::EngineRefused, message::Side::Source, error.to_string())
        })?;
        if context.file_options.explain {
            let words = vec![facts.in_words()];
            let host = setup.host.clone();
            let explained = Explained::engines(Side::Source, words, &host, &choice);
            self.explain(explained, context);
        }
        let forced = self.forced_engine.is_some();
        self.engines.choose(choice, forced, true, &context.shared.orders);
        Ok(())
    }

    /// Tells how the engines were chosen: a client its user, a server its client.
    fn explain(&mut self, explained: Explained, context: &mut Context<'_>) {
        if self.supply.connects() {
            context.tell(explained.into());
        } else {
            self.engines.explain(explained);
        }
    }

    /// Tries the other engines when the source disk has slowed down.
    pub(super) fn watch_disk(&mut self, now: Instant, context: &mut Context<'_>) {
        let shared = &context.shared;
        let sent = |figures: &[StreamFigures]| figures.iter().map(|f| f.payload_bytes).sum();
        let streams = (&*shared.streams, &shared.orders);
        let change = self.engines.watch_disk(now, streams, sent, |f| f.stages.source_ns);
        context.tell_change(change);
    }
}
