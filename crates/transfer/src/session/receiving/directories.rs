//! Modes and times of a session's directories, which are set at the end.
//!
//! Nothing is made in the directories any more by then.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use haul_protocol::message::{FileKind, FileOffer};

/// The most memory of directories whose mode and time are set at the end, in bytes: of more, those
/// that come later keep new ones.
const DIRECTORY_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(super) struct Directories {
    offers: Vec<FileOffer>,
    bytes: usize,
}

impl Stage for Directories {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let is_made = !settled.has_failed() && !context.place.file_options().leaves_nothing();
        if settled.offer.kind == FileKind::Directory && is_made {
            self.bytes += size_of::<FileOffer>() + settled.offer.name.len();
            if self.bytes < DIRECTORY_BYTES_MAX {
                self.offers.push(settled.offer.clone());
            }
        }
    }

    /// Sets modes and times, children first: setting a child's entry changes its directory's time.
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        for offer in std::mem::take(&mut self.offers).iter().rev() {
            if let Err(fault) = context.place.finish_directory(offer) {
                context.failed_late(fault);
            }
        }
        true
    }
}
