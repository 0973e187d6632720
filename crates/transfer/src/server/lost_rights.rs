//! Watch over the tokens of sessions that run: one that is revoked or expires ends its sessions.
//!
//! It has a thread of its own, so that a disk that is slow to say the tokens holds up nobody.

use super::Server;
use crate::{locks::lock, state::SeenTokens};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

/// Interval at which a server looks at its tokens while sessions run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Server {
    /// Watches until the other end of `over` is gone.
    pub(super) fn watch_tokens(&self, over: &Receiver<()>) {
        let mut seen = SeenTokens::default();
        while over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            // Only those whose token was in the list before it is read: one that is made now is not
            // in it yet.
            let open: Vec<[u8; 16]> = lock(&self.sessions).open.keys().copied().collect();
            if !open.is_empty() && seen.look(&self.state) {
                lock(&self.sessions).end_without_right(&open, |token| seen.fault_of(token));
            }
        }
    }
}
