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
