//! Digests of spans, against `crates/protocol/vectors/digests.json`. Every client language reads
//! that file. `HAUL_WRITE_VECTORS=1` writes it anew.

use haul_datapath::SpanTap;
use haul_protocol::{
    FileId, StreamId,
    frame::{FrameHeader, PayloadStatus, SpanHeader},
    limits::DATA_KEYS_BYTES,
    message::Digest,
};
use haul_transfer::internals::{SessionKeys, SpanDigest, hex};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

const PAYLOAD_RULE: &str = "byte i is (i * 31 + 7) mod 251";
const EXPORTED_RULE: &str = "byte i is i";

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + 7) % 251).expect("below 251")).collect()
}

fn keys() -> Arc<SessionKeys> {
    let exported: [u8; DATA_KEYS_BYTES] = std::array::from_fn(|i| i as u8);
    Arc::new(SessionKeys::from_bytes(&exported))
}

fn vector(digest: Digest, name: &str, header: SpanHeader, status: PayloadStatus) -> Value {
    let len = usize::try_from(header.len_bytes).expect("small");
    let encoded = FrameHeader::Span(header).encode();
    let mut tap = SpanDigest::new(digest, &keys());
    tap.start(&header, &encoded);
    // Pieces that no chunk ends with.
    payload(len).chunks(100_003).for_each(|piece| tap.see(piece));
    json!({
        "digest": name,
        "header": hex(&encoded),
        "payload_bytes": len,
        "status": u8::from(status == PayloadStatus::Abandoned),
        "value": hex(&tap.finish(status)),
    })
}

fn vectors() -> Value {
    let mut spans = Vec::new();
    let digests = [
        (Digest::None, "none"),
        (Digest::Crc32c, "crc32c"),
        (Digest::Xxh3128, "xxh3-128"),
        (Digest::AesGmac, "aes-gmac"),
    ];
    for (digest, name) in digests {
        for (sequence, len_bytes) in [(0, 1), (1, 262_144), (2, 262_145), (77, 700_000)] {
            let header = SpanHeader {
                file: FileId(3),
                offset_bytes: 8 << 20,
                len_bytes,
                sequence,
                stream: StreamId(5),
            };
            spans.push(vector(digest, name, header, PayloadStatus::Whole));
            if sequence == 77 {
                spans.push(vector(digest, name, header, PayloadStatus::Abandoned));
            }
        }
    }
    let preface = keys().sign_preface(StreamId(5), std::array::from_fn(|i| 0xf0 | i as u8));
    json!({
        "exported": EXPORTED_RULE,
        "payload": PAYLOAD_RULE,
        "preface": hex(&preface.encode()),
        "spans": spans,
    })
}

#[test]
fn digests_are_those_of_the_vectors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/vectors/digests.json");
    let made = vectors();
    if std::env::var_os("HAUL_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("plain data") + "\n";
        std::fs::write(&path, text).expect("the vectors can be written");
        println!("wrote {}", path.display());
    }
    let text = std::fs::read_to_string(&path).expect("the vectors are there");
    let kept: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    assert_eq!(kept, made);
}
