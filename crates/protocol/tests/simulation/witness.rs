//! Witness of a run, which sees both sides and counts what happened.

use haul_protocol::{FileId, SpanIndex, sender::Assignment};
use std::collections::BTreeSet;

/// Counts of what a simulation is for: a run that meets nothing proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sessions: u64,
    pub offered: u64,
    pub cut_sessions: u64,
    pub resumed: u64,
    pub damaged: u64,
    pub forged: u64,
    pub dropped: u64,
    pub refused_streams: u64,
    pub discarded: u64,
    pub confirmed_with_span: u64,
    pub broken_framing: u64,
    pub done: u64,
    pub failed: u64,
    pub lost: u64,
    pub compared: u64,
    pub links_as_files: u64,
    pub removed: u64,
}

#[derive(Debug, Default)]
pub struct Witness {
    pub counts: Counts,
    /// Spans that the receiver said to be durable in this session.
    durable: BTreeSet<(FileId, SpanIndex)>,
}

impl Witness {
    pub fn new_session(&mut self) {
        self.durable.clear();
        self.counts.sessions += 1;
    }

    pub fn told_durable(&mut self, file: FileId, spans: impl Iterator<Item = SpanIndex>) {
        self.durable.extend(spans.map(|span| (file, span)));
    }

    pub fn lost(&mut self, file: FileId, span: SpanIndex) {
        self.durable.remove(&(file, span));
        self.counts.lost += 1;
    }

    pub fn sent(&self, next: &Assignment) {
        let is_durable = self.durable.contains(&(next.file, next.span));
        assert!(!is_durable, "{next:?} is durable and goes out again");
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.offered += other.offered;
        self.cut_sessions += other.cut_sessions;
        self.resumed += other.resumed;
        self.damaged += other.damaged;
        self.forged += other.forged;
        self.dropped += other.dropped;
        self.refused_streams += other.refused_streams;
        self.discarded += other.discarded;
        self.confirmed_with_span += other.confirmed_with_span;
        self.broken_framing += other.broken_framing;
        self.done += other.done;
        self.failed += other.failed;
        self.lost += other.lost;
        self.compared += other.compared;
        self.links_as_files += other.links_as_files;
        self.removed += other.removed;
    }
}
