//! Start of a sending role: its options, and all of its state at the begin.

use super::{
    comparing::Comparing,
    context::Context,
    data_streams::{DataStreams, Watch},
    following::{Following, Written},
    giving::Giving,
    hard_links::HardLinks,
    loss::LossWatch,
    manifest_lines::ManifestLines,
    moving::Moving,
    news::News,
    rereading::Rereading,
    send_spans::SendShared,
    sent_spans::SentSpans,
    sources::Sources,
    stages_in_order::Stages,
};
use crate::{
    file_options::{FileOptions, OnConflict},
    locks::Lock,
    manifest::Lines,
    problem::Side,
    session::{
        contents::Contents,
        engine_orders::{Engines, Orders},
        moved_earlier::MovedEarlier,
        patience::Patience,
        resumed::TakenUpBytes,
        role::EventSink,
        streams::{StreamSetup, Streams},
        supply::{self, Supply},
        tally::{OfferLimits, Tally},
    },
};
use haul_protocol::Sender;
use std::{
    sync::{Arc, Condvar, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// Options of a sending role beside its sources and streams.
pub struct SendingOptions {
    pub giving: Giving,
    pub offers: OfferLimits,
    pub stall_after: Duration,
    pub engine: Option<String>,
    pub span_bytes: Option<u64>,
    pub file_options: FileOptions,
    /// Memory of followed files, from the session before.
    pub written: Written,
    /// The manifest in which each settled file gets a line.
    pub manifest: Option<Lines>,
    /// Files of a move that an earlier session of the run brought.
    pub moved_earlier: MovedEarlier,
}

/// Parts of a sending role as they are at its begin.
pub(super) struct Begun<'a> {
    pub context: Context<'a>,
    pub stages: Stages,
    pub streams: DataStreams,
    pub patience: Patience,
}

impl SendingOptions {
    /// Makes the parts of a role that sends `sources`.
    pub(super) fn begin<'a>(
        self,
        sources: &Sources,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: supply::Source,
        events: EventSink<'a>,
    ) -> Begun<'a> {
        let options = self;
        let (file_options, now) = (options.file_options, Instant::now());
        let supply = Supply::new(source, streams.clone(), setup.clone());
        let is_quick = supply.connects() && !file_options.takes_long();
        let patience = Patience::new(is_quick, options.stall_after);
        let wake = |streams: &Arc<Streams>| {
            let streams = streams.clone();
            move || streams.wake()
        };
        let follow = file_options.recording.follow;
        // A watch has no end at which all names of an inode are known.
        let keeps_links =
            file_options.on_conflict != OnConflict::KeepBoth && !file_options.recording.watch;
        let stages = Stages {
            watching: sources.watching(file_options),
            following: follow
                .then(|| Following::new(file_options, options.span_bytes, options.written)),
            links: HardLinks::new(keeps_links),
            comparing: Comparing::new(wake(&streams)),
            rereading: Rereading::new(wake(&streams)),
            taken_up: TakenUpBytes::default(),
            manifest: options.manifest.map(ManifestLines),
            moving: Moving::default(),
        };
        let shared = Arc::new(SendShared {
            machine: Lock::new(Sender::new(options.offers.files, options.offers.bytes)),
            spans: Condvar::new(),
            sources: Lock::default(),
            contents: Contents::default(),
            sent: SentSpans::default(),
            streams,
            setup,
            orders: Orders::default(),
            bulk_bytes: AtomicU64::new(0),
            ahead: Arc::default(),
        });
        Begun {
            context: Context {
                shared,
                file_options,
                tally: Tally::default(),
                to_offer: Default::default(),
                failed_here: Default::default(),
                news: file_options.recording.watch.then(News::default),
                moved_earlier: options.moved_earlier,
                finishing: false,
                ended: None,
                events,
            },
            stages,
            streams: DataStreams {
                supply,
                engines: Engines::new(Side::Source),
                forced_engine: options.engine,
                loss: LossWatch::new(now),
                watch: Watch::new(options.stall_after, now),
            },
            patience,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session::sending::{
            stage::{Found, Offered, Stage},
            without_peer,
        },
        storage::walk::{Walk, WalkOptions},
        transport::waker::Waker,
    };
    use haul_protocol::{Awaited, FileId};
    use std::sync::mpsc;

    fn begin<'a>(
        file_options: FileOptions,
        source: supply::Source,
        events: EventSink<'a>,
    ) -> Begun<'a> {
        let stall_after = Duration::from_secs(1);
        let options = SendingOptions { stall_after, ..without_peer::options(file_options) };
        let sources = Sources::Listed(Box::new(Walk::new([], WalkOptions::default())));
        let streams = Streams::new(Waker::new().expect("a waker"));
        options.begin(&sources, StreamSetup::of_nobody(), streams, source, events)
    }

    fn client() -> supply::Source {
        without_peer::client(Duration::from_secs(60)).0
    }

    fn server() -> supply::Source {
        supply::Source::Attach(mpsc::channel().1)
    }

    #[test]
    fn only_a_server_that_need_not_read_whole_files_has_to_answer_soon() {
        let plain = FileOptions::default();
        let compares = FileOptions { compare_content: true, ..plain };
        for (file_options, source, is_soon) in [
            (plain, client(), true),
            (compares, client(), false),
            (plain, server(), false),
            (compares, server(), false),
        ] {
            let mut hear = |_| {};
            let mut patience = begin(file_options, source, &mut hear).patience;
            let now = Instant::now();
            let mut check = |after| {
                let awaited = Some(Awaited::Answer);
                patience.check(now + Duration::from_secs(after), || (0, awaited)).is_err()
            };
            assert!(!check(2));
            assert_eq!(check(60), is_soon, "{file_options:?}");
        }
    }

    #[test]
    fn names_of_one_file_go_as_links_where_all_are_known_and_each_has_its_place() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "bytes").unwrap();
        std::fs::hard_link(directory.path().join("a"), directory.path().join("b")).unwrap();
        let entries = without_peer::files(directory.path());
        let plain = FileOptions::default();
        let mut watches = plain;
        watches.recording.watch = true;
        let keeps_both = FileOptions { on_conflict: OnConflict::KeepBoth, ..plain };
        for (file_options, are_links) in [(plain, true), (watches, false), (keeps_both, false)] {
            let mut hear = |_| {};
            let Begun { mut context, mut stages, .. } = begin(file_options, server(), &mut hear);
            let links = &mut stages.links;
            let offered = Offered { file: FileId(0), entry: &entries[0], before: None };
            links.offered(&offered, &mut context);
            let entry = Box::new(entries[1].clone());
            let found = Found { entry, is_complete: false, now: Instant::now() };
            assert_eq!(links.met(found, &mut context).is_none(), are_links, "{file_options:?}");
        }
    }
}
