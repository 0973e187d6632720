//! Play time of a media file, and so its average bit rate, as its container tells it.
//!
//! [`play_time`] knows MP4, MOV and M4A (ISO/IEC 14496-12), also in fragments, WebM and Matroska
//! (RFC 9559), MPEG transport streams in packets of 188, 192 and 204 bytes, and MPEG program
//! streams (ISO/IEC 13818-1, ISO/IEC 11172-1). The format is known by the first bytes; the file's
//! name is not looked at.
//!
//! What is promised for any bytes, also for those made to harm: no panic, at most 4 MiB read in at
//! most 256 calls, at most 64 KiB at once in memory, no recursion. What is not: that a container
//! says the truth. The reads wait for the disk, so a caller that must not wait remembers the
//! answer, or asks on a thread of its own.
//!
//! The parsers are our own. docs/decisions/0022-rates-from-containers.md says which libraries were
//! looked at, and why not.

mod clock;
mod excerpts;
mod matroska;
mod mp4;
mod program_stream;
mod transport_stream;

use std::{fs::File, time::Duration};

use crate::pace::Rate;
use excerpts::{Excerpts, ReadAt};

/// Play time of `file`, which has `len_bytes`. The file's position is neither used nor moved.
///
/// `None`: not a container that is known, or one that does not tell (a live recording), or one
/// that contradicts itself, or the file cannot be read. A container that tells a part only, such
/// as fragments that are too many to be looked at, is taken to go on as it began. A film of which a
/// part is missing at the end, as while it is copied, plays as much of its time as it has bytes.
#[must_use]
pub fn play_time(file: &File, len_bytes: u64) -> Option<Duration> {
    play_time_of(file, len_bytes)
}

/// The bytes of `file` over the time that it plays, rounded up to a bit a second.
///
/// `None` where [`play_time`] tells nothing, and where the rate is none that a stream can be paced
/// to: below 1 kbit/s or above 1 Tbit/s.
#[must_use]
pub fn average_rate(file: &File, len_bytes: u64) -> Option<Rate> {
    average_rate_of(file, len_bytes)
}

fn average_rate_of(file: &dyn ReadAt, len_bytes: u64) -> Option<Rate> {
    let nanos = play_time_of(file, len_bytes)?.as_nanos();
    let bits = u128::from(len_bytes) * 8;
    let bits_per_s = (bits * 1_000_000_000).div_ceil(nanos.max(1));
    Rate::new(u64::try_from(bits_per_s).ok()?)
}

fn play_time_of(file: &dyn ReadAt, len_bytes: u64) -> Option<Duration> {
    let mut excerpts = Excerpts::new(file, len_bytes);
    let time = if mp4::is_it(&mut excerpts) {
        mp4::play_time(&mut excerpts)
    } else if matroska::is_it(&mut excerpts) {
        matroska::play_time(&mut excerpts)
    } else if program_stream::is_it(&mut excerpts) {
        program_stream::play_time(&mut excerpts)
    } else {
        transport_stream::play_time(&mut excerpts)
    };
    time.filter(|time| !time.is_zero())
}

/// Time of a number of ticks; `None` where the container counts in no time at all.
fn time_of_ticks(ticks: u64, ticks_per_s: u64) -> Option<Duration> {
    let seconds = ticks.checked_div(ticks_per_s)?;
    let rest = u128::from(ticks % ticks_per_s) * 1_000_000_000 / u128::from(ticks_per_s);
    Some(Duration::new(seconds, u32::try_from(rest).ok()?))
}

/// The time of `whole` bytes where `part` of them play for `time`. Never less than `time`.
fn scaled(time: Duration, part: u64, whole: u64) -> Option<Duration> {
    if part >= whole {
        return Some(time);
    }
    in_proportion(time, whole, part)
}

/// The time of `there` bytes, of `whole` that play for `time`.
fn in_proportion(time: Duration, there: u64, whole: u64) -> Option<Duration> {
    let nanos = time.as_nanos().checked_mul(u128::from(there))? / u128::from(whole.max(1));
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use excerpts::tests::Counted;
    use program_stream::tests::Version;
    use proptest::{collection::vec, prelude::*, sample::Index};

    /// A film of each kind of container, of 2 s.
    fn films() -> Vec<Vec<u8>> {
        vec![
            mp4::tests::film(1_000, 2_000),
            mp4::tests::fragmented_film(5, 2),
            matroska::tests::film(None, &2_000_f32.to_be_bytes()),
            transport_stream::tests::stream(0, 2),
            program_stream::tests::stream(Version::Mpeg1, 0, 2),
            program_stream::tests::stream(Version::Mpeg2, 0, 2),
        ]
    }

    #[test]
    fn each_kind_has_its_average_rate() {
        for film in films() {
            let len_bytes = film.len() as u64;
            let rate = average_rate_of(&film, len_bytes).unwrap().bits_per_s;
            let expected = (len_bytes * 4) as f64;
            assert!((rate as f64 / expected - 1.0).abs() < 0.02, "{rate} for {expected}");
        }
    }

    #[test]
    fn a_rate_that_nothing_can_be_paced_to_is_none() {
        let slow = mp4::tests::film(1, 1_000_000);
        assert!(play_time_of(&slow, slow.len() as u64).is_some());
        assert_eq!(average_rate_of(&slow, slow.len() as u64), None);
        // A bit more than 8 bits a second for each byte.
        let film = mp4::tests::film(1_000, 999);
        let len_bytes = film.len() as u64;
        let rate = Rate { bits_per_s: (len_bytes * 8_000).div_ceil(999) };
        assert_eq!(average_rate_of(&film, len_bytes), Some(rate));
    }

    #[test]
    fn other_files_tell_nothing() {
        for bytes in [&b""[..], b"a", b"<!DOCTYPE html>", &[0; 100_000], &[0xff; 100_000]] {
            assert_eq!(play_time_of(&bytes.to_vec(), bytes.len() as u64), None);
        }
        let directory = File::open("/").unwrap();
        assert_eq!(play_time(&directory, 4_096), None);
    }

    /// Tries any bytes: nothing is asked but that it ends, soon, and with a time that can be.
    fn try_out(bytes: &[u8], len_bytes: u64) {
        let counted = Counted::new(bytes);
        let _ = average_rate_of(&counted, len_bytes);
        counted.assert_bounded();
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_read_without_bound(
            head in 0_usize..8,
            mut bytes in vec(any::<u8>(), 0..3_000),
            longer in prop_oneof![0_u64..10_000, any::<u64>(), Just(u64::MAX)],
        ) {
            let heads: [&[u8]; 8] = [
                b"", b"\0\0\0\x08ftyp", b"\0\0\0\0moov", b"\0\0\0\x10moof", b"\0\0\0\x40sidx",
                &[0x1a, 0x45, 0xdf, 0xa3], &[0, 0, 1, 0xba, 0x44], &[0x47, 1, 0, 0x30, 7, 0x10],
            ];
            let head = heads[head];
            if bytes.len() > head.len() {
                bytes[..head.len()].copy_from_slice(head);
            }
            let len_bytes = (bytes.len() as u64).saturating_add(longer);
            try_out(&bytes, len_bytes);
        }

        #[test]
        fn no_change_of_a_film_makes_it_read_without_bound(
            number in 0_usize..6,
            changes in vec((any::<Index>(), prop_oneof![Just(0), Just(255), any::<u8>()]), 1..8),
            near in any::<bool>(),
            cut in any::<Index>(),
            longer in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX)],
        ) {
            let mut film = films().swap_remove(number);
            // Where the tables are, or anywhere.
            let reach = if near { film.len().min(600) } else { film.len() };
            for (at, value) in changes {
                film[at.index(reach)] = value;
            }
            try_out(&film, film.len() as u64);
            film.truncate(cut.index(film.len()));
            try_out(&film, (film.len() as u64).saturating_add(longer));
        }
    }
}
