//! How many small files may be open at a time.
//!
//! A small file is open from its only byte run until it has its name, and many share one sync: the
//! streams wait before they open more of them than this process can have.

use rustix::process::{Resource, getrlimit};
use std::{
    sync::{Condvar, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// More than this many at a time gain nothing: a sync of as many takes longer than its fixed part.
const FILES_MAX: u64 = 4096;
/// The least, however few files this process may open.
const FILES_MIN: u64 = 16;
/// How often somebody who waits looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Gate {
    open: Mutex<u64>,
    changed: Condvar,
    most: u64,
}

fn gate() -> &'static Gate {
    static GATE: OnceLock<Gate> = OnceLock::new();
    GATE.get_or_init(|| {
        // Half of what this process may open: the rest is for sockets, sources and large files.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = (limit / 2).clamp(FILES_MIN, FILES_MAX);
        Gate { open: Mutex::new(0), changed: Condvar::new(), most }
    })
}

/// The right to have one more small file open, until it is dropped.
#[derive(Debug)]
pub struct Pass(());

impl Pass {
    /// Waits for one; `None` when `is_over` says that nobody wants it any more.
    pub fn wait(is_over: impl Fn() -> bool) -> Option<Self> {
        let gate = gate();
        let mut open = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
        while *open >= gate.most {
            if is_over() {
                return None;
            }
            let waited = gate.changed.wait_timeout(open, LOOK_EVERY);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *open += 1;
        Some(Self(()))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let gate = gate();
        *gate.open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        gate.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_the_pass_that_comes_back_or_leaves() {
        let held: Vec<Pass> = (0..gate().most).map(|_| Pass::wait(|| true).unwrap()).collect();
        assert!(Pass::wait(|| true).is_none());
        let waiting = std::thread::spawn(|| Pass::wait(|| false).is_some());
        drop(held);
        assert!(waiting.join().unwrap());
    }
}
