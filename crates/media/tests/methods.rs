//! Tests that every way of moving bytes gives the same bytes, whoever is slow.

#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use haul_media::{
    delivery::{Behind, METHODS, Method, Readahead},
    policy::Policy,
    server::{Options, Server},
};
use rustix::{
    fs::{Advice, fadvise},
    net::sockopt::set_socket_recv_buffer_size,
};

/// Length of the film, not a whole number of blocks.
const FILM_BYTES: usize = 5_000_123;
const PATIENCE: Duration = Duration::from_secs(30);
/// Receive buffer of a client: what it leaves unread stays in the page cache, and systems differ in
/// how much they let it.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// A film of which no block is like another.
fn film() -> Vec<u8> {
    let mut bytes = vec![0; FILM_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

fn write_cold(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    forget(path);
}

/// Drops a file from the page cache.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

fn get(address: SocketAddr, range: &Range<usize>, pause: Duration) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).unwrap();
    let last = range.end - 1;
    let head = format!(
        "GET /film.mp4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: bytes={}-{last}\r\n\r\n",
        range.start
    );
    socket.write_all(head.as_bytes()).unwrap();
    thread::sleep(pause);
    let mut answer = BufReader::new(socket);
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 206"), "{line}");
    while line.trim_end() != "" {
        line.clear();
        answer.read_line(&mut line).unwrap();
    }
    let mut body = Vec::new();
    answer.read_to_end(&mut body).unwrap();
    body
}

fn each_way(mut look: impl FnMut(&str, Options)) {
    for method in METHODS {
        for readahead in [Readahead::Kernel, Readahead::Off] {
            let name = format!("{} with readahead {readahead:?}", method.name());
            // Four buffers a loop, so that they are fought for.
            let options = Options { method, readahead, buffer_bytes: 1, ..Options::default() };
            look(&name, options);
        }
    }
}

#[test]
fn ranges_of_a_cold_file_are_the_same_by_all_methods() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, film) = (root.path().join("film.mp4"), film());
    write_cold(&path, &film);
    each_way(|name, options| {
        let server = Server::start(root.path(), options, Policy::default()).unwrap();
        for range in [
            0..1,
            0..4096,
            4095..4097,
            1..FILM_BYTES,
            524_287..524_290,
            1_000_001..3_000_003,
            FILM_BYTES - 1..FILM_BYTES,
            FILM_BYTES - 5_000..FILM_BYTES,
        ] {
            forget(&path);
            let got = get(server.local_addr(), &range, Duration::ZERO);
            assert!(got == film[range.clone()], "{name}: {range:?}");
        }
    });
}

#[test]
fn many_at_once_get_their_own_bytes_though_some_of_them_sleep() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, film) = (root.path().join("film.mp4"), film());
    write_cold(&path, &film);
    each_way(|name, options| {
        forget(&path);
        let server = Server::start(root.path(), options, Policy::default()).unwrap();
        let address = server.local_addr();
        thread::scope(|scope| {
            let film = &film;
            for number in 0..24_usize {
                scope.spawn(move || {
                    let start = number * 100_003;
                    let range = start..start + 2_500_000;
                    // Each third holds what was read for it, and reads it much later.
                    let pause = Duration::from_millis(if number % 3 == 0 { 1_600 } else { 0 });
                    let got = get(address, &range, pause);
                    assert!(got == film[range], "{name}: {number}");
                });
            }
        });
    });
}

#[test]
fn a_client_that_goes_while_the_disk_reads_leaves_nothing_behind() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path().join("film.mp4");
    write_cold(&path, &film());
    for method in [Method::Direct, Method::OneCopy] {
        let options = Options { method, buffer_bytes: 1, loops: 1, ..Options::default() };
        let server = Server::start(root.path(), options, Policy::default()).unwrap();
        for _ in 0..50 {
            forget(&path);
            let mut socket = TcpStream::connect(server.local_addr()).unwrap();
            socket.write_all(b"GET /film.mp4 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        }
        let begun = Instant::now();
        loop {
            let snapshot = server.observer().snapshot(0);
            let reads = snapshot.reads;
            if snapshot.sessions_count == 0 && (reads.waiting, reads.in_flight) == (0, 0) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{}: {snapshot:?}", method.name());
            thread::sleep(Duration::from_millis(10));
        }
        let got = get(server.local_addr(), &(0..100), Duration::ZERO);
        assert_eq!(got.len(), 100, "{}", method.name());
    }
}

#[test]
fn a_film_that_one_viewer_watches_leaves_its_beginning_and_one_that_two_watch_all_of_it() {
    const PREFIX_BYTES: u64 = 16 << 20;
    const LONG_BYTES: u64 = 64 << 20;
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path().join("film.mp4");
    std::fs::write(&path, vec![7; LONG_BYTES as usize]).unwrap();
    let cached_bytes = || {
        let file = File::open(&path).unwrap();
        haul_sys::cachestat::cached_bytes(&file, 0, LONG_BYTES).unwrap()
    };
    let options = Options { behind: Behind::Drop, loops: 2, ..Options::default() };
    let server = Server::start(root.path(), options, Policy::default()).unwrap();
    let whole = 0..LONG_BYTES as usize;
    forget(&path);
    let address = server.local_addr();
    let mut other = TcpStream::connect(address).unwrap();
    other.write_all(b"GET /film.mp4?rate=8k HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(other.read(&mut [0; 9]).unwrap() > 0);
    assert_eq!(get(address, &whole, Duration::ZERO).len(), LONG_BYTES as usize);
    // The system may take single pages of its own accord.
    let left_bytes = cached_bytes();
    assert!(left_bytes > LONG_BYTES - (1 << 20), "{left_bytes}");
    drop(other);
    let begun = Instant::now();
    while server.observer().snapshot(0).sessions_count > 0 {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    forget(&path);
    assert_eq!(get(address, &whole, Duration::ZERO).len(), LONG_BYTES as usize);
    // What sockets held when it was last to go, and the last part, may stay.
    let left_bytes = cached_bytes();
    assert!((PREFIX_BYTES..LONG_BYTES * 3 / 4).contains(&left_bytes), "{left_bytes}");
}
