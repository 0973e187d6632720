//! Writes the manifest's line of each file that is received, when the file is settled.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::{
    file_status::FileStatus,
    manifest::{Lines, Missing},
};

pub(super) struct ManifestLines(pub Lines);

impl Stage for ManifestLines {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        if settled.is_round() {
            return;
        }
        let is_there = matches!(settled.status, FileStatus::Done | FileStatus::Skipped);
        let content = if is_there { Ok(settled.content.take()) } else { Err(Missing) };
        let stored_as = settled.stored_as.as_ref().map(|name| &*name.0);
        self.0.received(&context.place, &settled.offer, stored_as, content);
    }
}
