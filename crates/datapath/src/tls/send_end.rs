//! The end of a wire of TLS that sends: bytes are gathered in records, or encrypted where they lie.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
};

use super::records::{
    CONTENT_BYTES_MAX, ContentType, HEADER_BYTES, OVERHEAD_BYTES, RECORD_BYTES, Sealer,
};
use crate::{Boundary, socket};

/// Records that go in one call: 256 KiB, which stay in a core's cache from the read to the send.
const RECORDS: usize = 16;

/// A socket, the key of what is sent on it, and the records that are being filled.
pub struct SendEnd {
    socket: OwnedFd,
    sealer: Sealer,
    /// Places of full records, one behind the other.
    buffer: Box<[u8]>,
    /// Bytes of content that stand in the buffer.
    held_bytes: usize,
}

impl SendEnd {
    /// Takes a socket behind its handshake, and the key of what this side sends.
    #[must_use]
    pub fn new(socket: OwnedFd, sealer: Sealer) -> Self {
        Self { socket, sealer, buffer: vec![0; RECORDS * RECORD_BYTES].into(), held_bytes: 0 }
    }

    /// The socket below.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Bytes of content that fit beside those that are held.
    pub(crate) fn room_bytes(&self) -> usize {
        RECORDS * CONTENT_BYTES_MAX - self.held_bytes
    }

    /// Places for the next `bytes_max` bytes of content, or for as many as there is room.
    pub(crate) fn room(&mut self, bytes_max: usize) -> impl Iterator<Item = &mut [u8]> {
        let held = self.held_bytes;
        places(&mut self.buffer, held, bytes_max)
    }

    /// Takes bytes that were put into the room.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.held_bytes += bytes;
    }

    /// Takes bytes that go behind those that are held; sends when the room is used up.
    ///
    /// # Errors
    /// What send(2) says.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.room_bytes() == 0 {
                self.flush(Boundary::MoreFollows)?;
            }
            let fits = bytes.len().min(self.room_bytes());
            let mut rest = &bytes[..fits];
            for place in self.room(fits) {
                let (now, then) = rest.split_at(place.len());
                place.copy_from_slice(now);
                rest = then;
            }
            self.held_bytes += fits;
            bytes = &bytes[fits..];
        }
        Ok(())
    }

    /// Encrypts bytes where they lie and sends them, behind those that are held; says how many were
    /// encrypted before the error.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub(crate) fn send_in_place(
        &mut self,
        bytes: &mut [u8],
        boundary: Boundary,
    ) -> Result<(), (usize, io::Error)> {
        self.flush(Boundary::MoreFollows).map_err(|error| (0, error))?;
        let mut sent = 0;
        let count = bytes.len().div_ceil(RECORDS * CONTENT_BYTES_MAX);
        for (at, run) in bytes.chunks_mut(RECORDS * CONTENT_BYTES_MAX).enumerate() {
            let boundary = if at + 1 == count { boundary } else { Boundary::MoreFollows };
            self.send_run(run, boundary).map_err(|error| (sent, error))?;
            sent += run.len();
        }
        Ok(())
    }

    /// Encrypts and sends as many records as go in one call.
    fn send_run(&mut self, run: &mut [u8], boundary: Boundary) -> io::Result<()> {
        let seal = |content: &mut [u8]| self.sealer.seal_apart(content);
        let around = run.chunks_mut(CONTENT_BYTES_MAX).map(seal).collect::<io::Result<Vec<_>>>()?;
        let parts = around.iter().zip(run.chunks(CONTENT_BYTES_MAX));
        let mut parts: Vec<_> = parts
            .flat_map(|(around, content)| [&around.header[..], content, &around.tail])
            .map(IoSlice::new)
            .collect();
        socket::send_parts(&self.socket, &mut parts, boundary)
    }

    /// Encrypts and sends what is held.
    ///
    /// # Errors
    /// What send(2) says; an error where the key has protected all that it may.
    pub(crate) fn flush(&mut self, boundary: Boundary) -> io::Result<()> {
        let held = std::mem::take(&mut self.held_bytes);
        let mut wire_bytes = 0;
        for (at, record) in self.buffer.chunks_mut(RECORD_BYTES).enumerate() {
            let content = held.saturating_sub(at * CONTENT_BYTES_MAX).min(CONTENT_BYTES_MAX);
            if content == 0 {
                break;
            }
            let record = &mut record[..content + OVERHEAD_BYTES];
            self.sealer.seal(record, ContentType::ApplicationData)?;
            wire_bytes += record.len();
        }
        let sent = socket::send_whole_to(&self.socket, &self.buffer[..wire_bytes], boundary);
        sent.map_err(|(_, error)| error)
    }
}

/// The content of full records from a byte of content on.
fn places(buffer: &mut [u8], from: usize, bytes_max: usize) -> impl Iterator<Item = &mut [u8]> {
    let (first, mut skip, mut left) =
        (from / CONTENT_BYTES_MAX, from % CONTENT_BYTES_MAX, bytes_max);
    buffer.chunks_mut(RECORD_BYTES).skip(first).map_while(move |record| {
        let content = &mut record[HEADER_BYTES..][..CONTENT_BYTES_MAX];
        let content = &mut content[std::mem::take(&mut skip)..];
        let bytes = content.len().min(left);
        left -= bytes;
        (bytes > 0).then(|| &mut content[..bytes])
    })
}

impl std::fmt::Debug for SendEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendEnd").field("sealer", &self.sealer).finish_non_exhaustive()
    }
}
