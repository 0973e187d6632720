//! Record of what goes into a state machine and what comes out, in words of no language.

use crate::{encode, hex::hex};
use haul_protocol::{Awaited, Message, ProtocolError, SpanSet};
use serde_json::{Map, Value, json};

/// A state machine as a recorder sees it.
pub trait Machine {
    type Event;

    fn poll_message(&mut self) -> Option<Message>;
    fn poll_event(&mut self) -> Option<Self::Event>;
    fn event_form(event: &Self::Event) -> Value;
    /// Answers of all queries.
    fn state(&self) -> Map<String, Value>;
}

/// A machine of which each call is written down.
pub struct Recorder<M> {
    machine: M,
    steps: Vec<Map<String, Value>>,
    /// Answers of the queries after the last step.
    state: Map<String, Value>,
}

/// Ways in which a call comes out.
pub struct Said<E> {
    pub result: Result<Value, ProtocolError>,
    pub events: Vec<E>,
}

impl<M: Machine> Recorder<M> {
    pub fn new(machine: M) -> Self {
        Self { machine, steps: Vec::new(), state: Map::new() }
    }

    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Calls the machine, and writes down the arguments, the result, the events, and the answers
    /// of the queries that have changed.
    pub fn call(
        &mut self,
        name: &str,
        arguments: Value,
        run: impl FnOnce(&mut M) -> Result<Value, ProtocolError>,
    ) -> Said<M::Event> {
        let Value::Object(mut step) = arguments else { panic!("{name} has named arguments") };
        step.insert("call".into(), name.into());
        let result = run(&mut self.machine);
        match &result {
            Ok(Value::Null) => {}
            Ok(value) => drop(step.insert("returns".into(), value.clone())),
            Err(error) => drop(step.insert("error".into(), error.what.clone().into())),
        }
        let state = self.machine.state();
        let is_new = |(name, value): &(&String, &Value)| self.state.get(*name) != Some(*value);
        let changed =
            state.iter().filter(is_new).map(|(name, value)| (name.clone(), value.clone()));
        let changed: Map<String, Value> = changed.collect();
        self.state = state;
        if !changed.is_empty() {
            step.insert("state".into(), changed.into());
        }
        let events: Vec<M::Event> = std::iter::from_fn(|| self.machine.poll_event()).collect();
        if !events.is_empty() {
            step.insert("events".into(), events.iter().map(M::event_form).collect());
        }
        self.steps.push(step);
        Said { result, events }
    }

    /// Calls the machine many times, and writes down nothing but the state that this leaves.
    pub fn call_many(&mut self, name: &str, arguments: Value, run: impl FnOnce(&mut M)) {
        let said = self.call(name, arguments, |machine| {
            run(machine);
            while machine.poll_event().is_some() || machine.poll_message().is_some() {}
            Ok(Value::Null)
        });
        assert!(said.events.is_empty(), "{name} takes the events");
    }

    /// Takes all messages that the machine has to say, behind its last step.
    pub fn take_messages(&mut self) -> Vec<Message> {
        let messages: Vec<Message> = std::iter::from_fn(|| self.machine.poll_message()).collect();
        if let Some(step) = self.steps.last_mut() {
            // They may be taken again behind the same step.
            let said = step.entry("messages").or_insert_with(|| json!([]));
            let said = said.as_array_mut().expect("a list");
            said.extend(messages.iter().map(message_form));
        }
        messages
    }

    pub fn finish(self, mut head: Map<String, Value>) -> Value {
        head.insert("steps".into(), self.steps.into_iter().map(Value::Object).collect());
        head.into()
    }
}

/// Message as it goes over the wire.
pub fn message_form(message: &Message) -> Value {
    hex(&encode(message.clone())).into()
}

/// Set of spans as its runs: first span and count of each.
pub fn set_form(set: &SpanSet) -> Value {
    set.to_ranges().iter().map(|run| json!([run.first.0, run.count])).collect()
}

pub fn awaited_form(awaited: Option<Awaited>) -> Value {
    match awaited {
        None => "nothing",
        Some(Awaited::Offer) => "offer",
        Some(Awaited::Answer) => "answer",
        Some(Awaited::Confirmation) => "confirmation",
        Some(Awaited::StreamEnd) => "stream_end",
        Some(Awaited::Settlement) => "settlement",
        Some(Awaited::Goodbye) => "goodbye",
    }
    .into()
}
