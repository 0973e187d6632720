//! The end that receives: registered buffers that wait for the peer's messages.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use haul_fabric_sys::{Buffer, Completion, Operation, Reach, Source};

use crate::{
    Error, Figures, Provider,
    budget::{RECEIVE_BUFFERS, Share},
    endpoint::{End, Endpoint},
};

/// Messages that may be held before they are given back, while others still come.
pub const HELD_MAX: usize = RECEIVE_BUFFERS / 2;
/// Length of the words about room: the count of buffers ever posted (u64) and the length of each
/// (u32), little-endian.
pub(crate) const ROOM_BYTES: usize = 12;

/// Room that a receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Buffers that were ever posted.
    pub posted: u64,
    pub message_bytes: u32,
}

impl Room {
    fn encode(self) -> [u8; ROOM_BYTES] {
        let mut bytes = [0; ROOM_BYTES];
        bytes[..8].copy_from_slice(&self.posted.to_le_bytes());
        bytes[8..].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let parts = bytes.split_first_chunk().zip(bytes.last_chunk());
        let Some(((posted, _), length)) = parts.filter(|_| bytes.len() == ROOM_BYTES) else {
            return Err(Error::BadMessage("words about its buffers that are none"));
        };
        let message_bytes = u32::from_le_bytes(*length);
        Ok(Self { posted: u64::from_le_bytes(*posted), message_bytes })
    }
}

/// A message, or the rest of one, with the registered memory that it came into.
#[derive(Debug)]
pub struct Message {
    buffer: Buffer,
    range: Range<usize>,
}

impl Message {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.range.clone()]
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct ReceiveEnd {
    provider: Provider,
    endpoint: Endpoint,
    arrived: VecDeque<Message>,
    posted: u64,
    told: u64,
    /// The buffer for words about room, while nothing is under way from it.
    words: Vec<Buffer>,
    message_bytes: usize,
    figures: Figures,
    moved_bytes: Arc<AtomicU64>,
}

impl ReceiveEnd {
    pub(crate) fn new(
        provider: Provider,
        endpoint: Endpoint,
        share_bytes: usize,
    ) -> Result<Self, Error> {
        let Share { message_bytes, .. } = Share::of(share_bytes);
        let domain = endpoint.channel.domain().clone();
        let mut figures = Figures::default();
        let mut buffer = |len_bytes| {
            figures
                .register(|| Buffer::new(&domain, len_bytes, Reach::Local))
                .map_err(|error| Error::NoMemory { len_bytes, words: error.words() })
        };
        let empty =
            (0..RECEIVE_BUFFERS).map(|_| buffer(message_bytes)).collect::<Result<Vec<_>, _>>()?;
        let words = (0..2).map(|_| buffer(ROOM_BYTES)).collect::<Result<_, _>>()?;
        let mut end = Self {
            provider,
            endpoint,
            arrived: VecDeque::new(),
            posted: 0,
            told: 0,
            words,
            message_bytes,
            figures,
            moved_bytes: Arc::default(),
        };
        for buffer in empty {
            end.post_buffer(buffer)?;
        }
        end.tell_room()?;
        Ok(end)
    }

    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The TCP connection beside the pair.
    #[must_use]
    pub fn lifeline(&self) -> &std::os::fd::OwnedFd {
        self.endpoint.lifeline()
    }

    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Bytes of messages that have come, for others to look at meanwhile.
    #[must_use]
    pub fn moved_bytes(&self) -> Arc<AtomicU64> {
        self.moved_bytes.clone()
    }

    /// Fills `buffer` with what comes next.
    ///
    /// # Errors
    /// The pair is of no more use then. The count of bytes that came tells whether the peer left
    /// between two frames.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<(), (usize, Error)> {
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = self.peek().map_err(|error| (filled, error))?;
            let len = bytes.len().min(buffer.len() - filled);
            buffer[filled..filled + len].copy_from_slice(&bytes[..len]);
            filled += len;
            self.skip(len).map_err(|error| (filled, error))?;
        }
        Ok(())
    }

    /// Waits for bytes and shows those of the next message: one at least.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn peek(&mut self) -> Result<&[u8], Error> {
        while self.arrived.is_empty() {
            self.await_one()?;
        }
        Ok(self.arrived.front().expect("just seen").bytes())
    }

    /// Looks whether bytes have come, without waiting.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn has_come(&mut self) -> Result<bool, Error> {
        self.take_all()?;
        Ok(!self.arrived.is_empty())
    }

    /// Takes bytes that [`Self::peek`] showed.
    ///
    /// # Errors
    /// The pair is of no more use then.
    ///
    /// # Panics
    /// If they are more than were shown.
    pub fn skip(&mut self, len_bytes: usize) -> Result<(), Error> {
        let front = self.arrived.front_mut().expect("bytes were shown");
        assert!(len_bytes <= front.range.len(), "more than was shown");
        front.range.start += len_bytes;
        if front.range.is_empty()
            && let Some(message) = self.arrived.pop_front()
        {
            self.give_back(message)?;
        }
        Ok(())
    }

    /// Takes the whole rest of the next message with its memory, if it is at most `bytes_max` long;
    /// [`Self::give_back`] follows when it is needed no more.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn take(&mut self, bytes_max: u64) -> Result<Option<Message>, Error> {
        let fits = self.peek()?.len() as u64 <= bytes_max;
        Ok(if fits { self.arrived.pop_front() } else { None })
    }

    /// Gives the memory of a message back, for the next one.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn give_back(&mut self, message: Message) -> Result<(), Error> {
        self.post_buffer(message.buffer)?;
        // Rarely, but before the peer has to wait.
        if self.posted - self.told >= RECEIVE_BUFFERS as u64 / 4 {
            self.tell_room()?;
        }
        Ok(())
    }

    fn post_buffer(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.posted += 1;
        self.post(Operation::Receive(buffer))
    }

    fn tell_room(&mut self) -> Result<(), Error> {
        // The next words say what these would have said.
        let Some(mut buffer) = self.words.pop() else { return Ok(()) };
        let message_bytes = u32::try_from(self.message_bytes).unwrap_or(u32::MAX);
        let words = Room { posted: self.posted, message_bytes }.encode();
        buffer.bytes_mut()[..ROOM_BYTES].copy_from_slice(&words);
        self.told = self.posted;
        self.post(Operation::Send(Source::Buffer(buffer, 0..ROOM_BYTES)))
    }
}

impl End for ReceiveEnd {
    fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn over(&mut self, Completion { operation, outcome }: Completion) -> Result<(), Error> {
        let came = outcome.map_err(|error| self.endpoint.failed(error))?;
        match operation {
            Operation::Receive(_) if came == 0 => {
                return Err(Error::BadMessage("an empty message"));
            }
            Operation::Receive(buffer) => {
                self.figures.messages += 1;
                self.moved_bytes.fetch_add(came as u64, Ordering::Relaxed);
                self.figures.buffered_bytes += came as u64;
                self.arrived.push_back(Message { buffer, range: 0..came });
            }
            Operation::Send(Source::Buffer(buffer, _)) => {
                self.words.push(buffer);
                if self.posted - self.told >= RECEIVE_BUFFERS as u64 / 4 {
                    self.tell_room()?;
                }
            }
            Operation::Send(_) | Operation::Write(..) | Operation::Read(..) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_read_as_it_was_written() {
        let room = Room { posted: u64::MAX - 3, message_bytes: 77 };
        assert_eq!(Room::decode(&room.encode()), Ok(room));
        assert!(Room::decode(&room.encode()[..11]).is_err());
        assert!(Room::decode(&[0; 13]).is_err());
    }
}
