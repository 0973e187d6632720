//! Two endpoints of one process that have each other for a peer.
//!
//! Of such a pair the provider shm lets each use the other's memory itself, and not a mapping of
//! its own (smr_map_to_region of libfabric 1.17): whoever polls after the peer was closed reads
//! memory that is gone. So the end that goes first is closed only when its peer goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The closing of an endpoint that nobody uses any more.
type Close = Box<dyn FnOnce() + Send>;

/// Names of an endpoint and of its peer, in their provider's format.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub own: Vec<u8>,
    pub peer: Vec<u8>,
}

struct Ends {
    /// Names of the endpoints of this process that have not gone.
    open: BTreeSet<Vec<u8>>,
    /// Closings of peers, by the name of the endpoint that has to go first.
    waiting: BTreeMap<Vec<u8>, Close>,
}

static ENDS: Mutex<Ends> = Mutex::new(Ends { open: BTreeSet::new(), waiting: BTreeMap::new() });

fn ends() -> MutexGuard<'static, Ends> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers an endpoint that has a peer now.
pub(crate) fn opened(names: &Names) {
    ends().open.insert(names.own.clone());
}

/// Closes an endpoint that goes, or leaves that to its peer where both are of this process.
pub(crate) fn goes(names: &Names, close: Close) {
    let mut ends = ends();
    ends.open.remove(&names.own);
    let waited = ends.waiting.remove(&names.own);
    let now = if ends.open.contains(&names.peer) {
        ends.waiting.insert(names.peer.clone(), close);
        None
    } else {
        Some(close)
    };
    // Without the lock: libfabric may take its time.
    drop(ends);
    for close in now.into_iter().chain(waited) {
        close();
    }
}
