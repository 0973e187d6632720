//! Lets pages go that a stream has read and nobody else reads, so that a long film does not push
//! popular ones out of the page cache.
//!
//! The beginning of each film stays as long as the kernel keeps it: it is what new viewers wait
//! for.

use std::{
    collections::HashMap,
    num::NonZero,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Advice, fadvise},
    system::sysinfo,
};

use super::{Behind, Owner, Wanted};

/// Of each film, never let go of.
pub const PREFIX_BYTES: u64 = 16 << 20;
/// Memory is scarce when less than this part of it is unused.
const SCARCE: u64 = 8;
const LOOK: Duration = Duration::from_secs(1);

pub struct LetGo {
    mode: Behind,
    is_scarce: bool,
    looked: Option<Instant>,
    /// How far each stream's pages are gone.
    gone: HashMap<Owner, u64>,
}

impl LetGo {
    pub fn new(mode: Behind) -> Self {
        Self { mode, is_scarce: false, looked: None, gone: HashMap::new() }
    }

    /// Before a stream sends on: what it sent before has left the socket by now, as a period has
    /// passed, and pages that a socket still holds cannot go.
    pub fn behind(&mut self, wanted: &Wanted<'_>) {
        if !self.lets_go() || wanted.audience.count() > 1 {
            return;
        }
        let at = wanted.range.start;
        let from = *self.gone.entry(wanted.owner).or_insert(at);
        let from = from.max(PREFIX_BYTES);
        let Some(len_bytes) = at.checked_sub(from).and_then(NonZero::new) else { return };
        // Who seeks back reads again.
        let _ = fadvise(&wanted.file.file, from, Some(len_bytes), Advice::DontNeed);
        self.gone.insert(wanted.owner, at);
    }

    pub fn forget(&mut self, owner: Owner) {
        self.gone.remove(&owner);
    }

    fn lets_go(&mut self) -> bool {
        match self.mode {
            Behind::Keep => false,
            Behind::Drop => true,
            Behind::Auto => {
                if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
                    self.looked = Some(Instant::now());
                    let memory = sysinfo();
                    self.is_scarce = memory.freeram < memory.totalram / SCARCE;
                }
                self.is_scarce
            }
        }
    }
}
