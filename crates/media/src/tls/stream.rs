//! A connection that this process encrypts and decrypts, over a socket that does not wait.
//!
//! Copies per byte: out of the page cache into the loop's buffer, encrypted into a record, and into
//! the socket. At most one record waits for the socket, so a client that takes nothing holds
//! 16 KiB.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

use haul_sys::ktls;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};

use super::{
    kernel::{self, Kernel},
    ledger::{Ledger, RECORD_BYTES_MAX},
    overhead_bytes,
};

/// Most bytes that a client may say before the connection stands: two greetings with the longest
/// keys, and no certificate, which is not asked for.
const HANDSHAKE_BYTES_MAX: u64 = 16 << 10;
/// Most bytes that a client may say in a row of which no data comes: a record may be 16 KiB and
/// come in parts. rustls bounds empty records in a row, and new keys without data, and not the two
/// in turns.
const SILENT_BYTES_MAX: u64 = 2 * RECORD_BYTES_MAX;
/// Most records of one connection: half of what AES-GCM bears under one key (RFC 8446, 5.5). That
/// is 128 GiB; whoever wants more begins another. In TLS 1.3 rustls changes the key before.
pub const RECORDS_MAX: u64 = 1 << 23;
/// Most reads after the last words to a client that speaks no TLS: to close before they are read
/// would make it lose them.
const LAST_READS_MAX: usize = 16;
/// Answer to a client that asks for `http://` where only `https://` is spoken: an alert would tell
/// it nothing.
const SPEAK_TLS: &str = "This address speaks HTTPS: ask for https:// instead of http://.\n";

#[derive(Debug)]
pub struct Stream {
    connection: ServerConnection,
    config: Arc<ServerConfig>,
    /// Bytes written to the socket.
    wire_bytes: u64,
    received_bytes: u64,
    /// Bytes received since the last data.
    silent_bytes: u64,
    /// First byte that the client said; a kind of record has a number below 32 (RFC 8446, B.1).
    first_byte: Option<u8>,
    /// Number of records with bytes of the stream.
    records: u64,
    ledger: Ledger,
    /// Bytes that are decrypted and not taken yet.
    decrypted_bytes: usize,
    /// End of the record that is read, while the kernel may get this connection: nothing is read
    /// that it would have to decrypt.
    border: Option<Border>,
}

/// Whether the next bytes follow at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    More,
    Nothing,
}

impl Stream {
    /// Begins the server's side of a connection, before the client greets.
    ///
    /// # Errors
    /// If the configuration makes no sense, which it would for all.
    pub fn new(config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(RECORD_BYTES_MAX as usize));
        Ok(Self {
            connection,
            config,
            wire_bytes: 0,
            received_bytes: 0,
            silent_bytes: 0,
            first_byte: None,
            records: 0,
            ledger: Ledger::default(),
            decrypted_bytes: 0,
            border: kernel::is_there().then(Border::default),
        })
    }

    /// Whether the client has begun to greet, and the connection does not stand yet.
    pub fn is_greeting(&self) -> bool {
        self.connection.is_handshaking() && self.received_bytes > 0
    }

    pub fn has_plaintext(&self) -> bool {
        self.decrypted_bytes > 0
    }

    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Reads what the client says; 0 where it says nothing more. The socket is read only where
    /// nothing decrypted is left.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there; what the socket says; `InvalidData` where it is no TLS,
    /// and the client was told so.
    pub fn read(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decrypted_bytes > 0 {
                let taken = self.connection.reader().read(buffer)?;
                self.decrypted_bytes -= taken;
                return Ok(taken);
            }
            // What it is owed goes first, so that it cannot make it grow.
            let is_full = self.connection.is_handshaking() && !self.flush(socket)?;
            if is_full || self.waits_for_kernel() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut incoming =
                Incoming { socket, border: self.border.as_mut(), first_byte: &mut self.first_byte };
            let received = self.connection.read_tls(&mut incoming)?;
            self.received_bytes += received as u64;
            let has_closed = match self.connection.process_new_packets() {
                Ok(state) => {
                    self.decrypted_bytes = state.plaintext_bytes_to_read();
                    // To close without a word is no harm to requests.
                    received == 0 || state.peer_has_closed()
                }
                Err(error) => {
                    self.refuse(socket);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            let is_silent = !self.connection.is_handshaking() && self.decrypted_bytes == 0;
            self.silent_bytes = if is_silent { self.silent_bytes + received as u64 } else { 0 };
            let is_too_long =
                self.connection.is_handshaking() && self.received_bytes > HANDSHAKE_BYTES_MAX;
            if is_too_long || self.silent_bytes > SILENT_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.flush(socket)?;
            if has_closed && self.decrypted_bytes == 0 {
                return Ok(0);
            }
        }
    }

    /// Whether the connection stands, and has read nothing behind the greeting.
    fn waits_for_kernel(&self) -> bool {
        self.border.is_some() && !self.connection.is_handshaking()
    }

    /// Gives the connection to the kernel, once it stands and nothing waits on this side; `None`
    /// where it stays here.
    ///
    /// # Errors
    /// What the kernel says to its keys: then the connection is of no use.
    pub fn give_away(&mut self, socket: &TcpStream) -> io::Result<Option<Kernel>> {
        if !self.waits_for_kernel() || self.wants_write() {
            return Ok(None);
        }
        self.border = None;
        let connection = &self.connection;
        let version = connection.protocol_version();
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let (Some(version), Some(suite)) = (version, suite) else { return Ok(None) };
        let Some(pair) = kernel::pair(version, suite) else { return Ok(None) };
        // Who has closed already is answered from here.
        if ktls::attach(socket).is_err() {
            return Ok(None);
        }
        // Another takes its place, as the keys leave it only with its end.
        let other = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        let connection = std::mem::replace(&mut self.connection, other);
        let secrets = connection.dangerous_extract_secrets().map_err(io::Error::other)?;
        let overhead_bytes = overhead_bytes(suite);
        Kernel::new(socket, pair, &secrets, overhead_bytes, self.wire_bytes).map(Some)
    }

    /// Refuses what is no TLS: by an alert, or by words to a client that speaks HTTP, which arrive.
    fn refuse(&mut self, socket: &TcpStream) {
        if self.first_byte.is_some_and(|byte| byte.is_ascii_uppercase()) {
            let answer = format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                Content-Length: {}\r\nConnection: close\r\n\r\n{SPEAK_TLS}",
                SPEAK_TLS.len()
            );
            let _ = send(socket, answer.as_bytes(), SendFlags::NOSIGNAL);
        } else {
            let _ = self.flush(socket);
        }
        let _ = socket.shutdown(Shutdown::Write);
        let mut thrown_away = [0; 4096];
        for _ in 0..LAST_READS_MAX {
            if !matches!(recv(socket, &mut thrown_away, RecvFlags::empty()), Ok((_, 1..))) {
                break;
            }
        }
    }

    /// Sends what waits for the socket, and says whether nothing waits any longer.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<bool> {
        self.write(socket, Then::Nothing)
    }

    fn write(&mut self, socket: &TcpStream, then: Then) -> io::Result<bool> {
        let mut outgoing = Outgoing { socket, then };
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut outgoing) {
                Ok(written) => self.wire_bytes += written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Encrypts and sends, record by record, until the socket is full: what is left of the last
    /// record is sent with the next call, or by `flush`.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; what it says.
    pub fn send(&mut self, socket: &TcpStream, bytes: &[u8], then: Then) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let record = &bytes[sent..];
            let record = &record[..record.len().min(RECORD_BYTES_MAX as usize)];
            let is_last = sent + record.len() == bytes.len();
            // The kernel makes long packets of records that follow each other.
            let then = if is_last { then } else { Then::More };
            if !self.write(socket, then)? {
                break;
            }
            self.check_key()?;
            let taken = self.connection.writer().write(record)?;
            if taken > 0 {
                if self.records == 0 {
                    self.learn_overhead();
                }
                self.records += 1;
                self.ledger.tell(self.wire_bytes, taken as u64);
                sent += taken;
            }
            if !self.write(socket, then)? {
                break;
            }
        }
        if sent == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(sent)
    }

    fn learn_overhead(&mut self) {
        if let Some(suite) = self.connection.negotiated_cipher_suite() {
            self.ledger.set_overhead(overhead_bytes(suite.suite()));
        }
    }

    /// Checks that another record may be sent under the key.
    ///
    /// # Errors
    /// Where no more may be sent under this key.
    fn check_key(&self) -> io::Result<()> {
        let changes = self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if !changes && self.records >= RECORDS_MAX {
            return Err(io::Error::other("so much is not sent under one key"));
        }
        Ok(())
    }

    /// Says the last word, after all that was sent (RFC 8446, 6.1); it waits for a flush.
    pub fn end(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
    }

    /// Bytes of the stream that the client has, where its kernel has `wire_bytes` of the wire.
    pub fn there_bytes(&mut self, wire_bytes: u64) -> u64 {
        let waits = u64::from(self.wants_write());
        self.ledger.plain_among(wire_bytes, self.wire_bytes + waits)
    }
}

struct Incoming<'a> {
    socket: &'a TcpStream,
    border: Option<&'a mut Border>,
    first_byte: &'a mut Option<u8>,
}

/// Place at which a record ends, by its head.
#[derive(Debug, Default)]
struct Border {
    head: [u8; RECORD_HEAD_BYTES],
    head_bytes: usize,
    /// Bytes left of the record whose head is there.
    left_bytes: usize,
}

/// Bytes of a record's kind, version and length (RFC 8446, 5.1).
const RECORD_HEAD_BYTES: usize = 5;

impl Border {
    /// Bytes that may be read of this record, or of its head.
    fn room(&self) -> usize {
        match self.left_bytes {
            0 => RECORD_HEAD_BYTES - self.head_bytes,
            left_bytes => left_bytes,
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        if self.left_bytes > 0 {
            self.left_bytes -= bytes.len();
            return;
        }
        self.head[self.head_bytes..self.head_bytes + bytes.len()].copy_from_slice(bytes);
        self.head_bytes += bytes.len();
        if self.head_bytes == RECORD_HEAD_BYTES {
            self.head_bytes = 0;
            self.left_bytes = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
        }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = self.border.as_ref().map_or(usize::MAX, |border| border.room());
        let room = room.min(buffer.len());
        loop {
            match recv(self.socket, &mut buffer[..room], RecvFlags::empty()) {
                Ok((_, received)) => {
                    *self.first_byte = self.first_byte.or(buffer[..received].first().copied());
                    if let Some(border) = &mut self.border {
                        border.pass(&buffer[..received]);
                    }
                    return Ok(received);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

struct Outgoing<'a> {
    socket: &'a TcpStream,
    then: Then,
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let more = if self.then == Then::More { SendFlags::MORE } else { SendFlags::empty() };
        loop {
            match send(self.socket, bytes, more | SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
