//! Private data streams: what one hears who listens, and what becomes of those who meddle.
//!
//! Where the kernel has TLS these streams go by it; `cargo xtask lab kernel-tls` sees that. The
//! engine `tls` is seen here on any kernel.

use crate::harness::{
    PATIENCE, Place, assert_no_temporaries, assert_same_files, assert_same_trees,
    frames::{Frame, SPAN_BYTES, header, hear_close, open_stream, take_stream},
    peer::{FakeServer, Peer, hello, offer},
    process::{Haul, behind},
    server::{Server, ServerSetup},
};
use haul_protocol::{
    CAPABILITY_PRIVATE, Message, StreamId,
    frame::{PayloadStatus, Preface},
    limits,
    message::{self, Digest, Direction, FaultCode, FileKind, FileOffer, Protection},
};
use haul_sys::ktls;
use haul_testkit::{
    faulty_proxy::{Direction as Way, Fault, FaultyProxy, Kind},
    skip::skip,
    strace::Strace,
};
use haul_transfer::internals::{PRIVATE_LABEL, SessionKeys, client_config, client_data_config};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    sync::Arc,
    time::Instant,
};

const MIB: u64 = 1 << 20;
/// The engine of this process at both ends, whatever the kernel has.
const BY_PROCESS: [&str; 6] =
    ["--protection", "private", "--send-engine", "tls", "--receive-engine", "tls"];

fn private(words: &[OsString]) -> Vec<OsString> {
    words.iter().cloned().chain(BY_PROCESS.map(OsString::from)).collect()
}

#[test]
fn trees_and_large_files_arrive_pushed_and_pulled() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 3, 40);
    place.file(&place.source("tree/large"), 33 * MIB + 4321);
    let ran = place.push(&private(&words![place.source("tree"), server.url("")]));
    let report = ran.ok();
    assert_eq!(report["protection"], "private");
    let engines = [&report["send_engine"], &report["receive_engine"]];
    assert_eq!(engines, [&Value::from("tls"); 2]);
    // Each byte passes this process on either side.
    let copied_bytes = report["copied_bytes"].as_u64().unwrap();
    assert!(copied_bytes >= 2 * 33 * MIB, "{report}");
    for side in ["source", "target"] {
        let memory = report[side]["max_rss_bytes"].as_u64().unwrap();
        assert!(memory <= 64 * MIB, "the {side} took {memory} bytes of memory");
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let pulled = place.pull(&private(&words![server.url("tree"), place.target("")]));
    assert_eq!(pulled.ok()["receive_engine"], "tls");
    assert_same_trees(&place.root("tree"), &place.target("tree"));
    assert_no_temporaries(&place.path(""));
}

/// Program that runs another as a kernel would that takes keys of TLS and does nothing with them: a
/// filter (seccomp(2)) answers 0 to setsockopt and getsockopt of SOL_TLS, and of IPPROTO_TCP with
/// TCP_ULP, and does not call them.
const PRETENDS: &str = "
import ctypes, os, platform, struct, sys
calls = {'x86_64': (54, 55), 'aarch64': (208, 209)}[platform.machine()]
program = [(0x20, 0, 0, 0), (0x15, 1, 0, calls[0]), (0x15, 0, 5, calls[1]), (0x20, 0, 0, 24),
    (0x15, 4, 0, 282), (0x15, 0, 2, 6), (0x20, 0, 0, 32), (0x15, 1, 0, 31),
    (0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in program))
head = ctypes.create_string_buffer(struct.pack('HP', len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(head)), 0, 0):
    sys.exit('no filter: ' + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
";

/// Case of a sandbox that says yes to every option: who believes it sends all as it is.
#[test]
fn where_a_kernel_takes_the_keys_and_does_not_encrypt_this_process_does() {
    let place = Place::new();
    let server = Server::start(&place);
    file_of_markers(&place);
    let proxy = FaultyProxy::start(server.address(), |_| Fault::None).unwrap();
    proxy.look_for(MARKER);
    let words = words![place.source("data"), server.url_by(proxy.address(), ""), "--protection"];
    let words = [words!["push"], words, words!["private", "--json"]].concat();
    if !Command::new("python3").arg("-V").output().is_ok_and(|shown| shown.status.success()) {
        return skip("python3", "none");
    }
    let pretends = words!["python3", "-c", PRETENDS];
    let ran = Haul::start(behind(&pretends, place.command(&words))).finish();
    let report = ran.ok();
    assert_same_files(&place.source("data"), &place.root("data"));
    assert_eq!(proxy.markers_seen(), 0, "bytes of the file went over the network as they are");
    let because = report["chosen_because"].as_str().unwrap();
    assert!(because.contains("takes the keys of TLS and does not encrypt"), "{because}");
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    if available.split_whitespace().any(|name| name == "tls") {
        let tune = place.command(&words!["tune", "--json"]);
        let shown = format!("{:?}", Haul::start(behind(&pretends, tune)).finish().events);
        assert!(shown.contains("takes the keys of TLS and does not encrypt"), "{shown}");
    }
}

/// Counted at the side that sends, for each kind of engine that encrypts in this process.
#[test]
fn a_call_sends_many_records() {
    let place = Place::new();
    place.file(&place.root("data"), 32 * MIB);
    for engine in ["tls", "direct"] {
        let server = Server::start(&place);
        let log = place.path(format!("calls-{engine}"));
        let strace = match Strace::watch(server.process.id(), "sendto,sendmsg,write,writev", &log) {
            Ok(strace) => strace,
            Err(why) => return skip("strace and the right to trace", why.to_string()),
        };
        let words = words![server.url("data"), place.target(engine), "--protection", "private"];
        let words = [words, words!["--send-engine", engine, "--streams", "1"]].concat();
        let report = place.pull(&words).ok().clone();
        server.wait_for_sessions(1);
        let calls = strace.log();
        if report["send_engine"].as_str().unwrap().contains("sendfile") {
            return skip("TLS in this process", report["send_engine"].to_string());
        }
        // What a call took of the connection of data: the others carry some hundred bytes.
        let sent = calls.lines().filter(|line| !line.contains("unfinished"));
        let lens = sent.filter_map(|line| line.rsplit("= ").next()?.trim().parse::<u64>().ok());
        let large: Vec<u64> = lens.filter(|len| *len >= 16 << 10).collect();
        let bytes: u64 = large.iter().sum();
        assert!(bytes >= 32 * MIB, "{bytes} bytes in {} calls: {report}", large.len());
        let most = 2 * 32 * MIB / (256 << 10);
        assert!(large.len() as u64 <= most, "{engine}: {} calls for 32 MiB", large.len());
        assert_same_files(&place.root("data"), &place.target(engine));
    }
}

/// Past the page cache: the kernel encrypts where it has TLS, and else this process, in the memory
/// that a block was read into, and into the memory that it is written from.
#[test]
fn engines_past_the_page_cache_move_private_files_and_their_streams_are_replaced() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--rekey-after", "5M"]).start(&place);
    place.file(&place.source("data"), 33 * MIB + 4321);
    let by_process = ktls::check(ktls::Version::Tls13, ktls::Cipher::Aes128Gcm).is_err();
    for engine in ["direct", "io-uring"] {
        let asked = words!["--protection", "private", "--span-size", "1M", "--rekey-after", "5M"];
        let engines = words!["--send-engine", engine, "--receive-engine", engine];
        let asked = [asked, engines].concat();
        let push = [words![place.source("data"), server.url(engine)], asked.clone()].concat();
        let pull = [words![server.url(engine), place.target("")], asked].concat();
        for ran in [place.push(&push), place.pull(&pull)] {
            let report = ran.ok();
            // Where the file system has no O_DIRECT, another engine goes on behind a plus sign.
            for side in ["send_engine", "receive_engine"] {
                assert!(report[side].as_str().unwrap().starts_with(engine), "{report}");
            }
            let because = report["chosen_because"].as_str().unwrap();
            let says =
                ["this process encrypts", "this process decrypts"].map(|it| because.contains(it));
            assert_eq!(says, [by_process; 2], "{because}");
            assert_eq!(report["resent_spans"], 0);
        }
        assert_same_files(&place.source("data"), &place.root(engine));
        assert_same_files(&place.source("data"), &place.target(engine));
    }
}

/// The kernel encrypts where it has TLS, and else this process.
#[test]
fn without_a_word_about_engines_it_works_too() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 9 * MIB + 1);
    let words = words![place.source("data"), server.url(""), "--protection", "private"];
    place.push(&words).ok();
    assert_same_files(&place.source("data"), &place.root("data"));
    let words = words![server.url("data"), place.target(""), "--protection", "private"];
    place.pull(&words).ok();
    assert_same_files(&place.source("data"), &place.target("data"));
}

/// `cargo xtask lab kernel-tls` runs it on a kernel that has TLS, and counts what that encrypted.
#[test]
fn where_the_kernel_encrypts_no_byte_passes_user_space_and_streams_are_replaced_too() {
    if let Err(error) = ktls::check(ktls::Version::Tls13, ktls::Cipher::Aes128Gcm) {
        return skip("the kernel's tls", error.to_string());
    }
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--rekey-after", "2M"]).start(&place);
    place.file(&place.source("data"), 9 * MIB + 4321);
    let asked = words!["--protection", "private", "--span-size", "1M", "--rekey-after", "2M"];
    let engines = words!["--send-engine", "sendfile", "--receive-engine", "splice"];
    let asked = [asked, engines].concat();
    let ran = place.push(&[words![place.source("data"), server.url("")], asked.clone()].concat());
    assert_eq!((&ran.ok()["copied_bytes"], &ran.ok()["resent_spans"]), (&0.into(), &0.into()));
    assert_same_files(&place.source("data"), &place.root("data"));
    let ran = place.pull(&[words![server.url("data"), place.target("")], asked].concat());
    assert_eq!((&ran.ok()["copied_bytes"], &ran.ok()["resent_spans"]), (&0.into(), &0.into()));
    assert_same_files(&place.source("data"), &place.target("data"));
}

/// The word that one looks for who listens on the path.
const MARKER: &[u8] = b"the secret of the source";

fn file_of_markers(place: &Place) -> u64 {
    let content = MARKER.repeat(20_000);
    fs::write(place.source("data"), &content).unwrap();
    content.len() as u64
}

#[test]
fn who_listens_on_the_path_hears_no_byte_of_the_file() {
    for (protection, is_heard) in [("safe", true), ("private", false)] {
        let place = Place::new();
        let server = Server::start(&place);
        let len_bytes = file_of_markers(&place);
        let proxy = FaultyProxy::start(server.address(), |_| Fault::None).unwrap();
        proxy.look_for(MARKER);
        let url = |path: &str| server.url_by(proxy.address(), path);
        let asked = ["--protection", protection, "--streams", "2"];
        place
            .push(&words![place.source("data"), url(""), asked[0], asked[1], asked[2], asked[3]])
            .ok();
        let pushed = proxy.markers_seen();
        place.pull(&words![url("data"), place.target(""), asked[0], asked[1]]).ok();
        let pulled = proxy.markers_seen() - pushed;
        assert_same_files(&place.source("data"), &place.target("data"));
        let whole = len_bytes / MARKER.len() as u64;
        let expected = if is_heard { [whole; 2] } else { [0; 2] };
        assert_eq!([pushed, pulled], expected, "{protection}");
    }
}

#[test]
fn a_stream_is_replaced_before_its_key_has_protected_too_much_and_no_span_goes_twice() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--rekey-after", "1M"]).start(&place);
    place.file(&place.source("data"), 24 * MIB + 77);
    let proxy = FaultyProxy::start(server.address(), |_| Fault::None).unwrap();
    let url = |path: &str| server.url_by(proxy.address(), path);
    let asked = words!["--span-size", "64K", "--rekey-after", "1M", "--streams", "2"];
    let push = [words![place.source("data"), url("")], asked.clone()].concat();
    let ran = place.push(&private(&push));
    let pushed = proxy.connections().1;
    assert_eq!(ran.ok()["resent_spans"], 0);
    assert_same_files(&place.source("data"), &place.root("data"));
    // A stream ends at the first span that comes to a mebibyte, or at the one that was taken then.
    assert!((20..=26).contains(&pushed), "{pushed} streams for 24 MiB");
    let pull = [words![url("data"), place.target("")], asked].concat();
    let ran = place.pull(&private(&pull));
    let pulled = proxy.connections().1 - pushed;
    assert_eq!(ran.ok()["resent_spans"], 0);
    assert_same_files(&place.source("data"), &place.target("data"));
    assert!((20..=26).contains(&pulled), "{pulled} streams for 24 MiB");
    // Small files in packs, too.
    place.tree(&place.source("tree"), 10, 400);
    let push = words![place.source("tree"), server.url(""), "--rekey-after", "64K"];
    assert_eq!(place.push(&private(&push)).ok()["resent_spans"], 0);
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn a_changed_bit_costs_a_stream_and_no_wrong_byte_arrives() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 12 * MIB);
    for (direction, way) in [("push", Way::ToServer), ("pull", Way::ToClient)] {
        let proxy = FaultyProxy::start(server.address(), move |arrival| {
            let at = 2 * MIB + u64::from(arrival.number) * 3333;
            let is_meant = arrival.kind == Kind::Data && arrival.number < 3;
            if is_meant { Fault::Flip { direction: way, at, every: None } } else { Fault::None }
        })
        .unwrap();
        let url = |path: &str| server.url_by(proxy.address(), path);
        let ran = if direction == "push" {
            place.push(&private(&words![place.source("data"), url("")]))
        } else {
            place.pull(&private(&words![url("data"), place.target("")]))
        };
        ran.ok();
        assert!(proxy.flipped_bits() > 0);
    }
    assert_same_files(&place.source("data"), &place.root("data"));
    assert_same_files(&place.source("data"), &place.target("data"));
}

#[test]
fn a_server_that_wants_private_streams_takes_no_others() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--protection-min", "private"]).start(&place);
    place.file(&place.source("data"), MIB);
    for protection in ["safe", "clear"] {
        let words = words![place.source("data"), server.url(""), "--protection", protection];
        let ran = place.push(&words);
        ran.says(&["does not take this protection", "--protection private or more", protection]);
    }
    assert!(!place.root("data").exists());
    place.push(&private(&words![place.source("data"), server.url("")])).ok();
    assert_same_files(&place.source("data"), &place.root("data"));
}

#[test]
fn rdma_endpoints_and_no_digest_do_not_go_with_private_streams() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 1);
    for (more, found) in [("--fabric", "RDMA endpoints"), ("--digest=none", "digest none")] {
        let ran = place.push(&private(&words![place.source("data"), server.url(""), more]));
        ran.refused(&["private data streams", found]);
    }
}

/// Request of a client of this server that wants private streams.
fn asks(server: &Server, direction: Direction, path: &[u8]) -> message::Open {
    let (protection, digest) = (Protection::Private, Digest::Crc32c);
    message::Open { protection, digest, ..Peer::asks(server, direction, path) }
}

/// A session whose streams are private, as a client that can do that opens it.
pub fn with_private_session(server: &Server, asked: message::Open) -> (Peer, [u8; 16]) {
    let mut peer = Peer::connect(server);
    let Message::Hello(mut hello) = hello(1, 1) else { panic!("a hello") };
    hello.capabilities.push(CAPABILITY_PRIVATE);
    peer.say(Message::Hello(hello));
    peer.say(Message::Open(asked));
    let opened = peer.hear(|message| match message {
        Message::Opened(opened) => Some(opened.clone()),
        _ => None,
    });
    peer.control.trust();
    (peer, opened.unwrap().session)
}

/// TLS on a data stream, by rustls alone.
fn tls(socket: TcpStream, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("haul").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket);
    while tls.conn.is_handshaking() {
        if tls.conn.complete_io(&mut tls.sock).is_err() {
            break;
        }
    }
    tls
}

/// The proof that the client with these keys gives on this connection.
fn proof(
    tls: &StreamOwned<ClientConnection, TcpStream>,
    keys: &SessionKeys,
    (session, stream): ([u8; 16], u32),
) -> [u8; 32] {
    let signed = Preface::signed_bytes(StreamId(stream), &session);
    let exported = tls.conn.export_keying_material([0; 32], PRIVATE_LABEL, Some(&signed)).unwrap();
    keys.prove_private(&exported)
}

#[test]
fn another_implementation_of_tls_pushes_a_file_by_the_specification() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut peer, session) = with_private_session(&server, asks(&server, Direction::Push, b""));
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let payload: Vec<u8> = (0..50_000_u32).map(|byte| (byte % 251) as u8).collect();
    let size_bytes = payload.len() as u64;
    peer.say(Message::FileOffer(FileOffer { size_bytes, ..offer(0, b"file", FileKind::Regular) }));
    peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
    let socket = open_stream(server.address(), &keys, session, 0);
    let config = client_data_config(server.token().fingerprint).unwrap();
    let mut stream = tls(socket, config);
    let proof = proof(&stream, &keys, (session, 0));
    stream.write_all(&proof).unwrap();
    let span = header(0, 0, 0, 0, size_bytes);
    let frame = Frame::new(&keys, Digest::Crc32c, span, &payload, PayloadStatus::Confirmed);
    stream.write_all(&frame.encode()).unwrap();
    let settled = peer.hear(|message| match message {
        Message::FileSettled(settled) => Some(settled.fault.clone()),
        _ => None,
    });
    assert_eq!(settled.unwrap(), None);
    assert_eq!(fs::read(place.root("file")).unwrap(), payload);
}

/// The kernel refuses the record where it decrypts, and this process names it where it does.
#[test]
fn a_key_update_ends_the_stream_by_name_and_the_file_arrives_by_another() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut peer, session) = with_private_session(&server, asks(&server, Direction::Push, b""));
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let payload = MARKER.repeat(100);
    let size_bytes = payload.len() as u64;
    peer.say(Message::FileOffer(FileOffer { size_bytes, ..offer(0, b"file", FileKind::Regular) }));
    peer.hear(|message| matches!(message, Message::FileAnswer(_)).then_some(())).unwrap();
    let open = |number| {
        let socket = open_stream(server.address(), &keys, session, number);
        let mut stream = tls(socket, client_data_config(server.token().fingerprint).unwrap());
        let proof = proof(&stream, &keys, (session, number));
        stream.write_all(&proof).unwrap();
        stream
    };
    let mut changes_keys = open(0);
    changes_keys.conn.refresh_traffic_keys().unwrap();
    changes_keys.flush().unwrap();
    peer.hear(|message| match message {
        Message::StreamClosed(closed) => (closed.stream == StreamId(0)).then_some(()),
        _ => None,
    })
    .unwrap();
    server.process.wait_for("the stream's end", |event| {
        event["event"] == "error" && event.to_string().contains("wants new keys on this stream")
    });
    let span = header(1, 0, 0, 0, size_bytes);
    let frame = Frame::new(&keys, Digest::Crc32c, span, &payload, PayloadStatus::Confirmed);
    open(1).write_all(&frame.encode()).unwrap();
    let settled = peer.hear(|message| match message {
        Message::FileSettled(settled) => Some(settled.fault.clone()),
        _ => None,
    });
    assert_eq!(settled.unwrap(), None);
    assert_eq!(fs::read(place.root("file")).unwrap(), payload);
}

/// One who stands on the path has the client's preface, and puts a handshake of its own behind it.
#[test]
fn nobody_but_the_session_s_client_gets_a_byte_or_gives_one() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::write(place.root("data"), MARKER.repeat(1000)).unwrap();
    let (mut peer, session) =
        with_private_session(&server, asks(&server, Direction::Pull, b"data"));
    peer.hear(|message| matches!(message, Message::FileOffer(_)).then_some(())).unwrap();
    let need = message::Need { span_bytes: SPAN_BYTES, ..message::Need::default() };
    let answer = message::Answer::Need(need);
    peer.say(Message::FileAnswer(message::FileAnswer { file: haul_protocol::FileId(0), answer }));
    peer.sync().unwrap();
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let fingerprint = server.token().fingerprint;
    let strangers = Arc::new(SessionKeys::from_bytes(&[5; limits::DATA_KEYS_BYTES]));
    type Words = fn(&[u8; 32], &[u8; 32]) -> Vec<u8>;
    let attempts: [Words; 4] = [
        // A proof by other keys, none, a part of one, and one with a bit changed.
        |_, strangers| strangers.to_vec(),
        |_, _| vec![0; 32],
        |own, _| own[..31].to_vec(),
        |own, _| [&[own[0] ^ 1], &own[1..]].concat(),
    ];
    for (number, words) in attempts.into_iter().enumerate() {
        let stream = number as u32;
        let socket = open_stream(server.address(), &keys, session, stream);
        let mut tls = tls(socket, client_data_config(fingerprint).unwrap());
        let own = proof(&tls, &keys, (session, stream));
        let others = proof(&tls, &strangers, (session, stream));
        tls.write_all(&words(&own, &others)).unwrap();
        let mut heard = Vec::new();
        let _ = tls.read_to_end(&mut heard);
        assert_eq!(heard, [0; 0], "attempt {number}");
    }
    // A proof that was made on another connection, though for the same stream's number.
    let socket = open_stream(server.address(), &keys, session, 20);
    let first = tls(socket, client_data_config(fingerprint).unwrap());
    let replayed = proof(&first, &keys, (session, 21));
    drop(first);
    let socket = open_stream(server.address(), &keys, session, 21);
    let mut second = tls(socket, client_data_config(fingerprint).unwrap());
    second.write_all(&replayed).unwrap();
    let mut heard = Vec::new();
    let _ = second.read_to_end(&mut heard);
    assert_eq!(heard, [0; 0], "a replayed proof");
    // The handshake of a control connection, and frames without any.
    let socket = open_stream(server.address(), &keys, session, 30);
    let mut control = tls(socket, client_config(fingerprint).unwrap());
    let mut heard = Vec::new();
    let _ = control.read_to_end(&mut heard);
    assert_eq!(heard, [0; 0], "a handshake without the protocol's name");
    let mut socket = open_stream(server.address(), &keys, session, 31);
    socket.write_all(&[0; 4096]).unwrap();
    hear_close(&socket);
    // Who is the client gets it, once the server has done with the others.
    let begun = Instant::now();
    let mut heard = vec![0; 200];
    for stream in 40.. {
        let socket = open_stream(server.address(), &keys, session, stream);
        let mut own = tls(socket, client_data_config(fingerprint).unwrap());
        if !own.conn.is_handshaking() {
            let words = proof(&own, &keys, (session, stream));
            own.write_all(&words).unwrap();
            if own.read_exact(&mut heard).is_ok() {
                break;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", server.process.events());
    }
    assert!(heard.windows(MARKER.len()).any(|window| window == MARKER));
}

/// A session whose streams carry nothing would be replaced for ever.
#[test]
fn a_key_that_may_protect_nothing_protects_a_span() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--rekey-after", "0"]).start(&place);
    place.file(&place.source("data"), MIB);
    let asked = words!["--span-size", "64K", "--rekey-after", "0"];
    let push = [words![place.source("data"), server.url("")], asked.clone()].concat();
    assert_eq!(place.push(&private(&push)).ok()["resent_spans"], 0);
    let pull = [words![server.url("data"), place.target("")], asked].concat();
    assert_eq!(place.pull(&private(&pull)).ok()["resent_spans"], 0);
    assert_same_files(&place.source("data"), &place.target("data"));
}

#[test]
fn private_streams_are_neither_asked_for_nor_granted_without_the_capability() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut peer = Peer::connect(&server);
    peer.say(hello(1, 1));
    peer.say(Message::Open(asks(&server, Direction::Push, b"")));
    assert_eq!(peer.hear_refusal().code, FaultCode::ProtectionTooLow);
    // A server that grants it and has not said that it can, and one that says that it cannot, in
    // the words of a haul that does not know what it is asked for.
    place.file(&place.source("data"), 1000);
    let grants: fn(Peer) = |mut peer| {
        let _ = peer.let_in();
        peer.hear_close();
    };
    let refuses: fn(Peer) = |mut peer| {
        let software = "haul 0.0.9".to_owned();
        let reply = message::HelloReply { version: 1, software, capabilities: Vec::new() };
        let what = "the server does not take this protection";
        let code = FaultCode::ProtectionTooLow;
        let refused = message::Fault::new(code, message::Side::Unknown, what);
        peer.hear(|message| matches!(message, Message::Open(_)).then_some(())).unwrap();
        peer.say(Message::HelloReply(reply));
        peer.say(Message::Refused(refused.found("unknown with crc32c")));
        peer.hear_close();
    };
    for (serve, software) in [(grants, "a fake server"), (refuses, "haul 0.0.9")] {
        let fake = FakeServer::start(&place.path("fake"), serve);
        let ran = place.push(&private(&words![place.source("data"), fake.url("")]));
        let found = format!("{software}, which does not");
        ran.refused(&["--protection private", "a haul there that knows", &found, "same haul"]);
    }
}

/// A server that goes on in the clear gets nothing, and is not believed.
#[test]
fn a_client_sends_nothing_to_a_server_without_tls_behind_the_preface() {
    let place = Place::new();
    file_of_markers(&place);
    let (tell, told) = std::sync::mpsc::channel();
    let fake = FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
        let _ = peer.let_in_with(&[CAPABILITY_PRIVATE], |_| {});
        let offered = peer.hear(|message| matches!(message, Message::FileOffer(_)).then_some(()));
        if offered.is_err() {
            return;
        }
        let need = message::Need { span_bytes: SPAN_BYTES, ..message::Need::default() };
        let answer = message::Answer::Need(need);
        let file = haul_protocol::FileId(0);
        peer.say(Message::FileAnswer(message::FileAnswer { file, answer }));
        let _ = peer.sync();
        let mut stream = take_stream(listener);
        // No record of TLS.
        stream.write_all(&[0x55; 4096]).unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        tell.send(heard).unwrap();
    });
    let words = words![place.source("data"), fake.url(""), "--retry-for", "1s", "--streams", "1"];
    let ran = place.push(&private(&words));
    assert_ne!(ran.status, 0);
    let heard = told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(heard.len() < 2000 && !heard.windows(8).any(|window| MARKER.starts_with(window)));
}
