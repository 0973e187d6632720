//! Transcript of a run: what a machine was asked and said, a line each, alike in every language.
//!
//! The client for the JVM plays the same runs and has to write the same lines.

use haul_protocol::{
    Awaited, FileId, Message, Receiver, ReceiverEvent, Sender, SenderEvent, encode_message,
    message,
    receiver::Permit,
    sender::{Assignment, FileOutcome},
};
use std::fmt::Write as _;

/// Lines of a run, or nothing where nobody reads them.
#[derive(Debug, Default)]
pub struct Transcript(Option<String>);

impl Transcript {
    /// Makes a transcript that is kept.
    pub fn kept() -> Self {
        Self(Some(String::new()))
    }

    /// Adds a line.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            *lines += &line();
            lines.push('\n');
        }
    }

    /// Adds how a call came out.
    pub fn result<T, E>(&mut self, call: &str, result: &Result<T, E>) {
        self.note(|| format!("{call} {}", if result.is_ok() { "ok" } else { "refused" }));
    }

    pub fn message(&mut self, message: &Message) {
        self.note(|| format!("says {}", wire(message.clone())));
    }

    pub fn assignment(&mut self, next: &Assignment) {
        let Assignment { file, span, offset_bytes, len_bytes, whole_file, .. } = next;
        self.note(|| format!("next {} {} {offset_bytes} {len_bytes} {whole_file}", file.0, span.0));
    }

    pub fn permit(&mut self, permit: &Permit) {
        self.note(|| match permit {
            Permit::Write(span) => format!("writes {}", span.0),
            Permit::Discard => "discards".into(),
        });
    }

    pub fn into_text(self) -> String {
        self.0.unwrap_or_default()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

fn wire(message: Message) -> String {
    let mut bytes = Vec::new();
    encode_message(message, &mut bytes);
    hex(&bytes)
}

fn fault(fault: &message::Fault) -> String {
    wire(Message::Refused(fault.clone()))
}

fn finish(report: &message::SideReport) -> String {
    wire(Message::Finish(message::Finish { report: Some(report.clone()) }))
}

fn outcome(file: FileId, outcome: FileOutcome) -> String {
    let answer = |answer| wire(Message::FileAnswer(message::FileAnswer { file, answer }));
    match outcome {
        FileOutcome::Done => "done".into(),
        FileOutcome::Skipped => "skipped".into(),
        FileOutcome::Failed(why) => fault(&why),
        FileOutcome::Compare(compare) => answer(message::Answer::Compare(compare)),
        FileOutcome::Planned(plan) => answer(message::Answer::Plan(plan)),
    }
}

/// Line of an event of a sender.
pub fn sender_event(event: &SenderEvent) -> String {
    use SenderEvent as Event;
    match event {
        Event::Resumed { file, bytes, span_bytes, earlier } => {
            let durable = earlier.durable.count();
            format!("resumed {} {bytes} {span_bytes} {durable}", file.0)
        }
        Event::Lost { file, bytes } => format!("lost {} {bytes}", file.0),
        Event::StoredAs { file, name } => format!("stored as {} {}", file.0, hex(name)),
        Event::Removed(names) => format!("removed {}", hex(&names.concat())),
        Event::CheckSource(file) => format!("checks source {}", file.0),
        Event::SpanDamaged { file, span, stream } => {
            format!("damaged {} {} {}", file.0, span.0, stream.0)
        }
        Event::StreamClosed(stream) => format!("closed {}", stream.0),
        Event::Settled { file, outcome: how, source_failed } => {
            format!("settled {} {} {source_failed}", file.0, outcome(*file, how.clone()))
        }
        Event::Progress(progress) => format!("told {}", wire(Message::Progress(progress.clone()))),
        Event::Notice(notice) => format!("told {}", wire(Message::Notice(notice.clone()))),
        Event::Finished(report) => format!("finished {}", finish(report)),
        Event::Refused(why) => format!("refused {}", fault(why)),
    }
}

/// Line of an event of a receiver.
pub fn receiver_event(event: &ReceiverEvent) -> String {
    use ReceiverEvent as Event;
    match event {
        Event::Offered(offer) => format!("offered {}", wire(Message::FileOffer(offer.clone()))),
        Event::NameTaken { offer, fault: why } => {
            format!("taken {} {}", wire(Message::FileOffer(offer.clone())), fault(why))
        }
        Event::OffersEnd { files, bytes } => format!("offers end {files} {bytes}"),
        Event::AllVerified(file) => format!("all verified {}", file.0),
        Event::Commit(file) => format!("commit {}", file.0),
        Event::GivenUp { file, fault: why } => format!("given up {} {}", file.0, fault(why)),
        Event::CloseStream { stream, why } => format!("close {} {why}", stream.0),
        Event::Notice(notice) => format!("told {}", wire(Message::Notice(notice.clone()))),
        Event::Finished(report) => format!("finished {}", finish(report)),
        Event::Refused(why) => format!("refused {}", fault(why)),
    }
}

fn awaited(awaited: Option<Awaited>) -> &'static str {
    match awaited {
        None => "nothing",
        Some(Awaited::Offer) => "offer",
        Some(Awaited::Answer) => "answer",
        Some(Awaited::Confirmation) => "confirmation",
        Some(Awaited::StreamEnd) => "stream_end",
        Some(Awaited::Settlement) => "settlement",
        Some(Awaited::Goodbye) => "goodbye",
    }
}

/// Line of a sender's answers to all questions.
pub fn sender_state(sender: &Sender) -> String {
    let streams: Vec<u32> = sender.open_streams().map(|stream| stream.0).collect();
    format!(
        "is {} {} {} {} {} {} {streams:?}",
        sender.may_offer(),
        sender.verified_bytes(),
        sender.has_files(),
        sender.all_settled(),
        awaited(sender.awaits()),
        sender.has_pending(),
    )
}

/// Line of a receiver's answers to all questions.
pub fn receiver_state(receiver: &Receiver) -> String {
    format!(
        "is {} {} {} {} {} {}",
        receiver.may_finish(),
        receiver.is_all_confirmed(),
        awaited(receiver.awaits()),
        receiver.lacks_spans(),
        receiver.has_open_files(),
        receiver.is_urgent(),
    )
}
