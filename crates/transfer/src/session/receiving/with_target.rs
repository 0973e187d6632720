//! Target directory of tests, in which files are received without a session.

use super::{
    committer::SharedTarget,
    with_sender::{SPAN, directory, offer},
};
use crate::{
    file_options::FileOptions,
    locks::{Lock, lock},
    storage::{
        fresh::Fresh,
        prepare::Prepared,
        root::Root,
        target_place::{PathMeans, TargetPlace},
    },
};
use haul_protocol::{
    SpanSet,
    message::{Digest, FileOffer},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A target directory.
pub(super) struct Target {
    pub directory: PathBuf,
    pub place: TargetPlace,
    fresh: Fresh,
}

impl Target {
    pub fn in_directory(directory: &Path) -> Self {
        Self::with(directory, FileOptions::default())
    }

    pub fn with(directory: &Path, options: FileOptions) -> Self {
        let root = Root::open(directory).unwrap();
        let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, options).unwrap();
        Self { directory: directory.to_owned(), ..Self::of(place) }
    }

    /// The target directory of a session.
    pub fn of(place: TargetPlace) -> Self {
        Self { directory: PathBuf::new(), place, fresh: Fresh::default() }
    }

    /// Prepares to receive what is offered, and tells which spans are there.
    pub fn prepare(&mut self, offer: &FileOffer) -> (SharedTarget, SpanSet) {
        self.prepare_in(offer, SPAN)
    }

    /// Prepares to receive what is offered in spans of this size.
    pub fn prepare_in(&mut self, offer: &FileOffer, span_bytes: u64) -> (SharedTarget, SpanSet) {
        let digest = Digest::AesGmac;
        match self.place.prepare(offer, span_bytes, digest, &mut self.fresh).unwrap() {
            Prepared::Ready { target, durable, .. } => {
                (Arc::new(Lock::new(Some(*target))), durable)
            }
            _ => panic!("{offer:?}: it is there"),
        }
    }

    /// Receives a file of one span.
    pub fn receive(&mut self, number: u32, name: &str, bytes: &[u8]) -> SharedTarget {
        let (target, _) = self.prepare(&offer(number, name, bytes.len() as u64));
        lock(&target).as_mut().unwrap().write_whole(bytes, None).unwrap();
        target
    }

    /// Hides a directory, and receives small files in it.
    pub fn receive_hidden(&mut self, name: &str, files: u32) -> Vec<SharedTarget> {
        let mut all = vec![self.prepare(&directory(0, name)).0];
        all.extend(
            (1..=files).map(|number| self.receive(number, &format!("{name}/{number}"), b"x")),
        );
        assert!(all.iter().all(|target| lock(target).as_ref().unwrap().is_light()));
        all
    }

    pub fn exists(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }
}
