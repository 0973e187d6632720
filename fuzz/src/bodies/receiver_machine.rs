//! Run of the receiver against a sender that says anything, with a model of what may be written.

use super::{
    numbers,
    transcript::{Transcript, receiver_event, receiver_state},
};
use arbitrary::Arbitrary;
use haul_protocol::{
    FileId, Message, ProtocolError, Receiver, ReceiverEvent, SpanGrid, SpanIndex, StreamId,
    frame::SpanHeader,
    limits, message,
    receiver::{Answer, Earlier, Permit, SpanEnd},
};
use std::collections::{BTreeMap, BTreeSet};

/// The most offers open at a time in these runs.
pub const OFFERS_MAX: u32 = 4;

/// Operations: what the owner does, what arrives on streams, and what the sender says.
#[derive(Arbitrary, Clone, Debug)]
pub enum ReceiverOperation {
    Need {
        file: u8,
        span_bytes: u8,
        durable: u8,
    },
    Skip(u8),
    AnswerFault(u8),
    OpenStream(u8),
    /// A header that may be wrong in any field; `skew` is added to the right sequence.
    Header {
        stream: u8,
        named: u8,
        file: u8,
        span: u8,
        len: u8,
        skew: u8,
    },
    /// The header of the nth missing span on a stream, all fields right.
    HonestHeader {
        stream: u8,
        nth: u8,
    },
    /// The nth span being written ends: 0 damaged, 1 abandoned, up to 99 confirmed, otherwise
    /// verified.
    SpanEnded {
        nth: u8,
        end: u8,
    },
    CloseStream(u8),
    FileFailed(u8),
    Committed {
        file: u8,
        is_durable: bool,
    },
    Progress,
    Finish,
    Offer {
        skew: u8,
        size: u8,
    },
    OffersEnd,
    Confirm {
        file: u8,
        is_whole: bool,
    },
    ConfirmTold(u8),
    /// The nth file of which an earlier session left something was read back: the spans of these
    /// bits are lost.
    ReadBack {
        nth: u8,
        lost: u8,
    },
    Drop(u8),
    Notice,
    PeerFinish,
    Refused,
    Stray(u8),
}

/// Model of what may be written, and of what the sender was told.
#[derive(Default)]
pub(super) struct Model {
    sizes: Vec<u64>,
    /// Names of the files, by number.
    names: Vec<Vec<u8>>,
    /// Names with a file in place, or on its way there.
    held: BTreeSet<Vec<u8>>,
    grids: BTreeMap<FileId, SpanGrid>,
    settled: BTreeSet<FileId>,
    streams: BTreeMap<StreamId, u64>,
    streams_ever: BTreeSet<StreamId>,
    writing: BTreeSet<(FileId, SpanIndex, StreamId)>,
    verified: BTreeSet<(FileId, SpanIndex)>,
    told: BTreeSet<(FileId, SpanIndex)>,
    /// Files that are read back, and files that were and lost something.
    read_back: BTreeSet<FileId>,
    have_lost: BTreeSet<FileId>,
    /// Files that the sender confirmed while they were read back.
    waiting: BTreeSet<FileId>,
    confirmed: BTreeSet<FileId>,
    offers_ended: bool,
    transcript: Transcript,
}

/// Runs the operations until the machine calls the sender a liar.
pub fn run(operations: &[ReceiverOperation]) {
    drop(play(operations, Transcript::default()));
}

/// Runs the operations, and returns what the machine said.
pub fn transcript(operations: &[ReceiverOperation]) -> String {
    play(operations, Transcript::kept()).into_text()
}

fn play(operations: &[ReceiverOperation], transcript: Transcript) -> Transcript {
    let mut receiver = Receiver::new(OFFERS_MAX, limits::OFFER_BYTES_MAX);
    let mut model = Model { transcript, ..Model::default() };
    for operation in operations {
        super::count_step();
        let result = apply(&mut receiver, &mut model, operation);
        model.transcript.result("does", &result);
        model.look_at_output(&mut receiver);
        if result.is_err() {
            break;
        }
    }
    model.transcript
}

pub(super) fn apply(
    receiver: &mut Receiver,
    model: &mut Model,
    operation: &ReceiverOperation,
) -> Result<(), ProtocolError> {
    use ReceiverOperation as Op;
    match operation {
        Op::Need { file, span_bytes, durable } => {
            model.need(receiver, numbers::file(*file), numbers::span_bytes(*span_bytes), *durable);
        }
        Op::Skip(file) => {
            let answer = match file >> 6 {
                2 => Answer::Compare(message::Compare { blake3: [*file; 32] }),
                3 => Answer::Plan(message::Plan::default()),
                _ => Answer::Skip,
            };
            let result = receiver.answer(numbers::file(*file), answer);
            model.transcript.result("answers", &result);
        }
        Op::AnswerFault(file) => {
            let answer = Answer::Fault(numbers::fault(1));
            let result = receiver.answer(numbers::file(*file), answer);
            model.transcript.result("answers", &result);
        }
        Op::OpenStream(stream) => model.open(receiver, numbers::stream(*stream)),
        Op::Header { stream, named, file, span, len, skew } => {
            let stream = numbers::stream(*stream);
            let named = if *named < 200 { stream } else { numbers::stream(*named) };
            let header = model.header(stream, named, (*file, *span), *len, *skew);
            model.start(receiver, stream, &header);
        }
        Op::HonestHeader { stream, nth } => {
            model.start_honestly(receiver, numbers::stream(*stream), *nth);
        }
        Op::SpanEnded { nth, end } => model.end_span(receiver, *nth, *end),
        Op::ReadBack { nth, lost } => model.read_back(receiver, *nth, *lost),
        Op::CloseStream(stream) => {
            let stream = numbers::stream(*stream);
            receiver.stream_closed(stream);
            model.streams.remove(&stream);
            model.writing.retain(|write| write.2 != stream);
        }
        Op::FileFailed(file) => receiver.file_failed(numbers::file(*file), numbers::fault(2)),
        Op::Committed { file, is_durable } => {
            let file = numbers::file(*file);
            // An owner commits what it was asked to commit.
            if model.confirmed.contains(&file) {
                let result = if *is_durable { Ok(()) } else { Err(numbers::fault(0)) };
                receiver.committed(file, result);
            }
        }
        Op::Progress => receiver.progress(message::Progress::default()),
        Op::Finish => receiver.finish(message::SideReport::default()),
        said => {
            if let Some(message) = message_of(model, said) {
                return model.hear(receiver, message);
            }
        }
    }
    Ok(())
}

/// Makes the message that the sender says in an operation.
fn message_of(model: &Model, operation: &ReceiverOperation) -> Option<Message> {
    use ReceiverOperation as Op;
    Some(match operation {
        Op::Offer { skew, size } => Message::FileOffer(message::FileOffer {
            file: FileId(model.sizes.len() as u32 + if *skew < 250 { 0 } else { u32::from(*skew) }),
            // Now and then the name of another file.
            name: vec![if *skew < 128 { model.sizes.len() as u8 } else { *skew & 3 }],
            size_bytes: numbers::size_bytes(*size),
            ..Default::default()
        }),
        Op::OffersEnd => Message::OffersEnd(message::OffersEnd::default()),
        Op::Confirm { file, is_whole } => Message::FileConfirm(message::FileConfirm {
            file: numbers::file(*file),
            fault: (!is_whole).then(|| numbers::fault(1)),
        }),
        Op::ConfirmTold(nth) => {
            let files = model.grids.keys();
            let whole: Vec<_> = files
                .filter(|file| model.is_told_whole(**file) && !model.is_confirmed(**file))
                .collect();
            let &&file = whole.get(usize::from(*nth) % whole.len().max(1))?;
            Message::FileConfirm(message::FileConfirm { file, fault: None })
        }
        Op::Drop(stream) => {
            let why = String::new();
            Message::StreamDrop(message::StreamDrop { stream: numbers::stream(*stream), why })
        }
        Op::Notice => Message::Notice(message::Notice::default()),
        Op::PeerFinish => Message::Finish(message::Finish::default()),
        Op::Refused => Message::Refused(numbers::fault(0)),
        Op::Stray(which) => stray(*which),
        _ => return None,
    })
}

/// Makes a message that a sender never sends here.
fn stray(which: u8) -> Message {
    match which % 6 {
        0 => Message::FileAnswer(message::FileAnswer {
            file: FileId(0),
            answer: message::Answer::Skip,
        }),
        1 => Message::SpansVerified(message::SpansVerified::default()),
        2 => Message::FileSettled(message::FileSettled::default()),
        3 => Message::StreamClosed(message::StreamClosed::default()),
        4 => Message::Opened(message::Opened::default()),
        _ => Message::Pong(message::Ping::default()),
    }
}

/// The name that an offer takes: that of a range has the begin of the range behind it.
fn taken_by(offer: &message::FileOffer) -> Vec<u8> {
    let begin = offer.range.map(|range| range.offset_bytes.to_be_bytes());
    let begin = begin.iter().flat_map(|begin| [0].into_iter().chain(*begin));
    offer.name.iter().copied().chain(begin).collect()
}

impl Model {
    /// Number of the next file that is offered.
    pub(super) fn next_file(&self) -> FileId {
        FileId(self.sizes.len() as u32)
    }

    fn is_open(&self, file: FileId) -> bool {
        (file.0 as usize) < self.sizes.len() && !self.settled.contains(&file)
    }

    fn need(&mut self, receiver: &mut Receiver, file: FileId, span_bytes: u64, bits: u8) {
        let size = self.sizes.get(file.0 as usize).copied().unwrap_or_default();
        let grid = SpanGrid::new(size, span_bytes);
        // A third of the runs bring a set that belongs to another file.
        let count = grid.as_ref().map_or(0, SpanGrid::count) + u32::from(bits % 3 == 2);
        let durable = numbers::set(count, bits);
        let earlier = Earlier { is_read_back: bits & 8 == 8, ..Earlier::default() };
        let is_read_back = earlier.is_read_back;
        let stored_as = Vec::new();
        let answer = Answer::Need { span_bytes, durable: durable.clone(), stored_as, earlier };
        let result = receiver.answer(file, answer);
        self.transcript.result("answers", &result);
        if !self.is_open(file) {
            return;
        }
        let fits = bits % 3 != 2 && !self.grids.contains_key(&file);
        match grid {
            Ok(grid) if fits => {
                assert_eq!(result, Ok(()));
                self.grids.insert(file, grid);
                if is_read_back {
                    self.read_back.insert(file);
                }
                self.told.extend(durable.iter().map(|span| (file, span)));
                self.verified.extend(durable.iter().map(|span| (file, span)));
            }
            _ => assert!(result.is_err(), "an answer that cannot be"),
        }
    }

    fn read_back(&mut self, receiver: &mut Receiver, nth: u8, lost: u8) {
        let nth = usize::from(nth) % self.read_back.len().max(1);
        let Some(&file) = self.read_back.iter().nth(nth) else { return };
        self.read_back.remove(&file);
        let lost = numbers::set(self.grids[&file].count(), lost);
        let before = self.verified.len();
        if self.is_open(file) {
            for span in lost.iter() {
                self.verified.remove(&(file, span));
                self.told.remove(&(file, span));
            }
        }
        if self.verified.len() < before {
            self.have_lost.insert(file);
            self.waiting.remove(&file);
        }
        receiver.read_back(file, &lost);
    }

    fn open(&mut self, receiver: &mut Receiver, stream: StreamId) {
        let result = receiver.stream_opened(stream);
        self.transcript.result("opens", &result);
        assert_eq!(result.is_ok(), self.streams_ever.insert(stream), "numbers are used once");
        if result.is_ok() {
            self.streams.insert(stream, 0);
        }
    }

    fn header(
        &self,
        stream: StreamId,
        named: StreamId,
        (file, span): (u8, u8),
        len: u8,
        skew: u8,
    ) -> SpanHeader {
        let file = numbers::file(file);
        let range = |grid: &SpanGrid| grid.range(numbers::span(span));
        let (offset_bytes, right) = self.grids.get(&file).map_or((0, 1), range);
        let len_bytes = match len {
            255 => 0,
            254 => limits::SPAN_BYTES_MAX + 1,
            253 => right + 1,
            _ => right,
        };
        let frames = self.streams.get(&stream).copied().unwrap_or_default();
        let sequence = frames + u64::from(skew.saturating_sub(240));
        SpanHeader { file, offset_bytes, len_bytes, sequence, stream: named }
    }

    fn start_honestly(&mut self, receiver: &mut Receiver, stream: StreamId, nth: u8) {
        let Some(&sequence) = self.streams.get(&stream) else { return };
        let open = self.grids.iter().filter(|(file, _)| self.is_open(**file));
        let spans = open.flat_map(|(file, grid)| {
            (0..grid.count().min(64)).map(move |span| (*file, *grid, SpanIndex(span)))
        });
        let missing: Vec<_> =
            spans.filter(|&(file, _, span)| self.is_missing(file, span)).collect();
        if missing.is_empty() {
            return;
        }
        let (file, grid, span) = missing[usize::from(nth) % missing.len()];
        let (offset_bytes, len_bytes) = grid.range(span);
        let header = SpanHeader { file, offset_bytes, len_bytes, sequence, stream };
        let permit = self.start(receiver, stream, &header);
        assert_eq!(permit, Some(Permit::Write(span)), "a missing span is wanted");
    }

    fn is_missing(&self, file: FileId, span: SpanIndex) -> bool {
        let is_written = self.writing.iter().any(|write| (write.0, write.1) == (file, span));
        !is_written && !self.verified.contains(&(file, span))
    }

    fn start(
        &mut self,
        receiver: &mut Receiver,
        stream: StreamId,
        header: &SpanHeader,
    ) -> Option<Permit> {
        let expected = self.streams.get(&stream).copied();
        let result = receiver.span_starts(stream, header);
        self.transcript.result("starts", &result);
        if let Ok(permit) = &result {
            self.transcript.permit(permit);
        }
        let in_order = expected == Some(header.sequence) && header.stream == stream;
        let length_is_wrong = header.len_bytes == 0 || header.len_bytes > limits::SPAN_BYTES_MAX;
        assert!(result.is_err() || (in_order && !length_is_wrong), "believed: {header:?}");
        if in_order && !length_is_wrong {
            self.streams.insert(stream, header.sequence + 1);
        }
        if let Ok(Permit::Write(span)) = result {
            assert!(self.is_open(header.file), "a settled file is written");
            assert!(self.is_missing(header.file, span), "{span:?} is written twice");
            let grid = self.grids[&header.file];
            assert_eq!(grid.range(span), (header.offset_bytes, header.len_bytes));
            self.writing.insert((header.file, span, stream));
        }
        if let Ok(Permit::Discard) = result
            && self.is_open(header.file)
        {
            let span = self.grids[&header.file].find(header.offset_bytes, header.len_bytes);
            let is_there = span.is_some_and(|span| self.verified.contains(&(header.file, span)));
            assert!(is_there, "thrown away, and brought by nobody: {header:?}");
        }
        result.ok()
    }

    fn end_span(&mut self, receiver: &mut Receiver, nth: u8, end: u8) {
        let nth = usize::from(nth) % self.writing.len().max(1);
        let Some(&(file, span, stream)) = self.writing.iter().nth(nth) else { return };
        self.writing.remove(&(file, span, stream));
        let end = match end {
            0 => SpanEnd::Damaged,
            1 => SpanEnd::Abandoned,
            2..100 => SpanEnd::Confirmed,
            _ => SpanEnd::Verified,
        };
        let is_good = matches!(end, SpanEnd::Verified | SpanEnd::Confirmed);
        if is_good && self.is_open(file) {
            self.verified.insert((file, span));
        }
        receiver.span_ended(stream, file, span, end);
        // What the stream did not bring is no business of the machine's.
        receiver.span_ended(stream, file, span, SpanEnd::Verified);
    }

    /// Gives the machine a message; a message that must be refused is refused.
    pub(super) fn hear(
        &mut self,
        receiver: &mut Receiver,
        message: Message,
    ) -> Result<(), ProtocolError> {
        let is_lie = self.is_lie(&message);
        let result = receiver.handle(message.clone());
        assert!(!(is_lie && result.is_ok()), "believed: {message:?}");
        match message {
            Message::FileOffer(offer) if result.is_ok() => {
                self.sizes.push(offer.size_bytes);
                self.names.push(taken_by(&offer));
            }
            Message::OffersEnd(_) => self.offers_ended = true,
            Message::FileConfirm(message::FileConfirm { file, fault: None })
                if result.is_ok() && self.read_back.contains(&file) && self.is_open(file) =>
            {
                self.waiting.insert(file);
            }
            Message::StreamDrop(drop) if result.is_ok() => {
                self.streams_ever.insert(drop.stream);
            }
            _ => {}
        }
        result
    }

    /// Whether no honest sender can have sent a message after what it was told.
    fn is_lie(&self, message: &Message) -> bool {
        match message {
            Message::FileOffer(offer) => {
                let open = self.sizes.len() - self.settled.len();
                offer.file.0 as usize != self.sizes.len()
                    || self.offers_ended
                    || open >= OFFERS_MAX as usize
            }
            Message::OffersEnd(_) => self.offers_ended,
            Message::FileConfirm(confirm) => {
                let file = confirm.file;
                let never_offered = confirm.file.0 as usize >= self.sizes.len();
                let may_cross = self.have_lost.contains(&file);
                let too_early = confirm.fault.is_none() && !self.is_told_whole(file) && !may_cross;
                let was_confirmed = self.is_confirmed(file);
                never_offered || (self.is_open(file) && (too_early || was_confirmed))
            }
            Message::Finish(_) => !self.offers_ended || self.settled.len() < self.sizes.len(),
            Message::StreamDrop(_) | Message::Notice(_) | Message::Refused(_) => false,
            _ => true,
        }
    }

    fn is_confirmed(&self, file: FileId) -> bool {
        self.confirmed.contains(&file) || self.waiting.contains(&file)
    }

    /// Whether the sender was told that every span of a file is verified.
    fn is_told_whole(&self, file: FileId) -> bool {
        let Some(grid) = self.grids.get(&file) else { return false };
        let told = self.told.iter().filter(|(of, _)| *of == file).count();
        told == grid.count() as usize
    }

    /// Takes all messages and events: they are few, and each may be said now.
    pub(super) fn look_at_output(&mut self, receiver: &mut Receiver) {
        let mut count = 0;
        while let Some(message) = receiver.poll_message() {
            count += 1;
            self.transcript.message(&message);
            match message {
                Message::SpansVerified(verified) => {
                    for span in numbers::spans_of(&verified.spans) {
                        let span = (verified.file, span);
                        assert!(self.verified.contains(&span), "told {span:?} unverified");
                        assert!(self.told.insert(span), "told {span:?} twice");
                    }
                }
                Message::FileSettled(settled) => {
                    self.settle(settled.file);
                    if settled.fault.is_some() {
                        self.held.remove(&self.names[settled.file.0 as usize]);
                    }
                }
                Message::FileAnswer(answer) => self.look_at_answer(&answer),
                _ => {}
            }
        }
        while let Some(event) = receiver.poll_event() {
            count += 1;
            self.transcript.note(|| receiver_event(&event));
            if let ReceiverEvent::Commit(file) = event {
                assert!(self.is_told_whole(file), "committed with spans missing");
                assert!(!self.read_back.contains(&file), "committed before it was read back");
                self.waiting.remove(&file);
                assert!(self.confirmed.insert(file), "committed twice");
            }
        }
        self.transcript.note(|| receiver_state(receiver));
        assert!(count <= 4 + OFFERS_MAX, "{count} messages and events of one operation");
        let open = self.sizes.len() - self.settled.len();
        assert!(open <= OFFERS_MAX as usize, "{open} files are open");
        assert_eq!(receiver.has_open_files(), open > 0);
    }

    fn look_at_answer(&mut self, answer: &message::FileAnswer) {
        use message::Answer::{Compare, Fault, Need};
        if !matches!(answer.answer, Need(_)) {
            self.settle(answer.file);
        }
        if !matches!(answer.answer, Compare(_) | Fault(_)) {
            let name = self.names[answer.file.0 as usize].clone();
            assert!(self.held.insert(name), "two files of one name");
        }
    }

    fn settle(&mut self, file: FileId) {
        assert!(self.settled.insert(file), "a file is settled once");
    }
}
