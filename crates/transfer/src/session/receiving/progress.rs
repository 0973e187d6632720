//! What a receiving session tells of its progress, and when it gives streams up.

use super::{PROGRESS_EVERY, Receiving, lock};
use crate::{
    name::Name,
    session::{headway::Carried, role::LOOKED_AT_MAX, streams::StreamFigures},
    storage::target_place::TargetPlace,
    transport::segments,
};
use haul_protocol::{Awaited, StreamId, frame::HEADER_BYTES, wire};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

impl Receiving<'_> {
    /// Bytes that have arrived: verified ones, what came whole and is being written, and what the
    /// open spans have so far.
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

    /// The file that was offered first of those under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        let mut offers = self.offers.values().take(LOOKED_AT_MAX);
        let file = offers.find(|offer| offer.kind() == wire::FileKind::Regular)?;
        Some(Name(file.name.clone()))
    }

    pub(super) fn tell_progress(&mut self, now: Instant) {
        let early = |told: Instant| now.saturating_duration_since(told) < PROGRESS_EVERY;
        if self.progress_at.is_some_and(early) {
            return;
        }
        self.progress_at = Some(now);
        self.count_progress();
        let streams =
            self.shared.streams.open().into_iter().map(|(stream, figures)| wire::StreamProgress {
                stream: stream.0,
                received_bytes: figures.consumed_bytes,
                on_storage: figures.on_storage(),
            });
        let progress = wire::Progress {
            received_bytes: self.tally.received_bytes,
            durable_bytes: self.tally.durable_bytes,
            streams: streams.collect(),
        };
        lock(&self.shared.machine).progress(progress);
    }

    /// Nothing comes on any stream though files are open.
    pub(super) fn give_up_all(&mut self, open: &[(StreamId, StreamFigures)], still: Duration) {
        let on_storage = open.iter().any(|(_, figures)| figures.on_storage());
        let (stage, what) = if on_storage {
            ("target_disk", "what arrived waits for this host's disk; waiting on")
        } else {
            ("network", "nothing arrives on any stream; opening others")
        };
        self.tell_stall((stage, what), still);
        if !on_storage {
            open.iter().for_each(|(stream, _)| self.shared.streams.shut(*stream));
            // They ended as if all had come: nobody signs that, and it has not.
            if open.is_empty() {
                let why = "every stream ended before all had come";
                self.replace_stream(Some(why), Carried::default(), true);
            }
        }
    }

    fn tell_stall(&mut self, words: (&'static str, &str), still: Duration) {
        let told = self.supply.stall(words, still, self.tally.headway());
        told.into_iter().for_each(|event| (self.events)(event));
    }

    /// Progress is a span verified; bytes that move only show that a stream lives.
    pub(super) fn watch_headway(&mut self) {
        self.tally.verified_bytes = self.shared.verified_bytes.load(Ordering::Relaxed);
        let has_files = lock(&self.shared.machine).has_open_files();
        self.supply.watch_headway(self.tally.headway(), has_files);
    }

    /// The server has told where the time of its streams goes.
    pub fn heard_figures(&mut self, figures: &wire::Figures) {
        let of_network = [
            wire::Stage::SendCongestionWindow,
            wire::Stage::SendReceiverWindow,
            wire::Stage::SendBuffer,
        ];
        let sum_ns = |stages: &[wire::Stage]| -> u64 {
            let of_stages = figures.stages.iter().filter(|time| stages.contains(&time.stage()));
            of_stages.map(|time| time.ns).sum()
        };
        // Several streams may share one span's wait: those without work are idle.
        let busy_ns = figures.streams_ns.saturating_sub(sum_ns(&[wire::Stage::Idle]));
        self.network_holds_sender = sum_ns(&of_network) > busy_ns / 2;
    }

    /// The server sends, and nothing arrives on any stream, not even the first segment: the packets
    /// may be too large for the path.
    fn reopen_where_nothing_arrives(&mut self, open: &[(StreamId, StreamFigures)], now: Instant) {
        for (_, figures) in open {
            if let Some(event) = self.supply.narrowed(&figures.tcp) {
                (self.events)(event);
            }
        }
        let waits = |figures: &StreamFigures| {
            let opened = figures.opened_at.map(|at| now.saturating_duration_since(at));
            figures.tcp.bytes_received <= HEADER_BYTES as u64
                && opened >= Some(segments::NOTHING_AFTER)
        };
        let is_suspect = self.network_holds_sender && self.wants_streams;
        if is_suspect && !open.is_empty() && open.iter().all(|(_, figures)| waits(figures)) {
            let vanish = open.iter().filter(|(_, figures)| self.supply.swallows(&figures.tcp));
            vanish.for_each(|(stream, _)| self.shared.streams.shut(*stream));
        }
    }

    /// A stream in the middle of a span that brings nothing is given up; when nothing comes on any
    /// stream though files are open, all are.
    pub(super) fn watch_streams(&mut self, now: Instant) {
        if !self.supply.connects() || self.finishing {
            return;
        }
        self.watch_headway();
        let stall_after = self.supply.stall_after(now, self.options.stall_after);
        let open = self.shared.streams.open();
        self.reopen_where_nothing_arrives(&open, now);
        let total: u64 = open.iter().map(|(_, figures)| figures.tcp.bytes_received).sum();
        // Files that are being compared wait for this host's disk, and what is read back from it
        // needs nothing from the wire.
        let is_reading = self.hashing.is_busy() || self.rechecking.is_busy();
        let machine = lock(&self.shared.machine);
        // What is whole waits for a word of the sender, which may read its source once more.
        let has_all = machine.awaits() == Some(Awaited::Confirmation);
        let unfinished = machine.has_open_files() && !is_reading && !has_all;
        drop(machine);
        let reads_back = self.shared.committer.is_reading_back();
        if total != self.all_seen.0 || !unfinished || reads_back {
            self.all_seen = (total, now);
        }
        let all_still = now.saturating_duration_since(self.all_seen.1) > stall_after;
        if all_still {
            let still = now.saturating_duration_since(self.all_seen.1);
            self.all_seen.1 = now;
            self.give_up_all(&open, still);
            return;
        }
        let mut stalled = Vec::new();
        for (stream, figures) in open {
            let on_storage = figures.on_storage();
            let moved = figures.tcp.bytes_received;
            let entry = self.seen.entry(stream).or_insert((moved, now));
            if entry.0 != moved || !figures.in_span {
                *entry = (moved, now);
            }
            let still = now.saturating_duration_since(entry.1);
            if still > stall_after {
                stalled.push((stream, still, on_storage));
                entry.1 = now;
            }
        }
        for (stream, still, on_storage) in stalled {
            let (stage, what) = if on_storage {
                ("target_disk", "what arrived waits for this host's disk; waiting on")
            } else {
                ("network", "nothing arrives on a stream; opening another")
            };
            self.tell_stall((stage, what), still);
            if !on_storage {
                self.shared.streams.shut(stream);
            }
        }
    }
}
