//! Calls of the receiving machine, each written down, and what the peer of one knows.

use super::recorder::{Machine, Recorder, Said, awaited_form, message_form, set_form};
use crate::hex::hex;
use haul_protocol::{
    FileId, Message, ProtocolError, Receiver, ReceiverEvent, SpanGrid, SpanIndex, SpanSet,
    StreamId,
    frame::{FrameHeader, PackHeader, SpanHeader},
    limits, message,
    receiver::{Answer, Earlier, Permit, SpanEnd},
    taken_names::{Repeats, TargetPath},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A receiver, and the names of which it is asked whether they are in place.
pub struct Named {
    receiver: Receiver,
    names: Vec<Vec<u8>>,
}

impl Machine for Named {
    type Event = ReceiverEvent;

    fn poll_message(&mut self) -> Option<Message> {
        self.receiver.poll_message()
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.receiver.poll_event()
    }

    fn event_form(event: &ReceiverEvent) -> Value {
        use ReceiverEvent as Event;
        match event {
            Event::Offered(offer) => {
                json!({"offered": message_form(&Message::FileOffer(offer.clone()))})
            }
            Event::NameTaken { offer, fault } => json!({"name_taken": {
                "offer": message_form(&Message::FileOffer(offer.clone())),
                "fault": message_form(&Message::Refused(fault.clone())),
            }}),
            Event::OffersEnd { files, bytes } => {
                json!({"offers_end": {"files": files, "bytes": bytes}})
            }
            Event::AllVerified(file) => json!({"all_verified": file.0}),
            Event::Commit(file) => json!({"commit": file.0}),
            Event::GivenUp { file, fault } => json!({"given_up": {
                "file": file.0, "fault": message_form(&Message::Refused(fault.clone())),
            }}),
            Event::CloseStream { stream, why } => {
                json!({"close_stream": {"stream": stream.0, "why": why}})
            }
            Event::Notice(notice) => {
                json!({"notice": message_form(&Message::Notice(notice.clone()))})
            }
            Event::Finished(report) => {
                let finish = message::Finish { report: Some(report.clone()) };
                json!({"finished": message_form(&Message::Finish(finish))})
            }
            Event::Refused(fault) => {
                json!({"refused": message_form(&Message::Refused(fault.clone()))})
            }
        }
    }

    fn state(&self) -> Map<String, Value> {
        let receiver = &self.receiver;
        let in_place = self.names.iter().filter(|name| receiver.has_in_place(name));
        let state = json!({
            "may_finish": receiver.may_finish(), "is_all_confirmed": receiver.is_all_confirmed(),
            "awaits": awaited_form(receiver.awaits()), "lacks_spans": receiver.lacks_spans(),
            "has_open_files": receiver.has_open_files(), "is_urgent": receiver.is_urgent(),
            "in_place": in_place.map(|name| hex(name)).collect::<Vec<_>>(),
        });
        let Value::Object(state) = state else { unreachable!("an object") };
        state
    }
}

/// State of a span, as the sender of an honest session knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SpanState {
    Missing,
    Written(StreamId),
    Verified,
}

/// File that is offered and not settled.
pub struct Taken {
    pub size_bytes: u64,
    pub grid: Option<SpanGrid>,
    pub spans: Vec<SpanState>,
    /// Spans that an earlier session left.
    pub durable: SpanSet,
    pub is_read_back: bool,
    pub is_confirmed: bool,
    /// The machine asked for the file to be committed.
    pub commits: bool,
}

impl Taken {
    pub fn is_whole(&self) -> bool {
        self.grid.is_some() && self.spans.iter().all(|span| *span == SpanState::Verified)
    }
}

/// A receiver whose calls are written down.
pub struct RecordedReceiver {
    recorder: Recorder<Named>,
    head: Map<String, Value>,
    pub files: BTreeMap<FileId, Taken>,
    /// Count of the frames of each open stream.
    pub streams: BTreeMap<StreamId, u64>,
    pub next_file: u32,
}

type Result<T = Value> = std::result::Result<T, ProtocolError>;

/// Names of which each session asks whether they are in place.
const NAMES_ASKED: u32 = 12;

impl RecordedReceiver {
    pub fn new(name: &str, offers_max: u32, offer_bytes_max: u64) -> Self {
        Self::naming(name, (offers_max, offer_bytes_max), TargetPath::default(), Repeats::default())
    }

    pub fn naming(name: &str, offers: (u32, u64), path: TargetPath, repeats: Repeats) -> Self {
        let (offers_max, offer_bytes_max) = offers;
        let names: Vec<Vec<u8>> =
            (0..NAMES_ASKED).map(|number| format!("file-{number}").into_bytes()).collect();
        let head = json!({
            "name": name, "offers_max": offers_max, "offer_bytes_max": offer_bytes_max,
            "path": match path {
                TargetPath::Directory => "directory",
                TargetPath::NameOfOneSource => "name_of_one_source",
            },
            "repeats": match repeats {
                Repeats::Refused => "refused",
                Repeats::OnceSettled => "once_settled",
            },
            "names": names.iter().map(|name| hex(name)).collect::<Vec<_>>(),
        });
        let Value::Object(head) = head else { unreachable!("an object") };
        let receiver = Receiver::new(offers_max, offer_bytes_max).naming(path, repeats);
        Self {
            recorder: Recorder::new(Named { receiver, names }),
            head,
            files: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_file: 0,
        }
    }

    pub fn finish(self) -> Value {
        self.recorder.finish(self.head)
    }

    pub fn machine(&self) -> &Receiver {
        &self.recorder.machine().receiver
    }

    pub fn take_messages(&mut self) -> Vec<Message> {
        let messages = self.recorder.take_messages();
        for message in &messages {
            if let Message::FileSettled(settled) = message {
                self.files.remove(&settled.file);
            }
        }
        messages
    }

    fn call(
        &mut self,
        name: &str,
        arguments: Value,
        run: impl FnOnce(&mut Receiver) -> Result,
    ) -> Result {
        let Said { result, events } =
            self.recorder.call(name, arguments, |named| run(&mut named.receiver));
        for event in events {
            match event {
                ReceiverEvent::Offered(offer) => {
                    let taken = Taken {
                        size_bytes: offer.size_bytes,
                        grid: None,
                        spans: Vec::new(),
                        durable: SpanSet::default(),
                        is_read_back: false,
                        is_confirmed: false,
                        commits: false,
                    };
                    self.files.insert(offer.file, taken);
                }
                ReceiverEvent::GivenUp { file, .. } => drop(self.files.remove(&file)),
                ReceiverEvent::Commit(file) => {
                    let file = self.files.get_mut(&file).expect("an open file");
                    (file.commits, file.is_confirmed) = (true, true);
                }
                _ => {}
            }
        }
        result
    }

    /// Calls the machine for what cannot fail and gives nothing back.
    fn tell(&mut self, name: &str, arguments: Value, run: impl FnOnce(&mut Receiver)) {
        let tell = |receiver: &mut Receiver| {
            run(receiver);
            Ok(Value::Null)
        };
        self.call(name, arguments, tell).expect("cannot fail");
    }

    pub fn answer(&mut self, file: FileId, answer: Answer) -> Result {
        let arguments = json!({"file": file.0, "answer": answer_form(file, &answer)});
        let result = self.call("answer", arguments, |receiver| {
            receiver.answer(file, answer.clone()).map(|()| Value::Null)
        });
        let Some(taken) = self.files.get_mut(&file).filter(|_| result.is_ok()) else {
            return result;
        };
        if let Answer::Need { span_bytes, durable, earlier, .. } = answer {
            taken.grid = SpanGrid::new(taken.size_bytes, span_bytes).ok();
            taken.is_read_back = earlier.is_read_back;
            taken.durable = durable.clone();
            let state = |span| match durable.contains(SpanIndex(span)) {
                true => SpanState::Verified,
                false => SpanState::Missing,
            };
            taken.spans = (0..durable.file_spans()).map(state).collect();
        } else {
            self.files.remove(&file);
        }
        result
    }

    pub fn stream_opened(&mut self, stream: u32) -> Result {
        let opened = self.call("stream_opened", json!({"stream": stream}), |receiver| {
            receiver.stream_opened(StreamId(stream)).map(|()| Value::Null)
        });
        if opened.is_ok() {
            self.streams.insert(StreamId(stream), 0);
        }
        opened
    }

    pub fn stream_closed(&mut self, stream: u32) {
        let stream = StreamId(stream);
        self.tell("stream_closed", json!({"stream": stream.0}), |receiver| {
            receiver.stream_closed(stream);
        });
        self.streams.remove(&stream);
        for span in self.files.values_mut().flat_map(|file| &mut file.spans) {
            if *span == SpanState::Written(stream) {
                *span = SpanState::Missing;
            }
        }
    }

    /// Opens and closes streams of these numbers.
    pub fn open_and_close(&mut self, first: u32, count: u32) {
        let arguments = json!({"first": first, "count": count});
        self.recorder.call_many("open_and_close", arguments, |named| {
            for stream in (first..first + count).map(StreamId) {
                named.receiver.stream_opened(stream).expect("a new stream");
                named.receiver.stream_closed(stream);
            }
        });
    }

    pub fn pack_starts(&mut self, stream: u32, pack: PackHeader) -> Result {
        let header = hex(&FrameHeader::Pack(pack).encode());
        self.call("pack_starts", json!({"stream": stream, "header": header}), |receiver| {
            receiver.pack_starts(StreamId(stream), &pack).map(|()| Value::Null)
        })
    }

    pub fn span_starts(&mut self, stream: u32, span: SpanHeader) -> Result<Permit> {
        let mut permit = None;
        let stream = StreamId(stream);
        let arguments = json!({
            "stream": stream.0, "header": hex(&FrameHeader::Span(span).encode()),
        });
        let result = self.call("span_starts", arguments, |receiver| {
            let given = receiver.span_starts(stream, &span)?;
            permit = Some(given);
            Ok(match given {
                Permit::Write(span) => json!({"write": span.0}),
                Permit::Discard => json!("discard"),
            })
        });
        let is_length = (1..=limits::SPAN_BYTES_MAX).contains(&span.len_bytes);
        let frames = self.streams.get_mut(&stream).filter(|_| is_length && span.stream == stream);
        // A frame that is refused for its file or its span is counted all the same.
        if let Some(frames) = frames.filter(|frames| **frames == span.sequence) {
            *frames += 1;
        }
        result?;
        let permit = permit.expect("it did not fail");
        if let Permit::Write(SpanIndex(at)) = permit {
            let file = self.files.get_mut(&span.file).expect("an open file");
            file.spans[at as usize] = SpanState::Written(stream);
        }
        Ok(permit)
    }

    pub fn span_ended(&mut self, stream: StreamId, file: FileId, span: SpanIndex, end: SpanEnd) {
        let (named, state) = match end {
            SpanEnd::Verified => ("verified", SpanState::Verified),
            SpanEnd::Confirmed => ("confirmed", SpanState::Verified),
            SpanEnd::Damaged => ("damaged", SpanState::Missing),
            SpanEnd::Abandoned => ("abandoned", SpanState::Missing),
        };
        let arguments = json!({
            "stream": stream.0, "file": file.0, "span": span.0, "end": named,
        });
        self.tell("span_ended", arguments, |receiver| {
            receiver.span_ended(stream, file, span, end);
        });
        let spans = self.files.get_mut(&file).and_then(|file| file.spans.get_mut(span.0 as usize));
        if let Some(span) = spans.filter(|span| **span == SpanState::Written(stream)) {
            *span = state;
        }
    }

    pub fn read_back(&mut self, file: FileId, lost: &SpanSet) {
        let arguments = json!({
            "file": file.0, "file_spans": lost.file_spans(), "lost": set_form(lost),
        });
        self.tell("read_back", arguments, |receiver| receiver.read_back(file, lost));
        let Some(taken) = self.files.get_mut(&file).filter(|taken| taken.is_read_back) else {
            return;
        };
        taken.is_read_back = false;
        taken.is_confirmed &= lost.is_empty();
        for span in lost.iter() {
            taken.spans[span.0 as usize] = SpanState::Missing;
        }
    }

    pub fn file_failed(&mut self, file: FileId, fault: message::Fault) {
        let arguments = json!({"file": file.0, "fault": fault_form(&fault)});
        self.tell("file_failed", arguments, |receiver| receiver.file_failed(file, fault));
        self.files.remove(&file);
    }

    pub fn committed(&mut self, file: FileId, fault: Option<message::Fault>) {
        let arguments = json!({"file": file.0, "fault": fault.as_ref().map(fault_form)});
        self.tell("committed", arguments, |receiver| {
            receiver.committed(file, fault.map_or(Ok(()), Err));
        });
        self.files.remove(&file);
    }

    pub fn progress(&mut self, progress: message::Progress) {
        let message = message_form(&Message::Progress(progress.clone()));
        self.tell("progress", json!({"message": message}), |receiver| receiver.progress(progress));
    }

    pub fn removed(&mut self, names: Vec<Vec<u8>>) {
        let message = Message::Removed(message::Removed { names: names.clone() });
        let arguments = json!({"message": message_form(&message)});
        self.tell("removed", arguments, |receiver| receiver.removed(names));
    }

    pub fn notice(&mut self, notice: message::Notice) {
        let message = message_form(&Message::Notice(notice.clone()));
        self.tell("notice", json!({"message": message}), |receiver| receiver.notice(notice));
    }

    pub fn say_goodbye(&mut self, report: message::SideReport) {
        let finish = message::Finish { report: Some(report.clone()) };
        let arguments = json!({"message": message_form(&Message::Finish(finish))});
        self.tell("finish", arguments, |receiver| receiver.finish(report));
    }

    pub fn handle(&mut self, message: Message) -> Result {
        let arguments = json!({"message": message_form(&message)});
        let heard = message.clone();
        let result = self
            .call("handle", arguments, |receiver| receiver.handle(message).map(|()| Value::Null));
        match heard {
            Message::FileOffer(_) if result.is_ok() => self.next_file += 1,
            Message::FileConfirm(message::FileConfirm { file, fault: None }) if result.is_ok() => {
                if let Some(taken) = self.files.get_mut(&file).filter(|taken| taken.is_whole()) {
                    taken.is_confirmed = true;
                }
            }
            _ => {}
        }
        result
    }
}

fn fault_form(fault: &message::Fault) -> Value {
    message_form(&Message::Refused(fault.clone()))
}

/// Answer as it is given to the machine: a need in its parts, others as the message that they are.
fn answer_form(file: FileId, answer: &Answer) -> Value {
    use message::Answer as Said;
    let said = match answer {
        Answer::Need { span_bytes, durable, stored_as, earlier } => {
            let Earlier { ctime, digest, is_read_back } = earlier;
            return json!({"need": {
                "span_bytes": span_bytes, "file_spans": durable.file_spans(),
                "durable": set_form(durable), "stored_as": hex(stored_as), "ctime_s": ctime.0,
                "ctime_ns": ctime.1, "digest": digest.map(|digest| hex(&digest)),
                "is_read_back": is_read_back,
            }});
        }
        Answer::Skip => Said::Skip,
        Answer::Fault(fault) => Said::Fault(fault.clone()),
        Answer::Compare(compare) => Said::Compare(*compare),
        Answer::Plan(plan) => Said::Plan(plan.clone()),
    };
    message_form(&Message::FileAnswer(message::FileAnswer { file, answer: said }))
}
