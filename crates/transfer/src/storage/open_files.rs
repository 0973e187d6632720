//! How many files may be open at a time, so that a process of few descriptors gets there too.
//!
//! A small file is open from its only span until it has its name, and many share one sync: the
//! streams wait before they open more of them than this process can have.

use rustix::process::{Resource, getrlimit};
use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

/// More small files than this at a time gain nothing: a sync of as many takes longer than its fixed
/// part.
const SMALL_FILES_MAX: u64 = 4096;
/// A large file has a journal and a set of its spans too.
const LARGE_FILES_MAX: u64 = 64;
/// How often somebody who waits looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Half of what this process may open is for small files being received, a quarter for large ones
/// and their journals, the rest for sockets, directories and sources.
fn descriptors() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Files of more than one span that a session opens at a time.
#[must_use]
pub fn large_files_max() -> usize {
    (descriptors() / 8).clamp(2, LARGE_FILES_MAX) as usize
}

/// Empty files that a session opens at a time, without a [`Pass`]: they have a name in a moment.
#[must_use]
pub fn empty_files_max() -> usize {
    (descriptors() / 16).clamp(1, SMALL_FILES_MAX) as usize
}

#[derive(Debug)]
struct Gate {
    open: Mutex<u64>,
    changed: Condvar,
    most: u64,
}

impl Gate {
    fn get() -> &'static Self {
        static GATE: OnceLock<Gate> = OnceLock::new();
        GATE.get_or_init(|| Self {
            open: Mutex::new(0),
            changed: Condvar::new(),
            most: (descriptors() / 2).clamp(1, SMALL_FILES_MAX),
        })
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to have one more small file open, until it is dropped.
#[derive(Debug)]
pub struct Pass(());

impl Pass {
    /// One that is free now.
    #[must_use]
    pub fn take() -> Option<Self> {
        let gate = Gate::get();
        let mut open = gate.lock();
        (*open < gate.most).then(|| {
            *open += 1;
            Self(())
        })
    }

    /// Waits for one; `None` when `is_over` says that nobody wants it any more.
    ///
    /// Who waits must have let all files that he opened go on to their names: their passes come
    /// back then.
    pub fn wait(is_over: impl Fn() -> bool) -> Option<Self> {
        let gate = Gate::get();
        let mut open = gate.lock();
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
        *Gate::get().lock() -= 1;
        Gate::get().changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_the_pass_that_comes_back_or_leaves() {
        let held: Vec<Pass> = std::iter::from_fn(Pass::take).collect();
        assert!(held.len() > 1 && Pass::wait(|| true).is_none());
        let waiting = std::thread::spawn(|| Pass::wait(|| false).is_some());
        drop(held);
        assert!(waiting.join().unwrap());
    }
}
