//! Records of TLS 1.3, encrypted and decrypted in place (RFC 8446, 5.2).

use std::io;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use haul_sys::ktls::{Cipher, IV_BYTES};

/// Bytes of the header of a record: type, version and length.
pub const HEADER_BYTES: usize = 5;
/// Most bytes of a record's content.
pub const CONTENT_BYTES_MAX: usize = 1 << 14;
const TAG_BYTES: usize = 16;
/// Bytes of a record beside its content: header, type of the content, tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// Bytes of a full record, as haul sends it.
pub const RECORD_BYTES: usize = CONTENT_BYTES_MAX + OVERHEAD_BYTES;
/// Most bytes behind a header: the content, and up to 256 of type, padding and tag.
const BODY_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;
/// Bytes of the longest record that a peer may send.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;

/// Most records under one key of AES-GCM, rounded down (RFC 8446, 5.5: 2^24.5).
pub const RECORDS_MAX: u64 = 1 << 24;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    Alert,
    Handshake,
    ApplicationData,
}

impl ContentType {
    /// The type as it goes over the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::ApplicationData => 23,
        }
    }

    fn of(number: u8) -> Option<Self> {
        let all = [Self::Alert, Self::Handshake, Self::ApplicationData];
        all.into_iter().find(|one| one.number() == number)
    }
}

/// The key of one direction, and the number of its next record.
struct Direction {
    key: LessSafeKey,
    iv: [u8; IV_BYTES],
    sequence: u64,
    records: u64,
}

impl Direction {
    fn new(cipher: Cipher, key: &[u8], iv: [u8; IV_BYTES], sequence: u64) -> io::Result<Self> {
        let algorithm: &'static Algorithm = match cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, "a key of a wrong length");
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).map_err(wrong)?);
        Ok(Self { key, iv, sequence, records: 0 })
    }

    /// Nonce of the next record, which no other has (RFC 8446, 5.3).
    fn next_nonce(&mut self) -> io::Result<Nonce> {
        if self.records >= RECORDS_MAX {
            return Err(io::Error::other("2^24 records, more than one key may protect"));
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        self.records += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Bytes of a record around its content.
#[derive(Debug)]
pub struct Around {
    pub header: [u8; HEADER_BYTES],
    pub tail: [u8; 1 + TAG_BYTES],
}

/// Encrypts the records of one direction.
pub struct Sealer(Direction);

impl Sealer {
    /// Takes a key, and the number of the first record that it is for.
    ///
    /// # Errors
    /// If the key has not the cipher's length.
    pub fn new(cipher: Cipher, key: &[u8], iv: [u8; IV_BYTES], sequence: u64) -> io::Result<Self> {
        Direction::new(cipher, key, iv, sequence).map(Self)
    }

    /// Makes a record of its content, which stands behind room for the header and before room for
    /// the content's type and the tag.
    ///
    /// # Errors
    /// If this key has protected all that it may.
    ///
    /// # Panics
    /// If the record has a length that none may have.
    pub fn seal(&mut self, record: &mut [u8], content: ContentType) -> io::Result<()> {
        let longest = CONTENT_BYTES_MAX + OVERHEAD_BYTES;
        assert!((OVERHEAD_BYTES..=longest).contains(&record.len()), "a record of another length");
        let nonce = self.0.next_nonce()?;
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&header_of(body.len()));
        let (content_and_type, tag) = body.split_at_mut(body.len() - TAG_BYTES);
        content_and_type[content_and_type.len() - 1] = content.number();
        let sealed =
            self.0.key.seal_in_place_separate_tag(nonce, Aad::from(&*header), content_and_type);
        let sealed = sealed.map_err(|_| io::Error::other("the cipher failed"))?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// Encrypts the content of a record where it lies; what stands before and behind it on the wire
    /// is returned: the header, and the encrypted type of the content with the tag.
    ///
    /// # Errors
    /// If this key has protected all that it may.
    ///
    /// # Panics
    /// If the content is empty, or more than a record holds.
    pub fn seal_apart(&mut self, content: &mut [u8]) -> io::Result<Around> {
        assert!((1..=CONTENT_BYTES_MAX).contains(&content.len()), "a record of another length");
        let nonce = self.0.next_nonce()?;
        let header = header_of(content.len() + 1 + TAG_BYTES);
        let mut tail = [0; 1 + TAG_BYTES];
        let kind = [ContentType::ApplicationData.number()];
        let sealed =
            self.0.key.seal_in_place_scatter(nonce, Aad::from(&header), content, &kind, &mut tail);
        sealed.map_err(|_| io::Error::other("the cipher failed"))?;
        Ok(Around { header, tail })
    }

    /// Makes one record of a few bytes.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// If the bytes are more than a record holds.
    pub fn record(&mut self, content: ContentType, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut record = vec![0; bytes.len() + OVERHEAD_BYTES];
        record[HEADER_BYTES..HEADER_BYTES + bytes.len()].copy_from_slice(bytes);
        self.seal(&mut record, content)?;
        Ok(record)
    }
}

fn header_of(body_bytes: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = u16::try_from(body_bytes).expect("less than 64 KiB").to_be_bytes();
    [ContentType::ApplicationData.number(), 3, 3, high, low]
}

/// Length of the record that these bytes begin with, header included; `None` before its header is
/// there.
///
/// # Errors
/// If the header is none of an encrypted record.
pub fn record_bytes(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let body_bytes = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if header[0] != ContentType::ApplicationData.number()
        || !(1 + TAG_BYTES..=BODY_BYTES_MAX).contains(&body_bytes)
    {
        return Err(invalid("what came is no record of TLS 1.3"));
    }
    Ok(Some(HEADER_BYTES + body_bytes))
}

/// Decrypts the records of one direction.
pub struct Opener(Direction);

impl Opener {
    /// Takes a key, and the number of the first record that it is for.
    ///
    /// # Errors
    /// If the key has not the cipher's length.
    pub fn new(cipher: Cipher, key: &[u8], iv: [u8; IV_BYTES], sequence: u64) -> io::Result<Self> {
        Direction::new(cipher, key, iv, sequence).map(Self)
    }

    /// Decrypts a whole record; its content of this type and length is then behind the header.
    ///
    /// # Errors
    /// `InvalidData` if it was not encrypted with this key as this record, or its content is none.
    ///
    /// # Panics
    /// If the record is shorter than any.
    pub fn open(&mut self, record: &mut [u8]) -> io::Result<(ContentType, usize)> {
        assert!(record.len() >= OVERHEAD_BYTES, "a record shorter than any");
        let nonce = self.0.next_nonce()?;
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let opened = self.0.key.open_in_place(nonce, Aad::from(&*header), body);
        content_of(opened.map_err(|_| invalid(CHANGED))?)
    }

    /// Decrypts a whole record to the beginning of `out`, which holds all that is encrypted in it:
    /// more bytes than its content. Says the content's type and length.
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Panics
    /// If the record is shorter than any, or there is no room for it.
    pub fn open_to(&mut self, record: &[u8], out: &mut [u8]) -> io::Result<(ContentType, usize)> {
        assert!(record.len() >= OVERHEAD_BYTES, "a record shorter than any");
        let nonce = self.0.next_nonce()?;
        let out = &mut out[..inner_bytes(record.len())];
        let (header, body) = record.split_at(HEADER_BYTES);
        let (inner, tag) = body.split_at(out.len());
        let opened = self.0.key.open_separate_gather(nonce, Aad::from(header), inner, tag, out);
        opened.map_err(|_| invalid(CHANGED))?;
        content_of(out)
    }
}

/// Bytes that are encrypted in a record of this length: its content, its type and padding.
#[must_use]
pub const fn inner_bytes(record_bytes: usize) -> usize {
    record_bytes - HEADER_BYTES - TAG_BYTES
}

/// Type and length of a content: behind it is its type, then zeros (RFC 8446, 5.4).
fn content_of(inner: &[u8]) -> io::Result<(ContentType, usize)> {
    let type_at = inner.iter().rposition(|byte| *byte != 0);
    let type_at = type_at.ok_or_else(|| invalid("a record without content"))?;
    let content = ContentType::of(inner[type_at])
        .ok_or_else(|| invalid("a record of a content that TLS 1.3 has not"))?;
    if type_at > CONTENT_BYTES_MAX {
        return Err(invalid("a record of more than 16384 bytes"));
    }
    Ok((content, type_at))
}

const CHANGED: &str = "a record was changed on its way";

pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

macro_rules! hide_key {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("records", &self.0.records)
                    .finish_non_exhaustive()
            }
        }
    };
}

hide_key!(Sealer);
hide_key!(Opener);

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [9; 32];
    const IV: [u8; IV_BYTES] = [4; IV_BYTES];
    const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    fn both(cipher: Cipher, sequence: u64) -> (Sealer, Opener) {
        let key = &KEY[..cipher.key_bytes()];
        let sealer = Sealer::new(cipher, key, IV, sequence).unwrap();
        (sealer, Opener::new(cipher, key, IV, sequence).unwrap())
    }

    #[test]
    fn what_is_sealed_is_opened_in_the_same_order_only() {
        for cipher in CIPHERS {
            let (mut sealer, mut opener) = both(cipher, 3);
            let mut first = sealer.record(ContentType::ApplicationData, b"hello").unwrap();
            let mut second = sealer.record(ContentType::Alert, &[1, 0]).unwrap();
            assert_eq!(first.len(), 5 + OVERHEAD_BYTES);
            assert_eq!(record_bytes(&first).unwrap(), Some(first.len()));
            let again = first.clone();
            assert_eq!(opener.open(&mut first).unwrap(), (ContentType::ApplicationData, 5));
            assert_eq!(&first[HEADER_BYTES..][..5], b"hello");
            assert_eq!(opener.open(&mut second).unwrap(), (ContentType::Alert, 2));
            assert!(opener.open(&mut again.clone()).is_err(), "it is replayed");
        }
    }

    /// RFC 8448, 3 ("Simple 1-RTT Handshake"): the client's record of 50 bytes under AES-128-GCM.
    #[test]
    fn the_record_of_an_example_in_the_standard_is_made_byte_for_byte() {
        let key = hex("17422dda596ed5d9acd890e3c63f5051");
        let iv = hex("5b78923dee08579033e523d9");
        let content: Vec<u8> = (0..50).collect();
        let mut sealer = Sealer::new(Cipher::Aes128Gcm, &key, iv.try_into().unwrap(), 0).unwrap();
        let record = sealer.record(ContentType::ApplicationData, &content).unwrap();
        let expected = "17030300 43a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8\
                        a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4";
        assert_eq!(record, hex(&expected.replace(' ', "")));
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (mut sealer, _) = both(Cipher::Aes128Gcm, 0);
        let record = sealer.record(ContentType::ApplicationData, b"hello").unwrap();
        for bit in 0..record.len() * 8 {
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let (_, mut opener) = both(Cipher::Aes128Gcm, 0);
            assert!(opener.open(&mut changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_may_be_padded_and_must_have_a_type() {
        let (mut sealer, mut opener) = both(Cipher::Aes128Gcm, 0);
        let seal_raw = |sealer: &mut Sealer, inner: &[u8]| {
            let mut record = vec![0; HEADER_BYTES + inner.len() + TAG_BYTES];
            let body_bytes = record.len() - HEADER_BYTES;
            record[..HEADER_BYTES].copy_from_slice(&header_of(body_bytes));
            record[HEADER_BYTES..][..inner.len()].copy_from_slice(inner);
            let nonce = sealer.0.next_nonce().unwrap();
            let (header, body) = record.split_at_mut(HEADER_BYTES);
            let (inner, tag) = body.split_at_mut(inner.len());
            let sealed = sealer.0.key.seal_in_place_separate_tag(nonce, Aad::from(&*header), inner);
            tag.copy_from_slice(sealed.unwrap().as_ref());
            record
        };
        let mut padded = seal_raw(&mut sealer, &[7, 0, 8, 23, 0, 0, 0]);
        assert_eq!(opener.open(&mut padded).unwrap(), (ContentType::ApplicationData, 3));
        assert_eq!(padded[HEADER_BYTES..][..3], [7, 0, 8]);
        let mut refused = |inner: &[u8]| {
            let mut record = seal_raw(&mut sealer, inner);
            opener.open(&mut record).unwrap_err().to_string()
        };
        assert_eq!(refused(&[0, 0]), "a record without content");
        assert_eq!(refused(&[1, 20]), "a record of a content that TLS 1.3 has not");
        let mut long = vec![1; CONTENT_BYTES_MAX + 1];
        long.push(23);
        assert_eq!(refused(&long), "a record of more than 16384 bytes");
    }

    #[test]
    fn what_is_no_record_is_told_by_its_header() {
        assert_eq!(record_bytes(&[23, 3, 3, 0]).unwrap(), None);
        for header in [[22, 3, 3, 0, 40], [23, 3, 3, 0, 16], [23, 3, 3, 0x41, 1]] {
            assert!(record_bytes(&header).is_err(), "{header:?}");
        }
        assert_eq!(record_bytes(&[23, 3, 3, 0x41, 0]).unwrap(), Some(RECORD_BYTES_MAX));
        assert_eq!(record_bytes(&[23, 3, 3, 0, 17]).unwrap(), Some(OVERHEAD_BYTES));
    }

    #[test]
    fn a_key_protects_no_more_than_it_may() {
        let (mut sealer, _) = both(Cipher::Aes128Gcm, 0);
        sealer.0.records = RECORDS_MAX - 1;
        assert!(sealer.record(ContentType::ApplicationData, b"the last").is_ok());
        let error = sealer.record(ContentType::ApplicationData, b"one more").unwrap_err();
        assert_eq!(error.to_string(), "2^24 records, more than one key may protect");
        assert!(!format!("{sealer:?}").contains('9'), "no key is shown");
    }
}
