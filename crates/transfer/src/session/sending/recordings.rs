//! What a sending session does with files that are being written and directories that are watched.

use super::{
    super::{
        following::{Following, Settled, Step, Written},
        watching::Next,
    },
    Sending, SessionEnd, Sources, lock,
};
use crate::{
    events::{Event, FileEnded},
    file_status::FileStatus,
    storage::source::SourceEntry,
};
use haul_protocol::{
    FileId, ProtocolError,
    sender::FileOutcome,
    wire::{Fault, Growth},
};
use std::time::Instant;

impl Sending<'_> {
    /// What follows when the walk is at its end.
    pub(super) fn watch_on(&mut self) -> Next {
        let is_open = self.has_open();
        let (Some(watching), Sources::Listed(walk)) = (&mut self.watching, &mut self.sources)
        else {
            return Next::End;
        };
        let next = watching.next(walk, is_open, Instant::now());
        if let Some(deaf) = watching.take_deafness() {
            (self.events)(deaf);
        }
        next
    }

    /// Whether some file is under way.
    pub(super) fn has_open(&self) -> bool {
        !lock(&self.shared.sources).is_empty()
            || !self.again.is_empty()
            || !self.comparing.is_empty()
            || self.following.as_ref().is_some_and(|following| !following.is_empty())
    }

    /// Whether the outcome is that of a round only, which others follow.
    pub(super) fn goes_on(
        &mut self,
        file: FileId,
        entry: &SourceEntry,
        outcome: &FileOutcome,
    ) -> bool {
        let Some(following) = &mut self.following else { return false };
        match following.settled(file, outcome, Instant::now()) {
            Settled::AsUsual => {}
            Settled::GoesOn => return true,
            Settled::Broken => {
                let what = "a round of a file that grows was compared or planned";
                self.ended = Some(SessionEnd::Refused(ProtocolError::new(what).to_fault()));
                return true;
            }
        }
        let is_end = entry.offer.growth() != Growth::NotGrowing;
        if !is_end || matches!(outcome, FileOutcome::Compare(_)) {
            return false;
        }
        if let Some(watching) = &mut self.watching {
            watching.remember(&entry.offer);
        }
        if let Some(lag) = following.lag.end(&entry.offer.name) {
            (self.events)(Event::Lag(lag));
        }
        false
    }

    /// What was heard of a file while it was under way is looked at now.
    pub(super) fn not_under_way(&mut self, entry: &SourceEntry) {
        if let Some(watching) = &mut self.watching {
            watching.settled(&entry.offer.name, Instant::now());
        }
    }

    /// Whether a file that failed is sent later, as it is then.
    pub(super) fn comes_again(&mut self, entry: &SourceEntry, fault: &Fault) -> bool {
        // Of one that is followed what was written is lost.
        let is_whole = entry.offer.growth() == Growth::NotGrowing;
        let watching = self.watching.as_mut().filter(|_| is_whole);
        watching.is_some_and(|watching| watching.comes_again(&entry.offer, fault, Instant::now()))
    }

    /// Takes what another session of this run goes on with.
    pub fn take_written(&mut self) -> Written {
        self.following.as_mut().map(Following::take_written).unwrap_or_default()
    }

    /// Offers what files that are followed have grown by.
    pub(super) fn follow(&mut self, now: Instant) {
        let Some(following) = &mut self.following else { return };
        if let Some(deaf) = following.take_deafness() {
            (self.events)(deaf);
        }
        // What an earlier run left is counted as durable, too.
        let durable_now = self.tally.durable_bytes.saturating_sub(self.tally.there_before());
        let steps = following.look(now, durable_now);
        for lag in following.lag.take(now) {
            (self.events)(Event::Lag(lag));
        }
        for step in steps {
            match step {
                Step::Offer(entry) => self.again.push_back((None, *entry)),
                Step::Failed(fault) => {
                    let path = fault.path.clone();
                    self.source_failed(fault);
                    (self.events)(Event::File(FileEnded::new(path, FileStatus::Failed, 0)));
                }
            }
        }
    }
}
