//! Packs, and what a reader finds in them.

use crate::hex::hex;
use haul_protocol::{
    FileId, ProtocolError, StreamId,
    frame::{FrameHeader, HEADER_BYTES, PackHeader, PayloadStatus, SpanHeader, SpanTrailer},
    pack::{PackReader, PackWriter},
};
use serde_json::{Value, json};

/// Packs of stream 2 whose first span is its frame 5; each with the spans that are found, and an
/// error where they are not all.
pub fn vectors() -> Vec<Value> {
    let whole = packed(&[3, 1, 20]);
    let (header, body) = whole.split_first_chunk().expect("a header");
    let Ok(FrameHeader::Pack(pack)) = FrameHeader::decode(header) else {
        panic!("a pack's header");
    };
    let with_spans = |spans| FrameHeader::Pack(PackHeader { spans, ..pack }).encode();
    let damaged = |at: usize| {
        let mut body = body.to_vec();
        body[at] ^= 1;
        body
    };
    let within = [&header[..], &body[HEADER_BYTES..]].concat();
    let last = body.len() - 1;
    [
        ("three spans", *header, body.to_vec()),
        ("one span", with_spans(1), packed(&[1])[HEADER_BYTES..].to_vec()),
        ("bytes behind the last span", with_spans(2), body.to_vec()),
        ("a span too few", with_spans(4), body.to_vec()),
        ("cut in a header", *header, body[..70].to_vec()),
        ("cut in a payload", *header, body[..41].to_vec()),
        ("cut in a trailer", *header, body[..last].to_vec()),
        ("a damaged header of a span", *header, damaged(68)),
        ("a pack within a pack", *header, within),
        // Whoever takes the trailer sees that.
        ("a damaged trailer", *header, damaged(last)),
    ]
    .into_iter()
    .map(|(name, header, body)| vector(name, &header, &body))
    .collect()
}

fn packed(lens: &[u64]) -> Vec<u8> {
    let (mut writer, stream) = (PackWriter::default(), StreamId(2));
    for (number, &len_bytes) in lens.iter().enumerate() {
        let (file, sequence) = (FileId(number as u32 * 3), 5 + number as u64);
        let header = SpanHeader { file, offset_bytes: 0, len_bytes, sequence, stream };
        writer.begin_span(&header).fill(0xa0 + number as u8);
        writer.end_span(&SpanTrailer { status: PayloadStatus::Whole, digest: [number as u8; 16] });
    }
    writer.finish(stream, 5).to_vec()
}

fn vector(name: &str, header: &[u8; HEADER_BYTES], body: &[u8]) -> Value {
    let mut spans = Vec::new();
    let error = read(header, body, &mut spans).err().map(|error| error.what);
    json!({
        "name": name, "header": hex(header), "body": hex(body), "spans": spans, "error": error,
    })
}

fn read(header: &[u8; 40], body: &[u8], spans: &mut Vec<Value>) -> Result<(), ProtocolError> {
    let FrameHeader::Pack(header) = FrameHeader::decode(header)? else { panic!("a pack") };
    let mut reader = PackReader::new(&header, body);
    while let Some(span) = reader.next_span()? {
        spans.push(json!({
            "header": hex(span.encoded), "payload": hex(span.payload), "trailer": hex(span.trailer),
        }));
    }
    Ok(())
}
