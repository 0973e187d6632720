//! Options for the connections of a transfer: local ends, class, SciTags.

use crate::harness::{
    PATIENCE, Place, assert_same_files,
    process::Haul,
    server::{Server, ServerSetup},
};
use haul_emulator::namespace::Namespace;
use haul_sys::flow_label;
use haul_testkit::skip::skip;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, connect, recv, socket,
    socket_with, sockopt,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Streams take the local ends in turn, and the report adds them up.
#[test]
fn streams_come_from_the_addresses_that_are_named() {
    let place = Place::new();
    place.file(&place.source("large"), 64 << 20);
    let server = Server::start(&place);
    let push = |bind: &str, options: &[&str]| {
        let words = words!["push", place.source("large"), server.url("kept/"), "--bind", bind];
        let more: Vec<_> = options.iter().map(std::ffi::OsString::from).collect();
        place.run(&[words, more].concat())
    };
    let ran = push("127.0.0.2,127.0.0.3", &["--streams", "4", "--span-size", "1M"]);
    let ends = ran.ok()["local_ends"].as_array().unwrap().clone();
    let mut addresses: Vec<&str> =
        ends.iter().map(|end| end["address"].as_str().unwrap()).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["127.0.0.2", "127.0.0.3"]);
    assert!(ends.iter().all(|end| end["streams"] == 2), "{ends:?}");
    let bytes: u64 = ends.iter().map(|end| end["bytes"].as_u64().unwrap()).sum();
    assert!((64 << 20..80 << 20).contains(&bytes), "{ends:?}");
    assert_same_files(&place.source("large"), &place.root("kept/large"));

    // A file that is there already may be skipped before any stream is connected.
    let by_interface = push("lo", &["--on-conflict", "replace"]);
    assert_eq!(by_interface.ok()["local_ends"].as_array().unwrap().len(), 1);
    push("203.0.113.9", &[]).refused(&["from 203.0.113.9", "annot assign"]);
    push("haul-absent", &[]).refused(&["from haul-absent", "No such device"]);
    push("::1", &[]).refused(&["from ::1", "other family"]);
    let plain = place.run(&words!["push", place.source("large"), server.url("again/")]);
    assert_eq!(plain.ok()["local_ends"], Value::Null, "nobody has named one");
    let listed = place.run(&words!["ls", server.url("kept"), "--bind", "127.0.0.4"]);
    assert_eq!(listed.named("entry").len(), 1, "{listed:?}");
}

/// Class of established connections at a port, as ss(8) tells it.
fn classes(port: u16) -> Option<Vec<String>> {
    let ports = format!("( sport = :{port} or dport = :{port} )");
    let words = ["-tnHO", "--tos", "state", "established", &ports];
    let told = Command::new("ss").args(words).output().ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    let fields = text.split_whitespace().filter_map(|word| word.strip_prefix("tos:"));
    told.status.success().then(|| fields.map(str::to_owned).collect())
}

#[test]
fn both_sides_ask_for_the_class_that_each_is_given() {
    let place = Place::new();
    place.file(&place.source("large"), 24 << 20);
    let server = ServerSetup::new(&place).options(&["--dscp", "le"]).start(&place);
    let words = words!["push", place.source("large"), server.url(""), "--bwlimit", "6M"];
    let words = [words, words!["--span-size", "1M", "--dscp", "af11"]].concat();
    let push = place.start(&words);
    push.wait_for_bytes("bytes_durable", 1 << 20);
    let found = classes(server.address().port());
    push.finish().ok();
    let Some(found) = found.filter(|found| !found.is_empty()) else {
        return skip("ss(8) with --tos (iproute2)", "less");
    };
    // The field has the class in its upper six bits: 10 << 2, 1 << 2.
    let of = |class: &str| found.iter().filter(|one| *one == class).count();
    assert!(of("0x28") >= 2 && of("0x4") >= 2, "control and data, of both sides: {found:?}");
    assert_eq!(of("0x28") + of("0x4"), found.len(), "{found:?}");
}

/// The kernel, with one setting, lets a listener's connections send the label of their peer, which
/// `--reflect-flow-label` builds on; without it the server says what it needs.
#[test]
fn a_server_gives_flow_labels_back_where_the_kernel_lets_it() {
    let namespace = match Namespace::make("labels", "here") {
        Ok(namespace) => namespace,
        Err(why) => return skip("root and ip(8)", why),
    };
    let place = Place::new();
    let serve = || {
        let words = words!["serve", place.path("root"), "--listen", "[::1]:0", "--json"];
        let command = place.command(&[words, words!["--reflect-flow-label"]].concat());
        let process = Haul::start(namespace.wrap(&command));
        let line = process.wait_for("first line", |_| true);
        (process, line)
    };
    namespace.set("ipv6/flowlabel_consistency", "1").unwrap();
    let (_, refused) = serve();
    assert_eq!(refused["what"], "cannot give flow labels back", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("flowlabel_consistency=0"), "{refused}");
    namespace.set("ipv6/flowlabel_consistency", "0").unwrap();
    let (_server, line) = serve();
    let url: haul_transfer::HaulUrl = line["url"].as_str().unwrap().parse().unwrap();
    let given_back = namespace.within(|| {
        let near = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, url.port, 0, 0);
        let address = flow_label::with_label(&near, address, 0xabcde).unwrap();
        connect(&near, &address).unwrap();
        flow_label::note_labels(&near).unwrap();
        let socket = TcpStream::from(near);
        (&socket).write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = (&socket).read_to_end(&mut answer);
        assert!(!answer.is_empty());
        flow_label::of_peer(&socket).unwrap()
    });
    assert_eq!(given_back.unwrap(), 0xabcde);
}

/// Number of IPv6 among the protocols of packets (linux/if_ether.h).
const ETH_P_IPV6: u16 = 0x86dd;
const TCP: u8 = 6;

/// Head of a TCP segment of IPv6, as it went over a wire.
#[derive(Clone, Copy, Debug)]
struct Segment {
    class: u8,
    label: u32,
    ports: [u16; 2],
    bytes: u64,
    is_reset: bool,
}

impl Segment {
    /// Reads a packet (RFC 8200, 3); `None` for one of something else.
    fn read(packet: &[u8]) -> Option<Self> {
        let first = u32::from_be_bytes(*packet.first_chunk()?);
        let number = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        (first >> 28 == 6 && packet[6] == TCP).then_some(())?;
        Some(Self {
            class: u8::try_from(first >> 20 & 0xff).ok()?,
            label: first & 0xf_ffff,
            ports: [number(40)?, number(42)?],
            bytes: number(4)?.into(),
            is_reset: packet.get(53)? & RST != 0,
        })
    }
}

/// Hears every packet of IPv6 on the interfaces of a namespace (packet(7)).
fn listen_to_packets(namespace: &Namespace) -> OwnedFd {
    let listener = namespace.within(|| {
        let protocol = Protocol::from_raw(u32::from(ETH_P_IPV6.to_be()).try_into().unwrap());
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        let listener = socket_with(family, SocketType::DGRAM, flags, Some(protocol)).unwrap();
        sockopt::set_socket_recv_buffer_size_force(&listener, 32 << 20).unwrap();
        sockopt::set_socket_timeout(&listener, sockopt::Timeout::Recv, Some(QUIET)).unwrap();
        listener
    });
    listener.unwrap()
}

/// Silence after which a transfer is over that has begun.
const QUIET: Duration = Duration::from_secs(2);
/// Flag of a TCP header (RFC 9293, 3.1).
const RST: u8 = 4;

/// A transfer in a namespace, and each of its packets: none goes out without its class, and those
/// of a data stream have one label, which has the numbers of the experiment and the activity.
#[test]
fn each_packet_of_a_transfer_has_its_class_and_the_label_of_the_stream_that_fireflies_tell() {
    let namespace = match Namespace::make("labels", "wire") {
        Ok(namespace) => namespace,
        Err(why) => return skip("root and ip(8)", why),
    };
    let place = Place::new();
    place.file(&place.source("large"), 12 << 20);
    let setup = ServerSetup::new(&place).options(&["--dscp", "le"]).behind(&namespace.words());
    let server = setup.start_at(&place, "[::1]:0");
    let port = server.address().port();
    let collector = namespace.within(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let listener = listen_to_packets(&namespace);
    let hears = thread::spawn(move || {
        let (mut packet, mut segments) = ([0; 64], Vec::new());
        let begun = Instant::now();
        loop {
            // The head is enough; the rest of each packet is thrown away.
            match recv(&listener, &mut packet[..], RecvFlags::empty()) {
                Ok((len, _)) => segments.extend(Segment::read(&packet[..len])),
                Err(_) if segments.is_empty() && begun.elapsed() < PATIENCE => {}
                Err(_) => return segments,
            }
        }
    });
    let collected = collector.local_addr().unwrap().to_string();
    let words = words!["push", place.source("large"), server.url(""), "--dscp", "af11", "--json"];
    let marks = words!["--scitag", "2.14", "--firefly", collected, "--streams", "2"];
    let words = [words, marks, words!["--span-size", "1M", "--bwlimit", "12M"]].concat();
    Haul::start(namespace.wrap(&place.command(&words))).finish().ok();
    let told_of = |_| {
        let mut bytes = [0; 2048];
        let len = collector.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        let told: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        u16::try_from(told["flow-id"]["src-port"].as_u64().unwrap()).unwrap()
    };
    let told: BTreeSet<u16> = (0..4).map(told_of).collect();
    let segments = hears.join().unwrap();
    let of_client: Vec<&Segment> = segments.iter().filter(|one| one.ports[1] == port).collect();
    let of_server: Vec<&Segment> = segments.iter().filter(|one| one.ports[0] == port).collect();
    // The class has the upper six bits of the octet, and congestion the others (RFC 3168).
    // A host that has no socket any more answers with the class of what came (Linux,
    // tcp_v6_send_reset), as where one side closes while the other still speaks.
    let is_of = |one: &&Segment, class: u8| one.class >> 2 == class || one.is_reset;
    assert!(of_client.iter().all(|one| is_of(one, 10)), "af11: {of_client:?}");
    assert!(of_server.iter().all(|one| is_of(one, 1)), "le: {of_server:?}");
    let data = of_client.iter().filter(|one| told.contains(&one.ports[0]));
    let bytes: u64 = data.clone().map(|one| one.bytes).sum();
    assert!(bytes >= 12 << 20, "{bytes} bytes by the streams of {told:?}");
    let labels: BTreeSet<(u16, u32)> = data.map(|one| (one.ports[0], one.label)).collect();
    assert_eq!(labels.len(), 2, "a label for each stream: {labels:x?}");
    let expected = (0b0_1000_0000 << 9) | (14 << 2);
    assert!(labels.iter().all(|(_, label)| label & 0x3_fefc == expected), "{labels:x?}");
}

/// Flow labels of IPv6 that sockets of this host have taken (`/proc/net/ip6_flowlabel`).
fn labels() -> Vec<u32> {
    let text = fs::read_to_string("/proc/net/ip6_flowlabel").unwrap_or_default();
    let first = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    first.filter_map(|label| u32::from_str_radix(label, 16).ok()).collect()
}

#[test]
fn a_marked_transfer_is_told_and_its_packets_have_the_label() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("IPv6 on loopback", "none");
    }
    let place = Place::new();
    place.file(&place.source("large"), 24 << 20);
    let server = ServerSetup::new(&place).start_at(&place, "[::1]:0");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = collector.local_addr().unwrap().to_string();
    let words = words!["push", place.source("large"), server.url(""), "--bwlimit", "6M"];
    let marks = words!["--scitag", "2.14", "--firefly", address, "--streams", "2"];
    let push = place.start(&[words, marks, words!["--span-size", "1M"]].concat());
    push.wait_for_bytes("bytes_durable", 1 << 20);
    // The experiment's nine bits in reverse, then the activity's six; five others are by lot.
    let found = labels();
    let expected = (0b0_1000_0000 << 9) | (14 << 2);
    let marked = found.iter().filter(|label| **label & 0x3_fefc == expected).count();
    assert!(marked >= 1, "{found:x?}");
    push.finish().ok();
    let mut states = BTreeMap::new();
    let mut sent = 0;
    for _ in 0..4 {
        let mut bytes = [0; 2048];
        let len = collector.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        let told: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        assert_eq!(told["context"]["experiment-id"], 2);
        assert_eq!(
            (&told["flow-id"]["afi"], &told["flow-id"]["dst-ip"]),
            (&"ipv6".into(), &"::1".into())
        );
        assert_eq!(told["flow-id"]["dst-port"], server.address().port());
        sent += told["usage"]["sent"].as_u64().unwrap();
        *states.entry(told["flow-lifecycle"]["state"].as_str().unwrap().to_owned()).or_insert(0) +=
            1;
    }
    assert_eq!(states, BTreeMap::from([("end".to_owned(), 2), ("start".to_owned(), 2)]));
    assert!((24 << 20..30 << 20).contains(&sent), "{sent}");
    let words = words!["push", place.source("large"), server.url("x"), "--scitag", "1.1"];
    let unknown = words!["--firefly", "nobody.invalid"];
    place.run(&[words, unknown].concat()).refused(&["cannot tell of streams", "nobody.invalid"]);
}
