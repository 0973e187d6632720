//! Transfers by way of a proxy: SOCKS5 and HTTP, with their logins, refusals and bad days.

use crate::harness::{
    PATIENCE, Place, assert_same_files,
    process::{Haul, Ran},
    server::Server,
    sshd::{HOST, Network, Sshd, SshdSetup, there},
};
use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// A name that only the proxies of these tests know.
const NAME: &str = "server.invalid";

/// A proxy of SOCKS5 and HTTP with the user `ann` and the password `secret`, for one server.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    /// Hosts that it was asked for.
    asked: Mutex<Vec<String>>,
    open: Mutex<Vec<TcpStream>>,
    /// An answer in the place of its own.
    answer: Mutex<Option<Vec<u8>>>,
}

impl Proxy {
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, open, answer) = Default::default();
        let shared = Arc::new(Shared { server, asked, open, answer });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (shared, near) = (of_thread.clone(), near.unwrap());
                // A client that went away ends its thread.
                thread::spawn(move || shared.serve(near));
            }
        });
        Self { address, shared }
    }

    pub fn word(&self, scheme: &str) -> String {
        format!("{scheme}://ann:secret@{}", self.address)
    }

    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Cuts all connections.
    fn cut(&self) {
        for socket in self.shared.open.lock().unwrap().drain(..) {
            // An error says that it is cut already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn answers(&self, bytes: &[u8]) {
        *self.shared.answer.lock().unwrap() = Some(bytes.to_vec());
    }
}

impl Shared {
    fn serve(&self, mut near: TcpStream) -> Option<()> {
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = self.answer.lock().unwrap().clone();
        if let Some(answer) = answer {
            let _ = near.read(&mut [0; 1024]);
            near.write_all(&answer).ok()?;
            // It never ends, and says no more.
            return near.read(&mut [0; 1024]).ok().map(drop);
        }
        let mut first = [0];
        near.read_exact(&mut first).ok()?;
        let (asked, begun) =
            if first == [5] { self.socks(&mut near)? } else { self.http(&mut near, first)? };
        self.asked.lock().unwrap().push(asked);
        let far = TcpStream::connect(self.server).ok()?;
        near.write_all(&begun).ok()?;
        let clone = |socket: &TcpStream| socket.try_clone().unwrap();
        self.open.lock().unwrap().extend([clone(&near), clone(&far)]);
        near.set_read_timeout(None).unwrap();
        let (from, to) = (clone(&near), clone(&far));
        thread::spawn(move || pass(from, to));
        pass(far, near);
        Some(())
    }

    fn socks(&self, near: &mut TcpStream) -> Option<(String, Vec<u8>)> {
        assert_eq!(read(near, 3)?, [2, 0, 2]);
        near.write_all(&[5, 2]).ok()?;
        let login = b"\x01\x03ann\x06secret";
        let is_known = read(near, login.len())? == login;
        near.write_all(&[1, u8::from(!is_known)]).ok()?;
        let kind = *read(near, 4)?.last()?;
        let host = match kind {
            3 => {
                let len = read(near, 1)?[0];
                String::from_utf8(read(near, len.into())?).ok()?
            }
            _ => "address".to_owned(),
        };
        read(near, if kind == 3 { 2 } else { 6 })?;
        // Its address is a name, and the answer comes in two parts.
        near.write_all(&[5, 0, 0]).ok()?;
        thread::sleep(Duration::from_millis(20));
        Some((host, vec![3, 1, b'x', 0, 1]))
    }

    fn http(&self, near: &mut TcpStream, first: [u8; 1]) -> Option<(String, Vec<u8>)> {
        let mut head = first.to_vec();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(read(near, 1)?);
        }
        let head = String::from_utf8(head).ok()?;
        if !head.contains("\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n") {
            near.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n").ok()?;
            return None;
        }
        let asked = head.split(' ').nth(1)?.rsplit_once(':')?.0.to_owned();
        Some((asked, b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n".to_vec()))
    }
}

fn read(from: &mut TcpStream, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).ok().map(|()| bytes)
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// A URL of the server by a name that this machine does not know.
fn named(server: &Server, path: &str) -> OsString {
    let token = server.token().reveal();
    format!("haul://{token}@{NAME}:{}/{path}", server.address().port()).into()
}

fn run_with(place: &Place, words: &[OsString], variables: &[(&str, &str)]) -> Ran {
    let mut command = place.command(&[words, &words!["--json"]].concat());
    command.envs(variables.iter().copied());
    Haul::start(command).finish()
}

#[test]
fn pushes_pulls_and_listings_go_by_a_proxy_that_resolves_the_name() {
    let place = Place::new();
    let server = Server::start(&place);
    let proxy = Proxy::start(server.address());
    place.file(&place.source("a"), 9 << 20);
    for scheme in ["socks5h", "http"] {
        let by = words!["--proxy", proxy.word(scheme), "--streams", "2"];
        let push = words!["push", place.source("a"), named(&server, scheme)];
        let ran = place.run(&[push, by.clone()].concat());
        assert_eq!(ran.ok()["proxy"], format!("{scheme}://...@{}", proxy.address));
        assert_same_files(&place.source("a"), &place.root(scheme));
        let asked = proxy.asked();
        assert!(asked.len() >= 3 && asked.iter().all(|host| host == NAME), "{asked:?}");
        let pull = words!["pull", named(&server, scheme), place.target("")];
        let pulled = place.run(&[pull, by.clone()].concat());
        pulled.ok();
        assert_same_files(&place.source("a"), &place.target(scheme));
        let ls = place.run(&words!["ls", named(&server, ""), "--proxy", proxy.word(scheme)]);
        assert_eq!((ls.status, ls.named("entry").is_empty()), (0, false), "{ls:?}");
        let all = format!("{ran:?} {pulled:?} {ls:?}");
        assert!(!all.contains("secret"), "{all}");
    }
    let probe = words!["probe", "net", named(&server, ""), "--quick", "--streams", "1"];
    let before = proxy.asked().len();
    let probed = place.run(&[probe, words!["--proxy", proxy.word("http")]].concat());
    assert_eq!(probed.status, 0, "{probed:?}");
    assert!(proxy.asked().len() >= before + 2, "{:?}", proxy.asked());
    // socks5 resolves here.
    let socks5 = words!["--proxy", proxy.word("socks5")];
    let push = words!["push", place.source("a"), server.url("by-address")];
    place.run(&[push, socks5.clone()].concat()).ok();
    assert_eq!(proxy.asked().last().unwrap(), "address");
    let unknown = words!["push", place.source("a"), named(&server, "x")];
    place.run(&[unknown, socks5].concat()).refused(&["cannot connect"]);
    let direct = place.run(&words!["push", place.source("a"), server.url("direct")]);
    assert!(direct.ok()["proxy"].is_null());
}

#[test]
fn the_environment_names_a_proxy_and_what_needs_none() {
    let place = Place::new();
    let server = Server::start(&place);
    let proxy = Proxy::start(server.address());
    place.file(&place.source("a"), 1000);
    let push = |path: &str| words!["push", place.source("a"), named(&server, path)];
    let word = proxy.word("socks5h");
    run_with(&place, &push("a"), &[("ALL_PROXY", &word)]).ok();
    run_with(&place, &push("b"), &[("all_proxy", &word), ("ALL_PROXY", "nonsense")]).ok();
    let asked = proxy.asked().len();
    let here = words!["push", place.source("a"), server.url("c")];
    run_with(&place, &here, &[("ALL_PROXY", &word)]).ok();
    // One that haul does not know, as desktops set it, is none of those that need none.
    let unknown = [("ALL_PROXY", "socks://192.0.2.9:9/"), ("NO_PROXY", ".invalid")];
    run_with(&place, &words!["push", place.source("a"), server.url("g")], &unknown).ok();
    run_with(&place, &push("h"), &unknown).refused(&["cannot connect", NAME]);
    for (variables, options) in [
        (&[("ALL_PROXY", &*word), ("NO_PROXY", "x,.invalid")][..], words![]),
        (&[("ALL_PROXY", &word)], words!["--proxy", "none"]),
        (&[("https_proxy", &word)], words![]),
    ] {
        let ran = run_with(&place, &[push("d"), options].concat(), variables);
        ran.refused(&["cannot connect", NAME]);
    }
    assert_eq!(proxy.asked().len(), asked, "no other has asked it");
    fs::write(place.path("proxy"), format!("{word}\n")).unwrap();
    let by_file = words!["--proxy", format!("@{}", place.path("proxy").display())];
    place.run(&[push("e"), by_file].concat()).ok();
    let ran = run_with(&place, &push("f"), &[("ALL_PROXY", "ftp://ann:secret@h")]);
    ran.refused(&["cannot take ALL_PROXY", "socks5h"]);
    assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
    let fabric = words!["--fabric", "--proxy", word];
    place.run(&[push("g"), fabric].concat()).refused(&["cannot take --fabric", "a proxy"]);
}

#[test]
fn a_transfer_whose_proxy_cuts_it_goes_on() {
    let place = Place::new();
    let server = Server::start(&place);
    let proxy = Proxy::start(server.address());
    place.file(&place.source("large"), 16 << 20);
    let by = words!["--proxy", proxy.word("http"), "--bwlimit", "6M", "--span-size", "1M"];
    let push = words!["push", place.source("large"), named(&server, "large")];
    let running = place.start(&[push, by].concat());
    running.wait_for_bytes("bytes_durable", 2 << 20);
    proxy.cut();
    let ran = running.finish();
    ran.ok();
    assert!(ran.gone_on_from() >= 2 << 20, "{ran:?}");
    assert_same_files(&place.source("large"), &place.root("large"));
}

#[test]
fn a_proxy_that_refuses_or_says_nonsense_is_told_and_never_waited_for_without_end() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("a"), 1000);
    let push = |proxy: &str| {
        let words = words!["push", place.source("a"), named(&server, "a"), "--proxy", proxy];
        let ran = place.run(&words);
        assert!(!format!("{ran:?}").contains("wrong-secret"), "{ran:?}");
        ran
    };
    let proxy = Proxy::start(server.address());
    let wrong = |scheme: &str| format!("{scheme}://ann:wrong-secret@{}", proxy.address);
    push(&wrong("http")).refused(&["proxy http://...@", "another user or password"]);
    for (scheme, answer, says) in [
        ("http", &b"HTTP/1.1 403 Not that port\r\n\r\n"[..], "403 Not that port"),
        ("http", &[b'x'; 40_000], "none"),
        ("socks5h", b"\x05\xff", "takes no password"),
        ("socks5h", b"HTTP/1.1 400 \r\n\r\n", "none of SOCKS5"),
        ("socks5h", b"\x05", "no whole answer"),
    ] {
        let proxy = Proxy::start(server.address());
        proxy.answers(answer);
        let ran = push(&format!("{scheme}://ann:wrong-secret@{}", proxy.address));
        let says = if says == "none" { "no end within 16 KiB" } else { says };
        ran.refused(&["cannot connect to server.invalid", "proxy", says]);
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = push(&format!("socks5h://ann:wrong-secret@{closed}"));
    ran.refused(&["cannot be reached", "refused"]);
}

/// ssh comes by its own ways, and haul's connections behind it by the proxy.
#[test]
fn the_connections_of_a_copy_over_ssh_go_by_the_proxy() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.file(&place.source("a"), 1000);
    // One that leads nowhere shows that nothing goes past it.
    let proxy = Proxy::start(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let words = words!["push", place.source("a"), there("a"), "--proxy", proxy.word("http")];
    sshd.run(&place, &words).refused(&["ssh reaches far", "proxy"]);
    assert!(!proxy.asked().is_empty() && !sshd.home("a").exists());
}

/// NO_PROXY has addresses and host names, and the command may have an alias of ssh's.
#[test]
fn a_copy_over_ssh_needs_no_proxy_where_the_host_behind_the_alias_does_not() {
    let place = Place::new();
    let Some(setup) = SshdSetup::on(Network::Apart) else { return };
    let Some(sshd) = setup.start(&place) else { return };
    place.file(&place.source("a"), 1000);
    let push = |name: &str, no_proxy: &str| {
        let words = words!["push", place.source("a"), there(name), "--json"];
        let mut command = place.command(&sshd.words(&words));
        command.envs([("ALL_PROXY", "socks5://192.0.2.9:9"), ("NO_PROXY", no_proxy)]);
        Haul::start(sshd.near(command)).finish()
    };
    push("a", "x,198.51.100.0/24").refused(&["ssh reaches far", "proxy socks5://192.0.2.9:9"]);
    for no_proxy in [HOST, sshd.address(), &format!("x,{}/30", sshd.address())] {
        let ran = push("b", no_proxy);
        assert!(ran.ok()["proxy"].is_null(), "{no_proxy}: {ran:?}");
        assert_same_files(&place.source("a"), &sshd.home("b"));
        fs::remove_file(sshd.home("b")).unwrap();
    }
}
