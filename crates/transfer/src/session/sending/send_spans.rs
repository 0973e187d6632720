//! A sending stream, which takes spans as they come free and sends each with header and trailer.

use crate::session::{
    contents::Contents,
    engine_orders::{Chosen, Orders, SourceWatch},
    numa,
    rdma::Stream,
    sending::key_use::KeyUse,
    sending::pack::PACK_FILL_MIN_BYTES,
    sending::reading_ahead::{CacheLook, OpenedAhead, ReadingAhead},
    sending::sent_spans::{SentSpan, SentSpans},
    streams::{StreamError, StreamEvent, StreamFigures, StreamSetup, Streams},
    way::Way,
    wires,
};
use crate::{
    clocks::{elapsed_ns, thread_cpu_ns},
    content::Part,
    digest::SpanDigest,
    error::io_fault,
    locks::{Lock, lock, rank},
    name::Name,
    storage::source::{Ctime, SourceEntry},
};
use haul_datapath::{
    Boundary, EngineError, FileSpan, Remedy, SpanDone, SpanFile, SpanId, SpanTap, Wait, WireKind,
    fallback,
};
use haul_protocol::{
    FileId, Sender, SpanIndex, StreamId,
    frame::{FrameHeader, PayloadStatus, SpanHeader, SpanTrailer},
    message::{Fault, Side},
    pack::PackWriter,
    sender::Assignment,
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, Condvar,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Interval at which a stream without work checks whether the session is over.
const IDLE_POLL: Duration = Duration::from_millis(50);
/// Bytes that stand in for those that could not be read.
static FILLER: [u8; 64 << 10] = [0; 64 << 10];

/// State that the streams and the session's thread share.
pub struct SendShared {
    pub machine: Lock<Sender, rank::Machine>,
    /// Wakes streams that wait, as spans may have come free.
    pub spans: Condvar,
    pub sources: Lock<BTreeMap<FileId, Source>>,
    pub contents: Contents,
    pub sent: SentSpans,
    pub streams: Arc<Streams>,
    pub setup: StreamSetup,
    pub orders: Orders,
    /// Sum of the bytes offered in files that are not packed.
    pub bulk_bytes: AtomicU64,
    pub ahead: Arc<ReadingAhead>,
}

pub struct Source {
    pub entry: Arc<SourceEntry>,
    /// The file's name at the receiver, where that is not the one of the offer.
    pub stored_as: Option<Name>,
    opened: Option<Arc<SpanFile>>,
    ahead: OpenAhead,
}

/// A source's file as it was read ahead.
#[derive(Default)]
enum OpenAhead {
    #[default]
    Not,
    Kept(OpenedAhead),
    /// A stream has taken the source, whether or not it was open.
    Taken,
}

impl Source {
    #[must_use]
    pub fn new(entry: SourceEntry) -> Self {
        Self { entry: Arc::new(entry), stored_as: None, opened: None, ahead: OpenAhead::Not }
    }
}

impl SendShared {
    /// Opens the file of a source at its first span, and keeps it open if there are more.
    fn open(&self, assignment: &Assignment) -> Result<Arc<SpanFile>, Fault> {
        let mut sources = lock(&self.sources);
        let source = sources.get_mut(&assignment.file).ok_or_else(Fault::default)?;
        if let OpenAhead::Kept(ahead) = std::mem::replace(&mut source.ahead, OpenAhead::Taken) {
            source.opened = (!assignment.whole_file).then(|| ahead.file.clone());
            // Before its pass goes back, which takes another lock.
            drop(sources);
            return Ok(ahead.file);
        }
        if let Some(opened) = &source.opened {
            return Ok(opened.clone());
        }
        let entry = source.entry.clone();
        // Without the lock while a file system is asked: one that is slow holds up neither the
        // other streams nor the session's thread.
        drop(sources);
        let opened = entry.open()?;
        if assignment.whole_file {
            return Ok(opened);
        }
        let mut sources = lock(&self.sources);
        let source = sources.get_mut(&assignment.file).ok_or_else(Fault::default)?;
        // Another stream may have opened it meanwhile.
        Ok(source.opened.get_or_insert(opened).clone())
    }

    /// Keeps a file that was read ahead for the stream that sends it, where none has taken it yet.
    pub(super) fn keep_opened(&self, file: FileId, opened: OpenedAhead) {
        let mut sources = lock(&self.sources);
        if let Some(source) = sources.get_mut(&file)
            && matches!(source.ahead, OpenAhead::Not)
        {
            source.ahead = OpenAhead::Kept(opened);
            return;
        }
        // Before the file's pass goes back, which takes another lock.
        drop(sources);
    }

    fn name(&self, file: FileId) -> Vec<u8> {
        lock(&self.sources).get(&file).map(|s| s.entry.offer.name.clone()).unwrap_or_default()
    }
}

/// A span that this stream is to send.
pub(super) struct Work {
    pub(super) assignment: Assignment,
    pub(super) span: FileSpan,
}

pub struct SendStream {
    pub(super) shared: Arc<SendShared>,
    pub(super) stream: StreamId,
    pub(super) sender: fallback::Sender,
    pub(super) digest: SpanDigest,
    pub(super) pack: PackWriter,
    pub(super) pack_fill_bytes: u64,
    pub(super) cache_look: CacheLook,
    pub(super) sequence: u64,
    done: Vec<SpanDone>,
    figures: Arc<Lock<StreamFigures>>,
    begun: Instant,
    idle_ns: u64,
    watch: Option<SourceWatch>,
    wire: WireKind,
    /// The key of a private stream.
    key: Option<KeyUse>,
    /// Number of the last order that was followed.
    order: u64,
    pub(super) copied_bytes: u64,
    pub(super) payload_bytes: u64,
    told_refused_pages: bool,
}

/// Number by which a stream's engine tells spans of different files apart.
fn id_of(file: FileId, span: SpanIndex) -> SpanId {
    SpanId((u64::from(file.0) << 32) + u64::from(span.0))
}

/// Runs a sending stream until the session is over.
///
/// # Errors
/// Says why the connection cannot be used any more.
pub fn run(
    shared: &Arc<SendShared>,
    stream: StreamId,
    socket: OwnedFd,
    chosen: &Chosen,
    figures: &Arc<Lock<StreamFigures>>,
) -> Result<(), StreamError> {
    let mut sending = SendStream::open(shared, stream, socket, chosen, figures)?;
    let result = sending.send_all();
    sending.update_figures();
    result.inspect_err(|error| {
        if matches!(error, StreamError::Renewal) {
            return;
        }
        Stream { streams: &shared.streams, setup: &shared.setup, stream, figures }.ended(error);
    })
}

impl SendStream {
    pub(super) fn open(
        shared: &Arc<SendShared>,
        stream: StreamId,
        socket: OwnedFd,
        chosen: &Chosen,
        figures: &Arc<Lock<StreamFigures>>,
    ) -> Result<Self, StreamError> {
        let host = shared.setup.host.clone();
        let memory = shared.setup.buffer_bytes_max;
        numa::run_near_interface(Path::new("/"), &socket, &host);
        let of = Stream { streams: &shared.streams, setup: &shared.setup, stream, figures };
        let (wire, candidates) = wires::wire(&of, socket, Way::Sends, chosen.both())?;
        let kind = wire.kind();
        let key = shared.setup.private.as_ref().map(|private| KeyUse::of(private, &wire));
        let key = key.transpose()?;
        let sender =
            fallback::Sender::open(candidates, wire, &host, memory).map_err(|error| error.cause)?;
        Ok(Self {
            shared: shared.clone(),
            stream,
            sender,
            digest: shared.setup.span_digest(),
            pack: PackWriter::default(),
            pack_fill_bytes: PACK_FILL_MIN_BYTES,
            cache_look: CacheLook::default(),
            sequence: 0,
            done: Vec::new(),
            figures: figures.clone(),
            begun: Instant::now(),
            idle_ns: 0,
            watch: SourceWatch::new(&host, kind, shared.setup.sees_bytes(), chosen),
            wire: kind,
            key,
            order: 0,
            copied_bytes: 0,
            payload_bytes: 0,
            told_refused_pages: false,
        })
    }

    fn send_all(&mut self) -> Result<(), StreamError> {
        self.tell_fallbacks();
        self.update_figures();
        let mut next = None;
        loop {
            if next.is_none() && self.has_used_up_key() {
                return self.renew();
            }
            let Some(work) = next.take().or_else(|| self.wait_for_work()) else { break };
            if work.is_small() {
                next = self.send_pack(work)?;
            } else {
                self.choose_again(&work.span)?;
                next = self.take_work();
                let large = next.as_ref().filter(|next| !next.is_small());
                if let Some(large) = large {
                    self.sender.prepare(&large.span);
                }
                let boundary = if next.is_some() { Boundary::MoreFollows } else { Boundary::Flush };
                self.send_span(&work, boundary)?;
                self.payload_bytes += work.assignment.len_bytes;
            }
            self.sender.reap(Wait::DontBlock, &mut self.done)?;
            self.count_done();
            self.tell_fallbacks();
            self.update_figures();
        }
        self.sender.reap(Wait::ForAll, &mut self.done)?;
        self.count_done();
        let end = FrameHeader::End { stream: self.stream, sequence: self.sequence };
        // The session is over either way: a peer that has left already is no failure.
        let _ = self.sender.send_bytes(&end.encode(), Boundary::Flush);
        Ok(())
    }

    /// Whether the key of a private stream has protected so much that another is due.
    fn has_used_up_key(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_used_up(self.sequence, self.payload_bytes))
    }

    /// Ends the stream for the sake of its key, and stays until the receiver has closed it: then
    /// all that was sent is acknowledged, and nothing goes out again.
    fn renew(&mut self) -> Result<(), StreamError> {
        self.sender.reap(Wait::ForAll, &mut self.done)?;
        self.count_done();
        let end = FrameHeader::Renewal { stream: self.stream, sequence: self.sequence };
        self.sender.send_bytes(&end.encode(), Boundary::Flush)?;
        self.update_figures();
        let begun = Instant::now();
        while self.is_open() && !self.shared.streams.stopping() {
            let shared = self.shared.clone();
            let machine = lock(&shared.machine);
            let _ = machine.wait_timeout(&shared.spans, IDLE_POLL);
        }
        self.idle_ns += elapsed_ns(begun);
        Err(StreamError::Renewal)
    }

    /// Changes to another engine where the session's thread, or the page cache ahead, asks for it.
    fn choose_again(&mut self, span: &FileSpan) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        if let Some(order) = shared.orders.newer_than(&mut self.order) {
            if let Some(watch) = &mut self.watch {
                watch.ordered(&order);
            }
            let at_work = self.sender.info();
            if order.fits(self.wire) && order.candidates[0].name != at_work.name {
                self.sender.change_to(order.candidates, &mut self.done)?;
            }
        }
        let bulk_bytes = shared.bulk_bytes.load(Ordering::Relaxed);
        let look = |watch: &mut SourceWatch| watch.look(span, bulk_bytes);
        let Some(choice) = self.watch.as_mut().and_then(look) else { return Ok(()) };
        let from = self.sender.info().name;
        self.sender.change_to(choice.candidates, &mut self.done)?;
        let from_to = format!("{from} -> {}", self.sender.info().name);
        let event = StreamEvent::Fallback { from_to, why: choice.because, stream: self.stream };
        self.shared.streams.tell(event);
        Ok(())
    }

    fn wait_for_work(&mut self) -> Option<Work> {
        let begun = Instant::now();
        let work = loop {
            if self.shared.streams.stopping() || !self.is_open() {
                break None;
            }
            if let Some(work) = self.take_work() {
                break Some(work);
            }
            let shared = self.shared.clone();
            let machine = lock(&shared.machine);
            lock(&self.figures).in_span = false;
            // Under the lock, so that no notice is missed.
            if machine.has_pending() || shared.streams.stopping() {
                continue;
            }
            let _ = machine.wait_timeout(&shared.spans, IDLE_POLL);
        };
        self.idle_ns += elapsed_ns(begun);
        lock(&self.figures).in_span = work.is_some();
        work
    }

    fn is_open(&self) -> bool {
        lock(&self.shared.machine).open_streams().any(|stream| stream == self.stream)
    }

    /// Takes the next span whose file can be opened; files that cannot are given up. None where
    /// the stream is to be replaced for its key's sake.
    pub(super) fn take_work(&mut self) -> Option<Work> {
        if self.has_used_up_key() {
            return None;
        }
        loop {
            let assignment = lock(&self.shared.machine).next_span(self.stream)?;
            self.shared.ahead.taken(assignment.file);
            match self.shared.open(&assignment) {
                Ok(file) => {
                    let span = FileSpan {
                        id: id_of(assignment.file, assignment.span),
                        offset_bytes: file.place(assignment.offset_bytes),
                        file,
                        len_bytes: assignment.len_bytes,
                    };
                    return Some(Work { assignment, span });
                }
                Err(fault) => {
                    lock(&self.shared.machine).source_failed(assignment.file, fault);
                    self.shared.streams.wake();
                }
            }
        }
    }

    /// Makes the header of the next frame, whose number is used once.
    pub(super) fn next_header(&mut self, assignment: &Assignment) -> SpanHeader {
        let sequence = self.sequence;
        self.sequence += 1;
        SpanHeader {
            file: assignment.file,
            offset_bytes: assignment.offset_bytes,
            len_bytes: assignment.len_bytes,
            sequence,
            stream: self.stream,
        }
    }

    fn send_span(&mut self, work: &Work, boundary: Boundary) -> Result<(), EngineError> {
        let assignment = &work.assignment;
        let header = self.next_header(assignment);
        let encoded = FrameHeader::Span(header).encode();
        self.sender.send_bytes(&encoded, Boundary::MoreFollows)?;
        self.digest.start(&header, &encoded);
        let tap: Option<&mut dyn SpanTap> =
            if self.digest.wants_bytes() { Some(&mut self.digest) } else { None };
        let mut status = PayloadStatus::Whole;
        if let Err(error) = self.sender.submit(&work.span, tap, &mut self.done) {
            if error.remedy != Remedy::SkipFile {
                return Err(error);
            }
            status = PayloadStatus::Abandoned;
            self.fill(assignment.len_bytes - error.moved_bytes)?;
            let what = format!("cannot be read at byte {}", error.offset_bytes);
            let name = self.shared.name(assignment.file);
            let fault = self.read_fault(&name, assignment.file, what, &error);
            lock(&self.shared.machine).source_failed(assignment.file, fault);
            self.shared.streams.wake();
        } else if assignment.whole_file {
            // What changes from here on arrives with another digest, if it has not left yet.
            status = self.confirm(work, Ok(()));
        }
        self.keep_content(assignment, status);
        let trailer = SpanTrailer { status, digest: self.digest.finish(status) };
        self.keep_sent(assignment, header, trailer);
        self.sender.send_bytes(&trailer.encode(), boundary)
    }

    /// Keeps the digest of a sent span, for a source that has to be read again.
    pub(super) fn keep_sent(
        &self,
        assignment: &Assignment,
        header: SpanHeader,
        trailer: SpanTrailer,
    ) {
        let SpanTrailer { status, digest } = trailer;
        if SentSpans::keeps(&assignment.grid, status) {
            self.shared.sent.sent(assignment.span, SentSpan { header, status, digest });
        }
    }

    /// Keeps the content value of a span that was read to its end, as the digest has just seen it.
    pub(super) fn keep_content(&self, assignment: &Assignment, status: PayloadStatus) {
        if status != PayloadStatus::Abandoned {
            let value = self.digest.content(Part::of(assignment.grid.count()));
            let Assignment { file, grid, span, .. } = *assignment;
            self.shared.contents.span(file, grid, span, value);
        }
    }

    /// Looks at the source of a file that goes out in one span, after all of it was `read`.
    pub(super) fn confirm(&self, work: &Work, read: io::Result<()>) -> PayloadStatus {
        let file = work.assignment.file;
        let entry = lock(&self.shared.sources).get(&file).map(|source| source.entry.clone());
        let found = entry.map_or(Ok(false), |entry| {
            let now = entry.check_opened(&work.span.file)?;
            let name = &entry.offer.name;
            read.map_err(|error| io_fault(Side::Source, name, "cannot be read", &error))?;
            Ok(now.differs(Ctime::of_offer(&entry.offer)))
        });
        let mut machine = lock(&self.shared.machine);
        match found {
            // The session's thread reads it again before it is confirmed.
            Ok(true) => PayloadStatus::Whole,
            Ok(false) if machine.confirm_with_span(file) => PayloadStatus::Confirmed,
            Ok(false) => PayloadStatus::Whole,
            Err(fault) => {
                machine.source_failed(file, fault);
                self.shared.streams.wake();
                PayloadStatus::Abandoned
            }
        }
    }

    /// Finds the fault of a failed read: a source that was cut shows as the end of the file, and
    /// what changed says more.
    fn read_fault(&self, name: &[u8], file: FileId, what: String, error: &EngineError) -> Fault {
        let entry = lock(&self.shared.sources).get(&file).map(|source| source.entry.clone());
        match entry.map(|entry| entry.check()) {
            Some(Err(fault)) => fault,
            _ => io_fault(Side::Source, name, what, &error.source),
        }
    }

    /// Fills the rest of a span whose source ended early, so that the stream's framing stays.
    fn fill(&mut self, mut len_bytes: u64) -> Result<(), EngineError> {
        while len_bytes > 0 {
            let take = len_bytes.min(FILLER.len() as u64);
            let filler = &FILLER[..usize::try_from(take).unwrap_or(FILLER.len())];
            if self.digest.wants_bytes() {
                self.digest.see(filler);
            }
            self.sender.send_bytes(filler, Boundary::MoreFollows)?;
            len_bytes -= take;
        }
        Ok(())
    }

    fn count_done(&mut self) {
        self.copied_bytes += self.done.drain(..).map(|done| done.copied_bytes).sum::<u64>();
    }

    fn tell_fallbacks(&mut self) {
        self.tell_refused_pages();
        for fallback in self.sender.take_fallbacks() {
            let from_to = format!("{} -> {}", fallback.from, fallback.to);
            let event = StreamEvent::Fallback { from_to, why: fallback.why, stream: self.stream };
            self.shared.streams.tell(event);
        }
    }

    /// Tells once that the pages of files cannot be registered, and are copied.
    fn tell_refused_pages(&mut self) {
        if self.told_refused_pages {
            return;
        }
        let Some(why) = self.sender.fabric_figures().and_then(|figures| figures.end.refused) else {
            return;
        };
        self.told_refused_pages = true;
        let from_to = "registered pages -> registered buffers".to_owned();
        self.shared.streams.tell(StreamEvent::Fallback { from_to, why, stream: self.stream });
    }

    fn update_figures(&mut self) {
        let mut figures = lock(&self.figures);
        figures.cpu_ns = thread_cpu_ns();
        figures.wall_ns = elapsed_ns(self.begun);
        figures.updated_at = Some(Instant::now());
        figures.idle_ns = self.idle_ns;
        figures.copied_bytes = self.copied_bytes;
        figures.stages = self.sender.stage_times();
        figures.takes_rdma(self.sender.fabric_figures());
        figures.uses(self.sender.info().name);
        figures.payload_bytes = self.payload_bytes;
    }
}

#[cfg(test)]
mod tests;
