//! Transport of a connection's bytes through its socket: as they are, or by TLS.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use haul_sys::TcpInfo;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use crate::{
    delivery::{Plain, Sink},
    tls::{Certificate, Kernel, Stream, Then},
};

#[derive(Debug)]
pub(super) enum Transport {
    Plain,
    /// Encrypted by this process.
    Tls(Box<Stream>),
    /// Encrypted by the kernel.
    Kernel(Box<Kernel>),
}

impl Transport {
    /// Chooses TLS where there is a certificate; the kernel may take over once the greeting is
    /// over.
    ///
    /// # Errors
    /// As of [`Stream::new`].
    pub fn new(certificate: Option<&Certificate>) -> io::Result<Self> {
        let Some(certificate) = certificate else { return Ok(Self::Plain) };
        Ok(Self::Tls(Box::new(Stream::new(certificate.config())?)))
    }

    /// Reads what the client says; 0 where it says nothing more.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there; what the socket says, and what is no TLS.
    pub fn read(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain => loop {
                match recv(socket, &mut *buffer, RecvFlags::empty()) {
                    Ok((_, received)) => return Ok(received),
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            },
            Self::Tls(stream) => match stream.read(socket, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(kernel) = stream.give_away(socket)? else { return Err(error) };
                    *self = Self::Kernel(Box::new(kernel));
                    self.read(socket, buffer)
                }
                read => read,
            },
            Self::Kernel(kernel) => kernel.read(socket, buffer),
        }
    }

    /// Whether bytes are there of which epoll does not tell.
    pub fn has_plaintext(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_plaintext())
    }

    pub fn is_greeting(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_greeting())
    }

    /// Whether a part of a record waits until the socket has room.
    pub fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.wants_write())
    }

    /// Sends what waits for the socket, and says whether nothing waits any longer.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<bool> {
        match self {
            Self::Plain => Ok(true),
            Self::Tls(stream) => {
                let is_empty = stream.flush(socket)?;
                if let Some(kernel) = stream.give_away(socket)? {
                    *self = Self::Kernel(Box::new(kernel));
                }
                Ok(is_empty)
            }
            Self::Kernel(kernel) => kernel.flush(socket),
        }
    }

    /// Ends what is sent; a flush takes that to the client.
    pub fn end(&mut self) {
        match self {
            Self::Plain => {}
            Self::Tls(stream) => stream.end(),
            Self::Kernel(kernel) => kernel.end(),
        }
    }

    /// Sends of a text what the socket takes, and tells how much that was.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; what it says.
    pub fn send_text(&mut self, socket: &TcpStream, text: &[u8], then: Then) -> io::Result<usize> {
        match self {
            Self::Plain => send_plain(socket, text, then),
            Self::Tls(stream) => stream.send(socket, text, then),
            // The kernel would keep back a record that is not full until the next comes.
            Self::Kernel(_) => send_plain(socket, text, Then::Nothing),
        }
    }

    pub fn sink<'a>(&'a mut self, socket: &'a TcpStream) -> Wire<'a> {
        match self {
            Self::Plain | Self::Kernel(_) => Wire::Plain(Plain(socket.as_fd())),
            Self::Tls(stream) => Wire::Tls(stream, socket),
        }
    }

    /// Notes how many bytes the socket, or what encrypts for it, took.
    ///
    /// # Errors
    /// Where no more may be sent.
    pub fn note_sent(&mut self, sent_bytes: u64) -> io::Result<()> {
        match self {
            Self::Plain | Self::Tls(_) => Ok(()),
            Self::Kernel(kernel) => kernel.note_sent(sent_bytes),
        }
    }

    /// Bytes that the client's kernel has acknowledged, of all answers together.
    pub fn there_bytes(&mut self, socket: &TcpStream, tcp: &TcpInfo) -> u64 {
        match self {
            Self::Plain => tcp.bytes_acked,
            // Of an accepted socket the kernel counts no byte for the greeting of TCP.
            Self::Tls(stream) => stream.there_bytes(tcp.bytes_acked),
            Self::Kernel(kernel) => kernel.there_bytes(socket, tcp.bytes_acked),
        }
    }
}

/// Target of a file's bytes: the socket, or what encrypts for it.
pub(super) enum Wire<'a> {
    Plain(Plain<'a>),
    Tls(&'a mut Stream, &'a TcpStream),
}

impl Sink for Wire<'_> {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Plain(plain) => plain.socket(),
            Self::Tls(..) => None,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.send(bytes),
            Self::Tls(stream, socket) => stream.send(socket, bytes, Then::Nothing),
        }
    }
}

/// Sends bytes as they are; MSG_MORE keeps a head and the first bytes of a file together.
fn send_plain(socket: &TcpStream, text: &[u8], then: Then) -> io::Result<usize> {
    let more = if then == Then::More { SendFlags::MORE } else { SendFlags::empty() };
    loop {
        match send(socket, text, more | SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
