//! The control connection of a probe, on either side: messages, heartbeats, and how it ends.

use crate::{
    Interrupt,
    session::listening::LOST_AFTER,
    transport::{
        control::{Control, ControlError},
        waker::Waker,
    },
};
use haul_protocol::{
    Message,
    message::{self, Fault},
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Silence after which a side asks whether the other is there.
const PING_AFTER: Duration = Duration::from_secs(5);
/// The longest wait, so that an interrupt is seen.
const TURN_MAX: Duration = Duration::from_millis(100);
const GOODBYE: Duration = Duration::from_secs(2);

/// The reason why there is nothing more to hear.
#[derive(Clone, Debug)]
pub enum Ended {
    Interrupted,
    /// The other side ended it, and said why.
    Refused(Fault),
    /// The other side broke the protocol, and was told so.
    Violated(Fault),
    Lost(String),
    /// The other side closed the connection in order, or is gone.
    Closed,
}

pub struct Talk<'a> {
    control: &'a mut Control,
    waker: Option<&'a Waker>,
    interrupt: &'a Interrupt,
    pinged_at: Instant,
}

impl<'a> Talk<'a> {
    #[must_use]
    pub fn new(
        control: &'a mut Control,
        waker: Option<&'a Waker>,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { control, waker, interrupt, pinged_at: Instant::now() }
    }

    pub fn say(&mut self, message: Message) {
        self.control.queue(message);
    }

    /// Hears what comes until this moment at the latest, and sends what was said.
    ///
    /// # Errors
    /// Says how the connection ended.
    pub fn hear(&mut self, until: Instant) -> Result<Vec<Message>, Ended> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Ended::Interrupted);
        }
        let now = Instant::now();
        let silent = now.saturating_duration_since(self.control.heard_at);
        if silent > PING_AFTER && now.saturating_duration_since(self.pinged_at) > PING_AFTER {
            self.pinged_at = now;
            self.say(Message::Ping(message::Ping { number: 0 }));
        }
        let wait = until.saturating_duration_since(now).min(TURN_MAX);
        let messages = self.control.turn(wait, self.waker).map_err(|error| match error {
            ControlError::Closed => Ended::Closed,
            ControlError::Protocol(error) => Ended::Violated(error.to_fault()),
            error => Ended::Lost(error.to_string()),
        })?;
        // Only now: whoever was busy himself has not read what had come.
        let silent = Instant::now().saturating_duration_since(self.control.heard_at);
        if silent > LOST_AFTER {
            return Err(Ended::Lost(format!("nothing heard for {} s", silent.as_secs())));
        }
        let mut heard = Vec::new();
        for message in messages {
            match message {
                Message::Ping(ping) => self.say(Message::Pong(ping)),
                Message::Pong(_) => {}
                Message::Refused(fault) => return Err(Ended::Refused(fault)),
                message => heard.push(message),
            }
        }
        Ok(heard)
    }

    /// Gives messages back that the next [`Self::hear`] is to return.
    pub fn unhear(&mut self, messages: Vec<Message>) {
        self.control.unread(messages);
    }

    /// Closes the connection, with a fault where there is one.
    pub fn close(&mut self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            self.say(Message::Refused(fault));
        }
        self.control.close(GOODBYE);
    }
}
