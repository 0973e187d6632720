//! All stages of a receiving role, and the order in which they are told.

use super::{
    comparing::Comparing,
    context::Context,
    directories::Directories,
    manifest_lines::ManifestLines,
    rechecking::Rechecking,
    removing::Removing,
    room::Room,
    rounds::Rounds,
    showing::Showing,
    stage::{Settled, Stage},
};

/// The stages of a receiving role.
pub(super) struct Stages {
    pub room: Room,
    pub comparing: Comparing,
    pub rechecking: Rechecking,
    pub taken_up: TakenUp,
    pub rounds: Rounds,
    pub showing: Showing,
    pub manifest: Option<ManifestLines>,
    /// The stage that removes what was not offered, where that was asked for.
    pub removing: Option<Removing>,
    pub directories: Directories,
}

impl Stages {
    /// All stages, in the order in which they are told. Hidden directories are shown before
    /// anything is removed; removing comes after what may still fail, and the directories' times
    /// after that.
    pub fn in_order(&mut self) -> impl Iterator<Item = &mut dyn Stage> {
        let Self { room, comparing, rechecking, taken_up, rounds, showing, .. } = self;
        let first: [&mut dyn Stage; 6] = [room, comparing, rechecking, taken_up, rounds, showing];
        let manifest = self.manifest.iter_mut().map(|stage| stage as &mut dyn Stage);
        let removing = self.removing.iter_mut().map(|stage| stage as &mut dyn Stage);
        first
            .into_iter()
            .chain(manifest)
            .chain(removing)
            .chain([&mut self.directories as &mut dyn Stage])
    }
}

/// The stage that counts what earlier runs left of a file: see [`crate::session::resumed`].
pub(super) struct TakenUp;

impl Stage for TakenUp {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        context.taken_up.file_ended(&mut context.tally, settled.file, settled.has_failed());
    }
}
