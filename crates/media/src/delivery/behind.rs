//! Drops pages behind a stream from the page cache where nobody else reads them.
//!
//! So a long film does not push popular ones out.
//!
//! The beginning of each film stays as long as the kernel keeps it: it is what new viewers wait
//! for.

use std::{
    collections::HashMap,
    num::NonZero,
    time::{Duration, Instant},
};

use haul_sys::cachestat::cached_bytes;
use rustix::{
    fs::{Advice, fadvise},
    system::sysinfo,
};

use super::{Behind, Owner, Wanted};

/// Beginning of each film that is never let go of.
pub const PREFIX_BYTES: u64 = 16 << 20;
/// Bytes of the parts in which pages go: where a page cannot go the kernel looks for it on the
/// lists of all processors, which is dear (lru_add_drain_all() in generic_fadvise()).
const STEP_BYTES: u64 = 4 << 20;
/// Most bytes that a socket, here or on the same host, may hold for long, and so what is tried
/// again.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Memory is scarce when less than this part of it is unused.
const SCARCE: u64 = 8;
const LOOK: Duration = Duration::from_secs(1);

pub struct LetGo {
    mode: Behind,
    is_scarce: bool,
    looked: Option<Instant>,
    streams: HashMap<Owner, Trail>,
}

/// Offsets in a stream's file up to which the pages behind it have gone.
#[derive(Clone, Copy)]
struct Trail {
    /// Offset before which all pages have gone.
    gone: u64,
    /// Offset up to which pages were asked to go.
    tried: u64,
}

impl LetGo {
    pub fn new(mode: Behind) -> Self {
        Self { mode, is_scarce: false, looked: None, streams: HashMap::new() }
    }

    /// Lets the pages behind a stream go, before it sends on. Pages that a socket still holds
    /// cannot go, so they are tried again with the next part.
    pub fn behind(&mut self, wanted: &Wanted<'_>) {
        if !self.lets_go() || wanted.audience.count() > 1 {
            return;
        }
        let at = wanted.range.start;
        let trail = self.streams.entry(wanted.owner).or_insert(Trail { gone: at, tried: at });
        // Who seeks back reads again.
        if at < trail.tried.max(PREFIX_BYTES) + STEP_BYTES {
            return;
        }
        let from = trail.gone.max(PREFIX_BYTES).max(at.saturating_sub(HELD_BYTES_MAX));
        let Some(len_bytes) = NonZero::new(at - from) else { return };
        let file = &wanted.file.file;
        let _ = fadvise(file, from, Some(len_bytes), Advice::DontNeed);
        trail.tried = at;
        // Who cannot tell is taken at the kernel's word.
        if cached_bytes(file, from, len_bytes.get()).map_or(true, |left| left == 0) {
            trail.gone = at;
        }
    }

    pub fn forget(&mut self, owner: Owner) {
        self.streams.remove(&owner);
    }

    fn lets_go(&mut self) -> bool {
        match self.mode {
            Behind::Keep => false,
            Behind::Drop => true,
            Behind::Auto => {
                if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
                    self.looked = Some(Instant::now());
                    let memory = sysinfo();
                    self.is_scarce = is_scarce(memory.freeram, memory.totalram);
                }
                self.is_scarce
            }
        }
    }
}

/// Whether memory is scarce; `unused` is without the page cache: a server of films that are more
/// than its memory fills it, and so it is scarce there before long.
fn is_scarce(unused: u64, all: u64) -> bool {
    unused < all / SCARCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_itself_it_lets_go_where_less_than_an_eighth_is_unused() {
        assert!(is_scarce(0, 800) && is_scarce(99, 800));
        assert!(!is_scarce(100, 800) && !is_scarce(800, 800));
        let mut auto = LetGo::new(Behind::Auto);
        for (is_scarce, looked) in [(true, Instant::now()), (false, Instant::now())] {
            (auto.is_scarce, auto.looked) = (is_scarce, Some(looked));
            assert_eq!(auto.lets_go(), is_scarce);
        }
        assert!(LetGo::new(Behind::Drop).lets_go() && !LetGo::new(Behind::Keep).lets_go());
    }
}
