//! Start of a receiving role: its options, and all of its state at the begin.

use super::{
    committer::{Committer, staged_max},
    comparing::Comparing,
    context::{AnswerRules, Context},
    data_streams::DataStreams,
    directories::Directories,
    expected::Expected,
    manifest_lines::ManifestLines,
    receive_spans::ReceiveShared,
    rechecking::Rechecking,
    removing::Removing,
    room::Room,
    rounds::Rounds,
    showing::Showing,
    stages_in_order::{Stages, TakenUp},
    target_check::TargetCheck,
};
use crate::{
    locks::Lock,
    manifest::Lines,
    selection::{Arriving, Matcher},
    session::{
        contents::Contents,
        disclosure::Telling,
        engine_orders::Orders,
        moved_earlier::MovedEarlier,
        patience::Patience,
        resumed::TakenUpBytes,
        role::EventSink,
        streams::{StreamSetup, Streams},
        supply::{self, Supply},
        tally::{OfferLimits, Tally},
    },
    storage::{open_files::Share, target_place::TargetPlace},
};
use haul_protocol::{
    Receiver,
    taken_names::{Repeats, TargetPath},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// Options of a receiving role beside its place and streams.
pub struct ReceivingOptions {
    /// Knowledge of files that are there which the sender may be told.
    pub telling: Telling,
    /// No file is asked for, wherever it would go.
    pub dry_run: bool,
    pub offers: OfferLimits,
    pub stall_after: Duration,
    pub engine: Option<String>,
    pub span_bytes: Option<u64>,
    /// Names that were asked for; `None`: any name may come.
    pub expected: Option<Vec<Expected>>,
    /// Patterns of the user: what they leave out is not removed either; `None`: they leave out
    /// nothing.
    pub matcher: Option<Matcher>,
    /// Selection of files, which the client has yet to say.
    pub selection: Option<Arriving>,
    /// The manifest in which each settled file gets a line.
    pub manifest: Option<Lines>,
    /// Files of a move that an earlier session of the run brought.
    pub moved_earlier: MovedEarlier,
    /// Files are read back from their disk before they get their names.
    pub verify_target: bool,
    /// The sender has capability 2: it sends again what is found lost.
    pub peer_rechecks: bool,
}

impl ReceivingOptions {
    fn rules(&self) -> AnswerRules {
        let Self { telling, dry_run, span_bytes, verify_target, peer_rechecks, .. } = *self;
        AnswerRules { telling, dry_run, span_bytes, verify_target, peer_rechecks }
    }
}

/// Parts of a receiving role as they are at its begin.
pub(super) struct Begun<'a> {
    pub context: Context<'a>,
    pub committer: Committer,
    pub stages: Stages,
    pub streams: DataStreams,
    pub patience: Patience,
}

impl ReceivingOptions {
    /// Makes the parts of a role that receives to `place`, and starts the thread of its committer.
    ///
    /// # Errors
    /// If no thread can be had for the committer.
    pub(super) fn begin<'a>(
        self,
        place: TargetPlace,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: supply::Source,
        events: EventSink<'a>,
    ) -> std::io::Result<Begun<'a>> {
        let options = self;
        let rules = options.rules();
        if rules.verify_target {
            // A file is read back while it is open, before it has a name.
            place.forbid_staging();
        }
        let contents = Arc::new(Contents::default());
        let check = rules.verify_target.then(|| TargetCheck::new(contents.clone()));
        let (root, staged_max) = (place.root(), staged_max(options.offers.files));
        let committer =
            Committer::start(wake(&streams), contents.clone(), check, root, staged_max)?;
        let supply = Supply::new(source, streams.clone(), setup.clone());
        let is_quick = supply.connects() && !place.file_options().takes_long();
        let stages = stages(&place, options.manifest, &streams);
        let shared = Arc::new(ReceiveShared {
            machine: Lock::new(machine(&place, options.offers)),
            targets: Lock::default(),
            contents,
            committer: committer.handle(),
            streams,
            setup,
            orders: Orders::default(),
            verified_bytes: AtomicU64::new(0),
            damaged_spans: AtomicU64::new(0),
            small_files: Share::of_small_files(),
            failed: Lock::default(),
        });
        Ok(Begun {
            context: Context {
                shared,
                place,
                rules,
                matcher: options.matcher,
                moved_earlier: options.moved_earlier,
                tally: Tally::default(),
                taken_up: TakenUpBytes::default(),
                open: BTreeMap::new(),
                settled: VecDeque::new(),
                wants_streams: false,
                progress_at: Some(Instant::now()),
                finishing: false,
                ended: None,
                events,
            },
            committer,
            stages,
            streams: DataStreams::new(supply, options.engine, options.stall_after),
            patience: Patience::new(is_quick, options.stall_after),
        })
    }
}

/// Gives what wakes the session's thread.
fn wake(streams: &Arc<Streams>) -> impl Fn() + Clone + Send + 'static {
    let streams = streams.clone();
    move || streams.wake()
}

fn stages(place: &TargetPlace, manifest: Option<Lines>, streams: &Arc<Streams>) -> Stages {
    Stages {
        room: Room::default(),
        comparing: Comparing::new(wake(streams)),
        rechecking: Rechecking::new(wake(streams)),
        taken_up: TakenUp,
        rounds: Rounds::default(),
        showing: Showing::default(),
        manifest: manifest.map(ManifestLines),
        removing: Removing::new(place, streams.clone()),
        directories: Directories::default(),
    }
}

/// Makes the state machine of a session that receives to `place`.
fn machine(place: &TargetPlace, offers: OfferLimits) -> Receiver {
    let is_renamed = matches!(place, TargetPlace::Below { rename: Some(_), .. });
    let path = if is_renamed { TargetPath::NameOfOneSource } else { TargetPath::Directory };
    let is_watched = place.file_options().recording.watch;
    let repeats = if is_watched { Repeats::OnceSettled } else { Repeats::Refused };
    Receiver::new(offers.files, offers.bytes).naming(path, repeats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::{FileOptions, Recording},
        session::receiving::{with_sender::offer, without_peer},
        storage::{root::Root, target_place::PathMeans},
    };
    use haul_protocol::{Message, ReceiverEvent};

    /// Whether a second file of a name, or another name, is refused.
    fn is_refused(place: &TargetPlace, names: [&str; 2]) -> bool {
        let mut machine = machine(place, OfferLimits { files: 10, bytes: 1 << 20 });
        for (number, name) in names.into_iter().enumerate() {
            machine.handle(Message::FileOffer(offer(number as u32, name, 1))).unwrap();
            machine.committed(haul_protocol::FileId(number as u32), Ok(()));
        }
        let mut events = std::iter::from_fn(|| machine.poll_event());
        events.any(|event| matches!(event, ReceiverEvent::NameTaken { .. }))
    }

    #[test]
    fn a_watch_offers_a_name_again_and_a_new_name_stands_for_one_source() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let below = without_peer::place(directory.path(), FileOptions::default());
        let name = PathMeans::Name;
        let renamed = TargetPlace::resolve(&root, b"new", name, FileOptions::default()).unwrap();
        let recording = Recording { watch: true, ..Recording::default() };
        let watching = FileOptions { recording, ..FileOptions::default() };
        let watched = without_peer::place(directory.path(), watching);
        assert!(is_refused(&below, ["x", "x"]) && !is_refused(&below, ["x", "y"]));
        assert!(is_refused(&renamed, ["x", "y"]));
        assert!(!is_refused(&watched, ["x", "x"]));
    }
}
