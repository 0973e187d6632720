//! Peers that mean harm or speak another version, and strangers at the port.
//!
//! Nothing is lost, little is spent, and others are served meanwhile.

use crate::harness::{
    PATIENCE, Place, assert_no_temporaries, assert_same_files,
    peer::{FakeServer, Peer, hello, offer},
    server::{IDLE_THREADS, Server, ServerSetup},
};
use haul_protocol::{
    FileId, Message, StreamId, encode_message,
    frame::{DATA_MAGIC, FrameHeader, Preface, SpanHeader},
    limits,
    message::{self, Answer, Direction, FaultCode, FileKind, FileOffer},
};
use haul_testkit::{
    faulty_proxy::{Fault as ProxyFault, FaultyProxy},
    seed::Random,
};
use haul_transfer::{Token, internals::SessionKeys};
use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::symlink,
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// Most memory that a server may take, whatever strangers do.
const MEMORY_BYTES_MAX: u64 = 128 << 20;
/// Half a greeting, a length and no more: the start of a TLS ClientHello of 512 bytes.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

fn names_in(place: &Place, name: &str) -> Vec<std::path::PathBuf> {
    haul_testkit::tree::names(&place.path(name)).unwrap()
}

#[test]
fn a_client_of_another_version_gets_a_clear_answer() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut peer = Peer::connect(&server);
    peer.say(hello(7, 9));
    let fault = peer.hear_refusal();
    assert_eq!(fault.code, FaultCode::Version);
    assert!(fault.needs.contains("version 1") && fault.found.contains("7 to 9"), "{fault:?}");
    assert!(fault.hint.contains("same haul version"), "{fault:?}");
    let refused = server.process.wait_for("refusal", |line| line["event"] == "refused");
    assert!(refused["why"].as_str().unwrap().contains("versions"), "{refused}");
    server.still_serves(&place);
}

#[test]
fn a_server_of_another_version_is_told_in_words() {
    let place = Place::new();
    place.file(&place.source("data"), 10);
    let software = "haul 9.0.0".to_owned();
    let reply = message::HelloReply { version: 9, software, ..message::HelloReply::default() };
    let server = FakeServer::start(&place.path("fake"), move |mut peer| {
        peer.say(Message::HelloReply(reply.clone()));
        peer.hear_close();
    });
    let ran = place.push(&words![place.source("data"), server.url("")]);
    ran.refused(&["versions do not meet", "9", "same haul version"]);
}

#[test]
fn a_server_that_says_nothing_or_nonsense_is_left() {
    let place = Place::new();
    place.file(&place.source("data"), 10);
    let silent = FakeServer::start(&place.path("silent"), |mut peer| peer.hear_close());
    let begun = Instant::now();
    let running = place.start(&words!["push", place.source("data"), silent.url("")]);
    let odd = FakeServer::start(&place.path("odd"), |mut peer| {
        peer.say(Message::StreamClosed(message::StreamClosed { stream: StreamId(9) }));
        peer.hear_close();
    });
    let ran = place.push(&words![place.source("data"), odd.url("")]);
    ran.refused(&["handshake"]);
    running.finish().refused(&[&silent.address.to_string(), "no answer"]);
    assert!(begun.elapsed() < PATIENCE);
}

/// Names that lead outside: files must not land beside the directory that the user named.
#[test]
fn a_server_that_offers_names_outside_is_refused_by_a_pull() {
    for name in [&b"../x"[..], b"/tmp/haul-x", b"a/../../x", b"x/../y", b"..", b"a\0b", b""] {
        let place = Place::new();
        let bad = offer(0, name, FileKind::Regular);
        let server = FakeServer::start(&place.path("fake"), move |mut peer| {
            if peer.let_in().is_ok() {
                peer.say(Message::FileOffer(bad.clone()));
                peer.hear_close();
            }
        });
        let words = words![server.url("x"), place.target(""), "--retry-for", "1s"];
        let ran = place.pull(&words);
        // 2 where the offer came with the session's first messages.
        assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
        ran.says(&["file name is refused"]);
        assert!(names_in(&place, "target").is_empty() && !place.path("x").exists());
    }
}

/// A link that a peer plants, and a file behind it.
#[test]
fn a_peer_that_plants_a_link_does_not_get_through_it() {
    let place = Place::new();
    fs::create_dir(place.path("outside")).unwrap();
    let mut link = offer(0, b"d", FileKind::Symlink);
    link.link_target = place.path("outside").into_os_string().into_encoded_bytes();
    let plant = move |peer: &mut Peer| {
        let planted = peer.offer(link.clone()).unwrap();
        assert_eq!(planted, None, "a link may lead anywhere");
        [(1, &b"d/x"[..]), (2, b"d/y/z")].map(|(file, name)| {
            let kind = if file == 1 { FileKind::Regular } else { FileKind::Directory };
            peer.offer(offer(file, name, kind)).unwrap().expect("refused")
        })
    };
    let server = Server::start(&place);
    let (mut peer, _) = Peer::with_session(&server, Direction::Push);
    for fault in plant(&mut peer) {
        assert_eq!(fault.side, message::Side::Target, "{fault:?}");
    }
    assert!(place.root("d").is_symlink());
    let fake = FakeServer::start(&place.path("fake"), move |mut peer| {
        if peer.let_in().is_ok() {
            plant(&mut peer);
        }
    });
    let words = words![fake.url("d"), place.target("new/"), "--retry-for", "1s"];
    let ran = place.pull(&words);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["d/x", "target", "link"]);
    assert!(place.target("new/d").is_symlink());
    assert!(names_in(&place, "outside").is_empty());
    server.still_serves(&place);
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_so_and_cut_off() {
    let place = Place::new();
    let server = Server::start(&place);
    let huge = FileOffer { size_bytes: u64::MAX, ..offer(0, b"a", FileKind::Regular) };
    let many = |file| Message::FileOffer(offer(file, b"a", FileKind::Directory));
    let offers: [Vec<Message>; 6] = [
        vec![Message::FileOffer(offer(0, b"../x", FileKind::Regular))],
        vec![Message::FileOffer(huge)],
        vec![many(5)],
        vec![many(0), many(0)],
        vec![Message::FileAnswer(message::FileAnswer { file: FileId(0), answer: Answer::Skip })],
        vec![hello(1, 1)],
    ];
    for messages in offers {
        let told = format!("{messages:?}");
        let (mut peer, _) = Peer::with_session(&server, Direction::Push);
        messages.into_iter().for_each(|message| peer.say(message));
        let fault = peer.hear_refusal();
        assert_eq!(fault.code, FaultCode::ProtocolViolation, "{told}: {fault:?}");
        assert!(!fault.hint.is_empty(), "{fault:?}");
        peer.hear_close();
    }
    assert!(!place.path("x").exists());
    assert_no_temporaries(&place.path("root"));
    server.still_serves(&place);
}

#[test]
fn a_stranger_may_say_little_and_in_order_only() {
    let place = Place::new();
    place.file(&place.root("served"), 10);
    let server = Server::start(&place);
    let open = Peer::asks(&server, Direction::Pull, b"served");
    let no_secret = message::Open { token_secret: message::Secret([0; 16]), ..open.clone() };
    let long_path = message::Open { paths: vec![vec![b'x'; 20_000]], ..open.clone() };
    for messages in [
        vec![Message::Open(open)],
        vec![hello(1, 1), hello(1, 1)],
        vec![hello(1, 1), Message::Open(no_secret)],
        vec![hello(1, 1), Message::Open(long_path)],
        vec![Message::OffersEnd(message::OffersEnd::default())],
    ] {
        let mut peer = Peer::connect(&server);
        messages.into_iter().for_each(|message| peer.say(message));
        let fault = peer.hear_refusal();
        let code = fault.code;
        assert!(code == FaultCode::ProtocolViolation || code == FaultCode::TokenWrong, "{fault:?}");
    }
    server.still_serves(&place);
}

/// Sends bytes and reads until the server closes.
fn answer_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    answer
}

#[test]
fn data_streams_of_no_session_and_with_a_wrong_mac_are_closed() {
    let place = Place::new();
    let server = Server::start(&place);
    let (peer, session) = Peer::with_session(&server, Direction::Push);
    let keys = peer.control.session_keys(&session).unwrap();
    let good = keys.sign_preface(StreamId(0), session);
    let mut mac = good.mac;
    mac[31] ^= 1;
    for preface in [
        Preface { mac, ..good },
        Preface { session: [9; 16], ..good },
        Preface { stream: StreamId(1), ..good },
    ] {
        assert_eq!(answer_to(&server, &preface.encode()), b"");
    }
    let mut other_version = good.encode();
    other_version[8] = 99;
    assert_eq!(answer_to(&server, &other_version), b"");
    server.still_serves(&place);
}

/// Frames on a stream that a right preface opened, for places that are not to be written.
#[test]
fn frames_that_were_not_asked_for_write_nothing() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut peer, session) = Peer::with_session(&server, Direction::Push);
    let keys = peer.control.session_keys(&session).unwrap();
    let size_bytes = 200_000;
    let file = FileOffer { size_bytes, ..offer(0, b"victim", FileKind::Regular) };
    peer.say(Message::FileOffer(file));
    peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
    let span = |stream, file, offset_bytes, len_bytes| SpanHeader {
        file: FileId(file),
        offset_bytes,
        len_bytes,
        sequence: 0,
        stream: StreamId(stream),
    };
    let headers = [
        span(0, 0, 1 << 40, 100),
        span(1, 0, 0, 1 << 40),
        span(2, 0, 100, 100),
        span(3, 7, 0, 100),
        SpanHeader { sequence: 5, ..span(4, 0, 0, size_bytes) },
        SpanHeader { stream: StreamId(0), ..span(5, 0, 0, size_bytes) },
    ];
    for (stream, header) in headers.into_iter().enumerate() {
        let preface = keys.sign_preface(StreamId(stream as u32), session).encode();
        let frame = [&preface[..], &FrameHeader::Span(header).encode(), &[0xee; 300]].concat();
        assert_eq!(answer_to(&server, &frame), b"", "{header:?}");
    }
    assert!(!place.root("victim").exists());
    drop(peer);
    server.wait_for_sessions(1);
    // What is left of it holds none of those bytes, and the same name can be written again.
    place.file(&place.source("victim"), 200_000);
    place.push(&words![place.source("victim"), server.url("")]).ok();
    assert_same_files(&place.source("victim"), &place.root("victim"));
    assert_no_temporaries(&place.path("root"));
    server.still_serves(&place);
}

/// Sends noise of all kinds, for as long as the transfer runs.
fn make_noise(address: std::net::SocketAddr, random: &mut Random) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut garbage = vec![0; 1 + random.below(5000) as usize];
        random.fill(&mut garbage);
        for bytes in [
            &garbage[..],
            HALF_HELLO,
            &DATA_MAGIC,
            &[&DATA_MAGIC[..], &garbage].concat(),
            &[HALF_HELLO, &garbage].concat(),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"",
        ] {
            let Ok(mut socket) = TcpStream::connect(address) else { continue };
            let _ = socket.write_all(bytes);
            if random.below(2) == 0 {
                open.push(socket);
            }
        }
    }
    open
}

#[test]
fn garbage_half_handshakes_endless_and_slow_bytes_harm_no_transfer() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 24 * MIB);
    let words = words!["push", place.source("data"), server.url(""), "--bwlimit", "6M"];
    let transfer = place.start(&words);
    transfer.wait_for_bytes("bytes_received", 1);
    let address = server.address();
    let begun = Instant::now();
    let endless = |first: &'static [u8], pause: Duration| {
        thread::spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            let mut sent = socket.write_all(first).is_ok();
            let chunk = vec![0x16; if pause.is_zero() { 1 << 16 } else { 1 }];
            while sent && begun.elapsed() < Duration::from_secs(3) {
                sent = socket.write_all(&chunk).is_ok();
                thread::sleep(pause);
            }
        })
    };
    let slow = Duration::from_millis(100);
    let senders = [
        endless(&[22, 3, 1, 0x40, 0], Duration::ZERO),
        endless(b"POST / HTTP/1.1\r\n\r\n", Duration::ZERO),
        endless(&DATA_MAGIC, Duration::ZERO),
        endless(b"\0", Duration::ZERO),
        endless(HALF_HELLO, slow),
        endless(&DATA_MAGIC, slow),
    ];
    let noise = make_noise(address, &mut place.seed.random());
    for sender in senders {
        sender.join().unwrap();
    }
    transfer.finish().ok();
    drop(noise);
    assert_same_files(&place.source("data"), &place.root("data"));
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
    server.still_serves(&place);
}

#[test]
fn five_hundred_idle_connections_keep_nobody_out_and_take_little_memory() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut idle = Vec::new();
    for number in 0..500 {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        if number % 2 == 0 {
            socket.write_all(HALF_HELLO).unwrap();
        }
        idle.push(socket);
    }
    place.file(&place.source("data"), 4 * MIB);
    place.push(&words![place.source("data"), server.url("")]).ok();
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
    println!("{} MiB with {} idle connections", memory >> 20, idle.len());
}

#[test]
fn a_connection_that_does_not_show_who_it_is_in_time_is_closed() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--handshake-timeout", "1s"]).start(&place);
    for bytes in [&b""[..], HALF_HELLO, &DATA_MAGIC] {
        let begun = Instant::now();
        answer_to(&server, bytes);
        assert!(begun.elapsed() < Duration::from_secs(20), "{bytes:?}: {:?}", begun.elapsed());
    }
    // After TLS, too.
    let mut peer = Peer::connect(&server);
    peer.say(hello(1, 1));
    let begun = Instant::now();
    peer.hear_close();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    server.still_serves(&place);
}

#[test]
fn a_browser_is_told_what_this_port_is() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("haul"), "{answer:?}");
    server.still_serves(&place);
}

#[test]
fn more_sessions_than_allowed_are_told_to_come_later() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--max-sessions", "1"]).start(&place);
    let (peer, _) = Peer::with_session(&server, Direction::Push);
    place.file(&place.source("data"), 1000);
    let words = words![place.source("data"), server.url(""), "--retry-for", "1s"];
    place.push(&words).refused(&["as many sessions as it may"]);
    drop(peer);
    server.wait_for_sessions(1);
    place.push(&words).ok();
}

/// The preface of a stream, which whoever is on the path has seen, and which opens no second one.
#[test]
fn a_preface_said_again_while_its_stream_is_up_takes_and_disturbs_nothing() {
    let place = Place::new();
    let server = Server::start(&place);
    let proxy = FaultyProxy::start(server.address(), |_| ProxyFault::None).unwrap();
    place.file(&place.source("data"), 12 * MIB);
    let by = |path: &str| server.url_by(proxy.address(), path);
    let push = words!["push", place.source("data"), by("")];
    let pull = words!["pull", by("data"), place.target("")];
    for (number, words) in [push, pull].into_iter().enumerate() {
        let slow = words!["--streams", "2", "--bwlimit", "6M", "--span-size", "256K"];
        let client = place.start(&[words, slow].concat());
        client.wait_for_bytes("bytes_received", MIB);
        let mut heads = proxy.heads();
        heads.retain(|head| head.starts_with(&DATA_MAGIC));
        assert_eq!(heads.len(), 2 * (number + 1), "two streams a session");
        let span = SpanHeader {
            file: FileId(0),
            offset_bytes: 11 * MIB,
            len_bytes: 256 << 10,
            sequence: 0,
            stream: StreamId(0),
        };
        let frame = [&FrameHeader::Span(span).encode()[..], &[0xee; 1000]].concat();
        for head in heads {
            for _ in 0..5 {
                assert_eq!(answer_to(&server, &head), b"");
                assert_eq!(answer_to(&server, &[&head[..], &frame].concat()), b"");
            }
        }
        let ran = client.finish();
        ran.ok();
        assert_eq!((ran.number("reconnections"), ran.number("resent_spans")), (0, 0), "{ran:?}");
        // Each head ten times, those of the first session in both rounds.
        server.wait_for_refusals([20, 60][number]);
        let events = server.process.events();
        let again = |line: &&serde_json::Value| {
            line["event"] == "refused" && line["why"].as_str().unwrap().contains("opened before")
        };
        // Of a flood a few are told in words.
        assert!(events.iter().any(|line| again(&line)), "{events:?}");
    }
    assert_same_files(&place.source("data"), &place.root("data"));
    assert_same_files(&place.source("data"), &place.target("data"));
}

/// Opens a data stream of a session.
fn data_stream(server: &Server, keys: &SessionKeys, session: [u8; 16], stream: u32) -> TcpStream {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&keys.sign_preface(StreamId(stream), session).encode()).unwrap();
    socket
}

/// A session whose stream is taken and never read: what the server has under way stays there.
fn stuck(server: &Server) -> (Peer, TcpStream) {
    let open = Peer::asks(server, Direction::Pull, b"big");
    let (mut peer, session) = Peer::with_session_of(server, open);
    let keys = peer.control.session_keys(&session).unwrap();
    peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
    let need = message::Need { span_bytes: 64 * MIB, ..message::Need::default() };
    let answer = Answer::Need(need);
    peer.say(Message::FileAnswer(message::FileAnswer { file: FileId(0), answer }));
    peer.sync().unwrap();
    let stream = data_stream(server, &keys, session, 0);
    stream.peek(&mut [0]).unwrap();
    // The buffers of both ends fill up.
    thread::sleep(Duration::from_millis(500));
    (peer, stream)
}

#[test]
fn a_client_that_reads_nothing_of_its_stream_holds_no_thread_of_the_server() {
    let place = Place::new();
    let server = Server::start(&place);
    File::create(place.root("big")).unwrap().set_len(256 * MIB).unwrap();
    let (mut peer, stream) = stuck(&server);
    server.still_serves(&place);
    // It says that the file is over, and keeps the stream.
    let fault = message::Fault::new(FaultCode::IoFailed, message::Side::Target, "enough");
    let begun = Instant::now();
    peer.say(Message::FileSettled(message::FileSettled { file: FileId(0), fault: Some(fault) }));
    peer.hear(|message| matches!(message, Message::Finish(_)).then_some(())).unwrap();
    peer.say(Message::Finish(message::Finish::default()));
    peer.hear_close();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    server.wait_for_threads(IDLE_THREADS);
    drop(stream);
    // It goes, and keeps the stream.
    let (peer, stream) = stuck(&server);
    drop(peer);
    server.wait_for_threads(IDLE_THREADS);
    drop(stream);
    server.still_serves(&place);
}

#[test]
fn a_client_has_twice_the_streams_it_was_granted_and_no_more() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.root("data"), 1000);
    let open = Peer::asks(&server, Direction::Pull, b"data");
    let (mut peer, session) = Peer::with_session_of(&server, open);
    let keys = peer.control.session_keys(&session).unwrap();
    let mut streams = Vec::new();
    for round in 0..20 {
        let opened = (0..20).map(|n| data_stream(&server, &keys, session, round * 20 + n));
        streams.extend(opened);
        peer.sync().unwrap();
        // Some go, and others come.
        streams.drain(..streams.len() / 2);
    }
    // The session's own, and two streams'.
    server.wait_for_threads(IDLE_THREADS + 1 + 2);
    server.wait_for_refusals(20 * 20 - 2);
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
}

/// Says a message many times, in pieces that the other side has time to take.
fn flood(peer: &mut Peer, times: usize, mut message: impl FnMut(usize) -> Message) {
    for number in 0..times {
        peer.say(message(number));
        if number % 64 == 63 {
            peer.sync().unwrap();
        }
    }
    peer.sync().unwrap();
}

/// Answers that wait on the server for a client that does not read, and that must not wait for
/// ever.
#[test]
fn a_client_that_reads_none_of_its_answers_is_cut_off() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut tls = Peer::tls_with_session(&server, Peer::asks(&server, Direction::Push, b""));
    let mut bytes = Vec::new();
    for file in 0..2_000_000 {
        // To each the server says that it does not know such a kind.
        encode_message(Message::FileOffer(offer(file, b"x", FileKind::Unknown)), &mut bytes);
        if bytes.len() > 1 << 16 && tls.write_all(&std::mem::take(&mut bytes)).is_err() {
            break;
        }
    }
    let fits = |line: &serde_json::Value| line["event"] == "session_ended";
    let ended = server.process.look_for(PATIENCE, fits).expect("it is not cut off");
    assert!(ended["why"].as_str().unwrap().contains("does not read"), "{ended}");
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
}

#[test]
fn clients_that_flood_the_server_with_small_messages_take_little_memory() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut bytes = Vec::new();
    for _ in 0..400_000 {
        let drop = message::StreamDrop { stream: StreamId(0), why: String::new() };
        encode_message(Message::StreamDrop(drop), &mut bytes);
    }
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let asks = Peer::asks(&server, Direction::Push, b"");
                let mut tls = Peer::tls_with_session(&server, asks);
                let _ = tls.write_all(&bytes);
            });
        }
    });
    server.wait_for_sessions(16);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
}

/// The longest name that an offer may have.
fn longest_name() -> Vec<u8> {
    let component = "d".repeat(limits::COMPONENT_BYTES_MAX);
    let name = vec![component; limits::NAME_BYTES_MAX.div_ceil(256)].join("/");
    name.as_bytes()[..limits::NAME_BYTES_MAX].to_vec()
}

/// Messages in a flood to a server, of which nobody reads what it says, either.
#[test]
fn a_client_that_floods_the_server_with_messages_takes_little_memory() {
    let place = Place::new();
    let server = ServerSetup::new(&place).unread().start(&place);
    let (mut peer, _) = Peer::with_session(&server, Direction::Push);
    let text = "x".repeat(limits::TEXT_BYTES_MAX);
    let fault = message::Fault {
        path: longest_name(),
        what: text.clone(),
        needs: text.clone(),
        found: text.clone(),
        hint: text.clone(),
        ..message::Fault::default()
    };
    let notice = message::Notice { fault: Some(fault), ..message::Notice::default() };
    flood(&mut peer, 10_000, |_| Message::Notice(notice.clone()));
    let name = longest_name();
    assert_eq!(peer.offer(offer(0, &name, FileKind::Directory)).unwrap(), None);
    flood(&mut peer, 40_000, |number| {
        Message::FileOffer(offer(1 + number as u32, &name, FileKind::Directory))
    });
    flood(&mut peer, 100_000, |number| {
        let stream = number as u32;
        Message::StreamDrop(message::StreamDrop { stream: StreamId(stream), why: String::new() })
    });
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
}

/// Open offers, each with as many spans as a file may have.
#[test]
fn a_client_that_keeps_as_many_offers_open_as_it_may_takes_little_memory() {
    let place = Place::new();
    let server = ServerSetup::new(&place).root("null:").start(&place);
    let largest = |file: u32| {
        // Each has a name of its own: a second file of a name is refused, and so not kept.
        let mut name = longest_name();
        let own = format!("{file:08}");
        let at = name.len() - own.len();
        name[at..].copy_from_slice(own.as_bytes());
        let size_bytes = limits::FILE_BYTES_MAX;
        Message::FileOffer(FileOffer { size_bytes, ..offer(file, &name, FileKind::Regular) })
    };
    let (mut peer, _) = Peer::with_session(&server, Direction::Push);
    let offers_max = 128;
    for round in 0..4 {
        let file = |number: usize| round * offers_max as u32 + number as u32;
        flood(&mut peer, offers_max, |number| largest(file(number)));
        if round < 3 {
            flood(&mut peer, offers_max, |number| {
                let fault = Some(message::Fault::default());
                Message::FileConfirm(message::FileConfirm { file: FileId(file(number)), fault })
            });
        }
    }
    // More than the bytes that it grants: each takes 4351 (haul_protocol::message::offer_bytes).
    for number in 0..3000 {
        peer.say(largest(4 * offers_max as u32 + number));
    }
    let fault = peer.hear_refusal();
    assert_eq!(fault.code, FaultCode::ProtocolViolation, "{fault:?}");
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
}

/// A client that has the lock of `data`, 40 MiB of which nothing came.
fn holder_of_data(server: &Server, token: &Token) -> Peer {
    let token_secret = message::Secret(token.secret);
    let open = Peer::asks(server, Direction::Push, b"");
    let (mut peer, _) = Peer::with_session_of(server, message::Open { token_secret, ..open });
    let size_bytes = 40 * MIB;
    let data = FileOffer { size_bytes, ..offer(0, b"data", FileKind::Regular) };
    peer.say(Message::FileOffer(data));
    let answer = peer.hear(|message| match message {
        Message::FileAnswer(answer) => Some(answer.answer.clone()),
        _ => None,
    });
    assert!(matches!(answer, Ok(Answer::Need(_))), "{answer:?}");
    peer
}

/// A client whose network was cut: its user runs the command again, and is not told to wait.
#[test]
fn a_client_that_fell_silent_gives_way_to_one_that_wants_its_file() {
    let place = Place::new();
    let server = Server::start(&place);
    let silent = holder_of_data(&server, &server.token());
    place.file(&place.source("data"), 40 * MIB);
    let ran = place.run(&words!["push", place.source("data"), server.url("")]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_same_files(&place.source("data"), &place.root("data"));
    drop(silent);
}

#[test]
fn a_client_that_answers_keeps_its_file_whoever_wants_it() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut holder = holder_of_data(&server, &server.token());
    place.file(&place.source("data"), 40 * MIB);
    let mut second = place.start(&words!["push", place.source("data"), server.url("")]);
    while second.is_running() {
        let _ = holder.sync();
    }
    let ran = second.finish();
    ran.failed(1);
    ran.says(&["another transfer is writing to it"]);
    holder.sync().unwrap();
}

#[test]
fn a_single_use_token_is_given_back_by_a_client_that_fell_silent() {
    let place = Place::new();
    let server = Server::start(&place);
    let made = place.run(&words!["token", "new", "--single-use", "--state", place.path("state")]);
    let token = made.events[0]["token"].as_str().unwrap();
    let silent = holder_of_data(&server, &token.parse().unwrap());
    place.file(&place.source("data"), 40 * MIB);
    let url = server.url_with(token, server.address(), "");
    let ran = place.run(&words!["push", place.source("data"), url]);
    assert_eq!(ran.status, 0, "{ran:?}");
    drop(silent);
}

/// A server whose host other users share, and which must not lend them its eyes.
#[test]
fn a_link_that_appears_while_a_tree_is_pulled_is_not_followed() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.path("outside/secret"), 1000);
    for number in 0..40 {
        place.file(&place.root("tree").join(format!("d{number:02}/file")), 200_000);
    }
    let words = words!["pull", server.url("tree"), place.target(""), "--bwlimit", "3M"];
    let transfer = place.start(&words);
    transfer.wait_for_bytes("bytes_received", 1);
    fs::remove_dir_all(place.root("tree/d39")).unwrap();
    symlink(place.path("outside"), place.root("tree/d39")).unwrap();
    let ran = transfer.finish();
    assert!(ran.status == 0 || ran.status == 1, "{ran:?}");
    assert!(!place.target("tree/d39/secret").exists());
    let got = place.target("tree/d39");
    assert!(!got.join("file").exists() || !got.is_symlink());
}
