//! Counts of what one session moved, and limits of what may be under way in it.

use crate::{events::FileCounts, problem::Problem};
use haul_protocol::message;

/// Limits of the files that may be offered and unsettled at a time.
#[derive(Clone, Copy, Debug)]
pub struct OfferLimits {
    pub files: u32,
    /// Memory that these offers take, as [`haul_protocol::message::offer_bytes`] counts it.
    pub bytes: u64,
}

/// Counts of one session, as this side counted them.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Entries of any kind that were offered: `offered_directories` and those below say
    /// how many of them were directories.
    pub offered_files: u64,
    pub offered_directories: u64,
    pub offered_bytes: u64,
    /// The one source is a directory, whose name is kept: the target's path is none of its names.
    pub keeps_source_name: bool,
    /// The totals are known: no more is offered.
    pub total_known: bool,
    pub done_files: u64,
    pub done_directories: u64,
    pub done_bytes: u64,
    pub skipped_files: u64,
    pub skipped_directories: u64,
    pub skipped_bytes: u64,
    pub failed_files: u64,
    pub failed_directories: u64,
    pub left_out_files: u64,
    /// Entries that were removed at the target.
    pub removed_files: u64,
    /// Entries that would be received, in a dry run.
    pub planned_files: u64,
    /// Directories among the planned entries.
    pub planned_directories: u64,
    pub planned_bytes: u64,
    /// Entries among the planned ones that would replace something.
    pub replaced_files: u64,
    /// Sources that were removed, once they were durable at the target.
    pub sources_removed: u64,
    /// Bytes of spans that are holes, which are not sent.
    pub hole_bytes: u64,
    /// Bytes that were durable at the receiver before this session.
    pub resumed_bytes: u64,
    /// The most bytes that the receiver said it had, resumed and skipped bytes included.
    pub received_bytes: u64,
    pub durable_bytes: u64,
    /// Bytes of spans that this session verified.
    pub verified_bytes: u64,
    pub resent_spans: u64,
    pub span_bytes: u64,
    /// The first fault of a source that could not even be offered.
    pub first_problem: Option<Problem>,
}

impl Tally {
    /// Bytes that this session need not bring.
    #[must_use]
    pub fn there_before(&self) -> u64 {
        self.resumed_bytes + self.skipped_bytes + self.hole_bytes
    }

    /// Headway of the session, in a unit that grows: see [`super::headway`].
    #[must_use]
    pub fn headway(&self) -> u64 {
        self.verified_bytes + self.done_files
    }

    /// Files and links with which nothing more is done in this session.
    #[must_use]
    pub fn settled_files(&self) -> u64 {
        let counts = self.counts();
        counts.done + counts.skipped + self.failed_files.saturating_sub(self.failed_directories)
    }

    /// Files and links that were offered, without directories.
    #[must_use]
    pub fn files_total(&self) -> u64 {
        self.offered_files.saturating_sub(self.offered_directories)
    }

    #[must_use]
    pub fn counts(&self) -> FileCounts {
        FileCounts {
            done: self.done_files.saturating_sub(self.done_directories),
            done_directories: self.done_directories,
            skipped: self.skipped_files.saturating_sub(self.skipped_directories),
            skipped_directories: self.skipped_directories,
            failed: self.failed_files,
            left_out: self.left_out_files,
            removed: self.removed_files,
            planned: self.planned_files.saturating_sub(self.planned_directories),
            planned_directories: self.planned_directories,
        }
    }

    /// Counts an entry that would be received, in a dry run.
    pub(crate) fn plan(&mut self, offer: &message::FileOffer, replaces: bool) {
        self.planned_files += 1;
        self.planned_directories += one_if_directory(offer);
        self.planned_bytes += offer.size_bytes;
        self.replaced_files += u64::from(replaces);
    }

    /// Takes an offer off the counts, as another one of the same file follows.
    pub(crate) fn forget_offer(&mut self, offer: &message::FileOffer) {
        self.offered_files = self.offered_files.saturating_sub(1);
        let directories = self.offered_directories;
        self.offered_directories = directories.saturating_sub(one_if_directory(offer));
        self.offered_bytes = self.offered_bytes.saturating_sub(offer.size_bytes);
    }

    /// Takes an earlier offer of a file off the counts, which had so many bytes then: what was just
    /// offered is the same file once more.
    pub(crate) fn is_another_round(&mut self, counted_bytes: u64) {
        self.offered_files = self.offered_files.saturating_sub(1);
        self.offered_bytes = self.offered_bytes.saturating_sub(counted_bytes);
    }

    pub(crate) fn offered(&mut self, offer: &message::FileOffer) {
        self.offered_files += 1;
        self.offered_directories += one_if_directory(offer);
        self.offered_bytes = self.offered_bytes.saturating_add(offer.size_bytes);
    }

    pub(crate) fn done(&mut self, offer: &message::FileOffer) {
        self.done_files += 1;
        self.done_directories += one_if_directory(offer);
        self.done_bytes += offer.size_bytes;
    }

    pub(crate) fn skipped(&mut self, offer: &message::FileOffer) {
        self.skipped_files += 1;
        self.skipped_directories += one_if_directory(offer);
        self.skipped_bytes += offer.size_bytes;
    }

    /// Counts an entry that was offered and has failed.
    pub(crate) fn failed(&mut self, offer: &message::FileOffer) {
        self.failed_files += 1;
        self.failed_directories += one_if_directory(offer);
    }
}

fn one_if_directory(offer: &message::FileOffer) -> u64 {
    u64::from(offer.kind == message::FileKind::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::{FileKind, FileOffer};

    fn offer(kind: FileKind, size_bytes: u64) -> FileOffer {
        FileOffer { kind, size_bytes, ..FileOffer::default() }
    }

    /// Counts after two files, of 10 and of 5 bytes, and a directory took a step.
    fn of_three(step: impl Fn(&mut Tally, &FileOffer)) -> Tally {
        let mut tally = Tally::default();
        for (kind, size_bytes) in
            [(FileKind::Regular, 10), (FileKind::Directory, 0), (FileKind::Regular, 5)]
        {
            step(&mut tally, &offer(kind, size_bytes));
        }
        tally
    }

    #[test]
    fn each_step_of_an_entry_counts_it_and_its_bytes_and_directories_apart() {
        let offered = of_three(Tally::offered);
        let (files, directories) = (offered.offered_files, offered.offered_directories);
        assert_eq!((files, directories, offered.offered_bytes), (3, 1, 15));
        assert_eq!(offered.files_total(), 2);
        let done = of_three(Tally::done);
        let counts = FileCounts { done: 2, done_directories: 1, ..FileCounts::default() };
        assert_eq!((done.done_bytes, done.counts()), (15, counts));
        let skipped = of_three(Tally::skipped);
        let counts = FileCounts { skipped: 2, skipped_directories: 1, ..FileCounts::default() };
        assert_eq!((skipped.skipped_bytes, skipped.counts()), (15, counts));
        let failed = of_three(Tally::failed);
        let counts = FileCounts { failed: 3, ..FileCounts::default() };
        assert_eq!((failed.failed_directories, failed.counts()), (1, counts));
        let planned = of_three(|tally, offer| tally.plan(offer, offer.size_bytes == 5));
        let counts = FileCounts { planned: 2, planned_directories: 1, ..FileCounts::default() };
        assert_eq!((planned.planned_bytes, planned.counts()), (15, counts));
        assert_eq!(planned.replaced_files, 1, "the others are new");
    }

    #[test]
    fn an_offer_that_comes_again_counts_once() {
        let mut tally = of_three(Tally::offered);
        tally.forget_offer(&offer(FileKind::Regular, 5));
        tally.forget_offer(&offer(FileKind::Directory, 0));
        let counts = |tally: &Tally| (tally.offered_files, tally.offered_directories);
        assert_eq!((counts(&tally), tally.offered_bytes), ((1, 0), 10));
        // The file of 10 bytes has grown to 14.
        tally.offered(&offer(FileKind::Regular, 14));
        tally.is_another_round(10);
        assert_eq!((counts(&tally), tally.offered_bytes), ((1, 0), 14));
    }

    #[test]
    fn a_session_has_settled_what_it_did_and_skipped_and_failed_but_no_directory() {
        let tally = Tally {
            offered_files: 30,
            offered_directories: 6,
            done_files: 5,
            done_directories: 2,
            skipped_files: 6,
            skipped_directories: 1,
            failed_files: 9,
            failed_directories: 2,
            ..Tally::default()
        };
        assert_eq!((tally.settled_files(), tally.files_total()), (15, 24));
    }

    #[test]
    fn bytes_of_earlier_runs_are_there_before_and_are_no_headway() {
        let tally = Tally {
            resumed_bytes: 100,
            skipped_bytes: 20,
            hole_bytes: 3,
            verified_bytes: 4000,
            done_files: 50,
            ..Tally::default()
        };
        assert_eq!((tally.there_before(), tally.headway()), (123, 4050));
    }
}
