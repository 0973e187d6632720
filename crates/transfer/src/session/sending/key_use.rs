//! The key of a private stream: how much it has protected, and when another is due.

use crate::session::private::Private;
use haul_datapath::{Wire, tls::RECORDS_MAX};
use haul_protocol::frame::{HEADER_BYTES, TRAILER_BYTES};
use haul_sys::ktls;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// Bytes of a full record of TLS (RFC 8446, 5.1).
const CONTENT_BYTES_MAX: u64 = 1 << 14;
/// Most records that a frame ends before they are full: its header's, its payload's, its trailer's.
const RECORDS_PER_FRAME: u64 = 3;
/// Records after which a stream is replaced, whatever bytes they hold: far below the limit of
/// AES-GCM, since one span may follow.
const RECORDS_BEFORE_RENEWAL: u64 = RECORDS_MAX / 2;

/// The use of a stream's key: how much it has protected, and may protect.
pub struct KeyUse {
    bytes_max: u64,
    records_max: u64,
    /// The connection whose records the kernel makes. It decides their lengths, so it is asked.
    by_kernel: Option<OwnedFd>,
}

impl KeyUse {
    /// Begins to count for a stream over this wire.
    ///
    /// # Errors
    /// If the kernel could not be asked later, as no descriptor is left.
    pub fn of(private: &Private, wire: &Wire) -> io::Result<Self> {
        let by_kernel = match wire {
            Wire::KernelTls(socket) => Some(socket.as_fd().try_clone_to_owned()?),
            _ => None,
        };
        let bytes_max = private.rekey_after_bytes;
        Ok(Self { bytes_max, records_max: RECORDS_BEFORE_RENEWAL, by_kernel })
    }

    /// Whether another key is due, after so many frames with so many bytes of payload.
    pub fn is_used_up(&self, frames: u64, payload_bytes: u64) -> bool {
        let bytes = payload_bytes + frames * (HEADER_BYTES + TRAILER_BYTES) as u64;
        bytes >= self.bytes_max || self.records(frames, bytes) >= self.records_max
    }

    fn records(&self, frames: u64, bytes: u64) -> u64 {
        let by_kernel = self.by_kernel.as_ref().and_then(|socket| ktls::records_sent(socket).ok());
        by_kernel.unwrap_or(bytes / CONTENT_BYTES_MAX + frames * RECORDS_PER_FRAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::ktls::{Cipher, Direction, Key, Version};
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    const KIB: u64 = 1 << 10;

    #[test]
    fn a_key_is_used_up_by_bytes_and_by_records() {
        let key = |bytes_max, records_max| KeyUse { bytes_max, records_max, by_kernel: None };
        let frame_bytes = (HEADER_BYTES + TRAILER_BYTES) as u64;
        let by_bytes = key(10 * KIB, u64::MAX);
        assert!(!by_bytes.is_used_up(1, 10 * KIB - frame_bytes - 1));
        assert!(by_bytes.is_used_up(1, 10 * KIB - frame_bytes));
        // Twenty spans of a KiB end three records each; one of 960 KiB fills 60.
        let by_records = key(u64::MAX, 63);
        assert!(!by_records.is_used_up(20, 20 * KIB) && by_records.is_used_up(21, 21 * KIB));
        assert!(!by_records.is_used_up(1, 959 * KIB) && by_records.is_used_up(1, 960 * KIB));
    }

    /// A kernel that makes more records than their bytes would fill.
    #[test]
    fn the_kernel_is_asked_how_many_records_it_has_made() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        let bytes = [7; 32];
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let (version, key) = (Version::Tls13, &bytes[..cipher.key_bytes()]);
            let key = Key { version, cipher, key, iv: &[3; 12], sequence: 2 };
            if let Err(error) = ktls::attach(&near) {
                return haul_testkit::skip::skip("the kernel's tls", error.to_string());
            }
            ktls::set_key(&near, Direction::Send, &key).unwrap();
            let by_kernel = Some(near.as_fd().try_clone_to_owned().unwrap());
            let used = KeyUse { bytes_max: u64::MAX, records_max: 10, by_kernel };
            (0..7).for_each(|_| near.write_all(b"x").unwrap());
            assert!(!used.is_used_up(1, 7), "{cipher:?}");
            near.write_all(b"x").unwrap();
            assert!(used.is_used_up(1, 8), "{cipher:?}");
            near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        }
    }
}
