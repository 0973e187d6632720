//! Answers to offers: what is there, what of it may be told, what is asked for.
//!
//! A sender that may write and not read learns of a name that it offers whether something is there,
//! and whether that has the size and the time of its own file. It learns no size and no BLAKE3 of
//! other files, and gets no other name for one of them.

use super::{
    Receiving,
    context::{Context, OpenFile},
    expected::{Expected, expect},
    manifest_lines::ManifestLines,
    rechecking::{TakenUp, take_up, why_resumed},
    removing::Removing,
    rounds::Rounds,
};
use crate::{
    error::io_problem_fault,
    events::Event,
    file_status::FileStatus,
    locks::{Lock, lock},
    name::Name,
    session::{disclosure::Telling, growth::growth, receiving::receive_spans::Target},
    storage::{
        fresh::Fresh,
        holes,
        open_files::Share,
        prepare::Prepared,
        target_place::{TargetPlace, is_in_the_way},
        temporary::growing::growing_span_bytes,
    },
};
use haul_datapath::choose;
use haul_protocol::{
    FileId, SpanGrid,
    message::{Compared, Fault, FaultCode, FileKind, FileOffer, Growth, Plan, Side},
    receiver::Answer,
};
use std::{collections::VecDeque, sync::Arc};

/// State that a role keeps to answer offers.
pub(super) struct Answering {
    /// Names that were asked for; `None`: any name may come.
    pub expected: Option<Vec<Expected>>,
    /// Directories that the session made: no file that is offered in them is there yet.
    fresh: Fresh,
    /// Share of the large files that all sessions may have open.
    large_files: Share,
    /// Large files that wait to be answered until there is room for them.
    waiting: VecDeque<FileId>,
}

impl Answering {
    pub fn new(expected: Option<Vec<Expected>>) -> Self {
        let large_files = Share::of_large_files();
        Self { expected, fresh: Fresh::default(), large_files, waiting: VecDeque::new() }
    }
}

impl Receiving<'_> {
    /// Takes an offer, and answers it at once if the file is small.
    pub(super) fn offered(&mut self, offer: &Arc<FileOffer>) {
        let file = offer.file;
        self.learn_source(offer);
        if growth(offer).is_none() {
            self.context.tally.offered(offer);
        }
        for stage in self.stages.in_order() {
            stage.offered(offer, &mut self.context);
        }
        let open = OpenFile { offer: offer.clone(), stored_as: None, pass: None };
        self.context.open.insert(file, open);
        let span_bytes = span_bytes(offer, self.context.rules.span_bytes);
        if offer.size_bytes <= span_bytes && growth(offer).is_none() {
            self.answer(file, offer, span_bytes);
        } else {
            self.answering.waiting.push_back(file);
            if self.answering.waiting.len() == 1 {
                self.answer_waiting();
            }
        }
    }

    /// Answers large files for which there is room by now.
    pub(super) fn answer_waiting(&mut self) {
        while let Some(file) = self.answering.waiting.front().copied() {
            // Given up meanwhile: settled.
            if let Some(open) = self.context.open.get_mut(&file) {
                open.pass = self.answering.large_files.take();
                if open.pass.is_none() {
                    return;
                }
                let offer = open.offer.clone();
                let span_bytes = span_bytes(&offer, self.context.rules.span_bytes);
                self.answer(file, &offer, span_bytes);
            }
            self.answering.waiting.pop_front();
        }
    }

    /// Takes note that the one source turned out to be a directory.
    fn learn_source(&mut self, offer: &FileOffer) {
        let context = &mut self.context;
        if !context.place.learn_source(offer) {
            return;
        }
        context.tally.keeps_source_name = true;
        self.stages.removing = Removing::new(&context.place, context.shared.streams.clone());
        if let Some(ManifestLines(manifest)) = &mut self.stages.manifest {
            manifest.rename = None;
        }
    }

    fn answer(&mut self, file: FileId, offer: &Arc<FileOffer>, span_bytes: u64) {
        if let Err(fault) = self.streams.choose_engines(offer, &mut self.context) {
            return self.context.refuse(fault);
        }
        let expected = expect(self.answering.expected.as_deref_mut(), offer);
        let context = &mut self.context;
        let (rounds, fresh) = (&mut self.stages.rounds, &mut self.answering.fresh);
        let prepared = expected.and_then(|()| prepare(offer, span_bytes, fresh, rounds, context));
        match prepared {
            // The sender offers the file itself in its place.
            Err(fault)
                if offer.kind == FileKind::HardLink && fault.code == FaultCode::KindUnsupported =>
            {
                context.open.remove(&file);
                context.tally.forget_offer(offer);
                context.answer(file, Answer::Fault(fault));
            }
            Err(fault) => self.refuse(file, fault),
            Ok(Prepared::Skip) => {
                context.settle(file, FileStatus::Skipped, None);
                context.answer(file, Answer::Skip);
            }
            Ok(Prepared::Compare(open)) => self.stages.comparing.begin(file, open, context),
            Ok(Prepared::Plan(plan)) => {
                context.settle(file, FileStatus::planned(plan.replaces), None);
                context.answer(file, Answer::Plan(plan));
            }
            Ok(Prepared::Ready { target, span_bytes, durable, stored_as, left }) => {
                let grid = SpanGrid::new(offer.size_bytes, span_bytes);
                let grid = grid.expect("it was prepared with this span size");
                match take_up(file, (target, durable), left, &grid, context) {
                    Ok(taken_up) => self.need(file, offer, &grid, taken_up, stored_as),
                    Err(fault) => self.refuse(file, fault),
                }
            }
        }
    }

    /// Refuses a file: the fault goes to both sides, and the rest goes on.
    fn refuse(&mut self, file: FileId, fault: Fault) {
        let context = &mut self.context;
        if let (Some(removing), Some(offer)) = (&mut self.stages.removing, context.offer(file))
            && fault.code == FaultCode::NameRefused
            && is_in_the_way(&context.place, offer)
        {
            removing.gives_way(&offer.name);
        }
        context.cut_short(file, &fault);
        context.settle(file, FileStatus::Failed, Some(fault.clone()));
        context.answer(file, Answer::Fault(fault));
    }

    /// Asks for the spans of a file that are not there.
    fn need(
        &mut self,
        file: FileId,
        offer: &Arc<FileOffer>,
        grid: &SpanGrid,
        mut taken_up: TakenUp,
        stored_as: Vec<u8>,
    ) {
        let (context, durable) = (&mut self.context, &taken_up.durable);
        if growth(offer).is_some() {
            self.stages.rounds.begins(offer, grid.span_bytes(), durable, &stored_as, context);
        } else {
            self.stages.room.count(offer.size_bytes, durable.bytes(grid), context);
            count_resumed(file, offer, grid, &taken_up, context);
        }
        if let Some(open) = context.open.get_mut(&file).filter(|_| !stored_as.is_empty()) {
            open.stored_as = Some(Name(stored_as.clone()));
        }
        taken_up.target.share(offer);
        let answer = self.keep_target(file, *grid, taken_up, stored_as);
        self.context.answer(file, answer);
    }

    fn keep_target(
        &mut self,
        file: FileId,
        grid: SpanGrid,
        taken_up: TakenUp,
        stored_as: Vec<u8>,
    ) -> Answer {
        let context = &mut self.context;
        let TakenUp { target, durable, earlier, recheck } = taken_up;
        match target.span_file() {
            Ok(span_file) => {
                // What came of a file that grows is there before its end.
                let is_whole = durable.file_spans() <= 1
                    && growth(&target.offer).is_none()
                    && target.offer.range.is_none();
                let target = Target {
                    grid,
                    is_journaled: target.is_journaled(),
                    is_light: target.is_light(),
                    name: target.name.clone(),
                    file: span_file,
                    is_whole,
                    shared: Arc::new(Lock::new(Some(*target))),
                };
                let shared = target.shared.clone();
                lock(&context.shared.targets).insert(file, target);
                if let Some(recheck) = recheck {
                    self.stages.rechecking.begin(file, recheck, shared, context);
                }
                context.wants_streams |= !durable.is_full();
                Answer::Need { span_bytes: grid.span_bytes(), durable, stored_as, earlier }
            }
            Err(error) => {
                let what = "the target cannot be opened";
                let fault = io_problem_fault(Side::Target, what, &error);
                context.settle(file, FileStatus::Failed, Some(fault.clone()));
                Answer::Fault(fault)
            }
        }
    }
}

fn span_bytes(offer: &FileOffer, chosen: Option<u64>) -> u64 {
    match growth(offer) {
        Some(_) => growing_span_bytes(offer.size_bytes, chosen),
        None => choose::span_bytes(offer.size_bytes, chosen),
    }
}

fn count_resumed(
    file: FileId,
    offer: &FileOffer,
    grid: &SpanGrid,
    taken_up: &TakenUp,
    context: &mut Context<'_>,
) {
    let there = taken_up.durable.bytes(grid);
    let holes = holes::bytes_within(&offer.holes, grid).min(there);
    context.taken_up.add(&mut context.tally, Some(file), there - holes, holes);
    if there > holes {
        let why = why_resumed(taken_up.recheck.as_ref());
        context.tell(Event::Resume { bytes: there - holes, why });
    }
    context.tally.span_bytes = context.tally.span_bytes.max(grid.span_bytes());
}

/// Prepares the answer by what is there, and says of it what the sender may know.
fn prepare(
    offer: &FileOffer,
    span_bytes: u64,
    fresh: &mut Fresh,
    rounds: &mut Rounds,
    context: &Context<'_>,
) -> Result<Prepared, Fault> {
    let is_of_session = rounds.is_of_session(&offer.name);
    let mut look = |offer: &FileOffer| {
        rounds.prepare(offer, context).unwrap_or_else(|| {
            context.place.prepare(offer, span_bytes, context.shared.setup.digest, fresh)
        })
    };
    if context.rules.dry_run && matches!(context.place, TargetPlace::Null) {
        return Ok(Prepared::Plan(Plan::default()));
    }
    if context.rules.telling == Telling::All {
        return look(offer);
    }
    let is_link = offer.kind == FileKind::HardLink;
    if is_link && !lock(&context.shared.machine).has_in_place(&offer.link_target) {
        let what = "cannot be made as a hard link";
        let fault = Fault::new(FaultCode::KindUnsupported, Side::Target, what);
        return Err(fault.at(&*offer.name).needs("a file of this session to link to"));
    }
    let asks = offer.growth == Growth::Grown && offer.compared == Compared::NotCompared;
    let prepared = if asks && !is_of_session {
        // What an earlier run left may be another's: it comes again and is not compared.
        let compared = Compared::OtherContent;
        look(&FileOffer { compared, ..offer.clone() })
    } else {
        look(offer)
    };
    prepared.map_err(|fault| match fault.code {
        FaultCode::Exists => fault.found(""),
        _ => fault,
    })
}
