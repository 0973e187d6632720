//! The real `haul media` over TLS: clients that greet well, badly, slowly and not at all.

use crate::harness::{
    http::{Body, Client},
    media::{self, Media},
    studio::{self, Studio},
    wait_until,
};
use rustix::process::Signal;
use rustls::{
    ClientConfig, ContentType, HandshakeKind, KeyLog, ProtocolVersion, SupportedCipherSuite,
    Tls13CipherSuite,
    crypto::{
        cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage},
        tls13::OkmBlock,
    },
    version::{TLS12, TLS13},
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Connects without TLS.
fn plain(media: &Media) -> TcpStream {
    let socket = TcpStream::connect(media.address).unwrap();
    socket.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    socket
}

fn config(media: &Media) -> &Arc<ClientConfig> {
    media.tls.as_ref().unwrap()
}

#[test]
fn by_every_method_and_in_both_versions_a_file_and_its_parts_arrive() {
    let studio = Studio::new();
    let film = studio.film();
    for options in [
        &["--method", "one-copy"][..],
        &["--method", "normal"],
        &["--method", "direct", "--buffer-memory", "1M"],
        &["--method", "one-copy", "--no-readahead", "--loops", "1"],
    ] {
        let media = studio.start(options);
        for version in [&TLS12, &TLS13] {
            let config = studio.authority.client(version);
            let mut client = Client::connect_tls(media.address, &config);
            let whole = client.get("/film.mp4", "");
            assert_eq!((whole.status, whole.field("content-type")), (200, Some("video/mp4")));
            assert!(whole.body == film, "{options:?}");
            assert_eq!(client.tls().protocol_version(), Some(version.version));
            assert_eq!(client.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
            let part = client.get("/film.mp4", "Range: bytes=1000000-1999999\r\n");
            assert_eq!(part.field("content-range"), Some("bytes 1000000-1999999/3000000"));
            assert!(part.body == film[1_000_000..2_000_000]);
            let parts = client.get("/film.mp4", "Range: bytes=0-1,-2\r\n");
            assert_eq!(parts.status, 206);
            let holds = |some: &[u8]| parts.body.windows(2).any(|two| two == some);
            assert!(holds(&film[..2]) && holds(&film[2_999_998..]));
            let tag = whole.field("etag").unwrap();
            assert_eq!(client.get("/film.mp4", &format!("If-None-Match: {tag}\r\n")).status, 304);
            let last = client.get("/film.mp4", "Range: bytes=-1\r\nConnection: close\r\n");
            assert_eq!(last.body, film[2_999_999..]);
            assert!(client.has_ended(), "no word at the end");
        }
    }
}

#[test]
fn it_says_who_encrypts() {
    let studio = Studio::new();
    let said = |media: &Media| {
        media.haul.wait_for("start", |event| event["event"] == "listening")["tls"].clone()
    };
    let by = said(&studio.start(&[]));
    let kernel_does = fs::exists("/proc/net/tls_stat").unwrap();
    assert_eq!(by, if kernel_does { "kernel" } else { "rustls" });
    assert!(said(&Media::start(&studio.place, &[])).is_null());
}

#[test]
fn requests_one_behind_the_other_are_answered_in_order_whatever_their_records() {
    let studio = Studio::new();
    let film = studio.film();
    let media = studio.start(&["--loops", "1"]);
    let mut client = media.client();
    // More than the server reads of heads in advance, so that a part stays decrypted.
    const COUNT: usize = 2000;
    let mut requests = String::new();
    for number in 0..COUNT {
        let end = number + 9;
        requests.push_str(&format!(
            "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes={number}-{end}\r\n\r\n"
        ));
    }
    let body = "GET ".repeat(17_500);
    requests
        .push_str("POST /film.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n");
    requests.push_str(&body);
    requests.push_str("HEAD /film.mp4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(client.send(requests));
    for number in 0..COUNT {
        let answer = client.answer(Body::AsTold).expect("an answer");
        assert_eq!(answer.body, film[number..number + 10], "{number}");
    }
    assert_eq!(client.answer(Body::AsTold).unwrap().status, 405);
    let head = client.answer(Body::None).unwrap();
    assert_eq!((head.status, head.field("content-length")), (200, Some("3000000")));
    assert!(client.has_ended());
    // Old clients send blank lines before a request; these are more than is read at once.
    let mut client = media.client();
    assert!(client.send("\r\n".repeat(30_000)));
    assert_eq!(client.get("/film.mp4", "Range: bytes=7-8\r\n").body, film[7..9]);
    // Byte by byte, a record each.
    let mut client = media.client();
    for byte in b"GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=7-8\r\n\r\n" {
        assert!(client.send([*byte]));
    }
    // It says that it ends and is answered all the same.
    client.say_goodbye();
    assert_eq!(client.answer(Body::AsTold).unwrap().body, film[7..9]);
}

#[test]
fn a_client_that_comes_back_needs_no_new_signature() {
    let studio = Studio::new();
    let media = studio.start(&[]);
    for (version, name) in [(&TLS13, ProtocolVersion::TLSv1_3), (&TLS12, ProtocolVersion::TLSv1_2)]
    {
        let config = studio.authority.client(version);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = Client::connect_tls(media.address, &config);
            assert_eq!(client.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
            assert_eq!(client.tls().protocol_version(), Some(name));
            assert_eq!(client.tls().handshake_kind(), Some(kind));
        }
    }
}

/// New keys of a client, which the kernel's TLS cannot take (lab/kernel-tls), so there the
/// connection ends.
#[test]
fn new_keys_are_taken_or_the_connection_ends() {
    let studio = Studio::new();
    let media = studio.start(&[]);
    let mut client = media.client();
    for _ in 0..3 {
        assert!(client.get("/film.mp4", "").body == studio.film());
        client.change_keys();
        client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=5-6\r\n\r\n");
        match client.answer(Body::AsTold) {
            Some(answer) => assert_eq!(answer.body, studio.film()[5..7]),
            None => client = media.client(),
        }
    }
    media.assert_serves();
}

/// Records of a client that is no library.
#[derive(Clone, Copy)]
enum Says<'bytes> {
    Data(&'bytes [u8]),
    /// KeyUpdate that asks for no new keys of the server (RFC 8446, 4.6.3).
    NewKeys,
}

const KEY_UPDATE: &[u8] = &[24, 0, 0, 1, 0];

/// The secrets of a client, as it tells them to its log.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<u8>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

/// Expands a secret by HKDF-Expand-Label without a context (RFC 8446, 7.1).
fn expand(suite: &Tls13CipherSuite, secret: &[u8], label: &str, len_bytes: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let mut info = vec![0, len_bytes as u8, label.len() as u8];
    info.extend(label.as_bytes());
    info.push(0);
    let mut bytes = vec![0; len_bytes];
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    expander.expand_slice(&[&info], &mut bytes).unwrap();
    bytes
}

fn encrypter(suite: &Tls13CipherSuite, secret: &[u8]) -> Box<dyn MessageEncrypter> {
    let key: [u8; 32] = expand(suite, secret, "key", 32).try_into().unwrap();
    let iv: [u8; 12] = expand(suite, secret, "iv", 12).try_into().unwrap();
    suite.aead_alg.encrypter(key.into(), iv.into())
}

/// Encrypts all that is said, a record each.
fn records(suite: &Tls13CipherSuite, secret: &[u8], all: &[Says<'_>]) -> Vec<u8> {
    assert_eq!(suite.aead_alg.key_len(), 32, "AES-256 or ChaCha20 is chosen first");
    let (mut secret, mut sequence) = (secret.to_vec(), 0);
    let mut own = encrypter(suite, &secret);
    let mut bytes = Vec::new();
    for says in all {
        let (typ, payload) = match says {
            Says::Data(payload) => (ContentType::ApplicationData, *payload),
            Says::NewKeys => (ContentType::Handshake, KEY_UPDATE),
        };
        let payload = OutboundChunks::Single(payload);
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_3, payload };
        bytes.extend(own.encrypt(plain, sequence).unwrap().encode());
        sequence += 1;
        if matches!(says, Says::NewKeys) {
            secret = expand(suite, &secret, "traffic upd", secret.len());
            (sequence, own) = (0, encrypter(suite, &secret));
        }
    }
    bytes
}

/// Says all these over a connection whose handshake is done.
fn say(media: &Media, config: &ClientConfig, all: &[Says<'_>]) -> TcpStream {
    let (mut config, secrets) = (config.clone(), Arc::<Secrets>::default());
    config.key_log = secrets.clone();
    let name = rustls::pki_types::ServerName::from(media.address.ip());
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = plain(media);
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut socket).unwrap();
    }
    let Some(SupportedCipherSuite::Tls13(suite)) = tls.negotiated_cipher_suite() else {
        panic!("no TLS 1.3");
    };
    let bytes = records(suite, &secrets.0.lock().unwrap(), all);
    // It may be closed before all of it is said.
    let _ = socket.write_all(&bytes);
    socket
}

/// Empty records and new keys without end: rustls takes 32 of each in a row, and each begins the
/// count of the other anew, so that nobody else was served.
#[test]
fn a_client_that_says_nothing_in_many_records_is_cut_off() {
    let studio = Studio::new();
    let media = studio.start(&["--loops", "1"]);
    let config = studio.client();
    let request = b"GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // A few are no harm.
    let mut few = vec![Says::Data(b""); 60];
    few[30] = Says::Data(request);
    let mut socket = say(&media, &config, &few);
    socket.read_exact(&mut vec![0; studio.film().len()]).unwrap();
    // 1 MB of them.
    let mut socket = say(&media, &config, &[Says::NewKeys, Says::Data(b"")].repeat(20_000));
    // An idle client's time is longer.
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let ended = socket.read_to_end(&mut Vec::new());
    assert!(
        ended.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::ConnectionReset),
        "{ended:?}"
    );
    media.assert_serves();
}

/// A film of 2.5 MB at 500 kB a second: 1.5 MB are there at once, and each period has a second. The
/// last record was counted as missing. It counted the last record as missing.
#[test]
fn a_stream_comes_period_by_period_and_its_overhead_is_no_miss() {
    let studio = Studio::new();
    studio.place.file(&studio.place.root("short.mp4"), 2_500_000);
    for version in [&TLS12, &TLS13] {
        let media = studio.start(&["--period", "1s", "--start-up", "2s"]);
        let config = studio.authority.client(version);
        let mut client = Client::connect_tls(media.address, &config);
        // What went before over this connection counts for nothing.
        assert_eq!(client.get("/film.mp4", "").body.len(), 3_000_000);
        let begun = Instant::now();
        let answer = client.get("/short.mp4?rate=4M", "");
        assert!(answer.body == fs::read(studio.place.root("short.mp4")).unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(1900), "{:?}", begun.elapsed());
        let ran = media.end();
        let ended = ran.named("ended")[0];
        assert!(ended["periods"].as_u64().unwrap() >= 1, "{ran:?}");
        assert_eq!((&ended["misses"], &ended["held_back"]), (&0.into(), &0.into()), "{ran:?}");
    }
}

/// A client that pauses: its stream was paused in the middle of a record.
#[test]
fn a_client_that_pauses_gets_all_of_it() {
    let studio = Studio::new();
    studio.place.file(&studio.place.root("long.mp4"), 40 << 20);
    let media = studio.start(&["--period", "200ms", "--start-up", "200ms"]);
    for target in ["/long.mp4?rate=160M", "/long.mp4"] {
        let mut client = media.client();
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        thread::sleep(Duration::from_secs(1));
        let answer = client.answer(Body::AsTold).unwrap();
        assert!(answer.body == fs::read(studio.place.root("long.mp4")).unwrap());
        assert!(client.has_ended());
    }
    let ran = media.end();
    assert!(ran.named("ended")[0]["held_back"].as_u64().unwrap() >= 1, "{ran:?}");
}

/// The first bytes of a greeting, as rustls says it.
fn greeting(config: &Arc<ClientConfig>, address: SocketAddr) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::from(address.ip());
    let mut tls = rustls::ClientConnection::new(config.clone(), name).unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn greetings_that_come_slowly_or_not_at_all_are_cut_off_and_others_are_served() {
    let studio = Studio::new();
    let media = studio.start(&["--head-time", "1s", "--idle-time", "2s"]);
    let hello = greeting(config(&media), media.address);
    let mut slow: Vec<TcpStream> = (0..100).map(|_| plain(&media)).collect();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| plain(&media)).collect();
    // They greet whole and never answer the server.
    let mut half: Vec<TcpStream> = (0..100).map(|_| plain(&media)).collect();
    for socket in &mut half {
        socket.write_all(&hello).unwrap();
    }
    // They stand, and then a head comes slowly.
    let mut heads: Vec<Client> = (0..50).map(|_| media.client()).collect();
    let begun = Instant::now();
    let mut at = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        for socket in &mut slow {
            let _ = socket.write_all(&hello[at..=at]);
        }
        for client in &mut heads {
            client.send("G");
        }
        at += 1;
        media.assert_serves();
        thread::sleep(Duration::from_millis(200));
    }
    for socket in slow.iter_mut().chain(&mut silent) {
        assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    }
    for socket in &mut half {
        let mut flight = Vec::new();
        let _ = socket.read_to_end(&mut flight);
        assert_eq!(flight.first(), Some(&22), "no flight of the handshake");
    }
    for client in &mut heads {
        assert!(
            client.answer(Body::AsTold).is_none_or(|answer| matches!(answer.status, 400 | 408))
        );
    }
    media.assert_serves();
}

#[test]
fn what_is_no_tls_is_told_so_and_nothing_hangs() {
    let studio = Studio::new();
    let media = studio.start(&[]);
    let alert = |bytes: &[u8]| {
        let mut socket = plain(&media);
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    };
    let mut long = b"GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n".to_vec();
    long.extend(b"A: b\r\n".repeat(20_000));
    // Some is not read before the socket closes, and what was sent may be lost then.
    let answer = alert(&long);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    assert_eq!(alert(&[0xff; 100])[0], 21);
    // As nginx does, in words for whoever typed http://.
    for plain in ["GET / HTTP/1.0\r\n\r\n", "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let answer = String::from_utf8(alert(plain.as_bytes())).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 ") && head.ends_with("close"), "{answer}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
        assert!(body.contains("https://"), "{answer}");
    }
    let mut hello = greeting(config(&media), media.address);
    hello[5] ^= 0xff;
    assert_eq!(alert(&hello)[0], 21);
    // Parts of a handshake message that has no end.
    let mut socket = plain(&media);
    let mut endless = vec![22, 3, 1, 0x40, 0];
    endless.extend([1, 0, 0xff, 0xf0]);
    endless.resize(5 + 0x4000, 0);
    while socket.write_all(&endless).is_ok() {}
    // Old versions.
    let old =
        [&[22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1][..], &[7; 32], &[0, 0, 2, 0, 47, 1, 0]].concat();
    assert_eq!(alert(&old)[0], 21);
    media.assert_serves();
}

#[test]
fn a_client_that_takes_nothing_is_left_and_one_that_goes_away_costs_nothing() {
    let studio = Studio::new();
    studio.place.file(&studio.place.root("long.mp4"), 40 << 20);
    let media = studio.start(&["--stall-time", "1s", "--head-time", "5s"]);
    media.assert_serves();
    wait_until("idle", || media.open_files() < 40);
    let before = media.open_files();
    let mut stalled: Vec<Client> = (0..50).map(|_| media.client()).collect();
    for client in &mut stalled {
        for _ in 0..5 {
            client.send("GET /long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
    }
    let hello = greeting(config(&media), media.address);
    for number in 0..200 {
        let mut client = media.client();
        client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut cut = plain(&media);
        cut.write_all(&hello[..hello.len() * number / 200]).unwrap();
    }
    media.assert_serves();
    wait_until("left", || media.open_files() <= before);
}

#[test]
fn a_file_that_gets_shorter_is_seen_as_a_cut() {
    let studio = Studio::new();
    let path = studio.place.root("shrinking.mp4");
    studio.place.file(&path, 64 << 20);
    for method in ["one-copy", "direct", "normal"] {
        let media = studio.start(&["--method", method]);
        let mut client = media.client();
        client.send("GET /shrinking.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        thread::sleep(Duration::from_millis(300));
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(client.answer(Body::AsTold), None);
        assert!(!client.has_ended());
        media.assert_serves();
        file.set_len(64 << 20).unwrap();
    }
}

fn certificate_of(client: &Client) -> Vec<u8> {
    client.tls().peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn sighup_takes_a_new_certificate_and_keeps_the_old_one_for_a_broken() {
    let studio = Studio::new();
    let log = studio.place.path("access.log");
    let media = studio.start(&["--access-log", log.to_str().unwrap()]);
    let ask = || {
        let mut client = Client::connect_tls(media.address, &studio.authority.client(&TLS13));
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
        client
    };
    let mut first = ask();
    let old = certificate_of(&first);
    studio.renew();
    media.signal(Signal::HUP);
    wait_until("renewed", || certificate_of(&ask()) != old);
    // Who was there goes on.
    assert_eq!(first.get("/film.mp4", "").body.len(), 3_000_000);
    let new = certificate_of(&ask());
    fs::write(studio.place.path("key.pem"), "nothing").unwrap();
    fs::rename(&log, studio.place.path("access.log.1")).unwrap();
    media.signal(Signal::HUP);
    wait_until("heard", || log.exists());
    assert_eq!(certificate_of(&ask()), new);
    // Whoever waits for a request hears that the server ends.
    media.signal(Signal::TERM);
    assert!(first.has_ended());
    let ran = media.haul.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("stays in use") && ran.err.contains("key.pem"), "{ran:?}");
}

#[test]
fn a_pair_may_lie_in_one_file_and_what_makes_no_pair_is_refused_in_words() {
    let studio = Studio::new();
    let place = &studio.place;
    let (chain, key) = studio.authority.certify();
    fs::write(place.path("both.pem"), format!("{key}{chain}")).unwrap();
    studio.start_with(&["--tls-cert", "both.pem"]).assert_serves();

    let (other_chain, _) = studio.authority.certify();
    fs::write(place.path("chain.pem"), other_chain).unwrap();
    fs::write(place.path("secret.pem"), key.replace("PRIVATE", "ENCRYPTED PRIVATE")).unwrap();
    fs::write(place.path("damaged.pem"), chain.replace("\n-----END", "!\n-----END")).unwrap();
    for (words, expected) in [
        (&["--tls-cert", "missing.pem"][..], &["missing.pem", "No such file"][..]),
        (&["--tls-cert", "key.pem"], &["key.pem", "no certificate", "fullchain.pem"]),
        (&["--tls-cert", "cert.pem"], &["cert.pem", "no private key", "--tls-key"]),
        (&["--tls-cert", "chain.pem", "--tls-key", "key.pem"], &["not that of", "chain.pem"]),
        (&["--tls-cert", "cert.pem", "--tls-key", "secret.pem"], &["encrypted", "openssl pkey"]),
        (&["--tls-cert", "damaged.pem", "--tls-key", "key.pem"], &["damaged.pem is damaged"]),
        (&["--tls-key", "key.pem"], &["--tls-cert"]),
    ] {
        let ran = place.run(&media::words(&studio.place, words));
        assert_eq!(ran.status, 2, "{ran:?}");
        for part in expected {
            assert!(format!("{ran:?}").contains(part), "{part}: {ran:?}");
        }
    }
}

#[test]
fn curl_is_served() {
    let studio = Studio::new();
    if Command::new("curl").arg("--version").output().is_err() {
        return haul_testkit::skip::skip("curl", "none");
    }
    fs::write(
        studio.place.path("authority.pem"),
        studio::pem("CERTIFICATE", &studio.authority.certificate),
    )
    .unwrap();
    let media = studio.start(&[]);
    for options in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
            .arg(studio.place.path("authority.pem"))
            .args(options)
            .arg(format!("https://{}/film.mp4", media.address))
            .output()
            .unwrap();
        assert!(output.stdout == studio.film(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
