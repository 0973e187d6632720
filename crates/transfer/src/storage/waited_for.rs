//! Locks and tokens that a session of this process holds and another one waits for. They are a
//! file's lock, and a token that is for one transfer at a time.
//!
//! A client whose network was cut without a word holds both until its silence is long enough for
//! any outage. Its user, who runs the same command again, need not wait for that: who waits says so
//! here, and the session that holds asks its peer at once whether it is still there.

use crate::locks::{Guard, Lock, lock};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Waiting sessions; they are few, so a search is cheap, and none is done while there are none.
static WAITERS: Lock<Vec<Waiter>> = Lock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Sessions of this process that are ending and will let go of their locks.
pub static SESSIONS_ENDING: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// A file's lock, by number and device of the inode.
    File(u64, u64),
    TokenId(String),
}

#[derive(Debug)]
struct Waiter {
    number: usize,
    held: Held,
    is_doubted: bool,
}

/// A wait that is noted until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    number: usize,
}

impl Waiting {
    #[must_use]
    pub fn new(held: Held) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut waiters = waiters();
        waiters.push(Waiter { number, held, is_doubted: false });
        COUNT.store(waiters.len(), Ordering::Relaxed);
        Self { number }
    }

    /// Whether the holder is of this process, and has not heard its peer since it asked.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        waiters().iter().any(|waiter| waiter.number == self.number && waiter.is_doubted)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = waiters();
        waiters.retain(|waiter| waiter.number != self.number);
        COUNT.store(waiters.len(), Ordering::Relaxed);
    }
}

/// Whether anybody waits for what `holds` says is held; the waiters are told whether its holder's
/// peer is in doubt.
pub fn is_waited_for(is_doubted: bool, holds: impl Fn(&Held) -> bool) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // `holds` looks at files, which have locks of their own: none of these is taken meanwhile.
    let mut waiting: Vec<(usize, Held)> =
        waiters().iter().map(|waiter| (waiter.number, waiter.held.clone())).collect();
    waiting.retain(|(_, held)| holds(held));
    for waiter in waiters().iter_mut() {
        if waiting.iter().any(|(number, _)| *number == waiter.number) {
            waiter.is_doubted = is_doubted;
        }
    }
    !waiting.is_empty()
}

fn waiters() -> Guard<'static, Vec<Waiter>> {
    lock(&WAITERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_asked_and_only_its_waiters_are_told_of_its_doubt() {
        let held = |number| Held::File(number, u64::MAX);
        let (one, other) = (Waiting::new(held(1)), Waiting::new(held(2)));
        let token = Waiting::new(Held::TokenId("a test's own".into()));
        let asked = |is_doubted, number| is_waited_for(is_doubted, |it| *it == held(number));
        assert!(!asked(true, 3) && !one.is_doubted());
        assert!(asked(true, 1));
        assert_eq!([&one, &other, &token].map(Waiting::is_doubted), [true, false, false]);
        assert!(asked(false, 1) && !one.is_doubted());
        assert!(asked(true, 2) && other.is_doubted() && !one.is_doubted());
        drop(one);
        assert!(!asked(true, 1) && other.is_doubted());
        let is_it = |it: &Held| matches!(it, Held::TokenId(id) if id == "a test's own");
        assert!(is_waited_for(true, is_it) && token.is_doubted());
        let before = COUNT.load(Ordering::Relaxed);
        assert!(before >= 2);
        drop((other, token));
        assert!(!asked(true, 2));
    }
}
