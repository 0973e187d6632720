//! Sessions of the sending machine: honest receivers, others, and the limits one by one.

use super::{examples, fault, offers, run, seeded::Seeded, sending::RecordedSender};
use haul_protocol::{
    FileId, Message, SpanIndex, StreamId, limits,
    message::{self, Answer},
};
use serde_json::Value;

/// The most offers open at a time in the drawn sessions.
const OFFERS_MAX: u32 = 5;
const SPAN: u64 = limits::SPAN_BYTES_MIN;
/// Calls of one drawn session.
const CALLS: u32 = 120;

pub fn traces() -> Vec<Value> {
    let mut traces: Vec<Value> = (0..6).map(|seed| drawn(seed, 3)).collect();
    traces.extend((6..12).map(|seed| drawn(seed, 25)));
    traces.extend([whole_session(), all_messages(), damaged(), streams(), spans(), memory()]);
    traces.push(crossed());
    traces
}

/// Draws a session with a receiver of which so many of 100 messages are of no honest one.
fn drawn(seed: u64, lies_percent: u32) -> Value {
    let name = format!("drawn by seed {seed}, {lies_percent} % lies");
    let mut session = Drawn {
        sender: RecordedSender::new(&name, OFFERS_MAX, limits::OFFER_BYTES_MAX),
        random: Seeded::new(seed),
        offered: 0,
        streams: 0,
    };
    for stream in 0..2 {
        session.sender.stream_opened(stream).expect("a new stream");
        session.streams += 1;
    }
    for call in 0..CALLS {
        if session.random.chance(lies_percent) {
            session.lie();
        } else if session.random.chance(45) {
            session.act(call);
        } else {
            session.answer_honestly();
        }
        if session.random.chance(60) {
            session.sender.take_messages();
        }
    }
    session.sender.take_messages();
    session.sender.finish()
}

struct Drawn {
    sender: RecordedSender,
    random: Seeded,
    offered: u32,
    streams: u32,
}

impl Drawn {
    /// Calls the machine as its owner may.
    fn act(&mut self, call: u32) {
        let files: Vec<FileId> = self.sender.files.keys().copied().collect();
        let streams: Vec<StreamId> = self.sender.streams.iter().copied().collect();
        match self.random.below(20) {
            0..5 if self.sender.machine().may_offer() => {
                self.offered += 1;
                self.sender.offer(offers::drawn(&mut self.random, 0, self.offered));
            }
            5..7 => {
                // Now and then a number that was used.
                let again = self.random.chance(15);
                let stream = if again { self.random.below(self.streams) } else { self.streams };
                self.streams = self.streams.max(stream + 1);
                self.sender.stream_opened(stream).ok();
            }
            7..15 => {
                let stream = self.random.one_of(&streams).unwrap_or(StreamId(self.streams));
                let handed = self.sender.next_span(stream.0);
                if let Some((file, _)) = handed.filter(|_| self.random.chance(25)) {
                    self.sender.confirm_with_span(file);
                }
            }
            15 => {
                let stream = self.random.below(self.streams + 1);
                self.sender.drop_stream(stream, "nothing moved");
            }
            16 => {
                let file = self.random.one_of(&files).unwrap_or(FileId(self.offered));
                match self.random.below(3) {
                    0 => self.sender.source_failed(file, fault("the source is gone")),
                    1 => self.sender.source_checked(file, Some(fault("the source changed"))),
                    _ => drop(self.sender.confirm_with_span(file)),
                }
            }
            17 => self.sender.notice(notice()),
            18 if call > CALLS * 4 / 5 => self.sender.end_offers(self.offered.into(), 7),
            _ => {
                let checks: Vec<FileId> = self.sender.to_check.iter().copied().collect();
                if let Some(file) = self.random.one_of(&checks) {
                    self.sender.source_checked(file, None);
                }
            }
        }
    }

    /// Says what an honest receiver may say now, if it may say that.
    fn answer_honestly(&mut self) {
        let message = match self.random.below(20) {
            0..6 => self.answer_of_an_offer(),
            6..12 => self.verified(),
            12..15 => self.settlement(),
            15 => self
                .random
                .one_of(&self.sender.streams.iter().copied().collect::<Vec<_>>())
                .map(|stream| Message::StreamClosed(message::StreamClosed { stream })),
            16 => self.random.one_of(&self.sender.sent.iter().copied().collect::<Vec<_>>()).map(
                |(stream, file, span)| Message::SpanBad(message::SpanBad { file, span, stream }),
            ),
            17 => self
                .random
                .one_of(&self.sender.durable.iter().copied().collect::<Vec<_>>())
                .map(|(file, span)| lost(file, vec![run(span.0, 1)])),
            18 => Some(Message::Progress(message::Progress {
                received_bytes: 5,
                ..Default::default()
            })),
            _ => Some(Message::Notice(notice())),
        };
        if let Some(message) = message {
            self.sender.handle(message).ok();
        }
    }

    fn answer_of_an_offer(&mut self) -> Option<Message> {
        let unanswered = self.sender.files.iter().filter(|(_, file)| file.span_bytes.is_none());
        let unanswered: Vec<(FileId, u64)> =
            unanswered.map(|(file, offered)| (*file, offered.size_bytes)).collect();
        let (file, size_bytes) = self.random.one_of(&unanswered)?;
        let answer = match self.random.below(12) {
            0 => Answer::Skip,
            1 => Answer::Fault(fault("the disk is full")),
            2 => Answer::Compare(message::Compare { blake3: [7; 32] }),
            3 => Answer::Plan(message::Plan { replaces: true, ..Default::default() }),
            _ => {
                let span_bytes = if self.random.chance(80) { SPAN } else { 2 * SPAN };
                let spans = size_bytes.div_ceil(span_bytes) as u32;
                let percent = [0, 0, 30, 100][self.random.below(4) as usize];
                let durable = self.random.spans(spans, percent).to_ranges();
                let stored_as = if self.random.chance(15) { b"other~1".to_vec() } else { vec![] };
                let (ctime_s, ctime_ns) = (i64::from(self.random.below(9)) - 4, 5);
                let durable_digest = self.random.chance(50).then_some([9; 16]);
                Answer::Need(message::Need {
                    span_bytes,
                    durable,
                    stored_as,
                    ctime_s,
                    ctime_ns,
                    durable_digest,
                })
            }
        };
        Some(answer_with(file, answer))
    }

    fn verified(&mut self) -> Option<Message> {
        let sent: Vec<_> = self.sender.sent.iter().copied().collect();
        let (_, file, span) = self.random.one_of(&sent)?;
        let also = sent.iter().any(|sent| (sent.1, sent.2) == (file, SpanIndex(span.0 + 1)));
        Some(verified(file, vec![run(span.0, 1 + u32::from(also))]))
    }

    fn settlement(&mut self) -> Option<Message> {
        let confirmed = self.sender.confirmed.iter().copied();
        let open: Vec<FileId> =
            confirmed.filter(|file| self.sender.files.contains_key(file)).collect();
        let file = self.random.one_of(&open)?;
        Some(settled(file, self.random.chance(20).then(|| fault("the disk fails"))))
    }

    /// Says anything, of numbers that mostly are some of this session's.
    fn lie(&mut self) {
        let open: Vec<FileId> = self.sender.files.keys().copied().collect();
        let file = match self.random.below(12) {
            0 => FileId(u32::MAX),
            1 => FileId(self.offered),
            2..5 => FileId(self.random.below(self.offered)),
            _ => self.random.one_of(&open).unwrap_or_default(),
        };
        let span = if self.random.chance(5) { u32::MAX } else { self.random.below(5) };
        let streams: Vec<StreamId> = self.sender.streams.iter().copied().collect();
        let anything = StreamId(self.random.below(self.streams + 2));
        let drawn = self.random.one_of(&streams).filter(|_| self.random.chance(70));
        let stream = drawn.unwrap_or(anything);
        let spans = [run(span, self.random.below(3)), run(self.random.below(4), 1)];
        let spans = spans[..1 + self.random.below(2) as usize].to_vec();
        let message = match self.random.below(9) {
            0 => verified(file, spans),
            1 => lost(file, spans),
            2 => Message::SpanBad(message::SpanBad { file, span: SpanIndex(span), stream }),
            3 => Message::StreamClosed(message::StreamClosed { stream }),
            4 => settled(file, self.random.chance(50).then(|| fault("the disk fails"))),
            5 => {
                let span_bytes = self.random.one_of(&[0, SPAN + 1, SPAN, SPAN << 20]);
                answer_with(file, need(span_bytes.expect("four"), spans))
            }
            6 => answer_with(file, Answer::Skip),
            7 => finish(),
            _ => Message::Removed(message::Removed { names: vec![b"old".to_vec()] }),
        };
        self.sender.handle(message).ok();
    }
}

fn need(span_bytes: u64, durable: Vec<message::SpanRange>) -> Answer {
    Answer::Need(message::Need { span_bytes, durable, ..Default::default() })
}

fn answer_with(file: FileId, answer: Answer) -> Message {
    Message::FileAnswer(message::FileAnswer { file, answer })
}

fn verified(file: FileId, spans: Vec<message::SpanRange>) -> Message {
    Message::SpansVerified(message::SpansVerified { file, spans })
}

fn lost(file: FileId, spans: Vec<message::SpanRange>) -> Message {
    Message::SpansLost(message::SpansLost { file, spans })
}

fn settled(file: FileId, fault: Option<message::Fault>) -> Message {
    Message::FileSettled(message::FileSettled { file, fault })
}

fn finish() -> Message {
    let report = message::SideReport { cpu_ns: 3, ..Default::default() };
    Message::Finish(message::Finish { report: Some(report) })
}

fn notice() -> message::Notice {
    message::Notice { what: "splice fell back".into(), ..Default::default() }
}

fn sender(name: &str) -> RecordedSender {
    RecordedSender::new(name, 100, limits::OFFER_BYTES_MAX)
}

fn hear(sender: &mut RecordedSender, message: Message) {
    sender.handle(message).expect("an honest message");
}

/// A file that goes by two streams, one that is confirmed by its span, and one without bytes.
fn whole_session() -> Value {
    let mut sender = sender("a session from the first offer to the goodbye");
    let files = [5 * SPAN + 1, 10, 0].map(|size| sender.offer(offers::plain(0, size)));
    sender.end_offers(3, 5 * SPAN + 11);
    sender.end_offers(3, 5 * SPAN + 11);
    sender.take_messages();
    for file in files {
        hear(&mut sender, answer_with(file, need(SPAN, vec![])));
    }
    for stream in 0..2 {
        sender.stream_opened(stream).expect("a new stream");
    }
    let all = || verified(files[0], vec![run(0, 6)]);
    assert!(sender.handle(all()).is_err(), "nothing was sent");
    sender.next_span(0).expect("the first span");
    assert!(sender.handle(all()).is_err(), "not all was sent");
    for turn in 1..8 {
        if let Some((file, _)) = sender.next_span(turn % 2) {
            assert_eq!(sender.confirm_with_span(file), file == files[1]);
        }
    }
    hear(&mut sender, verified(files[0], vec![run(0, 4), run(5, 1)]));
    hear(&mut sender, verified(files[1], vec![run(0, 1)]));
    hear(&mut sender, verified(files[0], vec![run(4, 1)]));
    assert!(sender.handle(settled(files[0], None)).is_err(), "it was not confirmed");
    for file in [files[2], files[0]] {
        sender.source_checked(file, None);
        sender.source_checked(file, None);
    }
    sender.take_messages();
    assert!(sender.handle(finish()).is_err(), "files are not settled");
    for file in files {
        hear(&mut sender, settled(file, None));
    }
    assert!(sender.handle(settled(files[0], None)).is_err(), "it is settled");
    hear(&mut sender, Message::StreamClosed(message::StreamClosed { stream: StreamId(0) }));
    let report = message::SideReport { engine: "mmap".into(), ..Default::default() };
    sender.say_goodbye(report.clone());
    sender.say_goodbye(report);
    hear(&mut sender, Message::Removed(message::Removed { names: vec![b"a/old".to_vec()] }));
    hear(&mut sender, finish());
    assert!(sender.handle(finish()).is_err(), "a second one");
    sender.take_messages();
    sender.finish()
}

/// Every kind of message, to a sender with a file on its way.
fn all_messages() -> Value {
    let mut sender = sender("every kind of message");
    let file = sender.offer(offers::plain(0, SPAN));
    for message in examples() {
        sender.handle(message).ok();
    }
    hear(&mut sender, answer_with(file, Answer::Skip));
    sender.end_offers(1, SPAN);
    hear(&mut sender, Message::Finish(message::Finish { report: None }));
    sender.take_messages();
    sender.finish()
}

/// A span that arrives damaged until its file is given up.
fn damaged() -> Value {
    let mut sender = sender("a span that always arrives damaged");
    let file = sender.offer(offers::plain(0, 3 * SPAN));
    hear(&mut sender, answer_with(file, need(SPAN, vec![run(0, 1)])));
    for time in 0..=limits::SPAN_RETRIES_MAX {
        sender.stream_opened(time).expect("a new stream");
        let (_, span) = sender.next_span(time).expect("the span is missing");
        let stream = StreamId(time);
        let bad = |span| Message::SpanBad(message::SpanBad { file, span, stream });
        assert!(sender.handle(bad(SpanIndex(3))).is_err(), "the file has no such span");
        hear(&mut sender, bad(span));
        sender.take_messages();
        assert_eq!(sender.next_span(time), None, "the stream is given up");
        hear(&mut sender, Message::StreamClosed(message::StreamClosed { stream }));
        assert!(sender.handle(bad(span)).is_err(), "the stream is closed");
    }
    sender.take_messages();
    hear(&mut sender, lost(file, vec![run(0, 1)]));
    hear(&mut sender, settled(file, Some(fault("given up"))));
    sender.finish()
}

/// Limit of the streams, at a time and in a session.
fn streams() -> Value {
    let mut sender = sender("as many streams as there may be");
    for stream in 0..limits::STREAMS_MAX {
        sender.stream_opened(stream).expect("a new stream");
    }
    assert!(sender.stream_opened(limits::STREAMS_MAX).is_err(), "too many at a time");
    let closed = |stream| Message::StreamClosed(message::StreamClosed { stream: StreamId(stream) });
    hear(&mut sender, closed(7));
    assert!(sender.stream_opened(7).is_err(), "the number was used");
    hear(&mut sender, closed(u32::MAX));
    assert!(sender.stream_opened(u32::MAX).is_err(), "it was closed before it came");
    let first = limits::STREAMS_MAX;
    sender.open_and_close(first, limits::STREAMS_EVER_MAX - 1 - first);
    let beyond = limits::STREAMS_EVER_MAX;
    assert!(sender.stream_opened(beyond).is_err(), "too many in a session");
    assert!(sender.handle(closed(beyond)).is_err(), "no number beyond the limit is kept");
    sender.finish()
}

/// Limit of the spans that are asked for at a time.
fn spans() -> Value {
    let mut sender = sender("as many spans as there may be");
    for _ in 0..limits::SPANS_OPEN_MAX / limits::SPANS_MAX {
        let file = sender.offer(offers::plain(0, limits::SPANS_MAX * SPAN));
        hear(&mut sender, answer_with(file, need(SPAN, vec![])));
    }
    let file = sender.offer(offers::plain(0, limits::SPANS_MAX * SPAN + 1));
    let ask = |sender: &mut RecordedSender, span_bytes| {
        sender.handle(answer_with(file, need(span_bytes, vec![])))
    };
    assert!(ask(&mut sender, SPAN).is_err(), "too many of one file");
    assert!(ask(&mut sender, 2 * SPAN).is_err(), "too many of all files");
    hear(&mut sender, settled(FileId(3), Some(fault("the disk fails"))));
    assert!(ask(&mut sender, 2 * SPAN).is_ok(), "there is room again");
    sender.finish()
}

/// Limit of the memory of open offers.
fn memory() -> Value {
    let offer = offers::large(0);
    let mut sender = RecordedSender::new(
        "as many bytes of offers as there may be",
        100,
        2 * message::offer_bytes(&offer),
    );
    for _ in 0..2 {
        sender.offer(offer.clone());
    }
    assert!(!sender.machine().may_offer());
    hear(&mut sender, answer_with(FileId(0), Answer::Skip));
    sender.offer(offer);
    sender.take_messages();
    sender.finish()
}

/// Words of both sides that cross.
fn crossed() -> Value {
    let mut sender = sender("words that cross");
    let gone = || fault("the source is gone");
    let answers = [
        Answer::Skip,
        Answer::Fault(fault("the disk is full")),
        Answer::Compare(message::Compare::default()),
        Answer::Plan(message::Plan::default()),
        need(SPAN, vec![]),
    ];
    for answer in answers {
        let file = sender.offer(offers::plain(0, SPAN));
        sender.source_failed(file, gone());
        sender.source_failed(file, gone());
        hear(&mut sender, answer_with(file, answer));
    }
    let file = FileId(4);
    hear(&mut sender, lost(file, vec![run(0, 1)]));
    assert!(sender.handle(settled(file, None)).is_err(), "it was given up");
    hear(&mut sender, settled(file, Some(gone())));
    let file = sender.offer(offers::plain(0, 2 * SPAN));
    assert!(sender.handle(lost(file, vec![run(0, 1)])).is_err(), "it was not answered");
    for wrong in [[run(0, 2), run(1, 1)], [run(0, 1), run(2, 1)], [run(0, 1), run(u32::MAX, 2)]] {
        let answer = answer_with(file, need(SPAN, wrong.to_vec()));
        assert!(sender.handle(answer).is_err(), "{wrong:?}");
    }
    hear(&mut sender, answer_with(file, need(SPAN, vec![run(0, 2)])));
    sender.source_checked(file, None);
    assert!(sender.handle(lost(file, vec![])).is_err(), "nothing");
    hear(&mut sender, lost(file, vec![run(1, 1)]));
    assert!(sender.handle(lost(file, vec![run(1, 1)])).is_err(), "a span is lost once");
    assert!(sender.handle(settled(file, None)).is_err(), "the confirmation is void");
    sender.stream_opened(0).expect("a new stream");
    sender.next_span(0).expect("the span that was lost");
    hear(&mut sender, verified(file, vec![run(1, 1)]));
    sender.source_checked(file, Some(fault("the source changed")));
    sender.take_messages();
    sender.finish()
}
