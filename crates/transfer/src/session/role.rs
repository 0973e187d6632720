//! Loop of a session's thread on either side, and the trait of the role that it drives.

use super::listening::{Listening, Next};
use crate::{
    Interrupt,
    events::Event,
    storage::waited_for::{self, Held},
    transport::{
        control::{Control, ControlError},
        waker::Waker,
    },
};
use haul_protocol::{
    Message, ProtocolError,
    message::{self, Fault},
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The longest sleep of a session's thread.
const TURN: Duration = Duration::from_millis(100);
/// The most files under way that are looked at to find one to name.
pub(super) const LOOKED_AT_MAX: usize = 64;
const GOODBYE: Duration = Duration::from_secs(2);

/// Ways in which a session ends.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    /// Every file is settled and both sides have reported.
    Finished,
    /// One side ended the session with a reason.
    Refused(Fault),
    /// The connection was lost; another may go on.
    Lost(String),
    Interrupted,
}

/// One direction of a transfer, on one side of it.
pub trait Role {
    /// Handles a message of the peer.
    ///
    /// # Errors
    /// If the peer broke the protocol.
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError>;
    /// Does what has come up: offers, events, streams, progress.
    ///
    /// # Errors
    /// A fault that ends the session.
    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault>;
    fn poll_message(&mut self) -> Option<Message>;
    /// Takes the time when the peer last said anything.
    fn heard(&mut self, _at: Instant) {}
    /// Whether the other side still waits for what this one says at the end.
    fn has_last_word(&self) -> bool;
    /// Bytes that the role's streams have moved so far: sent and acknowledged, or received.
    fn moved_bytes(&self) -> u64 {
        0
    }
    /// Whether this session holds what another session waits for.
    fn holds(&self, _held: &Held) -> bool {
        false
    }
    /// Prepares an orderly end that the user wants: whether there will be one, so that the loop
    /// goes on until then.
    fn ends_in_order(&mut self, _now: Instant) -> bool {
        false
    }
}

#[derive(Clone, Debug)]
pub enum Pumped {
    GoOn,
    Ended(SessionEnd),
}

/// Runs a role over a control connection until the session ends; it is lost when nothing was heard
/// for `lost_after`.
pub fn drive(
    control: &mut Control,
    role: &mut dyn Role,
    waker: &Waker,
    interrupt: &Interrupt,
    lost_after: Duration,
) -> SessionEnd {
    let mut listening = Listening::new(lost_after, Instant::now());
    loop {
        let now = Instant::now();
        role.heard(control.heard_at);
        let pumped = role.pump(now);
        while let Some(message) = role.poll_message() {
            control.queue(message);
        }
        match pumped {
            Ok(Pumped::GoOn) => {}
            Ok(Pumped::Ended(end)) => {
                // Who has heard the other's last word has none of his own that matters.
                let is_heard = matches!(end, SessionEnd::Finished) && !role.has_last_word();
                let patience = if is_heard { Duration::ZERO } else { GOODBYE };
                control.close(patience);
                return end;
            }
            Err(fault) => return refuse(control, fault),
        }
        if interrupt.load(Ordering::Relaxed) && !role.ends_in_order(now) {
            control.close(GOODBYE);
            return SessionEnd::Interrupted;
        }
        let is_doubted = listening.is_doubted(control.heard_at);
        let is_waited_for = waited_for::is_waited_for(is_doubted, |held| role.holds(held));
        let waited_for = is_waited_for.then(|| role.moved_bytes());
        match listening.look(now, control.heard_at, waited_for) {
            Next::Nothing => {}
            Next::Ping => control.queue(Message::Ping(message::Ping { number: 0 })),
            Next::GiveUp(why) => return SessionEnd::Lost(why),
        }
        let messages = match control.turn(TURN, Some(waker)) {
            Ok(messages) => messages,
            Err(ControlError::Protocol(error)) => return refuse(control, error.to_fault()),
            Err(error) => return SessionEnd::Lost(error.to_string()),
        };
        for message in messages {
            let handled = match message {
                Message::Ping(ping) => {
                    control.queue(Message::Pong(ping));
                    Ok(())
                }
                Message::Pong(_) => Ok(()),
                message => role.handle(message),
            };
            if let Err(error) = handled {
                return refuse(control, error.to_fault());
            }
        }
    }
}

fn refuse(control: &mut Control, fault: Fault) -> SessionEnd {
    control.queue(Message::Refused(fault.clone()));
    control.close(GOODBYE);
    SessionEnd::Refused(fault)
}

/// Receiver of a role's events: the client's user, or the server's log.
pub type EventSink<'a> = &'a mut dyn FnMut(Event);
