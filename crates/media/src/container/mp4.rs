//! MP4, MOV and M4A: what the movie's header tells, or its fragments (ISO/IEC 14496-12).
//!
//! Looked for are, in the order of the file: the movie (`moov`), wherever it stands; of a movie in
//! fragments its whole duration (`mehd`), or an index (`sidx`), or the fragments' own times.

mod boxes;
mod fragments;
mod index;
mod movie;

use std::time::Duration;

use super::{excerpts::Excerpts, in_proportion, scaled};
use boxes::Boxes;
use index::Index;
use movie::Movie;

/// Most boxes looked at behind the movie: the pictures and sounds of most films follow it, or a box
/// that is free.
const BEHIND_MOVIE_MAX: u32 = 8;
/// Kinds of the box that files of this family begin with.
const FIRST: [&[u8; 4]; 12] = [
    b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"sidx", b"free", b"skip", b"wide", b"pnot",
    b"emsg", b"prft",
];

pub fn is_it(excerpts: &mut Excerpts) -> bool {
    excerpts.array(4).is_some_and(|kind: [u8; 4]| FIRST.contains(&&kind))
}

pub fn play_time(excerpts: &mut Excerpts) -> Option<Duration> {
    let end = excerpts.len_bytes();
    let mut boxes = Boxes::new(excerpts);
    let mut movie: Option<Movie> = None;
    let mut index: Option<Index> = None;
    let mut at = 0;
    while let Some(span) = boxes.next(at, end) {
        at = span.end;
        match &span.kind {
            b"moov" if movie.is_none() => {
                let found = Movie::read(&mut boxes, span);
                if let Some(time) = found.told() {
                    return of_what_is_there(&mut boxes, time, at, end);
                }
                movie = Some(found);
            }
            b"sidx" => {
                if let Some(found) = Index::read(boxes.excerpts, span) {
                    at = index.get_or_insert_default().add(found).unwrap_or(at);
                }
            }
            b"moof" if index.is_none() => {
                if let Some(movie) = &movie {
                    return fragments::play_time(&mut boxes, movie, span);
                }
            }
            _ => {}
        }
    }
    match index {
        // A file of many segments, each with an index: those that were not looked at are alike.
        Some(index) if at < end => scaled(index.time, index.covered_bytes, end),
        Some(index) => Some(index.time),
        None => movie?.before_fragments(),
    }
}

/// A film that is still being copied, or was cut off, plays as much of its time as it has bytes.
fn of_what_is_there(
    boxes: &mut Boxes<'_, '_>,
    time: Duration,
    from: u64,
    end: u64,
) -> Option<Duration> {
    let mut at = from;
    for _ in 0..BEHIND_MOVIE_MAX {
        let Some(span) = boxes.next(at, end) else { break };
        if span.said_end > end {
            return in_proportion(time, end, span.said_end);
        }
        at = span.end;
    }
    Some(time)
}

#[cfg(test)]
pub mod tests {
    use crate::container::{excerpts::tests::Counted, play_time_of};

    pub fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len() + 8).unwrap();
        [&size.to_be_bytes(), &kind[..], body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// `mvhd` or `mdhd` of version 0.
    fn clock(kind: &[u8; 4], ticks_per_s: u32, duration: u32) -> Vec<u8> {
        boxed(kind, &words(&[0, 1, 1, ticks_per_s, duration, 0, 0, 0, 0]))
    }

    /// `mvhd` or `mdhd` of version 1.
    fn wide_clock(kind: &[u8; 4], ticks_per_s: u32, duration: u64) -> Vec<u8> {
        let [high, low] = [(duration >> 32) as u32, duration as u32];
        boxed(kind, &words(&[1 << 24, 0, 1, 0, 1, ticks_per_s, high, low, 0, 0, 0]))
    }

    fn track(id: u32, ticks_per_s: u32, duration: u32) -> Vec<u8> {
        let media = boxed(b"mdia", &clock(b"mdhd", ticks_per_s, duration));
        boxed(b"trak", &[boxed(b"tkhd", &words(&[0, 1, 1, id, 0, duration])), media].concat())
    }

    pub fn film(ticks_per_s: u32, duration: u32) -> Vec<u8> {
        let header = clock(b"mvhd", ticks_per_s, duration);
        let movie = boxed(b"moov", &[header, track(1, ticks_per_s, duration)].concat());
        [boxed(b"ftyp", b"isom\0\0\0\0"), movie, boxed(b"mdat", &[0; 1_000])].concat()
    }

    /// A movie in fragments; `extends` is what `mvex` holds besides the defaults of track 1.
    fn fragmented_movie(extends: &[u8]) -> Vec<u8> {
        let defaults = boxed(b"trex", &words(&[0, 1, 1, 40, 0, 0]));
        let extends = boxed(b"mvex", &[extends, &defaults].concat());
        boxed(b"moov", &[clock(b"mvhd", 1_000, 0), track(1, 1_000, 0), extends].concat())
    }

    /// A fragment of 25 samples of 40 ms.
    fn fragment(begin_ms: u32, media_bytes: usize) -> Vec<u8> {
        let of_track = [
            boxed(b"tfhd", &words(&[0x02_0000, 1])),
            boxed(b"tfdt", &words(&[0, begin_ms])),
            boxed(b"trun", &words(&[0, 25])),
        ];
        let of_track = boxed(b"traf", &of_track.concat());
        let fragment = boxed(b"moof", &[boxed(b"mfhd", &words(&[0, 1])), of_track].concat());
        [fragment, boxed(b"mdat", &vec![0; media_bytes])].concat()
    }

    pub fn fragmented_film(begin_s: u32, seconds: u32) -> Vec<u8> {
        let mut film = fragmented_movie(&[]);
        for second in begin_s..begin_s + seconds {
            film.extend(fragment(second * 1_000, 8_000));
        }
        film
    }

    fn millis(bytes: &[u8]) -> Option<u128> {
        let counted = Counted::new(bytes);
        let time = play_time_of(&counted, bytes.len() as u64);
        counted.assert_bounded();
        time.map(|time| time.as_millis())
    }

    #[test]
    fn the_movies_header_tells_the_time_wherever_it_stands() {
        assert_eq!(millis(&film(600, 1_500)), Some(2_500));
        let header = boxed(b"moov", &wide_clock(b"mvhd", 90_000, 90_000 * 100_000));
        let at_end = [boxed(b"wide", &[]), boxed(b"mdat", &vec![7; 200_000]), header].concat();
        assert_eq!(millis(&at_end), Some(100_000_000));
    }

    #[test]
    fn a_film_that_is_not_whole_plays_as_long_as_what_is_there() {
        let whole = film(1_000, 60_000);
        let cut = millis(&whole[..whole.len() - 500]).unwrap();
        let expected = 60_000 * (whole.len() as u128 - 500) / whole.len() as u128;
        assert_eq!(cut, expected);
    }

    #[test]
    fn a_header_that_does_not_know_leaves_it_to_the_tracks() {
        for unknown in [0, u32::MAX] {
            let header = clock(b"mvhd", 1_000, unknown);
            let tracks = [track(1, 48_000, 96_000), track(2, 25, 75)].concat();
            assert_eq!(millis(&boxed(b"moov", &[header, tracks].concat())), Some(3_000));
            let nobody = [clock(b"mvhd", 1_000, unknown), track(1, 25, unknown)].concat();
            assert_eq!(millis(&boxed(b"moov", &nobody)), None);
        }
        let header = wide_clock(b"mvhd", 1_000, u64::MAX);
        assert_eq!(millis(&boxed(b"moov", &header)), None);
    }

    #[test]
    fn sizes_of_64_bits_and_to_the_end_of_the_file_are_followed() {
        let body = vec![0; 5_000];
        let size = (body.len() as u64 + 16).to_be_bytes();
        let long = [&words(&[1])[..], b"mdat", &size, &body].concat();
        let header = boxed(b"moov", &clock(b"mvhd", 1_000, 4_000));
        assert_eq!(millis(&[long, header].concat()), Some(4_000));
        let to_the_end = [&words(&[0])[..], b"moov", &clock(b"mvhd", 1_000, 5_000)].concat();
        assert_eq!(millis(&to_the_end), Some(5_000));
        // 5 GB of media before the header, of a file whose other bytes are zeros.
        let far = 5_000_000_000_u64;
        let head = [&words(&[1])[..], b"mdat", &far.to_be_bytes()].concat();
        let counted = Counted::new(&head);
        assert_eq!(play_time_of(&counted, far + 100), None);
        counted.assert_bounded();
    }

    #[test]
    fn fragments_tell_it_in_their_header_their_index_or_themselves() {
        let whole = fragmented_movie(&boxed(b"mehd", &words(&[0, 7_000])));
        assert_eq!(millis(&[whole, fragment(0, 100)].concat()), Some(7_000));
        assert_eq!(millis(&fragmented_film(0, 20)), Some(20_000));
        // A recording that began long before.
        assert_eq!(millis(&fragmented_film(1_000_000, 20)), Some(20_000));
        // More fragments than are looked at: as long as those that are, within a percent.
        let time = millis(&fragmented_film(0, 2_000)).unwrap();
        assert!((1_980_000..2_020_000).contains(&time), "{time}");
        // Before the first fragment is nothing: the movie's own time.
        assert_eq!(millis(&fragmented_movie(&[])), None);
    }

    #[test]
    fn an_index_is_added_up() {
        let segment = fragment(0, 1_000);
        let size = u32::try_from(segment.len()).unwrap();
        let index = |count: u32| {
            let mut fields = words(&[0, 1, 500, 0, 0, count]);
            for _ in 0..count {
                fields.extend(words(&[size, 500, 0x9000_0000]));
            }
            boxed(b"sidx", &fields)
        };
        let all = [fragmented_movie(&[]), index(30), segment.repeat(30)].concat();
        assert_eq!(millis(&all), Some(30_000));
        // One for each segment, also without a movie.
        let each = [index(1), segment.clone()].concat();
        assert_eq!(millis(&each.repeat(40)), Some(40_000));
        let time = millis(&each.repeat(2_000)).unwrap();
        assert!((1_980_000..2_020_000).contains(&time), "{time}");
        // One that promises more than there is.
        assert_eq!(millis(&index(60_000)[..1_000]), None);
    }

    #[test]
    fn the_list_at_the_end_leads_to_the_last_fragment() {
        let mut film = fragmented_film(0, 1_000);
        let last = film.len() - fragment(0, 8_000).len();
        // Two entries: a time, a place, and three numbers of a byte each.
        let entry =
            |ms: u32, at: usize| [words(&[ms, u32::try_from(at).unwrap()]), vec![1; 3]].concat();
        let list = [words(&[0, 1, 0, 2]), entry(0, 0), entry(999_000, last)].concat();
        let list = boxed(b"tfra", &list);
        let trailer = boxed(b"mfro", &words(&[0, u32::try_from(list.len() + 24).unwrap()]));
        film.extend(boxed(b"mfra", &[list, trailer].concat()));
        let counted = Counted::new(&film);
        let time = play_time_of(&counted, film.len() as u64).unwrap();
        assert_eq!(time.as_millis(), 1_000_000);
        assert!(counted.reads.get() < 10, "{} reads", counted.reads.get());
    }

    #[test]
    fn boxes_that_lie_tell_nothing_and_cost_nothing() {
        // No clock, and one that stands.
        assert_eq!(millis(&film(0, 1_000)), None);
        assert_eq!(millis(&film(1_000, 0)), None);
        // A movie of 4 GB that is not there.
        let mut huge = film(1_000, 4_000);
        let at = huge.windows(4).position(|kind| kind == b"moov").unwrap() - 4;
        huge[at..at + 4].fill(0xff);
        assert_eq!(millis(&huge), Some(4_000));
        // Sizes too small for their own head, and 2^64 - 1.
        for size in [2, 7] {
            let mut short = film(1_000, 4_000);
            short[at..at + 4].copy_from_slice(&words(&[size]));
            assert_eq!(millis(&short), None);
        }
        for size in [0_u64, 15, u64::MAX] {
            let lie = [&words(&[1])[..], b"free", &size.to_be_bytes(), &film(1, 1)].concat();
            assert_eq!(millis(&lie), None);
        }
        // 10,000 boxes within each other, and as many empty ones in a row.
        let mut nested = Vec::new();
        for depth in (1..=10_000_u32).rev() {
            nested.extend((depth * 8).to_be_bytes());
            nested.extend(b"moov");
        }
        assert_eq!(millis(&nested), None);
        assert_eq!(millis(&[boxed(b"free", &[]).repeat(10_000), film(1, 1)].concat()), None);
        // A run of 2^32 - 1 samples with times of their own.
        let mut run = fragmented_film(0, 1);
        let at = run.windows(4).position(|kind| kind == b"trun").unwrap() + 4;
        run[at..at + 8].copy_from_slice(&words(&[0x100, u32::MAX]));
        assert_eq!(millis(&run), None);
    }
}
