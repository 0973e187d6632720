//! Model of what is moved: files whose spans are a number each, and a target that remembers.

use super::{
    link::{Faults, Micros},
    random::Random,
};
use haul_protocol::{
    FileId, SpanIndex, SpanSet, StreamId, file_life::LifeOptions, limits, message,
};
use std::collections::{BTreeMap, BTreeSet};

/// Troubles of a file, which has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The file is at the target already.
    Present,
    /// The source goes away soon after it was offered; it may be at the target already.
    Vanishes {
        is_present: bool,
    },
    /// A span of the source cannot be read.
    Unreadable(SpanIndex),
    /// A span of the file arrives damaged, whatever the wire is.
    AlwaysDamaged(SpanIndex),
    /// The source is written to at this time.
    ChangesAt(Micros),
    /// The target is full at once; for [`Self::NoSpaceAt`], when that span is written.
    NoSpaceAtOnce,
    NoSpaceAt(SpanIndex),
    CommitFails,
    /// The target makes no hard links.
    NoLinks,
}

#[derive(Clone, Debug)]
pub struct SourceFile {
    pub kind: message::FileKind,
    pub size_bytes: u64,
    pub trouble: Trouble,
}

/// Plan of a run: what is moved, over what.
#[derive(Clone, Debug)]
pub struct Plan {
    pub direction: message::Direction,
    pub files: Vec<SourceFile>,
    pub streams: usize,
    pub offers_max: u32,
    pub offer_bytes_max: u64,
    pub latency: Micros,
    /// Control connections and data streams that may still fail.
    pub control_cuts: u32,
    pub stream_faults: u32,
    /// Frames of 1000 that get the header of another span on the path.
    pub forged: u64,
    /// A returning sender also offers the files that it knows to be settled.
    pub offers_settled_again: bool,
    pub file_options: LifeOptions,
}

impl Plan {
    pub fn new(random: &mut Random) -> Self {
        let is_push = random.chance(50);
        let count = random.within(1..=8);
        let troubled = random.chance(60);
        Self {
            direction: if is_push { message::Direction::Push } else { message::Direction::Pull },
            files: (0..count).map(|_| source_file(random, troubled)).collect(),
            streams: random.within(1..=4) as usize,
            offers_max: random.within(1..=6) as u32,
            offer_bytes_max: random.within(1..=1500),
            latency: [50, 500, 5_000, 40_000][random.below(4) as usize],
            control_cuts: random.below(4) as u32,
            stream_faults: [0, 3, 12][random.below(3) as usize],
            offers_settled_again: random.chance(50),
            forged: [0, 0, 20][random.below(3) as usize],
            file_options: LifeOptions {
                compare_content: random.chance(50),
                dry_run: random.chance(20),
                move_sources: random.chance(50),
                watches: false,
            },
        }
    }

    /// Picks the faults of a new data stream, while the run's are not used up.
    pub fn stream_faults(&mut self, random: &mut Random) -> Faults {
        if self.stream_faults == 0 || random.chance(30) {
            return Faults::default();
        }
        self.stream_faults -= 1;
        // In the preface, in the first frames, or later.
        let scale = [64, 200, 1500][random.below(3) as usize];
        let at = random.below(scale);
        match random.below(3) {
            0 => Faults { cut_at: Some(at), ..Faults::default() },
            1 => Faults { stall_at: Some(at), ..Faults::default() },
            _ => {
                let flips = (0..random.within(1..=3)).map(|_| random.below(scale));
                let flips = flips.map(|at| (at, (at % 8) as u8)).collect();
                Faults { flips, ..Faults::default() }
            }
        }
    }

    pub fn control_faults(&mut self, random: &mut Random) -> Faults {
        if self.control_cuts == 0 || random.chance(30) {
            return Faults::default();
        }
        self.control_cuts -= 1;
        let scale = [100, 400, 1500][random.below(3) as usize];
        Faults { cut_at: Some(random.below(scale)), ..Faults::default() }
    }

    /// Silence after which a stream has stalled.
    pub fn stall_after(&self) -> Micros {
        40 * self.latency + 10_000
    }
}

fn source_file(random: &mut Random, troubled: bool) -> SourceFile {
    let span = limits::SPAN_BYTES_MIN;
    let kind = match random.below(100) {
        0..15 => message::FileKind::Directory,
        15..25 => message::FileKind::HardLink,
        _ => message::FileKind::Regular,
    };
    let size_bytes = match random.below(4) {
        _ if kind != message::FileKind::Regular => 0,
        0 => 0,
        1 => random.within(1..=span),
        2 => random.within(2..=5) * span,
        _ => random.within(span..=40 * span),
    };
    let any_span = SpanIndex(random.below(size_bytes.div_ceil(2 * span)) as u32);
    let trouble = match random.below(16) {
        _ if !troubled => Trouble::None,
        0..4 if kind == message::FileKind::HardLink => Trouble::NoLinks,
        0 => Trouble::Present,
        1 if size_bytes > 0 => Trouble::Unreadable(any_span),
        2 if size_bytes > 0 => Trouble::AlwaysDamaged(any_span),
        3 => Trouble::ChangesAt(random.below(400_000)),
        4 => Trouble::NoSpaceAtOnce,
        5 if size_bytes > 0 => Trouble::NoSpaceAt(any_span),
        6 => Trouble::CommitFails,
        7 | 8 => Trouble::Vanishes { is_present: random.chance(50) },
        _ => Trouble::None,
    };
    SourceFile { kind, size_bytes, trouble }
}

impl SourceFile {
    /// Version of the file's content at a time: it changes at most once.
    pub fn version(&self, now: Micros) -> i64 {
        match self.trouble {
            Trouble::ChangesAt(at) if at <= now => 2,
            _ => 1,
        }
    }
}

/// Makes the number that stands for the bytes of a span.
pub fn content(file: usize, version: i64, offset_bytes: u64) -> u64 {
    Random::new(offset_bytes ^ (file as u64) << 48 ^ (version as u64) << 56).next()
}

/// Ways in which a file ends, alike on both sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done,
    Skipped,
    /// The file's content was compared, and another offer says how that came out.
    Compared,
    Failed(message::FaultCode),
}

/// State of one file at the target, which survives sessions.
#[derive(Clone, Debug, Default)]
pub struct TargetFile {
    /// Version of the source that the rest belongs to.
    version: i64,
    pub span_bytes: u64,
    /// Content by span, as the journal has it.
    durable: BTreeMap<SpanIndex, u64>,
    pub committed: Option<i64>,
}

/// State of the target over all sessions.
#[derive(Clone, Debug)]
pub struct Target {
    pub files: Vec<TargetFile>,
}

impl Target {
    pub fn new(plan: &Plan) -> Self {
        let present = |file: &SourceFile| {
            let is_present =
                matches!(file.trouble, Trouble::Present | Trouble::Vanishes { is_present: true });
            is_present.then_some(1)
        };
        let file = |file| TargetFile { committed: present(file), ..TargetFile::default() };
        Self { files: plan.files.iter().map(file).collect() }
    }
}

/// A file of the running session as the receiving side's disk has it.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub index: usize,
    pub version: i64,
    pub size_bytes: u64,
    written: BTreeMap<SpanIndex, u64>,
}

/// The receiving side's disk during a session. It knows nothing of the protocol, and panics when
/// the protocol's promises are broken.
#[derive(Debug, Default)]
pub struct Disk {
    pub open: BTreeMap<FileId, OpenFile>,
    writers: BTreeMap<(FileId, SpanIndex), StreamId>,
    fenced: BTreeSet<StreamId>,
}

impl Disk {
    /// Opens a file, with what an earlier session left.
    pub fn open(
        &mut self,
        file: FileId,
        index: usize,
        offer: &message::FileOffer,
        kept: &mut TargetFile,
        span_bytes: u64,
    ) -> SpanSet {
        if kept.version != offer.mtime_s || kept.span_bytes == 0 {
            *kept = TargetFile { version: offer.mtime_s, span_bytes, ..TargetFile::default() };
        }
        let mut durable = SpanSet::new(offer.size_bytes.div_ceil(kept.span_bytes) as u32);
        for &span in kept.durable.keys() {
            durable.insert(span);
        }
        let written = kept.durable.clone();
        let (version, size_bytes) = (offer.mtime_s, offer.size_bytes);
        self.open.insert(file, OpenFile { index, version, size_bytes, written });
        durable
    }

    pub fn begin_write(&mut self, stream: StreamId, file: FileId, span: SpanIndex) {
        assert!(!self.fenced.contains(&stream), "{stream:?} writes behind its fence");
        let entry = self.open.get(&file).expect("only open files are written");
        let is_verified = entry.written.contains_key(&span);
        assert!(!is_verified, "{span:?} of {file:?} is verified and written again");
        let other = self.writers.insert((file, span), stream);
        assert_eq!(other, None, "{span:?} of {file:?} is written by two streams");
    }

    /// Ends a write; with content when the span is verified.
    pub fn end_write(
        &mut self,
        stream: StreamId,
        file: FileId,
        span: SpanIndex,
        content: Option<u64>,
    ) {
        assert!(!self.fenced.contains(&stream), "{stream:?} writes behind its fence");
        let writer = self.writers.remove(&(file, span));
        assert_eq!(writer, Some(stream), "{span:?} of {file:?} has another writer");
        if let (Some(content), Some(entry)) = (content, self.open.get_mut(&file)) {
            entry.written.insert(span, content);
        }
    }

    /// Loses a span that is not what the journal says of it.
    pub fn lose(&mut self, file: FileId, span: SpanIndex) {
        if let Some(entry) = self.open.get_mut(&file) {
            entry.written.remove(&span);
        }
    }

    /// Fences a stream: nothing of it is written any more.
    pub fn fence(&mut self, stream: StreamId) {
        self.writers.retain(|_, writer| *writer != stream);
        self.fenced.insert(stream);
    }

    /// Puts into the journal what is verified now.
    pub fn flush_journal(&self, target: &mut Target) {
        for entry in self.open.values() {
            target.files[entry.index].durable = entry.written.clone();
        }
    }

    /// Commits a file, every span of which must be what the source offered.
    pub fn commit(&mut self, file: FileId, target: &mut Target) {
        let entry = self.open.remove(&file).expect("only open files are committed");
        let kept = &mut target.files[entry.index];
        let count = entry.size_bytes.div_ceil(kept.span_bytes) as u32;
        for span in 0..count {
            let expected = content(entry.index, entry.version, u64::from(span) * kept.span_bytes);
            let found = entry.written.get(&SpanIndex(span));
            assert_eq!(found, Some(&expected), "span {span} of {file:?} is committed");
        }
        kept.committed = Some(entry.version);
    }
}
