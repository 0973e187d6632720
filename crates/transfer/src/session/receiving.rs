//! The receiving role of a session: prepares targets, feeds the committer, settles files.

mod choosing;
mod data_streams;
mod progress;
mod rechecking;
mod refusing;
mod room;
mod rounds;
mod telling;

use super::{
    committer::{Committed, Committer},
    comparing::Hashing,
    contents::Contents,
    engines::{Engines, Orders},
    growing::Growing,
    patience::Patience,
    receive_stream::{ReceiveShared, Target},
    removing::{Removing, RemovingEvent},
    streams::{StreamSetup, Streams},
    supply::{self, Supply},
    taken_up::TakenUpBytes,
    target_check::TargetCheck,
};
use crate::{
    error::{io_fault, io_problem_fault},
    events::{Event, FileEnded, Lag},
    file_status::FileStatus,
    locks::lock,
    manifest::{Lines, Missing},
    name::{Name, printable},
    problem::{Problem, Side},
    selection::{Arriving, Matcher},
    session::{
        growth::growth,
        role::{EventSink, Pumped, Role, SessionEnd},
        stages,
        tally::{OfferLimits, Tally},
        telling::Telling,
    },
    storage::{
        fresh::Fresh,
        holes,
        open_files::{Pass, Share},
        part::growing::growing_span_bytes,
        prepare::Prepared,
        target_place::TargetPlace,
        waited_for::Held,
    },
};
use haul_datapath::choose;
use haul_protocol::{
    Awaited, FileId, Message, ProtocolError, Receiver, ReceiverEvent, SpanGrid, StreamId,
    receiver::Answer,
    taken_names::{Repeats, TargetPath},
    wire::{self, Fault, FaultCode, FileKind, FileOffer, Growth},
};
use rechecking::{RecheckTally, Rechecked, TakenUp};
use room::Room;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const PROGRESS_EVERY: Duration = Duration::from_millis(400);
/// The memory of directories whose mode and time are set at the end, at most: beyond, they keep new
/// ones.
const DIRECTORY_BYTES_MAX: usize = 32 << 20;

pub struct Receiving<'a> {
    shared: Arc<ReceiveShared>,
    committer: Committer,
    place: TargetPlace,
    supply: Supply,
    events: EventSink<'a>,
    pub tally: Tally,
    taken_up: TakenUpBytes,
    pub peer_report: Option<wire::SideReport>,
    options: ReceivingOptions,
    offers: BTreeMap<FileId, FileOffer>,
    /// Open, and of more than one span.
    large: BTreeMap<FileId, Pass>,
    large_files: Share,
    /// Large files to be answered when there is room for them.
    waiting: VecDeque<FileId>,
    directories: Vec<FileOffer>,
    fresh: Fresh,
    directory_bytes: usize,
    /// Files of the size of those offered, which are read to be compared.
    hashing: Hashing,
    /// Files of which an earlier run left something that is read back.
    rechecking: Hashing<Rechecked>,
    recheck_tally: RecheckTally,
    room: Room,
    /// Files that are sent while they are written.
    growing: Growing,
    /// What was durable when the last round of one began.
    growing_durable: u64,
    /// With `--delete`.
    removing: Option<Removing>,
    /// The names of open files that are not those offered.
    stored_as: BTreeMap<FileId, Vec<u8>>,
    /// Chosen at the first regular file, for all streams.
    engines: Engines,
    progress_at: Option<Instant>,
    finishing: bool,
    ended: Option<SessionEnd>,
    seen: BTreeMap<StreamId, (u64, Instant)>,
    all_seen: (u64, Instant),
    /// Some span has yet to come.
    wants_streams: bool,
    patience: Patience,
    /// Messages of the sender that bring the transfer on.
    handled: u64,
    damage_told: bool,
    /// The sender's streams wait for the network, as far as it told.
    network_holds_sender: bool,
}

/// Options of a receiving role beside its place and streams.
pub struct ReceivingOptions {
    /// Knowledge of files that are there which the sender may be told.
    pub telling: Telling,
    /// Nothing is asked for, wherever it would go.
    pub dry_run: bool,
    pub offers: OfferLimits,
    pub stall_after: Duration,
    pub engine: Option<String>,
    pub span_bytes: Option<u64>,
    /// Names that were asked for; `None`: anything may come.
    pub expected: Option<Vec<Expected>>,
    /// Patterns of the user: what they leave out is not removed either; `None`: they leave out
    /// nothing.
    pub matcher: Option<Matcher>,
    /// The client has yet to say it.
    pub selection: Option<Arriving>,
    /// The manifest in which each settled file gets a line.
    pub manifest: Option<Lines>,
    /// Files are read back from their disk before they get their names.
    pub verify_target: bool,
    /// The sender has capability 2: it sends again what is found lost.
    pub peer_rechecks: bool,
}

/// A source that was asked for, by the first component of its name.
#[derive(Debug)]
pub struct Expected {
    pub name: Vec<u8>,
    pub has_come: bool,
}

impl<'a> Receiving<'a> {
    /// # Errors
    /// If no thread can be had for the committer.
    pub fn new(
        place: TargetPlace,
        setup: StreamSetup,
        streams: Arc<Streams>,
        source: supply::Source,
        options: ReceivingOptions,
        events: EventSink<'a>,
    ) -> std::io::Result<Self> {
        let (wake, wake_too, wake_three) = (streams.clone(), streams.clone(), streams.clone());
        let contents = Arc::new(Contents::default());
        let check = options.verify_target.then(|| TargetCheck::new(contents.clone()));
        let committer =
            Committer::start(move || wake.wake(), contents.clone(), check, place.root())?;
        let removing = Removing::new(&place, streams.clone());
        let supply = Supply::new(source, streams.clone(), setup.clone());
        let is_quick = supply.connects() && !place.wishes().takes_long();
        let patience = Patience::new(is_quick, options.stall_after);
        let shared = Arc::new(ReceiveShared {
            machine: Mutex::new(machine(&place, options.offers)),
            targets: Mutex::default(),
            contents,
            committer: committer.handle(),
            streams,
            setup,
            orders: Orders::default(),
            verified_bytes: AtomicU64::new(0),
            damaged_spans: AtomicU64::new(0),
            small_files: Share::of_small_files(),
            failed: Mutex::default(),
        });
        let now = Instant::now();
        Ok(Self {
            shared,
            committer,
            place,
            supply,
            events,
            tally: Tally::default(),
            taken_up: TakenUpBytes::default(),
            peer_report: None,
            options,
            offers: BTreeMap::new(),
            large: BTreeMap::new(),
            large_files: Share::of_large_files(),
            waiting: VecDeque::new(),
            directories: Vec::new(),
            fresh: Fresh::default(),
            directory_bytes: 0,
            hashing: Hashing::new(move || wake_too.wake()),
            rechecking: Hashing::new(move || wake_three.wake()),
            recheck_tally: RecheckTally::default(),
            room: Room::default(),
            growing: Growing::default(),
            growing_durable: 0,
            removing,
            stored_as: BTreeMap::new(),
            engines: Engines::new(Side::Target),
            progress_at: Some(now),
            finishing: false,
            ended: None,
            seen: BTreeMap::new(),
            all_seen: (0, now),
            wants_streams: false,
            patience,
            handled: 0,
            damage_told: false,
            network_holds_sender: false,
        })
    }

    /// Figures of this side, for the report.
    #[must_use]
    pub fn report(&self) -> wire::SideReport {
        let because = self.engines.because();
        wire::SideReport {
            read_back: self.shared.committer.read_back_ways().into(),
            bad_spans: self.shared.damaged_spans.load(Ordering::Relaxed),
            rechecked_bytes: self.recheck_tally.bytes,
            recheck_lost_bytes: self.recheck_tally.lost_bytes,
            recheck_ns: self.recheck_tally.ns,
            throttled_ns: self.shared.streams.throttled_ns(),
            updated_attributes: self.place.updated_attributes(),
            ..self.part().report(because)
        }
    }

    fn part(&self) -> stages::Part {
        stages::Part::of_receiver(&self.shared.streams, self.shared.committer.costs())
    }

    /// Time of this side's streams by stage, so far.
    #[must_use]
    pub fn figures(&self) -> wire::Figures {
        self.part().figures()
    }

    /// Tells this side's user something.
    pub fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// The furthest that this side was behind what it was offered of a file that grows.
    #[must_use]
    pub fn largest_lag(&self) -> Option<Lag> {
        self.growing.lag.largest.clone()
    }

    /// Ends the streams, makes durable what is verified, and lets go of what is unfinished: it
    /// stays for a resume.
    pub fn stop(&mut self) {
        self.shared.streams.stop();
        self.hashing.stop();
        self.rechecking.stop();
        if let Some(removing) = &mut self.removing {
            removing.stop();
        }
        self.committer.stop();
        self.count_progress();
        self.tally.verified_bytes = self.shared.verified_bytes.load(Ordering::Relaxed);
        for target in std::mem::take(&mut *lock(&self.shared.targets)).into_values() {
            if let Some(target) = lock(&target.shared).take() {
                target.give_up(true);
            }
        }
    }

    fn handle_events(&mut self) {
        loop {
            let Some(event) = lock(&self.shared.machine).poll_event() else { break };
            match event {
                ReceiverEvent::Offered(offer) => self.offered(&offer),
                ReceiverEvent::NameTaken { offer, fault } => self.name_taken(&offer, &fault),
                ReceiverEvent::OffersEnd { .. } => {
                    self.tally.total_known = true;
                    self.find_missing();
                }
                ReceiverEvent::AllVerified(_) => {}
                ReceiverEvent::Commit(file) => {
                    if let Some(target) = lock(&self.shared.targets).get(&file) {
                        self.shared.committer.commit(file, &target.shared);
                    }
                }
                ReceiverEvent::GivenUp { file, fault } => self.given_up(file, &fault),
                ReceiverEvent::CloseStream { stream, .. } => self.shared.streams.shut(stream),
                ReceiverEvent::Notice(wire::Notice { fault: Some(fault), .. })
                    if fault.code() == FaultCode::KindUnsupported =>
                {
                    self.tally.left_out_files += 1;
                    if let Some(removing) = &mut self.removing {
                        // The source has it: what was made in its place here stays.
                        removing.offered(&fault.path);
                    }
                    (self.events)(Event::LeftOut((&fault).into()));
                }
                ReceiverEvent::Notice(wire::Notice { fault: Some(fault), .. }) => {
                    // A source that could not even be offered, or of which no more is.
                    self.tally.failed_files += 1;
                    if self.growing.ended(&fault.path) {
                        let ended = FileEnded::new(fault.path.clone(), FileStatus::Failed, 0);
                        (self.events)(Event::File(ended));
                    }
                    self.tally.first_problem.get_or_insert_with(|| (&fault).into());
                    (self.events)(Event::Error((&fault).into()));
                }
                ReceiverEvent::Notice(notice) => (self.events)(Event::Fallback {
                    side: Side::Source,
                    from_to: printable(&notice.what),
                    why: printable(&notice.why),
                }),
                ReceiverEvent::Finished(report) => self.finish(report),
                ReceiverEvent::Refused(fault) => self.ended = Some(SessionEnd::Refused(fault)),
            }
        }
    }

    fn finish(&mut self, report: wire::SideReport) {
        self.peer_report = Some(report);
        self.say_goodbye();
    }

    /// As soon as nothing more comes, so that the sender need not ask.
    fn say_goodbye(&mut self) {
        if self.finishing && self.peer_report.is_some() && self.ended.is_none() {
            self.stop();
            self.ended = Some(SessionEnd::Finished);
        }
        if !lock(&self.shared.machine).may_finish() || !self.removed_all() {
            return;
        }
        self.finishing = true;
        self.fail_unended();
        self.finish_directories();
        self.tell_unkept_time();
        let report = self.report();
        lock(&self.shared.machine).finish(report);
        // The sender may have said his already.
        self.say_goodbye();
    }

    /// Children first: setting a child's entry changes its directory's time.
    fn finish_directories(&mut self) {
        for offer in std::mem::take(&mut self.directories).iter().rev() {
            if let Err(fault) = self.place.finish_directory(offer) {
                self.failed_late(fault);
            }
        }
    }

    /// Says once that files will be taken for others by the next run.
    fn tell_unkept_time(&mut self) {
        let TargetPlace::Below { rules, .. } = &self.place else { return };
        if let Some(why) = rules.attributes.take_unkept_time() {
            let what = "modification times".to_owned();
            let change = self.engines.change(None, StreamId(0), what, why);
            self.tell_change(change);
        }
    }

    /// Removes what was not offered, once all else is in place. True when that is done.
    fn removed_all(&mut self) -> bool {
        let Some(removing) = &mut self.removing else { return true };
        let options = &mut self.options;
        let mut failed = Vec::new();
        removing.begin_once(self.tally.failed_files, || options.matcher.take());
        for event in removing.take_events() {
            match event {
                RemovingEvent::Removed(names) => {
                    self.tally.removed_files += names.len() as u64;
                    let status = self.place.wishes().removal_status();
                    for name in &names {
                        let ended = FileEnded::new(name.clone(), status.clone(), 0);
                        (self.events)(Event::File(ended));
                    }
                    lock(&self.shared.machine).removed(names);
                }
                RemovingEvent::Failed(fault) => failed.push(fault),
            }
        }
        let is_over = removing.is_over();
        for fault in failed {
            self.failed_late(fault);
        }
        is_over
    }

    /// What went wrong with no file that is under way: both sides tell and count it.
    fn failed_late(&mut self, fault: Fault) {
        self.tally.failed_files += 1;
        self.tally.first_problem.get_or_insert_with(|| (&fault).into());
        (self.events)(Event::Error((&fault).into()));
        let notice = wire::Notice { fault: Some(fault), ..wire::Notice::default() };
        lock(&self.shared.machine).notice(notice);
    }

    /// A part of what the client says of the files that are meant.
    fn take_selection(&mut self, part: wire::Selection) -> Result<(), ProtocolError> {
        let Some(arriving) = &mut self.options.selection else {
            return Err(ProtocolError::new("a selection that was not announced"));
        };
        if let Some(selection) = arriving.take(part)? {
            self.options.selection = None;
            match selection.compile() {
                Ok(matcher) => self.options.matcher = Some(matcher),
                Err(problem) => {
                    let code = FaultCode::NameRefused;
                    let fault = Fault::new(code, wire::Side::Unknown, problem.what);
                    self.ended = Some(SessionEnd::Refused(fault.found(problem.found)));
                }
            }
        }
        Ok(())
    }

    fn offered(&mut self, offer: &FileOffer) {
        let file = FileId(offer.file);
        self.learn_source(offer);
        if let Some(removing) = &mut self.removing {
            removing.offered(&offer.name);
        }
        if growth(offer).is_some() {
            self.growing.offered(offer, &mut self.tally);
        } else {
            self.tally.offered(offer);
        }
        if offer.kind() == FileKind::Regular {
            self.look_at_room();
        }
        self.offers.insert(file, offer.clone());
        let span_bytes = self.span_bytes(offer);
        if offer.size_bytes <= span_bytes && growth(offer).is_none() {
            self.answer(file, offer, span_bytes);
        } else if let Some(pass) = self.large_files.take() {
            self.large.insert(file, pass);
            self.answer(file, offer, span_bytes);
        } else {
            self.waiting.push_back(file);
        }
    }

    fn answer_waiting(&mut self) {
        while let Some(file) = self.waiting.front().copied() {
            // Given up meanwhile: settled.
            if let Some(offer) = self.offers.get(&file).cloned() {
                let Some(pass) = self.large_files.take() else { return };
                self.large.insert(file, pass);
                let span_bytes = self.span_bytes(&offer);
                self.answer(file, &offer, span_bytes);
            }
            self.waiting.pop_front();
        }
    }

    fn span_bytes(&self, offer: &FileOffer) -> u64 {
        let chosen = self.options.span_bytes;
        match growth(offer) {
            Some(_) => growing_span_bytes(offer.size_bytes, chosen),
            None => choose::span_bytes(offer.size_bytes, chosen),
        }
    }

    fn answer(&mut self, file: FileId, offer: &FileOffer, span_bytes: u64) {
        let prepared = match self.choose_engines(offer) {
            Ok(()) => self.expect(offer).and_then(|()| self.prepare_telling(offer, span_bytes)),
            Err(fault) => {
                self.ended = Some(SessionEnd::Refused(fault));
                return;
            }
        };
        let answer = match prepared {
            // The sender offers the file itself in its place.
            Err(fault)
                if offer.kind() == FileKind::HardLink
                    && fault.code() == FaultCode::KindUnsupported =>
            {
                self.offers.remove(&file);
                self.tally.forget_offer(offer);
                Answer::Fault(fault)
            }
            Err(fault) => return self.refuse(file, fault),
            Ok(Prepared::Skip) => {
                self.settled(file, FileStatus::Skipped, None);
                Answer::Skip
            }
            Ok(Prepared::Compare(open)) => {
                match self.hashing.begin_hash(file, offer.size_bytes, open) {
                    Ok(()) => return,
                    Err(error) => {
                        let fault = io_problem_fault(
                            wire::Side::Target,
                            "no thread to compare files",
                            &error,
                        );
                        self.settled(file, FileStatus::Failed, Some(&fault));
                        Answer::Fault(fault)
                    }
                }
            }
            Ok(Prepared::Plan(plan)) => {
                self.settled(file, FileStatus::planned(plan.replaces), None);
                Answer::Plan(plan)
            }
            Ok(Prepared::Ready { target, span_bytes, durable, stored_as, left }) => {
                let grid = SpanGrid::new(offer.size_bytes, span_bytes);
                let grid = grid.expect("it was prepared with this span size");
                let taken_up = match self.take_up(file, (target, durable), left, &grid) {
                    Ok(taken_up) => taken_up,
                    Err(fault) => return self.refuse(file, fault),
                };
                if growth(offer).is_some() {
                    self.count_round(offer, span_bytes, &taken_up.durable, &stored_as);
                } else {
                    self.count_room(offer.size_bytes - taken_up.durable.bytes(&grid));
                    self.count_resumed(file, offer, &grid, &taken_up);
                }
                if !stored_as.is_empty() {
                    self.stored_as.insert(file, stored_as.clone());
                }
                self.keep_target(file, grid, taken_up, stored_as)
            }
        };
        self.say(file, answer);
    }

    fn say(&mut self, file: FileId, answer: Answer) {
        if let Err(error) = lock(&self.shared.machine).answer(file, answer) {
            self.ended = Some(SessionEnd::Refused(error.to_fault()));
        }
    }

    fn count_resumed(
        &mut self,
        file: FileId,
        offer: &FileOffer,
        grid: &SpanGrid,
        taken_up: &TakenUp,
    ) {
        let there = taken_up.durable.bytes(grid);
        let holes = holes::bytes_within(&offer.holes, grid).min(there);
        let of_file = growth(offer).is_none().then_some(file);
        self.taken_up.add(&mut self.tally, of_file, there - holes, holes);
        if there > holes {
            let why = self.why_resumed(taken_up.recheck.as_ref());
            (self.events)(Event::Resume { bytes: there - holes, why });
        }
        self.tally.span_bytes = self.tally.span_bytes.max(grid.span_bytes());
    }

    /// Files that were read to be compared: the sender says what comes of it.
    fn handle_compared(&mut self) {
        for (file, hashed) in self.hashing.take_results() {
            // Given up meanwhile: settled.
            let Some(offer) = self.offers.get(&file) else { continue };
            let answer = match hashed {
                Ok(content) => {
                    if growth(offer).is_none() {
                        self.tally.forget_offer(offer);
                    }
                    self.offers.remove(&file);
                    self.large.remove(&file);
                    Answer::Compare(wire::Compare { blake3: content.to_vec() })
                }
                Err(error) => {
                    let what = "what is there cannot be compared";
                    let fault = io_fault(wire::Side::Target, &offer.name, what, &error);
                    self.settled(file, FileStatus::Failed, Some(&fault));
                    Answer::Fault(fault)
                }
            };
            self.say(file, answer);
        }
    }

    fn prepare(&mut self, offer: &FileOffer, span_bytes: u64) -> Result<Prepared, Fault> {
        if growth(offer).is_some() {
            self.growing_durable = self.shared.committer.durable_bytes();
            if let Some(prepared) = self.growing.prepare(offer) {
                return prepared;
            }
        }
        self.place.prepare(offer, span_bytes, self.shared.setup.digest, &mut self.fresh)
    }

    /// A server may not bring what nobody asked for.
    fn expect(&mut self, offer: &FileOffer) -> Result<(), Fault> {
        let first = offer.name.split(|&byte| byte == b'/').next().unwrap_or_default();
        let Some(expected) = &mut self.options.expected else { return Ok(()) };
        let Some(expected) = expected.iter_mut().find(|expected| expected.name == first) else {
            let what = "was offered and never asked for";
            let fault = Fault::new(FaultCode::NameRefused, wire::Side::Source, what);
            return Err(fault.at(offer.name.clone()).hint("do not trust this server"));
        };
        expected.has_come = true;
        Ok(())
    }

    /// What was asked for and neither offered nor said to be missing has failed.
    fn find_missing(&mut self) {
        if self.tally.failed_files > 0 {
            return;
        }
        let expected = self.options.expected.iter().flatten();
        for missing in expected.filter(|expected| !expected.has_come) {
            let what = "was asked for and not offered";
            let fault = Fault::new(FaultCode::IoFailed, wire::Side::Source, what);
            let problem = Problem::of_file(&fault, &missing.name);
            self.tally.failed_files += 1;
            self.tally.first_problem.get_or_insert_with(|| problem.clone());
            (self.events)(Event::Error(problem));
        }
    }

    fn keep_target(
        &mut self,
        file: FileId,
        grid: SpanGrid,
        taken_up: TakenUp,
        stored_as: Vec<u8>,
    ) -> Answer {
        let TakenUp { target, durable, earlier, recheck } = taken_up;
        match target.span_file() {
            Ok(span_file) => {
                // What came of a file that grows is there before its end.
                let is_whole = durable.file_spans() <= 1 && growth(&target.offer).is_none();
                let target = Target {
                    grid,
                    is_journaled: target.is_journaled(),
                    name: target.name.clone(),
                    file: span_file,
                    is_whole,
                    shared: Arc::new(Mutex::new(Some(*target))),
                };
                let shared = target.shared.clone();
                lock(&self.shared.targets).insert(file, target);
                if let Some(recheck) = recheck {
                    self.begin_recheck(file, recheck, shared);
                }
                self.wants_streams |= !durable.is_full();
                Answer::Need { span_bytes: grid.span_bytes(), durable, stored_as, earlier }
            }
            Err(error) => {
                let what = "the target cannot be opened";
                let fault = io_problem_fault(wire::Side::Target, what, &error);
                self.settled(file, FileStatus::Failed, Some(&fault));
                Answer::Fault(fault)
            }
        }
    }

    fn handle_commits(&mut self) {
        for committed in self.shared.committer.take_results() {
            match committed {
                Committed::Done(file) => {
                    let offer = self.offers.get(&file);
                    if offer.and_then(growth) == Some(Growth::Growing) {
                        self.round_settled(file);
                        lock(&self.shared.machine).committed(file, Ok(()));
                        continue;
                    }
                    lock(&self.shared.targets).remove(&file);
                    lock(&self.shared.machine).committed(file, Ok(()));
                    self.settled(file, FileStatus::Done, None);
                }
                Committed::Failed(file, fault) => self.fail(file, fault),
            }
        }
    }

    fn fail(&mut self, file: FileId, fault: Fault) {
        if !self.offers.contains_key(&file) {
            return;
        }
        // What its disk has changed is of no use any more.
        self.drop_target(file, fault.code() != FaultCode::DataDamaged);
        self.settled(file, FileStatus::Failed, Some(&fault));
        lock(&self.shared.machine).file_failed(file, fault);
    }

    fn drop_target(&mut self, file: FileId, keep: bool) {
        let target = lock(&self.shared.targets).remove(&file);
        self.shared.committer.give_up(file, target.map(|target| target.shared), keep);
    }

    fn settled(&mut self, file: FileId, status: FileStatus, fault: Option<&Fault>) {
        let Some(offer) = self.offers.remove(&file) else { return };
        self.large.remove(&file);
        self.taken_up.file_ended(&mut self.tally, file, status == FileStatus::Failed);
        let stored_as = self.stored_as.remove(&file);
        let content = self.shared.contents.take(file);
        if growth(&offer) == Some(Growth::Growing) && status == FileStatus::Skipped {
            // As it is now it is there: whether it stays so, its end will tell.
            return self.growing.settled(&offer, None);
        }
        if growth(&offer).is_some() {
            self.growing.ended(&offer.name);
            if let Some(lag) = self.growing.lag.end(&offer.name) {
                (self.events)(Event::Lag(lag));
            }
        }
        if let Some(manifest) = &self.options.manifest {
            let is_there = matches!(status, FileStatus::Done | FileStatus::Skipped);
            let content = if is_there { Ok(content) } else { Err(Missing) };
            manifest.received(&self.place, &offer, stored_as.as_deref(), content);
        }
        let bytes = offer.size_bytes;
        let status_is_good = status != FileStatus::Failed;
        match status {
            FileStatus::Done => self.tally.done(&offer),
            FileStatus::Skipped => self.tally.skipped(&offer),
            FileStatus::Failed => self.tally.failed(&offer),
            FileStatus::WouldCopy | FileStatus::WouldReplace => {
                self.tally.plan(&offer, status == FileStatus::WouldReplace);
            }
            FileStatus::Removed | FileStatus::WouldRemove => {}
        }
        if let Some(fault) = fault {
            (self.events)(Event::Error(Problem::of_file(fault, &offer.name)));
        }
        let path = offer.name.clone();
        let is_made = status_is_good && !self.place.wishes().leaves_nothing();
        let is_directory = offer.kind() == FileKind::Directory;
        if is_directory && is_made {
            self.directory_bytes += size_of::<FileOffer>() + offer.name.len();
            if self.directory_bytes < DIRECTORY_BYTES_MAX {
                self.directories.push(offer);
            }
        }
        let stored_as = stored_as.map(Name);
        let ended = FileEnded::new(path, status, bytes);
        (self.events)(Event::File(FileEnded { stored_as, is_directory, ..ended }));
    }
}

impl Role for Receiving<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        self.handled += u64::from(!matches!(message, Message::Notice(_)));
        match message {
            Message::Selection(part) => self.take_selection(part)?,
            Message::FileOffer(offer) if growth(&offer).is_some() && !self.follows() => {
                return Err(ProtocolError::new("a file that grows, though none is followed"));
            }
            message => lock(&self.shared.machine).handle(message)?,
        }
        self.handle_events();
        Ok(())
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        self.handle_events();
        self.open_streams();
        self.handle_stream_events();
        self.handle_commits();
        self.tell_unkept_time();
        self.handle_compared();
        self.handle_rechecked();
        self.answer_waiting();
        self.handle_events();
        if lock(&self.shared.machine).is_all_confirmed() {
            self.shared.committer.has_all();
        }
        self.say_goodbye();
        self.watch_streams(now);
        self.watch_disk(now);
        let done = self.handled.wrapping_add(self.shared.verified_bytes.load(Ordering::Relaxed));
        // What nobody has written yet is not due.
        let recording = self.place.wishes().recording;
        let is_due = |awaited: &Awaited| {
            *awaited != Awaited::Offer || !(recording.follow || recording.watch)
        };
        let awaits = || lock(&self.shared.machine).awaits().filter(is_due);
        self.patience.check(now, || (done, awaits()))?;
        if !self.finishing {
            self.tell_progress(now);
            self.tell_lag(now);
        }
        match self.ended.take() {
            Some(SessionEnd::Refused(fault)) => Err(fault),
            Some(end) => Ok(Pumped::Ended(end)),
            None => Ok(Pumped::GoOn),
        }
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.engines.take_explained().or_else(|| lock(&self.shared.machine).poll_message())
    }

    fn holds(&self, held: &Held) -> bool {
        self.shared.holds(held)
    }

    /// A watch ends when its user wants it to, and is complete when nothing is under way then.
    fn ends_in_order(&mut self, _now: Instant) -> bool {
        let watches = self.supply.connects() && self.place.wishes().recording.watch;
        if !watches || lock(&self.shared.machine).has_open_files() {
            return false;
        }
        self.finish_directories();
        self.ended.get_or_insert(SessionEnd::Finished);
        true
    }

    fn moved_bytes(&self) -> u64 {
        self.shared.streams.moved_bytes()
    }

    /// It is said by the time that the sender says his.
    fn has_last_word(&self) -> bool {
        false
    }
}
/// The machine of a session that receives to `place`.
fn machine(place: &TargetPlace, offers: OfferLimits) -> Receiver {
    let is_renamed = matches!(place, TargetPlace::Below { rename: Some(_), .. });
    let path = if is_renamed { TargetPath::NameOfOneSource } else { TargetPath::Directory };
    let is_watched = place.wishes().recording.watch;
    let repeats = if is_watched { Repeats::OnceSettled } else { Repeats::Refused };
    Receiver::new(offers.files, offers.bytes).naming(path, repeats)
}
