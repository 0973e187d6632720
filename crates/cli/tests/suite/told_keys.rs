//! Keys of the data streams that a server tells a client whose TLS library exports none.

use crate::{
    harness::{
        Place,
        frames::{Frame, SPAN_BYTES, header, hear_close, open_stream},
        peer::{FakeServer, Peer, offer},
        server::{Server, ServerSetup},
    },
    rdma::has_fabric,
};
use haul_protocol::{
    CAPABILITY_FABRIC, CAPABILITY_PROBE, CAPABILITY_TOLD_KEYS, FileId, Message,
    frame::{FrameHeader, HEADER_BYTES, PayloadStatus, TRAILER_BYTES},
    limits::DATA_KEYS_BYTES,
    message::{
        self, Answer, DataKeys, Digest, Direction, FileKind, FileOffer, ProbeKind, Protection,
    },
};
use haul_transfer::internals::{SessionKeys, hex};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

const SAFE: Digest = Digest::AesGmac;

/// A client whose session is open, what it was granted, and the keys that it was told.
struct Told {
    peer: Peer,
    opened: message::Opened,
    bytes: DataKeys,
    keys: Arc<SessionKeys>,
}

fn asks_safe(server: &Server, direction: Direction, path: &[u8]) -> message::Open {
    let open = Peer::asks(server, direction, path);
    message::Open { protection: Protection::Safe, digest: SAFE, ..open }
}

/// Opens a session for a client that lists these capabilities; returns those of the reply.
fn open(
    server: &Server,
    capabilities: &[u32],
    open: message::Open,
) -> (Peer, Vec<u32>, message::Opened) {
    let mut peer = Peer::connect(server);
    peer.say(Message::Hello(message::Hello {
        version_min: 1,
        version_max: 1,
        capabilities: capabilities.to_vec(),
        software: "a test".into(),
    }));
    peer.say(Message::Open(open));
    let reply = peer.hear(|message| match message {
        Message::HelloReply(reply) => Some(reply.capabilities.clone()),
        _ => None,
    });
    let opened = peer.hear(|message| match message {
        Message::Opened(opened) => Some(opened.clone()),
        _ => None,
    });
    peer.control.trust();
    (peer, reply.unwrap(), opened.unwrap())
}

impl Told {
    fn start(server: &Server, more: &[u32], asked: message::Open) -> Self {
        let capabilities = [more, &[CAPABILITY_TOLD_KEYS]].concat();
        let (peer, reply, opened) = open(server, &capabilities, asked);
        assert_eq!(reply, capabilities);
        let bytes = opened.data_keys.clone().expect("keys are told");
        let keys = Arc::new(SessionKeys::from_bytes(&bytes.0));
        Self { peer, opened, bytes, keys }
    }

    /// Opens a data stream; one under exported keys is closed before, by the same number.
    fn stream(&self, server: &Server) -> TcpStream {
        let session = self.opened.session;
        let exported = self.peer.control.session_keys(&session).unwrap();
        hear_close(&open_stream(server.address(), &exported, session, 0));
        server.wait_for_refusals(1);
        open_stream(server.address(), &self.keys, session, 0)
    }

    /// Pushes a file of one span by this stream.
    fn push(&mut self, stream: &mut TcpStream, name: &[u8], payload: &[u8]) {
        let size_bytes = payload.len() as u64;
        let file = FileOffer { size_bytes, ..offer(0, name, FileKind::Regular) };
        self.peer.say(Message::FileOffer(file));
        self.peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
        let span = header(0, 0, 0, 0, size_bytes);
        let frame = Frame::new(&self.keys, SAFE, span, payload, PayloadStatus::Confirmed);
        stream.write_all(&frame.encode()).unwrap();
        let settled = self.peer.hear(|message| match message {
            Message::FileSettled(settled) => Some(settled.fault.clone()),
            _ => None,
        });
        assert_eq!(settled.unwrap(), None);
    }
}

#[test]
fn a_file_is_pushed_under_told_keys_and_no_stream_is_taken_under_exported_ones() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut told = Told::start(&server, &[], asks_safe(&server, Direction::Push, b""));
    assert_eq!((told.opened.protection, told.opened.digest), (Protection::Safe, SAFE));
    let payload: Vec<u8> = (0..50_000_u32).map(|byte| (byte % 251) as u8).collect();
    let mut stream = told.stream(&server);
    told.push(&mut stream, b"file", &payload);
    assert_eq!(fs::read(place.root("file")).unwrap(), payload);
    drop((told.peer, stream));
    server.wait_for_sessions(1);
    let said = server.process.events().iter().map(ToString::to_string).collect::<String>();
    for part in told.bytes.0.chunks(8) {
        let numbers = part.iter().map(ToString::to_string).collect::<Vec<_>>();
        for shown in [hex(part), numbers.join(","), numbers.join(", ")] {
            assert!(!said.contains(&shown), "a key is in the server's log");
        }
    }
}

#[test]
fn a_frame_under_exported_keys_is_damaged_where_keys_are_told() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut told = Told::start(&server, &[], asks_safe(&server, Direction::Push, b""));
    let file = FileOffer { size_bytes: 10, ..offer(0, b"file", FileKind::Regular) };
    told.peer.say(Message::FileOffer(file));
    told.peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
    let mut stream = told.stream(&server);
    let exported = Arc::new(told.peer.control.session_keys(&told.opened.session).unwrap());
    let span = header(0, 0, 0, 0, 10);
    let frame = Frame::new(&exported, SAFE, span, &[1; 10], PayloadStatus::Whole);
    stream.write_all(&frame.encode()).unwrap();
    told.peer.hear(|message| matches!(message, Message::SpanBad(_)).then_some(())).unwrap();
    assert!(!place.root("file").exists());
    server.still_serves(&place);
}

#[test]
fn a_file_is_pulled_under_told_keys() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.root("data"), 3 * SPAN_BYTES);
    let mut told = Told::start(&server, &[], asks_safe(&server, Direction::Pull, b"data"));
    told.peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
    let answer = Answer::Need(message::Need { span_bytes: SPAN_BYTES, ..Default::default() });
    told.peer.say(Message::FileAnswer(message::FileAnswer { file: FileId(0), answer }));
    told.peer.sync().unwrap();
    let mut stream = told.stream(&server);
    let data = fs::read(place.root("data")).unwrap();
    for _ in 0..3 {
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head).unwrap();
        let Ok(FrameHeader::Span(span)) = FrameHeader::decode(&head) else { panic!("{head:?}") };
        let mut payload = vec![0; span.len_bytes as usize];
        stream.read_exact(&mut payload).unwrap();
        let mut trailer = [0; TRAILER_BYTES];
        stream.read_exact(&mut trailer).unwrap();
        let at = span.offset_bytes as usize;
        assert!(payload == data[at..at + payload.len()], "another payload");
        let frame = Frame::new(&told.keys, SAFE, span, &payload, PayloadStatus::Whole);
        assert_eq!(frame.trailer, trailer, "the MAC under the told keys");
    }
}

#[test]
fn each_session_is_told_other_keys_and_a_client_that_exports_none() {
    let place = Place::new();
    let server = Server::start(&place);
    let asked = |direction| asks_safe(&server, direction, b"");
    let of_probe = &[CAPABILITY_PROBE][..];
    let told = [
        (Direction::Push, &[][..]),
        (Direction::Push, &[]),
        (Direction::Pull, &[]),
        (Direction::Probe, of_probe),
        (Direction::Probe, of_probe),
    ]
    .map(|(direction, more)| Told::start(&server, more, asked(direction)));
    let mut keys: Vec<_> =
        told.iter().flat_map(|told| told.bytes.0.chunks(32).map(<[u8]>::to_vec)).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3 * told.len(), "no key comes twice");
    for direction in [Direction::Push, Direction::Pull, Direction::Probe] {
        let (_, reply, opened) = open(&server, &[CAPABILITY_PROBE, 300], asked(direction));
        assert_eq!((reply, opened.data_keys), (vec![CAPABILITY_PROBE], None));
    }
    drop(told);
    server.still_serves(&place);
}

#[test]
fn a_probe_takes_its_streams_under_told_keys() {
    let place = Place::new();
    let server = Server::start(&place);
    let open = Peer::asks(&server, Direction::Probe, b"");
    let mut told = Told::start(&server, &[CAPABILITY_PROBE], open);
    told.peer.say(Message::Probe(message::Probe {
        round: 1,
        kind: ProbeKind::Streams,
        to_server: true,
        streams: 1,
        block_bytes: 65_536,
        time_ms: 200,
        interval_ms: 100,
        ..message::Probe::default()
    }));
    told.peer.hear(|message| matches!(message, Message::ProbeReady(_)).then_some(())).unwrap();
    let mut stream = told.stream(&server);
    told.peer.hear(|message| matches!(message, Message::ProbeStep(_)).then_some(())).unwrap();
    stream.write_all(&[7; 1000]).unwrap();
    drop(stream);
    let result = told.peer.hear(|message| match message {
        Message::ProbeResult(result) => Some(result.clone()),
        _ => None,
    });
    assert_eq!(result.unwrap().fault, None);
}

#[test]
fn a_session_with_rdma_takes_its_streams_under_told_keys() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--fabric"]).start(&place);
    let open = asks_safe(&server, Direction::Push, b"");
    let open = message::Open { fabrics: vec!["shm".into()], ..open };
    let mut told = Told::start(&server, &[CAPABILITY_FABRIC], open);
    assert_eq!(told.opened.fabric, "shm", "{}", told.opened.fabric_refused);
    let mut stream = told.stream(&server);
    // This one stays TCP.
    stream.write_all(&[0]).unwrap();
    told.push(&mut stream, b"file", &[5; 1000]);
    assert_eq!(fs::read(place.root("file")).unwrap(), [5; 1000]);
}

/// A server that could choose the keys of a client that exports its own.
#[test]
fn a_client_that_is_told_keys_unasked_goes_no_further() {
    let place = Place::new();
    place.file(&place.source("data"), 10);
    let fake = FakeServer::start_with_streams(&place.path("fake"), |mut peer, _| {
        let tells = |opened: &mut message::Opened| {
            opened.data_keys = Some(DataKeys([0; DATA_KEYS_BYTES]));
        };
        if peer.let_in_granting(tells).is_ok() {
            peer.hear_close();
        }
    });
    let words = words![place.source("data"), fake.url(""), "--retry-for", "1s"];
    let ran = place.push(&words);
    ran.refused(&["broke the protocol", "data keys without capability 4"]);
    let words = words![fake.url("data"), place.target(""), "--retry-for", "1s"];
    let ran = place.pull(&words);
    ran.refused(&["broke the protocol", "data keys without capability 4"]);
    assert!(haul_testkit::tree::names(&place.path("target")).unwrap().is_empty());
}
