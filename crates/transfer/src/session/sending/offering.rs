//! Offering of files: from the walk, through the stages, to the receiver.

use super::{
    Sending, Sources,
    context::ToOffer,
    stage::{Found, Offered},
    watching::Next,
};
use crate::{
    locks::lock,
    session::sending::send_spans::Source,
    storage::{source::SourceEntry, walk::Listed},
};
use haul_protocol::{
    message::{self, Fault, FaultCode},
    name::check_relative_name,
};
use std::time::Instant;

/// The most files offered at a time, before what came in meanwhile is looked at.
const OFFERS_A_PUMP: usize = 256;

/// Progress of the offers of a session.
#[derive(Debug, Default)]
pub(super) struct Offering {
    /// Count of open files that another offer may follow.
    pub may_return: usize,
    /// The walk has come to its end.
    pub listed_all: bool,
    /// The receiver was told that no offer follows.
    pub ended: bool,
}

impl Sending<'_> {
    pub(super) fn offer_files(&mut self, now: Instant) {
        for _ in 0..OFFERS_A_PUMP {
            if self.offering.ended || !lock(&self.context.shared.machine).may_offer() {
                return;
            }
            if let Some(next) = self.context.to_offer.pop_front() {
                self.offer(next);
                continue;
            }
            if self.stages.in_order().any(|stage| stage.is_full()) {
                return;
            }
            let Sources::Listed(walk) = &mut self.sources else { return };
            if walk.must_wait() {
                return;
            }
            match walk.next() {
                None => match self.watch_on(now) {
                    Next::Walk => {}
                    Next::Rest => return,
                    Next::End => {
                        self.offering.listed_all = true;
                        self.context.tally.total_known = self.stages.following.is_none();
                        return self.end_offers();
                    }
                },
                Some(Listed::Failed(fault)) if self.context.moved_earlier.explains(&fault) => {}
                Some(Listed::Failed(fault)) => self.context.not_offered(fault),
                Some(Listed::LeftOut(fault)) => self.context.left_out(fault),
                Some(Listed::Entry(entry)) => match check_relative_name(&entry.offer.name) {
                    Ok(()) => self.meet(entry, now),
                    Err(why) => {
                        let what = "cannot be offered under this name";
                        let fault = Fault::new(FaultCode::NameRefused, message::Side::Source, what);
                        self.context.not_offered(fault.at(entry.offer.name).found(why));
                    }
                },
            }
        }
        // There is more: come back at once.
        self.context.shared.streams.wake();
    }

    /// Finds the next step when the walk is at its end.
    fn watch_on(&mut self, now: Instant) -> Next {
        let is_open = self.has_open();
        let (Some(watching), Sources::Listed(walk)) =
            (&mut self.stages.watching, &mut self.sources)
        else {
            return Next::End;
        };
        let next = watching.next(walk, is_open, now);
        if let Some(deaf) = watching.take_deafness() {
            self.context.tell(deaf);
        }
        next
    }

    /// Whether any file is under way.
    pub(super) fn has_open(&mut self) -> bool {
        !lock(&self.context.shared.sources).is_empty() || self.keeps_some()
    }

    /// Whether any file is kept to be offered.
    fn keeps_some(&mut self) -> bool {
        !self.context.to_offer.is_empty() || self.stages.in_order().any(|stage| stage.keeps_some())
    }

    fn end_offers(&mut self) {
        if self.offering.may_return == 0 && !self.keeps_some() {
            self.offering.ended = true;
            let (files, bytes) =
                (self.context.tally.offered_files, self.context.tally.offered_bytes);
            lock(&self.context.shared.machine).end_offers(files, bytes);
        }
    }

    fn meet(&mut self, entry: Box<SourceEntry>, now: Instant) {
        let mut found = Found { entry, is_complete: false, now };
        for stage in self.stages.in_order() {
            match stage.met(found, &mut self.context) {
                Some(passed) => found = passed,
                None => return,
            }
        }
        self.offer(ToOffer { entry: *found.entry, before: None });
    }

    fn offer(&mut self, ToOffer { entry, before }: ToOffer) {
        if let Err(fault) = self.streams.choose_engines(&entry, &mut self.context) {
            self.context.refuse(fault);
        }
        let context = &mut self.context;
        self.offering.may_return +=
            usize::from(context.facts(&entry, false).may_be_offered_again());
        let file = lock(&context.shared.machine).offer(entry.offer.clone());
        context.tally.offered(&entry.offer);
        let offered = Offered { file, entry: &entry, before };
        for stage in self.stages.in_order() {
            stage.offered(&offered, context);
        }
        lock(&context.shared.sources).insert(file, Source::new(entry));
    }
}
