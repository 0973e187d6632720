//! Vectors of both state machines, call by call: `vectors/machines.json`.
//!
//! Sessions are written down as this build plays them, against honest peers and others. So a change
//! of what a machine says shows as a change of the file, and a machine in another language is held
//! to the same words in the same order.

mod offers;
mod packs;
mod receiver_sessions;
mod receiving;
mod recorder;
pub mod seeded;
mod sender_sessions;
mod sending;

use super::{Depth, kind_of, list, schema, text, unhex, vectors_of_depth};
use haul_protocol::{
    Message, SpanIndex,
    message::{self, Fault, FaultCode, Side},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn fault(what: &str) -> Fault {
    Fault::new(FaultCode::IoFailed, Side::Source, what).at("file-1").hint("look there")
}

fn run(first: u32, count: u32) -> message::SpanRange {
    message::SpanRange { first: SpanIndex(first), count }
}

/// Every kind of message once, as the other vectors have it.
fn examples() -> Vec<Message> {
    let (schema, mut kinds) = (schema(), BTreeSet::new());
    let all = super::examples::messages().into_iter();
    let first = all.filter(|(_, fields)| kinds.insert(kind_of(fields)));
    first.map(|(_, fields)| super::decode(&super::wire_bytes(&schema, &fields))).collect()
}

/// Coverage of the traces of one machine.
#[derive(Default)]
struct Coverage {
    calls: BTreeSet<String>,
    errors: BTreeSet<String>,
    events: BTreeSet<String>,
    /// Kinds of the messages that were heard without an error, of those that were refused, and of
    /// those that were said.
    heard: BTreeSet<String>,
    refused: BTreeSet<String>,
    said: BTreeSet<String>,
    steps: usize,
}

impl Coverage {
    fn of(traces: &[Value]) -> Self {
        let schema = schema();
        let kind = |message: &Value| {
            let bytes = unhex(message.as_str().expect("hex"));
            let fields = schema.decode("Control", &bytes[4..]);
            match fields["file_answer"].as_object() {
                Some(answer) => {
                    let answer = answer.keys().find(|key| *key != "file").expect("an answer");
                    format!("file_answer {answer}")
                }
                None => kind_of(&fields),
            }
        };
        let mut found = Self::default();
        for step in traces.iter().flat_map(|trace| list(trace, "steps")) {
            found.steps += 1;
            found.calls.insert(text(step, "call").into());
            let error = step["error"].as_str();
            found.errors.extend(error.map(str::to_owned));
            found.events.extend(step["events"].as_array().into_iter().flatten().map(kind_of));
            found.said.extend(step["messages"].as_array().into_iter().flatten().map(kind));
            if step["call"] == "handle" {
                let heard = if error.is_some() { &mut found.refused } else { &mut found.heard };
                heard.insert(kind(&step["message"]));
            }
        }
        found
    }

    fn check(&self, events: &[&str], heard: &[&str], said: &[&str]) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        assert_eq!(self.events, names(events));
        assert_eq!(self.heard, names(heard));
        assert_eq!(self.said, names(said));
        // A kind is heard in the session or refused there; of the answers one is enough.
        let kind = |kind: &String| kind.split(' ').next().expect("a word").to_owned();
        let kinds: BTreeSet<String> = self.heard.union(&self.refused).map(kind).collect();
        assert_eq!(kinds.len(), schema().messages["Control"].len(), "{kinds:?}");
    }

    /// Checks that each error which the source of a machine holds has come up.
    fn check_errors(&self, source: &str) {
        let code = source.split("mod tests {").next().expect("a part");
        let constructed = code.split("ProtocolError::new(").skip(1);
        // A text that is put together stands behind `let what` before.
        let put_together = code.split("let what = format!(").skip(1);
        let (mut texts, mut missing) = (0, Vec::new());
        for text in constructed.chain(put_together) {
            let text = text.trim_start().trim_start_matches("format!(").trim_start();
            let Some(text) = text.strip_prefix('"').and_then(|text| text.split('"').next()) else {
                continue;
            };
            texts += 1;
            let parts: Vec<&str> = text.split(['{', '}']).step_by(2).collect();
            let is_it = |error: &String| parts.iter().all(|part| error.contains(part));
            if !self.errors.iter().any(is_it) {
                missing.push(text);
            }
        }
        assert!(missing.is_empty(), "errors that no vector has: {missing:?}");
        assert!(texts > 1, "the source says how it fails");
    }
}

const ANSWERS: [&str; 5] = [
    "file_answer compare",
    "file_answer fault",
    "file_answer need",
    "file_answer plan",
    "file_answer skip",
];

fn check_sender(traces: &[Value]) {
    let found = Coverage::of(traces);
    let events = [
        "check_source",
        "finished",
        "lost",
        "notice",
        "progress",
        "refused",
        "removed",
        "resumed",
        "settled",
        "span_damaged",
        "stored_as",
        "stream_closed",
    ];
    let reports = [
        "file_settled",
        "finish",
        "notice",
        "progress",
        "refused",
        "removed",
        "span_bad",
        "spans_lost",
        "spans_verified",
        "stream_closed",
    ];
    let said = ["file_confirm", "file_offer", "finish", "notice", "offers_end", "stream_drop"];
    found.check(&events, &[&ANSWERS[..], &reports].concat(), &said);
    found.check_errors(include_str!("../../src/sender.rs"));
    found.check_errors(include_str!("../../src/span.rs"));
    assert!((500..2000).contains(&found.steps), "{} steps", found.steps);
}

fn check_receiver(traces: &[Value]) {
    let found = Coverage::of(traces);
    let events = [
        "all_verified",
        "close_stream",
        "commit",
        "finished",
        "given_up",
        "name_taken",
        "notice",
        "offered",
        "offers_end",
        "refused",
    ];
    let heard =
        ["file_confirm", "file_offer", "finish", "notice", "offers_end", "refused", "stream_drop"];
    let reports = [
        "file_settled",
        "finish",
        "notice",
        "progress",
        "removed",
        "span_bad",
        "spans_lost",
        "spans_verified",
        "stream_closed",
    ];
    found.check(&events, &heard, &[&ANSWERS[..], &reports].concat());
    found.check_errors(include_str!("../../src/receiver.rs"));
    let of_packs = include_str!("../../src/pack.rs").split("/// Puts a pack together").next();
    found.check_errors(of_packs.expect("the check of a header"));
    assert!((500..2000).contains(&found.steps), "{} steps", found.steps);
}

const ABOUT: &str = "Sessions of both state machines, step by step. A step is a call: its \
    arguments, what it returns or how it fails (the words are free), the state where that has \
    changed, then all events, and where messages stand all that the machine has to say. Messages \
    are hex, in faults, reports and answers too: a fault is that of a refused, a report that of a \
    finish. A call that fails changes nothing, but that a frame of the right stream, number and \
    length is counted. open_and_close opens and closes that many streams one after the other, and \
    what this says is thrown away.";

#[test]
fn the_machines_do_what_the_vectors_say() {
    let (sender, receiver) = (sender_sessions::traces(), receiver_sessions::traces());
    check_sender(&sender);
    check_receiver(&receiver);
    let packs = packs::vectors();
    let errors = packs.iter().filter_map(|pack| pack["error"].as_str()).map(str::to_owned);
    let found = Coverage { errors: errors.collect(), ..Coverage::default() };
    let of_readers = include_str!("../../src/pack.rs").split("/// Takes a pack apart").nth(1);
    found.check_errors(of_readers.expect("the reader"));
    let expected = json!({"about": ABOUT, "sender": sender, "receiver": receiver, "packs": packs});
    // A line for each step of each session.
    vectors_of_depth("machines.json", &expected, Depth(4));
}
