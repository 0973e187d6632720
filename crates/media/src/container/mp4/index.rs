//! Segment index of an MP4 file: the bytes and the time of each part of a stream (8.16.3).

use std::time::Duration;

use super::boxes::Span;
use crate::container::{excerpts::Excerpts, time_of_ticks};

const REFERENCE_BYTES: usize = 12;
/// References of an index that are read at once.
const REFERENCES: usize = 5_000;

/// One index, or those of several segments one behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Index {
    stream: u32,
    pub time: Duration,
    /// Bytes that the index covers, from the file's beginning.
    pub covered_bytes: u64,
}

impl Index {
    pub fn read(excerpts: &mut Excerpts, span: Span) -> Option<Self> {
        let [version] = excerpts.array(span.body)?;
        let stream = excerpts.u32(span.body + 4)?;
        let ticks_per_s = excerpts.u32(span.body + 8)?;
        // The earliest time and the first offset: of 4 bytes each, or 8.
        let (first_offset, at) = match version {
            0 => (excerpts.u32(span.body + 16)?.into(), span.body + 20),
            _ => (excerpts.u64(span.body + 20)?, span.body + 28),
        };
        let count = usize::from(u16::from_be_bytes(excerpts.array(at + 2)?));
        let (mut ticks, mut len_bytes) = (0_u64, 0_u64);
        for begin in (0..count).step_by(REFERENCES) {
            let at = at + 4 + (begin * REFERENCE_BYTES) as u64;
            let references = (count - begin).min(REFERENCES);
            let bytes = excerpts.get(at, references * REFERENCE_BYTES)?;
            for reference in bytes.chunks_exact(REFERENCE_BYTES) {
                let field = |at: usize| Some(u32::from_be_bytes(*reference[at..].first_chunk()?));
                // The highest bit tells an index from media.
                len_bytes += u64::from(field(0)? & 0x7fff_ffff);
                ticks += u64::from(field(4)?);
            }
        }
        let time = time_of_ticks(ticks, ticks_per_s.into())?;
        let covered_bytes = span.end.checked_add(first_offset)?.checked_add(len_bytes)?;
        Some(Self { stream, time, covered_bytes })
    }

    /// Adds the index that follows, where it is of the same stream; then says where it ends.
    pub fn add(&mut self, next: Self) -> Option<u64> {
        let is_first = self.covered_bytes == 0;
        if !is_first && self.stream != next.stream {
            return None;
        }
        *self = Self { time: self.time.checked_add(next.time)?, ..next };
        Some(self.covered_bytes)
    }
}
