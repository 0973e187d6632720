//! Packs: many short spans in one piece of a stream.
//!
//! With them a small file costs no system call of its own on the wire.
//!
//! A pack is a header, and then spans as they are anywhere else: header, payload, trailer.

use crate::{
    ProtocolError, StreamId,
    frame::{FrameHeader, HEADER_BYTES, PackHeader, SpanHeader, SpanTrailer, TRAILER_BYTES},
    limits,
};
use alloc::{vec, vec::Vec};

/// Bytes that a span takes in a pack beside its payload.
pub const SPAN_OVERHEAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;

impl PackHeader {
    /// Checks a pack's header against its place in the stream and the limits.
    ///
    /// # Errors
    /// If it is not that of this stream's next frame, or says what no pack can hold.
    pub fn check(&self, stream: StreamId, sequence: u64) -> Result<(), ProtocolError> {
        if self.stream != stream || self.sequence != sequence {
            return Err(ProtocolError::new("a pack of another stream or out of its order"));
        }
        // Every span has a byte of payload at least.
        let least = u64::from(self.spans).saturating_mul(SPAN_OVERHEAD_BYTES as u64 + 1);
        if self.spans == 0 || self.len_bytes < least || self.len_bytes > limits::PACK_BYTES_MAX {
            return Err(ProtocolError::new("a pack whose length cannot be"));
        }
        Ok(())
    }
}

/// Puts a pack together; its memory is used again for the next.
#[derive(Debug)]
pub struct PackWriter {
    /// The pack's header, the spans so far, and what earlier packs left behind them: memory is not
    /// cleared for a payload that is about to be read into it.
    bytes: Vec<u8>,
    /// End of the header and the spans so far, in `bytes`.
    end: usize,
    spans: u32,
    /// Place of the payload of the span that was begun, in `bytes`.
    payload_at: usize,
}

impl Default for PackWriter {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], end: HEADER_BYTES, spans: 0, payload_at: HEADER_BYTES }
    }
}

impl PackWriter {
    pub fn clear(&mut self) {
        self.end = HEADER_BYTES;
        self.spans = 0;
    }

    /// Length of the spans so far, in bytes, headers and trailers too.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        (self.end - HEADER_BYTES) as u64
    }

    /// Whether a span of this length may be added.
    #[must_use]
    pub fn has_room_for(&self, payload_bytes: u64) -> bool {
        let more = payload_bytes.saturating_add(SPAN_OVERHEAD_BYTES as u64);
        self.len_bytes().saturating_add(more) <= limits::PACK_BYTES_MAX
    }

    /// Adds a span's header, and returns the place of its payload, which holds anything: all of it
    /// is to be written. [`Self::end_span`] follows.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn begin_span(&mut self, header: &SpanHeader) -> &mut [u8] {
        assert!(self.has_room_for(header.len_bytes), "ask has_room_for first");
        self.append(&FrameHeader::Span(*header).encode());
        self.payload_at = self.end;
        self.end += header.len_bytes as usize;
        self.grow();
        &mut self.bytes[self.payload_at..self.end]
    }

    fn append(&mut self, bytes: &[u8]) {
        let begin = self.end;
        self.end += bytes.len();
        self.grow();
        self.bytes[begin..self.end].copy_from_slice(bytes);
    }

    fn grow(&mut self) {
        self.bytes.resize(self.bytes.len().max(self.end), 0);
    }

    /// Payload of the span that was begun.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload_at..self.end]
    }

    pub fn end_span(&mut self, trailer: &SpanTrailer) {
        self.append(&trailer.encode());
        self.spans += 1;
    }

    /// Finishes the whole pack, as it goes onto the wire; `first` is the sequence of its first
    /// span.
    pub fn finish(&mut self, stream: StreamId, first: u64) -> &[u8] {
        let len_bytes = self.len_bytes();
        let header = PackHeader { spans: self.spans, len_bytes, sequence: first, stream };
        self.bytes[..HEADER_BYTES].copy_from_slice(&FrameHeader::Pack(header).encode());
        &self.bytes[..self.end]
    }
}

/// A span of a pack that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct PackedSpan<'pack> {
    pub header: SpanHeader,
    /// The header as it arrived: digests cover it.
    pub encoded: &'pack [u8; HEADER_BYTES],
    pub payload: &'pack [u8],
    pub trailer: &'pack [u8; TRAILER_BYTES],
}

/// Takes a pack apart.
#[derive(Debug)]
pub struct PackReader<'pack> {
    rest: &'pack [u8],
    left: u32,
}

impl<'pack> PackReader<'pack> {
    /// Begins with the first span; `body` is what follows the header.
    #[must_use]
    pub fn new(header: &PackHeader, body: &'pack [u8]) -> Self {
        Self { rest: body, left: header.spans }
    }

    /// Takes the next span; `None` when there is none left.
    ///
    /// # Errors
    /// If the pack does not hold what its header says: the stream has lost its framing.
    pub fn next_span(&mut self) -> Result<Option<PackedSpan<'pack>>, ProtocolError> {
        if self.left == 0 {
            let is_over = self.rest.is_empty();
            let error = || ProtocolError::new("a pack with bytes behind its last span");
            return if is_over { Ok(None) } else { Err(error()) };
        }
        let short = || ProtocolError::new("a pack ends within a span");
        let (encoded, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        let FrameHeader::Span(header) = FrameHeader::decode(encoded)? else {
            return Err(ProtocolError::new("a pack holds something else than spans"));
        };
        let len = usize::try_from(header.len_bytes).map_err(|_| short())?;
        let (payload, rest) = rest.split_at_checked(len).ok_or_else(short)?;
        let (trailer, rest) = rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        self.left -= 1;
        Ok(Some(PackedSpan { header, encoded, payload, trailer }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, frame::PayloadStatus};

    /// Bytes of a span's header and its trailer, 40 and 24 (SPEC.md 6.2).
    const OVERHEAD_BYTES: u64 = 64;

    fn pack_of(lens: &[u64]) -> Vec<u8> {
        packed(&mut PackWriter::default(), lens)
    }

    fn packed(writer: &mut PackWriter, lens: &[u64]) -> Vec<u8> {
        for (number, &len_bytes) in lens.iter().enumerate() {
            let file = FileId(number as u32);
            let sequence = 5 + number as u64;
            let stream = StreamId(2);
            let header = SpanHeader { file, offset_bytes: 0, len_bytes, sequence, stream };
            writer.begin_span(&header).fill(number as u8);
            assert_eq!(writer.payload().len() as u64, len_bytes);
            let digest = [number as u8; 16];
            writer.end_span(&SpanTrailer { status: PayloadStatus::Confirmed, digest });
        }
        writer.finish(StreamId(2), 5).to_vec()
    }

    fn header_of(pack: &[u8]) -> PackHeader {
        match FrameHeader::decode(pack.first_chunk().unwrap()) {
            Ok(FrameHeader::Pack(header)) => header,
            other => panic!("{other:?}"),
        }
    }

    fn read(header: &PackHeader, body: &[u8]) -> Result<Vec<(FileId, u64)>, ProtocolError> {
        let mut reader = PackReader::new(header, body);
        let mut found = Vec::new();
        while let Some(span) = reader.next_span()? {
            found.push((span.header.file, span.payload.len() as u64));
        }
        Ok(found)
    }

    #[test]
    fn a_pack_is_taken_apart_as_it_was_put_together() {
        let pack = pack_of(&[1, 70_000, 3]);
        let header = header_of(&pack);
        assert_eq!(header.check(StreamId(2), 5), Ok(()));
        let found = read(&header, &pack[HEADER_BYTES..]).unwrap();
        assert_eq!(found, [(FileId(0), 1), (FileId(1), 70_000), (FileId(2), 3)]);
    }

    #[test]
    fn a_writer_that_is_used_again_packs_what_came_since() {
        let mut writer = PackWriter::default();
        packed(&mut writer, &[500, 1]);
        writer.clear();
        assert_eq!(writer.len_bytes(), 0);
        assert_eq!(packed(&mut writer, &[20, 300]), pack_of(&[20, 300]), "a shorter one");
        writer.clear();
        assert_eq!(packed(&mut writer, &[700]), pack_of(&[700]), "a longer one");
    }

    #[test]
    fn a_pack_that_is_cut_or_too_long_or_of_another_place_is_refused() {
        let pack = pack_of(&[10, 20]);
        let header = header_of(&pack);
        for cut in HEADER_BYTES..pack.len() {
            assert!(read(&header, &pack[HEADER_BYTES..cut]).is_err(), "{cut}");
        }
        assert!(read(&PackHeader { spans: 1, ..header }, &pack[HEADER_BYTES..]).is_err());
        assert!(read(&PackHeader { spans: 3, ..header }, &pack[HEADER_BYTES..]).is_err());
        assert!(header.check(StreamId(3), 5).is_err() && header.check(StreamId(2), 6).is_err());
        for wrong in [
            PackHeader { spans: 0, ..header },
            PackHeader { spans: 3, ..header },
            PackHeader { spans: u32::MAX, ..header },
            PackHeader { len_bytes: limits::PACK_BYTES_MAX + 1, ..header },
            // Two spans without a byte, but for one.
            PackHeader { len_bytes: 2 * OVERHEAD_BYTES + 1, ..header },
        ] {
            assert!(wrong.check(StreamId(2), 5).is_err(), "{wrong:?}");
        }
        for len_bytes in [2 * OVERHEAD_BYTES + 2, limits::PACK_BYTES_MAX] {
            let extreme = PackHeader { len_bytes, ..header };
            assert_eq!(extreme.check(StreamId(2), 5), Ok(()), "{extreme:?}");
        }
    }

    #[test]
    fn a_pack_within_a_pack_is_refused() {
        let mut pack = pack_of(&[10]);
        let inner: Vec<u8> = pack[..HEADER_BYTES].to_vec();
        let header = header_of(&pack);
        pack[HEADER_BYTES..2 * HEADER_BYTES].copy_from_slice(&inner);
        assert!(read(&header, &pack[HEADER_BYTES..]).is_err());
    }

    #[test]
    fn a_writer_takes_what_a_pack_may_hold_and_no_more() {
        let writer = PackWriter::default();
        let most = limits::PACK_BYTES_MAX - OVERHEAD_BYTES;
        assert!(writer.has_room_for(most) && !writer.has_room_for(most + 1));
        assert!(!writer.has_room_for(u64::MAX));
    }
}
