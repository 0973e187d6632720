//! A session: one control connection, its data streams, and one direction of files.
//!
//! [`drive`] is the loop of a session's thread on either side. A role ([`sending::Sending`] or
//! [`receiving::Receiving`]) holds the protocol's state machine and does what it asks for; the
//! streams have a thread each ([`send_stream`], [`receive_stream`]).

pub mod committer;
mod comparing;
pub mod contents;
mod engines;
pub mod following;
pub mod growing;
mod hard_links;
pub mod headway;
mod listening;
mod patience;
pub mod placing;
mod receive_pack;
pub mod receive_stream;
pub mod receiving;
mod removing;
mod send_pack;
pub mod send_stream;
pub mod sending;
mod sent_spans;
pub mod streams;
pub mod supply;
mod taken_up;
pub mod target_check;
mod watching;

pub use listening::LOST_AFTER;

use crate::{
    Interrupt,
    error::io_fault,
    events::{Event, FileCounts},
    problem::Problem,
    storage::waited_for::{self, Held},
    transport::{
        control::{Control, ControlError},
        waker::Waker,
    },
};
use haul_protocol::{
    Message, ProtocolError,
    wire::{self, Fault},
};
use listening::{Listening, Next};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The longest sleep of a session's thread.
const TURN: Duration = Duration::from_millis(100);
const GOODBYE: Duration = Duration::from_secs(2);

/// How a session ended.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    /// Every file is settled and both sides have reported.
    Finished,
    /// One side ended it with a reason.
    Refused(Fault),
    /// The connection was lost; another may go on.
    Lost(String),
    Interrupted,
}

/// One direction of a transfer, on one side.
pub trait Role {
    /// # Errors
    /// If the peer broke the protocol.
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError>;
    /// Does what has come up: offers, events, streams, progress.
    ///
    /// # Errors
    /// A fault that ends the session.
    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault>;
    fn poll_message(&mut self) -> Option<Message>;
    /// When the peer last said anything.
    fn heard(&mut self, _at: Instant) {}
    /// Whether the other side still waits for what this one says at the end.
    fn has_last_word(&self) -> bool;
    /// Whether another session that waits for this waits for this one.
    fn holds(&self, _held: &Held) -> bool {
        false
    }
    /// The user wants it to end: whether it does so in order, and is to go on until then.
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
        match listening.look(now, control.heard_at, is_waited_for) {
            Next::Nothing => {}
            Next::Ping => control.queue(Message::Ping(wire::Ping { number: 0 })),
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

/// What may be offered and unsettled at a time.
#[derive(Clone, Copy, Debug)]
pub struct OfferLimits {
    pub files: u32,
    /// What their offers take of memory, as [`haul_protocol::message::offer_bytes`] counts it.
    pub bytes: u64,
}

/// What one session moved, as this side counted it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What was offered, done and so on, of any kind: `offered_directories` and those below say
    /// how many of them were directories.
    pub offered_files: u64,
    pub offered_directories: u64,
    pub offered_bytes: u64,
    /// The one source is a directory: the target's path is none of its names.
    pub keeps_source_name: bool,
    /// No more is offered.
    pub total_known: bool,
    pub done_files: u64,
    pub done_directories: u64,
    pub done_bytes: u64,
    pub skipped_files: u64,
    pub skipped_directories: u64,
    pub skipped_bytes: u64,
    pub failed_files: u64,
    pub failed_directories: u64,
    pub left_out_files: u64,
    /// Removed at the target.
    pub removed_files: u64,
    /// In a dry run, what would be received.
    pub planned_files: u64,
    /// Of these, directories.
    pub planned_directories: u64,
    pub planned_bytes: u64,
    /// Of these, those that would replace something.
    pub replaced_files: u64,
    /// Removed at the source, once they were durable.
    pub sources_removed: u64,
    /// Spans that are holes: nothing of them comes.
    pub hole_bytes: u64,
    /// Durable at the receiver before this session.
    pub resumed_bytes: u64,
    /// The furthest that the receiver said it was, resumed and skipped bytes included.
    pub received_bytes: u64,
    pub durable_bytes: u64,
    /// Bytes of spans that this session verified.
    pub verified_bytes: u64,
    pub resent_spans: u64,
    pub span_bytes: u64,
    /// The first source that could not even be offered.
    pub first_problem: Option<Problem>,
}

impl Tally {
    /// Bytes that this session need not bring.
    #[must_use]
    pub fn there_before(&self) -> u64 {
        self.resumed_bytes + self.skipped_bytes + self.hole_bytes
    }

    /// What the session got on, in a unit that grows: see [`headway`].
    #[must_use]
    pub fn headway(&self) -> u64 {
        self.verified_bytes + self.done_files
    }

    /// Files and links with which nothing more is done in this session.
    #[must_use]
    pub fn settled_files(&self) -> u64 {
        let counts = self.counts();
        counts.done + counts.skipped + self.failed_files.saturating_sub(self.failed_directories)
    }

    /// Files and links that were offered, without directories.
    #[must_use]
    pub fn files_total(&self) -> u64 {
        self.offered_files.saturating_sub(self.offered_directories)
    }

    #[must_use]
    pub fn counts(&self) -> FileCounts {
        FileCounts {
            done: self.done_files.saturating_sub(self.done_directories),
            done_directories: self.done_directories,
            skipped: self.skipped_files.saturating_sub(self.skipped_directories),
            skipped_directories: self.skipped_directories,
            failed: self.failed_files,
            left_out: self.left_out_files,
            removed: self.removed_files,
            planned: self.planned_files.saturating_sub(self.planned_directories),
            planned_directories: self.planned_directories,
        }
    }

    /// Counts what would be received, in a dry run.
    pub(crate) fn plan(&mut self, offer: &wire::FileOffer, replaces: bool) {
        self.planned_files += 1;
        self.planned_directories += one_if_directory(offer);
        self.planned_bytes += offer.size_bytes;
        self.replaced_files += u64::from(replaces);
    }

    /// An offer that another one follows, of the same file.
    pub(crate) fn forget_offer(&mut self, offer: &wire::FileOffer) {
        self.offered_files = self.offered_files.saturating_sub(1);
        let directories = self.offered_directories;
        self.offered_directories = directories.saturating_sub(one_if_directory(offer));
        self.offered_bytes = self.offered_bytes.saturating_sub(offer.size_bytes);
    }

    pub(crate) fn offered(&mut self, offer: &wire::FileOffer) {
        self.offered_files += 1;
        self.offered_directories += one_if_directory(offer);
    }

    pub(crate) fn done(&mut self, offer: &wire::FileOffer) {
        self.done_files += 1;
        self.done_directories += one_if_directory(offer);
        self.done_bytes += offer.size_bytes;
    }

    pub(crate) fn skipped(&mut self, offer: &wire::FileOffer) {
        self.skipped_files += 1;
        self.skipped_directories += one_if_directory(offer);
        self.skipped_bytes += offer.size_bytes;
    }

    /// Something that was offered has failed.
    pub(crate) fn failed(&mut self, offer: &wire::FileOffer) {
        self.failed_files += 1;
        self.failed_directories += one_if_directory(offer);
    }
}

fn one_if_directory(offer: &wire::FileOffer) -> u64 {
    u64::from(offer.kind() == wire::FileKind::Directory)
}

/// Where a role's events go: the client's user, or the server's log.
pub type EventSink<'a> = &'a mut dyn FnMut(Event);

/// A fault of a directory or file system that no single file is to blame for.
pub(crate) fn io_problem_fault(side: wire::Side, what: &str, error: &std::io::Error) -> Fault {
    io_fault(side, b"", what, error)
}
