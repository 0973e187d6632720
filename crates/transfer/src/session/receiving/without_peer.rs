//! Receiving role without a peer, for tests of its stages.

use super::start::{Begun, ReceivingOptions};
use crate::{
    file_options::FileOptions,
    session::{
        disclosure::Telling,
        moved_earlier::MovedEarlier,
        role::EventSink,
        streams::{StreamSetup, Streams},
        supply::Source,
        tally::OfferLimits,
    },
    storage::{
        root::Root,
        target_place::{PathMeans, TargetPlace},
    },
    transport::waker::Waker,
};
use std::{path::Path, sync::mpsc, time::Duration};

/// The place that receives into a directory.
pub(super) fn place(directory: &Path, file_options: FileOptions) -> TargetPlace {
    let root = Root::open(directory).expect("a root");
    TargetPlace::resolve(&root, b"", PathMeans::Directory, file_options).expect("a place")
}

/// Begins a role that receives to a place and is given no connections.
pub(super) fn begin(place: TargetPlace, events: EventSink<'_>) -> Begun<'_> {
    begin_with(place, options(), StreamSetup::of_nobody(), events)
}

/// Begins such a role with options and a set-up of its own.
pub(super) fn begin_with(
    place: TargetPlace,
    options: ReceivingOptions,
    setup: StreamSetup,
    events: EventSink<'_>,
) -> Begun<'_> {
    let streams = Streams::new(Waker::new().expect("a waker"));
    let (_, attached) = mpsc::channel();
    options.begin(place, setup, streams, Source::Attach(attached), events).expect("threads")
}

/// The options of a session in which nothing special is asked for.
pub(super) fn options() -> ReceivingOptions {
    ReceivingOptions {
        telling: Telling::All,
        dry_run: false,
        offers: OfferLimits { files: 100, bytes: 1 << 20 },
        stall_after: Duration::from_secs(60),
        engine: None,
        span_bytes: None,
        expected: None,
        matcher: None,
        selection: None,
        manifest: None,
        moved_earlier: MovedEarlier::default(),
        verify_target: false,
        peer_rechecks: true,
    }
}
