//! Control connection: messages in and out over TLS, without ever blocking the session.

use super::waker::Waker;
use crate::digest::{EXPORTER_LABEL, SessionKeys};
use haul_protocol::{Message, ProtocolError, decode_message, encode_message, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// Most bytes that wait to be sent; a peer that reads nothing is cut off then.
const OUTGOING_BYTES_MAX: usize = 8 << 20;
/// Bytes of plain text that go to TLS at a time.
const RECORD_BYTES: usize = 16 << 10;

/// Most messages handed over in a turn, before the session does something else.
const MESSAGES_A_TURN: usize = 128;
const READS_A_TURN: usize = 64;
/// Time for which a closed connection waits for the peer's own close.
const LINGER: Duration = Duration::from_millis(300);

/// Reason why the control connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer does not read its messages.
    #[error("the peer does not read its messages")]
    Unread,
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS failed.
    #[error("{0}")]
    Tls(rustls::Error),
    /// The peer broke the protocol.
    #[error("{0}")]
    Protocol(ProtocolError),
}

/// A control connection.
pub struct Control {
    socket: TcpStream,
    tls: rustls::Connection,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were handed over as messages.
    decoded_bytes: usize,
    /// Messages that were taken off the wire and given back: they come first again.
    unread: Vec<Message>,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are in TLS records already.
    taken_bytes: usize,
    message_bytes_max: usize,
    /// Time when the peer last sent anything.
    pub heard_at: Instant,
}

impl Control {
    /// Control connection over a socket, which is made non-blocking.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn new(socket: TcpStream, tls: rustls::Connection) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            tls,
            incoming: Vec::new(),
            decoded_bytes: 0,
            unread: Vec::new(),
            outgoing: Vec::new(),
            taken_bytes: 0,
            message_bytes_max: limits::MESSAGE_BYTES_MAX_UNKNOWN,
            heard_at: Instant::now(),
        })
    }

    /// Takes longer messages from now on, for the peer has shown who it is.
    pub fn trust(&mut self) {
        self.message_bytes_max = limits::MESSAGE_BYTES_MAX;
    }

    /// The socket below TLS.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Keys of a session, as both ends of this connection export them.
    ///
    /// # Errors
    /// If the TLS handshake is not over.
    pub fn session_keys(&self, session: &[u8; 16]) -> Result<SessionKeys, ControlError> {
        let mut bytes = [0; limits::DATA_KEYS_BYTES];
        match &self.tls {
            rustls::Connection::Client(tls) => {
                tls.export_keying_material(&mut bytes, EXPORTER_LABEL, Some(session))
            }
            rustls::Connection::Server(tls) => {
                tls.export_keying_material(&mut bytes, EXPORTER_LABEL, Some(session))
            }
        }
        .map_err(ControlError::Tls)?;
        Ok(SessionKeys::from_bytes(&bytes))
    }

    /// Takes a message to be sent by the next [`Self::turn`].
    pub fn queue(&mut self, message: Message) {
        encode_message(message, &mut self.outgoing);
    }

    /// Gives messages back that the next [`Self::turn`] is to return.
    pub fn unread(&mut self, messages: Vec<Message>) {
        self.unread = messages;
    }

    /// Sends what is queued, waits at most `timeout` for the peer or the waker, and returns what
    /// arrived.
    ///
    /// # Errors
    /// If the connection is over, or the peer broke the protocol; what came before that is returned
    /// first.
    pub fn turn(
        &mut self,
        timeout: Duration,
        waker: Option<&Waker>,
    ) -> Result<Vec<Message>, ControlError> {
        // A peer that is gone may have left words; one that does not listen may go on for ever.
        let mut written = match self.write_out() {
            Err(ControlError::Unread) => return Err(ControlError::Unread),
            written => written,
        };
        if !self.unread.is_empty() {
            return Ok(std::mem::take(&mut self.unread));
        }
        let mut messages = self.take_messages()?;
        if !messages.is_empty() {
            return Ok(messages);
        }
        let timeout = if written.is_ok() { timeout } else { Duration::ZERO };
        let wants_write = self.tls.wants_write();
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, wants_write);
        let mut fds = vec![PollFd::new(&self.socket, events)];
        if let Some(waker) = waker {
            fds.push(PollFd::new(waker, PollFlags::IN));
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let readable = !fds[0].revents().is_empty();
        if let Some(waker) = waker {
            waker.clear();
        }
        let ended = if readable { self.read_in() } else { Ok(()) };
        messages = self.take_messages()?;
        written = written.and_then(|()| self.write_out());
        if messages.is_empty() {
            ended.and(written)?;
        }
        Ok(messages)
    }

    /// Tries for at most `timeout` to get out what is queued, then says goodbye.
    pub(crate) fn close(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        // The goodbye comes last: nothing can be said behind it.
        if !self.flush_by(deadline) {
            return;
        }
        self.tls.send_close_notify();
        if !self.flush_by(deadline) {
            return;
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        // Unread bytes at the close would reset the connection and take our last words with it.
        let mut scrap = [0; 4096];
        while Instant::now() < deadline && self.wait_for(PollFlags::IN, LINGER.min(timeout)) {
            match self.socket.read(&mut scrap) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }

    /// Sends until `deadline`; true when everything queued is with the kernel.
    fn flush_by(&mut self, deadline: Instant) -> bool {
        loop {
            if self.write_out().is_err() {
                return false;
            }
            if self.outgoing.is_empty() && !self.tls.wants_write() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.wait_for(PollFlags::OUT, left) {
                return false;
            }
        }
    }

    fn wait_for(&self, events: PollFlags, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.socket, events)];
        let Ok(timeout) = Timespec::try_from(timeout) else { return false };
        poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// Moves queued bytes into TLS records and those into the socket, as far as it takes them.
    fn write_out(&mut self) -> Result<(), ControlError> {
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return if self.outgoing.len() - self.taken_bytes > OUTGOING_BYTES_MAX {
                            Err(ControlError::Unread)
                        } else {
                            Ok(())
                        };
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.outgoing.is_empty() || self.tls.is_handshaking() {
                return Ok(());
            }
            let next = &self.outgoing[self.taken_bytes..];
            self.taken_bytes += self.tls.writer().write(&next[..next.len().min(RECORD_BYTES)])?;
            // Many small messages may wait: what is taken goes when it is half of all.
            if self.taken_bytes * 2 >= self.outgoing.len() {
                self.outgoing.drain(..self.taken_bytes);
                self.taken_bytes = 0;
            }
        }
    }

    fn read_in(&mut self) -> Result<(), ControlError> {
        for _ in 0..READS_A_TURN {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(ControlError::Closed),
                Ok(_) => self.heard_at = Instant::now(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The alert that tells the peer why.
                let _ = self.tls.write_tls(&mut self.socket);
                return Err(ControlError::Tls(error));
            }
            self.read_plain()?;
            if self.incoming.len() - self.decoded_bytes > self.message_bytes_max * 2 {
                // Enough for now: what is here is handled first.
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_plain(&mut self) -> Result<(), ControlError> {
        let mut buffer = [0; RECORD_BYTES];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Err(ControlError::Closed),
                Ok(len) => self.incoming.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(ControlError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_messages(&mut self) -> Result<Vec<Message>, ControlError> {
        let mut messages = Vec::new();
        // Small messages take more memory decoded than on the wire.
        while messages.len() < MESSAGES_A_TURN {
            let next = &self.incoming[self.decoded_bytes..];
            match decode_message(next, self.message_bytes_max) {
                Ok(None) => break,
                Ok(Some((message, len))) => {
                    messages.push(message);
                    self.decoded_bytes += len;
                }
                Err(error) if messages.is_empty() => return Err(ControlError::Protocol(error)),
                // It comes again once these are handled.
                Err(_) => break,
            }
        }
        // As of `outgoing`: what is left is not moved for every few messages.
        if self.decoded_bytes * 2 >= self.incoming.len() {
            self.incoming.drain(..self.decoded_bytes);
            self.decoded_bytes = 0;
        }
        Ok(messages)
    }
}
