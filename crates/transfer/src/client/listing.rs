//! `haul ls`: what a server has below a path, name by name, and not a byte of it.
//!
//! A listing is a pull in a dry run, of which each offer is an entry, so every server has it. The
//! right to list is enough for it.

use super::{Client, connect_failure::ConnectFailure, set_up_failed, why_lost};
use crate::{
    Interrupt,
    connecting::ConnectOptions,
    error::TransferError,
    file_options::{FileOptions, OnConflict},
    name::Name,
    options::TransferOptions,
    problem::Problem,
    selection::{Effect, Rule, Selection},
    session::{
        listening::LOST_AFTER,
        role::{Pumped, Role, SessionEnd, drive},
    },
    source_name::name_of_source,
    target_names::asked_path,
    transport::waker::Waker,
    url::HaulUrl,
};
use haul_protocol::{
    Message, ProtocolError, Receiver, ReceiverEvent,
    message::{self, Direction, Fault, FaultCode, FileKind},
    receiver::Answer,
};
use std::time::{Duration, Instant};

/// Silence of a server after which it is left: a disk may take long for a large directory.
const PATIENCE: Duration = Duration::from_secs(120);

/// Depth below the path to which entries are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Entries of at most this many names: 1 is what a directory holds, 0 nothing but what the path
    /// is.
    Names(usize),
    /// Everything below the path.
    All,
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file, or what the server calls by no other name.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl EntryKind {
    fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            _ => Self::File,
        }
    }
}

/// A file, directory or link that a listing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Name of the entry below the path; empty for what the path itself is.
    pub name: Name,
    /// Whether the entry is a file, a directory or a link.
    pub kind: EntryKind,
    /// Length of a file; 0 of anything else.
    pub size_bytes: u64,
    /// Time of the last change: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Permission bits.
    pub mode: u32,
    /// Target of a symbolic link.
    pub link_target: Name,
}

/// Lists what is at a URL: first what its path is, then what that holds. Returns what could not be
/// looked at.
///
/// # Errors
/// If there is no session, nothing at that path, or the connection is lost.
pub fn list(
    url: &HaulUrl,
    depth: Depth,
    connect: &ConnectOptions,
    interrupt: &Interrupt,
    on_entry: &mut dyn FnMut(Entry),
) -> Result<Vec<Problem>, TransferError> {
    let path = asked_path(&url.path);
    let trimmed = path.strip_suffix(b"/").unwrap_or(&path);
    let own_name = name_of_source(trimmed).map_or(0, |_| 1);
    let mut options = TransferOptions { connect: connect.clone(), ..TransferOptions::default() };
    // No hard links: each name has its size.
    let on_conflict = OnConflict::KeepBoth;
    options.file_options = FileOptions { dry_run: true, on_conflict, ..FileOptions::default() };
    if let Depth::Names(names) = depth {
        let pattern = b"/*".repeat(names + own_name + 1);
        options.selection = Selection {
            rules: vec![Rule { effect: Effect::Exclude, pattern }],
            ..Selection::default()
        };
    }
    let open = message::Open {
        direction: Direction::Pull,
        paths: vec![trimmed.to_vec()],
        ..message::Open::default()
    };
    let mut client = Client::new(url, &options, open, false, interrupt)?;
    client.open.wants_figures = false;
    let mut opened = client.connect().map_err(ConnectFailure::into_start)?;
    client.say_selection(&mut opened.control);
    let granted = &opened.granted.opened;
    let mut role = Listing {
        machine: Receiver::new(granted.offers_max, granted.offer_bytes_max),
        on_entry,
        own_name,
        entries: 0,
        heard: Instant::now(),
        failed: Vec::new(),
        offers_ended: false,
        finished: false,
        refused: None,
    };
    let waker = Waker::new().map_err(|error| set_up_failed(&error))?;
    match drive(&mut opened.control, &mut role, &waker, interrupt, LOST_AFTER) {
        SessionEnd::Finished => {}
        end => {
            let why = why_lost(end, role.entries == 0)?;
            let lost = crate::error::problem(&format!("the listing broke off: {why}"), "", "", "");
            return Err(TransferError::broken(lost));
        }
    }
    match role.failed.first() {
        Some(first) if role.entries == 0 => Err(TransferError::start(first.clone())),
        _ => Ok(role.failed),
    }
}

/// The role of a listing: answers each offer with the plan to have it, and keeps to that.
struct Listing<'a> {
    machine: Receiver,
    on_entry: &'a mut dyn FnMut(Entry),
    /// Number of leading components of each name that are the path's own.
    own_name: usize,
    entries: u64,
    heard: Instant,
    failed: Vec<Problem>,
    offers_ended: bool,
    finished: bool,
    refused: Option<Fault>,
}

impl Listing<'_> {
    fn offered(&mut self, offer: message::FileOffer) -> Result<(), ProtocolError> {
        let kind = EntryKind::of(offer.kind);
        let below = match (self.own_name, offer.name.iter().position(|&byte| byte == b'/')) {
            (0, _) => offer.name,
            (_, Some(at)) => offer.name[at + 1..].to_vec(),
            (_, None) => Vec::new(),
        };
        self.entries += 1;
        (self.on_entry)(Entry {
            name: Name(below),
            kind,
            size_bytes: offer.size_bytes,
            modified: (offer.mtime_s, offer.mtime_ns),
            mode: offer.mode,
            link_target: Name(offer.link_target),
        });
        self.machine.answer(offer.file, Answer::Plan(message::Plan::default()))
    }
}

impl Role for Listing<'_> {
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
        self.heard = Instant::now();
        match message {
            Message::Figures(_) | Message::Facts(_) | Message::Explained(_) => return Ok(()),
            message => self.machine.handle(message)?,
        }
        while let Some(event) = self.machine.poll_event() {
            match event {
                ReceiverEvent::Offered(offer) => self.offered(offer)?,
                ReceiverEvent::OffersEnd { .. } => self.offers_ended = true,
                ReceiverEvent::Notice(message::Notice { fault: Some(fault), .. }) => {
                    self.failed.push(Problem::of(&fault));
                }
                ReceiverEvent::Finished(_) => self.finished = true,
                ReceiverEvent::Refused(fault) => self.refused = Some(fault),
                _ => {}
            }
        }
        if self.offers_ended {
            self.machine.finish(message::SideReport::default());
        }
        Ok(())
    }

    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault> {
        if let Some(fault) = self.refused.take() {
            return Err(fault);
        }
        if self.finished {
            return Ok(Pumped::Ended(SessionEnd::Finished));
        }
        if now.saturating_duration_since(self.heard) > PATIENCE {
            let what = "the server stopped listing";
            return Err(Fault::new(FaultCode::Stalled, message::Side::Source, what));
        }
        Ok(Pumped::GoOn)
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.machine.poll_message()
    }

    fn has_last_word(&self) -> bool {
        false
    }
}
