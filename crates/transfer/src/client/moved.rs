//! Counts of what a run moved, and of what it found there, over all its sessions.

use super::{Client, Run, Work, settled::Earlier};
use crate::{
    events::FileCounts,
    options::SourceSpec,
    session::{rdma::Route, tally::Tally},
};
use haul_protocol::message::{Open, SideReport};
use std::os::unix::ffi::OsStrExt;

/// Counts of what was there before a run, and of what it made of its files.
pub(super) struct There {
    pub files: FileCounts,
    /// Bytes of all files that are in place.
    pub bytes: u64,
    pub moved_bytes: u64,
    /// Bytes that were there before the run, skipped files included.
    pub resumed_bytes: u64,
    pub skipped_bytes: u64,
    /// Number of files that are not at the source any more, though an earlier session found them.
    pub gone_files: u64,
}

impl Run {
    /// The reason why data went by TCP though RDMA was asked for; empty where it did not.
    pub(super) fn why_tcp(&self) -> String {
        let given_up = self.rdma.as_ref().and_then(Route::why_tcp);
        given_up.unwrap_or_else(|| self.tcp_because.clone())
    }

    /// Counts what a session that was lost had, before another goes on.
    pub(super) fn lost(&mut self, tally: &Tally) {
        self.there_before = self.there_before(tally);
        self.brought_bytes_max += tally.offered_bytes.saturating_sub(tally.there_before());
        self.done_before += tally.counts().done;
    }

    /// Bytes that were in place or durable before this run, as far as it is known at the end of a
    /// session with this tally. A later session meets what an earlier one was lost too soon for.
    pub(super) fn there_before(&self, tally: &Tally) -> u64 {
        let Earlier { found_bytes, gone_skipped_bytes, .. } = self.names.earlier();
        let skipped = match self.names.is_full {
            true => 0,
            false => tally.skipped_bytes.saturating_sub(found_bytes) + gone_skipped_bytes,
        };
        let not_brought = tally.there_before().saturating_sub(self.brought_bytes_max);
        self.there_before.max(skipped).max(not_brought)
    }

    /// Counts what was there before this run. What an earlier session of it brought was not: its
    /// last session, with this tally, finds it there, or finds it no more.
    pub(super) fn there(&self, tally: &Tally) -> There {
        let (counts, mut earlier) = (tally.counts(), self.names.earlier());
        if self.names.is_full {
            earlier.found.done = self.done_before.min(counts.skipped);
            earlier.gone.done = self.done_before - earlier.found.done;
        }
        let Earlier { gone, found, .. } = earlier;
        let gone_bytes = earlier.gone_done_bytes + earlier.gone_skipped_bytes;
        let bytes = tally.done_bytes + tally.skipped_bytes + gone_bytes;
        let moved_bytes = bytes.saturating_sub(self.there_before(tally));
        let skipped_bytes = tally.skipped_bytes.saturating_sub(earlier.found_bytes);
        let skipped_bytes = skipped_bytes + earlier.gone_skipped_bytes;
        let resumed_bytes = skipped_bytes + tally.resumed_bytes.min(tally.done_bytes);
        let resumed_bytes = resumed_bytes.min(bytes - moved_bytes);
        let skipped = counts.skipped.saturating_sub(found.done);
        let directories = counts.skipped_directories.saturating_sub(found.done_directories);
        There {
            files: FileCounts {
                done: counts.done + found.done + gone.done,
                done_directories: counts.done_directories
                    + found.done_directories
                    + gone.done_directories,
                skipped: skipped + gone.skipped,
                skipped_directories: directories + gone.skipped_directories,
                ..counts
            },
            bytes,
            moved_bytes,
            resumed_bytes,
            skipped_bytes: skipped_bytes.min(resumed_bytes),
            gone_files: gone.done + gone.skipped,
        }
    }
}

impl Work<'_> {
    /// Paths of the sources, as the user named them.
    pub(super) fn source_paths(&self, open: &Open) -> Vec<Vec<u8>> {
        let path = |source: &SourceSpec| match source {
            SourceSpec::Path(path) => Some(path.as_bytes().to_vec()),
            SourceSpec::Beneath(place) => Some(place.path.clone()),
            SourceSpec::Zero(_) | SourceSpec::Beginning(_) => None,
        };
        match self {
            Self::Push(sources) => sources.iter().filter_map(path).collect(),
            Self::Pull(_) => open.paths.clone(),
        }
    }
}

impl Client<'_> {
    /// Number of files removed at the source; in a dry run, of those that would be. Of an earlier
    /// session they are those that the last one does not find there any more.
    pub(super) fn sources_removed(&self, there: &There, source: &SideReport) -> u64 {
        if self.file_options.move_sources { there.gone_files + source.sources_removed } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::{Event, FileEnded},
        file_status::FileStatus,
    };

    fn session(run: &mut Run, files: &[(&str, FileStatus, u64)]) {
        run.names.begin_session();
        for (name, status, bytes) in files {
            let ended = FileEnded::new(name.as_bytes().to_vec(), status.clone(), *bytes);
            run.names.heard(&Event::File(ended));
        }
    }

    #[test]
    fn what_an_earlier_session_of_a_run_brought_was_not_there_before_it() {
        let mut run = Run::default();
        // A file was completed, and of another 248 bytes were durable when the session was lost.
        session(&mut run, &[("a", FileStatus::Done, 50)]);
        let offered_bytes = 1050;
        run.lost(&Tally { offered_bytes, done_files: 1, done_bytes: 50, ..Tally::default() });
        let files = [("a", FileStatus::Skipped, 50), ("b", FileStatus::Done, 1000)];
        session(&mut run, &files);
        let skipped = Tally { skipped_files: 1, skipped_bytes: 50, ..Tally::default() };
        let last = Tally { done_files: 1, done_bytes: 1000, resumed_bytes: 248, ..skipped };
        let there = run.there(&last);
        assert_eq!((there.resumed_bytes, there.skipped_bytes), (0, 0));
        assert_eq!((there.files.done, there.files.skipped), (2, 0));
        assert_eq!((there.bytes, there.moved_bytes, there.gone_files), (1050, 1050, 0));
        // The same as the only session of a run: it was all there.
        let mut run = Run::default();
        session(&mut run, &files);
        let there = run.there(&last);
        assert_eq!((there.resumed_bytes, there.skipped_bytes), (298, 50));
        assert_eq!((there.files.done, there.files.skipped), (1, 1));
    }

    #[test]
    fn what_was_there_was_not_moved_though_the_first_session_did_not_meet_it() {
        let mut run = Run::default();
        // Lost before any answer: the files were offered, or not even that.
        for offered_bytes in [0, 1000] {
            session(&mut run, &[]);
            run.lost(&Tally { offered_bytes, ..Tally::default() });
        }
        session(&mut run, &[("a", FileStatus::Skipped, 600), ("b", FileStatus::Done, 400)]);
        let skipped = Tally { skipped_files: 1, skipped_bytes: 600, ..Tally::default() };
        let last = Tally { done_files: 1, done_bytes: 400, resumed_bytes: 100, ..skipped };
        let there = run.there(&last);
        assert_eq!((there.bytes, there.moved_bytes, there.skipped_bytes), (1000, 400, 600));
        // Where nothing had been offered, what is resumed was there before the run, too.
        let mut run = Run::default();
        session(&mut run, &[]);
        run.lost(&Tally::default());
        session(&mut run, &[("a", FileStatus::Skipped, 600), ("b", FileStatus::Done, 400)]);
        assert_eq!((run.there(&last).moved_bytes, run.there(&last).resumed_bytes), (300, 700));
    }

    /// A move had removed them, so that the last session was not offered them.
    #[test]
    fn what_an_earlier_session_of_a_move_brought_is_counted_though_it_is_gone() {
        let mut run = Run::default();
        let first = [("a", FileStatus::Done, 50), ("b", FileStatus::Skipped, 7)];
        session(&mut run, &first);
        let skipped = Tally { skipped_files: 1, skipped_bytes: 7, ..Tally::default() };
        run.lost(&Tally { offered_bytes: 57, done_files: 1, done_bytes: 50, ..skipped });
        // One that was there before the run, and is no file of the first session.
        session(&mut run, &[("c", FileStatus::Skipped, 3), ("d", FileStatus::Done, 1000)]);
        let skipped = Tally { skipped_files: 1, skipped_bytes: 3, ..Tally::default() };
        let there = run.there(&Tally { done_files: 1, done_bytes: 1000, ..skipped });
        assert_eq!((there.files.done, there.files.skipped), (2, 2));
        assert_eq!((there.bytes, there.moved_bytes, there.gone_files), (1060, 1050, 2));
    }
}
