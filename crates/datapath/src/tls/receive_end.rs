//! The end of a wire of TLS that receives: records are decrypted to where they belong.

use std::{collections::VecDeque, io, ops::Range, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::RecvFlags,
};

use super::records::{
    ContentType, HEADER_BYTES, Opener, RECORD_BYTES_MAX, inner_bytes, invalid, record_bytes,
};
use crate::socket;

/// Records that one call may bring: 256 KiB, which stay in a core's cache until they are written.
const RECORDS: usize = 16;
/// Most records without data in a row: each costs a call, and nothing comes of it.
const EMPTY_RECORDS_MAX: u32 = 64;
/// An alert that says that the peer sends nothing more (RFC 8446, 6.1).
const CLOSE_NOTIFY: u8 = 0;

/// A KeyUpdate of the peer, or another message of the handshake: the end of the stream.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the peer wants new keys on this stream (KeyUpdate), which a private stream of haul never \
     gets: it is replaced by another"
)]
pub struct NewKeys;

impl NewKeys {
    /// Whether this is why the stream ended.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }

    pub(super) fn error(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }
}

/// A socket, the key of what comes on it, and what came and was not taken yet.
pub struct ReceiveEnd {
    socket: OwnedFd,
    opener: Opener,
    buffer: Box<[u8]>,
    /// Bytes that came and are not decrypted: the beginning of a record.
    sealed: Range<usize>,
    /// Content of decrypted records, in order.
    content: VecDeque<Range<usize>>,
    /// Number of empty records in a row.
    empty_records: u32,
    is_over: bool,
}

impl ReceiveEnd {
    /// Takes a socket behind its handshake, and the key of what this side receives.
    #[must_use]
    pub fn new(socket: OwnedFd, opener: Opener) -> Self {
        Self {
            socket,
            opener,
            buffer: vec![0; RECORDS * RECORD_BYTES_MAX].into(),
            sealed: 0..0,
            content: VecDeque::new(),
            empty_records: 0,
            is_over: false,
        }
    }

    /// The socket below.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Content that is there, at most `bytes_max` bytes of it, in order; waits until some is.
    ///
    /// # Errors
    /// `UnexpectedEof` where the peer has closed; `InvalidData` for what a peer may not send.
    pub(crate) fn content(&mut self, bytes_max: u64) -> io::Result<Vec<&[u8]>> {
        self.fill()?;
        let mut left = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let parts = self.content.iter().map_while(|range| {
            let bytes = range.len().min(left);
            left -= bytes;
            (bytes > 0).then(|| &self.buffer[range.start..range.start + bytes])
        });
        Ok(parts.collect())
    }

    /// Fills `out`, or says how many bytes came before the error.
    ///
    /// Records are decrypted to where their content belongs, but for one that ends beyond `out`.
    pub(crate) fn receive_whole(&mut self, out: &mut [u8]) -> Result<(), (usize, io::Error)> {
        let mut filled = 0;
        while filled < out.len() {
            let room = &mut out[filled..];
            let took =
                if self.content.is_empty() { self.open_to(room) } else { Ok(self.copy(room)) };
            filled += took.map_err(|error| (filled, error))?;
            if filled < out.len() && self.content.is_empty() {
                self.open_or_receive().map_err(|error| (filled, error))?;
            }
        }
        Ok(())
    }

    /// Copies content that is there to the beginning of `out`.
    fn copy(&mut self, out: &mut [u8]) -> usize {
        let Some(range) = self.content.front() else { return 0 };
        let bytes = range.len().min(out.len());
        out[..bytes].copy_from_slice(&self.buffer[range.start..range.start + bytes]);
        self.took(bytes);
        bytes
    }

    /// Decrypts the whole records that are there and fit to the beginning of `out`.
    fn open_to(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(record) = self.next_whole_record()?
            && inner_bytes(record.len()) <= out.len() - filled
        {
            let room = &mut out[filled..];
            let (content, len_bytes) = self.opener.open_to(&self.buffer[record.clone()], room)?;
            self.sealed.start = record.end;
            match content {
                ContentType::ApplicationData => self.count(len_bytes)?,
                ContentType::Alert => {
                    self.is_over = is_close(&room[..len_bytes])?;
                    break;
                }
                ContentType::Handshake => return Err(NewKeys.error()),
            }
            filled += len_bytes;
        }
        Ok(filled)
    }

    /// Place of the next record, if all of it is there.
    fn next_whole_record(&self) -> io::Result<Option<Range<usize>>> {
        if self.is_over {
            return Ok(None);
        }
        let bytes = record_bytes(&self.buffer[self.sealed.clone()])?;
        let whole = bytes.filter(|bytes| *bytes <= self.sealed.len());
        Ok(whole.map(|bytes| self.sealed.start..self.sealed.start + bytes))
    }

    /// Gives up content that was used.
    pub(crate) fn took(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some(range) = self.content.front_mut()
        {
            let now = range.len().min(bytes);
            range.start += now;
            bytes -= now;
            if range.start == range.end {
                self.content.pop_front();
            }
        }
    }

    /// Whether something has come that was not taken yet.
    pub(crate) fn has_come(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_here = !self.content.is_empty() || !matches!(self.next_whole_record(), Ok(None));
        is_here || poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }

    /// Receives and decrypts until there is content.
    fn fill(&mut self) -> io::Result<()> {
        while self.content.is_empty() {
            self.open_or_receive()?;
            while self.open_one()? {}
        }
        Ok(())
    }

    /// Decrypts a record where it lies, or receives more where none is whole.
    fn open_or_receive(&mut self) -> io::Result<()> {
        if self.open_one()? {
            return Ok(());
        }
        if self.is_over {
            return Err(socket::closed());
        }
        // All content was taken: only the beginning of a record is left.
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        loop {
            let room = &mut self.buffer[self.sealed.end..];
            match rustix::net::recv(&self.socket, room, RecvFlags::empty()) {
                Ok((0, _)) => return Err(socket::closed()),
                Ok((moved, _)) => {
                    self.sealed.end += moved;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Decrypts the next record where it lies; false if it is not there as a whole.
    fn open_one(&mut self) -> io::Result<bool> {
        let Some(record) = self.next_whole_record()? else { return Ok(false) };
        self.sealed.start = record.end;
        let (content, len_bytes) = self.opener.open(&mut self.buffer[record.clone()])?;
        let from = record.start + HEADER_BYTES;
        let range = from..from + len_bytes;
        match content {
            ContentType::ApplicationData => {
                self.count(len_bytes)?;
                if len_bytes > 0 {
                    self.content.push_back(range);
                }
            }
            ContentType::Alert => {
                self.is_over = is_close(&self.buffer[range])?;
            }
            ContentType::Handshake => return Err(NewKeys.error()),
        }
        Ok(true)
    }

    /// Counts a record of data.
    fn count(&mut self, len_bytes: usize) -> io::Result<()> {
        self.empty_records = if len_bytes == 0 { self.empty_records + 1 } else { 0 };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(invalid("the peer sends empty records without end"));
        }
        Ok(())
    }
}

/// Whether an alert says that the peer sends nothing more; any other is an error.
fn is_close(alert: &[u8]) -> io::Result<bool> {
    match alert {
        [_, CLOSE_NOTIFY] => Ok(true),
        [_, number] => {
            let why = format!("the peer ended TLS with alert {number} (RFC 8446, 6.2)");
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))
        }
        _ => Err(invalid("an alert of another length")),
    }
}

impl std::fmt::Debug for ReceiveEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveEnd").field("opener", &self.opener).finish_non_exhaustive()
    }
}
