//! Sending side of a transfer, as a state machine.
//!
//! It says which files are offered, which spans go on which stream, what has been acknowledged, and
//! when a file is settled.
//!
//! Promises: a span is handed out to one stream at a time; it goes out again only when the
//! receiver said that it was damaged or that its stream is closed; a file is confirmed only when
//! every span of it is verified and the source was looked at afterwards.

use crate::{
    Awaited, FileId, Message, ProtocolError, SpanGrid, SpanIndex, SpanSet, StreamId, limits,
    message::{
        Answer, Compare, Fault, FaultCode, FileAnswer, FileConfirm, FileOffer, FileSettled, Finish,
        Notice, OffersEnd, Plan, Progress, Side, SideReport, SpanBad, SpansLost, SpansVerified,
        StreamDrop, offer_bytes,
    },
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    format,
    string::String,
    vec::Vec,
};

#[cfg(test)]
mod tests;

/// A span to be sent now on the asking stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub file: FileId,
    pub span: SpanIndex,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// The span is all of its file: [`Sender::confirm_with_span`] may be called.
    pub whole_file: bool,
    /// Division of the span's file into spans.
    pub grid: SpanGrid,
}

/// Ways in which an offer comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum FileOutcome {
    /// The file is durable under its name at the receiver.
    Done,
    /// The file that is there already is the same.
    Skipped,
    Failed(Fault),
    /// A file of the same size is there: offer this one again, and say whether it is the same.
    Compare(Compare),
    /// The plan of what would be done, in a dry run.
    Planned(Plan),
}

/// An event that the sender tells its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderEvent {
    /// The receiver already has this many bytes of the file, from an earlier session.
    Resumed {
        file: FileId,
        bytes: u64,
        span_bytes: u64,
        earlier: Resumed,
    },
    /// Bytes that [`Self::Resumed`] told of are not there any more, and go out again.
    Lost {
        file: FileId,
        bytes: u64,
    },
    /// The receiver gives the file another name, as its own is taken by something else that stays.
    StoredAs {
        file: FileId,
        name: Vec<u8>,
    },
    /// Names at the receiver that were not offered, and are gone.
    Removed(Vec<Vec<u8>>),
    /// Every span of the file is verified: look whether the source is still what was offered, then
    /// call [`Sender::source_checked`].
    CheckSource(FileId),
    /// A span arrived damaged and goes out again.
    SpanDamaged {
        file: FileId,
        span: SpanIndex,
        stream: StreamId,
    },
    /// The receiver wants the stream closed, or is done with it: shut its socket down.
    StreamClosed(StreamId),
    Settled {
        file: FileId,
        outcome: FileOutcome,
        /// The source had failed by the time of the outcome: the answer to its offer was on its
        /// way.
        source_failed: bool,
    },
    Progress(Progress),
    Notice(Notice),
    /// The receiver's report: the session is over.
    Finished(SideReport),
    Refused(Fault),
}

/// A receiver's knowledge about the spans that an earlier session left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    pub durable: SpanSet,
    /// Change time of the source's inode when the first of these spans came; zeros: not known.
    pub ctime: (i64, u32),
    /// Digest of what these spans hold (SPEC.md 7.6); `None`: not known.
    pub digest: Option<[u8; limits::DURABLE_DIGEST_BYTES]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Offered,
    Moving,
    /// The owner looks at the file's source.
    Checking,
    /// The file is confirmed, and the receiver has the last word.
    Confirmed,
    /// The file is confirmed with a fault: the receiver can only settle it with one.
    GivenUp,
}

#[derive(Debug)]
struct SendFile {
    size_bytes: u64,
    /// Memory that the file's offer takes, in bytes.
    offer_bytes: u64,
    phase: Phase,
    /// The trailer of the file's only span, which is on its way, confirms the file.
    confirmed_with_span: bool,
    grid: Option<SpanGrid>,
    /// Spans that were not handed out, or are to be sent again.
    pending: SpanSet,
    verified: SpanSet,
    /// Spans that the receiver had before this session and may still find lost.
    earlier: SpanSet,
    retries: BTreeMap<SpanIndex, u32>,
}

#[derive(Debug, Default)]
struct SendStream {
    unacknowledged: BTreeSet<(FileId, SpanIndex)>,
    dropped: bool,
}

#[derive(Debug)]
pub struct Sender {
    files: BTreeMap<FileId, SendFile>,
    /// Files that have pending spans.
    ready: BTreeSet<FileId>,
    streams: BTreeMap<StreamId, SendStream>,
    /// Numbers of all streams ever seen: none is used twice.
    streams_ever: BTreeSet<StreamId>,
    next_file: u32,
    /// Memory that the offers of unsettled files take, in bytes.
    offer_bytes: u64,
    /// Count of the spans of unsettled files: each takes two bits.
    open_spans: u64,
    verified_bytes: u64,
    offers_max: u32,
    offer_bytes_max: u64,
    offers_ended: bool,
    finished: bool,
    peer_finished: bool,
    outbox: VecDeque<Message>,
    events: VecDeque<SenderEvent>,
}

impl Sender {
    /// Makes a sender that keeps at most `offers_max` files unsettled, and offers no more once
    /// their memory ([`offer_bytes`]) has reached `offer_bytes_max`.
    #[must_use]
    pub fn new(offers_max: u32, offer_bytes_max: u64) -> Self {
        Self {
            files: BTreeMap::new(),
            ready: BTreeSet::new(),
            streams: BTreeMap::new(),
            streams_ever: BTreeSet::new(),
            next_file: 0,
            offer_bytes: 0,
            open_spans: 0,
            verified_bytes: 0,
            offers_max: offers_max.clamp(1, limits::OFFERS_MAX),
            offer_bytes_max: offer_bytes_max.min(limits::OFFER_BYTES_MAX),
            offers_ended: false,
            finished: false,
            peer_finished: false,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Whether another file may be offered now.
    #[must_use]
    pub fn may_offer(&self) -> bool {
        !self.offers_ended
            && self.files.len() < self.offers_max as usize
            && (self.offer_bytes < self.offer_bytes_max || self.files.is_empty())
            && self.next_file < limits::FILES_MAX
    }

    /// Offers a file; its number is filled in and returned.
    ///
    /// # Panics
    /// If [`Self::may_offer`] is false.
    pub fn offer(&mut self, mut offer: FileOffer) -> FileId {
        assert!(self.may_offer(), "ask may_offer first");
        let file = FileId(self.next_file);
        self.next_file += 1;
        offer.file = file;
        let state = SendFile {
            size_bytes: offer.size_bytes,
            offer_bytes: offer_bytes(&offer),
            phase: Phase::Offered,
            confirmed_with_span: false,
            grid: None,
            pending: SpanSet::default(),
            verified: SpanSet::default(),
            earlier: SpanSet::default(),
            retries: BTreeMap::new(),
        };
        self.offer_bytes += state.offer_bytes;
        self.files.insert(file, state);
        self.outbox.push_back(Message::FileOffer(offer));
        file
    }

    /// Ends the offers: no more files will be offered.
    pub fn end_offers(&mut self, files: u64, bytes: u64) {
        if !self.offers_ended {
            self.offers_ended = true;
            self.outbox.push_back(Message::OffersEnd(OffersEnd { files, bytes }));
        }
    }

    /// Bytes of the spans that the receiver has verified since this session began.
    #[must_use]
    pub fn verified_bytes(&self) -> u64 {
        self.verified_bytes
    }

    /// Whether any file is offered and not settled.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether everything offered has been settled and no other offer comes.
    #[must_use]
    pub fn all_settled(&self) -> bool {
        self.offers_ended && self.files.is_empty()
    }

    /// The step that is due from the receiver, where nothing else can go on: neither a stream nor a
    /// look at a source.
    #[must_use]
    pub fn awaits(&self) -> Option<Awaited> {
        let waits = |stream: &SendStream, dropped| {
            stream.dropped == dropped && !stream.unacknowledged.is_empty()
        };
        let any = |phase| self.files.values().any(|file| file.phase == phase);
        if !self.ready.is_empty()
            || self.streams.values().any(|stream| waits(stream, false))
            || any(Phase::Checking)
        {
            return None;
        }
        if self.streams.values().any(|stream| waits(stream, true)) {
            return Some(Awaited::StreamEnd);
        }
        if self.files.is_empty() {
            return (self.finished && !self.peer_finished).then_some(Awaited::Goodbye);
        }
        if any(Phase::Confirmed) || any(Phase::GivenUp) {
            return Some(Awaited::Settlement);
        }
        any(Phase::Offered).then_some(Awaited::Answer)
    }

    /// Says goodbye with this side's report; the receiver answers with its own.
    pub fn finish(&mut self, report: SideReport) {
        if !self.finished {
            self.finished = true;
            self.outbox.push_back(Message::Finish(Finish { report: Some(report) }));
        }
    }

    /// Takes a data connection that spans may go out on.
    ///
    /// # Errors
    /// If its number was used already, or the receiver has closed it before it came, or there are
    /// too many: shut the connection down, the session goes on.
    pub fn stream_opened(&mut self, stream: StreamId) -> Result<(), ProtocolError> {
        if self.streams.len() >= limits::STREAMS_MAX as usize {
            return Err(ProtocolError::new("more than 64 streams at a time"));
        }
        if self.streams_ever.len() >= limits::STREAMS_EVER_MAX as usize {
            return Err(ProtocolError::new("too many streams in one session"));
        }
        if !self.streams_ever.insert(stream) {
            return Err(ProtocolError::new(format!("stream {} was opened twice", stream.0)));
        }
        self.streams.insert(stream, SendStream::default());
        Ok(())
    }

    /// Streams that are open and not given up.
    pub fn open_streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.streams.iter().filter(|(_, state)| !state.dropped).map(|(stream, _)| *stream)
    }

    /// Whether this stream has sent spans that are not acknowledged yet.
    #[must_use]
    pub fn awaits_acknowledgement(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| !state.unacknowledged.is_empty())
    }

    /// Drops a stream that broke or stalled: its spans go out again once the receiver has closed
    /// it.
    pub fn drop_stream(&mut self, stream: StreamId, why: &str) {
        if let Some(state) = self.streams.get_mut(&stream)
            && !state.dropped
        {
            state.dropped = true;
            let drop = StreamDrop { stream, why: why.into() };
            self.outbox.push_back(Message::StreamDrop(drop));
        }
    }

    /// Whether any span waits for a stream.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Files from `first` on that have spans for a stream, in the order in which these go out.
    pub fn waiting(&self, first: FileId) -> impl Iterator<Item = FileId> + '_ {
        self.ready.range(first..).copied()
    }

    /// Hands out the next span for this stream, lowest file and offset first.
    pub fn next_span(&mut self, stream: StreamId) -> Option<Assignment> {
        let state = self.streams.get_mut(&stream).filter(|state| !state.dropped)?;
        let file = *self.ready.first()?;
        let entry = self.files.get_mut(&file).expect("ready files are open");
        let span = entry.pending.first_from(SpanIndex(0)).expect("ready files have spans");
        entry.pending.remove(span);
        if entry.pending.is_empty() {
            self.ready.remove(&file);
        }
        state.unacknowledged.insert((file, span));
        let grid = entry.grid.expect("a moving file has a grid");
        let (offset_bytes, len_bytes) = grid.range(span);
        let whole_file = grid.count() == 1;
        Some(Assignment { file, span, offset_bytes, len_bytes, whole_file, grid })
    }

    /// Confirms a file by its only span, which goes out as
    /// [`Confirmed`](crate::frame::PayloadStatus::Confirmed): the source was looked at after all of
    /// it was read. Call it before the trailer leaves; true when it may say so.
    pub fn confirm_with_span(&mut self, file: FileId) -> bool {
        let Some(entry) = self.files.get_mut(&file) else { return false };
        let one_span = entry.grid.is_some_and(|grid| grid.count() == 1);
        entry.confirmed_with_span = one_span && entry.phase == Phase::Moving;
        entry.confirmed_with_span
    }

    /// Gives up a file whose source cannot be read.
    pub fn source_failed(&mut self, file: FileId, fault: Fault) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        let is_confirmed = entry.phase == Phase::Confirmed || entry.confirmed_with_span;
        if !is_confirmed && entry.phase != Phase::GivenUp {
            entry.phase = Phase::GivenUp;
            self.ready.remove(&file);
            let confirm = FileConfirm { file, fault: Some(fault) };
            self.outbox.push_back(Message::FileConfirm(confirm));
        }
    }

    /// Takes the finding about a source: the answer to [`SenderEvent::CheckSource`].
    pub fn source_checked(&mut self, file: FileId, found: Result<(), Fault>) {
        match found {
            Err(fault) => self.source_failed(file, fault),
            Ok(()) => {
                let Some(entry) = self.files.get_mut(&file) else { return };
                if entry.phase == Phase::Checking {
                    entry.phase = Phase::Confirmed;
                    let confirm = FileConfirm { file, fault: None };
                    self.outbox.push_back(Message::FileConfirm(confirm));
                }
            }
        }
    }

    /// Tells the other side's user of an event, once.
    pub fn notice(&mut self, notice: Notice) {
        self.outbox.push_back(Message::Notice(notice));
    }

    pub fn poll_message(&mut self) -> Option<Message> {
        self.outbox.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// Takes a message of the receiver.
    ///
    /// # Errors
    /// If the receiver says what it cannot know or may not say.
    pub fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        match message {
            Message::FileAnswer(answer) => self.handle_answer(answer),
            Message::SpansVerified(verified) => self.handle_verified(&verified),
            Message::SpanBad(bad) => self.handle_bad(&bad),
            Message::SpansLost(lost) => self.handle_lost(&lost),
            Message::StreamClosed(closed) => self.handle_stream_closed(closed.stream),
            Message::FileSettled(settled) => self.handle_settled(settled),
            Message::Progress(progress) => {
                self.events.push_back(SenderEvent::Progress(progress));
                Ok(())
            }
            Message::Notice(notice) => {
                self.events.push_back(SenderEvent::Notice(notice));
                Ok(())
            }
            Message::Finish(finish) if self.all_settled() && !self.peer_finished => {
                self.peer_finished = true;
                let report = finish.report.unwrap_or_default();
                self.events.push_back(SenderEvent::Finished(report));
                Ok(())
            }
            Message::Removed(removed) if self.all_settled() && !self.peer_finished => {
                self.events.push_back(SenderEvent::Removed(removed.names));
                Ok(())
            }
            Message::Refused(fault) => {
                self.events.push_back(SenderEvent::Refused(fault));
                Ok(())
            }
            _ => Err(ProtocolError::new("the receiver sent a message that only a sender may")),
        }
    }

    fn file(&mut self, file: FileId) -> Result<(FileId, &mut SendFile), ProtocolError> {
        self.files.get_mut(&file).map(|entry| (file, entry)).ok_or_else(|| {
            let FileId(number) = file;
            ProtocolError::new(format!("the receiver speaks of file {number}, which is not open"))
        })
    }

    fn handle_answer(&mut self, answer: FileAnswer) -> Result<(), ProtocolError> {
        let open_spans = self.open_spans;
        let (file, entry) = self.file(answer.file)?;
        let given_up = entry.phase == Phase::GivenUp && entry.grid.is_none();
        if given_up && matches!(answer.answer, Answer::Need(_)) {
            // We gave the file up before the answer came; `FileSettled` follows. Nothing follows
            // an answer that settles: the receiver has forgotten the file.
            return Ok(());
        }
        if entry.phase != Phase::Offered && !given_up {
            return Err(ProtocolError::new("the receiver answered an offer twice"));
        }
        match answer.answer {
            Answer::Need(need) => {
                let grid = SpanGrid::new(entry.size_bytes, need.span_bytes)?;
                let open_spans = open_spans + u64::from(grid.count());
                if open_spans > limits::SPANS_OPEN_MAX {
                    return Err(ProtocolError::new("files of too many spans were asked for"));
                }
                let durable = SpanSet::from_ranges(grid.count(), &need.durable)?;
                let mut pending = SpanSet::full(grid.count());
                durable.iter().for_each(|span| {
                    pending.remove(span);
                });
                let resumed = durable.bytes(&grid);
                entry.grid = Some(grid);
                entry.phase = Phase::Moving;
                entry.pending = pending;
                entry.earlier = durable.clone();
                let ctime = (need.ctime_s, need.ctime_ns);
                let digest = need.durable_digest;
                let earlier = Resumed { durable: durable.clone(), ctime, digest };
                entry.verified = durable;
                if !need.stored_as.is_empty() {
                    self.events.push_back(SenderEvent::StoredAs { file, name: need.stored_as });
                }
                self.open_spans = open_spans;
                if resumed > 0 {
                    let (bytes, span_bytes) = (resumed, need.span_bytes);
                    let event = SenderEvent::Resumed { file, bytes, span_bytes, earlier };
                    self.events.push_back(event);
                }
                self.advance(file);
            }
            Answer::Skip => self.settle(file, FileOutcome::Skipped),
            Answer::Fault(fault) => self.settle(file, FileOutcome::Failed(fault)),
            Answer::Compare(compare) => self.settle(file, FileOutcome::Compare(compare)),
            Answer::Plan(plan) => self.settle(file, FileOutcome::Planned(plan)),
        }
        Ok(())
    }

    /// Advances a file by its sets of spans: it is ready for streams, or ready to be checked.
    fn advance(&mut self, file: FileId) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        if entry.phase != Phase::Moving {
            return;
        }
        if entry.verified.is_full() && entry.confirmed_with_span {
            entry.phase = Phase::Confirmed;
        } else if entry.verified.is_full() {
            entry.phase = Phase::Checking;
            self.events.push_back(SenderEvent::CheckSource(file));
        } else if !entry.pending.is_empty() {
            self.ready.insert(file);
        }
    }

    fn handle_verified(&mut self, message: &SpansVerified) -> Result<(), ProtocolError> {
        let (file, entry) = self.file(message.file)?;
        let count = entry.grid.map_or(0, |grid| grid.count());
        let spans = SpanSet::from_ranges(count, &message.spans)?;
        // First all of them: a message that is refused changes nothing.
        let is_sent = |span: &SpanIndex| {
            self.streams.values().any(|stream| stream.unacknowledged.contains(&(file, *span)))
        };
        if let Some(unsent) = spans.iter().find(|span| !is_sent(span)) {
            let what = format!("span {} of file {} acknowledged unsent", unsent.0, file.0);
            return Err(ProtocolError::new(what));
        }
        for span in spans.iter() {
            self.streams.values_mut().any(|stream| stream.unacknowledged.remove(&(file, span)));
            let entry = self.files.get_mut(&file).expect("looked up above");
            entry.verified.insert(span);
            self.verified_bytes += entry.grid.map_or(0, |grid| grid.range(span).1);
        }
        self.advance(file);
        Ok(())
    }

    /// Drops the stream of a damaged frame. Nothing is certain of that frame, not even which span
    /// it held: somebody on the path may have written its header. What the stream carried goes out
    /// again once the receiver has said what of it came through.
    fn handle_bad(&mut self, bad: &SpanBad) -> Result<(), ProtocolError> {
        let (file, span, stream) = (bad.file, bad.span, bad.stream);
        let (_, entry) = self.file(bad.file)?;
        // No receiver takes a frame of a file that it has not answered, or of a span that is none.
        let may_have_come = match entry.grid {
            Some(grid) => span.0 < grid.count(),
            None => entry.phase == Phase::GivenUp,
        };
        if !may_have_come {
            return Err(ProtocolError::new("a span called damaged that its file does not have"));
        }
        let Some(state) = self.streams.get(&stream) else {
            return Err(ProtocolError::new("a span called damaged on a stream that is not open"));
        };
        let was_sent = state.unacknowledged.contains(&(file, span));
        self.drop_stream(stream, "a span arrived damaged");
        if !was_sent {
            return Ok(());
        }
        self.events.push_back(SenderEvent::SpanDamaged { file, span, stream });
        let entry = self.files.get_mut(&file).expect("looked up above");
        let retries = entry.retries.entry(span).or_insert(0);
        *retries += 1;
        Ok(())
    }

    fn handle_lost(&mut self, message: &SpansLost) -> Result<(), ProtocolError> {
        let (file, entry) = self.file(message.file)?;
        if entry.phase == Phase::GivenUp {
            // It was, perhaps before the answer came; `FileSettled` follows.
            return Ok(());
        }
        let Some(grid) = entry.grid else {
            return Err(ProtocolError::new("spans called lost before their file was answered"));
        };
        let spans = SpanSet::from_ranges(grid.count(), &message.spans)?;
        if spans.is_empty() || spans.iter().any(|span| !entry.earlier.contains(span)) {
            return Err(ProtocolError::new("spans called lost that were never called durable"));
        }
        for span in spans.iter() {
            entry.earlier.remove(span);
            entry.verified.remove(span);
            entry.pending.insert(span);
        }
        entry.phase = Phase::Moving;
        entry.confirmed_with_span = false;
        self.events.push_back(SenderEvent::Lost { file, bytes: spans.bytes(&grid) });
        self.advance(file);
        Ok(())
    }

    fn handle_stream_closed(&mut self, stream: StreamId) -> Result<(), ProtocolError> {
        let Some(state) = self.streams.remove(&stream) else {
            // The receiver may give a connection up before it has come through to this side.
            return if self.streams_ever.len() < limits::STREAMS_EVER_MAX as usize
                && self.streams_ever.insert(stream)
            {
                Ok(())
            } else {
                Err(ProtocolError::new("a stream closed that was not open"))
            };
        };
        for (file, span) in state.unacknowledged {
            let Some(entry) = self.files.get_mut(&file) else { continue };
            if entry.phase != Phase::Moving {
                continue;
            }
            entry.confirmed_with_span = false;
            let damaged = entry.retries.get(&span).copied().unwrap_or(0);
            if damaged > limits::SPAN_RETRIES_MAX {
                let fault = damaged_fault(damaged, entry.grid.map(|grid| grid.range(span)));
                self.source_failed(file, fault);
            } else {
                entry.pending.insert(span);
                self.advance(file);
            }
        }
        self.events.push_back(SenderEvent::StreamClosed(stream));
        Ok(())
    }

    fn handle_settled(&mut self, settled: FileSettled) -> Result<(), ProtocolError> {
        let (file, entry) = self.file(settled.file)?;
        match settled.fault {
            Some(fault) => self.settle(file, FileOutcome::Failed(fault)),
            // What is durable has been verified: nothing else needs to have said so before.
            None if entry.phase == Phase::Confirmed || entry.confirmed_with_span => {
                self.settle(file, FileOutcome::Done);
            }
            None => {
                return Err(ProtocolError::new("a file called durable before it was confirmed"));
            }
        }
        Ok(())
    }

    fn settle(&mut self, file: FileId, outcome: FileOutcome) {
        let mut source_failed = false;
        if let Some(entry) = self.files.remove(&file) {
            source_failed = entry.phase == Phase::GivenUp;
            self.offer_bytes -= entry.offer_bytes;
            self.open_spans -= entry.grid.map_or(0, |grid| grid.count().into());
        }
        self.ready.remove(&file);
        let of_file = (file, SpanIndex(0))..=(file, SpanIndex(u32::MAX));
        for stream in self.streams.values_mut() {
            while let Some(&sent) = stream.unacknowledged.range(of_file.clone()).next() {
                stream.unacknowledged.remove(&sent);
            }
        }
        self.events.push_back(SenderEvent::Settled { file, outcome, source_failed });
    }
}

fn damaged_fault(times: u32, range: Option<(u64, u64)>) -> Fault {
    let (offset, len) = range.unwrap_or_default();
    let found: String = format!("bytes {offset} to {} arrived damaged {times} times", offset + len);
    Fault::new(FaultCode::DataDamaged, Side::Path, "a span cannot be verified")
        .needs("every span to arrive as its digest says")
        .found(found)
        .hint("check that nothing writes to the source, then memory and network of both hosts")
}
