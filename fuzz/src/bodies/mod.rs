//! Bodies of the fuzz targets, one function a target, of the same name.
//!
//! `crates/protocol/tests/corpus.rs` includes this file and replays the corpora with stable Rust.

use arbitrary::{Arbitrary, Unstructured};
use crc::{CRC_32_ISCSI, Crc};
use haul_protocol::{
    CAPABILITIES, CAPABILITY_TOLD_KEYS, CLIENT_CAPABILITIES, ClientHandshake, ServerHandshake,
    decode_message, encode_message,
    frame::{FrameHeader, HEADER_BYTES, PREFACE_BYTES, Preface, SpanTrailer, TRAILER_BYTES},
    limits::MESSAGE_BYTES_MAX,
    message,
    name::check_relative_name,
    pack::{PackReader, PackWriter},
};
use std::sync::atomic::{AtomicU64, Ordering};

pub mod numbers;
pub mod ranges;
pub mod receiver_machine;
pub mod sender_machine;
pub mod transcript;

/// The most operations of one run: what goes wrong goes wrong early.
const OPERATIONS_MAX: usize = 256;

/// Operations that the state machines were given since the program began.
pub static STEPS: AtomicU64 = AtomicU64::new(0);

fn count_step() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Decodes a message, which survives being encoded and decoded again.
pub fn message(data: &[u8]) {
    let Ok(Some((message, taken))) = decode_message(data, MESSAGE_BYTES_MAX) else { return };
    assert!(taken <= data.len());
    let mut bytes = Vec::new();
    encode_message(message.clone(), &mut bytes);
    // Numbers that the peer wrote with needless bytes become shorter, never longer.
    let again = decode_message(&bytes, MESSAGE_BYTES_MAX);
    assert_eq!(again, Ok(Some((message, bytes.len()))));
}

/// Gives messages in a row to both sides of a handshake, and opens no session whose keys are told
/// but not announced, or announced and not told.
pub fn handshake(data: &[u8]) {
    for capabilities in [CLIENT_CAPABILITIES, CAPABILITIES] {
        handshake_listing(capabilities, data);
    }
}

fn handshake_listing(capabilities: &[u32], data: &[u8]) {
    let mut server = ServerHandshake::default();
    let open = message::Open::default();
    let (mut client, _) = ClientHandshake::start_listing(capabilities, "fuzz", open);
    let mut rest = data;
    while let Ok(Some((message, taken))) = decode_message(rest, MESSAGE_BYTES_MAX) {
        rest = &rest[taken..];
        let granted = client.handle(message.clone());
        if let Ok(Some(granted)) = &granted {
            let is_announced = granted.capabilities.contains(&CAPABILITY_TOLD_KEYS);
            assert_eq!(granted.opened.data_keys.is_some(), is_announced);
            assert!(!is_announced || capabilities.contains(&CAPABILITY_TOLD_KEYS));
        }
        let step = server.handle(message, "fuzz");
        if granted.is_err() && step.is_err() {
            return;
        }
    }
}

static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Decodes a frame header, which is encoded to the same bytes: it has one form. Tried as it is and
/// with its CRC put right, which no fuzzer guesses.
pub fn frame_header(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<HEADER_BYTES>() else { return };
    let mut right = *bytes;
    let crc = CRC32C.checksum(&bytes[..36]);
    right[36..].copy_from_slice(&crc.to_le_bytes());
    for bytes in [bytes, &right] {
        if let Ok(header) = FrameHeader::decode(bytes) {
            assert_eq!(&header.encode(), bytes);
        }
    }
}

/// Reads a pack, which holds no more than arrived; put together again it is the same bytes.
pub fn pack(data: &[u8]) {
    let Some((encoded, body)) = data.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(FrameHeader::Pack(header)) = FrameHeader::decode(encoded) else { return };
    let mut reader = PackReader::new(&header, body);
    let mut writer = PackWriter::default();
    while let Ok(Some(span)) = reader.next_span() {
        let Ok(trailer) = SpanTrailer::decode(span.trailer) else { return };
        if !writer.has_room_for(span.header.len_bytes) {
            return;
        }
        writer.begin_span(&span.header).copy_from_slice(span.payload);
        writer.end_span(&trailer);
    }
    if let Ok(None) = reader.next_span() {
        assert_eq!(&writer.finish(header.stream, header.sequence)[HEADER_BYTES..], body);
    }
}

/// Decodes a span trailer, which is encoded to the same bytes: it has one form. Tried as a header
/// is.
pub fn span_trailer(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<TRAILER_BYTES>() else { return };
    let mut right = *bytes;
    let crc = CRC32C.checksum(&[&bytes[..4], &bytes[8..]].concat());
    right[4..8].copy_from_slice(&crc.to_le_bytes());
    for bytes in [bytes, &right] {
        if let Ok(trailer) = SpanTrailer::decode(bytes) {
            assert_eq!(&trailer.encode(), bytes);
        }
    }
}

/// Decodes a preface, which is encoded to the same bytes: it has one form.
pub fn preface(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<PREFACE_BYTES>() else { return };
    if let Ok(preface) = Preface::decode(bytes) {
        assert_eq!(&preface.encode(), bytes);
    }
}

/// Checks a name: one that passes cannot leave the directory it is opened below.
pub fn name(data: &[u8]) {
    if check_relative_name(data).is_ok() {
        assert!(!data.is_empty() && data.len() <= 4095 && data[0] != b'/' && !data.contains(&0));
        assert!(data.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")));
    }
}

/// Runs a sender against any operations and messages.
pub fn sender(data: &[u8]) {
    sender_machine::run(&operations(data));
}

/// Runs a receiver against any operations and messages.
pub fn receiver(data: &[u8]) {
    receiver_machine::run(&operations(data));
}

/// Runs a sender of ranges against any operations and messages.
pub fn range_sender(data: &[u8]) {
    ranges::run_sender(&operations(data));
}

/// Runs a receiver of ranges against any operations and messages.
pub fn range_receiver(data: &[u8]) {
    ranges::run_receiver(&operations(data));
}

fn operations<'a, T: Arbitrary<'a>>(data: &'a [u8]) -> Vec<T> {
    let mut source = Unstructured::new(data);
    let mut operations = Vec::new();
    while !source.is_empty() && operations.len() < OPERATIONS_MAX {
        let Ok(operation) = T::arbitrary(&mut source) else { break };
        operations.push(operation);
    }
    operations
}
