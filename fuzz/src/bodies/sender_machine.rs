//! Run of the sender against a receiver that says anything, with a model of what may follow.

use super::{
    numbers,
    transcript::{Transcript, sender_event, sender_state},
};
use arbitrary::Arbitrary;
use haul_protocol::{
    FileId, Message, ProtocolError, Sender, SenderEvent, SpanIndex, StreamId, decode_message,
    encode_message,
    file_life::{LifeOptions, NextStep, OfferFacts, next_step},
    limits,
    message::{self, Answer},
    sender::FileOutcome,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most offers open at a time in these runs.
pub const OFFERS_MAX: u32 = 4;

/// The most durable spans of an answer that are remembered: a million of each would be all the time
/// spent.
const DURABLE_NOTED_MAX: usize = 1024;

/// Operations: what the owner does, and what the receiver says. Bytes become numbers by
/// [`numbers`].
#[derive(Arbitrary, Clone, Debug)]
pub enum SenderOperation {
    Offer {
        size: u8,
    },
    EndOffers,
    Finish,
    OpenStream(u8),
    DropStream(u8),
    NextSpan(u8),
    SourceFailed(u8),
    SourceChecked {
        file: u8,
        is_same: bool,
    },
    AcknowledgeSent(u8),
    DamageSent(u8),
    /// The first durable span of the nth file that has some is lost.
    LoseDurable(u8),
    Lost {
        file: u8,
        spans: Vec<(u8, u8)>,
    },
    AnswerOffered {
        nth: u8,
        durable: u8,
    },
    CloseOpened(u8),
    SettleConfirmed(u8),
    Need {
        file: u8,
        span_bytes: u8,
        durable: Vec<(u8, u8)>,
    },
    Skip(u8),
    AnswerFault(u8),
    AnswerNothing(u8),
    Verified {
        file: u8,
        spans: Vec<(u8, u8)>,
    },
    Bad {
        file: u8,
        span: u8,
        stream: u8,
    },
    Closed(u8),
    Settled {
        file: u8,
        is_durable: bool,
    },
    Progress,
    Notice,
    PeerFinish,
    Refused,
    Stray(u8),
    /// The nth span that is on its way had a trailer that confirms its file.
    ConfirmWithSpan(u8),
}

/// Model of the receiver: what it was sent and said.
#[derive(Default)]
pub(super) struct Model {
    outstanding: BTreeSet<(StreamId, FileId, SpanIndex)>,
    verified: BTreeSet<(FileId, SpanIndex)>,
    /// Spans of an earlier session.
    durable: BTreeSet<(FileId, SpanIndex)>,
    confirmed: BTreeSet<FileId>,
    /// Files confirmed by the trailer of their one span, which is on its way, or arrived.
    confirmed_with_span: BTreeSet<FileId>,
    given_up: BTreeSet<FileId>,
    offered: u32,
    settled: BTreeSet<FileId>,
    finishes: u32,
    unanswered: BTreeMap<FileId, u64>,
    /// Offers of ranges.
    ranges: BTreeMap<FileId, message::FileOffer>,
    streams: BTreeSet<StreamId>,
    transcript: Transcript,
}

/// Runs the operations until the machine calls the receiver a liar.
pub fn run(operations: &[SenderOperation]) {
    drop(play(operations, Transcript::default()));
}

/// Runs the operations, and returns what the machine said.
pub fn transcript(operations: &[SenderOperation]) -> String {
    play(operations, Transcript::kept()).into_text()
}

fn play(operations: &[SenderOperation], transcript: Transcript) -> Transcript {
    let mut sender = Sender::new(OFFERS_MAX, limits::OFFER_BYTES_MAX);
    let mut model = Model { transcript, ..Model::default() };
    for operation in operations {
        super::count_step();
        let result = apply(&mut sender, &mut model, operation);
        model.transcript.result("does", &result);
        model.look_at_output(&mut sender);
        if result.is_err() {
            break;
        }
    }
    model.transcript
}

pub(super) fn apply(
    sender: &mut Sender,
    model: &mut Model,
    operation: &SenderOperation,
) -> Result<(), ProtocolError> {
    use SenderOperation as Op;
    match operation {
        Op::Offer { size } if sender.may_offer() => {
            let size_bytes = numbers::size_bytes(*size).min(limits::FILE_BYTES_MAX);
            let file = sender.offer(message::FileOffer { size_bytes, ..Default::default() });
            assert_eq!(file.0, model.offered, "files are numbered in order");
            model.offered += 1;
            model.unanswered.insert(file, size_bytes);
        }
        Op::Offer { .. } => {}
        Op::EndOffers => sender.end_offers(u64::from(model.offered), 0),
        Op::Finish => sender.finish(message::SideReport::default()),
        Op::OpenStream(stream) => {
            let stream = numbers::stream(*stream);
            // A refused connection does not end the session.
            let result = sender.stream_opened(stream);
            model.transcript.result("opens", &result);
            if result.is_ok() {
                model.streams.insert(stream);
            }
        }
        Op::DropStream(stream) => sender.drop_stream(numbers::stream(*stream), "stalled"),
        Op::NextSpan(stream) => model.take_span(sender, numbers::stream(*stream)),
        Op::ConfirmWithSpan(nth) => model.confirm_with_span(sender, *nth),
        Op::SourceFailed(file) => sender.source_failed(numbers::file(*file), numbers::fault(1)),
        Op::SourceChecked { file, is_same } => {
            let found = if *is_same { Ok(()) } else { Err(numbers::fault(2)) };
            sender.source_checked(numbers::file(*file), found);
        }
        Op::AcknowledgeSent(_)
        | Op::DamageSent(_)
        | Op::LoseDurable(_)
        | Op::AnswerOffered { .. }
        | Op::CloseOpened(_)
        | Op::SettleConfirmed(_) => {
            if let Some(message) = model.honest(operation) {
                let result = model.hear(sender, message);
                assert_eq!(result, Ok(()), "{operation:?} is honest");
            }
        }
        Op::AnswerNothing(file) => {
            let bytes = empty_answer(numbers::file(*file));
            let heard = decode_message(&bytes, limits::MESSAGE_BYTES_MAX);
            return Err(heard.expect_err("an answer that says nothing is no message"));
        }
        said => {
            if let Some(message) = message_of(said) {
                return model.hear(sender, message);
            }
        }
    }
    Ok(())
}

/// Encodes an answer that says nothing: the bytes of a skip, without it.
fn empty_answer(file: FileId) -> Vec<u8> {
    let skip = message::FileAnswer { file, answer: Answer::Skip };
    let mut bytes = Vec::new();
    encode_message(Message::FileAnswer(skip), &mut bytes);
    bytes.truncate(bytes.len() - 2);
    // The length of the message, and that of the answer in it.
    bytes[0] -= 2;
    bytes[5] -= 2;
    bytes
}

fn message_verified(file: FileId, spans: Vec<message::SpanRange>) -> Message {
    Message::SpansVerified(message::SpansVerified { file, spans })
}

fn message_lost(file: FileId, spans: Vec<message::SpanRange>) -> Message {
    Message::SpansLost(message::SpansLost { file, spans })
}

/// Makes the message that the receiver says in an operation.
fn message_of(operation: &SenderOperation) -> Option<Message> {
    use SenderOperation as Op;
    let answer = |file: u8, answer: Answer| {
        Message::FileAnswer(message::FileAnswer { file: numbers::file(file), answer })
    };
    Some(match operation {
        Op::Need { file, span_bytes, durable } => {
            let span_bytes = numbers::span_bytes(*span_bytes);
            let need = message::Need {
                span_bytes,
                durable: numbers::ranges(durable),
                ..Default::default()
            };
            answer(*file, Answer::Need(need))
        }
        Op::Skip(file) => answer(
            *file,
            match file >> 6 {
                2 => Answer::Compare(message::Compare { blake3: [*file; 32] }),
                3 => Answer::Plan(message::Plan::default()),
                _ => Answer::Skip,
            },
        ),
        Op::AnswerFault(file) => answer(*file, Answer::Fault(numbers::fault(0))),
        Op::Verified { file, spans } => {
            message_verified(numbers::file(*file), numbers::ranges(spans))
        }
        Op::Lost { file, spans } => message_lost(numbers::file(*file), numbers::ranges(spans)),
        Op::Bad { file, span, stream } => Message::SpanBad(message::SpanBad {
            file: numbers::file(*file),
            span: numbers::span(*span),
            stream: numbers::stream(*stream),
        }),
        Op::Closed(stream) => {
            Message::StreamClosed(message::StreamClosed { stream: numbers::stream(*stream) })
        }
        Op::Settled { file, is_durable } => Message::FileSettled(message::FileSettled {
            file: numbers::file(*file),
            fault: (!is_durable).then(|| numbers::fault(0)),
        }),
        Op::Progress => Message::Progress(message::Progress::default()),
        Op::Notice => Message::Notice(message::Notice::default()),
        Op::PeerFinish => Message::Finish(message::Finish::default()),
        Op::Refused => Message::Refused(numbers::fault(0)),
        Op::Stray(which) => stray(*which),
        _ => return None,
    })
}

/// Makes a message that a receiver never sends here.
fn stray(which: u8) -> Message {
    match which % 6 {
        0 => Message::FileOffer(message::FileOffer::default()),
        1 => Message::OffersEnd(message::OffersEnd::default()),
        2 => Message::FileConfirm(message::FileConfirm::default()),
        3 => Message::StreamDrop(message::StreamDrop::default()),
        4 => Message::Hello(message::Hello::default()),
        _ => Message::Ping(message::Ping::default()),
    }
}

fn nth_of<T>(mut all: impl ExactSizeIterator<Item = T>, nth: u8) -> Option<T> {
    let nth = usize::from(nth) % all.len().max(1);
    all.nth(nth)
}

impl Model {
    /// Offers a range, of which the machine has to say what it was given.
    pub(super) fn offer_range(&mut self, sender: &mut Sender, offer: message::FileOffer) {
        let size_bytes = offer.size_bytes;
        let file = sender.offer(offer.clone());
        assert_eq!(file.0, self.offered, "files are numbered in order");
        self.offered += 1;
        self.unanswered.insert(file, size_bytes);
        self.ranges.insert(file, message::FileOffer { file, ..offer });
    }

    /// Makes a message that an honest receiver may send now, if it may.
    fn honest(&self, operation: &SenderOperation) -> Option<Message> {
        use SenderOperation as Op;
        Some(match operation {
            Op::AcknowledgeSent(nth) => {
                let &(_, file, span) = nth_of(self.outstanding.iter(), *nth)?;
                message_verified(file, vec![message::SpanRange { first: span, count: 1 }])
            }
            Op::DamageSent(nth) => {
                let &(stream, file, span) = nth_of(self.outstanding.iter(), *nth)?;
                Message::SpanBad(message::SpanBad { file, span, stream })
            }
            Op::LoseDurable(nth) => {
                let open = self.durable.iter().filter(|(file, _)| !self.settled.contains(file));
                let open: Vec<_> = open.collect();
                let &(file, span) = nth_of(open.into_iter(), *nth)?;
                message_lost(file, vec![message::SpanRange { first: span, count: 1 }])
            }
            Op::AnswerOffered { nth, durable } => {
                let (&file, &size_bytes) = nth_of(self.unanswered.iter(), *nth)?;
                let small = size_bytes.div_ceil(limits::SPAN_BYTES_MIN) <= limits::SPANS_MAX;
                let span_bytes =
                    if small { limits::SPAN_BYTES_MIN } else { limits::SPAN_BYTES_MAX };
                let durable =
                    numbers::set(size_bytes.div_ceil(span_bytes) as u32, *durable).to_ranges();
                let need = message::Need { span_bytes, durable, ..Default::default() };
                let answer = Answer::Need(need);
                Message::FileAnswer(message::FileAnswer { file, answer })
            }
            Op::CloseOpened(nth) => {
                let &stream = nth_of(self.streams.iter(), *nth)?;
                Message::StreamClosed(message::StreamClosed { stream })
            }
            Op::SettleConfirmed(nth) => {
                let all = self.confirmed.union(&self.confirmed_with_span);
                let open: Vec<_> = all.filter(|file| !self.settled.contains(file)).collect();
                let &file = nth_of(open.into_iter(), *nth)?;
                Message::FileSettled(message::FileSettled { file, fault: None })
            }
            _ => return None,
        })
    }

    /// Checks that a move removes no source that was given up, none that was not confirmed, and
    /// none that is only the same by size and time, whatever the receiver says.
    fn frees_what_it_may(&self, file: FileId, outcome: FileOutcome, source_failed: bool) {
        // Every mixture of options comes up, for files are many.
        let bit = |at: u32| self.settled.len() >> at & 1 > 0;
        let file_options = LifeOptions {
            compare_content: bit(0),
            dry_run: bit(1),
            move_sources: true,
            watches: bit(2),
        };
        let compared =
            if bit(3) { message::Compared::SameContent } else { message::Compared::NotCompared };
        let (kind, growth) = (message::FileKind::Regular, message::Growth::NotGrowing);
        let offer =
            OfferFacts { kind, growth, compared, is_followed: false, source_failed, file_options };
        let NextStep::Ends(end) = next_step(outcome.clone(), &offer) else { return };
        if !end.frees_source {
            return;
        }
        assert!(!self.given_up.contains(&file), "a source that was given up is removed");
        let is_there = match outcome {
            FileOutcome::Done => self.is_confirmed(file),
            FileOutcome::Skipped => compared == message::Compared::SameContent,
            FileOutcome::Planned(_) => file_options.dry_run,
            FileOutcome::Compare(_) | FileOutcome::Failed(_) => false,
        };
        assert!(is_there, "a source is removed that is not there: {outcome:?}");
    }

    fn take_span(&mut self, sender: &mut Sender, stream: StreamId) {
        let Some(next) = sender.next_span(stream) else { return };
        self.transcript.assignment(&next);
        let (file, span) = (next.file, next.span);
        assert!(next.len_bytes > 0, "no span is empty");
        if let Some(range) = self.ranges.get(&file) {
            let end = next.offset_bytes + next.len_bytes;
            assert!(end <= range.size_bytes, "a span of another range goes out");
        }
        assert!(!self.verified.contains(&(file, span)), "a verified span goes out again");
        let again = self.outstanding.iter().any(|sent| (sent.1, sent.2) == (file, span));
        assert!(!again, "a span goes out twice at a time");
        let is_over = self.settled.contains(&file) || self.given_up.contains(&file);
        assert!(!is_over, "a file goes on that is settled or given up");
        self.outstanding.insert((stream, file, span));
    }

    fn confirm_with_span(&mut self, sender: &mut Sender, nth: u8) {
        let Some(&(_, file, _)) = nth_of(self.outstanding.iter(), nth) else { return };
        let confirms = sender.confirm_with_span(file);
        self.transcript.note(|| format!("confirms {} {confirms}", file.0));
        if confirms {
            let is_over = self.settled.contains(&file) || self.given_up.contains(&file);
            assert!(!is_over, "a file is confirmed that is settled or given up");
            self.confirmed_with_span.insert(file);
        }
    }

    fn is_confirmed(&self, file: FileId) -> bool {
        self.confirmed.contains(&file) || self.confirmed_with_span.contains(&file)
    }

    /// Gives the machine a message; a message that must be refused is refused.
    fn hear(&mut self, sender: &mut Sender, message: Message) -> Result<(), ProtocolError> {
        let is_lie = self.is_lie(&message);
        let result = sender.handle(message.clone());
        assert!(!(is_lie && result.is_ok()), "believed: {message:?}");
        if result.is_ok() {
            if let Message::SpanBad(bad) = &message {
                let goes_on = sender.open_streams().any(|stream| stream == bad.stream);
                assert!(!goes_on, "a stream goes on whose frames are damaged or forged");
            }
            self.note(&message);
        }
        result
    }

    /// Whether no honest receiver can have sent a message after what it was told.
    fn is_lie(&self, message: &Message) -> bool {
        let is_open = |file: FileId| file.0 < self.offered && !self.settled.contains(&file);
        match message {
            Message::SpansVerified(verified) => {
                let sent = |span| {
                    let file = verified.file;
                    self.outstanding.iter().any(|sent| (sent.1, sent.2) == (file, span))
                };
                !is_open(verified.file) || !numbers::spans_of(&verified.spans).all(sent)
            }
            Message::SpanBad(bad) => {
                let file = bad.file;
                let unanswered = self.unanswered.contains_key(&file);
                !is_open(bad.file)
                    || !self.streams.contains(&bad.stream)
                    || (unanswered && !self.given_up.contains(&file))
            }
            Message::SpansLost(lost) => {
                let was_there = |span| self.durable.contains(&(lost.file, span));
                let mut spans = numbers::spans_of(&lost.spans).peekable();
                let is_heard = !self.given_up.contains(&lost.file);
                let is_true = spans.peek().is_some() && spans.all(was_there);
                !is_open(lost.file) || (is_heard && !is_true)
            }
            Message::FileAnswer(answer) => !is_open(answer.file),
            Message::FileSettled(settled) => {
                let confirmed = self.is_confirmed(settled.file);
                !is_open(settled.file) || (settled.fault.is_none() && !confirmed)
            }
            Message::Finish(_) => self.finishes > 0,
            Message::StreamClosed(_)
            | Message::Progress(_)
            | Message::Notice(_)
            | Message::Refused(_) => false,
            _ => true,
        }
    }

    fn note(&mut self, message: &Message) {
        match message {
            Message::SpansVerified(message) => {
                let file = message.file;
                for span in numbers::spans_of(&message.spans) {
                    self.outstanding.retain(|sent| (sent.1, sent.2) != (file, span));
                    self.verified.insert((file, span));
                }
            }
            Message::SpansLost(lost) => {
                let file = lost.file;
                for span in numbers::spans_of(&lost.spans) {
                    self.durable.remove(&(file, span));
                    self.verified.remove(&(file, span));
                }
                self.confirmed.remove(&file);
                self.confirmed_with_span.remove(&file);
            }
            Message::StreamClosed(closed) => {
                self.streams.remove(&closed.stream);
                let lost = self.outstanding.iter().filter(|sent| sent.0 == closed.stream);
                for (_, file, _) in lost {
                    self.confirmed_with_span.remove(file);
                }
                self.outstanding.retain(|sent| sent.0 != closed.stream);
            }
            Message::FileAnswer(message::FileAnswer { file, answer: Answer::Need(need) }) => {
                let file = *file;
                self.unanswered.remove(&file);
                let durable = numbers::spans_of(&need.durable).take(DURABLE_NOTED_MAX);
                let durable: Vec<_> = durable.map(|span| (file, span)).collect();
                self.verified.extend(&durable);
                self.durable.extend(&durable);
            }
            Message::Finish(_) => self.finishes += 1,
            _ => {}
        }
    }

    /// Takes all messages and events: they are few, and each may be said now.
    pub(super) fn look_at_output(&mut self, sender: &mut Sender) {
        let mut count = 0;
        while let Some(message) = sender.poll_message() {
            count += 1;
            self.transcript.message(&message);
            if let Message::FileOffer(offer) = &message
                && let Some(range) = self.ranges.get(&offer.file)
            {
                assert_eq!(offer, range, "another range is offered");
            }
            if let Message::FileConfirm(confirm) = message {
                let is_whole = confirm.fault.is_none();
                let files = if is_whole { &mut self.confirmed } else { &mut self.given_up };
                assert!(files.insert(confirm.file), "confirmed twice");
            }
        }
        while let Some(event) = sender.poll_event() {
            count += 1;
            self.transcript.note(|| sender_event(&event));
            if let SenderEvent::Settled { file, outcome, source_failed } = event {
                assert!(self.settled.insert(file), "a file is settled once");
                let may_be_done = self.is_confirmed(file);
                assert!(outcome != FileOutcome::Done || may_be_done, "done before confirmed");
                self.frees_what_it_may(file, outcome, source_failed);
                self.outstanding.retain(|sent| sent.1 != file);
                self.unanswered.remove(&file);
            }
        }
        self.transcript.note(|| sender_state(sender));
        assert!(count <= 4 + OFFERS_MAX, "{count} messages and events of one operation");
        let open = self.offered as usize - self.settled.len();
        assert!(open <= OFFERS_MAX as usize, "{open} files are open");
        let streams = sender.open_streams().count();
        for &stream in &self.streams {
            let awaits = self.outstanding.iter().any(|sent| sent.0 == stream);
            assert_eq!(sender.awaits_acknowledgement(stream), awaits, "{stream:?}");
        }
        assert!(streams <= limits::STREAMS_MAX as usize, "{streams} streams are open");
    }
}
