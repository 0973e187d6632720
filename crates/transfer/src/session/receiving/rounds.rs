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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session::receiving::{context::OpenFile, start::Begun, with_target::Target, without_peer},
        storage::target_place::TargetPlace,
    };
    use haul_protocol::{SpanGrid, SpanIndex};
    use std::time::Duration;

    const SPAN: u64 = 64 << 10;

    fn offer(size_bytes: u64, growth: Growth) -> FileOffer {
        FileOffer { name: b"x".to_vec(), size_bytes, growth, ..FileOffer::default() }
    }

    fn first_spans(size_bytes: u64, count: u32) -> SpanSet {
        let mut set = SpanSet::new(SpanGrid::new(size_bytes, SPAN).unwrap().count());
        (0..count).for_each(|span| {
            set.insert(SpanIndex(span));
        });
        set
    }

    /// Runs a test of rounds in a session, and returns what it told.
    fn told(test: impl FnOnce(&mut Rounds, &mut Context<'_>)) -> Vec<Event> {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let Begun { mut context, committer, .. } =
            without_peer::begin(TargetPlace::Null, &mut hear);
        test(&mut Rounds::default(), &mut context);
        drop((context, committer));
        told
    }

    fn open(context: &mut Context<'_>, file: u32, offer: FileOffer) {
        context
            .open
            .insert(FileId(file), OpenFile { offer: offer.into(), stored_as: None, pass: None });
    }

    #[test]
    fn bytes_of_a_round_that_come_again_are_taken_off_those_of_their_run() {
        let told = told(|rounds, context| {
            let first = offer(SPAN * 5 / 2, Growth::Growing);
            rounds.offered(&first, context);
            rounds.begins(&first, SPAN, &first_spans(SPAN * 5 / 2, 1), b"", context);
            assert_eq!((context.tally.resumed_bytes, context.tally.span_bytes), (SPAN, SPAN));
            assert!(!rounds.is_of_session(b"x"), "an earlier run left a part of it");
            open(context, 1, first);
            assert!(rounds.is_settled(FileId(1), context));
            context.shared.verified_bytes.store(SPAN * 4, Ordering::Relaxed);
            let nowhere = Target::of(TargetPlace::Null).prepare(&offer(0, Growth::NotGrowing)).0;
            let committer = context.shared.committer.clone();
            committer.verified_whole([(FileId(9), nowhere.clone(), SPAN * 4)].into_iter());
            committer.commit(FileId(9), &nowhere);
            let deadline = Instant::now() + Duration::from_secs(8);
            while committer.durable_bytes() == 0 {
                assert!(Instant::now() < deadline, "it is durable");
            }
            // All of it comes again: the span of the earlier run, and one and a half of this one.
            let second = offer(SPAN * 4, Growth::Growing);
            rounds.offered(&second, context);
            rounds.begins(&second, SPAN, &first_spans(SPAN * 4, 0), b"", context);
            let verified_bytes = context.shared.verified_bytes.load(Ordering::Relaxed);
            assert_eq!((context.tally.resumed_bytes, verified_bytes), (0, SPAN * 5 / 2));
            assert_eq!(committer.durable_bytes(), SPAN * 5 / 2);
            assert_eq!((context.tally.offered_files, context.tally.offered_bytes), (1, SPAN * 4));
        });
        assert!(matches!(&told[..], [Event::Resume { bytes: SPAN, .. }]), "{told:?}");
    }

    #[test]
    fn a_round_is_settled_and_the_end_of_a_file_is_not() {
        told(|rounds, context| {
            let fresh = offer(SPAN, Growth::Growing);
            rounds.offered(&fresh, context);
            rounds.begins(&fresh, SPAN, &first_spans(SPAN, 0), b"", context);
            assert!(rounds.is_of_session(b"x") && !rounds.is_of_session(b"y"));
            assert!(!rounds.is_settled(FileId(1), context), "it is not open");
            for growth in [Growth::Grown, Growth::NotGrowing] {
                open(context, 1, offer(SPAN, growth));
                assert!(!rounds.is_settled(FileId(1), context));
                assert!(context.open.contains_key(&FileId(1)));
            }
            open(context, 1, fresh);
            assert!(context.progress_at.is_some());
            assert!(rounds.is_settled(FileId(1), context));
            // What the sender is told next is not older than this.
            assert!(context.open.is_empty() && context.progress_at.is_none());
        });
    }

    fn lags(told: &[Event]) -> Vec<u64> {
        let lag = |event: &Event| match event {
            Event::Lag(lag) => lag.bytes,
            other => panic!("{other:?}"),
        };
        told.iter().map(lag).collect()
    }

    #[test]
    fn the_lag_is_told_each_second_of_a_round_and_at_the_end_it_is_none() {
        let told = told(|rounds, context| {
            let now = Instant::now();
            let seconds = |seconds| now + Duration::from_secs(seconds);
            assert_eq!(rounds.largest_lag(), None);
            let of = |growth| offer(SPAN * 2, growth);
            // One that does not grow is none of this stage's.
            rounds.offered(&of(Growth::NotGrowing), context);
            assert_eq!(context.tally.offered_files, 0);
            rounds.offered(&of(Growth::Growing), context);
            rounds.begins(&of(Growth::Growing), SPAN, &first_spans(SPAN * 2, 0), b"", context);
            rounds.tick(seconds(0), context);
            rounds.tick(seconds(1), context);
            assert_eq!(rounds.largest_lag().map(|lag| lag.bytes), Some(SPAN * 2));
            rounds.given_up(b"x");
            rounds.tick(seconds(2), context);
            rounds.begins(&of(Growth::Growing), SPAN, &first_spans(SPAN * 2, 0), b"", context);
            context.finishing = true;
            rounds.tick(seconds(3), context);
            context.finishing = false;
            let settled = |growth, status| Settled {
                file: FileId(1),
                offer: of(growth).into(),
                stored_as: None,
                status,
                fault: None,
                content: None,
            };
            rounds.settled(&mut settled(Growth::NotGrowing, FileStatus::Done), context);
            rounds.settled(&mut settled(Growth::Growing, FileStatus::Skipped), context);
            rounds.tick(seconds(4), context);
            rounds.settled(&mut settled(Growth::Grown, FileStatus::Done), context);
            assert!(rounds.finish(context), "its end was told");
        });
        assert_eq!(lags(&told), [SPAN * 2, 0, 0], "of a round, its settling, the end");
    }

    #[test]
    fn a_file_that_grows_fails_with_its_source_and_without_an_end() {
        let told = told(|rounds, context| {
            for name in ["x", "y"] {
                let name = name.as_bytes().to_vec();
                rounds.offered(&FileOffer { name, ..offer(1, Growth::Growing) }, context);
            }
            rounds.source_failed(b"other", context);
            rounds.source_failed(b"x", context);
            assert_eq!(context.tally.failed_files, 0, "the notice of it counts");
            assert!(rounds.finish(context));
            assert_eq!(context.tally.failed_files, 1);
        });
        let [Event::File(x), Event::Error(_), Event::File(y)] = &told[..] else {
            panic!("{told:?}")
        };
        let of = |file: &FileEnded| (file.path.0.clone(), file.status.clone());
        assert_eq!(of(x), (b"x".to_vec(), FileStatus::Failed));
        assert_eq!(of(y), (b"y".to_vec(), FileStatus::Failed));
    }
}
