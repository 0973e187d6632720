//! Sending role without a peer, for tests of its stages.

use super::{
    giving::Giving,
    sources::Sources,
    start::{Begun, SendingOptions},
};
use crate::{
    file_options::FileOptions,
    options::SourceSpec,
    session::{
        moved_earlier::MovedEarlier,
        role::EventSink,
        streams::{StreamSetup, Streams},
        supply::Source,
        tally::OfferLimits,
    },
    storage::{
        named_sources::walk_named,
        source::SourceEntry,
        walk::{Listed, Walk, WalkOptions},
    },
    transport::waker::Waker,
};
use std::{path::Path, sync::mpsc, time::Duration};

/// Entries of a path's walk, in the order of their names.
pub(super) fn entries(path: &Path) -> Vec<SourceEntry> {
    let entry = |listed| match listed {
        Listed::Entry(entry) => *entry,
        other => panic!("{other:?}"),
    };
    let sources = [SourceSpec::Path(path.to_path_buf().into())];
    let mut entries: Vec<_> = walk_named(&sources, WalkOptions::default()).map(entry).collect();
    entries.sort_by(|one, two| one.offer.name.cmp(&two.offer.name));
    entries
}

/// Begins a role that has no sources of its own and is given no connections.
pub(super) fn begin(file_options: FileOptions, events: EventSink<'_>) -> Begun<'_> {
    let streams = Streams::new(Waker::new().expect("a waker"));
    let (_, attached) = mpsc::channel();
    let options = SendingOptions {
        giving: Giving::Files,
        offers: OfferLimits { files: 100, bytes: 1 << 20 },
        stall_after: Duration::from_secs(60),
        engine: None,
        span_bytes: None,
        file_options,
        written: Default::default(),
        manifest: None,
        moved_earlier: MovedEarlier::default(),
    };
    let sources = Sources::Listed(Box::new(Walk::new([], WalkOptions::default())));
    options.begin(&sources, StreamSetup::of_nobody(), streams, Source::Attach(attached), events)
}
