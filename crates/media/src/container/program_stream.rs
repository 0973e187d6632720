//! MPEG program streams, as on DVDs: the system clock references of their packs.
//!
//! A pack begins with 00 00 01 BA and the clock (ISO/IEC 13818-1, 2.5.3.3; of MPEG-1, ISO/IEC
//! 11172-1, 2.4.3.2). Bits between the clock's parts are always set, by which a pack is told from
//! other bytes.

use std::time::Duration;

use super::{
    clock::{self, Reading},
    excerpts::{EXCERPT_BYTES_MAX, Excerpts},
};

const PACK_START: [u8; 4] = [0, 0, 1, 0xba];
/// Bytes of a pack's start code and clock, of both versions of MPEG.
const PACK_HEAD_BYTES: usize = 10;
/// Most bytes searched for a clock reference, which comes at least every 0.7 s (2.7.1): so far a
/// stream of 4 Mbit/s needs. In use, packs have some KiB.
const LOOK_BYTES_MAX: u64 = 384 << 10;

pub fn is_it(excerpts: &mut Excerpts) -> bool {
    excerpts.get(0, PACK_HEAD_BYTES).is_some_and(|head| ticks(head).is_some())
}

pub fn play_time(excerpts: &mut Excerpts) -> Option<Duration> {
    clock::play_time(excerpts, 0, next, last)
}

fn next(excerpts: &mut Excerpts, at: u64) -> Option<Reading> {
    let end = at.saturating_add(LOOK_BYTES_MAX);
    let mut at = at;
    while at < end {
        let chunk = excerpts.get_up_to(at, EXCERPT_BYTES_MAX)?;
        if let Some((offset, ticks)) = packs(chunk).next() {
            return Some(Reading { at: at + offset as u64, ticks });
        }
        at += step();
    }
    None
}

fn last(excerpts: &mut Excerpts) -> Option<Reading> {
    let len_bytes = excerpts.len_bytes();
    let first = len_bytes.saturating_sub(LOOK_BYTES_MAX);
    let mut end = len_bytes;
    loop {
        let at = end.saturating_sub(EXCERPT_BYTES_MAX as u64);
        let chunk = excerpts.get(at, usize::try_from(end - at).ok()?)?;
        if let Some((offset, ticks)) = packs(chunk).last() {
            return Some(Reading { at: at + offset as u64, ticks });
        }
        if at <= first {
            return None;
        }
        // What the border cut is read again.
        end = at + PACK_HEAD_BYTES as u64 - 1;
    }
}

/// Bytes from one chunk to the next: a pack that the border cuts is whole in one of them.
fn step() -> u64 {
    (EXCERPT_BYTES_MAX - PACK_HEAD_BYTES + 1) as u64
}

/// Offsets in `chunk` at which packs begin, and what their clock says.
fn packs(chunk: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let heads = chunk.windows(PACK_HEAD_BYTES).enumerate();
    heads.filter_map(|(offset, head)| Some((offset, ticks(head)?)))
}

/// The clock of a pack's head: 3, 15 and 15 bits, with a set bit behind each.
fn ticks(head: &[u8]) -> Option<u64> {
    let bytes = head.strip_prefix(&PACK_START)?;
    let bits = bytes.get(..6)?.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    // 48 bits: of MPEG-2 two of mark before the clock, of MPEG-1 four and eight fewer behind.
    let (mark_is, clock) = match bits >> 44 {
        0b0100..=0b0111 => (true, bits >> 10),
        0b0010 => (true, bits >> 8),
        _ => (false, 0),
    };
    let has_markers = clock & 1 == 1 && clock >> 16 & 1 == 1 && clock >> 32 & 1 == 1;
    let part = |shift: u32, count: u32| clock >> shift & ((1 << count) - 1);
    (mark_is && has_markers).then(|| part(33, 3) << 30 | part(17, 15) << 15 | part(1, 15))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::container::{excerpts::tests::Counted, play_time_of};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Version {
        Mpeg1,
        Mpeg2,
    }

    fn head(version: Version, ticks: u64) -> Vec<u8> {
        let [high, middle, low] = [ticks >> 30 & 7, ticks >> 15 & 0x7fff, ticks & 0x7fff];
        let clock = high << 33 | 1 << 32 | middle << 17 | 1 << 16 | low << 1 | 1;
        let bits = match version {
            Version::Mpeg1 => (0b0010 << 36 | clock) << 8 | 0x80,
            Version::Mpeg2 => (0b01 << 36 | clock) << 10 | 1,
        };
        [&PACK_START, &bits.to_be_bytes()[2..]].concat()
    }

    /// A program stream of 50 packs a second.
    pub fn stream(version: Version, first: u64, seconds: u64) -> Vec<u8> {
        let packs = (0..seconds * 50).map(|number| {
            let mut pack = head(version, (first + number * 1_800) % (1 << 33));
            pack.resize(2_048, 0x55);
            pack
        });
        packs.flatten().collect()
    }

    fn seconds(bytes: &[u8]) -> Option<u64> {
        let counted = Counted::new(bytes);
        let time = play_time_of(&counted, bytes.len() as u64);
        counted.assert_bounded();
        time.map(|time| time.as_secs_f64().round() as u64)
    }

    #[test]
    fn the_clock_of_packs_tells_the_time() {
        for version in [Version::Mpeg1, Version::Mpeg2] {
            assert_eq!(seconds(&stream(version, 12_345, 100)), Some(100));
            assert_eq!(seconds(&stream(version, (1 << 33) - 1, 100)), Some(100));
            let joined = [stream(version, 1 << 32, 50), stream(version, 0, 50)].concat();
            let time = seconds(&joined).unwrap();
            assert!((98..=102).contains(&time), "{time}");
        }
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        for version in [Version::Mpeg1, Version::Mpeg2] {
            let last = (1 << 33) - 1;
            let head = head(version, last);
            assert_eq!(ticks(&head), Some(last));
            assert_eq!(ticks(&head[..9]), None);
            for (at, bit) in [(0, 1), (4, 0x80)] {
                let mut wrong = head.clone();
                wrong[at] ^= bit;
                assert_eq!(ticks(&wrong), None);
            }
        }
    }

    #[test]
    fn packs_that_are_far_apart_tell_nothing() {
        let mut lone = head(Version::Mpeg2, 5);
        lone.resize(3_000_000, 0);
        assert_eq!(seconds(&lone), None);
        lone.extend(head(Version::Mpeg2, 900_005));
        assert_eq!(seconds(&lone), Some(10));
        assert_eq!(seconds(&head(Version::Mpeg2, 5)), None);
    }
}
