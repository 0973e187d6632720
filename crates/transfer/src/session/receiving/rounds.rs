//! Rounds of files that are sent while they are written.

use super::{
    context::Context,
    growing::Growing,
    stage::{Settled, Stage},
};
use crate::{
    events::{Event, FileEnded, Lag},
    file_status::FileStatus,
    locks::lock,
    session::growth::growth,
    storage::prepare::Prepared,
};
use haul_protocol::{
    FileId, SpanSet,
    message::{Fault, FaultCode, FileOffer, Growth, Side},
};
use std::{sync::atomic::Ordering, time::Instant};

#[derive(Default)]
pub(super) struct Rounds {
    growing: Growing,
    /// Bytes that were durable when the last round of a file began.
    durable_before: u64,
}

impl Rounds {
    /// Takes up a file that an earlier round of this session left open; `None`: there is none.
    pub fn prepare(
        &mut self,
        offer: &FileOffer,
        context: &Context<'_>,
    ) -> Option<Result<Prepared, Fault>> {
        growth(offer)?;
        self.durable_before = context.shared.committer.durable_bytes();
        self.growing.prepare(offer)
    }

    /// Whether every byte of a file came in this session.
    pub fn is_of_session(&self, name: &[u8]) -> bool {
        self.growing.is_of_session(name)
    }

    /// Begins a round: bytes of earlier ones that come again are taken off what was counted.
    pub fn begins(
        &mut self,
        offer: &FileOffer,
        span_bytes: u64,
        durable: &SpanSet,
        stored_as: &[u8],
        context: &mut Context<'_>,
    ) {
        let again = self.growing.begins(offer, span_bytes, durable, stored_as);
        let lost = self.growing.not_resumed(&offer.name, again.bytes);
        let tally = &mut context.tally;
        tally.resumed_bytes = tally.resumed_bytes.saturating_sub(lost);
        tally.span_bytes = tally.span_bytes.max(span_bytes);
        let verified = &context.shared.verified_bytes;
        let fewer = |bytes: u64| Some(bytes.saturating_sub(again.bytes - lost));
        let _ = verified.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        context.shared.committer.forget_durable(again.bytes - lost);
        if again.resumed_bytes > 0 {
            context.tally.resumed_bytes += again.resumed_bytes;
            let why = "these are here already, verified".into();
            context.tell(Event::Resume { bytes: again.resumed_bytes, why });
        }
    }

    /// Settles a round that is durable. False if this is no round but the end of a file.
    pub fn is_settled(&mut self, file: FileId, context: &mut Context<'_>) -> bool {
        if context.offer(file).and_then(growth) != Some(Growth::Growing) {
            return false;
        }
        let Some(open) = context.open.remove(&file) else { return false };
        let target = lock(&context.shared.targets).remove(&file);
        let target = target.and_then(|target| lock(&target.shared).take());
        self.growing.settled(&open.offer, target);
        // What the sender is told of it is not older than this.
        context.progress_at = None;
        true
    }

    /// Ends a round that was given up: others follow, or none.
    pub fn given_up(&mut self, name: &[u8]) {
        self.growing.given_up(name);
    }

    /// Ends a file whose source has failed at the sender, if it is one that grows.
    pub fn source_failed(&mut self, name: &[u8], context: &mut Context<'_>) {
        if self.growing.ended(name) {
            let ended = FileEnded::new(name.to_vec(), FileStatus::Failed, 0);
            context.tell(Event::File(ended));
        }
    }

    /// The largest lag of this side behind a file that grows.
    pub fn largest_lag(&self) -> Option<Lag> {
        self.growing.lag.largest.clone()
    }
}

impl Stage for Rounds {
    /// Counts an offer: of many of one file only what it has grown by.
    fn offered(&mut self, offer: &FileOffer, context: &mut Context<'_>) {
        if growth(offer).is_some() {
            self.growing.offered(offer, &mut context.tally);
        }
    }

    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let name = &settled.offer.name;
        if settled.is_round() {
            self.growing.settled(&settled.offer, None);
        } else if growth(&settled.offer).is_some() {
            self.growing.ended(name);
            if let Some(lag) = self.growing.lag.end(name) {
                context.tell(Event::Lag(lag));
            }
        }
    }

    /// Tells the lag of files that grow, as well as this side knows it.
    fn tick(&mut self, now: Instant, context: &mut Context<'_>) {
        if context.finishing {
            return;
        }
        let (committed, before) = (context.shared.committer.durable_bytes(), self.durable_before);
        self.growing.look(now, || committed.saturating_sub(before));
        for lag in self.growing.lag.take(now) {
            context.tell(Event::Lag(lag));
        }
    }

    /// Fails the files of which no end was told: a sender that ends its session has said how each
    /// ended, unless it lies.
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        for name in self.growing.take_unended() {
            let what = "was being sent while it grew, and never ended";
            let fault = Fault::new(FaultCode::ProtocolViolation, Side::Source, what)
                .at(&*name)
                .needs("its last size from the sender")
                .found("the end of the session")
                .hint("what came of it stays as a hidden temporary; run the same command again");
            context.failed_beside(&fault);
            context.tell(Event::File(FileEnded::new(name, FileStatus::Failed, 0)));
        }
        true
    }
}
