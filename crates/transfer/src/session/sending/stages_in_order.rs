//! All stages of a sending role, and the order in which they are told.

use super::{
    comparing::Comparing,
    context::Context,
    following::Following,
    hard_links::HardLinks,
    manifest_lines::ManifestLines,
    moving::Moving,
    rereading::Rereading,
    stage::{Settled, Stage},
    watching::Watching,
};
use crate::session::resumed::TakenUpBytes;

/// The stages of a sending role.
pub(super) struct Stages {
    /// The watch that sends files which appear later too, where that was asked for.
    pub watching: Option<Watching>,
    /// The stage that sends files while they are written, where that was asked for.
    pub following: Option<Following>,
    pub links: HardLinks,
    pub comparing: Comparing,
    pub rereading: Rereading,
    pub taken_up: TakenUpBytes,
    pub manifest: Option<ManifestLines>,
    pub moving: Moving,
}

impl Stages {
    /// All stages, in the order in which they are told.
    pub fn in_order(&mut self) -> impl Iterator<Item = &mut dyn Stage> {
        let Self { watching, following, links, comparing, rereading, taken_up, manifest, moving } =
            self;
        let first = watching.iter_mut().map(|stage| stage as &mut dyn Stage);
        let first = first.chain(following.iter_mut().map(|stage| stage as &mut dyn Stage));
        let always: [&mut dyn Stage; 4] = [links, comparing, rereading, taken_up];
        let last = manifest.iter_mut().map(|stage| stage as &mut dyn Stage);
        first.chain(always).chain(last).chain([moving as &mut dyn Stage])
    }
}

impl Stage for TakenUpBytes {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        if settled.end().is_some() {
            self.file_ended(&mut context.tally, settled.file, settled.has_failed());
        }
    }
}
