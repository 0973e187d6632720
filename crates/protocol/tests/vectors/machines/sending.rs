//! Calls of the sending machine, each written down, and what the peer of one knows.

use super::recorder::{Machine, Recorder, Said, awaited_form, message_form, set_form};
use crate::hex::hex;
use haul_protocol::{
    FileId, Message, ProtocolError, Sender, SenderEvent, SpanIndex, StreamId, message,
    sender::{Assignment, FileOutcome},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

impl Machine for Sender {
    type Event = SenderEvent;

    fn poll_message(&mut self) -> Option<Message> {
        self.poll_message()
    }

    fn poll_event(&mut self) -> Option<SenderEvent> {
        self.poll_event()
    }

    fn event_form(event: &SenderEvent) -> Value {
        use SenderEvent as Event;
        match event {
            Event::Resumed { file, bytes, span_bytes, earlier } => json!({"resumed": {
                "file": file.0, "bytes": bytes, "span_bytes": span_bytes,
                "durable": set_form(&earlier.durable), "ctime_s": earlier.ctime.0,
                "ctime_ns": earlier.ctime.1,
                "digest": earlier.digest.map(|digest| hex(&digest)),
            }}),
            Event::Lost { file, bytes } => json!({"lost": {"file": file.0, "bytes": bytes}}),
            Event::StoredAs { file, name } => {
                json!({"stored_as": {"file": file.0, "name": hex(name)}})
            }
            Event::Removed(names) => {
                json!({"removed": names.iter().map(|name| hex(name)).collect::<Vec<_>>()})
            }
            Event::CheckSource(file) => json!({"check_source": file.0}),
            Event::SpanDamaged { file, span, stream } => {
                json!({"span_damaged": {"file": file.0, "span": span.0, "stream": stream.0}})
            }
            Event::StreamClosed(stream) => json!({"stream_closed": stream.0}),
            Event::Settled { file, outcome, source_failed } => json!({"settled": {
                "file": file.0, "outcome": outcome_form(*file, outcome),
                "source_failed": source_failed,
            }}),
            Event::Progress(progress) => {
                json!({"progress": message_form(&Message::Progress(progress.clone()))})
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
        let awaiting: Vec<u32> = (0..STREAMS_ASKED_MAX)
            .filter(|stream| self.awaits_acknowledgement(StreamId(*stream)))
            .collect();
        let state = json!({
            "may_offer": self.may_offer(), "verified_bytes": self.verified_bytes(),
            "has_files": self.has_files(), "all_settled": self.all_settled(),
            "awaits": awaited_form(self.awaits()), "has_pending": self.has_pending(),
            "open_streams": self.open_streams().map(|stream| stream.0).collect::<Vec<_>>(),
            "awaiting_acknowledgement": awaiting,
        });
        let Value::Object(state) = state else { unreachable!("an object") };
        state
    }
}

/// Streams from 0 on that are asked whether they await an acknowledgement.
pub const STREAMS_ASKED_MAX: u32 = 16;

/// Outcome of an offer; what an answer brought is that message.
fn outcome_form(file: FileId, outcome: &FileOutcome) -> Value {
    use message::Answer;
    let answer = |answer| Message::FileAnswer(message::FileAnswer { file, answer });
    match outcome {
        FileOutcome::Done => json!("done"),
        FileOutcome::Skipped => json!("skipped"),
        FileOutcome::Failed(fault) => {
            json!({"failed": message_form(&Message::Refused(fault.clone()))})
        }
        FileOutcome::Compare(compare) => {
            json!({"compare": message_form(&answer(Answer::Compare(*compare)))})
        }
        FileOutcome::Planned(plan) => {
            json!({"planned": message_form(&answer(Answer::Plan(plan.clone())))})
        }
    }
}

/// File that is offered and not settled, as its receiver knows it.
#[derive(Clone, Copy)]
pub struct Offered {
    pub size_bytes: u64,
    /// Size of the file's spans, once it is asked for.
    pub span_bytes: Option<u64>,
}

/// A sender whose calls are written down.
pub struct RecordedSender {
    recorder: Recorder<Sender>,
    head: Map<String, Value>,
    pub files: BTreeMap<FileId, Offered>,
    /// Spans on their way.
    pub sent: BTreeSet<(StreamId, FileId, SpanIndex)>,
    /// Spans that were called durable and never lost.
    pub durable: BTreeSet<(FileId, SpanIndex)>,
    pub streams: BTreeSet<StreamId>,
    /// Files whose source is to be looked at.
    pub to_check: BTreeSet<FileId>,
    /// Files that are confirmed, by a message or their span.
    pub confirmed: BTreeSet<FileId>,
}

type Result = std::result::Result<Value, ProtocolError>;

impl RecordedSender {
    pub fn new(name: &str, offers_max: u32, offer_bytes_max: u64) -> Self {
        let head = json!({
            "name": name, "offers_max": offers_max, "offer_bytes_max": offer_bytes_max,
        });
        let Value::Object(head) = head else { unreachable!("an object") };
        Self {
            recorder: Recorder::new(Sender::new(offers_max, offer_bytes_max)),
            head,
            files: BTreeMap::new(),
            sent: BTreeSet::new(),
            durable: BTreeSet::new(),
            streams: BTreeSet::new(),
            to_check: BTreeSet::new(),
            confirmed: BTreeSet::new(),
        }
    }

    pub fn finish(self) -> Value {
        self.recorder.finish(self.head)
    }

    pub fn machine(&self) -> &Sender {
        self.recorder.machine()
    }

    pub fn take_messages(&mut self) -> Vec<Message> {
        let messages = self.recorder.take_messages();
        for message in &messages {
            if let Message::FileConfirm(confirm) = message
                && confirm.fault.is_none()
            {
                self.confirmed.insert(confirm.file);
            }
        }
        messages
    }

    fn call(
        &mut self,
        name: &str,
        arguments: Value,
        run: impl FnOnce(&mut Sender) -> Result,
    ) -> Result {
        let Said { result, events } = self.recorder.call(name, arguments, run);
        for event in events {
            match event {
                SenderEvent::CheckSource(file) => drop(self.to_check.insert(file)),
                SenderEvent::Settled { file, .. } => {
                    self.files.remove(&file);
                    self.sent.retain(|sent| sent.1 != file);
                    self.durable.retain(|durable| durable.0 != file);
                    self.to_check.remove(&file);
                }
                SenderEvent::StreamClosed(stream) => {
                    self.streams.remove(&stream);
                    self.sent.retain(|sent| sent.0 != stream);
                }
                _ => {}
            }
        }
        result
    }

    pub fn offer(&mut self, offer: message::FileOffer) -> FileId {
        let size_bytes = offer.size_bytes;
        let arguments = json!({"message": message_form(&Message::FileOffer(offer.clone()))});
        let number = self.call("offer", arguments, |sender| Ok(sender.offer(offer).0.into()));
        let file = number.expect("an offer cannot fail").as_u64().expect("a number");
        let file = FileId(file as u32);
        self.files.insert(file, Offered { size_bytes, span_bytes: None });
        file
    }

    pub fn end_offers(&mut self, files: u64, bytes: u64) {
        let end = |sender: &mut Sender| {
            sender.end_offers(files, bytes);
            Ok(Value::Null)
        };
        self.call("end_offers", json!({"files": files, "bytes": bytes}), end).expect("cannot fail");
    }

    pub fn stream_opened(&mut self, stream: u32) -> Result {
        let opened = self.call("stream_opened", json!({"stream": stream}), |sender| {
            sender.stream_opened(StreamId(stream)).map(|()| Value::Null)
        });
        if opened.is_ok() {
            self.streams.insert(StreamId(stream));
        }
        opened
    }

    /// Opens streams of these numbers, each of which the receiver closes.
    pub fn open_and_close(&mut self, first: u32, count: u32) {
        let arguments = json!({"first": first, "count": count});
        self.recorder.call_many("open_and_close", arguments, |sender| {
            for stream in (first..first + count).map(StreamId) {
                sender.stream_opened(stream).expect("a new stream");
                let closed = message::StreamClosed { stream };
                sender.handle(Message::StreamClosed(closed)).expect("an open stream");
            }
        });
    }

    pub fn drop_stream(&mut self, stream: u32, why: &str) {
        let drop = |sender: &mut Sender| {
            sender.drop_stream(StreamId(stream), why);
            Ok(Value::Null)
        };
        self.call("drop_stream", json!({"stream": stream, "why": why}), drop).expect("cannot fail");
    }

    pub fn next_span(&mut self, stream: u32) -> Option<(FileId, SpanIndex)> {
        let mut handed = None;
        let next = |sender: &mut Sender| {
            handed = sender.next_span(StreamId(stream));
            Ok(handed.map_or(json!("nothing"), |span| assignment_form(&span)))
        };
        self.call("next_span", json!({"stream": stream}), next).expect("cannot fail");
        let span = handed?;
        self.sent.insert((StreamId(stream), span.file, span.span));
        Some((span.file, span.span))
    }

    pub fn confirm_with_span(&mut self, file: FileId) -> bool {
        let confirm = |sender: &mut Sender| Ok(sender.confirm_with_span(file).into());
        let said = self.call("confirm_with_span", json!({"file": file.0}), confirm);
        let may = said == Ok(true.into());
        if may {
            self.confirmed.insert(file);
        }
        may
    }

    pub fn source_failed(&mut self, file: FileId, fault: message::Fault) {
        let arguments = json!({
            "file": file.0, "fault": message_form(&Message::Refused(fault.clone())),
        });
        let fail = |sender: &mut Sender| {
            sender.source_failed(file, fault);
            Ok(Value::Null)
        };
        self.call("source_failed", arguments, fail).expect("cannot fail");
    }

    pub fn source_checked(&mut self, file: FileId, fault: Option<message::Fault>) {
        self.to_check.remove(&file);
        let said = fault.clone().map(|fault| message_form(&Message::Refused(fault)));
        let check = |sender: &mut Sender| {
            sender.source_checked(file, fault.map_or(Ok(()), Err));
            Ok(Value::Null)
        };
        let arguments = json!({"file": file.0, "fault": said});
        self.call("source_checked", arguments, check).expect("cannot fail");
    }

    pub fn notice(&mut self, notice: message::Notice) {
        let arguments = json!({"message": message_form(&Message::Notice(notice.clone()))});
        let tell = |sender: &mut Sender| {
            sender.notice(notice);
            Ok(Value::Null)
        };
        self.call("notice", arguments, tell).expect("cannot fail");
    }

    pub fn say_goodbye(&mut self, report: message::SideReport) {
        let finish = Message::Finish(message::Finish { report: Some(report.clone()) });
        let say = |sender: &mut Sender| {
            sender.finish(report);
            Ok(Value::Null)
        };
        self.call("finish", json!({"message": message_form(&finish)}), say).expect("cannot fail");
    }

    pub fn handle(&mut self, message: Message) -> Result {
        let arguments = json!({"message": message_form(&message)});
        let heard = message.clone();
        let result =
            self.call("handle", arguments, |sender| sender.handle(message).map(|()| Value::Null));
        if result.is_ok() {
            self.note(heard);
        }
        result
    }

    /// Notes what the machine has believed.
    fn note(&mut self, message: Message) {
        match message {
            Message::FileAnswer(message::FileAnswer { file, answer }) => {
                let Some(offered) = self.files.get_mut(&file) else { return };
                let message::Answer::Need(need) = answer else { return };
                offered.span_bytes = Some(need.span_bytes);
                let spans =
                    need.durable.iter().flat_map(|run| run.first.0..run.first.0 + run.count);
                self.durable.extend(spans.map(|span| (file, SpanIndex(span))));
            }
            Message::SpansVerified(verified) => {
                for run in verified.spans {
                    let spans = run.first.0..run.first.0 + run.count;
                    self.sent.retain(|sent| sent.1 != verified.file || !spans.contains(&sent.2.0));
                }
            }
            Message::SpansLost(lost) => {
                self.confirmed.remove(&lost.file);
                self.to_check.remove(&lost.file);
                for run in lost.spans {
                    let spans = run.first.0..run.first.0 + run.count;
                    self.durable.retain(|span| span.0 != lost.file || !spans.contains(&span.1.0));
                }
            }
            _ => {}
        }
    }
}

fn assignment_form(next: &Assignment) -> Value {
    json!({
        "file": next.file.0, "span": next.span.0, "offset_bytes": next.offset_bytes,
        "len_bytes": next.len_bytes, "whole_file": next.whole_file,
    })
}
