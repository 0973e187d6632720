//! Writes the manifest's line of each file that is sent, when the file is settled.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::manifest::{Lines, Origin};
use haul_protocol::{
    file_life::{EndResult, NextStep},
    message::{self, FileKind},
};

pub(super) struct ManifestLines(pub Lines);

impl Stage for ManifestLines {
    fn settled(&mut self, settled: &mut Settled, _context: &mut Context<'_>) {
        if !settled.is_told {
            return;
        }
        let failed = match &settled.step {
            NextStep::OfferAsFile | NextStep::ComesLater(_) => true,
            NextStep::Ends(end) => match end.result {
                EndResult::Done | EndResult::Skipped => false,
                EndResult::Failed(_) => true,
                EndResult::Planned(_) => return,
            },
            _ => return,
        };
        if failed {
            return self.0.failed(&settled.entry.offer);
        }
        let content = settled.content.take();
        let entry = &settled.entry;
        let origin = Origin::of_source(entry);
        let stored_as = settled.stored_as.as_ref().map(|name| &*name.0);
        if entry.offer.kind == FileKind::HardLink {
            let (kind, size_bytes) = (FileKind::Regular, entry.size_bytes);
            let named = message::FileOffer { kind, size_bytes, ..entry.offer.clone() };
            return self.0.settled(&named, stored_as, None, &origin);
        }
        self.0.settled(&entry.offer, stored_as, content, &origin);
    }
}
