//! Vectors of prefaces, frame headers and trailers: `vectors/frames.json`.

use super::{
    hex::{hex, unhex},
    list, text, vectors,
};
use haul_protocol::{
    FileId, StreamId,
    frame::{
        FrameHeader, HEADER_BYTES, PREFACE_BYTES, PackHeader, PayloadStatus, Preface, SpanHeader,
        SpanTrailer, TRAILER_BYTES,
    },
};
use serde_json::{Value, json};

fn prefaces() -> Vec<Preface> {
    let counting = std::array::from_fn(|at| at as u8);
    vec![
        Preface { stream: StreamId(0), session: [0; 16], mac: [0; 32] },
        Preface { stream: StreamId(0x0102_0304), session: counting, mac: [0xa5; 32] },
    ]
}

fn preface_fields(preface: &Preface) -> Value {
    json!({
        "hex": hex(&preface.encode()), "stream": preface.stream.0,
        "session": hex(&preface.session), "mac": hex(&preface.mac),
    })
}

fn headers() -> Vec<FrameHeader> {
    let span = |file, offset_bytes, len_bytes, sequence, stream| {
        let (file, stream) = (FileId(file), StreamId(stream));
        FrameHeader::Span(SpanHeader { file, offset_bytes, len_bytes, sequence, stream })
    };
    let pack = |spans, len_bytes, sequence, stream| {
        FrameHeader::Pack(PackHeader { spans, len_bytes, sequence, stream: StreamId(stream) })
    };
    vec![
        span(0, 0, 1, 0, 0),
        span(7, 1 << 40, 8 << 20, 3, 2),
        span(u32::MAX - 2, (1 << 50) - (1 << 30), 1 << 30, (1 << 40) - 1, (1 << 20) - 1),
        FrameHeader::End { stream: StreamId(0), sequence: 0 },
        pack(1, 65, 0, 0),
        pack(12, 1 << 20, 77, 3),
        FrameHeader::End { stream: StreamId(5), sequence: 1_000_000 },
        FrameHeader::Renewal { stream: StreamId(6), sequence: 2_000_000 },
    ]
}

fn header_fields(header: &FrameHeader) -> Value {
    let hex = hex(&header.encode());
    match header {
        FrameHeader::Span(span) => json!({
            "hex": hex, "kind": "span", "file": span.file.0, "offset_bytes": span.offset_bytes,
            "len_bytes": span.len_bytes, "sequence": span.sequence, "stream": span.stream.0,
        }),
        FrameHeader::Pack(pack) => json!({
            "hex": hex, "kind": "pack", "spans": pack.spans, "len_bytes": pack.len_bytes,
            "sequence": pack.sequence, "stream": pack.stream.0,
        }),
        FrameHeader::End { stream, sequence } => {
            json!({"hex": hex, "kind": "end", "sequence": sequence, "stream": stream.0})
        }
        FrameHeader::Renewal { stream, sequence } => {
            json!({"hex": hex, "kind": "renewal", "sequence": sequence, "stream": stream.0})
        }
    }
}

fn trailers() -> Vec<SpanTrailer> {
    let counting = std::array::from_fn(|at| at as u8);
    vec![
        SpanTrailer { status: PayloadStatus::Whole, digest: [0; 16] },
        SpanTrailer { status: PayloadStatus::Whole, digest: counting },
        SpanTrailer { status: PayloadStatus::Abandoned, digest: [0xff; 16] },
        SpanTrailer { status: PayloadStatus::Confirmed, digest: [1; 16] },
    ]
}

fn trailer_fields(trailer: &SpanTrailer) -> Value {
    let status = match trailer.status {
        PayloadStatus::Whole => "whole",
        PayloadStatus::Abandoned => "abandoned",
        PayloadStatus::Confirmed => "confirmed",
    };
    json!({"hex": hex(&trailer.encode()), "status": status, "digest": hex(&trailer.digest)})
}

/// Changes bytes of a header or trailer and puts its CRC right.
fn with_crc<const N: usize>(mut bytes: [u8; N], changes: &[(usize, u8)]) -> [u8; N] {
    changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    if N == HEADER_BYTES {
        let sum = crc.checksum(&bytes[..36]);
        bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    } else {
        let sum = crc.checksum(&[&bytes[..4], &bytes[8..]].concat());
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fn bad() -> Vec<Value> {
    let mut all = Vec::new();
    let preface = prefaces()[1].encode();
    for (name, at, byte) in [
        ("a magic that is not haul's", 0, b'G'),
        ("a later version", 8, 2),
        ("a reserved byte set", 10, 1),
    ] {
        let mut bytes = preface;
        bytes[at] = byte;
        let reason = Preface::decode(&bytes).expect_err(name).what;
        all.push(json!({"layout": "preface", "name": name, "hex": hex(&bytes), "reason": reason}));
    }
    let (span, end) = (headers()[1].encode(), headers()[6].encode());
    let mut flipped = span;
    flipped[16] ^= 1;
    for (name, bytes) in [
        ("a flipped bit", flipped),
        ("an unknown kind", with_crc(span, &[(0, 4)])),
        ("a pack with an offset", with_crc(span, &[(0, 3)])),
        ("a reserved byte set", with_crc(span, &[(1, 1)])),
        ("a sequence of 2^40", with_crc(span, &[(29, 1)])),
        ("an end with a length", with_crc(end, &[(16, 1)])),
        ("zeros with their CRC", with_crc([0; HEADER_BYTES], &[])),
    ] {
        let reason = FrameHeader::decode(&bytes).expect_err(name).what;
        all.push(json!({"layout": "header", "name": name, "hex": hex(&bytes), "reason": reason}));
    }
    let trailer = trailers()[1].encode();
    let mut flipped = trailer;
    flipped[23] ^= 0x80;
    for (name, bytes) in [
        ("a flipped bit", flipped),
        ("an unknown status", with_crc(trailer, &[(1, 3)])),
        ("another first byte", with_crc(trailer, &[(0, 1)])),
        ("a reserved byte set", with_crc(trailer, &[(3, 1)])),
    ] {
        let reason = SpanTrailer::decode(&bytes).expect_err(name).what;
        all.push(json!({"layout": "trailer", "name": name, "hex": hex(&bytes), "reason": reason}));
    }
    all
}

fn bytes_of<const N: usize>(vector: &Value) -> [u8; N] {
    unhex(text(vector, "hex")).try_into().expect("the layout's length")
}

#[test]
fn frames_are_what_the_vectors_say() {
    let expected = json!({
        "about": "The data streams' layouts, drawn in SPEC.md. A reader refuses the bad ones.",
        "prefaces": prefaces().iter().map(preface_fields).collect::<Vec<_>>(),
        "headers": headers().iter().map(header_fields).collect::<Vec<_>>(),
        "trailers": trailers().iter().map(trailer_fields).collect::<Vec<_>>(),
        "bad": bad(),
    });
    let found = vectors("frames.json", &expected);
    for vector in list(&found, "prefaces") {
        let preface = Preface::decode(&bytes_of::<PREFACE_BYTES>(vector)).expect("good");
        assert_eq!(&preface_fields(&preface), vector);
    }
    for vector in list(&found, "headers") {
        let header = FrameHeader::decode(&bytes_of::<HEADER_BYTES>(vector)).expect("good");
        assert_eq!(&header_fields(&header), vector);
    }
    for vector in list(&found, "trailers") {
        let trailer = SpanTrailer::decode(&bytes_of::<TRAILER_BYTES>(vector)).expect("good");
        assert_eq!(&trailer_fields(&trailer), vector);
    }
}
