//! TLS in this process, and TLS of the kernel where it has any: what a peer may send and may not.

#![allow(clippy::unwrap_used)]

mod stream;

use std::{
    io::{self, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use haul_datapath::{
    Boundary, EngineError, EngineInfo, Remedy, SpanFile, TlsEnd, Wait, Wire, WireKind,
    engines::{self, ENGINES},
    fallback::{Receiver, Sender},
    tls::{ContentType, NewKeys, Opener, ReceiveEnd, Sealer, named_end},
};
use haul_sys::ktls::{self, Cipher, Direction, Key, Version};
use haul_testkit::{content, seed::Seed, skip::skip};
use stream::{BUFFERS, SocketBuffers, file_in, host, span, wires_for};

const KEY: [u8; 16] = [7; 16];
const IV: [u8; 12] = [3; 12];

/// A peer that seals what the test wants, and a receiver.
struct Peer {
    socket: TcpStream,
    sealer: Sealer,
    receiver: Receiver,
}

impl Peer {
    fn new(engine: &'static EngineInfo) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let opener = Opener::new(Cipher::Aes128Gcm, &KEY, IV, 0).unwrap();
        let end = TlsEnd::Receives(ReceiveEnd::new(far.into(), opener));
        let receiver =
            Receiver::open(vec![engine], Wire::Tls(Box::new(end)), &host(), BUFFERS).unwrap();
        let sealer = Sealer::new(Cipher::Aes128Gcm, &KEY, IV, 0).unwrap();
        Self { socket, sealer, receiver }
    }

    fn say(&mut self, content: ContentType, bytes: &[u8]) {
        let record = self.sealer.record(content, bytes).unwrap();
        self.socket.write_all(&record).unwrap();
    }

    fn hear(&mut self, bytes: usize) -> Result<Vec<u8>, EngineError> {
        let mut heard = vec![0; bytes];
        self.receiver.receive_bytes(&mut heard).map(|()| heard)
    }

    fn refused(&mut self, bytes: usize) -> io::Error {
        let error = self.hear(bytes).unwrap_err();
        assert_eq!(error.remedy, Remedy::Reconnect);
        error.source
    }
}

#[test]
fn records_of_any_length_are_one_stream_of_bytes() {
    for engine in over(WireKind::Tls, |info| info.open_receive.is_some()) {
        let mut peer = Peer::new(engine);
        assert_eq!(peer.receiver.has_come(), Some(false));
        for part in [&b"ab"[..], b"", b"c", b"", b"def"] {
            peer.say(ContentType::ApplicationData, part);
        }
        assert_eq!(peer.hear(4).unwrap(), b"abcd");
        assert_eq!(peer.receiver.has_come(), Some(true), "two bytes are left");
        assert_eq!(peer.hear(2).unwrap(), b"ef");
        peer.say(ContentType::ApplicationData, b"g");
        peer.say(ContentType::ApplicationData, b"h");
        assert_eq!(peer.hear(1).unwrap(), b"g");
        assert_eq!(peer.receiver.has_come(), Some(true), "a record is left");
        assert_eq!(peer.hear(1).unwrap(), b"h");
        assert_eq!(peer.receiver.has_come(), Some(false));
        // A record that comes byte by byte.
        let record = peer.sealer.record(ContentType::ApplicationData, b"slow").unwrap();
        let mut socket = peer.socket.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            for byte in record {
                socket.write_all(&[byte]).unwrap();
            }
        });
        assert_eq!(peer.hear(4).unwrap(), b"slow");
        sending.join().unwrap();
    }
}

#[test]
fn the_end_of_tls_and_of_the_connection_are_the_end_of_the_stream() {
    for engine in over(WireKind::Tls, |info| info.open_receive.is_some()) {
        let mut peer = Peer::new(engine);
        peer.say(ContentType::ApplicationData, b"last");
        peer.say(ContentType::Alert, &[1, 0]);
        assert_eq!(peer.hear(4).unwrap(), b"last");
        assert_eq!(peer.refused(1).kind(), io::ErrorKind::UnexpectedEof);
        let mut peer = Peer::new(engine);
        peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(peer.refused(1).kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn new_keys_alerts_and_what_is_no_record_end_a_stream_in_words() {
    for engine in over(WireKind::Tls, |info| info.open_receive.is_some()) {
        let refused = |content, bytes: &[u8]| {
            let mut peer = Peer::new(engine);
            peer.say(content, bytes);
            peer.refused(1).to_string()
        };
        let key_update = refused(ContentType::Handshake, &[24, 0, 0, 1, 0]);
        assert!(key_update.contains("wants new keys on this stream (KeyUpdate)"), "{key_update}");
        let alert = refused(ContentType::Alert, &[2, 40]);
        assert_eq!(alert, "the peer ended TLS with alert 40 (RFC 8446, 6.2)");
        assert_eq!(refused(ContentType::Alert, &[2]), "an alert of another length");
        let mut peer = Peer::new(engine);
        peer.say(ContentType::ApplicationData, b"ab");
        peer.say(ContentType::Alert, &[2, 40]);
        peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(peer.refused(30).to_string(), alert, "behind data, where there is room");
        let mut peer = Peer::new(engine);
        peer.socket.write_all(&[22, 3, 3, 0, 40]).unwrap();
        assert_eq!(peer.refused(1).to_string(), "what came is no record of TLS 1.3");
        let mut peer = Peer::new(engine);
        let mut record = peer.sealer.record(ContentType::ApplicationData, b"changed").unwrap();
        record[8] ^= 1;
        peer.socket.write_all(&record).unwrap();
        assert_eq!(peer.refused(1).to_string(), "a record was changed on its way");
    }
}

#[test]
fn records_without_data_do_not_keep_a_stream_busy_for_ever() {
    for engine in over(WireKind::Tls, |info| info.open_receive.is_some()) {
        let mut peer = Peer::new(engine);
        for _ in 0..65 {
            peer.say(ContentType::ApplicationData, b"");
        }
        peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(peer.refused(1).to_string(), "the peer sends empty records without end");
        let mut peer = Peer::new(engine);
        for _ in 0..3 {
            (0..64).for_each(|_| peer.say(ContentType::ApplicationData, b""));
            peer.say(ContentType::ApplicationData, b"a");
        }
        assert_eq!(peer.hear(3).unwrap(), b"aaa");
    }
}

/// Engines that may be above a kind of TLS.
fn over(wire: WireKind, can: fn(&EngineInfo) -> bool) -> Vec<&'static EngineInfo> {
    let able = ENGINES.iter().copied().filter(|info| info.wires.contains(&wire));
    able.filter(|info| can(info) && info.name != "discard").collect()
}

/// The engine, and what goes on where the file system has no O_DIRECT.
fn or_plainly(engine: &'static EngineInfo, wire: &Wire) -> Vec<&'static EngineInfo> {
    match wire {
        Wire::Tls(_) => vec![engine, &engines::tls::INFO],
        _ => vec![engine, &engines::read_write::INFO],
    }
}

/// Turns two sockets into the ends of kernel TLS by one key, as if a handshake were behind them.
fn kernel_ends(near: Wire, far: Wire) -> (Wire, Wire) {
    let (Wire::Tcp(near), Wire::Tcp(far)) = (near, far) else { panic!("two sockets") };
    let (version, cipher) = (Version::Tls13, Cipher::Aes128Gcm);
    let key = Key { version, cipher, key: &KEY, iv: &IV, sequence: 5 };
    ktls::attach(&near).and_then(|()| ktls::set_key(&near, Direction::Send, &key)).unwrap();
    ktls::attach(&far).and_then(|()| ktls::set_key(&far, Direction::Receive, &key)).unwrap();
    (Wire::KernelTls(near), Wire::KernelTls(far))
}

#[test]
fn every_engine_that_says_so_moves_files_over_the_kernels_tls() {
    if let Err(error) = ktls::check(Version::Tls13, Cipher::Aes128Gcm) {
        return skip("the kernel's tls", error.to_string());
    }
    every_engine_moves_files_over(WireKind::KernelTls, kernel_ends);
}

#[test]
fn every_engine_that_says_so_moves_files_over_tls_in_this_process() {
    every_engine_moves_files_over(WireKind::Tls, stream::tls_ends);
}

fn every_engine_moves_files_over(wire: WireKind, ends: fn(Wire, Wire) -> (Wire, Wire)) {
    let seed = Seed::from_env_or_random();
    let directory = std::env::temp_dir();
    let lens = [1, 40, 16_384, 16_385, 700_001, 3_000_000];
    let len_bytes: u64 = lens.iter().sum();
    let source = file_in(&directory);
    content::fill(&source, seed, len_bytes).unwrap();
    let source = Arc::new(SpanFile::new(source));
    let senders = over(wire, |info| info.open_send.is_some());
    assert!(senders.len() > 1);
    for sender in &senders {
        for receiver in over(wire, |info| info.open_receive.is_some()) {
            let (near, far) = stream::wires(SocketBuffers::Automatic);
            let (near, far) = ends(near, far);
            let target = Arc::new(SpanFile::new(file_in(&directory)));
            let (from, to, sends_with) = (source.clone(), target.clone(), *sender);
            let sending = std::thread::spawn(move || {
                let engines = or_plainly(sends_with, &near);
                let mut sender = Sender::open(engines, near, &host(), BUFFERS).unwrap();
                let mut at = 0;
                for (id, len) in lens.into_iter().enumerate() {
                    sender.send_bytes(b"head", Boundary::MoreFollows).unwrap();
                    sender.submit(&span(id as u64, &from, at, len), None, &mut Vec::new()).unwrap();
                    at += len;
                }
                sender.send_bytes(b"over", Boundary::Flush).unwrap();
                sender.reap(Wait::ForAll, &mut Vec::new()).unwrap();
                sender
            });
            let engines = or_plainly(receiver, &far);
            let mut receiver = Receiver::open(engines, far, &host(), BUFFERS).unwrap();
            let (mut at, mut words, mut done) = (0, [0; 4], Vec::new());
            for (id, len) in lens.into_iter().enumerate() {
                receiver.receive_bytes(&mut words).unwrap();
                assert_eq!(&words, b"head");
                receiver.submit(&span(id as u64, &to, at, len), None, &mut done).unwrap();
                at += len;
            }
            receiver.receive_bytes(&mut words).unwrap();
            receiver.reap(Wait::ForAll, &mut done).unwrap();
            assert_eq!((&words, done.len()), (b"over", lens.len()));
            let mut arrived = vec![0; len_bytes as usize];
            std::os::unix::fs::FileExt::read_exact_at(target.file(), &mut arrived, 0).unwrap();
            let names = (sends_with.name, receiver.info().name);
            assert!(arrived == content::bytes(seed, len_bytes as usize), "{names:?}");
            println!("{names:?}");
            drop(sending.join().unwrap());
        }
    }
}

#[test]
fn what_the_kernel_refuses_as_no_data_has_a_name() {
    if let Err(error) = ktls::check(Version::Tls13, Cipher::Aes128Gcm) {
        return skip("the kernel's tls", error.to_string());
    }
    for (content, bytes, expected) in [
        (ContentType::Handshake, &[24, 0, 0, 1, 0][..], &*NewKeys.to_string()),
        (ContentType::Alert, &[2, 40], "the peer ended TLS with alert 40 (RFC 8446, 6.2)"),
    ] {
        let receives = |info: &&&EngineInfo| info.open_receive.is_some();
        for engine in engines::ENGINES.iter().filter(receives) {
            if !engine.wires.contains(&WireKind::KernelTls) {
                continue;
            }
            let (near, far) = stream::wires(SocketBuffers::Automatic);
            let (Wire::Tcp(near), Wire::Tcp(far)) = (near, far) else { panic!("two sockets") };
            let key = Key {
                version: Version::Tls13,
                cipher: Cipher::Aes128Gcm,
                key: &KEY,
                iv: &IV,
                sequence: 0,
            };
            ktls::attach(&far)
                .and_then(|()| ktls::set_key(&far, Direction::Receive, &key))
                .unwrap();
            let mut sealer = Sealer::new(Cipher::Aes128Gcm, &KEY, IV, 0).unwrap();
            let record = sealer.record(content, bytes).unwrap();
            TcpStream::from(near).write_all(&record).unwrap();
            let socket = far.try_clone().unwrap();
            let far = Wire::KernelTls(far);
            let engines = or_plainly(engine, &far);
            let mut receiver = Receiver::open(engines, far, &host(), BUFFERS).unwrap();
            let target = Arc::new(SpanFile::new(file_in(&std::env::temp_dir())));
            let error = receiver.submit(&span(1, &target, 0, 9), None, &mut Vec::new());
            let error = named_end(error.unwrap_err(), &socket);
            assert_eq!(
                (error.remedy, error.source.to_string()),
                (Remedy::Reconnect, expected.into())
            );
        }
    }
}

#[test]
fn an_error_of_another_kind_keeps_its_name() {
    let (near, far) = stream::wires(SocketBuffers::Automatic);
    let (Wire::Tcp(_near), Wire::Tcp(far)) = (near, far) else { panic!("two sockets") };
    for number in [5, 104] {
        let source = io::Error::from_raw_os_error(number);
        let error = EngineError {
            engine: "read-write",
            call: "recv",
            span: None,
            offset_bytes: 0,
            moved_bytes: 0,
            remedy: Remedy::Reconnect,
            source,
        };
        assert_eq!(named_end(error, &far).source.raw_os_error(), Some(number));
    }
}

#[test]
fn an_end_that_goes_the_other_way_is_given_back() {
    let engine = || vec![&engines::tls::INFO];
    let (near, _, far, _) = wires_for(engine(), engine(), SocketBuffers::Automatic);
    let error = Receiver::open(engine(), near, &host(), BUFFERS).err().unwrap();
    assert!(matches!(&error.wire, Wire::Tls(end) if matches!(**end, TlsEnd::Sends(_))));
    let error = Sender::open(engine(), far, &host(), BUFFERS).err().unwrap();
    assert!(matches!(&error.wire, Wire::Tls(end) if matches!(**end, TlsEnd::Receives(_))));
    // An engine past the page cache finds it when it would use the wire, and uses no bare socket.
    let engine = || vec![&engines::direct::INFO];
    let (near, far) = stream::wires(SocketBuffers::Automatic);
    let (near, far) = stream::tls_ends(near, far);
    let mut sender = Sender::open(engine(), far, &host(), BUFFERS).unwrap();
    let error = sender.send_bytes(b"in the clear", Boundary::Flush).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput);
    let mut receiver = Receiver::open(engine(), near, &host(), BUFFERS).unwrap();
    let error = receiver.receive_bytes(&mut [0]).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput);
}
