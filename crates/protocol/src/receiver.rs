//! Receiving side of a transfer, as a state machine.
//!
//! It says which spans may be written by which stream, what is acknowledged, and when a file may be
//! committed.
//!
//! Promises: only a missing span is ever written, by one stream at a time; a span is acknowledged
//! once its digest agreed; a file is committed only when every span is verified and the sender has
//! confirmed the source afterwards. Nothing that the sender says is believed without that.

use crate::{
    Awaited, FileId, Message, ProtocolError, SpanGrid, SpanIndex, SpanSet, StreamId,
    frame::{PackHeader, SpanHeader},
    limits,
    message::{
        self, Compare, Fault, FaultCode, FileAnswer, FileConfirm, FileOffer, FileSettled, Finish,
        Need, Notice, Plan, Progress, Removed, Side, SideReport, SpanBad, SpanRange, SpansLost,
        SpansVerified, StreamClosed, offer_bytes,
    },
    taken_names::{NameHash, Repeats, TakenNames, TargetPath},
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    format,
    string::String,
    vec::Vec,
};

#[cfg(test)]
mod tests;

/// A receiver's answer to an offer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The file is to be sent, in spans of this size, but for those that are durable.
    Need {
        span_bytes: u64,
        durable: SpanSet,
        /// The target's name, where it is not the one offered; else empty.
        stored_as: Vec<u8>,
        earlier: Earlier,
    },
    /// The file that is there is the same.
    Skip,
    Fault(Fault),
    /// The content of the file that is there: the sender says by another offer whether it is the
    /// same.
    Compare(Compare),
    /// The plan of what would be done, in a dry run.
    Plan(Plan),
}

/// Knowledge about the durable spans that an earlier session left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Ctime of the source's inode when the first of these spans came, in seconds and nanoseconds;
    /// zeros when nobody knows.
    pub ctime: (i64, u32),
    /// Digest of what these spans hold (SPEC.md 7.6); `None` when nobody knows.
    pub digest: Option<[u8; limits::DURABLE_DIGEST_BYTES]>,
    /// The spans are being read back: the file is committed only after [`Receiver::read_back`].
    pub is_read_back: bool,
}

/// The use of the payload behind a span header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Write(SpanIndex),
    /// The payload is here already, or its file is given up: read it and throw it away.
    Discard,
}

/// Ways in which the payload behind a permitted header ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanEnd {
    /// The payload is written, and its digest agreed.
    Verified,
    /// The payload is written and its digest agreed; its trailer confirms the file that it is all
    /// of.
    Confirmed,
    /// The payload's digest or trailer did not agree.
    Damaged,
    /// The sender said that it could not read all of it, or the target could not be written.
    Abandoned,
}

/// An event that the receiver tells its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverEvent {
    /// A file was offered: answer with [`Receiver::answer`].
    Offered(FileOffer),
    /// A second file of a name, which was answered with this fault: it is settled.
    NameTaken {
        offer: FileOffer,
        fault: Fault,
    },
    OffersEnd {
        files: u64,
        bytes: u64,
    },
    /// All spans are verified; the sender's confirmation may follow.
    AllVerified(FileId),
    /// A file may be committed: sync and rename, then call [`Receiver::committed`].
    Commit(FileId),
    /// The sender gave the file up, or it cannot be had: keep or remove what arrived. It is
    /// settled.
    GivenUp {
        file: FileId,
        fault: Fault,
    },
    /// The sender wants the stream closed: shut it down, then call [`Receiver::stream_closed`].
    CloseStream {
        stream: StreamId,
        why: String,
    },
    Notice(Notice),
    /// The sender is done and has said so.
    Finished(SideReport),
    Refused(Fault),
}

/// State of a name after its file is settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    InPlace,
    Nothing,
}

#[derive(Debug)]
struct ReceiveFile {
    /// Division of the file into spans; `None` until it was answered.
    grid: Option<SpanGrid>,
    size_bytes: u64,
    offer_bytes: u64,
    /// Hash of the file's name; `None` for a directory.
    name: Option<NameHash>,
    keeps_name: bool,
    missing: SpanSet,
    verified: SpanSet,
    /// The file's spans of an earlier session are being read back.
    is_read_back: bool,
    /// Spans were lost: a confirmation that crossed the message is void.
    has_lost: bool,
    confirmed: bool,
    /// Count of the times that each span arrived damaged.
    damaged: BTreeMap<SpanIndex, u32>,
}

#[derive(Debug, Default)]
struct ReceiveStream {
    /// Spans that were permitted and have not ended. More than one where the engine writes behind.
    writing: BTreeSet<(FileId, SpanIndex)>,
    frames: u64,
}

#[derive(Debug)]
pub struct Receiver {
    files: BTreeMap<FileId, ReceiveFile>,
    streams: BTreeMap<StreamId, ReceiveStream>,
    /// Count of the files that are confirmed.
    confirmed: usize,
    /// Numbers of all streams ever seen: none is used twice.
    streams_ever: BTreeSet<StreamId>,
    /// Spans that are verified, and of which the sender was not told yet.
    untold: BTreeMap<FileId, Vec<SpanIndex>>,
    next_file: u32,
    names: TakenNames,
    /// Memory that the offers of unsettled files take, in bytes.
    offer_bytes: u64,
    offers_max: u32,
    offer_bytes_max: u64,
    offers_ended: bool,
    finished: bool,
    peer_finished: bool,
    outbox: VecDeque<Message>,
    events: VecDeque<ReceiverEvent>,
}

impl Receiver {
    /// Makes a receiver that lets the sender keep at most `offers_max` files unsettled, and offer
    /// no more once their memory ([`offer_bytes`]) has reached `offer_bytes_max`.
    #[must_use]
    pub fn new(offers_max: u32, offer_bytes_max: u64) -> Self {
        Self {
            files: BTreeMap::new(),
            streams: BTreeMap::new(),
            confirmed: 0,
            streams_ever: BTreeSet::new(),
            untold: BTreeMap::new(),
            next_file: 0,
            names: TakenNames::default(),
            offer_bytes: 0,
            offers_max: offers_max.clamp(1, limits::OFFERS_MAX),
            offer_bytes_max: offer_bytes_max.min(limits::OFFER_BYTES_MAX),
            offers_ended: false,
            finished: false,
            peer_finished: false,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Says what the path of the target stands for, and whether names come again. Unless this is
    /// called, the path is a directory, and no name does.
    #[must_use]
    pub fn naming(mut self, path: TargetPath, repeats: Repeats) -> Self {
        (self.names.path, self.names.repeats) = (path, repeats);
        self
    }

    /// Answers an offer. A `durable` set of more than [`limits::RANGES_MAX`] runs does not fit in
    /// a message: the spans of its last runs are asked for again.
    ///
    /// # Errors
    /// If the file would have too many spans at this size, `durable` is a set of a file with
    /// another number of spans, or the file was answered before. Nothing is sent then.
    pub fn answer(&mut self, file: FileId, answer: Answer) -> Result<(), ProtocolError> {
        let Some(entry) = self.files.get_mut(&file) else { return Ok(()) };
        if entry.grid.is_some() {
            return Err(ProtocolError::new("a file was answered twice"));
        }
        let reply = match answer {
            Answer::Need { span_bytes, durable, stored_as, earlier } => {
                let grid = SpanGrid::new(entry.size_bytes, span_bytes)?;
                if durable.file_spans() != grid.count() {
                    return Err(ProtocolError::new("a set of spans of another file"));
                }
                let mut ranges = durable.to_ranges();
                // Of fewer spans it is another digest, and so none.
                let digest = earlier.digest.filter(|_| ranges.len() <= limits::RANGES_MAX);
                ranges.truncate(limits::RANGES_MAX);
                let durable = SpanSet::from_ranges(grid.count(), &ranges)?;
                entry.grid = Some(grid);
                entry.missing = SpanSet::full(grid.count());
                durable.iter().for_each(|span| {
                    entry.missing.remove(span);
                });
                entry.is_read_back = earlier.is_read_back;
                let (ctime_s, ctime_ns) = earlier.ctime;
                let need = Need {
                    span_bytes,
                    durable: ranges,
                    stored_as,
                    ctime_s,
                    ctime_ns,
                    durable_digest: digest,
                };
                entry.verified = durable;
                if entry.verified.is_full() {
                    self.events.push_back(ReceiverEvent::AllVerified(file));
                }
                message::Answer::Need(need)
            }
            Answer::Skip => {
                self.forget(file, Outcome::InPlace);
                message::Answer::Skip
            }
            Answer::Fault(fault) => {
                self.forget(file, Outcome::Nothing);
                message::Answer::Fault(fault)
            }
            Answer::Compare(compare) => {
                self.forget(file, Outcome::Nothing);
                message::Answer::Compare(compare)
            }
            Answer::Plan(plan) => {
                self.forget(file, Outcome::InPlace);
                message::Answer::Plan(plan)
            }
        };
        let answer = FileAnswer { file, answer: reply };
        self.outbox.push_back(Message::FileAnswer(answer));
        Ok(())
    }

    /// Whether the session has put a file in place under this name, and knows it still.
    #[must_use]
    pub fn has_in_place(&self, name: &[u8]) -> bool {
        let is_open = |hash| self.files.values().any(|file| file.name == Some(hash));
        self.names.taken(name).is_some_and(|hash| !is_open(hash))
    }

    /// Takes a data connection that passed its preface.
    ///
    /// # Errors
    /// If its number is used already, the sender has dropped it before it came, or there are too
    /// many: shut the connection down, the session goes on.
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
        self.streams.insert(stream, ReceiveStream::default());
        Ok(())
    }

    /// Takes the header of a pack that arrived on a stream; [`Self::span_starts`] follows for each
    /// span of it.
    ///
    /// # Errors
    /// If the header does not belong there: the stream is to be closed.
    pub fn pack_starts(&self, stream: StreamId, pack: &PackHeader) -> Result<(), ProtocolError> {
        let state = self.streams.get(&stream);
        let state = state.ok_or_else(|| ProtocolError::new("a frame on a stream that is not open"));
        pack.check(stream, state?.frames)
    }

    /// Takes a span header that arrived on a stream, and says what to do with the payload.
    ///
    /// # Errors
    /// If the header does not belong there: the stream is to be closed.
    pub fn span_starts(
        &mut self,
        stream: StreamId,
        header: &SpanHeader,
    ) -> Result<Permit, ProtocolError> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Err(ProtocolError::new("a frame on a stream that is not open"));
        };
        if header.stream != stream || header.sequence != state.frames {
            return Err(ProtocolError::new("a frame of another stream or out of its order"));
        }
        if header.len_bytes == 0 || header.len_bytes > limits::SPAN_BYTES_MAX {
            return Err(ProtocolError::new("a span of no bytes or of more than 1 GiB"));
        }
        state.frames += 1;
        let Some(entry) = self.files.get_mut(&header.file) else {
            // A file that was settled while its spans were on their way.
            return if header.file.0 < self.next_file {
                Ok(Permit::Discard)
            } else {
                Err(ProtocolError::new("a span of a file that was never offered"))
            };
        };
        let grid = entry.grid.ok_or_else(|| ProtocolError::new("a span before its answer"))?;
        let span = grid
            .find(header.offset_bytes, header.len_bytes)
            .ok_or_else(|| ProtocolError::new("a span that is none of its file's"))?;
        if entry.missing.remove(span) {
            state.writing.insert((header.file, span));
            return Ok(Permit::Write(span));
        }
        if entry.verified.contains(span) {
            return Ok(Permit::Discard);
        }
        Err(ProtocolError::new("a span that another stream is bringing"))
    }

    /// Takes the end of a payload that [`Permit::Write`] allowed.
    pub fn span_ended(&mut self, stream: StreamId, file: FileId, span: SpanIndex, end: SpanEnd) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if !state.writing.remove(&(file, span)) {
            return;
        }
        let Some(entry) = self.files.get_mut(&file) else { return };
        match end {
            SpanEnd::Verified | SpanEnd::Confirmed => {
                entry.verified.insert(span);
                self.untold.entry(file).or_default().push(span);
                if entry.verified.is_full() {
                    self.events.push_back(ReceiverEvent::AllVerified(file));
                }
                let one_span = entry.grid.is_some_and(|grid| grid.count() == 1);
                if end == SpanEnd::Confirmed && one_span && !entry.confirmed {
                    self.confirm(file);
                }
            }
            SpanEnd::Damaged => {
                entry.missing.insert(span);
                let times = entry.damaged.entry(span).or_insert(0);
                *times += 1;
                // A sender gives the file up before that.
                if *times > limits::SPAN_RETRIES_MAX + 1 {
                    let what = "a span arrives damaged again and again";
                    let fault = Fault::new(FaultCode::DataDamaged, Side::Path, what);
                    return self.give_up(file, fault);
                }
                let bad = SpanBad { file, span, stream };
                self.outbox.push_back(Message::SpanBad(bad));
            }
            SpanEnd::Abandoned => {
                entry.missing.insert(span);
            }
        }
    }

    /// Takes the end of a stream's thread: nothing of the stream is being written any more.
    pub fn stream_closed(&mut self, stream: StreamId) {
        let Some(state) = self.streams.remove(&stream) else { return };
        for (file, span) in state.writing {
            if let Some(entry) = self.files.get_mut(&file) {
                entry.missing.insert(span);
            }
        }
        self.tell_verified();
        self.outbox.push_back(Message::StreamClosed(StreamClosed { stream }));
    }

    /// Tells the machine that what an earlier session left of the file was read back; `lost` is not
    /// as it was journaled, and is asked for again.
    pub fn read_back(&mut self, file: FileId, lost: &SpanSet) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        if !core::mem::take(&mut entry.is_read_back) {
            return;
        }
        let mut again = SpanSet::new(entry.verified.file_spans());
        for span in lost.iter() {
            if entry.verified.remove(span) {
                entry.missing.insert(span);
                again.insert(span);
            }
        }
        if again.is_empty() {
            if entry.confirmed {
                self.confirm(file);
            }
            return;
        }
        (entry.confirmed, entry.has_lost) = (false, true);
        for spans in again.to_ranges().chunks(limits::RANGES_MAX) {
            let lost = SpansLost { file, spans: spans.to_vec() };
            self.outbox.push_back(Message::SpansLost(lost));
        }
    }

    /// Settles a file that the target cannot take.
    pub fn file_failed(&mut self, file: FileId, fault: Fault) {
        if self.forget(file, Outcome::Nothing) {
            let settled = FileSettled { file, fault: Some(fault) };
            self.outbox.push_back(Message::FileSettled(settled));
        }
    }

    /// Settles a file by the result of its commit: the answer to [`ReceiverEvent::Commit`].
    pub fn committed(&mut self, file: FileId, result: Result<(), Fault>) {
        let outcome = if result.is_ok() { Outcome::InPlace } else { Outcome::Nothing };
        if self.forget(file, outcome) {
            let settled = FileSettled { file, fault: result.err() };
            self.outbox.push_back(Message::FileSettled(settled));
        }
    }

    /// Tells the sender of this side's progress.
    pub fn progress(&mut self, progress: Progress) {
        self.outbox.push_back(Message::Progress(progress));
    }

    /// Whether everything is settled and nothing more comes: the time for [`Self::finish`].
    #[must_use]
    pub fn may_finish(&self) -> bool {
        self.offers_ended && self.files.is_empty() && !self.finished
    }

    /// Tells the sender which names were removed because they were not offered. No other message is
    /// on its way then.
    ///
    /// # Panics
    /// If [`Self::may_finish`] is false.
    pub fn removed(&mut self, names: Vec<Vec<u8>>) {
        assert!(self.may_finish(), "ask may_finish first");
        self.outbox.push_back(Message::Removed(Removed { names }));
    }

    /// Whether every file is there and confirmed, or settled, and no other is offered: all that is
    /// left is to commit.
    #[must_use]
    pub fn is_all_confirmed(&self) -> bool {
        self.offers_ended && self.confirmed == self.files.len()
    }

    /// Says goodbye with this side's report.
    pub fn finish(&mut self, report: SideReport) {
        if !self.finished {
            self.finished = true;
            self.outbox.push_back(Message::Finish(Finish { report: Some(report) }));
        }
    }

    /// The step that is due from the sender, where neither a stream nor this side has anything to
    /// do.
    #[must_use]
    pub fn awaits(&self) -> Option<Awaited> {
        if self.files.is_empty() {
            let last = if self.offers_ended { Awaited::Goodbye } else { Awaited::Offer };
            return (!self.peer_finished).then_some(last);
        }
        let is_due =
            |file: &ReceiveFile| file.grid.is_some() && file.verified.is_full() && !file.confirmed;
        self.files.values().all(is_due).then_some(Awaited::Confirmation)
    }

    /// Whether spans of any file are to come on a stream. Those of files without bytes, and of
    /// files that only wait to be confirmed or committed, are not.
    #[must_use]
    pub fn lacks_spans(&self) -> bool {
        self.files.values().any(|file| file.grid.is_some() && !file.verified.is_full())
    }

    /// Whether any offered file is not settled yet.
    #[must_use]
    pub fn has_open_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Tells the other side's user of an event, once.
    pub fn notice(&mut self, notice: Notice) {
        self.outbox.push_back(Message::Notice(notice));
    }

    /// Whether a message or an event is to be handled at once. Acknowledgements alone can wait for
    /// others.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        !self.events.is_empty() || !self.outbox.is_empty()
    }

    pub fn poll_message(&mut self) -> Option<Message> {
        if self.outbox.is_empty() {
            self.tell_verified();
        }
        self.outbox.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Turns what is verified and untold into messages.
    fn tell_verified(&mut self) {
        for (file, mut untold) in core::mem::take(&mut self.untold) {
            untold.sort_unstable();
            let mut spans: Vec<SpanRange> = Vec::new();
            for span in untold {
                match spans.last_mut() {
                    Some(last) if last.first.0 + last.count == span.0 => last.count += 1,
                    _ => spans.push(SpanRange { first: span, count: 1 }),
                }
            }
            for spans in spans.chunks(limits::RANGES_MAX) {
                let verified = SpansVerified { file, spans: spans.to_vec() };
                self.outbox.push_back(Message::SpansVerified(verified));
            }
        }
    }

    /// Forgets a file that is settled; false when it was forgotten before.
    fn forget(&mut self, file: FileId, outcome: Outcome) -> bool {
        self.untold.remove(&file);
        let entry = self.files.remove(&file);
        if let Some(ReceiveFile { name: Some(name), keeps_name, .. }) = entry
            && (outcome == Outcome::Nothing || !keeps_name)
        {
            self.names.release(name);
        }
        let is_counted = |entry: &ReceiveFile| entry.confirmed && !entry.is_read_back;
        self.confirmed -= usize::from(entry.as_ref().is_some_and(is_counted));
        self.offer_bytes -= entry.as_ref().map_or(0, |entry| entry.offer_bytes);
        entry.is_some()
    }

    /// Takes a message of the sender.
    ///
    /// # Errors
    /// If the sender breaks a limit or an order.
    pub fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        match message {
            Message::FileOffer(offer) => self.handle_offer(offer),
            Message::OffersEnd(end) if !self.offers_ended => {
                self.offers_ended = true;
                let event = ReceiverEvent::OffersEnd { files: end.files, bytes: end.bytes };
                self.events.push_back(event);
                Ok(())
            }
            Message::FileConfirm(confirm) => self.handle_confirm(confirm),
            Message::StreamDrop(drop) => {
                let stream = drop.stream;
                if self.streams.contains_key(&stream) {
                    self.events.push_back(ReceiverEvent::CloseStream { stream, why: drop.why });
                } else if self.streams_ever.len() < limits::STREAMS_EVER_MAX as usize
                    && self.streams_ever.insert(stream)
                {
                    // It never came through, and now it never will.
                    let closed = StreamClosed { stream };
                    self.outbox.push_back(Message::StreamClosed(closed));
                }
                // Otherwise it was closed from this side and the answer is on its way.
                Ok(())
            }
            Message::Notice(notice) => {
                self.events.push_back(ReceiverEvent::Notice(notice));
                Ok(())
            }
            Message::Finish(finish) if !self.peer_finished => {
                if !self.offers_ended || !self.files.is_empty() {
                    return Err(ProtocolError::new("the sender finished with files unsettled"));
                }
                self.peer_finished = true;
                let report = finish.report.unwrap_or_default();
                self.events.push_back(ReceiverEvent::Finished(report));
                Ok(())
            }
            Message::Refused(fault) => {
                self.events.push_back(ReceiverEvent::Refused(fault));
                Ok(())
            }
            _ => Err(ProtocolError::new("the sender sent a message that only a receiver may")),
        }
    }

    fn handle_offer(&mut self, offer: FileOffer) -> Result<(), ProtocolError> {
        if self.offers_ended || offer.file.0 != self.next_file || offer.file.0 >= limits::FILES_MAX
        {
            return Err(ProtocolError::new("an offer out of order"));
        }
        if self.files.len() >= self.offers_max as usize {
            return Err(ProtocolError::new(format!("more than {} open offers", self.offers_max)));
        }
        if self.offer_bytes >= self.offer_bytes_max && !self.files.is_empty() {
            let what = format!("more than {} bytes of open offers", self.offer_bytes_max);
            return Err(ProtocolError::new(what));
        }
        self.next_file += 1;
        let name = match self.names.take(&offer) {
            Ok(name) => name,
            Err(fault) => {
                let reply = message::Answer::Fault(fault.clone());
                let answer = FileAnswer { file: offer.file, answer: reply };
                self.outbox.push_back(Message::FileAnswer(answer));
                self.events.push_back(ReceiverEvent::NameTaken { offer, fault });
                return Ok(());
            }
        };
        let entry = ReceiveFile {
            grid: None,
            size_bytes: offer.size_bytes,
            offer_bytes: offer_bytes(&offer),
            name,
            keeps_name: self.names.keeps(&offer),
            missing: SpanSet::default(),
            verified: SpanSet::default(),
            is_read_back: false,
            has_lost: false,
            confirmed: false,
            damaged: BTreeMap::new(),
        };
        self.offer_bytes += entry.offer_bytes;
        self.files.insert(offer.file, entry);
        self.events.push_back(ReceiverEvent::Offered(offer));
        Ok(())
    }

    /// Confirms a file by the sender's last word: it is committed, once it was read back.
    fn confirm(&mut self, file: FileId) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        entry.confirmed = true;
        if !entry.is_read_back {
            self.confirmed += 1;
            self.events.push_back(ReceiverEvent::Commit(file));
        }
    }

    fn give_up(&mut self, file: FileId, fault: Fault) {
        self.forget(file, Outcome::Nothing);
        let settled = FileSettled { file, fault: Some(fault.clone()) };
        self.outbox.push_back(Message::FileSettled(settled));
        self.events.push_back(ReceiverEvent::GivenUp { file, fault });
    }

    fn handle_confirm(&mut self, confirm: FileConfirm) -> Result<(), ProtocolError> {
        let file = confirm.file;
        let Some(entry) = self.files.get_mut(&file) else {
            // Settled by this side while the confirmation was on its way.
            return if confirm.file.0 < self.next_file {
                Ok(())
            } else {
                Err(ProtocolError::new("a confirmation of a file that was never offered"))
            };
        };
        if entry.confirmed {
            return Err(ProtocolError::new("a file was confirmed twice"));
        }
        if let Some(fault) = confirm.fault {
            self.give_up(file, fault);
            return Ok(());
        }
        if entry.has_lost && !entry.verified.is_full() {
            // It was said before the sender heard which spans are lost.
            return Ok(());
        }
        if entry.grid.is_none() || !entry.verified.is_full() {
            return Err(ProtocolError::new("a confirmation before every span was acknowledged"));
        }
        self.confirm(file);
        Ok(())
    }
}
