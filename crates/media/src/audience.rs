//! Audiences of films: the number of answers that each has now, all loops together.
//!
//! It tells a popular film from one that a single viewer watches.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::site::Identity;

/// Number of listed films above which those without an audience are forgotten.
const EMPTY_MAX: usize = 1024;

/// The audience of one film.
#[derive(Debug, Default)]
pub struct Audience(AtomicUsize);

impl Audience {
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One answer's seat in the audience of a film, until it is dropped.
#[derive(Debug)]
pub struct Seat(Arc<Audience>);

impl Seat {
    #[must_use]
    pub fn audience(&self) -> &Arc<Audience> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The audiences of all films.
#[derive(Debug, Default)]
pub struct Audiences {
    films: Mutex<HashMap<Identity, Weak<Audience>>>,
}

impl Audiences {
    #[must_use]
    pub fn take_seat(&self, film: Identity) -> Seat {
        let mut films = self.films.lock().unwrap_or_else(PoisonError::into_inner);
        if films.len() > EMPTY_MAX {
            films.retain(|_, audience| audience.strong_count() > 0);
        }
        let audience = films.get(&film).and_then(Weak::upgrade).unwrap_or_else(|| {
            let audience = Arc::new(Audience::default());
            films.insert(film, Arc::downgrade(&audience));
            audience
        });
        audience.0.fetch_add(1, Ordering::Relaxed);
        Seat(audience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_watch_the_same_film_are_counted_and_those_who_left_are_not() {
        let audiences = Audiences::default();
        let first = audiences.take_seat((1, 1));
        let second = audiences.take_seat((1, 1));
        let other = audiences.take_seat((1, 2));
        assert_eq!((first.audience().count(), other.audience().count()), (2, 1));
        drop(second);
        assert_eq!(first.audience().count(), 1);
        drop(first);
        assert_eq!(audiences.take_seat((1, 1)).audience().count(), 1);
    }
}
