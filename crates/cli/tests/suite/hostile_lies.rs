//! Peers that lie: about lengths, offsets, files, acknowledgements and keys.
//!
//! Nobody is believed, nothing is written that may not be, and the log names each once with its
//! address.

use crate::harness::{
    PATIENCE, Place, assert_no_temporaries,
    frames::{Frame, SPAN_BYTES, connect_from, header, hear_close, open_stream, take_stream},
    peer::{FakeServer, Peer, hello, offer},
    server::{Server, ServerSetup},
};
use haul_protocol::{
    FileId, Message, SpanIndex, StreamId,
    frame::{DATA_MAGIC, FrameHeader, PackHeader, PayloadStatus, Preface, SpanHeader},
    limits,
    message::{
        self, Answer, Digest, Direction, Fault, FaultCode, FileKind, FileOffer, Growth, Protection,
        Stage,
    },
};
use haul_transfer::internals::SessionKeys;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const SAFE: Digest = Digest::AesGmac;

fn answer(file: u32, answer: Answer) -> Message {
    Message::FileAnswer(message::FileAnswer { file: FileId(file), answer })
}

fn need(file: u32, span_bytes: u64, durable: &[(u32, u32)]) -> Message {
    let range =
        |&(first, count): &(u32, u32)| message::SpanRange { first: SpanIndex(first), count };
    let durable = durable.iter().map(range).collect();
    answer(file, Answer::Need(message::Need { span_bytes, durable, ..message::Need::default() }))
}

fn verified(file: u32, first: u32, count: u32) -> Message {
    let spans = vec![message::SpanRange { first: SpanIndex(first), count }];
    Message::SpansVerified(message::SpansVerified { file: FileId(file), spans })
}

fn settled(file: u32) -> Message {
    Message::FileSettled(message::FileSettled { file: FileId(file), fault: None })
}

fn closed(stream: u32) -> Message {
    Message::StreamClosed(message::StreamClosed { stream: StreamId(stream) })
}

fn finish() -> Message {
    Message::Finish(message::Finish::default())
}

fn confirm(file: u32) -> Message {
    Message::FileConfirm(message::FileConfirm { file: FileId(file), fault: None })
}

fn ends() -> Message {
    Message::OffersEnd(message::OffersEnd::default())
}

/// Messages that a receiver may not say of the one file, of 200,000 bytes, that it was offered.
fn lies_of_a_receiver() -> Vec<Vec<Message>> {
    let bad = |file, span, stream| Message::SpanBad(message::SpanBad { file, span, stream });
    let good = need(0, SPAN_BYTES, &[]);
    vec![
        vec![need(7, SPAN_BYTES, &[])],
        vec![answer(u32::MAX, Answer::Skip)],
        vec![good.clone(), good.clone()],
        vec![need(0, 3, &[])],
        vec![need(0, 0, &[])],
        vec![need(0, u64::MAX, &[])],
        vec![need(0, limits::SPAN_BYTES_MAX * 2, &[])],
        vec![need(0, SPAN_BYTES, &[(0, 5)])],
        vec![need(0, SPAN_BYTES, &[(u32::MAX, u32::MAX)])],
        vec![need(0, SPAN_BYTES, &[(0, 2), (1, 1)])],
        vec![verified(0, 0, 1)],
        vec![verified(9, 0, 1)],
        vec![good.clone(), verified(0, 4, 1)],
        vec![good.clone(), verified(0, 0, u32::MAX)],
        vec![bad(FileId(0), SpanIndex(0), StreamId(0))],
        vec![good.clone(), bad(FileId(0), SpanIndex(0), StreamId(9))],
        vec![closed(9), closed(9)],
        vec![settled(0)],
        vec![good.clone(), settled(0)],
        vec![settled(1)],
        vec![finish()],
        vec![Message::FileOffer(offer(0, b"x", FileKind::Regular))],
        vec![ends()],
        vec![confirm(0)],
        vec![Message::StreamDrop(message::StreamDrop { stream: StreamId(0), why: String::new() })],
        vec![hello(1, 1)],
        vec![Message::Opened(message::Opened::default())],
    ]
}

/// Messages that a sender may not say.
fn lies_of_a_sender() -> Vec<Vec<Message>> {
    let regular = |file| offer(file, b"data", FileKind::Regular);
    let whole = |file| FileOffer { size_bytes: 200_000, ..regular(file) };
    let one = |offer: FileOffer| vec![Message::FileOffer(offer)];
    let said = |messages: &[Message]| messages.to_vec();
    vec![
        one(whole(5)),
        said(&[Message::FileOffer(whole(0)), Message::FileOffer(whole(0))]),
        one(FileOffer { size_bytes: u64::MAX, ..regular(0) }),
        one(FileOffer { size_bytes: limits::FILE_BYTES_MAX + 1, ..regular(0) }),
        one(FileOffer { size_bytes: 1, ..offer(0, b"data", FileKind::Directory) }),
        one(FileOffer { link_target: b"/etc".to_vec(), ..regular(0) }),
        one(FileOffer { mode: 0o100_644, ..regular(0) }),
        one(FileOffer { mtime_ns: u32::MAX, ..regular(0) }),
        one(FileOffer { growth: Growth::Growing, ..whole(0) }),
        one(FileOffer { growth: Growth::Grown, ..offer(0, b"data", FileKind::Symlink) }),
        one(FileOffer { name: vec![b'x'; 256], ..regular(0) }),
        one(FileOffer { name: b"data/../../x".to_vec(), ..regular(0) }),
        said(&[ends(), ends()]),
        said(&[ends(), Message::FileOffer(whole(0))]),
        vec![confirm(0)],
        vec![confirm(u32::MAX)],
        said(&[Message::FileOffer(whole(0)), confirm(0)]),
        vec![finish()],
        said(&[Message::FileOffer(whole(0)), ends(), finish()]),
        vec![need(0, SPAN_BYTES, &[])],
        vec![verified(0, 0, 1)],
        vec![settled(0)],
        vec![closed(0)],
        vec![Message::Progress(message::Progress::default())],
        vec![hello(1, 1)],
        vec![Message::HelloReply(message::HelloReply::default())],
    ]
}

/// Says the messages and checks that the other side refuses them as a breach of the protocol.
fn is_refused(peer: &mut Peer, messages: Vec<Message>) {
    let told = format!("{messages:?}");
    messages.into_iter().for_each(|message| peer.say(message));
    let fault = peer.hear_refusal();
    assert_eq!(fault.code, FaultCode::ProtocolViolation, "{told}: {fault:?}");
    peer.hear_close();
}

/// Lines of the server's log that speak of this address: themselves, or by their session.
fn lines_of(server: &Server, address: &str) -> Vec<String> {
    let events = server.process.events();
    let of_address = |line: &&serde_json::Value| {
        line["peer"].as_str().is_some_and(|peer| peer.split(':').next() == Some(address))
    };
    let begun = events.iter().filter(|line| line["event"] == "session").filter(of_address);
    let sessions: Vec<_> = begun.map(|line| line["session"].clone()).collect();
    let problems = events.iter().filter(|line| {
        let of_session = sessions.contains(&line["session"]) && line["event"] == "error";
        of_session || (line["event"] != "session" && of_address(line))
    });
    problems.map(ToString::to_string).collect()
}

/// Waits until the log holds `count` lines of the address; more come to light at the end.
fn wait_for_lines(server: &Server, address: &str, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while lines_of(server, address).len() < count {
        assert!(Instant::now() < deadline, "{address}: {:?}", server.process.events());
        thread::sleep(Duration::from_millis(5));
    }
}

fn asks_safe(server: &Server, direction: Direction, path: &[u8]) -> message::Open {
    message::Open {
        protection: Protection::Safe,
        digest: SAFE,
        span_bytes: SPAN_BYTES,
        ..Peer::asks(server, direction, path)
    }
}

/// Acts of strangers, each from an address of its own, with what the log says of them.
fn acts_of_strangers() -> Vec<(Vec<u8>, &'static str)> {
    let preface = Preface { stream: StreamId(0), session: [9; 16], mac: [0; 32] };
    let mut of_version_9 = preface.encode();
    of_version_9[8] = 9;
    vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "HTTP"),
        (vec![0; 10], "first byte"),
        (b"SSH-2.0-x\r\n".to_vec(), "HTTP"),
        ([&[22, 3, 1, 0, 5][..], &[0xff; 5]].concat(), "handshake"),
        (vec![22, 3, 1, 2, 0, 1], "handshake"),
        (DATA_MAGIC.to_vec(), "half a preface"),
        (preface.encode().to_vec(), "no open session"),
        (of_version_9.to_vec(), "version"),
    ]
}

#[test]
fn every_act_of_a_stranger_is_logged_once_with_its_address() {
    let place = Place::new();
    let options = ["--handshake-timeout", "2s", "--protection-min", "safe"];
    let server = ServerSetup::new(&place).options(&options).start(&place);
    let mut expected = Vec::new();
    let mut open = Vec::new();
    for (number, (bytes, why)) in acts_of_strangers().into_iter().enumerate() {
        let from = [127, 0, 1, number as u8 + 1];
        let mut socket = connect_from(from, server.address());
        let _ = socket.write_all(&bytes);
        expected.push((from, why));
        open.push(socket);
    }
    let clear = Peer::asks(&server, Direction::Pull, b"");
    let wrong = message::Open {
        token_secret: message::Secret([0; 16]),
        ..asks_safe(&server, Direction::Pull, b"")
    };
    let long = message::Open { paths: vec![vec![b'x'; 20_000]], ..clear.clone() };
    let none = message::Open { digest: Digest::None, ..asks_safe(&server, Direction::Push, b"") };
    let private = message::Open { protection: Protection::Private, ..none.clone() };
    let said = [
        (vec![hello(7, 9)], "versions do not meet"),
        (vec![Message::Open(clear.clone())], "out of order"),
        (vec![hello(1, 1), Message::Open(wrong)], "token"),
        (vec![hello(1, 1), Message::Open(clear)], "protection"),
        (vec![hello(1, 1), Message::Open(none)], "protection"),
        (vec![hello(1, 1), Message::Open(private)], "protection"),
        (vec![hello(1, 1), Message::Open(long)], "control message"),
        (vec![ends()], "out of order"),
    ];
    for (number, (messages, why)) in said.into_iter().enumerate() {
        let from = [127, 0, 2, number as u8 + 1];
        let mut peer = Peer::connect_from(from, &server);
        messages.into_iter().for_each(|message| peer.say(message));
        peer.hear_refusal();
        expected.push((from, why));
    }
    for (from, _) in &expected {
        wait_for_lines(&server, &std::net::Ipv4Addr::from(*from).to_string(), 1);
    }
    server.still_serves(&place);
    for (from, why) in expected {
        let lines = lines_of(&server, &std::net::Ipv4Addr::from(from).to_string());
        assert!(lines.len() == 1 && lines[0].contains(why), "{why}: {lines:?}");
    }
}

/// Words of a stranger went into the log as they were: a line feed began a line of their own.
#[test]
fn a_strangers_words_make_no_lines_and_play_with_no_terminal() {
    let place = Place::new();
    let words = words!["serve", place.path("root"), "--listen", "127.0.0.1:0"];
    let mut command = place.command(&words);
    command.env("HAUL_STATE", place.path("state"));
    command.stdout(std::process::Stdio::piped());
    let mut serving = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(serving.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("haul://") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "no URL");
    }
    let url: haul_transfer::HaulUrl = line.trim().parse().unwrap();
    let socket = TcpStream::connect(("127.0.0.1", url.port)).unwrap();
    let mut peer = Peer::over_tls(socket, url.token.as_ref().unwrap().fingerprint);
    let software = "x)\n[00000000] finished: all is well\x1b[2J".to_owned();
    let (version_min, version_max) = (7, 9);
    peer.say(Message::Hello(message::Hello {
        version_min,
        version_max,
        software,
        ..message::Hello::default()
    }));
    peer.hear_refusal();
    let mut refused = String::new();
    while !refused.contains("refused") {
        refused.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut refused).unwrap() > 0, "no refusal");
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert!(refused.contains("all is well"), "{refused:?}");
    assert!(!refused.trim_end().contains(char::is_control), "{refused:?}");
}

#[test]
fn a_receiver_that_lies_is_not_believed_by_a_server_and_logged_once() {
    let place = Place::new();
    place.file(&place.root("data"), 200_000);
    let server = Server::start(&place);
    let lies = lies_of_a_receiver();
    let count = lies.len();
    for (number, messages) in lies.into_iter().enumerate() {
        let open = asks_safe(&server, Direction::Pull, b"data");
        let from = [127, 0, 3, number as u8 + 1];
        let (mut peer, _) = Peer::connect_from(from, &server).open_session(open);
        is_refused(&mut peer, messages);
    }
    server.wait_for_sessions(count);
    server.still_serves(&place);
    for number in 1..=count {
        let lines = lines_of(&server, &format!("127.0.3.{number}"));
        assert!(lines.len() == 1 && lines[0].contains("broke the protocol"), "{lines:?}");
    }
}

#[test]
fn a_sender_that_lies_is_not_believed_by_a_server_and_logged_once() {
    let place = Place::new();
    let server = Server::start(&place);
    let lies = lies_of_a_sender();
    let count = lies.len();
    for (number, messages) in lies.into_iter().enumerate() {
        let open = asks_safe(&server, Direction::Push, b"");
        let from = [127, 0, 4, number as u8 + 1];
        let (mut peer, _) = Peer::connect_from(from, &server).open_session(open);
        is_refused(&mut peer, messages);
    }
    server.wait_for_sessions(count);
    assert_no_temporaries(&place.path("root"));
    assert!(!place.root("data").exists() && !place.path("x").exists());
    server.still_serves(&place);
    for number in 1..=count {
        let lines = lines_of(&server, &format!("127.0.4.{number}"));
        assert!(lines.len() == 1 && lines[0].contains("broke the protocol"), "{lines:?}");
    }
}

#[test]
fn a_server_that_lies_as_a_receiver_is_left_by_a_push() {
    let place = Place::new();
    place.file(&place.source("data"), 200_000);
    let mut lies = lies_of_a_receiver().into_iter();
    let count = lies.len();
    let fake = FakeServer::start(&place.path("fake"), move |mut peer| {
        if peer.let_in().is_ok() {
            peer.hear(|message| matches!(message, Message::FileOffer(_)).then_some(())).unwrap();
            is_refused(&mut peer, lies.next().unwrap());
        }
    });
    for _ in 0..count {
        let ran = place.push(&words![place.source("data"), fake.url(""), "--retry-for", "1s"]);
        assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
        ran.says(&["broke the protocol"]);
        assert!(ran.named("file").is_empty(), "{ran:?}");
    }
}

#[test]
fn a_server_that_lies_as_a_sender_is_left_by_a_pull() {
    let place = Place::new();
    let mut lies = lies_of_a_sender().into_iter();
    let count = lies.len();
    let fake = FakeServer::start(&place.path("fake"), move |mut peer| {
        if peer.let_in().is_ok() {
            is_refused(&mut peer, lies.next().unwrap());
        }
    });
    for _ in 0..count {
        let ran = place.pull(&words![fake.url("data"), place.target(""), "--retry-for", "1s"]);
        assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
        ran.says(&["broke the protocol"]);
    }
    assert!(haul_testkit::tree::names(&place.path("target")).unwrap().is_empty());
}

/// A session that pushes the one file, which is cut into four spans.
struct Pushing {
    peer: Peer,
    session: [u8; 16],
    keys: Arc<SessionKeys>,
    payloads: Vec<Vec<u8>>,
}

impl Pushing {
    fn start(server: &Server, name: &[u8]) -> Self {
        let open = asks_safe(server, Direction::Push, b"");
        let (mut peer, session) = Peer::with_session_of(server, open);
        let keys = Arc::new(peer.control.session_keys(&session).unwrap());
        let size_bytes = 200_000;
        peer.say(Message::FileOffer(FileOffer { size_bytes, ..offer(0, name, FileKind::Regular) }));
        peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
        let len = |span: u64| (size_bytes - span * SPAN_BYTES).min(SPAN_BYTES) as usize;
        let payloads = (0..4).map(|span| vec![span as u8 + 1; len(span)]).collect();
        Self { peer, session, keys, payloads }
    }

    fn stream(&self, server: &Server, stream: u32) -> TcpStream {
        open_stream(server.address(), &self.keys, self.session, stream)
    }

    fn frame(&self, stream: u32, sequence: u64, span: u64) -> Frame {
        let payload = &self.payloads[span as usize];
        let header = header(stream, sequence, 0, span, payload.len() as u64);
        Frame::new(&self.keys, SAFE, header, payload, PayloadStatus::Whole)
    }

    fn hear_bad(&mut self, span: u32, stream: u32) {
        let bad =
            message::SpanBad { file: FileId(0), span: SpanIndex(span), stream: StreamId(stream) };
        self.peer.hear(|message| (*message == Message::SpanBad(bad)).then_some(())).unwrap();
    }

    fn hear_verified(&mut self, first: u32) {
        let verified = verified(0, first, 1);
        self.peer.hear(|message| (*message == verified).then_some(())).unwrap();
    }
}

/// Frames of a session, which whoever is on the path has seen, and may send again anywhere.
#[test]
fn frames_replayed_swapped_or_of_another_session_are_worth_nothing() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut push = Pushing::start(&server, b"victim");
    let first = push.frame(0, 0, 0);
    let mut stream = push.stream(&server, 0);
    stream.write_all(&first.encode()).unwrap();
    push.hear_verified(0);
    // Once more in the same stream, and in another as it is.
    stream.write_all(&first.encode()).unwrap();
    hear_close(&stream);
    let mut other = push.stream(&server, 1);
    other.write_all(&first.encode()).unwrap();
    hear_close(&other);
    // Payload and MAC under a header that fits there: of another stream, place, frame and status.
    let mut forged = push.stream(&server, 2);
    let as_span_1 = header(2, 0, 0, 1, SPAN_BYTES);
    forged.write_all(&Frame { header: as_span_1, ..first.clone() }.encode()).unwrap();
    push.hear_bad(1, 2);
    let (one, two) = (push.frame(2, 1, 1), push.frame(2, 2, 2));
    forged.write_all(&Frame { trailer: two.trailer, ..one.clone() }.encode()).unwrap();
    forged.write_all(&Frame { trailer: one.trailer, ..two.clone() }.encode()).unwrap();
    push.hear_bad(1, 2);
    push.hear_bad(2, 2);
    let mut status = push.frame(2, 3, 1);
    let digest = status.trailer[8..].try_into().unwrap();
    let confirmed = haul_protocol::frame::SpanTrailer { status: PayloadStatus::Confirmed, digest };
    status.trailer = confirmed.encode();
    forged.write_all(&status.encode()).unwrap();
    push.hear_bad(1, 2);
    // Another session has other keys, though all numbers are the same.
    let mut later = Pushing::start(&server, b"victim-too");
    let mut stream = later.stream(&server, 0);
    stream.write_all(&first.encode()).unwrap();
    later.hear_bad(0, 0);
    let preface = push.keys.sign_preface(StreamId(7), push.session);
    for preface in [Preface { session: later.session, ..preface }, preface] {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&preface.encode()).unwrap();
        if preface.session == later.session {
            hear_close(&socket);
        }
    }
    drop((push.peer, later.peer));
    server.wait_for_sessions(2);
    assert!(!place.root("victim").exists() && !place.root("victim-too").exists());
    let events = server.process.events();
    let told = |what: &str| events.iter().filter(|e| e.to_string().contains(what)).count();
    assert_eq!((told("broke the protocol and was closed"), told("damaged or forged")), (2, 2));
    server.still_serves(&place);
}

/// Returns the place of the stream that is closed first.
fn closed_of(streams: &[TcpStream; 2]) -> usize {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for (at, mut stream) in streams.iter().enumerate() {
            stream.set_nonblocking(true).unwrap();
            let read = stream.read(&mut [0; 64]);
            stream.set_nonblocking(false).unwrap();
            match read {
                Ok(0) => return at,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return at,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    panic!("both streams stay open");
}

/// One of two streams that claim to bring one span is closed, and the bytes of the other are taken.
#[test]
fn a_span_that_another_stream_is_bringing_is_taken_from_nobody_else() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut push = Pushing::start(&server, b"victim");
    let frames = [0, 1].map(|stream| push.frame(stream, 0, 0).encode());
    let streams = [0, 1].map(|stream| push.stream(&server, stream));
    let half = frames[0].len() / 2;
    for (mut stream, frame) in streams.iter().zip(&frames) {
        stream.write_all(&frame[..half]).unwrap();
    }
    let other = 1 - closed_of(&streams);
    (&streams[other]).write_all(&frames[other][half..]).unwrap();
    push.hear_verified(0);
    drop(push.peer);
    server.wait_for_sessions(1);
    let events = server.process.events();
    let told = |what: &str| events.iter().filter(|e| e.to_string().contains(what)).count();
    assert_eq!(told("broke the protocol and was closed"), 1, "{events:?}");
    server.still_serves(&place);
}

/// Frames of a server with swapped MACs: what a pull takes has the right one at the right place.
#[test]
fn a_pull_takes_no_span_with_the_mac_of_another_and_asks_for_it_again() {
    let place = Place::new();
    let payloads = [vec![1_u8; SPAN_BYTES as usize], vec![2; SPAN_BYTES as usize]];
    let sent = payloads.clone();
    let fake = FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
        if peer.let_in().is_err() {
            return;
        }
        let keys = Arc::new(peer.control.session_keys(&[7; 16]).unwrap());
        let regular = offer(0, b"data", FileKind::Regular);
        peer.say(Message::FileOffer(FileOffer { size_bytes: 2 * SPAN_BYTES, inode: 1, ..regular }));
        peer.say(ends());
        peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
        let mut stream = take_stream(listener);
        let frame = |sequence, span: u64| {
            let header = header(0, sequence, 0, span, SPAN_BYTES);
            Frame::new(&keys, SAFE, header, &sent[span as usize], PayloadStatus::Whole)
        };
        let (one, two) = (frame(0, 0), frame(1, 1));
        stream.write_all(&Frame { trailer: two.trailer, ..one.clone() }.encode()).unwrap();
        stream.write_all(&Frame { trailer: one.trailer, ..two }.encode()).unwrap();
        for _ in 0..2 {
            peer.hear(|message| matches!(message, Message::SpanBad(_)).then_some(())).unwrap();
        }
        stream.write_all(&[frame(2, 0).encode(), frame(3, 1).encode()].concat()).unwrap();
        let all = |message: &Message| matches!(message, Message::SpansVerified(_)).then_some(());
        peer.hear(all).unwrap();
        // Perhaps one by one: what is confirmed too early ends the session.
        peer.sync().unwrap();
        peer.say(confirm(0));
        peer.hear(|message| matches!(message, Message::FileSettled(_)).then_some(())).unwrap();
        peer.say(finish());
        peer.hear_close();
    });
    let words = words![fake.url("data"), place.target(""), "--span-size", "64K"];
    let ran = place.pull(&words);
    ran.ok();
    assert_eq!(ran.number("resent_spans"), 2, "{ran:?}");
    assert_eq!(fs::read(place.target("data")).unwrap(), payloads.concat());
}

/// A span that could be damaged for ever.
#[test]
fn a_span_that_never_arrives_whole_ends_its_file_and_not_the_client() {
    let place = Place::new();
    let fake = FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
        if peer.let_in().is_err() {
            return;
        }
        let regular = offer(0, b"data", FileKind::Regular);
        peer.say(Message::FileOffer(FileOffer { size_bytes: 2 * SPAN_BYTES, ..regular }));
        peer.say(ends());
        peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
        let mut stream = take_stream(listener);
        let payload = vec![0; SPAN_BYTES as usize];
        for sequence in 0..100 {
            let header = header(0, sequence, 0, 0, SPAN_BYTES);
            let trailer =
                haul_protocol::frame::SpanTrailer { status: PayloadStatus::Whole, digest: [3; 16] };
            let (payload, trailer) = (payload.clone(), trailer.encode());
            let frame = Frame { header, payload, trailer };
            stream.write_all(&frame.encode()).unwrap();
        }
        let fault = peer.hear(|message| match message {
            Message::FileSettled(settled) => settled.fault.clone(),
            _ => None,
        });
        assert_eq!(fault.unwrap().code, FaultCode::DataDamaged);
        peer.say(finish());
        peer.hear_close();
    });
    let words = words![fake.url("data"), place.target(""), "--span-size", "64K"];
    let ran = place.pull(&words);
    ran.failed(1);
    ran.says(&["data", "damaged again and again"]);
    assert!(haul_testkit::tree::names(&place.path("target")).unwrap().is_empty());
}

/// Headers that a server may not send behind a good preface: the client writes nothing and ends.
#[test]
fn a_server_whose_frames_lie_is_left_by_a_pull() {
    let span = |file, offset_bytes, len_bytes, sequence, stream| {
        let header = SpanHeader {
            offset_bytes,
            len_bytes,
            stream: StreamId(stream),
            ..header(0, sequence, file, 0, 0)
        };
        FrameHeader::Span(header).encode().to_vec()
    };
    let pack = |spans, len_bytes| {
        let stream = StreamId(0);
        FrameHeader::Pack(PackHeader { spans, len_bytes, sequence: 0, stream }).encode().to_vec()
    };
    let lies = [
        span(0, 1 << 40, SPAN_BYTES, 0, 0),
        span(0, 1, SPAN_BYTES, 0, 0),
        span(0, 0, 1 << 40, 0, 0),
        span(0, 0, 0, 0, 0),
        span(9, 0, SPAN_BYTES, 0, 0),
        span(0, 0, SPAN_BYTES, 5, 0),
        span(0, 0, SPAN_BYTES, 0, 3),
        pack(1, 1 << 30),
        pack(u32::MAX, 1 << 20),
        pack(0, 100),
        vec![0xee; 100],
    ];
    for lie in lies {
        let place = Place::new();
        let told = format!("{lie:?}");
        let fake =
            FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
                if peer.let_in().is_err() {
                    return;
                }
                let regular = offer(0, b"data", FileKind::Regular);
                peer.say(Message::FileOffer(FileOffer { size_bytes: 2 * SPAN_BYTES, ..regular }));
                peer.say(ends());
                peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(()))
                    .unwrap();
                let mut stream = take_stream(listener);
                let _ = stream.write_all(&[&lie[..], &[0xee; 300]].concat());
                hear_close(&stream);
                let fault = Fault::new(FaultCode::IoFailed, message::Side::Source, "enough of it");
                peer.say(Message::Refused(fault));
                peer.hear_close();
            });
        let words = words![fake.url("data"), place.target(""), "--span-size", "64K"];
        let ran = place.pull(&[words, words!["--retry-for", "1s"]].concat());
        assert!(ran.status != 0, "{told}: {ran:?}");
        ran.says(&["a data stream broke the protocol"]);
        assert!(!place.target("data").exists(), "{told}");
    }
}

/// Two sources of one name: the first gets it, whole, and the other is told.
#[test]
fn of_two_offers_of_one_name_the_first_arrives_whole() {
    let place = Place::new();
    let server = Server::start(&place);
    let open = asks_safe(&server, Direction::Push, b"");
    let (mut peer, session) = Peer::with_session_of(&server, open);
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let large =
        |file| FileOffer { size_bytes: 2 * SPAN_BYTES, ..offer(file, b"large", FileKind::Regular) };
    let small =
        |file, name: &[u8]| FileOffer { size_bytes: 10, ..offer(file, name, FileKind::Regular) };
    for offer in [large(0), large(1), small(2, b"small"), small(3, b"small")] {
        peer.say(Message::FileOffer(offer));
    }
    assert_eq!(peer.hear_answer_fault(1).code, FaultCode::NameTaken);
    assert_eq!(peer.hear_answer_fault(3).code, FaultCode::NameTaken);
    peer.sync().unwrap();
    let mut stream = open_stream(server.address(), &keys, session, 0);
    let mut send = |sequence, file: u32, status| {
        let header = header(0, sequence, file, 0, 10);
        let frame = Frame::new(&keys, SAFE, header, &[file as u8; 10], status);
        stream.write_all(&frame.encode()).unwrap();
    };
    send(0, 2, PayloadStatus::Confirmed);
    peer.hear(|message| (*message == settled(2)).then_some(())).unwrap();
    assert_eq!(fs::read(place.root("small")).unwrap(), [2; 10]);
    // Neither once it is in place, nor in a directory that the session makes.
    peer.say(Message::FileOffer(small(4, b"small")));
    assert_eq!(peer.hear_answer_fault(4).code, FaultCode::NameTaken);
    assert_eq!(peer.offer(offer(5, b"d", FileKind::Directory)).unwrap(), None);
    for file in [6, 7] {
        peer.say(Message::FileOffer(small(file, b"d/x")));
    }
    assert_eq!(peer.hear_answer_fault(7).code, FaultCode::NameTaken);
    peer.sync().unwrap();
    send(1, 6, PayloadStatus::Confirmed);
    peer.hear(|message| (*message == settled(6)).then_some(())).unwrap();
    assert_eq!(fs::read(place.root(".d.haul-staged/x")).unwrap(), [6; 10], "until the end");
    drop((peer, stream));
    server.wait_for_sessions(1);
    assert!(!place.root("large").exists());
    server.still_serves(&place);
}

/// A name of many directories: the walk through them was as deep on the stack of a session, which
/// is small.
#[test]
fn a_name_of_many_directories_neither_ends_the_server_nor_takes_its_descriptors() {
    let place = Place::new();
    let server = Server::start_with_few_descriptors(&place, 128);
    let deep = vec!["d"; 1500].join("/");
    let (mut peer, _) = Peer::with_session(&server, Direction::Push);
    let made = peer.offer(offer(0, deep.as_bytes(), FileKind::Directory)).unwrap();
    assert_eq!(made, None);
    // Not confirmed: what each has open stays open.
    for number in 1..200 {
        let name = format!("e{number}/x");
        peer.say(Message::FileOffer(offer(number, name.as_bytes(), FileKind::Directory)));
    }
    peer.sync().unwrap();
    server.still_serves(&place);
    drop(peer);
    // And listed.
    let open = Peer::asks(&server, Direction::Pull, b"d");
    let (mut peer, _) = Peer::with_session_of(&server, open);
    let ended = peer.hear(|message| match message {
        Message::OffersEnd(end) => Some(end.files),
        _ => None,
    });
    // The last one was hidden until its end, and went with the session that brought nothing.
    assert_eq!(ended.unwrap(), 1499);
    drop(peer);
    server.still_serves(&place);
    let removed = std::process::Command::new("rm").arg("-rf").arg(place.root("d")).status();
    assert!(removed.unwrap().success());
}

/// Words and numbers of a server about itself: none goes to the user's terminal as it is, or is
/// reckoned with.
#[test]
fn a_server_that_reports_the_largest_numbers_and_escapes_does_no_harm() {
    let place = Place::new();
    fs::write(place.source("data"), b"").unwrap();
    let fake = FakeServer::start(&place.path("fake"), |mut peer| {
        if peer.let_in_granting(|opened| opened.rtt_us = u64::MAX).is_err() {
            return;
        }
        peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
        let progress = message::StreamProgress {
            stream: StreamId(u32::MAX),
            received_bytes: u64::MAX,
            on_storage: true,
        };
        peer.say(Message::Progress(message::Progress {
            received_bytes: u64::MAX,
            durable_bytes: u64::MAX,
            streams: vec![progress],
        }));
        let (what, why) = ("\x1b[2Jwhat".to_owned(), "why\n\x07".to_owned());
        peer.say(Message::Notice(message::Notice { what, why, ..message::Notice::default() }));
        peer.say(answer(0, Answer::Skip));
        peer.hear(|message| matches!(message, Message::Finish(_)).then_some(())).unwrap();
        let stage = |stage| message::StageTime { stage, ns: u64::MAX };
        let stages = [Stage::Unknown, Stage::SourceDisk, Stage::SendBuffer, Stage::Idle];
        let report = message::SideReport {
            cpu_ns: u64::MAX,
            max_rss_bytes: u64::MAX,
            copied_bytes: u64::MAX,
            retransmits: u64::MAX,
            engine: "\x1b[31mengine".into(),
            because: "\x1b[2J".into(),
            stages: stages.into_iter().cycle().take(64).map(stage).collect(),
            threads: u32::MAX,
            bad_spans: u64::MAX,
            rdma: Some(message::RdmaFigures {
                provider: "\x1b[31mverbs".into(),
                port: "\x07".into(),
                registering_ns: u64::MAX,
                direct_bytes: u64::MAX,
                cached_bytes: u64::MAX,
                ..message::RdmaFigures::default()
            }),
            ..message::SideReport::default()
        };
        peer.say(Message::Finish(message::Finish { report: Some(report) }));
        peer.hear_close();
    });
    let words = words!["push", place.source("data"), fake.url(""), "--retry-for", "1s"];
    for json in [true, false] {
        let mut command = place.command(&words);
        if json {
            command.arg("--json");
        }
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let plays = |character: char| character.is_control() && character != '\n';
        assert!(!text.contains(plays), "{text:?}");
    }
}

#[test]
fn a_recording_of_which_a_server_never_tells_the_end_is_a_failure() {
    let place = Place::new();
    let fake = FakeServer::start(&place.path("fake"), |mut peer| {
        if peer.let_in().is_err() {
            return;
        }
        let round = FileOffer { growth: Growth::Growing, ..offer(0, b"data", FileKind::Regular) };
        assert_eq!(peer.offer(round).unwrap(), None);
        peer.say(ends());
        peer.say(finish());
        peer.hear(|message| matches!(message, Message::Finish(_)).then_some(())).unwrap();
        peer.hear_close();
    });
    let words = words![fake.url("data"), place.target(""), "--follow", "--retry-for", "1s"];
    let ran = place.pull(&words);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["data", "never ended"]);
    assert!(!place.target("data").exists());
}

/// Sixty-six files of a million spans each take two megabits each: a receiver has no more open.
#[test]
fn a_client_that_asks_for_files_of_endless_spans_at_once_is_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    let paths = vec![b"zero:1P".to_vec(); 66];
    let open = message::Open { paths, ..Peer::asks(&server, Direction::Pull, b"") };
    let (mut peer, _) = Peer::with_session_of(&server, open);
    peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
    for file in 0..65 {
        peer.say(need(file, limits::SPAN_BYTES_MAX, &[]));
    }
    peer.sync().unwrap();
    is_refused(&mut peer, vec![need(65, limits::SPAN_BYTES_MAX, &[])]);
    // Together they are more than a number holds.
    let paths = vec![b"zero:15000P".to_vec(), b"zero:16383P".to_vec()];
    let open = message::Open { paths, ..Peer::asks(&server, Direction::Pull, b"") };
    let (mut peer, _) = Peer::with_session_of(&server, open);
    for _ in 0..2 {
        let notice = |message: &Message| matches!(message, Message::Notice(_)).then_some(());
        peer.hear(notice).unwrap();
    }
    drop(peer);
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= 128 << 20, "{memory} bytes of memory");
}
