//! Layouts of the data streams: the preface that opens one, span headers and trailers.
//!
//! All numbers are little-endian. `SPEC.md` draws the layouts, `vectors/frames.json` pins them.

use crate::{FileId, ProtocolError, StreamId, limits};
use alloc::format;
use crc::{CRC_32_ISCSI, Crc};

/// CRC-32C (Castagnoli; iSCSI, RFC 3720) over a few header bytes.
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The first bytes of a data connection. No TLS record and no HTTP method begins like this.
pub const DATA_MAGIC: [u8; 8] = *b"\x89HAULDS\n";
/// The version of the frames' layout.
pub const DATA_VERSION: u16 = 1;

pub const PREFACE_BYTES: usize = 64;
pub const HEADER_BYTES: usize = 40;
pub const TRAILER_BYTES: usize = 24;

const KIND_SPAN: u8 = 1;
const KIND_END: u8 = 2;
const KIND_PACK: u8 = 3;
const KIND_RENEWAL: u8 = 4;
const KIND_TRAILER: u8 = 0x74;

/// The first message of a client on a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    pub stream: StreamId,
    pub session: [u8; 16],
    /// HMAC-SHA256 over the 32 bytes before it, with the session's preface key.
    pub mac: [u8; 32],
}

impl Preface {
    /// Makes the bytes that the MAC of a preface covers.
    #[must_use]
    pub fn signed_bytes(stream: StreamId, session: &[u8; 16]) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&DATA_MAGIC);
        bytes[8..10].copy_from_slice(&DATA_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&stream.0.to_le_bytes());
        bytes[16..32].copy_from_slice(session);
        bytes
    }

    #[must_use]
    pub fn encode(&self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[..32].copy_from_slice(&Self::signed_bytes(self.stream, &self.session));
        bytes[32..].copy_from_slice(&self.mac);
        bytes
    }

    /// Reads a preface.
    ///
    /// # Errors
    /// If magic, version or the reserved bytes are not what this version sends.
    pub fn decode(bytes: &[u8; PREFACE_BYTES]) -> Result<Self, ProtocolError> {
        if bytes[..8] != DATA_MAGIC {
            return Err(ProtocolError::new("a data stream does not begin with the magic"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != DATA_VERSION || bytes[10..12] != [0, 0] {
            let what = format!("a data stream of version {version}, this is {DATA_VERSION}");
            return Err(ProtocolError::new(what));
        }
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[16..32]);
        let mut mac = [0; 32];
        mac.copy_from_slice(&bytes[32..]);
        Ok(Self { stream: StreamId(u32_at(bytes, 12)), session, mac })
    }
}

/// The header before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanHeader {
    pub file: FileId,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// The frame's number in its stream, from 0: a part of the nonce.
    pub sequence: u64,
    pub stream: StreamId,
}

/// The header before several short spans that are sent in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Count of the spans that follow, each with its own header and trailer.
    pub spans: u32,
    /// Length of all spans together, in bytes, headers and trailers too.
    pub len_bytes: u64,
    /// The sequence number of the first span: a pack takes no number of its own.
    pub sequence: u64,
    pub stream: StreamId,
}

/// A frame's header: a span, a pack of spans, or one of the two orderly ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameHeader {
    Span(SpanHeader),
    Pack(PackHeader),
    End {
        stream: StreamId,
        sequence: u64,
    },
    /// The end of a private stream whose key has protected enough; the client opens another.
    Renewal {
        stream: StreamId,
        sequence: u64,
    },
}

impl FrameHeader {
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (kind, stream, sequence) = match self {
            Self::Span(span) => {
                bytes[4..8].copy_from_slice(&span.file.0.to_le_bytes());
                bytes[8..16].copy_from_slice(&span.offset_bytes.to_le_bytes());
                bytes[16..24].copy_from_slice(&span.len_bytes.to_le_bytes());
                (KIND_SPAN, span.stream, span.sequence)
            }
            Self::Pack(pack) => {
                bytes[4..8].copy_from_slice(&pack.spans.to_le_bytes());
                bytes[16..24].copy_from_slice(&pack.len_bytes.to_le_bytes());
                (KIND_PACK, pack.stream, pack.sequence)
            }
            Self::End { stream, sequence } => (KIND_END, *stream, *sequence),
            Self::Renewal { stream, sequence } => (KIND_RENEWAL, *stream, *sequence),
        };
        bytes[0] = kind;
        bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&stream.0.to_le_bytes());
        let crc = CRC32C.checksum(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a frame's header.
    ///
    /// # Errors
    /// If the CRC, the kind or a reserved byte is wrong: the stream has lost its framing.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, ProtocolError> {
        if u32_at(bytes, 36) != CRC32C.checksum(&bytes[..36]) {
            return Err(ProtocolError::new("a frame header's CRC is wrong"));
        }
        let stream = StreamId(u32_at(bytes, 32));
        let sequence = u64_at(bytes, 24);
        if bytes[1..4] != [0; 3] || sequence >= limits::FRAMES_MAX {
            return Err(ProtocolError::new("a frame header has reserved bits set"));
        }
        match bytes[0] {
            KIND_SPAN => Ok(Self::Span(SpanHeader {
                file: FileId(u32_at(bytes, 4)),
                offset_bytes: u64_at(bytes, 8),
                len_bytes: u64_at(bytes, 16),
                sequence,
                stream,
            })),
            KIND_PACK if bytes[8..16] == [0; 8] => Ok(Self::Pack(PackHeader {
                spans: u32_at(bytes, 4),
                len_bytes: u64_at(bytes, 16),
                sequence,
                stream,
            })),
            KIND_END if bytes[4..24] == [0; 20] => Ok(Self::End { stream, sequence }),
            KIND_RENEWAL if bytes[4..24] == [0; 20] => Ok(Self::Renewal { stream, sequence }),
            kind => Err(ProtocolError::new(format!("a frame of unknown kind {kind}"))),
        }
    }
}

/// Whether a span's payload is the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadStatus {
    Whole = 0,
    /// The sender could not read all of it; what is missing was filled with anything.
    Abandoned = 1,
    /// The payload is all of a file, and the source was still what was offered after it was read:
    /// no `FileConfirm` follows.
    Confirmed = 2,
}

impl PayloadStatus {
    /// The status as a byte of the trailer; the digest covers it.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        self as u8
    }
}

/// The trailer behind each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanTrailer {
    pub status: PayloadStatus,
    /// The span's digest or MAC; unused bytes are zero.
    pub digest: [u8; 16],
}

impl SpanTrailer {
    #[must_use]
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[0] = KIND_TRAILER;
        bytes[1] = self.status.to_byte();
        bytes[8..].copy_from_slice(&self.digest);
        let crc = Self::crc(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a span's trailer.
    ///
    /// # Errors
    /// If it is damaged. The stream's framing is intact: only this span is to be sent again.
    pub fn decode(bytes: &[u8; TRAILER_BYTES]) -> Result<Self, ProtocolError> {
        let status = match bytes[1] {
            0 => PayloadStatus::Whole,
            1 => PayloadStatus::Abandoned,
            2 => PayloadStatus::Confirmed,
            _ => return Err(ProtocolError::new("a span trailer of unknown status")),
        };
        if bytes[0] != KIND_TRAILER || bytes[2..4] != [0, 0] || u32_at(bytes, 4) != Self::crc(bytes)
        {
            return Err(ProtocolError::new("a span trailer is damaged"));
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&bytes[8..]);
        Ok(Self { status, digest })
    }

    fn crc(bytes: &[u8; TRAILER_BYTES]) -> u32 {
        let mut digest = CRC32C.digest();
        digest.update(&bytes[..4]);
        digest.update(&bytes[8..]);
        digest.finalize()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_of_a_header_or_trailer_is_seen() {
        let header = FrameHeader::Span(SpanHeader {
            file: FileId(7),
            offset_bytes: 1 << 40,
            len_bytes: 8 << 20,
            sequence: 3,
            stream: StreamId(2),
        });
        let bytes = header.encode();
        assert_eq!(FrameHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&damaged).is_err(), "bit {bit}");
        }
        let trailer = SpanTrailer { status: PayloadStatus::Whole, digest: [9; 16] };
        let bytes = trailer.encode();
        assert_eq!(SpanTrailer::decode(&bytes), Ok(trailer));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SpanTrailer::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_ends_of_a_stream_survive_the_wire() {
        let (stream, sequence) = (StreamId(1), 12);
        for end in
            [FrameHeader::End { stream, sequence }, FrameHeader::Renewal { stream, sequence }]
        {
            assert_eq!(FrameHeader::decode(&end.encode()), Ok(end));
        }
    }
}
