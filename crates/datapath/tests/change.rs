//! Changes of engines between spans, because another was chosen: every pair, in both directions.

#![allow(clippy::unwrap_used)]

mod stream;

use std::{os::unix::fs::FileExt, sync::Arc};

use haul_datapath::{
    Boundary, EngineInfo, FileSpan, SpanFile, SpanTap, Wait, Wire,
    engines::{self, ENGINES},
    fallback::{Receiver, Sender},
};
use haul_testkit::{content, seed::Seed};
use stream::{Seen, SocketBuffers};

const BUFFER_BYTES: usize = 1 << 20;
/// Lengths of spans that begin and end anywhere in a page.
const LENS_BYTES: [u64; 6] = [700_001, 3, 400_000, 65_536, 1, 300_003];
const TRAILER: [u8; 5] = *b"trail";

fn spans(file: &Arc<SpanFile>) -> Vec<FileSpan> {
    let mut offset_bytes = 0;
    let place = |(id, len_bytes): (usize, &u64)| {
        let span = stream::span(id as u64, file, offset_bytes, *len_bytes);
        offset_bytes += len_bytes;
        span
    };
    LENS_BYTES.iter().enumerate().map(place).collect()
}

fn usable(info: &'static EngineInfo) -> Vec<&'static EngineInfo> {
    vec![info, engines::find("read-write").unwrap()]
}

/// Sends half of the spans with one engine and the rest with the other.
fn send(wire: Wire, first: &'static EngineInfo, second: &'static EngineInfo, spans: &[FileSpan]) {
    let mut sender = Sender::open(usable(first), wire, &stream::host(), BUFFER_BYTES).unwrap();
    let mut done = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        if at == spans.len() / 2 {
            sender.change_to(usable(second), &mut done).unwrap();
            assert_eq!(done.len(), at, "nothing is in flight after a change");
        }
        if let Some(next) = spans.get(at + 1) {
            sender.prepare(next);
        }
        let mut seen = Seen::default();
        sender.submit(span, Some(&mut seen), &mut done).unwrap();
        assert_eq!(seen.0.len() as u64, span.len_bytes);
        // What follows may be held back, as it is between spans.
        let last = at + 1 == spans.len();
        let boundary = if last { Boundary::Flush } else { Boundary::MoreFollows };
        sender.send_bytes(&TRAILER, boundary).unwrap();
    }
    sender.reap(Wait::ForAll, &mut done).unwrap();
    assert_eq!(done.len(), spans.len());
}

fn receive(
    wire: Wire,
    first: &'static EngineInfo,
    second: &'static EngineInfo,
    spans: &[FileSpan],
) {
    let mut receiver = Receiver::open(usable(first), wire, &stream::host(), BUFFER_BYTES).unwrap();
    let mut done = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        if at == spans.len() / 2 {
            receiver.change_to(usable(second), &mut done).unwrap();
            assert_eq!(done.len(), at, "nothing is in flight after a change");
        }
        let mut seen = Seen::default();
        let tap: &mut dyn SpanTap = &mut seen;
        receiver.submit(span, Some(tap), &mut done).unwrap();
        assert_eq!(seen.0.len() as u64, span.len_bytes);
        let mut trailer = [0; TRAILER.len()];
        receiver.receive_bytes(&mut trailer).unwrap();
        assert_eq!(trailer, TRAILER);
    }
    receiver.reap(Wait::ForAll, &mut done).unwrap();
    assert_eq!(done.len(), spans.len());
}

#[test]
fn every_engine_hands_the_wire_over_to_every_other_between_spans() {
    let seed = Seed::from_env_or_random();
    let len_bytes = LENS_BYTES.iter().sum::<u64>();
    let source = tempfile::tempfile_in(".").unwrap();
    content::fill(&source, seed, len_bytes).unwrap();
    let content = content::bytes(seed, len_bytes as usize);
    let from = spans(&Arc::new(SpanFile::new(source)));
    let senders = ENGINES.iter().filter(|info| info.open_send.is_some());
    // It takes no file.
    let receivers = ENGINES.iter().filter(|i| i.open_receive.is_some() && i.name != "discard");
    let pairs = |engines: Vec<&'static EngineInfo>| {
        let each = engines.clone();
        let with_all = move |first| each.clone().into_iter().map(move |second| (first, second));
        engines.into_iter().flat_map(with_all).collect::<Vec<_>>()
    };
    let sending = pairs(senders.copied().collect());
    let receiving = pairs(receivers.copied().collect());
    for at in 0..sending.len().max(receiving.len()) {
        let (send_first, send_second) = sending[at % sending.len()];
        let (receive_first, receive_second) = receiving[at % receiving.len()];
        let target = Arc::new(SpanFile::new(tempfile::tempfile_in(".").unwrap()));
        let into = spans(&target);
        let (near, far) = stream::wires(SocketBuffers::Automatic);
        std::thread::scope(|threads| {
            threads.spawn(|| send(near, send_first, send_second, &from));
            receive(far, receive_first, receive_second, &into);
        });
        let mut arrived = vec![0; len_bytes as usize];
        target.file().read_exact_at(&mut arrived, 0).unwrap();
        let names = [send_first, send_second, receive_first, receive_second].map(|i| i.name);
        assert!(arrived == content, "{names:?}");
    }
}
