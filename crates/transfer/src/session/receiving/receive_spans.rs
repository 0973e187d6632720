//! A receiving stream, which takes each span off the wire into its file and checks its digest.

use crate::session::{
    contents::Contents,
    engine_orders::{Chosen, Orders},
    numa,
    rdma::Stream,
    receiving::committer::{CommitterHandle, SharedTarget},
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
    storage::{open_files::Share, span_digests::Digest, waited_for::Held},
};
use haul_datapath::{
    EngineError, FileSpan, Remedy, SpanDone, SpanFile, SpanId, SpanTap, Wait, WireKind, fallback,
    tls::{NewKeys, named_end},
};
use haul_protocol::{
    FileId, ProtocolError, Receiver, SpanGrid, SpanIndex, StreamId,
    frame::{FrameHeader, HEADER_BYTES, PayloadStatus, SpanHeader, SpanTrailer, TRAILER_BYTES},
    message::{Fault, Side},
    receiver::{Permit, SpanEnd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// State that the streams and the session's thread share.
pub struct ReceiveShared {
    pub machine: Lock<Receiver, rank::Machine>,
    pub targets: Lock<BTreeMap<FileId, Target>>,
    pub contents: Arc<Contents>,
    pub committer: CommitterHandle,
    pub streams: Arc<Streams>,
    pub setup: StreamSetup,
    pub orders: Orders,
    /// Payload bytes verified in this session.
    pub verified_bytes: AtomicU64,
    pub damaged_spans: AtomicU64,
    /// Share of the small files that all sessions may have open.
    pub small_files: Share,
    /// Files that a stream found it cannot write.
    pub failed: Lock<Vec<(FileId, Fault)>>,
}

impl ReceiveShared {
    /// Whether this is the lock of a file that is being received. One that its committer is busy
    /// with is asked the next time.
    pub fn holds(&self, held: &Held) -> bool {
        let Held::File(inode, device) = held else { return false };
        let is_it = |target: &Target| {
            let file = target.shared.try_lock();
            file.and_then(|file| file.as_ref()?.inode()) == Some((*inode, *device))
        };
        lock(&self.targets).values().any(is_it)
    }
}

#[derive(Clone)]
pub struct Target {
    pub name: Vec<u8>,
    /// The open file; `None` for a file of one span, which is opened when that comes.
    pub file: Option<Arc<SpanFile>>,
    pub shared: SharedTarget,
    /// The file has one span, or none.
    pub is_whole: bool,
    /// The file is closed once it is written, and so takes none of the descriptors of others.
    pub is_light: bool,
    /// Spans of the file are journaled, so that a later run can go on.
    pub is_journaled: bool,
    pub grid: SpanGrid,
}

/// A span that the engine has taken and that is not written yet.
struct Pending {
    id: SpanId,
    file: FileId,
    span: SpanIndex,
    len_bytes: u64,
    target: SharedTarget,
    is_whole: bool,
    /// Digest of the span that a journal is to hold.
    digest: Option<Digest>,
    /// Outcome of the span: its digest agreed, or why it is not to be believed.
    end: SpanEnd,
    written: bool,
}

pub struct ReceiveStream {
    pub(super) shared: Arc<ReceiveShared>,
    pub(super) stream: StreamId,
    pub(super) receiver: fallback::Receiver,
    /// A second descriptor of the engine's socket, to look whether anything has come.
    wire: OwnedFd,
    kind: WireKind,
    pub(super) digest: SpanDigest,
    pending: VecDeque<Pending>,
    /// Memory that packs are received into.
    pub(super) pack: Vec<u8>,
    next_id: u64,
    done: Vec<SpanDone>,
    pub(super) figures: Arc<Lock<StreamFigures>>,
    begun: Instant,
    idle_ns: u64,
    /// Number of the last order that was followed.
    order: u64,
    pub(super) copied_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) consumed_bytes: u64,
}

/// Reasons for which a stream's thread leaves its loop.
pub(super) enum Leave {
    Orderly,
    Broken(StreamError),
}

impl From<EngineError> for Leave {
    fn from(error: EngineError) -> Self {
        Self::Broken(error.into())
    }
}

impl From<ProtocolError> for Leave {
    fn from(error: ProtocolError) -> Self {
        Self::Broken(error.into())
    }
}

/// Runs a receiving stream until it ends.
///
/// # Errors
/// Says why the connection cannot be used any more.
pub fn run(
    shared: &Arc<ReceiveShared>,
    stream: StreamId,
    socket: OwnedFd,
    chosen: &Chosen,
    figures: &Arc<Lock<StreamFigures>>,
) -> Result<(), StreamError> {
    let host = shared.setup.host.clone();
    let memory = shared.setup.buffer_bytes_max;
    numa::run_near_interface(Path::new("/"), &socket, &host);
    let wire = socket.try_clone()?;
    let of = Stream { streams: &shared.streams, setup: &shared.setup, stream, figures };
    let (sent_by, candidates) = wires::wire(&of, socket, Way::Receives, chosen.both())?;
    let kind = sent_by.kind();
    let receiver = fallback::Receiver::open(candidates, sent_by, &host, memory)
        .map_err(|error| error.cause)?;
    let mut this = ReceiveStream {
        shared: shared.clone(),
        stream,
        receiver,
        wire,
        kind,
        digest: shared.setup.span_digest(),
        pending: VecDeque::new(),
        pack: Vec::new(),
        next_id: 0,
        done: Vec::new(),
        figures: figures.clone(),
        begun: Instant::now(),
        idle_ns: 0,
        order: 0,
        copied_bytes: 0,
        payload_bytes: 0,
        consumed_bytes: 0,
    };
    this.update_figures(false);
    let left = loop {
        if let Err(left) = this.receive_one() {
            break left;
        }
    };
    // What was taken off the wire and verified counts, whatever happened to the connection.
    let _ = this.settle_pending(Wait::ForAll);
    this.update_figures(false);
    match left {
        Leave::Orderly => Ok(()),
        Leave::Broken(StreamError::Renewal) => Err(StreamError::Renewal),
        Leave::Broken(error) => {
            let error = match error {
                StreamError::Engine(error) if shared.setup.private.is_some() => {
                    named(named_end(error, &this.wire))
                }
                error => error,
            };
            Stream { streams: &shared.streams, setup: &shared.setup, stream, figures }
                .ended(&error);
            if let StreamError::Protocol(why) = &error {
                shared.streams.tell(StreamEvent::Violated { why: why.clone() });
            }
            Err(error)
        }
    }
}

/// Tells apart what a peer of a private stream may not do (SPEC 6.5).
fn named(error: EngineError) -> StreamError {
    match NewKeys::is(&error.source) {
        true => ProtocolError::new(NewKeys.to_string()).into(),
        false => error.into(),
    }
}

/// Leaves a stream whose sender says that its key has protected enough. `is_own`: the stream is
/// private, and the frame is of it. One that brought nothing but this frame is no reason for
/// another stream: a sender could go on so without end.
fn end_of_key(is_own: bool, consumed_bytes: u64) -> Leave {
    if !is_own {
        let why = "the end of a key on a stream that is not private, or of another stream";
        return ProtocolError::new(why).into();
    }
    if consumed_bytes <= HEADER_BYTES as u64 {
        return ProtocolError::new("the end of a key that protected nothing").into();
    }
    Leave::Broken(StreamError::Renewal)
}

impl ReceiveStream {
    fn receive_one(&mut self) -> Result<(), Leave> {
        let mut bytes = [0; HEADER_BYTES];
        self.settle_pending(Wait::DontBlock)?;
        self.finish_writes_while_idle()?;
        let begun = Instant::now();
        if let Err(error) = self.receiver.receive_bytes(&mut bytes) {
            let at_boundary = error.moved_bytes == 0;
            let closed = error.source.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if closed && at_boundary {
                Leave::Broken(StreamError::Closed)
            } else {
                error.into()
            });
        }
        self.idle_ns += elapsed_ns(begun);
        self.consumed_bytes += HEADER_BYTES as u64;
        let header = match FrameHeader::decode(&bytes) {
            Ok(FrameHeader::Span(header)) => header,
            Ok(FrameHeader::Pack(pack)) => return self.receive_pack(&pack),
            Ok(FrameHeader::End { stream, .. }) if stream == self.stream => {
                return Err(Leave::Orderly);
            }
            Ok(FrameHeader::Renewal { stream, .. }) => {
                let is_private = self.shared.setup.private.is_some();
                let is_own = is_private && stream == self.stream;
                return Err(end_of_key(is_own, self.consumed_bytes));
            }
            Ok(FrameHeader::End { .. }) => {
                return Err(ProtocolError::new("an end frame of another stream").into());
            }
            Err(error) => return Err(error.into()),
        };
        let permit = lock(&self.shared.machine).span_starts(self.stream, &header)?;
        self.update_figures(true);
        let target = lock(&self.shared.targets).get(&header.file).cloned();
        match (permit, target) {
            (Permit::Write(span), Some(target)) => {
                self.choose_again()?;
                self.receive_span(&header, &bytes, span, &target)?;
            }
            (Permit::Write(span), None) => {
                self.discard(header.len_bytes)?;
                self.end_span(header.file, span, SpanEnd::Abandoned);
            }
            (Permit::Discard, _) => self.discard(header.len_bytes)?,
        }
        self.tell_fallbacks();
        self.update_figures(false);
        Ok(())
    }

    /// Changes to another engine where the session's thread asks for it.
    fn choose_again(&mut self) -> Result<(), Leave> {
        if let Some(order) = self.shared.orders.newer_than(&mut self.order)
            && order.fits(self.kind)
            && order.candidates[0].name != self.receiver.info().name
        {
            self.receiver.change_to(order.candidates, &mut self.done)?;
            self.settle_pending(Wait::DontBlock)?;
        }
        Ok(())
    }

    /// Finishes the writes while there is nothing to read, as they do not need the wire.
    fn finish_writes_while_idle(&mut self) -> Result<(), Leave> {
        let has_come = || self.receiver.has_come().unwrap_or_else(|| has_come(&self.wire));
        if may_finish(&self.pending, has_come) { self.settle_pending(Wait::ForAll) } else { Ok(()) }
    }

    fn receive_span(
        &mut self,
        header: &SpanHeader,
        encoded: &[u8; HEADER_BYTES],
        span: SpanIndex,
        target: &Target,
    ) -> Result<(), Leave> {
        self.next_id += 1;
        let id = SpanId(self.next_id);
        let file = match &target.file {
            Some(file) => file.clone(),
            None => match self.begin_whole(target) {
                Ok(file) => file,
                Err(fault) => {
                    self.fail_file_with(header.file, fault);
                    self.discard(header.len_bytes)?;
                    self.end_span(header.file, span, SpanEnd::Abandoned);
                    return Ok(());
                }
            },
        };
        let offset_bytes = file.place(header.offset_bytes);
        let file_span = FileSpan { id, file, offset_bytes, len_bytes: header.len_bytes };
        self.digest.journals(target.is_journaled);
        self.digest.start(header, encoded);
        let tap: Option<&mut dyn SpanTap> =
            if self.digest.wants_bytes() { Some(&mut self.digest) } else { None };
        // In the list before it is submitted: it may be done before that returns.
        self.pending.push_back(Pending {
            id,
            file: header.file,
            span,
            len_bytes: header.len_bytes,
            target: target.shared.clone(),
            is_whole: target.is_whole,
            digest: None,
            end: SpanEnd::Abandoned,
            written: false,
        });
        if let Err(error) = self.receiver.submit(&file_span, tap, &mut self.done) {
            self.pending.pop_back();
            if error.remedy != Remedy::SkipFile {
                return Err(error.into());
            }
            self.fail_file(header.file, &target.name, &error);
            self.discard(header.len_bytes - error.moved_bytes)?;
            self.end_span(header.file, span, SpanEnd::Abandoned);
            return Ok(());
        }
        self.consumed_bytes += header.len_bytes;
        let end = self.receive_trailer()?;
        self.keep_content(header.file, target, span, end);
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.id == id) {
            (pending.end, pending.digest) = (end, self.digest.journaled());
        }
        if end == SpanEnd::Damaged {
            self.shared.damaged_spans.fetch_add(1, Ordering::Relaxed);
        }
        self.settle_pending(Wait::DontBlock)
    }

    fn receive_trailer(&mut self) -> Result<SpanEnd, Leave> {
        let mut bytes = [0; TRAILER_BYTES];
        self.receiver.receive_bytes(&mut bytes)?;
        self.consumed_bytes += TRAILER_BYTES as u64;
        let Ok(trailer) = SpanTrailer::decode(&bytes) else { return Ok(SpanEnd::Damaged) };
        let digest = self.digest.finish(trailer.status);
        if !crate::token::same_secret(&digest, &trailer.digest) {
            return Ok(SpanEnd::Damaged);
        }
        Ok(match trailer.status {
            PayloadStatus::Whole => SpanEnd::Verified,
            PayloadStatus::Abandoned => SpanEnd::Abandoned,
            PayloadStatus::Confirmed => SpanEnd::Confirmed,
        })
    }

    /// Keeps the content value of a span that the digest has just seen, if it is to be believed.
    pub(super) fn keep_content(
        &self,
        file: FileId,
        target: &Target,
        span: SpanIndex,
        end: SpanEnd,
    ) {
        if matches!(end, SpanEnd::Verified | SpanEnd::Confirmed) {
            let value = self.digest.content(Part::of(target.grid.count()));
            self.shared.contents.span(file, target.grid, span, value);
        }
    }

    /// Takes a payload and its trailer off the wire, for nothing.
    fn discard(&mut self, len_bytes: u64) -> Result<(), Leave> {
        let mut buffer = vec![0; 64 << 10];
        let mut left = len_bytes + TRAILER_BYTES as u64;
        while left > 0 {
            let take = usize::try_from(left.min(buffer.len() as u64)).unwrap_or(buffer.len());
            self.receiver.receive_bytes(&mut buffer[..take])?;
            left -= take as u64;
            self.consumed_bytes += take as u64;
        }
        Ok(())
    }

    /// Tells of spans whose bytes are written; a write that failed late ends its file.
    fn settle_pending(&mut self, wait: Wait) -> Result<(), Leave> {
        loop {
            let reaped = self.receiver.reap(wait, &mut self.done);
            let done = std::mem::take(&mut self.done);
            if !done.is_empty() {
                self.copied_bytes += done.iter().map(|done| done.copied_bytes).sum::<u64>();
                // Before the spans are told of: with the last one the report is made.
                let mut figures = lock(&self.figures);
                figures.copied_bytes = self.copied_bytes;
                figures.takes_rdma(self.receiver.fabric_figures());
            }
            for done in done {
                if let Some(pending) = self.pending.iter_mut().find(|p| p.id == done.id) {
                    pending.written = true;
                }
            }
            let failed = match reaped {
                Ok(()) => None,
                // That of a write, which names its span.
                Err(error) if error.remedy == Remedy::SkipFile => Some(error),
                Err(error) => return Err(error.into()),
            };
            if let Some(error) = &failed
                && let Some(at) = self.pending.iter().position(|p| Some(p.id) == error.span)
            {
                let pending = self.pending.remove(at).expect("just found");
                let name = self.name_of(pending.file);
                self.fail_file(pending.file, &name, error);
                self.end_span(pending.file, pending.span, SpanEnd::Abandoned);
            }
            while let Some(pending) = self.pending.front().filter(|pending| pending.written) {
                let (file, span, end) = (pending.file, pending.span, pending.end);
                let pending = self.pending.pop_front().expect("just seen");
                if matches!(end, SpanEnd::Verified | SpanEnd::Confirmed) {
                    let bytes = pending.len_bytes;
                    self.payload_bytes += bytes;
                    // First, so that nobody sees them twice.
                    let unsettled_bytes = unsettled_bytes(&self.pending);
                    lock(&self.figures).unsettled_bytes = unsettled_bytes;
                    self.shared.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
                    if pending.is_whole {
                        let whole = (file, pending.target, bytes);
                        self.shared.committer.verified_whole([whole].into_iter());
                    } else {
                        let span = (span, pending.digest);
                        self.shared.committer.verified(file, &pending.target, span, bytes);
                    }
                }
                self.end_span(file, span, end);
            }
            if failed.is_none() {
                return Ok(());
            }
        }
    }

    fn end_span(&mut self, file: FileId, span: SpanIndex, end: SpanEnd) {
        let mut machine = lock(&self.shared.machine);
        machine.span_ended(self.stream, file, span, end);
        // Without a wake-up for each span the session's thread leaves the cores to the streams.
        if machine.is_urgent() {
            self.shared.streams.wake();
        }
    }

    fn name_of(&self, file: FileId) -> Vec<u8> {
        lock(&self.shared.targets).get(&file).map(|t| t.name.clone()).unwrap_or_default()
    }

    fn fail_file(&self, file: FileId, name: &[u8], error: &EngineError) {
        let what = format!("cannot be written at byte {}", error.offset_bytes);
        self.fail_file_with(file, io_fault(Side::Target, name, what, &error.source));
    }

    pub(super) fn fail_file_with(&self, file: FileId, fault: Fault) {
        lock(&self.shared.failed).push((file, fault));
        self.shared.streams.wake();
    }

    /// Opens a file of one span that an engine is to write.
    fn begin_whole(&self, target: &Target) -> Result<Arc<SpanFile>, Fault> {
        let streams = &self.shared.streams;
        let pass = self.shared.small_files.take().or_else(|| {
            self.shared.committer.hurry();
            self.shared.small_files.wait(|| streams.stopping())
        });
        let pass = pass.ok_or_else(Fault::default)?;
        let mut shared = lock(&target.shared);
        shared.as_mut().map_or_else(|| Err(Fault::default()), |file| file.begin_whole(Some(pass)))
    }

    fn tell_fallbacks(&mut self) {
        for fallback in self.receiver.take_fallbacks() {
            let from_to = format!("{} -> {}", fallback.from, fallback.to);
            let event = StreamEvent::Fallback { from_to, why: fallback.why, stream: self.stream };
            self.shared.streams.tell(event);
        }
    }

    pub(super) fn update_figures(&mut self, in_span: bool) {
        let unsettled_bytes = unsettled_bytes(&self.pending);
        let mut figures = lock(&self.figures);
        figures.cpu_ns = thread_cpu_ns();
        figures.wall_ns = elapsed_ns(self.begun);
        figures.updated_at = Some(Instant::now());
        figures.idle_ns = self.idle_ns;
        figures.copied_bytes = self.copied_bytes;
        figures.stages = self.receiver.stage_times();
        figures.takes_rdma(self.receiver.fabric_figures());
        figures.uses(self.receiver.info().name);
        figures.payload_bytes = self.payload_bytes;
        figures.consumed_bytes = self.consumed_bytes;
        figures.unsettled_bytes = unsettled_bytes;
        figures.in_span = in_span;
    }
}

/// Whether spans are being written, and nothing has come that is to be read first.
fn may_finish(pending: &VecDeque<Pending>, has_come: impl FnOnce() -> bool) -> bool {
    !pending.is_empty() && !has_come()
}

/// Whether something has come on a socket.
fn has_come(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Bytes of spans that came whole and are not told of yet. The next may take the thread for
/// seconds before it is told that they are written.
fn unsettled_bytes(pending: &VecDeque<Pending>) -> u64 {
    let is_whole =
        |pending: &&Pending| matches!(pending.end, SpanEnd::Verified | SpanEnd::Confirmed);
    pending.iter().filter(is_whole).map(|pending| pending.len_bytes).sum()
}

#[cfg(test)]
mod tests;
