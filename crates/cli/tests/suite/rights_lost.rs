//! Rights that end in mid-session, sessions of others, and bystanders at a port that is another's.
//!
//! A token that is revoked, or whose time is over, ends its sessions: no stream moves another byte,
//! and no message is answered. The id of a session, and a listener that waits for somebody else,
//! are of no use to who lacks its keys.

use crate::{
    harness::{
        PATIENCE, Place, assert_no_temporaries, assert_same_files,
        frames::{header, open_stream},
        peer::{Peer, offer},
        process::Haul,
        server::{Server, ServerSetup},
        sshd::{Sshd, there},
        wait_until,
    },
    private::with_private_session,
    rights::{asks, every_message, hear_out, need, token},
};
use haul_protocol::{
    Message, StreamId,
    frame::{FrameHeader, HEADER_BYTES, Preface},
    message::{self, Direction, Fault, FaultCode, FileKind, FileOffer},
};
use haul_transfer::{NewToken, Rights, StateDirectory, internals::SessionKeys};
use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;
/// Bytes of a file that a stream would bring if nothing held it.
const BIG_BYTES: u64 = 1 << 30;

fn revoke(place: &Place, id: &str) {
    StateDirectory::open(&place.path("state")).unwrap().revoke(id).unwrap();
}

/// Hears nothing but files' offers and figures until the session is refused.
#[track_caller]
fn refusal(peer: &mut Peer, code: FaultCode) -> Fault {
    let fault = peer.hear_refusal();
    assert_eq!(fault.code, code, "{fault:?}");
    fault
}

/// Bytes of a stream until it ends.
fn rest_of(stream: &mut TcpStream) -> u64 {
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return bytes,
            Ok(len) => bytes += len as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                return bytes;
            }
        }
    }
}

/// Sessions of both directions of one token, with a stream under way, and one for each message.
#[test]
fn a_revoked_token_ends_its_sessions_and_nothing_that_they_say_is_answered_any_more() {
    let place = Place::new();
    File::create(place.root("there")).unwrap().set_len(BIG_BYTES).unwrap();
    let server = ServerSetup::new(&place).options(&["--max-sessions", "200"]).start(&place);
    let (bad, id) = token(&place, |_| {});
    let good = server.token();
    let session = |token, direction: Direction| {
        let path = if direction == Direction::Pull { &b"there"[..] } else { b"" };
        Peer::with_session_of(&server, asks(&server, token, direction, path))
    };
    let mut others = [Direction::Push, Direction::Pull].map(|way| session(&good, way).0);
    let (mut pulls, number) = session(&bad, Direction::Pull);
    pulls.hear(|message| matches!(message, Message::FileOffer(_)).then_some(())).unwrap();
    pulls.say(Message::FileAnswer(need()));
    pulls.sync().unwrap();
    let keys = pulls.control.session_keys(&number).unwrap();
    let mut stream = open_stream(server.address(), &keys, number, 0);
    stream.read_exact(&mut [0; HEADER_BYTES]).unwrap();
    let (mut pushes, _) = session(&bad, Direction::Push);
    let file = FileOffer { size_bytes: 5, ..offer(0, b"new", FileKind::Regular) };
    pushes.say(Message::FileOffer(file));
    pushes.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
    let mut sessions: Vec<(Peer, Message)> = Vec::new();
    for direction in [Direction::Push, Direction::Pull] {
        let rows = every_message(b"there").into_iter();
        sessions.extend(rows.map(|message| (session(&bad, direction).0, message)));
    }

    revoke(&place, &id);
    let fault = refusal(&mut pulls, FaultCode::TokenRevoked);
    assert!(fault.what.contains("revoked") && !fault.hint.is_empty(), "{fault:?}");
    let came = rest_of(&mut stream);
    assert!(came < BIG_BYTES / 2, "{came} bytes came of a stream that was ended");
    assert_eq!(refusal(&mut pushes, FaultCode::TokenRevoked), fault);
    for (mut peer, message) in sessions {
        assert_eq!(refusal(&mut peer, FaultCode::TokenRevoked), fault, "{message:?}");
        peer.say(message);
        let heard = hear_out(&mut peer);
        assert!(heard.is_empty(), "it is answered: {heard:?}");
    }
    // No new stream of theirs either, though it is signed as it should be.
    let mut late = open_stream(server.address(), &keys, number, 1);
    assert_eq!(rest_of(&mut late), 0);
    drop((pulls, pushes));
    server.wait_for_sessions(66);
    assert!(!place.root("new").exists());
    assert_no_temporaries(&place.path("root"));
    // Those of other tokens go on.
    others.iter_mut().for_each(|peer| peer.sync().unwrap());
    server.still_serves(&place);
    let ended = server.process.events();
    let mut ended = ended.iter().filter(|line| line["event"] == "session_ended");
    assert!(ended.any(|line| line["why"].as_str().unwrap().contains("was revoked")));
}

#[test]
fn a_token_whose_time_is_over_ends_its_sessions() {
    let place = Place::new();
    place.file(&place.root("there"), 1000);
    let server = Server::start(&place);
    let brief = |new: &mut NewToken| new.valid_for = Some(Duration::from_secs(6));
    let (brief, _) = token(&place, brief);
    let mut peers = [Direction::Push, Direction::Pull, Direction::Probe]
        .map(|direction| Peer::with_session_of(&server, asks(&server, &brief, direction, b"")).0);
    peers.iter_mut().for_each(|peer| peer.sync().unwrap());
    for peer in &mut peers {
        refusal(peer, FaultCode::TokenExpired);
        assert_eq!(hear_out(peer), []);
    }
    server.still_serves(&place);
}

#[test]
fn a_probe_whose_token_is_revoked_ends_in_its_round() {
    let place = Place::new();
    let server = Server::start(&place);
    let (probing, id) = token(&place, |_| {});
    let url = server.url_with(&probing.reveal(), server.address(), "");
    let probe = place.start(&words!["probe", "net", url, "--time", "60s", "--streams", "1"]);
    server.process.wait_for("a probe", |line| line["direction"] == "probe");
    // Between rounds, too.
    let open = asks(&server, &probing, Direction::Probe, b"");
    let (mut idle, _) = Peer::with_session_of(&server, open);
    idle.sync().unwrap();
    revoke(&place, &id);
    refusal(&mut idle, FaultCode::TokenRevoked);
    let ran = probe.finish();
    assert_ne!(ran.status, 0, "{ran:?}");
    ran.says(&["the token was revoked"]);
}

/// A revocation as the users of both ends see it.
#[test]
fn a_transfer_whose_token_is_revoked_ends_with_the_reason_and_does_not_come_back() {
    ends_with_its_token("safe");
}

#[test]
fn a_private_transfer_whose_token_is_revoked_ends_with_the_reason_too() {
    ends_with_its_token("private");
}

fn ends_with_its_token(protection: &str) {
    let place = Place::new();
    place.file(&place.source("data"), 24 * MIB);
    place.file(&place.root("there"), 24 * MIB);
    let server = Server::start(&place);
    let start = |words: &[std::ffi::OsString], key: &str| -> Haul {
        let slow = words!["--bwlimit", "3M", "--span-size", "256K", "--retry-for", "1h"];
        let transfer = place.start(&[words, &slow, &words!["--protection", protection]].concat());
        transfer.wait_for_bytes(key, MIB);
        transfer
    };
    let (both, id) = token(&place, |_| {});
    let url = |path: &str| server.url_with(&both.reveal(), server.address(), path);
    let push = start(&words!["push", place.source("data"), url("")], "bytes_durable");
    let pull = start(&words!["pull", url("there"), place.target("")], "bytes_received");
    let state = words!["--state", place.path("state")];
    let revoked = place.run(&[words!["token", "revoke", id], state].concat());
    assert_eq!(revoked.status, 0, "{revoked:?}");
    for transfer in [push, pull] {
        let ran = transfer.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["the token was revoked", "ask for a new one"]);
    }
    assert!(!place.root("data").exists() && !place.target("there").exists());
    // With another token the same command goes on from there.
    let with = words!["--protection", protection];
    let ran = place.push(&[words![place.source("data"), server.url("")], with].concat());
    assert!(ran.ok()["resumed_bytes"].as_u64().unwrap() >= MIB, "{ran:?}");
    assert_same_files(&place.source("data"), &place.root("data"));
}

/// Streams that have a right to be opened, and whose peer does not get on with its handshake.
#[test]
fn a_private_stream_in_its_handshake_ends_with_its_token() {
    let place = Place::new();
    place.file(&place.root("there"), 1000);
    let server = Server::start(&place);
    let (bad, id) = token(&place, |_| {});
    let asked = asks(&server, &bad, Direction::Pull, b"there");
    let asked = message::Open { protection: message::Protection::Private, ..asked };
    let (mut peer, session) = with_private_session(&server, asked);
    let keys = peer.control.session_keys(&session).unwrap();
    let silent = open_stream(server.address(), &keys, session, 0);
    let mut begun = open_stream(server.address(), &keys, session, 1);
    // The head of a record that is to hold a client's first message, and a byte of it.
    begun.write_all(&[22, 3, 1, 0, 200, 1]).unwrap();
    peer.sync().unwrap();
    revoke(&place, &id);
    refusal(&mut peer, FaultCode::TokenRevoked);
    for mut stream in [silent, begun] {
        assert_eq!(rest_of(&mut stream), 0);
    }
    server.wait_for_sessions(1);
    server.still_serves(&place);
}

/// Bytes that a preface gets for an answer.
fn answer_to(server: &Server, preface: &Preface) -> u64 {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&preface.encode()).unwrap();
    rest_of(&mut socket)
}

/// Clients that have sessions of their own, and know the ids of others.
#[test]
fn the_id_of_another_s_session_opens_no_stream_and_is_like_one_of_nobody() {
    let place = Place::new();
    place.file(&place.root("there"), 200_000);
    let server = Server::start(&place);
    let reads = token(&place, |new| new.rights = Rights::READ_ONLY).0;
    let writes = token(&place, |new| new.rights = Rights { write: true, ..Rights::NONE }).0;
    let session = |token, direction, path: &[u8]| {
        let open = asks(&server, token, direction, path);
        let (peer, id) = Peer::with_session_of(&server, open);
        let keys = peer.control.session_keys(&id).unwrap();
        (peer, id, keys)
    };
    let (mut owner, id, own) = session(&reads, Direction::Pull, b"there");
    owner.hear(|message| matches!(message, Message::FileOffer(_)).then_some(())).unwrap();
    owner.say(Message::FileAnswer(need()));
    owner.sync().unwrap();
    // Of the same token, of another, of a probe: each signs by its keys.
    let others = [
        session(&reads, Direction::Pull, b"there"),
        session(&writes, Direction::Push, b""),
        session(&writes, Direction::Probe, b""),
    ];
    let stream = StreamId(0);
    let mut tried = 0;
    let mut is_closed = |what: &str, preface: &Preface| {
        assert_eq!(answer_to(&server, preface), 0, "{what}");
        tried += 1;
    };
    for (_, others_id, keys) in &others {
        is_closed("another's keys", &keys.sign_preface(stream, id));
        is_closed("one's own keys", &own.sign_preface(stream, *others_id));
        let swapped = Preface { session: id, ..keys.sign_preface(stream, *others_id) };
        is_closed("a MAC of another session", &swapped);
    }
    is_closed("of nobody", &own.sign_preface(stream, [9; 16]));
    is_closed("no keys", &SessionKeys::from_bytes(&[0; 96]).sign_preface(stream, id));
    is_closed(
        "no keys, of nobody",
        &SessionKeys::from_bytes(&[0; 96]).sign_preface(stream, [9; 16]),
    );
    let signed = own.sign_preface(StreamId(1), id);
    is_closed("another stream's MAC", &Preface { stream, ..signed });
    // All in the same words, so that the log tells no more than the answer.
    server.wait_for_refusals(tried);
    let events = server.process.events();
    let whys = events.iter().filter(|line| line["event"] == "refused").map(|line| &line["why"]);
    for why in whys {
        assert_eq!(why, "a data stream of no open session, or with a wrong MAC");
    }
    // The session itself is as it was, and its stream is still to be had.
    let mut own = open_stream(server.address(), &own, id, 0);
    let mut first = [0; HEADER_BYTES];
    own.read_exact(&mut first).unwrap();
    let expected = FrameHeader::Span(header(0, 0, 0, 0, 64 << 10));
    assert_eq!(FrameHeader::decode(&first).unwrap(), expected);
}

/// First of several free ports, below those that the kernel gives to the listeners of other tests
/// (ip_local_port_range of ip(7)).
fn free_ports(count: u16) -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let mut first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    while !(first..first + count).all(|port| is_free(&port)) {
        first += count;
    }
    first
}

/// Connects to each of the ports, says a proof of nothing, and gives what each connection heard.
fn pry(ports: &[u16]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for port in ports {
        let address = SocketAddr::from(([127, 0, 0, 1], *port));
        let Ok(mut socket) = TcpStream::connect(address) else { continue };
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut heard = vec![0; 64];
        let len = socket.read(&mut heard).unwrap_or(0);
        heard.truncate(len);
        let _ = socket.write_all(&[0; 32]);
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = socket.read_to_end(&mut heard);
        all.push(heard);
    }
    all
}

/// A user of the machine who reaches the listener of the near end, and the port of the far end,
/// while ssh has told both ends their secrets.
#[test]
fn a_bystander_between_ssh_and_the_ports_hears_a_challenge_and_nothing_else() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let first = free_ports(10);
    let ports: Vec<u16> = (first..first + 10).collect();
    place.file(&place.source("large"), 24 * MIB);
    let range = format!("{first}-{}", first + 9);
    let words = words!["push", place.source("large"), there("large"), "--reverse"];
    let more = words!["--port-range", range, "--bwlimit", "8M"];
    let over = AtomicBool::new(false);
    let (ran, heard) = thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let mut heard = Vec::new();
            while !over.load(Ordering::Relaxed) {
                heard.extend(pry(&ports));
            }
            heard
        });
        let ran = sshd.run(&place, &[words, more].concat());
        over.store(true, Ordering::Relaxed);
        (ran, bystander.join().unwrap())
    });
    assert!(ran.ok()["way"].as_str().unwrap().starts_with("the other side made"), "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
    // A challenge of 16 bytes by the near end; the server of the far end says nothing at all.
    let lens: Vec<usize> = heard.iter().map(Vec::len).collect();
    assert!(lens.iter().all(|len| [0, 16].contains(len)), "{lens:?}");
    assert!(lens.contains(&16) && lens.contains(&0), "it has reached both ends: {lens:?}");
    assert!(fs::metadata(sshd.home("large")).is_ok());
    wait_until("over there", || sshd.far_ends().is_empty());
}
