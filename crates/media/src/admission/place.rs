//! Place of an admitted stream, as its connection holds it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{Admission, Viewer};

/// Beginning of an answer: what comes at once, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Film that comes at once beside the first period, in time that it plays: less where its
    /// viewer has much in hand.
    pub start_up: Duration,
    /// Periods over which the start-up is spread, so that it finds room.
    pub periods: u32,
    /// Time for which nothing is sent, where the viewer has as much in hand as anybody may.
    pub wait: Duration,
}

/// State of a place that its connection and the book share.
#[derive(Debug, Default)]
pub(super) struct PlaceState {
    pub is_borrowed: AtomicBool,
    pub is_lent: AtomicBool,
    pub sent_bytes: AtomicU64,
}

/// A stream's place; it is given back when this is dropped.
#[derive(Debug)]
pub struct Place {
    pub(super) admission: Arc<Admission>,
    pub(super) viewer: Option<Viewer>,
    pub(super) key: usize,
    pub(super) start: Start,
    pub(super) state: Arc<PlaceState>,
}

impl Place {
    #[must_use]
    pub fn start(&self) -> Start {
        self.start
    }

    /// Notes how many bytes of the answer were sent by now.
    pub fn note_sent(&self, sent_bytes: u64) {
        self.state.sent_bytes.store(sent_bytes, Ordering::Relaxed);
    }

    /// Says whether the place is lent from another answer of its player: until that has ended, no
    /// more than a beginning may be sent.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.state.is_borrowed.load(Ordering::Relaxed)
    }

    /// Turns away the viewer whose borrowed place does not become its own in time, and tells what
    /// lacked.
    pub fn turn_away(&self) {
        self.admission.book().turn_away(self.key);
    }

    /// Whether the place is lent: its player has begun another answer, and waits for this one's
    /// end.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.state.is_lent.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(viewer) = self.viewer.take() {
            self.admission.book().leave(viewer, self.key, Instant::now());
        }
    }
}
