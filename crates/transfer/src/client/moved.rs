//! What a run moved, and found there, over all its sessions.

use super::{Client, Run};
use crate::{events::FileCounts, session::Tally};
use haul_protocol::wire::SideReport;

/// What was there before a run, and what it made of its files.
pub(super) struct There {
    pub files: FileCounts,
    /// Skipped files included.
    pub resumed_bytes: u64,
    pub skipped_bytes: u64,
}

impl Run {
    /// A session was lost: another goes on.
    pub(super) fn lost(&mut self, tally: &Tally) {
        self.done_before += tally.counts().done;
        self.directories_before += tally.done_directories;
        self.done_bytes_before += tally.done_bytes;
        self.removed_before += tally.sources_removed;
    }

    /// What an earlier session of this run brought was not there before it: its last session, with
    /// this tally, finds it so. `there_bytes` bytes really were.
    pub(super) fn there(&self, tally: &Tally, there_bytes: u64) -> There {
        let counts = tally.counts();
        let done_again = self.done_before.min(counts.skipped);
        let made_again = self.directories_before.min(counts.skipped_directories);
        let skipped_bytes = tally.skipped_bytes.saturating_sub(self.done_bytes_before);
        let resumed_bytes = skipped_bytes + tally.resumed_bytes.min(tally.done_bytes);
        let resumed_bytes = resumed_bytes.min(there_bytes);
        There {
            files: FileCounts {
                done: counts.done + done_again,
                done_directories: counts.done_directories + made_again,
                skipped: counts.skipped - done_again,
                skipped_directories: counts.skipped_directories - made_again,
                ..counts
            },
            resumed_bytes,
            skipped_bytes: skipped_bytes.min(resumed_bytes),
        }
    }
}

impl Client<'_> {
    /// Files that are removed at the source; in a dry run, those that would be.
    pub(super) fn sources_removed(&self, run: &Run, source: &SideReport) -> u64 {
        if self.wishes.move_sources { run.removed_before + source.sources_removed } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_session_of_a_run_brought_was_not_there_before_it() {
        let mut run = Run::default();
        // A file was completed, and of another 248 bytes were durable when the session was lost.
        run.lost(&Tally { done_files: 1, done_bytes: 50, ..Tally::default() });
        let skipped = Tally { skipped_files: 1, skipped_bytes: 50, ..Tally::default() };
        let last = Tally { done_files: 1, done_bytes: 1000, resumed_bytes: 248, ..skipped };
        let there = run.there(&last, 0);
        assert_eq!((there.resumed_bytes, there.skipped_bytes), (0, 0));
        assert_eq!((there.files.done, there.files.skipped), (2, 0));
        // The same as the only session of a run: it was all there.
        let there = Run::default().there(&last, 298);
        assert_eq!((there.resumed_bytes, there.skipped_bytes), (298, 50));
        assert_eq!((there.files.done, there.files.skipped), (1, 1));
    }
}
