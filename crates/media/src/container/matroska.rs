//! WebM and Matroska: the duration that the segment's information tells (RFC 9559, 5.1.2).
//!
//! A live recording tells none. Elements are of EBML (RFC 8794): an id, a size, a body.

use std::time::Duration;

use super::{excerpts::Excerpts, in_proportion};

const EBML: u32 = 0x1a45_dfa3;
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const CLUSTER: u32 = 0x1f43_b675;
const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const DURATION: u32 = 0x4489;
/// Nanoseconds of a tick where the file does not say.
const TIMESTAMP_SCALE_DEFAULT: u64 = 1_000_000;
/// Most elements looked at: the information stands among the first of the segment.
const ELEMENTS_MAX: u32 = 200;

#[derive(Clone, Copy, Debug)]
struct Element {
    id: u32,
    body: u64,
    /// End of the body; that of what surrounds the element, where its size is not known or more.
    end: u64,
    /// End that the element says itself, even if that is more.
    said_end: u64,
}

pub fn is_it(excerpts: &mut Excerpts) -> bool {
    excerpts.u32(0) == Some(EBML)
}

pub fn play_time(excerpts: &mut Excerpts) -> Option<Duration> {
    let mut elements = Elements { excerpts, left: ELEMENTS_MAX };
    let whole = elements.excerpts.len_bytes();
    let head = elements.next(0, whole)?;
    let segment = elements.find(SEGMENT, head.end, whole)?;
    let info = elements.find(INFO, segment.body, segment.end)?;
    let duration = elements.find(DURATION, info.body, info.end)?;
    let duration = float(elements.excerpts, duration)?;
    let scale = elements.find(TIMESTAMP_SCALE, info.body, info.end);
    let scale = match scale {
        Some(scale) => unsigned(elements.excerpts, scale)?,
        None => TIMESTAMP_SCALE_DEFAULT,
    };
    let time = Duration::try_from_secs_f64(duration * scale as f64 / 1e9).ok()?;
    // A film that is still being copied, or was cut off.
    if segment.said_end > whole { in_proportion(time, whole, segment.said_end) } else { Some(time) }
}

struct Elements<'one, 'file> {
    excerpts: &'one mut Excerpts<'file>,
    left: u32,
}

impl Elements<'_, '_> {
    /// Finds the first element of an id. None is looked for behind the first cluster, where the
    /// films themselves begin.
    fn find(&mut self, id: u32, from: u64, end: u64) -> Option<Element> {
        let mut at = from;
        loop {
            let element = self.next(at, end)?;
            if element.id == id {
                return Some(element);
            }
            if element.id == CLUSTER {
                return None;
            }
            at = element.end;
        }
    }

    fn next(&mut self, at: u64, end: u64) -> Option<Element> {
        self.left = self.left.checked_sub(1)?;
        if at >= end {
            return None;
        }
        let (id, id_bytes) = number(self.excerpts, at, Marker::Kept)?;
        let (size, size_bytes) = number(self.excerpts, at + id_bytes, Marker::Removed)?;
        let body = at + id_bytes + size_bytes;
        // All bits set: a size that was not known when it was written.
        let is_unknown = size == (1 << (7 * size_bytes)) - 1;
        let known = body.checked_add(size)?;
        let said_end = if is_unknown { end } else { known };
        Some(Element { id: u32::try_from(id).ok()?, body, end: said_end.min(end), said_end })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    Kept,
    Removed,
}

/// A number of 1 to 8 bytes and its length: one more than the zeros that lead it.
fn number(excerpts: &mut Excerpts, at: u64, marker: Marker) -> Option<(u64, u64)> {
    let [first] = excerpts.array(at)?;
    let count = first.leading_zeros() + 1;
    if count > 8 {
        return None;
    }
    let bytes = excerpts.get(at, count as usize)?;
    let value = bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let value = match marker {
        Marker::Kept => value,
        Marker::Removed => value & ((1 << (7 * count)) - 1),
    };
    Some((value, u64::from(count)))
}

fn unsigned(excerpts: &mut Excerpts, element: Element) -> Option<u64> {
    let count = usize::try_from(element.end.checked_sub(element.body)?).ok()?;
    if count > 8 {
        return None;
    }
    let bytes = excerpts.get(element.body, count)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn float(excerpts: &mut Excerpts, element: Element) -> Option<f64> {
    match element.end.checked_sub(element.body)? {
        4 => excerpts.array(element.body).map(|bytes| f32::from_be_bytes(bytes).into()),
        8 => excerpts.array(element.body).map(f64::from_be_bytes),
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::container::{excerpts::tests::Counted, play_time_of};

    fn element(id: u32, body: &[u8]) -> Vec<u8> {
        let id = id.to_be_bytes();
        let id = &id[id.iter().take_while(|byte| **byte == 0).count()..];
        let size = (body.len() as u64 | 1 << 56).to_be_bytes();
        [id, &size, body].concat()
    }

    pub fn film(scale: Option<u32>, duration: &[u8]) -> Vec<u8> {
        let scale = scale.map(|scale| element(TIMESTAMP_SCALE, &scale.to_be_bytes()));
        let info = [scale.unwrap_or_default(), element(DURATION, duration)].concat();
        let void = element(0xec, &[0; 90]);
        let body = [void, element(INFO, &info), element(CLUSTER, &[0; 1_000])].concat();
        [element(EBML, &[0x42, 0x86, 0x81, 1]), element(SEGMENT, &body)].concat()
    }

    fn millis(bytes: &[u8]) -> Option<u128> {
        let counted = Counted::new(bytes);
        let time = play_time_of(&counted, bytes.len() as u64);
        counted.assert_bounded();
        time.map(|time| time.as_millis())
    }

    #[test]
    fn the_segments_information_tells_the_time() {
        assert_eq!(millis(&film(None, &2_500_f32.to_be_bytes())), Some(2_500));
        assert_eq!(millis(&film(Some(100_000), &25_000_f64.to_be_bytes())), Some(2_500));
    }

    #[test]
    fn a_segment_whose_size_is_not_known_is_read_on() {
        let mut live = film(None, &2_500_f32.to_be_bytes());
        let at = live.windows(4).position(|id| id == SEGMENT.to_be_bytes()).unwrap();
        live[at + 4..at + 12].copy_from_slice(&[1, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(millis(&live), Some(2_500));
    }

    #[test]
    fn a_film_that_is_not_whole_plays_as_long_as_what_is_there() {
        let whole = film(None, &60_000_f32.to_be_bytes());
        let cut = millis(&whole[..whole.len() - 500]).unwrap();
        let expected = 60_000 * (whole.len() as u128 - 500) / whole.len() as u128;
        assert_eq!(cut, expected);
    }

    #[test]
    fn elements_that_lie_tell_nothing() {
        for duration in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
            assert_eq!(millis(&film(None, &duration.to_be_bytes())), None, "{duration}");
        }
        assert_eq!(millis(&film(None, &[1; 5])), None);
        let film = film(None, &2_500_f32.to_be_bytes());
        for end in 0..100 {
            assert_eq!(millis(&film[..end]), None);
        }
        assert_eq!(millis(&[&EBML.to_be_bytes()[..], &[0; 1_000]].concat()), None);
        let many = element(0xec, &[]).repeat(100_000);
        let many = [element(EBML, &[]), element(SEGMENT, &many)].concat();
        assert_eq!(millis(&many), None);
    }
}
