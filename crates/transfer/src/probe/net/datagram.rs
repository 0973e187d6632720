//! Datagrams of a probe: their header, and what their numbers tell a receiver.

use crate::token::same_secret;
use haul_protocol::StreamId;
use std::collections::VecDeque;

/// Length of the header of each datagram; the protocol's SPEC.md draws it.
pub const HEADER_BYTES: usize = 48;
/// Length of the key of a round.
pub const KEY_BYTES: usize = 16;
/// Numbers by which a datagram may be late and still be told from one that came twice.
const WINDOW: u64 = 1 << 16;

/// The use of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Data = 4,
    Ack = 5,
    Size = 6,
}

/// The front of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The use of the datagram.
    pub kind: Kind,
    /// Number of its stream.
    pub stream: StreamId,
    /// Number in the stream.
    pub sequence: u64,
    /// Time of sending by the sender's clock.
    pub sent_ns: u64,
    /// A number whose meaning the kind decides.
    pub value: u64,
}

impl Header {
    /// A header whose numbers are 0.
    #[must_use]
    pub fn new(kind: Kind, stream: StreamId) -> Self {
        Self { kind, stream, sequence: 0, sent_ns: 0, value: 0 }
    }

    /// Bytes of the header, with the key of the round in front.
    #[must_use]
    pub fn encode(&self, key: &[u8; KEY_BYTES]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(key);
        bytes[16] = self.kind as u8;
        bytes[20..24].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes[40..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Decodes the header of a datagram; `None` for what is none of this round's.
    #[must_use]
    pub fn decode(datagram: &[u8], key: &[u8; KEY_BYTES]) -> Option<Self> {
        let bytes = datagram.first_chunk::<HEADER_BYTES>()?;
        if !same_secret(&bytes[..KEY_BYTES], key) || bytes[17..20] != [0; 3] {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            kind: match bytes[16] {
                1 => Kind::Hello,
                2 => Kind::Challenge,
                3 => Kind::Proof,
                4 => Kind::Data,
                5 => Kind::Ack,
                6 => Kind::Size,
                _ => return None,
            },
            stream: StreamId(u32::from_le_bytes(bytes[20..24].try_into().ok()?)),
            sequence: number(24)?,
            sent_ns: number(32)?,
            value: number(40)?,
        })
    }
}

/// Arrivals of one stream: counted once, in order or not, and how evenly.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Bytes of the datagrams that arrived.
    pub bytes: u64,
    /// Datagrams that arrived, none counted twice.
    pub datagrams: u64,
    /// The number behind the highest that arrived.
    pub sequence_next: u64,
    /// Datagrams that arrived behind one with a higher number.
    pub reordered: u64,
    /// Datagrams that had arrived before.
    pub duplicates: u64,
    jitter_ns: f64,
    /// Sending time of the last datagram, and how long it took by clocks that do not agree.
    last: Option<(u64, i64)>,
    /// Bits for the last numbers, set for those that arrived. The front word has the lowest ones.
    seen: VecDeque<u64>,
    /// The number of the first bit, a multiple of 64.
    seen_from: u64,
}

impl Arrivals {
    /// Counts a datagram of this length that arrived now.
    pub fn arrived(&mut self, header: &Header, len_bytes: usize, now_ns: u64) {
        let sequence = header.sequence;
        if !self.is_new(sequence) {
            self.duplicates += 1;
            return;
        }
        self.datagrams += 1;
        self.bytes += len_bytes as u64;
        if sequence < self.sequence_next {
            self.reordered += 1;
            return;
        }
        self.sequence_next = sequence.saturating_add(1);
        self.time(header.sent_ns, now_ns);
    }

    /// Adds an arrival to the jitter (RFC 3550, 6.4.1). Datagrams that left by one call have one
    /// time, and count once.
    fn time(&mut self, sent_ns: u64, now_ns: u64) {
        let transit_ns = now_ns.wrapping_sub(sent_ns).cast_signed();
        match self.last {
            Some((last_ns, _)) if last_ns == sent_ns => return,
            Some((_, last_transit_ns)) => {
                let apart_ns = transit_ns.wrapping_sub(last_transit_ns).unsigned_abs() as f64;
                self.jitter_ns += (apart_ns - self.jitter_ns) / 16.0;
            }
            None => {}
        }
        self.last = Some((sent_ns, transit_ns));
    }

    /// Whether this number has not arrived before; also true for one that is too late to be known.
    fn is_new(&mut self, sequence: u64) -> bool {
        if sequence < self.seen_from {
            return true;
        }
        let word = (sequence - self.seen_from) / 64;
        let words = WINDOW / 64;
        if word >= words + self.seen.len() as u64 {
            // Nothing of the window is left.
            self.seen.clear();
            self.seen_from = sequence / 64 * 64;
        }
        let word = (sequence - self.seen_from) / 64;
        while self.seen.len() as u64 <= word {
            self.seen.push_back(0);
        }
        let bit = 1 << (sequence % 64);
        let is_new = self.seen[word as usize] & bit == 0;
        self.seen[word as usize] |= bit;
        while self.seen.len() as u64 > words {
            self.seen.pop_front();
            self.seen_from += 64;
        }
        is_new
    }

    /// Jitter of the arrivals, as RFC 3550 reckons it.
    #[must_use]
    pub fn jitter_ns(&self) -> u64 {
        self.jitter_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; KEY_BYTES] = [3; KEY_BYTES];

    fn data(sequence: u64, sent_ns: u64) -> Header {
        Header { sequence, sent_ns, ..Header::new(Kind::Data, StreamId(1)) }
    }

    #[test]
    fn a_header_survives_the_wire_and_nothing_else_is_one() {
        let header = Header { value: 1 << 63, ..data(7, 9) };
        let bytes = header.encode(&KEY);
        assert_eq!(Header::decode(&bytes, &KEY), Some(header));
        assert_eq!(Header::decode(&bytes[..47], &KEY), None);
        assert_eq!(Header::decode(&bytes, &[4; KEY_BYTES]), None);
        for (at, byte) in [(16, 0), (16, 7), (17, 1)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(Header::decode(&other, &KEY), None);
        }
    }

    #[test]
    fn lost_late_and_repeated_datagrams_are_told_apart() {
        let mut arrivals = Arrivals::default();
        for sequence in [0, 1, 2, 5, 4, 4, 0, 6, 200_000, 200_000, 199_999, 150_000, 3] {
            arrivals.arrived(&data(sequence, 0), 100, 0);
        }
        assert_eq!(arrivals.duplicates, 3, "4, 0 and 200000");
        assert_eq!(arrivals.reordered, 4, "4, 199999, 150000, 3");
        assert_eq!((arrivals.datagrams, arrivals.bytes), (10, 1000));
        assert_eq!(arrivals.sequence_next, 200_001);
        arrivals.arrived(&data(u64::MAX, 0), 100, 0);
        assert_eq!(arrivals.sequence_next, u64::MAX);
    }

    #[test]
    fn jitter_is_the_smoothed_change_of_the_way_s_time() {
        let mut arrivals = Arrivals::default();
        for (sequence, late_ns) in [(0, 0), (1, 1600), (2, 1600), (3, 0)] {
            let sent_ns = sequence * 10_000;
            arrivals.arrived(&data(sequence, sent_ns), 100, sent_ns + 500 + late_ns);
        }
        // 1600/16 = 100, then 100 - 100/16, then (1600 - 93.75)/16 more.
        assert_eq!(arrivals.jitter_ns(), 187);
        // Those of one send arrive together.
        arrivals.arrived(&data(4, 30_000), 100, 99_999_999);
        assert_eq!(arrivals.jitter_ns(), 187);
    }
}
