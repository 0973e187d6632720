//! Sources of a move, which are removed once they are durable at the target.

use super::Sending;
use crate::storage::source::SourceEntry;
use haul_protocol::wire::FileKind;

/// Directories of a move that are removed at its end, in bytes of their names: of more, the first.
const MOVED_DIRECTORY_BYTES_MAX: usize = 8 << 20;

impl Sending<'_> {
    /// It is durable at the target. Directories wait until they are empty.
    pub(super) fn remove_source(&mut self, entry: SourceEntry) {
        if entry.offer.kind() == FileKind::Directory {
            self.moved_directory_bytes += entry.offer.name.len();
            if self.moved_directory_bytes < MOVED_DIRECTORY_BYTES_MAX {
                self.moved_directories.push(entry);
            }
            return;
        }
        match entry.remove() {
            Ok(()) => self.tally.sources_removed += 1,
            Err(fault) => self.unlisted(fault),
        }
    }

    pub(super) fn remove_moved_directories(&mut self) {
        for entry in std::mem::take(&mut self.moved_directories).into_iter().rev() {
            if let Err(fault) = entry.remove() {
                self.unlisted(fault);
            }
        }
    }
}
