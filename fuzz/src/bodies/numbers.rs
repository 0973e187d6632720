//! Small numbers out of bytes, which mostly hit what exists, and now and then are far out.

use haul_protocol::{FileId, SpanIndex, SpanSet, StreamId, limits, message};

/// Makes the number that a byte stands for.
pub fn number(byte: u8) -> u32 {
    match byte {
        255 => u32::MAX,
        254 => u32::MAX - 1,
        253 => 1 << 20,
        252 => (1 << 20) - 1,
        small => u32::from(small % 6),
    }
}

pub fn file(byte: u8) -> FileId {
    FileId(number(byte))
}

pub fn stream(byte: u8) -> StreamId {
    StreamId(number(byte))
}

pub fn span(byte: u8) -> SpanIndex {
    SpanIndex(number(byte))
}

/// Makes a span size: mostly the smallest.
pub fn span_bytes(byte: u8) -> u64 {
    match byte {
        255 => 0,
        254 => limits::SPAN_BYTES_MAX * 2,
        253 => limits::SPAN_BYTES_MIN + 1,
        252 => u64::MAX,
        251 => limits::SPAN_BYTES_MAX,
        250 => limits::SPAN_BYTES_MIN * 2,
        _ => limits::SPAN_BYTES_MIN,
    }
}

/// Makes a file's size: a few of the smallest spans, or nearly the largest.
pub fn size_bytes(byte: u8) -> u64 {
    match byte {
        255 => limits::FILE_BYTES_MAX,
        254 => u64::MAX,
        small => u64::from(small % 16) * limits::SPAN_BYTES_MIN / 2,
    }
}

pub fn ranges(bytes: &[(u8, u8)]) -> Vec<message::SpanRange> {
    let range = |&(first, count)| message::SpanRange { first: span(first), count: number(count) };
    bytes.iter().map(range).collect()
}

/// Lists the spans that ranges name, without those beyond any file of these tests.
pub fn spans_of(ranges: &[message::SpanRange]) -> impl Iterator<Item = SpanIndex> + '_ {
    let ends = |range: &message::SpanRange| u64::from(range.first.0) + u64::from(range.count);
    ranges
        .iter()
        .flat_map(move |range| u64::from(range.first.0)..ends(range).min(1 << 21))
        .map(|index| SpanIndex(index as u32))
}

/// Makes a set of the bits of `bits` in a file of `len` spans.
pub fn set(len: u32, bits: u8) -> SpanSet {
    let mut set = SpanSet::new(len);
    (0..len.min(8)).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| {
        set.insert(SpanIndex(bit));
    });
    set
}

pub fn fault(text: u8) -> message::Fault {
    let what = ["", "broken", "no space"][usize::from(text % 3)];
    message::Fault::new(message::FaultCode::IoFailed, message::Side::Source, what)
}
