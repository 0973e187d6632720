//! Peers that take much for little: connections, files, directories and space they never use.
//!
//! Others are served meanwhile, and memory, descriptors, disk and log stay bounded.

use crate::harness::{
    PATIENCE, Place, assert_no_temporaries,
    frames::{Frame, SPAN_BYTES, connect_from, header, open_stream},
    peer::{FakeServer, Peer, offer},
    server::{IDLE_THREADS, Server, ServerSetup},
};
use haul_protocol::{
    FileId, Message,
    frame::PayloadStatus,
    message::{self, Digest, Direction, FileKind, FileOffer},
};
use haul_testkit::skip::skip;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Most memory that a server may take, whatever peers do.
const MEMORY_BYTES_MAX: u64 = 128 << 20;
const CONNECTIONS: u64 = 10_000;
/// Number of threads that open the connections.
const CONNECTORS: u64 = 16;
/// Most threads of a server: twice the strangers' places, as those who made room may take a moment
/// to end, the server's own threads, and one that has been joined and is still listed.
const THREADS_MAX: u64 = 2 * 64 + IDLE_THREADS + 1;
/// Half a greeting, a length and no more: the start of a TLS ClientHello of 512 bytes.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

/// Raises the limit of files that this process may have open; `None` if it stays below `wanted`.
fn raise_open_files(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (most >= wanted).then_some(most)
}

/// The nth of many addresses of this host's loopback network.
fn address(number: u64) -> [u8; 4] {
    [127, 0, 10, 1 + (number % 100) as u8]
}

/// Most lines of a flood in this time: 264 in ten seconds.
fn lines_max(took: Duration) -> usize {
    (took.as_secs() as usize / 10 + 2) * 264
}

fn lines(server: &Server, event: &str) -> usize {
    server.process.events().iter().filter(|line| line["event"] == event).count()
}

#[test]
fn ten_thousand_idle_connections_keep_nobody_out_and_cost_little() {
    let place = Place::new();
    if raise_open_files(CONNECTIONS + 500).is_none() {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(0);
        return skip("10,500 open files (ulimit -Hn)", most.to_string());
    }
    let server = Server::start(&place);
    place.file(&place.source("data"), 4 << 20);
    let (threads, begun, to) = (AtomicU64::new(0), Instant::now(), server.address());
    let connect = |first: u64| {
        let numbers = (first..CONNECTIONS).step_by(CONNECTORS as usize);
        let one = |number: u64| {
            let mut socket = connect_from(address(number), to);
            // A third says nothing, a third begins and stops, a third says what nobody knows.
            match number % 3 {
                0 => {}
                1 => drop(socket.write_all(HALF_HELLO)),
                _ => drop(socket.write_all(b"\0")),
            }
            if number.is_multiple_of(100) {
                threads.fetch_max(server.threads(), Ordering::Relaxed);
            }
            socket
        };
        numbers.map(one).collect::<Vec<_>>()
    };
    let idle = thread::scope(|scope| {
        let of = |first| scope.spawn(move || connect(first));
        let all: Vec<_> = (0..CONNECTORS).map(of).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let threads = threads.into_inner();
    place.push(&words![place.source("data"), server.url("")]).ok();
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
    assert!(threads <= THREADS_MAX, "{threads} threads");
    // Every one that had to go is counted, and few lines tell of them.
    server.wait_for_refusals(CONNECTIONS - 100);
    let told = lines(&server, "refused");
    let took = begun.elapsed();
    assert!(told < lines_max(took), "{told} lines in {took:?}");
    println!("{} MiB, {threads} threads, {told} lines in {took:?}", memory >> 20);
    drop(idle);
}

/// Connections in a flood, faster than anybody can show who he is, for as long as others work.
#[test]
fn a_flood_of_connections_keeps_no_transfer_out() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 1 << 20);
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let to = server.address();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = std::collections::VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                let number = made.fetch_add(1, Ordering::Relaxed);
                open.push_back(connect_from(address(number), to));
                if open.len() > 200 {
                    open.pop_front();
                }
                // One that floods without a pause is a matter for the network's own means.
                thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            server.still_serves(&place);
            place.push(&words![place.source("data"), server.url("new/")]).ok();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (memory, threads) = (server.memory_bytes(), server.threads());
    assert!(memory <= MEMORY_BYTES_MAX && threads <= THREADS_MAX, "{memory} B, {threads} threads");
    println!("{} connections came meanwhile", made.load(Ordering::Relaxed));
}

#[test]
fn a_flood_from_one_peer_is_a_few_lines_and_another_is_still_named() {
    let place = Place::new();
    let server = Server::start(&place);
    let begun = Instant::now();
    let from = |from, bytes: &[u8]| {
        let mut socket = connect_from(from, server.address());
        let _ = socket.write_all(bytes);
        crate::harness::frames::hear_close(&socket);
    };
    for _ in 0..2000 {
        from([127, 0, 20, 1], b"\0");
    }
    from([127, 0, 20, 2], b"\x01");
    let named = |line: &serde_json::Value| {
        line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.20.2:"))
    };
    server.process.wait_for("the other's line", named);
    server.wait_for_refusals(2001);
    // At most 17 lines in ten seconds, and those of the other.
    let (told, took) = (lines(&server, "refused"), begun.elapsed());
    assert!(told <= (took.as_secs() as usize / 10 + 2) * 17 + 1, "{told} lines in {took:?}");
    let events = server.process.events();
    let more = events.iter().find(|line| line["times"].as_u64() > Some(1)).unwrap();
    assert_eq!(more["peer"], "127.0.20.1", "{more}");
}

fn crc(server: &Server) -> message::Open {
    message::Open { span_bytes: SPAN_BYTES, ..Peer::asks(server, Direction::Push, b"") }
}

/// A client that sends `count` small files and confirms none of them; it holds what it may.
fn hold_small_files(server: &Server, name: &str, count: u32) -> (Peer, TcpStream) {
    let (mut peer, session) = Peer::with_session_of(server, crc(server));
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let mut frames = Vec::new();
    for file in 0..count {
        let name = format!("{name}-{file}");
        let regular = offer(file, name.as_bytes(), FileKind::Regular);
        peer.say(Message::FileOffer(FileOffer { size_bytes: 1, ..regular }));
        let header = header(0, file.into(), file, 0, 1);
        let frame = Frame::new(&keys, Digest::Crc32c, header, b"x", PayloadStatus::Whole);
        frames.extend(frame.encode());
    }
    peer.sync().unwrap();
    let mut stream = open_stream(server.address(), &keys, session, 0);
    stream.write_all(&frames).unwrap();
    (peer, stream)
}

/// A client that never confirmed its files, and held all that the process may have open.
#[test]
fn clients_that_confirm_no_file_leave_the_others_their_share() {
    let place = Place::new();
    let server = Server::start_with_few_descriptors(&place, 256);
    let parts = || crate::harness::temporaries(&place.path("root")).len();
    let holders: Vec<_> = (0..3)
        .map(|number| {
            let before = parts();
            let held = hold_small_files(&server, &format!("held{number}"), 200);
            let deadline = Instant::now() + PATIENCE;
            // What it may have open, it has: half, a quarter, an eighth of 64.
            while parts() < before + [32, 16, 8][number] {
                assert!(Instant::now() < deadline, "{} held", parts().saturating_sub(before));
                thread::sleep(Duration::from_millis(10));
            }
            held
        })
        .collect();
    for file in 0..60 {
        place.file(&place.source("tree").join(format!("f{file}")), 1000);
    }
    place.push(&words![place.source("tree"), server.url("")]).ok();
    crate::harness::assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert!(parts() <= 64, "{} held", parts());
    drop(holders);
    // And that of the push.
    server.wait_for_sessions(4);
    assert_no_temporaries(&place.path("root"));
    server.still_serves(&place);
}

/// Sessions that each keep as many large files open as they may.
#[test]
fn clients_that_keep_large_files_open_leave_the_others_descriptors() {
    let place = Place::new();
    let server = Server::start_with_few_descriptors(&place, 256);
    let mut holders = Vec::new();
    for number in 0..6 {
        let (mut peer, _) = Peer::with_session_of(&server, crc(&server));
        for file in 0..64 {
            let name = format!("held{number}-{file}");
            let regular = offer(file, name.as_bytes(), FileKind::Regular);
            peer.say(Message::FileOffer(FileOffer { size_bytes: 2 * SPAN_BYTES, ..regular }));
        }
        peer.sync().unwrap();
        holders.push(peer);
    }
    place.file(&place.source("data"), 1 << 20);
    place.push(&words![place.source("data"), server.url(""), "--span-size", "64K"]).ok();
    server.still_serves(&place);
}

/// Directories of a request, which were opened all at once.
#[test]
fn a_pull_of_hundreds_of_directories_opens_a_few_at_a_time() {
    let place = Place::new();
    for number in 0..60 {
        place.file(&place.root(format!("d{number}")).join("f"), 1000);
    }
    let server = Server::start_with_few_descriptors(&place, 256);
    let hold = |_| {
        let paths = vec![b"d7".to_vec(); 1000];
        let open = message::Open { paths, ..Peer::asks(&server, Direction::Pull, b"") };
        let (mut peer, _) = Peer::with_session_of(&server, open);
        let offered = |message: &Message| matches!(message, Message::FileOffer(_)).then_some(());
        peer.hear(offered).unwrap();
        peer.sync().unwrap();
        peer
    };
    let holders: Vec<_> = (0..3).map(hold).collect();
    let urls: Vec<_> = (0..60).map(|number| server.url(format!("d{number}"))).collect();
    place.pull(&[urls, words![place.target("")]].concat()).ok();
    crate::harness::assert_same_trees(&place.path("target"), &place.path("root"));
    server.still_serves(&place);
    drop(holders);
}

/// Space that is taken for a file before its first byte.
#[test]
fn space_for_files_that_never_come_is_given_back_when_their_session_ends() {
    const FILE_BYTES: u64 = 64 << 20;
    let place = Place::new();
    let server = Server::start(&place);
    let (mut peer, _) = Peer::with_session_of(&server, crc(&server));
    for file in 0..3 {
        let name = format!("never{file}");
        let regular = offer(file, name.as_bytes(), FileKind::Regular);
        peer.say(Message::FileOffer(FileOffer { size_bytes: FILE_BYTES, ..regular }));
    }
    peer.sync().unwrap();
    let taken = |name: &str| fs::metadata(place.root(name)).unwrap().blocks() * 512;
    assert!(taken(".never0.haul-part") >= FILE_BYTES, "the space is taken");
    drop(peer);
    server.wait_for_sessions(1);
    assert!(haul_testkit::tree::names(&place.path("root")).unwrap().is_empty());
    server.still_serves(&place);
}

/// A directory that is there already takes nothing but the note that its time is to be set.
#[test]
fn a_client_whose_offers_never_end_takes_little_memory() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    let server = ServerSetup::new(&place).unread().start(&place);
    let (mut peer, _) = Peer::with_session(&server, Direction::Push);
    for file in 0..700_000 {
        peer.say(Message::FileOffer(offer(file, b"d", FileKind::Directory)));
        if file.is_multiple_of(500) {
            peer.sync().unwrap();
        }
    }
    peer.sync().unwrap();
    server.still_serves(&place);
    let memory = server.memory_bytes();
    println!("{} KiB", memory >> 10);
    assert!(memory <= 72 << 20, "{memory} bytes of memory");
}

/// Offers without end from a server: the client takes what comes in little memory until its user
/// ends it.
#[test]
fn a_server_whose_offers_never_end_takes_little_memory_of_a_pull() {
    let place = Place::new();
    let fake = FakeServer::start(&place.path("fake"), |mut peer| {
        if peer.let_in().is_err() {
            return;
        }
        assert_eq!(peer.offer(offer(0, b"data", FileKind::Directory)).unwrap(), None);
        for number in 1.. {
            peer.say(Message::FileOffer(offer(number, b"data", FileKind::Directory)));
            if number.is_multiple_of(16) && peer.sync().is_err() {
                return;
            }
        }
    });
    let mut running = place.start(&words!["pull", fake.url("data"), place.target("")]);
    let skipped = |events: &[serde_json::Value]| {
        events.iter().filter(|line| line["status"] == "skipped").count()
    };
    let deadline = Instant::now() + PATIENCE;
    while skipped(&running.events()) < 20_000 {
        assert!(running.is_running() && Instant::now() < deadline, "{:?}", running.events().last());
        thread::sleep(Duration::from_millis(20));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib <= 64 << 10, "{kib} KiB of memory");
    running.signal(rustix::process::Signal::INT);
    assert!(running.finish().status != 0);
    let made = haul_testkit::tree::names(&place.path("target")).unwrap();
    // An empty directory that is hidden until its end is of no use to another run.
    assert!(made.is_empty(), "{made:?}");
}

/// Bytes in front of any payload: long headers, many headers, many streams.
#[test]
fn packs_of_the_smallest_files_and_headers_without_payload_cost_a_server_little() {
    let place = Place::new();
    let server = Server::start(&place);
    let (mut peer, session) = Peer::with_session_of(&server, crc(&server));
    let keys = Arc::new(peer.control.session_keys(&session).unwrap());
    let regular = offer(0, b"victim", FileKind::Regular);
    peer.say(Message::FileOffer(FileOffer { size_bytes: 1, ..regular }));
    peer.sync().unwrap();
    // The file is settled: a million spans of it are read and thrown away.
    let fault = Some(message::Fault::default());
    peer.say(Message::FileConfirm(message::FileConfirm { file: FileId(0), fault }));
    peer.sync().unwrap();
    let mut stream = open_stream(server.address(), &keys, session, 0);
    for sequence in 0..200_000 {
        let frame = Frame {
            header: header(0, sequence, 0, 0, 1),
            payload: vec![0],
            trailer: [0; haul_protocol::frame::TRAILER_BYTES],
        };
        stream.write_all(&frame.encode()).unwrap();
    }
    peer.sync().unwrap();
    server.still_serves(&place);
    let memory = server.memory_bytes();
    assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes of memory");
    assert!(!place.root("victim").exists());
    drop(stream);
    let to: SocketAddr = server.address();
    assert!(TcpStream::connect(to).is_ok());
}
