//! List of the sessions that a server has open, in which a data connection finds its own.

use super::not_let_in::NotLetIn;
use crate::{
    Interrupt,
    digest::SessionKeys,
    locks::{Lock, lock, rank},
    session::streams::Streams,
};
use haul_protocol::{StreamId, frame::Preface};
use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::{Arc, atomic::Ordering, mpsc},
    time::Instant,
};

/// A session that is open, as other connections see it.
pub struct Entry {
    pub transfer: [u8; 16],
    pub token_id: String,
    pub keys: Arc<SessionKeys>,
    pub attach: mpsc::Sender<(StreamId, TcpStream)>,
    pub streams: Arc<Streams>,
    pub streams_granted: u64,
    pub interrupt: Interrupt,
    /// Whether the session is a probe and moves no files.
    pub is_probe: bool,
}

/// All sessions of a server, by their numbers.
#[derive(Default)]
pub struct Sessions {
    pub open: BTreeMap<[u8; 16], Entry>,
    pub ended_for_good: bool,
    pub cut_off_at: Option<Instant>,
}

impl Sessions {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Number of open sessions that are probes.
    pub fn probes(&self) -> usize {
        self.open.values().filter(|entry| entry.is_probe).count()
    }

    pub fn insert(&mut self, session: [u8; 16], entry: Entry) {
        self.open.insert(session, entry);
    }

    pub fn remove(&mut self, session: &[u8; 16]) -> Option<Entry> {
        self.open.remove(session)
    }

    pub fn interrupt_all(&self) {
        for entry in self.open.values() {
            entry.interrupt.store(true, Ordering::Relaxed);
            entry.streams.wake();
        }
    }

    /// Gives a data connection to its session.
    pub fn attach(&self, preface: &Preface, socket: TcpStream) -> Result<(), NotLetIn> {
        let entry = self.open.get(&preface.session).ok_or(NotLetIn::UnknownStream)?;
        if !entry.keys.verify_preface(preface) {
            return Err(NotLetIn::UnknownStream);
        }
        // Twice the agreed number: some may be about to end while others replace them.
        if !entry.streams.claim(preface.stream, entry.streams_granted * 2) {
            return Err(NotLetIn::StreamTooMany);
        }
        let _ = entry.attach.send((preface.stream, socket));
        entry.streams.wake();
        Ok(())
    }
}

/// A session's place in the list, which is given up however the session's thread ends.
///
/// A session that ends in order leaves by itself. One whose thread panics, as an event handler of
/// the program may, would stay: its transfer and its token would be taken for good, and its streams
/// would wait.
pub(super) struct Place<'a> {
    pub sessions: &'a Lock<Sessions, rank::Sessions>,
    pub session: [u8; 16],
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut sessions = lock(self.sessions);
        let Some(entry) = sessions.remove(&self.session) else { return };
        if !entry.is_probe {
            sessions.cut_off_at = Some(Instant::now());
        }
        drop(sessions);
        entry.streams.shut_all();
    }
}
