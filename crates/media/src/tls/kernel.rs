//! A connection that the kernel encrypts and decrypts: sendfile(2) goes right into its socket.
//!
//! rustls greets, and gives its keys to the kernel when nothing waits on its side. Copies per byte:
//! one, from the page cache into the record, as it is encrypted. A client that asks for new keys
//! (KeyUpdate, RFC 8446, 4.6.3) is left: none does for requests, and Linux can it since 6.14 only.

use std::{io, net::TcpStream, os::fd::AsFd, sync::OnceLock};

use haul_sys::ktls::{self, Cipher, Direction, IV_BYTES, Key, Version};
use rustls::{CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion};

use super::{ledger::RECORD_BYTES_MAX, stream::RECORDS_MAX};

/// Level of a close_notify, a client's and ours (RFC 8446, 6).
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;

/// Most empty records in a row: each costs a call, and no data comes of it.
const EMPTY_RECORDS_MAX: u32 = 64;
/// Most looks for whether all is with TCP: a record goes there within a tick once there is room,
/// and a kernel that counts otherwise is not looked at without end.
const LOOKS_MAX: u32 = 1000;

#[derive(Debug)]
pub struct Kernel {
    cipher: Cipher,
    overhead_bytes: u64,
    /// Bytes on the wire before the kernel had the key.
    greeting_bytes: u64,
    /// Number of the kernel's first record.
    first_record: u64,
    /// Bytes of the stream that the kernel took.
    plain_bytes: u64,
    /// Bytes of alerts.
    alert_bytes: u64,
    end: End,
    /// Number of looks at which nothing was on its way, and not all had been.
    looks: u32,
    /// Number of empty records in a row.
    empty_records: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    Wanted,
    Said,
}

/// A version and cipher that the kernel takes or not.
pub type Pair = (Version, Cipher);

/// Whether this kernel can encrypt for us.
pub fn is_there() -> bool {
    !pairs().is_empty()
}

/// Versions and ciphers that this kernel encrypts with; it is asked once.
pub fn pairs() -> &'static [Pair] {
    static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
        let all = [Version::Tls12, Version::Tls13].map(|version| ciphers.map(|one| (version, one)));
        all.into_iter()
            .flatten()
            .filter(|(version, cipher)| ktls::check(*version, *cipher).is_ok())
            .collect()
    })
}

fn parts(secrets: &ConnectionTrafficSecrets) -> Option<(&[u8], [u8; IV_BYTES])> {
    let (key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => return None,
    };
    Some((key.as_ref(), iv.as_ref().try_into().ok()?))
}

/// IV whose nonces rustls did not use. In TLS 1.2 a record of AES-GCM brings its nonce along, and
/// none may come twice under a key (RFC 5288, 3). rustls makes it of the IV XOR the record's
/// number; the kernel begins with the IV as it is and counts on (net/tls/tls_sw.c), so it would
/// begin with the nonce of rustls' first record. It begins far from all those.
fn unused(mut iv: [u8; IV_BYTES], (version, cipher): Pair) -> [u8; IV_BYTES] {
    if version == Version::Tls12 && cipher != Cipher::ChaCha20Poly1305 {
        iv[4] ^= 0x80;
    }
    iv
}

/// The kernel's name of a suite, if it takes it.
pub fn pair(version: ProtocolVersion, suite: CipherSuite) -> Option<Pair> {
    let version = match version {
        ProtocolVersion::TLSv1_2 => Version::Tls12,
        ProtocolVersion::TLSv1_3 => Version::Tls13,
        _ => return None,
    };
    let cipher = match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Cipher::ChaCha20Poly1305,
        _ => return None,
    };
    pairs().iter().copied().find(|pair| *pair == (version, cipher))
}

impl Kernel {
    /// Takes over a socket that is attached and has `greeting_bytes` of the wire behind it.
    ///
    /// # Errors
    /// What the kernel says to the keys: then the connection is of no use.
    pub fn new(
        socket: &TcpStream,
        (version, cipher): Pair,
        secrets: &ExtractedSecrets,
        overhead_bytes: u64,
        greeting_bytes: u64,
    ) -> io::Result<Self> {
        for (direction, (sequence, secrets)) in
            [(Direction::Receive, &secrets.rx), (Direction::Send, &secrets.tx)]
        {
            let (key, mut iv) = parts(secrets).ok_or(io::ErrorKind::Unsupported)?;
            if direction == Direction::Send {
                iv = unused(iv, (version, cipher));
            }
            let key = Key { version, cipher, key, iv: &iv, sequence: *sequence };
            ktls::set_key(socket, direction, &key)?;
        }
        Ok(Self {
            cipher,
            overhead_bytes,
            greeting_bytes,
            first_record: secrets.tx.0,
            plain_bytes: 0,
            alert_bytes: 0,
            end: End::NotYet,
            looks: 0,
            empty_records: 0,
        })
    }

    /// Reads what the client says; 0 where it says nothing more.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there; what the socket says; `InvalidData` for what is no data
    /// and no end.
    pub fn read(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match ktls::receive(socket, buffer) {
                Ok((0, None)) => return Ok(0),
                // A record may be empty, and its next one not.
                Ok((0, Some(ktls::APPLICATION_DATA))) if self.empty_records < EMPTY_RECORDS_MAX => {
                    self.empty_records += 1;
                }
                Ok((received, None | Some(ktls::APPLICATION_DATA))) if received > 0 => {
                    self.empty_records = 0;
                    return Ok(received);
                }
                Ok((2, Some(ktls::ALERT))) if buffer.get(1) == Some(&CLOSE_NOTIFY) => return Ok(0),
                Ok((_, Some(ktls::ALERT))) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(_) => {
                    let _ = ktls::send_record(socket, ktls::ALERT, &[FATAL, UNEXPECTED_MESSAGE]);
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes how many bytes of the stream the kernel took.
    ///
    /// # Errors
    /// Where no more may be sent under this key.
    pub fn note_sent(&mut self, sent_bytes: u64) -> io::Result<()> {
        self.plain_bytes += sent_bytes;
        if self.plain_bytes / RECORD_BYTES_MAX >= RECORDS_MAX {
            return Err(io::Error::other("so much is not sent under one key"));
        }
        Ok(())
    }

    pub fn end(&mut self) {
        if self.end == End::NotYet {
            self.end = End::Wanted;
        }
    }

    /// Says the end where that is wanted, and whether all that was sent is with TCP by then: what
    /// TLS still holds is lost when the socket is shut down.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if self.end == End::NotYet {
            return Ok(true);
        }
        if self.end == End::Wanted {
            match ktls::send_record(socket, ktls::ALERT, &[WARNING, CLOSE_NOTIFY]) {
                Ok(sent) => self.alert_bytes += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            self.end = End::Said;
        }
        // In this order: what is acknowledged in between is missing in both.
        let acked = haul_sys::TcpInfo::of(socket)?.bytes_acked;
        let unacked = ktls::unacknowledged_bytes(socket)?;
        if unacked == 0 {
            self.looks += 1;
        }
        Ok(acked + unacked >= self.wire_bytes(socket)? || self.looks > LOOKS_MAX)
    }

    /// Bytes on the wire: the greeting, and all records that the kernel made so far.
    fn wire_bytes(&self, socket: &TcpStream) -> io::Result<u64> {
        let next = ktls::next_record(socket.as_fd(), self.cipher)?;
        let records = next.saturating_sub(self.first_record);
        Ok(self.greeting_bytes
            + self.plain_bytes
            + self.alert_bytes
            + records * self.overhead_bytes)
    }

    /// Bytes of the stream that the client has, where its kernel has `wire_bytes` of the wire.
    pub fn there_bytes(&self, socket: &TcpStream, wire_bytes: u64) -> u64 {
        let written = self.wire_bytes(socket).unwrap_or(u64::MAX);
        let missing = written.saturating_sub(wire_bytes);
        // The kernel fills its records.
        let records = missing.div_ceil(RECORD_BYTES_MAX + self.overhead_bytes);
        let missing = missing.saturating_sub(records * self.overhead_bytes);
        self.plain_bytes.saturating_sub(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's first nonce was that of rustls' first record.
    #[test]
    fn no_nonce_of_tls_1_2_comes_twice() {
        let explicit = |iv: [u8; IV_BYTES]| u64::from_be_bytes(*iv.last_chunk().unwrap());
        for start in [0, 1, 2, 0x7fff_ffff_ffff_fffe, u64::MAX, 0x80ff_ffff_ffff_ffff] {
            let mut iv = [5; IV_BYTES];
            iv[4..].copy_from_slice(&u64::to_be_bytes(start));
            let kernels = explicit(unused(iv, (Version::Tls12, Cipher::Aes128Gcm)));
            assert_eq!(unused(iv, (Version::Tls12, Cipher::Aes128Gcm))[..4], iv[..4]);
            // rustls sends the end of its handshake before, and nothing else.
            for record in 0..1_000 {
                assert!((start ^ record).wrapping_sub(kernels) > 2 * RECORDS_MAX, "{start:x}");
            }
            for other in
                [(Version::Tls13, Cipher::Aes128Gcm), (Version::Tls12, Cipher::ChaCha20Poly1305)]
            {
                assert_eq!(unused(iv, other), iv);
            }
        }
    }
}
