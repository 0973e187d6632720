//! The sending role of a session: lists and offers files, feeds the streams, confirms the sources.

mod choosing;
mod data_streams;
mod giving;
mod loss;
mod moving;
mod recordings;
mod rereading;

use super::{
    comparing::{Content, Hashing},
    contents::Contents,
    engines::{Engines, Orders},
    following::{Following, Written},
    hard_links::{HardLinks, Met},
    patience::Patience,
    send_stream::{SendShared, Source},
    sent_spans::SentSpans,
    streams::{StreamFigures, StreamSetup, Streams},
    supply::{self, Supply},
    taken_up::TakenUpBytes,
    watching::{Next, Watching},
};
use crate::{
    error::io_fault,
    events::{Event, FileEnded, Lag},
    file_status::FileStatus,
    locks::lock,
    manifest::{Lines, Origin},
    name::{Name, printable},
    problem::{Problem, Side},
    selection::{Arriving, Selection},
    session::{
        moved::{Moved, is_moved},
        role::{EventSink, Pumped, Role, SessionEnd},
        stages,
        tally::{OfferLimits, Tally},
    },
    storage::{
        holes,
        source::{Ctime, SourceEntry},
        walk::{Listed, Top, Walk, WalkOptions},
    },
    wishes::{OnConflict, Wishes},
};
pub use giving::Giving;
use haul_protocol::{
    FileId, Message, ProtocolError, Sender, SenderEvent, SpanGrid, StreamId,
    name::check_relative_name,
    sender::FileOutcome,
    wire::{self, Fault, FaultCode, FileKind, Growth},
};
use loss::LossWatch;
use rereading::{EarlierSpans, Reread};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// Offered at a time, before what came in meanwhile is looked at.
const OFFERS_A_PUMP: usize = 256;
/// Files under way that are looked at for one to name.
pub(super) const LOOKED_AT_MAX: usize = 64;
/// Files being compared, beside those whose offers are open: no more are met before.
const COMPARING_MAX: usize = 1024;
/// How long a watch that its user ends may take.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(10);
/// How long the streams may take to say their orderly end.
const END_PATIENCE: Duration = Duration::from_secs(2);

pub struct Sending<'a> {
    shared: Arc<SendShared>,
    sources: Sources,
    giving: Giving,
    wishes: Wishes,
    links: HardLinks,
    /// Files that are sent while they are written, where that was asked for.
    following: Option<Following>,
    /// What appears is sent too, where that was asked for.
    watching: Option<Watching>,
    interrupted_at: Option<Instant>,
    /// Files of which the receiver has one of the same size, and what that holds.
    comparing: BTreeMap<FileId, (SourceEntry, Content)>,
    hashing: Hashing,
    /// Sources that are read again, as their inodes have changed; and those that are to be looked
    /// at once more, whatever comes out.
    rereading: Hashing<Reread>,
    void_rereads: BTreeSet<FileId>,
    /// What earlier sessions left at the receiver.
    earlier: BTreeMap<FileId, Arc<EarlierSpans>>,
    /// To be offered again, with the number that it had.
    again: VecDeque<(Option<FileId>, SourceEntry)>,
    /// Open files that another offer may follow.
    may_return: usize,
    stored_as: BTreeMap<FileId, Name>,
    moved: Moved,
    supply: Supply,
    events: EventSink<'a>,
    pub tally: Tally,
    taken_up: TakenUpBytes,
    pub peer_report: Option<wire::SideReport>,
    /// Chosen at the first regular file, for all streams.
    engines: Engines,
    loss: LossWatch,
    forced_engine: Option<String>,
    manifest: Option<Lines>,
    listed_all: bool,
    offers_ended: bool,
    finishing: bool,
    ended: Option<SessionEnd>,
    watch: Watch,
    patience: Patience,
    /// Messages of the receiver that bring the transfer on.
    handled: u64,
}

/// The sources to send.
pub enum Sources {
    Listed(Box<Walk>),
    /// The client has yet to say which of it.
    AwaitSelection {
        top: Vec<Top>,
        options: Box<WalkOptions>,
        arriving: Arriving,
    },
}

impl Sources {
    fn watching(&self, wishes: Wishes) -> Option<Watching> {
        let Self::Listed(walk) = self else { return None };
        let watch = walk.watch()?;
        Some(Watching::new(wishes.recording, watch, Instant::now()))
    }
}

/// When each stream last got something through.
struct Watch {
    stall_after: Duration,
    /// When the receiver last said anything.
    heard_at: Instant,
    seen: BTreeMap<StreamId, (u64, Instant)>,
    receiver: BTreeMap<StreamId, wire::StreamProgress>,
    /// Given up, and not ended yet.
    stalled: BTreeSet<StreamId>,
}

impl<'a> Sending<'a> {
    pub fn new(
        sources: Sources,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: supply::Source,
        options: SendingOptions,
        events: EventSink<'a>,
    ) -> Self {
        let supply = Supply::new(source, streams.clone(), setup.clone());
        let (wake, wake_too) = (streams.clone(), streams.clone());
        let is_quick = supply.connects() && !options.wishes.takes_long();
        let patience = Patience::new(is_quick, options.stall_after);
        let shared = Arc::new(SendShared {
            machine: Mutex::new(Sender::new(options.offers.files, options.offers.bytes)),
            spans: Condvar::new(),
            sources: Mutex::default(),
            contents: Contents::default(),
            sent: SentSpans::default(),
            streams,
            setup,
            orders: Orders::default(),
            bulk_bytes: AtomicU64::new(0),
        });
        let follow = options.wishes.recording.follow;
        let following =
            follow.then(|| Following::new(options.wishes, options.span_bytes, options.written));
        let watching = sources.watching(options.wishes);
        Self {
            shared,
            sources,
            following,
            watching,
            interrupted_at: None,
            giving: options.giving,
            wishes: options.wishes,
            links: HardLinks::default(),
            comparing: BTreeMap::new(),
            hashing: Hashing::new(move || wake.wake()),
            rereading: Hashing::new(move || wake_too.wake()),
            void_rereads: BTreeSet::new(),
            earlier: BTreeMap::new(),
            again: VecDeque::new(),
            may_return: 0,
            stored_as: BTreeMap::new(),
            moved: Moved::default(),
            supply,
            events,
            tally: Tally::default(),
            taken_up: TakenUpBytes::default(),
            peer_report: None,
            engines: Engines::new(Side::Source),
            loss: LossWatch::new(Instant::now()),
            forced_engine: options.engine,
            manifest: options.manifest,
            listed_all: false,
            offers_ended: false,
            finishing: false,
            ended: None,
            watch: Watch {
                stall_after: options.stall_after,
                heard_at: Instant::now(),
                seen: BTreeMap::new(),
                receiver: BTreeMap::new(),
                stalled: BTreeSet::new(),
            },
            patience,
            handled: 0,
        }
    }

    /// Figures of this side, for the report.
    #[must_use]
    pub fn report(&self) -> wire::SideReport {
        let because = self.engines.because();
        let congestion = &self.shared.setup.congestion.because;
        let because =
            if because.is_empty() { String::new() } else { format!("{because}; {congestion}") };
        let streams = &self.shared.streams;
        let (throttled_ns, sources_removed) = (streams.throttled_ns(), self.tally.sources_removed);
        let report = stages::Part::of_sender(streams).report(because);
        wire::SideReport { throttled_ns, sources_removed, ..report }
    }

    /// Time of this side's streams by stage, so far.
    #[must_use]
    pub fn figures(&self) -> wire::Figures {
        stages::Part::of_sender(&self.shared.streams).figures()
    }

    /// Tells this side's user something.
    pub fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// The file that was offered first of those under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        let sources = lock(&self.shared.sources);
        let mut offers = sources.values().take(LOOKED_AT_MAX).map(|source| &source.entry.offer);
        let file = offers.find(|offer| offer.kind() == FileKind::Regular)?;
        Some(Name(file.name.clone()))
    }

    /// The furthest that the target was behind a file that was followed.
    #[must_use]
    pub fn largest_lag(&self) -> Option<Lag> {
        self.following.as_ref().and_then(|following| following.lag.largest.clone())
    }

    /// Ends the streams; what was sent and not acknowledged is sent again by another session.
    pub fn stop(&mut self) {
        self.shared.spans.notify_all();
        self.shared.streams.stop();
        self.hashing.stop();
        self.rereading.stop();
    }

    fn offer_files(&mut self) {
        for _ in 0..OFFERS_A_PUMP {
            if self.offers_ended || !lock(&self.shared.machine).may_offer() {
                return;
            }
            if let Some((before, entry)) = self.again.pop_front() {
                self.offer(entry, before);
                continue;
            }
            let is_full = self.following.as_ref().is_some_and(Following::is_full);
            if is_full || self.comparing.len() >= COMPARING_MAX || self.links.is_full() {
                return;
            }
            let Sources::Listed(walk) = &mut self.sources else { return };
            if walk.must_wait() {
                return;
            }
            match walk.next() {
                None => match self.watch_on() {
                    Next::Walk => {}
                    Next::Rest => return,
                    Next::End => {
                        self.listed_all = true;
                        self.tally.total_known = self.following.is_none();
                        return self.end_offers();
                    }
                },
                Some(Listed::Failed(fault)) => self.unlisted(fault),
                Some(Listed::LeftOut(fault)) => self.left_out(fault),
                Some(Listed::Entry(entry)) => match check_relative_name(&entry.offer.name) {
                    Ok(()) => self.meet(entry),
                    Err(why) => {
                        let what = "cannot be offered under this name";
                        let fault = Fault::new(FaultCode::NameRefused, wire::Side::Source, what);
                        self.unlisted(fault.at(entry.offer.name).found(why));
                    }
                },
            }
        }
        // There is more: come back at once.
        self.shared.streams.wake();
    }

    fn end_offers(&mut self) {
        let none_returns = self.may_return == 0
            && self.comparing.is_empty()
            && self.following.as_ref().is_none_or(Following::is_empty);
        if none_returns && !self.links.has_waiting() {
            self.offers_ended = true;
            let (files, bytes) = (self.tally.offered_files, self.tally.offered_bytes);
            lock(&self.shared.machine).end_offers(files, bytes);
        }
    }

    /// A source that could not be offered: both sides' users read of it.
    fn unlisted(&mut self, fault: Fault) {
        if self.watching.as_mut().is_some_and(|watching| !watching.is_news(&fault)) {
            return;
        }
        self.source_failed(fault);
    }

    fn source_failed(&mut self, fault: Fault) {
        self.tally.failed_files += 1;
        (self.events)(Event::Error((&fault).into()));
        self.tally.first_problem.get_or_insert_with(|| (&fault).into());
        let notice = wire::Notice { fault: Some(fault), ..wire::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    fn left_out(&mut self, fault: Fault) {
        if self.watching.as_mut().is_some_and(|watching| !watching.is_news(&fault)) {
            return;
        }
        self.tally.left_out_files += 1;
        (self.events)(Event::LeftOut((&fault).into()));
        let notice = wire::Notice { fault: Some(fault), ..wire::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    /// Of two names of one inode the second waits for the first, where both would come to be one.
    fn meet(&mut self, entry: Box<SourceEntry>) {
        let (name, now) = (&entry.offer.name, Instant::now());
        let is_complete = self.watching.as_ref().is_some_and(|w| w.is_complete(name));
        if let Some(following) = self.following.as_mut().filter(|f| f.holds(name)) {
            if is_complete {
                following.closed(name);
            }
            return;
        }
        let watching = self.watching.as_mut();
        if watching.is_some_and(|w| w.waits(&entry.offer) || !w.wants(&entry.offer, now)) {
            return;
        }
        let is_file = entry.offer.kind() == FileKind::Regular && entry.offer.device != 0;
        if let Some(following) = self.following.as_mut().filter(|_| is_file) {
            if !following.is_over(&entry, is_complete) {
                if let Err(fault) = following.begin(*entry, is_complete, now) {
                    self.unlisted(fault);
                }
                return;
            }
            if let Some(watching) = &mut self.watching {
                watching.remember(&entry.offer);
            }
        }
        // A watch has no end at which all names of an inode are known.
        let keeps_links =
            self.wishes.on_conflict != OnConflict::KeepBoth && self.watching.is_none();
        match if keeps_links { self.links.meet(entry) } else { Met::Offer(entry) } {
            Met::Offer(entry) => self.offer(*entry, None),
            Met::Waits => {}
        }
    }

    /// `before` is the number that it was offered under before.
    fn offer(&mut self, entry: SourceEntry, before: Option<FileId>) {
        if let Err(fault) = self.choose_engines(&entry) {
            self.ended = Some(SessionEnd::Refused(fault));
        }
        self.may_return += usize::from(self.may_return(&entry));
        let file = lock(&self.shared.machine).offer(entry.offer.clone());
        let following = self.following.as_mut();
        let counted = following.and_then(|following| following.offered(&entry, before, file));
        let (is_first, bytes_before) = counted.unwrap_or((true, 0));
        if is_first {
            self.tally.offered(&entry.offer);
        }
        let offered_bytes = self.tally.offered_bytes + entry.offer.size_bytes;
        self.tally.offered_bytes = offered_bytes.saturating_sub(bytes_before);
        match before {
            _ if counted.is_some() => {}
            Some(before) => self.links.offered_again(before, file),
            None if self.wishes.on_conflict == OnConflict::KeepBoth => {}
            None if self.watching.is_some() => {}
            None => self.links.offered(file, &entry),
        }
        if let Some(watching) = &mut self.watching
            && entry.offer.kind() == FileKind::Regular
            && entry.offer.growth() == Growth::NotGrowing
        {
            watching.begins(&entry.offer.name);
        }
        lock(&self.shared.sources).insert(file, Source::new(entry));
    }

    /// Whether the receiver's answer may be that it is to be offered again.
    fn may_return(&self, entry: &SourceEntry) -> bool {
        match entry.offer.kind() {
            FileKind::HardLink => true,
            FileKind::Regular => {
                let grown = entry.offer.growth() == Growth::Grown;
                (self.wishes.compare_content || grown)
                    && entry.offer.compared() == wire::Compared::NotCompared
            }
            _ => false,
        }
    }

    fn handle_events(&mut self) {
        loop {
            let Some(event) = lock(&self.shared.machine).poll_event() else { break };
            match event {
                SenderEvent::Resumed { file, bytes, span_bytes, earlier } => {
                    self.keep_earlier(file, span_bytes, earlier);
                    self.resumed(file, bytes, span_bytes);
                }
                SenderEvent::StoredAs { file, name } => {
                    self.stored_as.insert(file, Name(name));
                }
                SenderEvent::Removed(names) => self.removed(names),
                SenderEvent::CheckSource(file) => self.check_source(file),
                SenderEvent::SpanDamaged { .. } => self.tally.resent_spans += 1,
                SenderEvent::Lost { file, bytes } => self.lost(file, bytes),
                SenderEvent::StreamClosed(stream) => self.shared.streams.shut(stream),
                SenderEvent::Settled { file, outcome } => self.settled(file, outcome),
                SenderEvent::Progress(progress) => {
                    // Nobody has more than there is, whatever he says.
                    let received = progress.received_bytes.min(self.tally.offered_bytes);
                    let durable = progress.durable_bytes.min(received);
                    self.tally.received_bytes = self.tally.received_bytes.max(received);
                    self.tally.durable_bytes = self.tally.durable_bytes.max(durable);
                    self.watch.receiver =
                        progress.streams.into_iter().map(|s| (StreamId(s.stream), s)).collect();
                }
                SenderEvent::Notice(wire::Notice { fault: Some(fault), .. }) => {
                    self.tally.failed_files += 1;
                    (self.events)(Event::Error((&fault).into()));
                }
                SenderEvent::Notice(notice) => (self.events)(Event::Fallback {
                    side: Side::Target,
                    from_to: printable(&notice.what),
                    why: printable(&notice.why),
                }),
                SenderEvent::Finished(report) => self.peer_report = Some(report),
                SenderEvent::Refused(fault) => self.ended = Some(SessionEnd::Refused(fault)),
            }
        }
    }

    /// Some of what an earlier run left is not there any more.
    fn lost(&mut self, file: FileId, bytes: u64) {
        self.taken_up.lost(&mut self.tally, file, bytes);
        if self.rereading.has(file) {
            self.void_rereads.insert(file);
        }
    }

    /// Of what is there already, spans that are holes were never anywhere else.
    fn resumed(&mut self, file: FileId, bytes: u64, span_bytes: u64) {
        let holes = lock(&self.shared.sources).get(&file).map_or(0, |source| {
            let offer = &source.entry.offer;
            let grid = SpanGrid::new(offer.size_bytes, span_bytes);
            grid.map_or(0, |grid| holes::bytes_within(&offer.holes, &grid)).min(bytes)
        });
        let following = self.following.as_mut();
        let of_round = following.and_then(|f| f.resumed(file, bytes, span_bytes));
        let bytes = of_round.unwrap_or(bytes - holes);
        // What grows is counted by rounds.
        let of_file = of_round.is_none().then_some(file);
        self.taken_up.add(&mut self.tally, of_file, bytes, holes);
        if bytes > 0 {
            let why = "these are at the target already".into();
            (self.events)(Event::Resume { bytes, why });
        }
    }

    fn removed(&mut self, names: Vec<Vec<u8>>) {
        self.tally.removed_files += names.len() as u64;
        for name in names {
            (self.events)(Event::File(FileEnded::new(name, self.wishes.removal_status(), 0)));
        }
    }

    fn settled(&mut self, file: FileId, outcome: FileOutcome) {
        let Some(source) = lock(&self.shared.sources).remove(&file) else { return };
        self.shared.sent.forget(file);
        self.earlier.remove(&file);
        let mut entry = Arc::unwrap_or_clone(source.entry);
        self.may_return -= usize::from(self.may_return(&entry));
        if self.goes_on(file, &entry, &outcome) {
            return;
        }
        let stored_as = self.stored_as.remove(&file);
        let bytes = entry.offer.size_bytes;
        let mut ended = FileEnded::new(entry.offer.name.clone(), FileStatus::Done, bytes);
        self.write_line(file, &entry, stored_as.as_ref(), &outcome);
        ended.stored_as = stored_as;
        ended.is_directory = entry.offer.kind() == FileKind::Directory;
        match outcome {
            FileOutcome::Done => self.tally.done(&entry.offer),
            FileOutcome::Skipped => {
                ended.status = FileStatus::Skipped;
                self.tally.skipped(&entry.offer);
            }
            FileOutcome::Compare(compare) => return self.compare(file, entry, compare),
            FileOutcome::Planned(plan) => {
                self.tally.plan(&entry.offer, plan.replaces);
                ended.status = plan_status(&plan);
                ended.stored_as = Some(Name(plan.stored_as)).filter(|name| !name.0.is_empty());
            }
            FileOutcome::Failed(fault)
                if entry.offer.kind() == FileKind::HardLink
                    && fault.code() == FaultCode::KindUnsupported =>
            {
                self.tally.forget_offer(&entry.offer);
                return self.again.push_back((None, HardLinks::as_file(entry)));
            }
            FileOutcome::Failed(fault) if self.comes_again(&entry, &fault) => {
                self.not_under_way(&entry);
                return self.tally.forget_offer(&entry.offer);
            }
            FileOutcome::Failed(fault) => {
                ended.status = FileStatus::Failed;
                self.tally.failed(&entry.offer);
                (self.events)(Event::Error(Problem::of_file(&fault, &entry.offer.name)));
            }
        }
        self.not_under_way(&entry);
        self.taken_up.settled(&mut self.tally, file, ended.status == FileStatus::Failed);
        self.settle_links(file, ended.status != FileStatus::Failed);
        if self.wishes.move_sources && is_moved(&ended.status, &entry.offer) {
            entry.offer.xattrs.clear();
            self.remove_source(entry);
        }
        (self.events)(Event::File(ended));
    }

    /// The manifest's line of a settled file.
    fn write_line(
        &self,
        file: FileId,
        entry: &SourceEntry,
        stored_as: Option<&Name>,
        outcome: &FileOutcome,
    ) {
        let content = self.shared.contents.take(file);
        let Some(manifest) = &self.manifest else { return };
        match outcome {
            FileOutcome::Failed(_) => manifest.failed(&entry.offer),
            FileOutcome::Done | FileOutcome::Skipped => {
                let origin = Origin::of_source(entry);
                let stored_as = stored_as.map(|name| &*name.0);
                if entry.offer.kind() == FileKind::HardLink {
                    let (kind, size_bytes) = (FileKind::Regular as i32, entry.size_bytes);
                    let named = wire::FileOffer { kind, size_bytes, ..entry.offer.clone() };
                    return manifest.settled(&named, stored_as, None, &origin);
                }
                manifest.settled(&entry.offer, stored_as, content, &origin);
            }
            FileOutcome::Compare(_) | FileOutcome::Planned(_) => {}
        }
    }

    fn settle_links(&mut self, file: FileId, in_place: bool) {
        for entry in self.links.settled(file, in_place) {
            self.again.push_back((None, entry));
        }
    }

    /// A file of its size is at the target: whether it is the same is found out beside this thread.
    fn compare(&mut self, file: FileId, entry: SourceEntry, compare: wire::Compare) {
        if entry.offer.growth() == Growth::NotGrowing {
            self.tally.forget_offer(&entry.offer);
        }
        let Ok(theirs) = Content::try_from(compare.blake3) else { return };
        let source = entry.clone();
        let size_bytes = entry.offer.size_bytes;
        let begun = self.hashing.begin_hash(file, size_bytes, move || {
            source.open().map_err(|fault| std::io::Error::other(fault.what))
        });
        match begun {
            Ok(()) => drop(self.comparing.insert(file, (entry, theirs))),
            Err(error) => self.not_compared(file, &entry, &error),
        }
    }

    fn not_compared(&mut self, file: FileId, entry: &SourceEntry, error: &std::io::Error) {
        // What changed says more than how reading it failed.
        let fault = entry.check().err().unwrap_or_else(|| {
            io_fault(wire::Side::Source, &entry.offer.name, "cannot be compared", error)
        });
        let following = self.following.as_mut();
        if following.is_some_and(|f| f.changed(file, &fault, Instant::now())) {
            return;
        }
        self.not_under_way(entry);
        self.settle_links(file, false);
        self.unlisted(fault);
    }

    fn handle_compared(&mut self) {
        for (file, hashed) in self.hashing.take_results() {
            let Some((mut entry, theirs)) = self.comparing.remove(&file) else { continue };
            match hashed.and_then(|mine| {
                let unchanged = entry.check().map_err(|fault| std::io::Error::other(fault.what))?;
                if unchanged.differs(Ctime::of_offer(&entry.offer)) {
                    return Err(std::io::Error::other("its inode changed while it was read"));
                }
                Ok(mine)
            }) {
                Ok(mine) => {
                    let same = mine == theirs;
                    let compared = if same {
                        wire::Compared::SameContent
                    } else {
                        wire::Compared::OtherContent
                    };
                    if let Some(following) = self.following.as_mut().filter(|_| !same) {
                        // What an earlier run left of it comes again too.
                        self.tally.resumed_bytes -= following.not_resumed(file);
                    }
                    entry.offer.compared = compared as i32;
                    self.again.push_back((Some(file), entry));
                }
                Err(error) => self.not_compared(file, &entry, &error),
            }
        }
    }

    /// A part of what the client says of the files that are meant.
    fn take_selection(&mut self, part: wire::Selection) -> Result<(), ProtocolError> {
        let Sources::AwaitSelection { top, options, arriving } = &mut self.sources else {
            return Err(ProtocolError::new("a selection that was not announced"));
        };
        let Some(selection) = arriving.take(part)? else { return Ok(()) };
        match compiled(&selection, std::mem::take(&mut **options)) {
            Ok(options) => {
                let walk = Walk::new(std::mem::take(top), options);
                self.sources = Sources::Listed(Box::new(walk));
                self.watching = self.sources.watching(self.wishes);
            }
            Err(fault) => self.ended = Some(SessionEnd::Refused(fault)),
        }
        Ok(())
    }
}

/// The options of a walk, with what the user selected.
///
/// # Errors
/// If a pattern is none: the fault for the user.
pub fn compiled(selection: &Selection, options: WalkOptions) -> Result<WalkOptions, Fault> {
    let matcher = selection.compile().map_err(|problem| {
        Fault::new(FaultCode::NameRefused, wire::Side::Unknown, problem.what)
            .needs(problem.needs)
            .found(problem.found)
    })?;
    Ok(WalkOptions { matcher: Some(matcher), names: selection.names.clone(), ..options })
}

/// What a dry run says of a file.
pub(super) fn plan_status(plan: &wire::Plan) -> FileStatus {
    if plan.replaces { FileStatus::WouldReplace } else { FileStatus::WouldCopy }
}

/// Options of a sending role beside its sources and streams.
pub struct SendingOptions {
    pub giving: Giving,
    pub offers: OfferLimits,
    pub stall_after: Duration,
    pub engine: Option<String>,
    pub span_bytes: Option<u64>,
    pub wishes: Wishes,
    /// Memory of the session before, of files that are followed.
    pub written: Written,
    /// The manifest in which each settled file gets a line.
    pub manifest: Option<Lines>,
}

impl Role for Sending<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        let is_told_only = matches!(message, Message::Progress(_) | Message::Notice(_));
        self.handled += u64::from(!is_told_only);
        match message {
            Message::Selection(part) => self.take_selection(part),
            Message::FileAnswer(answer) if !self.giving.allows(&answer) => Err(ProtocolError::new(
                "a receiver that may only list asked for a file or what it holds",
            )),
            message => lock(&self.shared.machine).handle(message),
        }
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.offer_files();
        self.handle_events();
        self.handle_compared();
        self.handle_reread();
        self.follow(now);
        self.open_streams();
        self.handle_stream_events();
        // After the streams' events: a stream that closed may have let spans go.
        self.handle_events();
        self.offer_files();
        self.watch_streams(now);
        self.watch_disk(now);
        self.watch_loss(now);
        self.shared.spans.notify_all();
        if !self.finishing && self.listed_all && lock(&self.shared.machine).all_settled() {
            self.finishing = true;
            self.remove_rest_of_moved();
            self.end_streams();
            let report = self.report();
            lock(&self.shared.machine).finish(report);
        }
        // What verifies a span is a message, too.
        let done = self.handled;
        self.patience.check(now, || (done, lock(&self.shared.machine).awaits()))?;
        if self.finishing && self.peer_report.is_some() {
            self.ended.get_or_insert(SessionEnd::Finished);
        }
        match self.ended.take() {
            Some(SessionEnd::Refused(fault)) if !self.finishing => Err(fault),
            Some(end) => Ok(Pumped::Ended(end)),
            None => Ok(Pumped::GoOn),
        }
    }

    fn heard(&mut self, at: Instant) {
        self.watch.heard_at = at;
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.engines.take_explained().or_else(|| lock(&self.shared.machine).poll_message())
    }

    /// A watch ends when its user wants it to, and is complete when nothing is under way then.
    fn ends_in_order(&mut self, now: Instant) -> bool {
        let is_open = !self.finishing && self.has_open();
        let Some(watching) = self.watching.as_mut().filter(|_| !is_open) else { return false };
        watching.end().into_iter().for_each(|fault| self.source_failed(fault));
        let since = *self.interrupted_at.get_or_insert(now);
        self.supply.connects() && now.saturating_duration_since(since) < GOODBYE_PATIENCE
    }

    fn moved_bytes(&self) -> u64 {
        self.shared.streams.moved_bytes()
    }

    /// A client has no time to lose, and what it says at the end is for the server's log.
    fn has_last_word(&self) -> bool {
        !self.supply.connects()
    }
}
