//! What a receiving session does with the rounds of files that are sent while they are written.

use super::{Receiving, lock};
use crate::{
    events::{Event, FileEnded},
    file_status::FileStatus,
    session::growth::growth,
};
use haul_protocol::{
    FileId, SpanSet,
    file_life::is_passing,
    wire::{self, Fault, FaultCode, FileOffer},
};
use std::{sync::atomic::Ordering, time::Instant};

impl Receiving<'_> {
    pub(super) fn follows(&self) -> bool {
        self.place.wishes().recording.follow
    }

    /// A sender that ends its session has said how each file ended; one that lies may not have.
    pub(super) fn fail_unended(&mut self) {
        for name in self.growing.take_unended() {
            let what = "was being sent while it grew, and never ended";
            let fault = Fault::new(FaultCode::ProtocolViolation, wire::Side::Source, what)
                .at(&*name)
                .needs("its last size from the sender")
                .found("the end of the session")
                .hint("what came of it stays as a hidden temporary; run the same command again");
            self.tally.failed_files += 1;
            self.tally.first_problem.get_or_insert_with(|| (&fault).into());
            (self.events)(Event::Error((&fault).into()));
            (self.events)(Event::File(FileEnded::new(name, FileStatus::Failed, 0)));
        }
    }

    /// What of a file's earlier rounds comes again is taken off what was counted.
    pub(super) fn count_round(
        &mut self,
        offer: &FileOffer,
        span_bytes: u64,
        durable: &SpanSet,
        stored_as: &[u8],
    ) {
        let again = self.growing.begins(offer, span_bytes, durable, stored_as);
        let lost = self.growing.not_resumed(&offer.name, again.bytes);
        self.tally.resumed_bytes = self.tally.resumed_bytes.saturating_sub(lost);
        let verified = &self.shared.verified_bytes;
        let fewer = |bytes: u64| Some(bytes.saturating_sub(again.bytes - lost));
        let _ = verified.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        self.shared.committer.forget_durable(again.bytes - lost);
        if again.resumed_bytes > 0 {
            self.tally.resumed_bytes += again.resumed_bytes;
            let why = "these are here already, verified".into();
            (self.events)(Event::Resume { bytes: again.resumed_bytes, why });
        }
        self.tally.span_bytes = self.tally.span_bytes.max(span_bytes);
    }

    /// A round of a file that grows is durable, or was there.
    pub(super) fn round_settled(&mut self, file: FileId) {
        self.large.remove(&file);
        let Some(offer) = self.offers.remove(&file) else { return };
        let target = lock(&self.shared.targets).remove(&file);
        let target = target.and_then(|target| lock(&target.shared).take());
        self.growing.settled(&offer, target);
        // What the sender is told of it is not older than this.
        self.progress_at = None;
    }

    /// Tells how far files that grow are behind, as well as this side knows it.
    pub(super) fn tell_lag(&mut self, now: Instant) {
        let committed = self.shared.committer.durable_bytes();
        let at_round = self.growing_durable;
        self.growing.look(now, || committed.saturating_sub(at_round));
        for lag in self.growing.lag.take(now) {
            (self.events)(Event::Lag(lag));
        }
    }

    pub(super) fn given_up(&mut self, file: FileId, fault: &Fault) {
        let grows = self.offers.get(&file).is_some_and(|offer| growth(offer).is_some());
        let changed = fault.code() == FaultCode::SourceChanged;
        // Of a source that changed nothing is of use any more, unless that is what it shall do.
        self.drop_target(file, grows || !changed);
        if grows && changed {
            self.large.remove(&file);
            let offer = self.offers.remove(&file).expect("just seen");
            self.growing.given_up(&offer.name);
        } else if !grows && self.place.wishes().recording.watch && is_passing(fault) {
            // It is sent as it is later, or not at all.
            self.large.remove(&file);
            if let Some(offer) = self.offers.remove(&file) {
                self.tally.forget_offer(&offer);
            }
        } else {
            self.settled(file, FileStatus::Failed, Some(fault));
        }
    }
}
