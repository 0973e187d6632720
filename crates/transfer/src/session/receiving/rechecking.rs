//! Recheck of what an earlier run left at the target.
//!
//! Where its journal alone is not enough, it is read back from the disk while the rest is sent.
//! What is not as it was journaled is asked for again.

use super::{context::Context, stage::Stage};
use crate::{
    clocks::elapsed_ns,
    content::FileContent,
    error::io_fault,
    locks::lock,
    session::{disclosure::Telling, hashing::Hashing, receiving::committer::SharedTarget},
    storage::{
        read_back::{BLOCK_BYTES, ReadBack},
        span_digests::{SpanDigests, outside_holes},
        target::TargetFile,
        temporary::{Left, Suspicion},
    },
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer};
use haul_protocol::{
    FileId, SpanGrid, SpanSet,
    message::{self, Fault},
    receiver::Earlier,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// Counts of reading back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecheckTally {
    pub bytes: u64,
    /// Bytes that were read back and were not there any more.
    pub lost_bytes: u64,
    pub ns: u64,
}

/// Outcome of reading a file back.
pub(super) struct Rechecked {
    lost: SpanSet,
    tally: RecheckTally,
}

/// Order to read back spans of a file that is being received.
pub(super) struct Recheck {
    file: Arc<SpanFile>,
    grid: SpanGrid,
    spans: SpanSet,
    digests: SpanDigests,
    why: Suspicion,
}

/// State of a file that an earlier run left, as an offer is answered with it.
pub(super) struct TakenUp {
    pub target: Box<TargetFile>,
    pub durable: SpanSet,
    pub earlier: Earlier,
    pub recheck: Option<Recheck>,
}

/// Decides which durable spans may be said to be there, and what is known of them. Where the target
/// is read back at the end, those whose content nobody knows are moved again: there would be
/// nothing to compare them with.
pub(super) fn take_up(
    file: FileId,
    (mut target, mut durable): (Box<TargetFile>, SpanSet),
    left: Option<Box<Left>>,
    grid: &SpanGrid,
    context: &Context<'_>,
) -> Result<TakenUp, Fault> {
    let Some(left) = left else {
        return Ok(TakenUp { target, durable, earlier: Earlier::default(), recheck: None });
    };
    let (rules, shared) = (context.rules, &context.shared);
    let Left { ctime, digests, content, suspicion } = *left;
    if shared.setup.content && !durable.is_empty() {
        if rules.verify_target {
            keep_known(&mut target, &mut durable, &content)?;
        }
        shared.contents.begin(file, content);
    }
    let holes = &target.offer.clone().holes;
    let spans = outside_holes(&durable, holes, grid);
    let mut recheck = None;
    if let Some(why) = suspicion.filter(|_| !spans.is_empty()) {
        let opened = target.to_read_back().filter(|_| rules.peer_rechecks);
        if let Some(file) = opened {
            let digests = digests.clone();
            recheck = Some(Recheck { file, grid: *grid, spans, digests, why });
        } else {
            // A sender that could not be told of what is lost.
            target.lose(&spans)?;
            durable.subtract(&spans);
        }
    }
    // It says what is there, which is not for everybody.
    let may_know = rules.telling == Telling::All;
    let digest = digests.of_all(&durable, holes, grid).filter(|_| may_know);
    let earlier = Earlier { ctime, digest, is_read_back: recheck.is_some() };
    Ok(TakenUp { target, durable, earlier, recheck })
}

fn keep_known(
    target: &mut TargetFile,
    durable: &mut SpanSet,
    content: &FileContent,
) -> Result<(), Fault> {
    if content.known() == durable {
        return Ok(());
    }
    let mut unknown = durable.clone();
    unknown.subtract(content.known());
    durable.subtract(&unknown);
    target.lose(&unknown)
}

/// Files of which an earlier run left something that is read back.
pub(super) struct Rechecking {
    reading: Hashing<Rechecked>,
    pub tally: RecheckTally,
}

impl Rechecking {
    /// Starts with no file; `wake` is called when one has been read back.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { reading: Hashing::new(wake), tally: RecheckTally::default() }
    }

    /// Whether any file is being read back.
    pub fn is_busy(&self) -> bool {
        self.reading.is_busy()
    }

    /// Reads a file back, beside the session's thread.
    pub fn begin(
        &mut self,
        file: FileId,
        recheck: Recheck,
        target: SharedTarget,
        context: &mut Context<'_>,
    ) {
        let begun = self.reading.begin(file, move |ending| recheck.run(&target, ending));
        if let Err(error) = begun {
            let what = "what an earlier run left cannot be read back";
            context.fail(file, io_fault(message::Side::Target, b"", what, &error));
        }
    }
}

impl Stage for Rechecking {
    /// Takes the files that were read back; what is lost of them comes again.
    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        for (file, rechecked) in self.reading.take_results() {
            // Given up meanwhile: settled.
            let Some(offer) = context.offer(file) else { continue };
            match rechecked {
                Ok(Rechecked { lost, tally }) => {
                    self.tally.bytes += tally.bytes;
                    self.tally.lost_bytes += tally.lost_bytes;
                    self.tally.ns += tally.ns;
                    context.wants_streams |= !lost.is_empty();
                    context.taken_up.lost(&mut context.tally, file, tally.lost_bytes);
                    lock(&context.shared.machine).read_back(file, &lost);
                }
                Err(error) => {
                    let what = "what an earlier run left cannot be read back";
                    let fault = io_fault(message::Side::Target, &offer.name, what, &error);
                    context.fail(file, fault);
                }
            }
        }
    }

    fn stop(&mut self) {
        self.reading.stop();
    }
}

/// Words for the user why what an earlier run left is taken up.
pub(super) fn why_resumed(recheck: Option<&Recheck>) -> String {
    let Some(recheck) = recheck else { return "these are here already, verified".into() };
    let why = match recheck.why {
        Suspicion::Asked => "--recheck asks",
        Suspicion::StartedAnew => "this host was started anew since",
        Suspicion::MountedAnew => "its file system was mounted anew since",
        Suspicion::ChangedSince => "the temporary was changed since its journal was written",
    };
    format!("these are here already; they are read back, as {why}")
}

impl Recheck {
    fn run(self, target: &SharedTarget, ending: &AtomicBool) -> io::Result<Rechecked> {
        let begun = Instant::now();
        let read_back = ReadBack::new(self.file);
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let mut lost = SpanSet::new(self.grid.count());
        let mut goes_on = |_| !ending.load(Ordering::Relaxed);
        for span in self.spans.iter() {
            let (offset, len) = self.grid.range(span);
            let digest = read_back.digest(offset, len, &mut buffer, &mut goes_on);
            if ending.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            // What cannot be read is as good as lost: it is written anew.
            if digest.ok() != self.digests.get(span) {
                lost.insert(span);
            }
        }
        if let Some(target) = lock(target).as_mut() {
            target.was_read_back(&lost).map_err(|fault| io::Error::other(fault.found))?;
        }
        let (bytes, lost_bytes) = (self.spans.bytes(&self.grid), lost.bytes(&self.grid));
        let tally = RecheckTally { bytes, lost_bytes, ns: elapsed_ns(begun) };
        Ok(Rechecked { lost, tally })
    }
}
