//! Memory of chunks that were in the page cache a moment ago.
//!
//! So not each of a film's many viewers has to ask.
//!
//! To ask costs about a tenth of what it costs to send: cachestat(2) looks at every page. Where a
//! page has gone meanwhile, sendfile(2) waits for the disk once.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    ops::Range,
    time::{Duration, Instant},
};

use crate::site::Identity;

/// Bytes of a chunk: what is in the page cache is asked by whole chunks of a file.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Time for which a chunk seen in the page cache is taken to be there.
const BELIEVED: Duration = Duration::from_secs(1);
/// Chunks that are remembered: 1 GiB of films that many watch at once. A power of two.
const PLACES: usize = 16_384;

pub struct Known {
    /// Chunks that were seen, by the hash of file and chunk; a later one takes the place.
    places: Vec<Option<Seen>>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

#[derive(Clone, Copy)]
struct Seen {
    file: Identity,
    chunk: u64,
    at: Instant,
}

impl Known {
    pub fn new() -> Self {
        Self { places: vec![None; PLACES], hasher: BuildHasherDefault::new() }
    }

    /// Whether all of a range was in the page cache lately.
    pub fn is_there(&self, file: Identity, range: &Range<u64>, now: Instant) -> bool {
        chunks(range).all(|chunk| {
            self.places[self.place(file, chunk)].is_some_and(|seen| {
                (seen.file, seen.chunk) == (file, chunk)
                    && now.saturating_duration_since(seen.at) < BELIEVED
            })
        })
    }

    /// Notes that all chunks that a range touches are in the page cache now.
    pub fn note(&mut self, file: Identity, range: &Range<u64>, now: Instant) {
        for chunk in chunks(range) {
            let place = self.place(file, chunk);
            self.places[place] = Some(Seen { file, chunk, at: now });
        }
    }

    fn place(&self, file: Identity, chunk: u64) -> usize {
        self.hasher.hash_one((file, chunk)) as usize % PLACES
    }
}

/// Widens a range to whole chunks, as far as the file goes.
pub fn outward(range: &Range<u64>, len_bytes: u64) -> Range<u64> {
    let end = range.end.next_multiple_of(CHUNK_BYTES).min(len_bytes).max(range.end);
    range.start / CHUNK_BYTES * CHUNK_BYTES..end
}

fn chunks(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILM: Identity = (1, 2);

    #[test]
    fn what_was_seen_is_believed_for_a_second_and_only_of_its_file() {
        let mut known = Known::new();
        let begun = Instant::now();
        let seen = outward(&(100_000..200_000), 1 << 30);
        assert_eq!(seen, CHUNK_BYTES..4 * CHUNK_BYTES);
        known.note(FILM, &seen, begun);
        let late = begun + Duration::from_millis(999);
        assert!(known.is_there(FILM, &(100_000..200_000), late));
        assert!(known.is_there(FILM, &seen, late));
        assert!(!known.is_there(FILM, &(100_000..262_145), late));
        assert!(!known.is_there(FILM, &(65_535..100_000), late));
        assert!(!known.is_there((1, 3), &(100_000..200_000), late));
        assert!(!known.is_there(FILM, &seen, begun + BELIEVED));
    }

    #[test]
    fn the_end_of_a_file_is_no_whole_chunk() {
        assert_eq!(outward(&(70_000..99_999), 100_000), CHUNK_BYTES..100_000);
        let mut known = Known::new();
        let now = Instant::now();
        known.note(FILM, &(CHUNK_BYTES..100_000), now);
        assert!(known.is_there(FILM, &(70_000..100_000), now));
    }

    #[test]
    fn more_than_there_are_places_for_takes_the_places_of_others() {
        let mut known = Known::new();
        let now = Instant::now();
        let all = 0..3 * PLACES as u64 * CHUNK_BYTES;
        known.note(FILM, &all, now);
        let is_there = |chunk: &u64| {
            known.is_there(FILM, &(chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES), now)
        };
        assert!((0..3 * PLACES as u64).filter(is_there).count() <= PLACES);
        assert!(!known.is_there(FILM, &all, now));
    }
}
