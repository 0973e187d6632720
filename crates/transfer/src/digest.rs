//! Digest or MAC of each span, bound to its file, offset and length, and the session's keys.
//!
//! `SPEC.md` of the protocol says what goes into each; `vectors/digests.json` pins them.

use crate::{
    content::{Part, SpanHasher, Value},
    storage::span_digests::{self, DigestOfSpan},
};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use crc_fast::CrcAlgorithm;
use haul_datapath::SpanTap;
use haul_protocol::{
    StreamId,
    frame::{HEADER_BYTES, PayloadStatus, Preface, SpanHeader},
    limits::DATA_KEYS_BYTES,
    message::Digest,
};
use haul_sys::prefetch::prefetch;
use std::{sync::Arc, time::Instant};
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes of a header that a digest binds: all but its CRC.
const BOUND_HEADER_BYTES: usize = HEADER_BYTES - 4;
/// Bytes of the pieces of which each gets a tag of a MAC; one stays in a core's cache.
const CHUNK_BYTES: usize = 256 << 10;
const TAG_BYTES: usize = 16;
/// Bytes from memory that are digested at once, while those [`COLD_AHEAD_BYTES`] ahead are fetched
/// (one core, 2 GiB: CRC-32C at 16.7 GB/s for 14.7 without, XXH3 at 10.7 for 8.1).
const COLD_BYTES: usize = 2 << 10;
const COLD_AHEAD_BYTES: usize = 4 << 10;
/// CRC-32C, of iSCSI and of many storage systems (RFC 3720, 12.1).
const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// The TLS exporter's label (RFC 8446, 7.5); the context is the session's id.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-haul-v1-data";

/// The TLS exporter's label of a private stream; the context is what its preface signs.
pub const PRIVATE_LABEL: &[u8] = b"EXPORTER-haul-v1-private";
/// Bytes of the proof of who opened a private stream, and of what it is made of.
pub const PROOF_BYTES: usize = 32;

/// Proof of who knows a secret: its MAC of a challenge.
#[must_use]
pub fn proof(secret: &[u8; 32], challenge: &[u8]) -> [u8; PROOF_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), challenge);
    tag.as_ref().try_into().expect("a tag of 32 bytes")
}

/// Whether `shown` is the [`proof`] of a challenge, compared in a time that does not tell where it
/// differs.
#[must_use]
pub fn is_proof(secret: &[u8; 32], challenge: &[u8], shown: &[u8; PROOF_BYTES]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), challenge, shown).is_ok()
}

/// Keys that the control connection exported or carried for the data streams of one session.
pub struct SessionKeys {
    preface: hmac::Key,
    chunk: LessSafeKey,
    span: LessSafeKey,
}

impl SessionKeys {
    /// Keys of a session, out of what its TLS connection exports or the server told.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; DATA_KEYS_BYTES]) -> Self {
        let gcm = |key: &[u8]| {
            LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes"))
        };
        Self {
            preface: hmac::Key::new(hmac::HMAC_SHA256, &bytes[..32]),
            chunk: gcm(&bytes[32..64]),
            span: gcm(&bytes[64..]),
        }
    }

    /// The preface that opens a data stream of this session.
    #[must_use]
    pub fn sign_preface(&self, stream: StreamId, session: [u8; 16]) -> Preface {
        let tag = hmac::sign(&self.preface, &Preface::signed_bytes(stream, &session));
        Preface { stream, session, mac: tag.as_ref().try_into().expect("SHA-256 has 32 bytes") }
    }

    /// Whether the preface of a data stream was made with the keys of this session.
    #[must_use]
    pub fn verify_preface(&self, preface: &Preface) -> bool {
        let signed = Preface::signed_bytes(preface.stream, &preface.session);
        hmac::verify(&self.preface, &signed, &preface.mac).is_ok()
    }

    /// Proof of who opened a private stream, out of what its own TLS connection exports.
    #[must_use]
    pub fn prove_private(&self, exported: &[u8; PROOF_BYTES]) -> [u8; PROOF_BYTES] {
        let tag = hmac::sign(&self.preface, exported);
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Whether the proof of a private stream was made with the keys of this session, on this very
    /// TLS connection.
    #[must_use]
    pub fn verify_private(&self, exported: &[u8; PROOF_BYTES], proof: &[u8]) -> bool {
        hmac::verify(&self.preface, exported, proof).is_ok()
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(...)")
    }
}

/// Computes the digests of one stream's spans, one after the other.
pub struct SpanDigest {
    /// Wall time spent on digests, in nanoseconds.
    pub spent_ns: u64,
    state: State,
    /// Hash of the bytes alone, for a manifest, or to read the target back.
    content: Option<SpanHasher>,
    /// Digest of the bytes alone, for a journal.
    journaled: DigestOfSpan,
    is_journaled: bool,
}

enum State {
    None,
    Crc32c(Box<crc_fast::Digest>),
    Xxh3(Box<Xxh3Default>),
    Gmac(Box<Gmac>),
}

impl SpanDigest {
    /// Digests of spans, none of which was begun.
    ///
    /// # Panics
    /// If a MAC is asked for without keys.
    #[must_use]
    pub fn new(digest: Digest, keys: &Arc<SessionKeys>) -> Self {
        let state = match digest {
            Digest::Unknown | Digest::None => State::None,
            Digest::Crc32c => State::Crc32c(Box::new(crc_fast::Digest::new(CRC32C))),
            Digest::Xxh3128 => State::Xxh3(Box::new(Xxh3Default::new())),
            Digest::AesGmac => State::Gmac(Box::new(Gmac::new(keys.clone()))),
        };
        let journaled = DigestOfSpan::default();
        Self { spent_ns: 0, state, content: None, journaled, is_journaled: false }
    }

    /// Computes the BLAKE3 value of each span too.
    #[must_use]
    pub(crate) fn with_content(self) -> Self {
        Self { content: Some(SpanHasher::default()), ..self }
    }

    /// The BLAKE3 value of what was seen since `start`, where that is asked for.
    #[must_use]
    pub(crate) fn content(&self, part: Part) -> Option<Value> {
        self.content.as_ref().map(|content| content.finish(part))
    }

    /// Says whether the next span goes into a journal, for [`Self::journaled`]. Where nothing
    /// verifies the bytes nothing is journaled of them either.
    pub(crate) fn journals(&mut self, journals: bool) {
        self.is_journaled = journals && !matches!(self.state, State::None);
    }

    /// Digest that a journal is to hold of the bytes that were seen since `start`.
    #[must_use]
    pub(crate) fn journaled(&self) -> Option<span_digests::Digest> {
        self.is_journaled.then(|| self.journaled.finish())
    }

    /// Whether any hash or digest looks at the bytes at all.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        self.content.is_some() || !matches!(self.state, State::None)
    }

    /// Begins the span behind `header`.
    pub fn start(&mut self, header: &SpanHeader, encoded: &[u8; HEADER_BYTES]) {
        let bound = &encoded[..BOUND_HEADER_BYTES];
        if let Some(content) = &mut self.content {
            content.start(header.offset_bytes);
        }
        if self.is_journaled {
            self.journaled.start();
        }
        match &mut self.state {
            State::None => {}
            State::Crc32c(crc) => {
                crc.reset();
                crc.update(bound);
            }
            State::Xxh3(hash) => {
                hash.reset();
                hash.update(bound);
            }
            State::Gmac(mac) => mac.start(header, bound),
        }
    }

    /// The digest of what was seen since `start`.
    pub fn finish(&mut self, status: PayloadStatus) -> [u8; 16] {
        let status = [status.to_byte()];
        let mut digest = [0; 16];
        match &mut self.state {
            State::None => {}
            State::Crc32c(crc) => {
                crc.update(&status);
                digest[..8].copy_from_slice(&crc.finalize().to_le_bytes());
            }
            State::Xxh3(hash) => {
                hash.update(&status);
                digest = hash.digest128().to_le_bytes();
            }
            State::Gmac(mac) => digest = mac.finish(status[0]),
        }
        digest
    }
}

impl SpanDigest {
    fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::None => {}
            State::Crc32c(crc) => crc.update(bytes),
            State::Xxh3(hash) => hash.update(bytes),
            State::Gmac(mac) => mac.update(bytes),
        }
    }

    /// Shows the bytes to all hashes while they are in a core's cache.
    fn update_with(&mut self, bytes: &[u8], update: fn(&mut Self, &[u8])) {
        if self.content.is_none() && !self.is_journaled {
            return update(self, bytes);
        }
        for chunk in bytes.chunks(CHUNK_BYTES) {
            update(self, chunk);
            if self.is_journaled {
                self.journaled.update(chunk);
            }
            if let Some(content) = &mut self.content {
                content.update(chunk);
            }
        }
    }

    /// Updates as `update` does; what comes next is fetched from memory meanwhile.
    fn update_cold(&mut self, bytes: &[u8]) {
        for (at, part) in bytes.chunks(COLD_BYTES).enumerate() {
            let ahead = bytes.len().min(at * COLD_BYTES + COLD_AHEAD_BYTES);
            prefetch(&bytes[ahead..bytes.len().min(ahead + COLD_BYTES)]);
            self.update(part);
        }
    }
}

impl SpanTap for SpanDigest {
    fn see(&mut self, bytes: &[u8]) {
        let begun = Instant::now();
        self.update_with(bytes, Self::update);
        self.spent_ns += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    fn see_cold(&mut self, bytes: &[u8]) {
        // A MAC is made in one call for each chunk: nothing can be fetched between.
        if matches!(self.state, State::Gmac(_)) {
            return self.see(bytes);
        }
        let begun = Instant::now();
        self.update_with(bytes, Self::update_cold);
        self.spent_ns += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// AES-256-GMAC in two levels: a tag for each chunk, and a tag over header, status and those tags.
///
/// A change of any chunk changes its tag by an amount that depends on a secret key, so the list of
/// tags, itself authenticated under another key, stands for the payload (see SPEC.md).
struct Gmac {
    keys: Arc<SessionKeys>,
    stream: u32,
    sequence: u64,
    chunks: u64,
    /// Bytes of the span that are still to come.
    left_bytes: u64,
    /// Header and status, then the chunks' tags.
    list: Vec<u8>,
    partial: Vec<u8>,
}

impl Gmac {
    fn new(keys: Arc<SessionKeys>) -> Self {
        let (list, partial) = (Vec::new(), Vec::new());
        Self { keys, stream: 0, sequence: 0, chunks: 0, left_bytes: 0, list, partial }
    }

    fn start(&mut self, header: &SpanHeader, bound: &[u8]) {
        (self.stream, self.sequence, self.chunks) = (header.stream.0, header.sequence, 0);
        self.left_bytes = header.len_bytes;
        self.list.clear();
        self.list.extend_from_slice(bound);
        self.list.push(0);
        self.partial.clear();
    }

    fn update(&mut self, mut bytes: &[u8]) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len() as u64);
        if !self.partial.is_empty() {
            let take = bytes.len().min(CHUNK_BYTES - self.partial.len());
            self.partial.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.partial.len() == CHUNK_BYTES {
                let chunk = std::mem::take(&mut self.partial);
                self.chunk(&chunk);
                self.partial = chunk;
                self.partial.clear();
            }
        }
        let mut chunks = bytes.chunks_exact(CHUNK_BYTES);
        for chunk in &mut chunks {
            self.chunk(chunk);
        }
        let rest = chunks.remainder();
        // The last of the span needs to wait for nothing: small files are not copied.
        if self.left_bytes == 0 && self.partial.is_empty() && !rest.is_empty() {
            self.chunk(rest);
        } else {
            self.partial.extend_from_slice(rest);
        }
    }

    fn chunk(&mut self, chunk: &[u8]) {
        self.chunks += 1;
        let nonce = nonce(self.stream, self.sequence, self.chunks);
        let tag = gmac(&self.keys.chunk, nonce, chunk);
        self.list.extend_from_slice(&tag);
    }

    fn finish(&mut self, status: u8) -> [u8; TAG_BYTES] {
        if !self.partial.is_empty() {
            let chunk = std::mem::take(&mut self.partial);
            self.chunk(&chunk);
            self.partial = chunk;
            self.partial.clear();
        }
        self.list[BOUND_HEADER_BYTES] = status;
        gmac(&self.keys.span, nonce(self.stream, self.sequence, 0), &self.list)
    }
}

/// Nonce that is never used twice: a stream's number belongs to one stream of the session, and a
/// frame's to one frame of it.
fn nonce(stream: u32, sequence: u64, chunk: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..4].copy_from_slice(&stream.to_le_bytes());
    nonce[4..].copy_from_slice(&(sequence << 24 | chunk).to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn gmac(key: &LessSafeKey, nonce: Nonce, data: &[u8]) -> [u8; TAG_BYTES] {
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(data), &mut [])
        .expect("GCM takes far more associated data than a chunk");
    tag.as_ref().try_into().expect("a tag of 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::{FileId, frame::FrameHeader};

    fn keys(fill: u8) -> Arc<SessionKeys> {
        Arc::new(SessionKeys::from_bytes(&[fill; DATA_KEYS_BYTES]))
    }

    fn header() -> SpanHeader {
        SpanHeader {
            file: FileId(1),
            offset_bytes: 8 << 20,
            len_bytes: 700_000,
            sequence: 5,
            stream: StreamId(2),
        }
    }

    fn digest_of(kind: Digest, header: SpanHeader, pieces: &[&[u8]], fill: u8) -> [u8; 16] {
        let mut digest = SpanDigest::new(kind, &keys(fill));
        digest.start(&header, &FrameHeader::Span(header).encode());
        pieces.iter().for_each(|piece| digest.see(piece));
        digest.finish(PayloadStatus::Whole)
    }

    #[test]
    fn a_digest_does_not_depend_on_how_the_bytes_come() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for kind in [Digest::Crc32c, Digest::Xxh3128, Digest::AesGmac] {
            let whole = digest_of(kind, header(), &[&bytes], 1);
            let (a, rest) = bytes.split_at(1);
            let (b, c) = rest.split_at(300_000);
            assert_eq!(digest_of(kind, header(), &[a, b, b"", c], 1), whole, "{kind:?}");
        }
    }

    #[test]
    fn a_digest_binds_bytes_place_and_for_a_mac_the_key() {
        let bytes = vec![3; 700_000];
        for kind in [Digest::Crc32c, Digest::Xxh3128, Digest::AesGmac] {
            let whole = digest_of(kind, header(), &[&bytes], 1);
            let mut changed = bytes.clone();
            changed[699_999] ^= 1;
            assert_ne!(digest_of(kind, header(), &[&changed], 1), whole);
            let moved = SpanHeader { offset_bytes: 16 << 20, ..header() };
            assert_ne!(digest_of(kind, moved, &[&bytes], 1), whole);
            let other = SpanHeader { file: FileId(2), ..header() };
            assert_ne!(digest_of(kind, other, &[&bytes], 1), whole);
        }
        let mac = digest_of(Digest::AesGmac, header(), &[&bytes], 1);
        assert_ne!(digest_of(Digest::AesGmac, header(), &[&bytes], 2), mac);
        let replayed = SpanHeader { sequence: 6, ..header() };
        assert_ne!(digest_of(Digest::AesGmac, replayed, &[&bytes], 1), mac);
    }

    #[test]
    fn the_content_is_that_of_the_bytes_whatever_the_digest_and_changes_none() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let header = SpanHeader { offset_bytes: 0, ..header() };
        let encoded = FrameHeader::Span(header).encode();
        for kind in [Digest::None, Digest::Crc32c, Digest::Xxh3128, Digest::AesGmac] {
            let mut digest = SpanDigest::new(kind, &keys(1)).with_content();
            assert!(digest.wants_bytes());
            // The second span begins anew.
            for _ in 0..2 {
                digest.start(&header, &encoded);
                digest.see(&bytes[..300_001]);
                digest.see_cold(&bytes[300_001..]);
                let content = digest.content(Part::WholeFile);
                assert_eq!(content, Some(*blake3::hash(&bytes).as_bytes()), "{kind:?}");
            }
            let without = digest_of(kind, header, &[&bytes], 1);
            assert_eq!(digest.finish(PayloadStatus::Whole), without, "{kind:?}");
        }
        assert_eq!(SpanDigest::new(Digest::None, &keys(1)).content(Part::OfMore), None);
    }

    #[test]
    fn swapped_chunks_are_seen() {
        let (one, two) = (vec![1; CHUNK_BYTES], vec![2; CHUNK_BYTES]);
        let straight = digest_of(Digest::AesGmac, header(), &[&one, &two], 1);
        assert_ne!(digest_of(Digest::AesGmac, header(), &[&two, &one], 1), straight);
    }

    #[test]
    fn a_preface_of_another_session_or_stream_is_refused() {
        let preface = keys(1).sign_preface(StreamId(3), [9; 16]);
        assert!(keys(1).verify_preface(&preface));
        assert!(!keys(2).verify_preface(&preface));
        assert!(!keys(1).verify_preface(&Preface { stream: StreamId(4), ..preface }));
        assert!(!keys(1).verify_preface(&Preface { session: [8; 16], ..preface }));
    }
}
