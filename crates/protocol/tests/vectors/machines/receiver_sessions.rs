//! Sessions of the receiving machine: honest senders, others, and the limits one by one.

use super::{
    examples, fault, offers,
    receiving::{RecordedReceiver, SpanState, Taken},
    seeded::Seeded,
};
use haul_protocol::{
    FileId, Message, SpanGrid, SpanIndex, SpanSet, StreamId,
    frame::{PackHeader, SpanHeader},
    limits, message,
    receiver::{Answer, Earlier, Permit, SpanEnd},
    taken_names::{Repeats, TargetPath},
};
use serde_json::Value;

/// The most offers open at a time in the drawn sessions.
const OFFERS_MAX: u32 = 5;
const SPAN: u64 = limits::SPAN_BYTES_MIN;
/// Calls of one drawn session.
const CALLS: u32 = 130;

pub fn traces() -> Vec<Value> {
    let mut traces: Vec<Value> = (0..6).map(|seed| drawn(seed, 3)).collect();
    traces.extend((6..12).map(|seed| drawn(seed, 25)));
    traces.extend([whole_session(), all_messages(), damaged(), streams(), memory()]);
    traces.extend([names_of_one_source(), names_that_repeat(), frames(), read_back(), crossed()]);
    traces
}

/// Draws a session with a sender of which so many of 100 words are of no honest one.
fn drawn(seed: u64, lies_percent: u32) -> Value {
    let name = format!("drawn by seed {seed}, {lies_percent} % lies");
    let repeats = if seed.is_multiple_of(2) { Repeats::Refused } else { Repeats::OnceSettled };
    let offers = (OFFERS_MAX, limits::OFFER_BYTES_MAX);
    let mut session = Drawn {
        receiver: RecordedReceiver::naming(&name, offers, TargetPath::Directory, repeats),
        random: Seeded::new(seed),
        streams: 0,
        names: 0,
    };
    for stream in 0..2 {
        session.receiver.stream_opened(stream).expect("a new stream");
        session.streams += 1;
    }
    for call in 0..CALLS {
        if session.random.chance(lies_percent) {
            session.lie();
        } else if session.random.chance(35) {
            session.act(call);
        } else {
            session.say_honestly(call);
        }
        if session.random.chance(50) {
            session.receiver.take_messages();
        }
    }
    session.receiver.take_messages();
    session.receiver.finish()
}

struct Drawn {
    receiver: RecordedReceiver,
    random: Seeded,
    streams: u32,
    names: u32,
}

impl Drawn {
    fn one_file(&mut self, is_meant: impl Fn(&Taken) -> bool) -> Option<FileId> {
        let files = self.receiver.files.iter().filter(|(_, file)| is_meant(file));
        let files: Vec<FileId> = files.map(|(file, _)| *file).collect();
        self.random.one_of(&files)
    }

    /// Calls the machine as its owner may.
    fn act(&mut self, call: u32) {
        match self.random.below(16) {
            0..6 => self.answer_an_offer(),
            6..9 => {
                if let Some(file) = self.one_file(|file| file.commits) {
                    let fault = self.random.chance(25).then(|| fault("the disk fails"));
                    self.receiver.committed(file, fault);
                }
            }
            9..11 => {
                if let Some(file) = self.one_file(|file| file.is_read_back) {
                    let durable = self.receiver.files[&file].durable.clone();
                    let kept = self.random.spans(durable.file_spans(), 40);
                    let mut lost = durable.clone();
                    lost.subtract(if self.random.chance(50) { &durable } else { &kept });
                    self.receiver.read_back(file, &lost);
                }
            }
            11 if self.random.chance(40) => {
                if let Some(file) = self.one_file(|_| true) {
                    self.receiver.file_failed(file, fault("the target is gone"));
                }
            }
            12 => {
                let progress = message::Progress { durable_bytes: 9, ..Default::default() };
                self.receiver.progress(progress);
            }
            13 => self.receiver.notice(notice()),
            14 if self.receiver.machine().may_finish() && call > CALLS / 2 => {
                self.receiver.removed(vec![b"old".to_vec()]);
                self.receiver.say_goodbye(message::SideReport::default());
            }
            _ => {
                let streams: Vec<StreamId> = self.receiver.streams.keys().copied().collect();
                if let Some(stream) = self.random.one_of(&streams).filter(|_| streams.len() > 2) {
                    self.receiver.stream_closed(stream.0);
                }
            }
        }
    }

    fn answer_an_offer(&mut self) {
        let Some(file) = self.one_file(|file| file.grid.is_none()) else { return };
        let answer = match self.random.below(14) {
            0 => Answer::Skip,
            1 => Answer::Fault(fault("the disk is full")),
            2 => Answer::Compare(message::Compare { blake3: [7; 32] }),
            3 => Answer::Plan(message::Plan { durable_bytes: 6, ..Default::default() }),
            _ => {
                let span_bytes = if self.random.chance(80) { SPAN } else { 2 * SPAN };
                let count = self.receiver.files[&file].size_bytes.div_ceil(span_bytes) as u32;
                let percent = [0, 0, 40, 100][self.random.below(4) as usize];
                let durable = self.random.spans(count, percent);
                let stored_as = if self.random.chance(15) { b"other~1".to_vec() } else { vec![] };
                let earlier = Earlier {
                    ctime: (i64::from(self.random.below(9)) - 4, 5),
                    digest: self.random.chance(50).then_some([9; 16]),
                    is_read_back: !durable.is_empty() && self.random.chance(70),
                };
                Answer::Need { span_bytes, durable, stored_as, earlier }
            }
        };
        self.receiver.answer(file, answer).expect("a fitting answer");
    }

    /// Says or brings what an honest sender may now.
    fn say_honestly(&mut self, call: u32) {
        match self.random.below(24) {
            0..5 => self.offer(),
            5..7 => {
                self.receiver.stream_opened(self.streams).ok();
                self.streams += 1;
            }
            7..13 => self.bring_a_span(),
            13..18 => self.end_a_span(),
            18..21 => {
                let is_due = |file: &Taken| file.is_whole() && !file.is_confirmed;
                if let Some(file) = self.one_file(is_due) {
                    self.receiver.take_messages();
                    self.receiver.handle(confirm(file, None)).ok();
                }
            }
            21 => {
                let stream = StreamId(self.random.below(self.streams + 1));
                let why = "nothing moved".into();
                let drop = message::StreamDrop { stream, why };
                self.streams = self.streams.max(stream.0 + 1);
                self.receiver.handle(Message::StreamDrop(drop)).ok();
            }
            22 if call > CALLS * 4 / 5 => {
                let end = message::OffersEnd { files: 3, bytes: 8 };
                self.receiver.handle(Message::OffersEnd(end)).ok();
            }
            22 => {
                if let Some(file) = self.one_file(|file| !file.is_confirmed) {
                    let gone = fault("the source is gone");
                    self.receiver.handle(confirm(file, Some(gone))).ok();
                }
            }
            _ => drop(self.receiver.handle(Message::Notice(notice()))),
        }
    }

    fn offer(&mut self) {
        // Now and then a name that came before.
        let again = self.random.chance(20);
        let name = if again { self.random.below(self.names) } else { self.names };
        self.names = self.names.max(name + 1);
        let offer = offers::drawn(&mut self.random, self.receiver.next_file, name);
        self.receiver.handle(Message::FileOffer(offer)).ok();
    }

    fn spans(&self, is_meant: impl Fn(SpanState) -> bool) -> Vec<(FileId, SpanGrid, u32)> {
        let mut spans = Vec::new();
        for (file, taken) in &self.receiver.files {
            let Some(grid) = taken.grid else { continue };
            let meant = taken.spans.iter().enumerate().filter(|(_, state)| is_meant(**state));
            spans.extend(meant.map(|(span, _)| (*file, grid, span as u32)));
        }
        spans
    }

    fn bring_a_span(&mut self) {
        let streams: Vec<(StreamId, u64)> =
            self.receiver.streams.iter().map(|(stream, frames)| (*stream, *frames)).collect();
        let missing = self.spans(|state| state == SpanState::Missing);
        let (Some((stream, sequence)), Some((file, grid, span))) =
            (self.random.one_of(&streams), self.random.one_of(&missing))
        else {
            return;
        };
        let (offset_bytes, len_bytes) = grid.range(SpanIndex(span));
        let header = SpanHeader { file, offset_bytes, len_bytes, sequence, stream };
        // The sender does not know what fails when, so it may be refused.
        self.receiver.span_starts(stream.0, header).ok();
    }

    fn end_a_span(&mut self) {
        let written = self.spans(|state| matches!(state, SpanState::Written(_)));
        let Some((file, _, span)) = self.random.one_of(&written) else { return };
        let SpanState::Written(stream) = self.receiver.files[&file].spans[span as usize] else {
            unreachable!("it was drawn of those")
        };
        let end = match self.random.below(12) {
            0 => SpanEnd::Damaged,
            1 => SpanEnd::Abandoned,
            2..5 => SpanEnd::Confirmed,
            _ => SpanEnd::Verified,
        };
        self.receiver.span_ended(stream, file, SpanIndex(span), end);
    }

    /// Says or brings anything, with numbers that mostly are some of this session's.
    fn lie(&mut self) {
        let file = match self.random.below(12) {
            0 => FileId(u32::MAX),
            1 => FileId(self.receiver.next_file),
            2..5 => FileId(self.random.below(self.receiver.next_file)),
            _ => self.one_file(|_| true).unwrap_or_default(),
        };
        let streams: Vec<u32> = self.receiver.streams.keys().map(|stream| stream.0).collect();
        let anything = self.random.below(self.streams + 2);
        let drawn = self.random.one_of(&streams).filter(|_| self.random.chance(80));
        let stream = drawn.unwrap_or(anything);
        match self.random.below(12) {
            0..5 => self.bring_anything(file, stream),
            5 => {
                let pack = PackHeader {
                    spans: self.random.below(4),
                    len_bytes: u64::from(self.random.below(400)),
                    sequence: u64::from(self.random.below(3)),
                    stream: StreamId(stream),
                };
                self.receiver.pack_starts(stream, pack).ok();
            }
            6 => {
                let span = SpanIndex(self.random.below(4));
                self.receiver.span_ended(StreamId(stream), file, span, SpanEnd::Verified);
            }
            7 => {
                let offer = offers::drawn(&mut self.random, file.0, self.names + 7);
                self.receiver.handle(Message::FileOffer(offer)).ok();
            }
            8 => {
                let fault = self.random.chance(30).then(|| fault("the source changed"));
                self.receiver.handle(confirm(file, fault)).ok();
            }
            9 => drop(self.receiver.handle(finish())),
            10 => drop(self.receiver.stream_opened(stream)),
            _ => {
                let count = self.random.below(4);
                let answer = need(SPAN, self.random.spans(count, 50));
                self.receiver.answer(file, answer).ok();
            }
        }
    }

    fn bring_anything(&mut self, file: FileId, stream: u32) {
        let frames = self.receiver.streams.get(&StreamId(stream)).copied().unwrap_or_default();
        let right = self.receiver.files.get(&file).and_then(|taken| taken.grid);
        let span = SpanIndex(self.random.below(5));
        let (offset_bytes, len_bytes) = right.map_or((0, SPAN), |grid| grid.range(span));
        let mut header = SpanHeader {
            file,
            offset_bytes,
            len_bytes,
            sequence: frames,
            stream: StreamId(stream),
        };
        match self.random.below(10) {
            0 => header.sequence += 1,
            1 => header.stream = StreamId(stream + 1),
            2 => header.len_bytes = limits::SPAN_BYTES_MAX + 1,
            3 => header.offset_bytes += 1,
            4 => header.len_bytes += 1,
            5 => header.offset_bytes = u64::MAX,
            _ => {}
        }
        self.receiver.span_starts(stream, header).ok();
    }
}

fn need(span_bytes: u64, durable: SpanSet) -> Answer {
    Answer::Need { span_bytes, durable, stored_as: Vec::new(), earlier: Earlier::default() }
}

fn confirm(file: FileId, fault: Option<message::Fault>) -> Message {
    Message::FileConfirm(message::FileConfirm { file, fault })
}

fn finish() -> Message {
    Message::Finish(message::Finish { report: None })
}

fn notice() -> message::Notice {
    message::Notice { what: "splice fell back".into(), ..Default::default() }
}

fn offer(file: u32, size_bytes: u64) -> Message {
    Message::FileOffer(offers::plain(file, size_bytes))
}

fn named(file: u32, name: &str) -> Message {
    Message::FileOffer(message::FileOffer { name: name.into(), ..offers::plain(file, 0) })
}

fn receiver(name: &str) -> RecordedReceiver {
    RecordedReceiver::new(name, 100, limits::OFFER_BYTES_MAX)
}

fn hear(receiver: &mut RecordedReceiver, message: Message) {
    receiver.handle(message).expect("an honest message");
}

/// Header of a span of file 0 that is the next frame of its stream.
fn next(receiver: &RecordedReceiver, stream: u32, span: u64, len_bytes: u64) -> SpanHeader {
    let stream = StreamId(stream);
    let sequence = receiver.streams.get(&stream).copied().unwrap_or_default();
    SpanHeader { file: FileId(0), offset_bytes: span * SPAN, len_bytes, sequence, stream }
}

/// Makes a receiver of one file that was asked for, with stream 0 open.
fn receiving(name: &str, spans: u32) -> RecordedReceiver {
    let mut receiver = receiver(name);
    hear(&mut receiver, offer(0, u64::from(spans) * SPAN));
    receiver.answer(FileId(0), need(SPAN, SpanSet::new(spans))).expect("a fitting answer");
    receiver.stream_opened(0).expect("a new stream");
    receiver.take_messages();
    receiver
}

/// A file that comes by two streams, one that is confirmed by its span, and one without bytes.
fn whole_session() -> Value {
    let mut receiver = receiver("a session from the first offer to the goodbye");
    for (file, size_bytes) in [(0, 4 * SPAN + 1), (1, 10), (2, 0)] {
        hear(&mut receiver, offer(file, size_bytes));
        let durable = SpanSet::new(size_bytes.div_ceil(SPAN) as u32);
        receiver.answer(FileId(file), need(SPAN, durable)).expect("a fitting answer");
    }
    hear(&mut receiver, Message::OffersEnd(message::OffersEnd { files: 3, bytes: 4 * SPAN + 11 }));
    assert!(receiver.handle(offer(3, 0)).is_err(), "the offers are ended");
    for stream in 0..2 {
        receiver.stream_opened(stream).expect("a new stream");
    }
    let (first, second) = (StreamId(0), StreamId(1));
    let mut written = Vec::new();
    for (stream, span, len_bytes) in [(0, 0, SPAN), (1, 1, SPAN), (0, 3, SPAN), (0, 4, 1)] {
        let header = next(&receiver, stream, span, len_bytes);
        receiver.span_starts(stream, header).expect("a missing span");
        written.push((StreamId(stream), SpanIndex(span as u32)));
    }
    let small = SpanHeader { file: FileId(1), ..next(&receiver, 1, 0, 10) };
    receiver.span_starts(1, small).expect("a missing span");
    written.into_iter().for_each(|(stream, span)| {
        receiver.span_ended(stream, FileId(0), span, SpanEnd::Verified);
    });
    assert!(receiver.handle(confirm(FileId(0), None)).is_err(), "span 2 is missing");
    receiver.span_ended(second, FileId(1), SpanIndex(0), SpanEnd::Confirmed);
    receiver.take_messages();
    receiver.span_starts(0, next(&receiver, 0, 2, SPAN)).expect("a missing span");
    receiver.span_ended(first, FileId(0), SpanIndex(2), SpanEnd::Verified);
    receiver.span_ended(first, FileId(0), SpanIndex(2), SpanEnd::Damaged);
    receiver.stream_closed(0);
    for file in [2, 0] {
        hear(&mut receiver, confirm(FileId(file), None));
        assert!(receiver.handle(confirm(FileId(file), None)).is_err(), "a second one");
    }
    assert!(receiver.handle(finish()).is_err(), "files are not settled");
    for file in 0..3 {
        receiver.committed(FileId(file), None);
        receiver.committed(FileId(file), None);
    }
    receiver.take_messages();
    receiver.removed(vec![b"a/old".to_vec()]);
    let report = message::SideReport { engine: "splice".into(), ..Default::default() };
    receiver.say_goodbye(report.clone());
    receiver.say_goodbye(report);
    hear(&mut receiver, finish());
    assert!(receiver.handle(finish()).is_err(), "a second one");
    receiver.take_messages();
    receiver.finish()
}

/// Every kind of message, to a receiver with a file on its way.
fn all_messages() -> Value {
    let mut receiver = receiving("every kind of message", 2);
    for message in examples() {
        receiver.handle(message).ok();
    }
    receiver.file_failed(FileId(0), fault("the disk fails"));
    let report = message::SideReport { cpu_ns: 3, ..Default::default() };
    hear(&mut receiver, Message::Finish(message::Finish { report: Some(report) }));
    receiver.take_messages();
    receiver.finish()
}

/// A span that arrives damaged until its file is given up.
fn damaged() -> Value {
    let mut receiver = receiving("a span that always arrives damaged", 2);
    let header = next(&receiver, 0, 1, SPAN);
    receiver.span_starts(0, header).expect("a missing span");
    receiver.span_ended(StreamId(0), FileId(0), SpanIndex(1), SpanEnd::Verified);
    for time in 0..limits::SPAN_RETRIES_MAX + 2 {
        let permit = receiver.span_starts(0, next(&receiver, 0, 0, SPAN));
        assert_eq!(permit, Ok(Permit::Write(SpanIndex(0))), "time {time}");
        receiver.span_ended(StreamId(0), FileId(0), SpanIndex(0), SpanEnd::Damaged);
        if time % 3 == 0 {
            receiver.take_messages();
        }
    }
    assert_eq!(receiver.span_starts(0, next(&receiver, 0, 0, SPAN)), Ok(Permit::Discard));
    receiver.take_messages();
    receiver.finish()
}

/// Limit of the streams, at a time and in a session.
fn streams() -> Value {
    let mut receiver = receiver("as many streams as there may be");
    for stream in 0..limits::STREAMS_MAX {
        receiver.stream_opened(stream).expect("a new stream");
    }
    assert!(receiver.stream_opened(limits::STREAMS_MAX).is_err(), "too many at a time");
    receiver.stream_closed(7);
    assert!(receiver.stream_opened(7).is_err(), "the number was used");
    receiver.stream_closed(7);
    let drop = |stream| {
        let stream = StreamId(stream);
        Message::StreamDrop(message::StreamDrop { stream, why: "nothing moved".into() })
    };
    for stream in [7, u32::MAX, u32::MAX, 8] {
        hear(&mut receiver, drop(stream));
    }
    assert!(receiver.stream_opened(u32::MAX).is_err(), "it was closed before it came");
    receiver.stream_closed(8);
    receiver.take_messages();
    let first = limits::STREAMS_MAX;
    receiver.open_and_close(first, limits::STREAMS_EVER_MAX - 1 - first);
    let beyond = limits::STREAMS_EVER_MAX;
    assert!(receiver.stream_opened(beyond).is_err(), "too many in a session");
    hear(&mut receiver, drop(beyond));
    assert!(receiver.take_messages().is_empty(), "no number beyond the limit is kept");
    receiver.finish()
}

/// Limits of the open offers: their count and their memory.
fn memory() -> Value {
    let size = message::offer_bytes(&offers::large(0));
    let name = "as many offers and bytes of them as there may be";
    let mut receiver = RecordedReceiver::new(name, 3, 2 * size);
    let offer = |file| Message::FileOffer(offers::large(file));
    hear(&mut receiver, offer(0));
    hear(&mut receiver, offer(1));
    assert!(receiver.handle(offer(2)).is_err(), "too many bytes");
    receiver.answer(FileId(0), Answer::Skip).expect("an answer");
    assert!(receiver.handle(offer(3)).is_err(), "a number is left out");
    for file in 2..4 {
        hear(&mut receiver, named(file, "x"));
        if file == 2 {
            receiver.file_failed(FileId(1), fault("the disk fails"));
        }
    }
    hear(&mut receiver, named(4, "y"));
    hear(&mut receiver, named(5, "z"));
    assert!(receiver.handle(named(6, "too-many")).is_err(), "too many files");
    receiver.take_messages();
    receiver.finish()
}

fn names_of_one_source() -> Value {
    let (path, repeats) = (TargetPath::NameOfOneSource, Repeats::Refused);
    let name = "a target whose name is that of one source";
    let mut receiver = RecordedReceiver::naming(name, (100, 1 << 20), path, repeats);
    let offers = ["file-1/a", "file-1/b", "file-2", "file-1/a", "file-1"];
    for (file, name) in offers.into_iter().enumerate() {
        hear(&mut receiver, named(file as u32, name));
    }
    receiver.take_messages();
    receiver.finish()
}

/// Names that come again: of directories, of what is in place, and of what is not.
fn names_that_repeat() -> Value {
    let mut receiver = receiver("names that come again");
    let mut file = 0;
    let mut offer = |receiver: &mut RecordedReceiver, offer: message::FileOffer| {
        let offer = message::FileOffer { file: FileId(file), ..offer };
        hear(receiver, Message::FileOffer(offer));
        file += 1;
        FileId(file - 1)
    };
    let of = |name| offers::plain(name, 0);
    let directory = |name| {
        let kind = message::FileKind::Directory;
        message::FileOffer { kind, ..offers::plain(name, 0) }
    };
    let growing = |name| {
        let growth = message::Growth::Growing;
        message::FileOffer { growth, ..offers::plain(name, 0) }
    };
    for (name, answer) in [
        (1, Answer::Skip),
        (2, Answer::Plan(message::Plan::default())),
        (3, Answer::Compare(message::Compare { blake3: [7; 32] })),
        (4, Answer::Fault(fault("the disk is full"))),
    ] {
        let first = offer(&mut receiver, of(name));
        offer(&mut receiver, of(name));
        receiver.answer(first, answer).expect("an answer");
        offer(&mut receiver, of(name));
        receiver.take_messages();
    }
    for fault in [None, Some(fault("the disk fails"))] {
        let name = 5 + u32::from(fault.is_some());
        let first = offer(&mut receiver, of(name));
        receiver.answer(first, need(SPAN, SpanSet::new(0))).expect("a fitting answer");
        hear(&mut receiver, confirm(first, None));
        receiver.committed(first, fault);
        offer(&mut receiver, of(name));
        receiver.take_messages();
    }
    for made in [directory(7), directory(7), of(7), directory(7)] {
        offer(&mut receiver, made);
    }
    for _ in 0..2 {
        let round = offer(&mut receiver, growing(8));
        offer(&mut receiver, growing(8));
        receiver.answer(round, Answer::Skip).expect("an answer");
    }
    receiver.take_messages();
    receiver.finish()
}

/// Frames that do not belong where they are.
fn frames() -> Value {
    let mut receiver = receiving("frames that do not belong where they are", 3);
    receiver.stream_opened(1).expect("a new stream");
    hear(&mut receiver, offer(1, SPAN));
    let pack = |spans, len_bytes, sequence, stream| PackHeader {
        spans,
        len_bytes,
        sequence,
        stream: StreamId(stream),
    };
    receiver.pack_starts(0, pack(1, 65, 0, 0)).expect("the next frame");
    for (stream, pack) in [
        (0, pack(1, 65, 1, 0)),
        (0, pack(1, 65, 0, 1)),
        (2, pack(1, 65, 0, 2)),
        (0, pack(0, 65, 0, 0)),
        (0, pack(2, 129, 0, 0)),
        (0, pack(u32::MAX, 1 << 20, 0, 0)),
        (0, pack(1, limits::PACK_BYTES_MAX + 1, 0, 0)),
    ] {
        assert!(receiver.pack_starts(stream, pack).is_err(), "{pack:?}");
    }
    let write = |receiver: &mut RecordedReceiver, stream, span| {
        let header = next(receiver, stream, span, SPAN);
        receiver.span_starts(stream, header)
    };
    assert_eq!(write(&mut receiver, 0, 0), Ok(Permit::Write(SpanIndex(0))));
    let header = next(&receiver, 0, 0, SPAN);
    for wrong in [
        SpanHeader { sequence: 0, ..header },
        SpanHeader { stream: StreamId(1), ..header },
        SpanHeader { len_bytes: 0, ..header },
        SpanHeader { len_bytes: limits::SPAN_BYTES_MAX + 1, ..header },
    ] {
        assert!(receiver.span_starts(0, wrong).is_err(), "{wrong:?}");
    }
    assert!(write(&mut receiver, 1, 0).is_err(), "another stream is bringing it");
    // A frame that is refused is counted all the same: its stream is at its end.
    let frames = [(1, 0, SPAN), (2, 0, SPAN), (0, 0, SPAN - 1), (0, 1, SPAN), (0, SPAN + 1, SPAN)];
    for (sequence, (file, offset_bytes, len_bytes)) in (1..).zip(frames) {
        let (file, stream) = (FileId(file), StreamId(1));
        let wrong = SpanHeader { file, offset_bytes, len_bytes, sequence, stream };
        assert!(receiver.span_starts(1, wrong).is_err(), "{wrong:?}");
    }
    assert!(write(&mut receiver, 2, 0).is_err(), "the stream is not open");
    receiver.stream_closed(0);
    receiver.stream_opened(3).expect("a new stream");
    assert_eq!(write(&mut receiver, 3, 0), Ok(Permit::Write(SpanIndex(0))), "it is missing again");
    receiver.span_ended(StreamId(0), FileId(0), SpanIndex(0), SpanEnd::Verified);
    receiver.span_ended(StreamId(3), FileId(0), SpanIndex(0), SpanEnd::Abandoned);
    assert_eq!(write(&mut receiver, 3, 0), Ok(Permit::Write(SpanIndex(0))), "and again");
    receiver.span_ended(StreamId(3), FileId(0), SpanIndex(0), SpanEnd::Confirmed);
    assert_eq!(write(&mut receiver, 3, 0), Ok(Permit::Discard), "it is there");
    receiver.take_messages();
    receiver.finish()
}

/// Spans of an earlier session, read back before and behind the confirmation.
fn read_back() -> Value {
    let mut receiver = receiver("what an earlier session left is read back");
    let earlier = Earlier { ctime: (-1, 999_999_999), digest: Some([3; 16]), is_read_back: true };
    for (file, lost) in [(0, 0), (1, 2), (2, 0), (3, 2)] {
        let (number, is_confirmed_first) = (FileId(file), file < 2);
        hear(&mut receiver, offer(file, 2 * SPAN));
        let (durable, stored_as) = (SpanSet::full(2), Vec::new());
        let earlier = earlier.clone();
        let answer = Answer::Need { span_bytes: SPAN, durable, stored_as, earlier };
        receiver.answer(number, answer).expect("a fitting answer");
        if is_confirmed_first {
            hear(&mut receiver, confirm(number, None));
        }
        let lost = if lost == 0 { SpanSet::new(2) } else { SpanSet::full(2) };
        receiver.read_back(number, &lost);
        receiver.read_back(number, &SpanSet::full(2));
        let said = receiver.handle(confirm(number, None));
        assert_eq!(said.is_err(), is_confirmed_first && lost.is_empty(), "file {file}");
        receiver.take_messages();
    }
    receiver.stream_opened(0).expect("a new stream");
    for span in 0..2 {
        let header = SpanHeader { file: FileId(3), ..next(&receiver, 0, span, SPAN) };
        receiver.span_starts(0, header).expect("a missing span");
        receiver.span_ended(StreamId(0), FileId(3), SpanIndex(span as u32), SpanEnd::Verified);
        hear(&mut receiver, confirm(FileId(3), None));
    }
    hear(&mut receiver, confirm(FileId(1), Some(fault("the source changed"))));
    receiver.read_back(FileId(1), &SpanSet::full(2));
    // A confirmed file that fails while it is read back was not counted yet.
    hear(&mut receiver, offer(4, SPAN));
    let (durable, stored_as) = (SpanSet::full(1), Vec::new());
    let answer = Answer::Need { span_bytes: SPAN, durable, stored_as, earlier };
    receiver.answer(FileId(4), answer).expect("a fitting answer");
    hear(&mut receiver, confirm(FileId(4), None));
    hear(&mut receiver, Message::OffersEnd(message::OffersEnd { files: 5, bytes: 9 * SPAN }));
    receiver.file_failed(FileId(4), fault("the disk fails"));
    assert!(receiver.machine().is_all_confirmed());
    receiver.take_messages();
    receiver.finish()
}

/// Answers that do not fit, and words of both sides that cross.
fn crossed() -> Value {
    let mut receiver = receiver("answers that do not fit, and words that cross");
    let size_bytes = limits::SPANS_MAX * SPAN + 1;
    hear(&mut receiver, offer(0, size_bytes));
    for (span_bytes, spans) in [(SPAN, 0), (SPAN + 1, 0), (2 * SPAN, 2), (0, 0)] {
        let answer = need(span_bytes, SpanSet::new(spans));
        assert!(receiver.answer(FileId(0), answer).is_err(), "{span_bytes} {spans}");
    }
    assert!(receiver.take_messages().is_empty(), "nothing is sent then");
    let spans = size_bytes.div_ceil(limits::SPAN_BYTES_MAX) as u32;
    let fitting = || need(limits::SPAN_BYTES_MAX, SpanSet::full(spans));
    receiver.answer(FileId(0), fitting()).expect("it fits");
    assert!(receiver.answer(FileId(0), Answer::Skip).is_err(), "a second answer");
    receiver.answer(FileId(9), fitting()).expect("nobody knows it");
    assert!(receiver.handle(confirm(FileId(1), None)).is_err(), "never offered");
    hear(&mut receiver, offer(1, 2 * SPAN));
    assert!(receiver.handle(confirm(FileId(1), None)).is_err(), "not answered");
    hear(&mut receiver, confirm(FileId(1), Some(fault("the source is gone"))));
    receiver.answer(FileId(1), fitting()).expect("it crossed");
    hear(&mut receiver, confirm(FileId(1), None));
    receiver.file_failed(FileId(1), fault("it is settled"));
    hear(&mut receiver, Message::Refused(fault("the user ends it")));
    receiver.take_messages();
    receiver.finish()
}
