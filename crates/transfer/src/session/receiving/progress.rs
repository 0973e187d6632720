//! Progress of a receiving session, as it is counted and told.

use super::context::Context;
use crate::{
    locks::lock,
    name::Name,
    session::{role::LOOKED_AT_MAX, streams::StreamFigures},
    storage::target_place::TargetPlace,
};
use haul_protocol::message;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

const PROGRESS_EVERY: Duration = Duration::from_millis(400);

impl Context<'_> {
    /// Counts the bytes that have arrived: verified ones, what came whole and is being written, and
    /// what the open spans have so far.
    pub fn count_progress(&mut self) {
        // First: what is verified next leaves the streams' figures before it is counted here.
        let verified = self.shared.verified_bytes.load(Ordering::Relaxed);
        let of_span = |figures: &StreamFigures| {
            let on_wire = figures.tcp.bytes_received.saturating_sub(figures.consumed_bytes);
            figures.unsettled_bytes + on_wire * u64::from(figures.in_span)
        };
        let open = self.shared.streams.open();
        let partial: u64 = open.iter().map(|(_, figures)| of_span(figures)).sum();
        let before = self.tally.there_before();
        let received = (before + verified + partial).min(self.tally.offered_bytes);
        self.tally.received_bytes = self.tally.received_bytes.max(received);
        let durable = match self.place {
            TargetPlace::Null => verified,
            TargetPlace::Below { .. } => self.shared.committer.durable_bytes(),
        };
        self.tally.durable_bytes = self.tally.durable_bytes.max(before + durable);
    }

    /// Name of the first regular file that is under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        let mut offers = self.open.values().map(|open| &open.offer).take(LOOKED_AT_MAX);
        let file = offers.find(|offer| offer.kind == message::FileKind::Regular)?;
        Some(Name(file.name.clone()))
    }

    pub fn tell_progress(&mut self, now: Instant) {
        let early = |told: Instant| now.saturating_duration_since(told) < PROGRESS_EVERY;
        if self.progress_at.is_some_and(early) {
            return;
        }
        self.progress_at = Some(now);
        self.count_progress();
        let streams = self.shared.streams.open().into_iter().map(|(stream, figures)| {
            message::StreamProgress {
                stream,
                received_bytes: figures.consumed_bytes,
                on_storage: figures.on_storage(),
            }
        });
        let progress = message::Progress {
            received_bytes: self.tally.received_bytes,
            durable_bytes: self.tally.durable_bytes,
            streams: streams.collect(),
        };
        lock(&self.shared.machine).progress(progress);
    }
}
