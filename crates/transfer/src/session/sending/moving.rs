//! Sources of a move, which are removed once they are durable at the target.

use super::Sending;
use crate::storage::source::SourceEntry;
use haul_protocol::wire::FileKind;

impl Sending<'_> {
    /// It is durable at the target.
    pub(super) fn remove_source(&mut self, entry: SourceEntry) {
        if entry.offer.kind() == FileKind::Directory {
            return self.moved.wait_until_empty(entry);
        }
        if self.wishes.dry_run {
            self.tally.sources_removed += 1;
            return;
        }
        for entry in self.moved.gather(entry) {
            self.remove_now(&entry);
        }
    }

    fn remove_now(&mut self, entry: &SourceEntry) {
        match self.moved.remove(entry) {
            Ok(()) => self.tally.sources_removed += 1,
            Err(fault) => self.unlisted(fault),
        }
    }

    /// All is settled.
    pub(super) fn remove_rest_of_moved(&mut self) {
        if self.wishes.dry_run {
            return;
        }
        for entry in self.moved.take_gathered() {
            self.remove_now(&entry);
        }
        for entry in self.moved.take_directories() {
            if let Err(fault) = entry.remove(None) {
                self.unlisted(fault);
            }
        }
    }
}
