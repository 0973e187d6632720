//! Locks of a session, each with its place in one order. So no two threads wait for each other.
//!
//! A thread that holds a lock takes only locks that stand further down in [`rank`]. Debug
//! builds, and so all tests, refuse every other step with the two places in the source.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    panic::Location,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Place of a lock in the order in which a thread may take locks.
pub trait Rank {
    /// Number of the place, which grows in the order of taking.
    const ORDER: u8;
    /// Name of the place, for the message of a wrong step.
    const NAME: &'static str;
}

/// Places of locks in the order in which a thread takes them.
pub mod rank {
    use super::Rank;

    /// Defines the ranks, in the order in which they may be taken.
    macro_rules! ranks {
        ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
            enum Order { $($name),+ }
            $(
                $(#[$doc])*
                #[derive(Debug)]
                pub struct $name;

                impl Rank for $name {
                    const ORDER: u8 = Order::$name as u8;
                    const NAME: &'static str = stringify!($name);
                }
            )+
        };
    }

    ranks! {
        /// Rank of the server's list of sessions.
        Sessions,
        /// Rank of the session's map of open streams.
        Streams,
        /// Rank of the machine that says what a stream sends or takes next.
        Machine,
        /// Rank of a file that is being received.
        Target,
        /// Rank of the files that wait to be compared, of which a large one has a lock of its own.
        Queue,
        /// Rank of a lock below which only that of the hidden directories is taken; most locks have
        /// it.
        Leaf,
        /// Rank of the list of hidden directories, which is asked wherever a name is opened.
        Names,
    }
}

/// A mutex with a place in the order of locks.
#[derive(Debug)]
pub struct Lock<T, R = rank::Leaf> {
    mutex: Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

impl<T: Default, R> Default for Lock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, R> Lock<T, R> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { mutex: Mutex::new(value), rank: PhantomData }
    }

    /// The value, of which no other holder is left.
    pub fn into_inner(self) -> T {
        self.mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, R: Rank> Lock<T, R> {
    /// Takes the lock if no other thread holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Nobody waits here, so that the order does not matter; what is taken below it does.
        let guard = self.mutex.try_lock().ok()?;
        let held = Held::unordered(R::ORDER, R::NAME, Location::caller());
        Some(Guard { guard, held })
    }
}

/// Takes a lock. A thread that panicked while it held the lock has ended the program anyway.
///
/// # Panics
/// In a debug build, if this thread holds a lock of the same rank or of one further down.
#[track_caller]
pub fn lock<T, R: Rank>(lock: &Lock<T, R>) -> Guard<'_, T> {
    let held = Held::in_order(R::ORDER, R::NAME, Location::caller());
    Guard { guard: lock.mutex.lock().unwrap_or_else(PoisonError::into_inner), held }
}

/// A lock that is held, and what it guards.
#[derive(Debug)]
pub struct Guard<'a, T> {
    guard: MutexGuard<'a, T>,
    held: Held,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Guard<'_, T> {
    /// Lets the lock go until `condvar` is told, and takes it again.
    #[must_use]
    pub fn wait(self, condvar: &Condvar) -> Self {
        let Self { guard, held } = self;
        let guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Self { guard, held }
    }

    /// Lets the lock go until `condvar` is told or `time_max` is over, and takes it again.
    #[must_use]
    pub fn wait_timeout(self, condvar: &Condvar, time_max: Duration) -> Self {
        let Self { guard, held } = self;
        let waited = condvar.wait_timeout(guard, time_max);
        Self { guard: waited.unwrap_or_else(PoisonError::into_inner).0, held }
    }
}

#[cfg(debug_assertions)]
use checked::Held;
#[cfg(not(debug_assertions))]
use unchecked::Held;

/// Locks that this thread holds, in a debug build.
#[cfg(debug_assertions)]
mod checked {
    use std::{cell::RefCell, marker::PhantomData, panic::Location};

    #[derive(Clone, Copy, Debug)]
    struct Taken {
        order: u8,
        name: &'static str,
        place: &'static Location<'static>,
    }

    thread_local! {
        static TAKEN: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
    }

    /// A lock that this thread holds, until it is dropped; it stays on its thread.
    #[derive(Debug)]
    pub struct Held(u8, PhantomData<*const ()>);

    impl Held {
        pub fn in_order(order: u8, name: &'static str, place: &'static Location<'static>) -> Self {
            let above = TAKEN.with_borrow(|taken| taken.iter().max_by_key(|t| t.order).copied());
            if let Some(above) = above.filter(|above| above.order >= order) {
                panic!(
                    "the lock {name} is taken at {place} by a thread that holds {}, which comes \
                     after it, since {}",
                    above.name, above.place
                );
            }
            Self::unordered(order, name, place)
        }

        pub fn unordered(order: u8, name: &'static str, place: &'static Location<'static>) -> Self {
            TAKEN.with_borrow_mut(|taken| taken.push(Taken { order, name, place }));
            Self(order, PhantomData)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            TAKEN.with_borrow_mut(|taken| {
                let at = taken.iter().rposition(|taken| taken.order == self.0);
                taken.remove(at.expect("a lock that is held was taken"));
            });
        }
    }
}

/// Empty counterpart of the checks, in a release build.
#[cfg(not(debug_assertions))]
mod unchecked {
    use std::panic::Location;

    #[derive(Debug)]
    pub struct Held;

    impl Held {
        pub fn in_order(_: u8, _: &'static str, _: &'static Location<'static>) -> Self {
            Self
        }

        pub fn unordered(_: u8, _: &'static str, _: &'static Location<'static>) -> Self {
            Self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{panic::catch_unwind, sync::Arc, thread};

    #[derive(Default)]
    struct Three {
        sessions: Lock<u8, rank::Sessions>,
        machine: Lock<u8, rank::Machine>,
        leaf: Lock<u8>,
    }

    #[test]
    fn locks_are_taken_in_order_and_let_go_in_any() {
        let three = Three::default();
        let (sessions, machine) = (lock(&three.sessions), lock(&three.machine));
        let leaf = lock(&three.leaf);
        drop(machine);
        drop(sessions);
        drop(leaf);
        let _leaf = lock(&three.leaf);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_lock_out_of_order_is_refused_with_both_places() {
        let why = |step: fn(&Three)| {
            let panic = catch_unwind(|| step(&Three::default())).unwrap_err();
            *panic.downcast::<String>().unwrap()
        };
        let upwards = why(|three| {
            let _machine = lock(&three.machine);
            let _sessions = lock(&three.sessions);
        });
        assert!(upwards.contains("the lock Sessions is taken at"), "{upwards}");
        assert!(upwards.contains("holds Machine") && upwards.contains("locks.rs"), "{upwards}");
        let twice = why(|three| {
            let other = Lock::<u8>::default();
            let _one = lock(&three.leaf);
            let _other = lock(&other);
        });
        assert!(twice.contains("holds Leaf"), "{twice}");
        // What was refused left nothing behind.
        let three = Three::default();
        let _leaf = lock(&three.leaf);
    }

    #[test]
    fn a_lock_that_another_thread_holds_is_not_waited_for() {
        let shared = Arc::new(Lock::<u8>::new(1));
        let held = lock(&shared);
        let other = shared.clone();
        thread::spawn(move || assert!(other.try_lock().is_none())).join().unwrap();
        drop(held);
        assert_eq!(shared.try_lock().map(|value| *value), Some(1));
    }
}
