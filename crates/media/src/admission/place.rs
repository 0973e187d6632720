//! A stream's place, as its connection holds it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use super::{Admission, Viewer};

/// What its connection looks at.
#[derive(Debug, Default)]
pub(super) struct PlaceState {
    pub is_borrowed: AtomicBool,
    pub is_lent: AtomicBool,
}

/// A stream's place; it is given back when this is dropped.
#[derive(Debug)]
pub struct Place {
    pub(super) admission: Arc<Admission>,
    pub(super) viewer: Option<Viewer>,
    pub(super) key: usize,
    pub(super) start_up_periods: u32,
    pub(super) state: Arc<PlaceState>,
}

impl Place {
    /// In so many periods its start-up has room.
    #[must_use]
    pub fn start_up_periods(&self) -> u32 {
        self.start_up_periods
    }

    /// It is its player's other answer's, until that has ended: no more than a beginning may be
    /// sent.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.state.is_borrowed.load(Ordering::Relaxed)
    }

    /// It is borrowed and does not become its own in time: what lacked when it came is told.
    pub fn turn_away(&self) {
        self.admission.book().turn_away(self.key);
    }

    /// Its player has begun another answer, and waits for this one's end.
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
