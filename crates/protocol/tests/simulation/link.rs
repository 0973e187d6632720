//! Simulated network: pipes of bytes that are late, break, stall and flip bits.

use super::random::Random;
use std::collections::VecDeque;

/// Microseconds of the virtual clock.
pub type Micros = u64;

/// Faults that a pipe will meet, by the number of the byte that each happens at.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Byte from which on nothing arrives, and both ends learn it.
    pub cut_at: Option<u64>,
    /// Byte from which on nothing arrives, and nobody learns it.
    pub stall_at: Option<u64>,
    /// Bits that are flipped: the number of the byte, and that of the bit in it.
    pub flips: Vec<(u64, u8)>,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Pipe {
    latency: Micros,
    faults: Faults,
    written_bytes: u64,
    /// Pieces on their way, in order.
    pieces: VecDeque<(Micros, Vec<u8>)>,
    /// Time when the reader sees the end.
    ends_at: Option<Micros>,
    /// Time when the writer sees that nobody reads.
    broken_at: Option<Micros>,
}

/// Findings of a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

impl Pipe {
    pub fn new(latency: Micros, faults: Faults) -> Self {
        let (pieces, ends_at, broken_at) = (VecDeque::new(), None, None);
        Self { latency, faults, written_bytes: 0, pieces, ends_at, broken_at }
    }

    /// Sends bytes, in pieces that arrive one after the other.
    pub fn write(&mut self, now: Micros, bytes: &[u8], random: &mut Random) {
        if self.ends_at.is_some() {
            return;
        }
        let start = self.written_bytes;
        self.written_bytes += bytes.len() as u64;
        let mut bytes = bytes.to_vec();
        for &(at, bit) in &self.faults.flips {
            if let Some(byte) = at.checked_sub(start).and_then(|at| bytes.get_mut(at as usize)) {
                *byte ^= 1 << bit;
            }
        }
        let end = [self.faults.cut_at, self.faults.stall_at].into_iter().flatten().min();
        if let Some(end) = end {
            bytes.truncate(end.saturating_sub(start) as usize);
        }
        let mut arrives = now + self.latency;
        arrives = arrives.max(self.pieces.back().map_or(0, |piece| piece.0));
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(random.within(1..=rest.len() as u64) as usize);
            arrives += random.below(self.latency / 4 + 2);
            self.pieces.push_back((arrives, piece.to_vec()));
            rest = behind;
        }
        if self.faults.cut_at.is_some_and(|cut| self.written_bytes >= cut) {
            self.ends_at = Some(arrives);
            self.broken_at = Some(arrives + self.latency);
        }
    }

    pub fn read(&mut self, now: Micros) -> Arrival {
        match self.pieces.front() {
            Some(piece) if piece.0 <= now => {
                Arrival::Bytes(self.pieces.pop_front().expect("looked at").1)
            }
            None if self.ends_at.is_some_and(|end| end <= now) => Arrival::End,
            _ => Arrival::Nothing,
        }
    }

    /// Closes the writer's end: what is on its way arrives, then the end.
    pub fn close_writing(&mut self, now: Micros) {
        let last = self.pieces.back().map_or(now + self.latency, |piece| piece.0);
        // A stalled pipe does not even bring its end.
        if self.ends_at.is_none() && !self.is_stalled() {
            self.ends_at = Some(last.max(now + self.latency));
        }
    }

    /// Closes the reader's end: what is on its way is lost, the writer learns it later.
    pub fn close_reading(&mut self, now: Micros) {
        self.pieces.clear();
        self.ends_at.get_or_insert(now);
        self.broken_at.get_or_insert(now + self.latency);
    }

    pub fn is_broken(&self, now: Micros) -> bool {
        self.broken_at.is_some_and(|broken| broken <= now)
    }

    /// Whether there is room for another frame: a writer does not run far ahead of its reader.
    pub fn has_room(&self) -> bool {
        self.pieces.len() < 12
    }

    fn is_stalled(&self) -> bool {
        self.faults.stall_at.is_some_and(|stall| self.written_bytes > stall)
    }
}

/// A connection that the client opened.
#[derive(Debug)]
pub struct Connection {
    pub to_server: Pipe,
    pub to_client: Pipe,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

impl Connection {
    pub fn incoming(&mut self, end: End) -> &mut Pipe {
        match end {
            End::Client => &mut self.to_client,
            End::Server => &mut self.to_server,
        }
    }

    pub fn outgoing(&mut self, end: End) -> &mut Pipe {
        match end {
            End::Client => &mut self.to_server,
            End::Server => &mut self.to_client,
        }
    }

    /// Closes the socket of one end.
    pub fn close(&mut self, end: End, now: Micros) {
        self.outgoing(end).close_writing(now);
        self.incoming(end).close_reading(now);
    }
}
