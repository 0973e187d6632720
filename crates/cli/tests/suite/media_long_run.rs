//! `haul media` in the long run, under visitors of every kind, well-behaved and not.
//!
//! Nothing is left of them: no descriptor, no memory.

use crate::harness::{
    Place,
    http::{Answer, Body, Client},
    is_long,
    media::{self, Media},
    process::Haul,
    studio::{PAIR, Studio},
    wait_until,
};
use haul_testkit::seed::Random;
use rustix::process::Signal;
use std::{
    fs,
    io::Write,
    net::TcpStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// Number of rounds of visits; after the first few, what is open at rest must stay as it is.
const ROUNDS: u64 = 3;
const ROUNDS_TO_WARM_UP: u64 = 1;
const VISITS: u64 = 150;
const TIME_LONG: Duration = Duration::from_secs(15 * 60);
/// Number of visitors at the same time.
const VISITORS: u64 = 4;
/// Largest growth of memory at rest, as tables fill: a leak of 200 bytes a visit is 8 MiB in the
/// long run.
const GROWTH_BYTES_MAX: u64 = 4 << 20;
/// Longest time until open files are their fewest.
const SETTLE: Duration = Duration::from_millis(2_500);
const LOOK: Duration = Duration::from_millis(50);
/// Length of a film that is small enough for many visits, and more than a socket's buffers hold.
const LONG_FILM_BYTES: u64 = 24 << 20;
const OPTIONS: [&str; 12] = [
    "--status",
    "127.0.0.1:0",
    "--period",
    "100ms",
    "--start-up",
    "200ms",
    "--stall-time",
    "1s",
    "--head-time",
    "1s",
    "--idle-time",
    "2s",
];

/// Servers of one place, by each method, two of them over TLS.
struct Servers {
    studio: Studio,
    servers: Vec<Media>,
    logs: Vec<PathBuf>,
}

/// Resources that a server holds while nobody is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AtRest {
    open_files: usize,
    memory_bytes: u64,
}

impl Servers {
    fn start() -> Self {
        let studio = Studio::new();
        let place = &studio.place;
        place.file(&place.root("long.mp4"), LONG_FILM_BYTES);
        place.file(&place.root("series/one.ts"), 100_000);
        place.file(&place.root("series/two.ts"), 100_000);
        let (mut servers, mut logs) = (Vec::new(), Vec::new());
        for (at, (method, is_tls)) in
            [("one-copy", false), ("direct", false), ("normal", true), ("one-copy", true)]
                .into_iter()
                .enumerate()
        {
            let log = place.path(format!("access{at}.log"));
            let own = ["--method", method, "--access-log", log.to_str().unwrap()];
            let memory: &[&str] = if at == 1 { &["--buffer-memory", "2M"] } else { &[] };
            let options = [&OPTIONS[..], &own, memory].concat();
            servers.push(start(&studio, is_tls, &options));
            logs.push(log);
        }
        Self { studio, servers, logs }
    }

    /// Makes this many visits to each server by several at a time; a log is turned and certificates
    /// are renewed meanwhile.
    fn round(&self, round: u64, visits: u64) {
        thread::scope(|scope| {
            for visitor in 0..VISITORS {
                let seed = self.studio.place.seed.0 ^ (round * VISITORS + visitor);
                let mut random = Random::from_seed(seed);
                scope.spawn(move || {
                    for _ in 0..visits {
                        let server = &self.servers[random.below(4) as usize];
                        visit(server, &self.studio.place, visitor, &mut random);
                    }
                });
            }
        });
        self.studio.renew();
        for (server, log) in self.servers.iter().zip(&self.logs) {
            fs::rename(log, log.with_extension("old")).unwrap();
            server.signal(Signal::HUP);
            wait_until("another log", || log.exists());
            server.assert_serves();
        }
    }

    fn at_rest(&self) -> Vec<AtRest> {
        thread::scope(|scope| {
            let looks = self.servers.iter().map(|server| scope.spawn(|| at_rest(server)));
            looks.collect::<Vec<_>>().into_iter().map(|look| look.join().unwrap()).collect()
        })
    }
}

/// Starts a server with one arena of memory, as each thread that comes and goes may take another: a
/// leak is seen sooner.
fn start(studio: &Studio, is_tls: bool, options: &[&str]) -> Media {
    let pair: &[&str] = if is_tls { &PAIR } else { &[] };
    let words = media::words(&studio.place, &[options, pair, &["--json"]].concat());
    let mut command = studio.place.command(&words);
    command.env("MALLOC_ARENA_MAX", "1");
    let mut media = Media::of(Haul::start(command));
    media.tls = is_tls.then(|| studio.client());
    media
}

/// Waits until the server has seen all clients go, and looks at what it holds then.
fn at_rest(server: &Media) -> AtRest {
    wait_until("without clients", || connections(server) == 0);
    // Those of its status go when it has something to tell them, which it has each second.
    let looks = (0..SETTLE.as_millis() / LOOK.as_millis()).map(|_| {
        thread::sleep(LOOK);
        server.open_files()
    });
    let open_files = looks.min().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", server.haul.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory_kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    AtRest { open_files, memory_bytes: memory_kib << 10 }
}

/// Asks the server for a page of its status.
fn status(server: &Media, target: &str) -> Answer {
    let mut client = Client::connect(server.status());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let answer = client.answer(Body::AsTold).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

fn connections(server: &Media) -> u64 {
    let text = status(server, "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix("haul_media_connections "));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// A figure of each server, with commas between.
fn listed(servers: &[AtRest], figure: impl Fn(&AtRest) -> u64) -> String {
    let figures: Vec<String> = servers.iter().map(|at| figure(at).to_string()).collect();
    figures.join(", ")
}

/// Names of the files that a server has open.
fn names(server: &Media) -> Vec<String> {
    let directory = fs::read_dir(format!("/proc/{}/fd", server.haul.id())).unwrap();
    let target = |entry: fs::DirEntry| fs::read_link(entry.path()).ok();
    let mut names: Vec<String> =
        directory.filter_map(|entry| Some(target(entry.ok()?)?.display().to_string())).collect();
    names.sort();
    names
}

fn visit(server: &Media, place: &Place, visitor: u64, random: &mut Random) {
    match random.below(12) {
        0 => whole_and_parts(server, random),
        1 => pages_and_errors(server),
        2 => leave_in_the_middle(server, random),
        3 => watch_for_a_while(server, random),
        4 => half_a_head(server, random),
        5 => many_at_once(server, random),
        6 => break_the_greeting(server, random),
        7 => a_file_that_changes(server, place, visitor, random),
        8 => look_at_the_status(server),
        9 => take_nothing(server, random),
        10 => nonsense(server, random),
        _ => reset(server),
    }
}

fn whole_and_parts(server: &Media, random: &mut Random) {
    let mut client = server.client();
    assert_eq!(client.get("/film.mp4", "").status, 200);
    for _ in 0..random.below(20) {
        let first = random.below(2_000_000);
        let range = format!("Range: bytes={first}-{},-5\r\n", first + random.below(100_000));
        assert_eq!(client.get("/film.mp4", &range).status, 206);
    }
}

fn pages_and_errors(server: &Media) {
    let mut client = server.client();
    for (target, status) in [
        ("/", 200),
        ("/series/", 200),
        ("/nothing", 404),
        ("/series", 301),
        ("/series/one.ts", 200),
    ] {
        assert_eq!(client.get(target, "").status, status, "{target}");
    }
    assert_eq!(client.get("/film.mp4", "Range: bytes=9000000-\r\n").status, 416);
    assert_eq!(client.get("/film.mp4?rate=nonsense", "").status, 400);
}

fn leave_in_the_middle(server: &Media, random: &mut Random) {
    let mut client = server.client();
    client.send("GET /long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut buffer = vec![0; random.below(1 << 20) as usize + 1];
    let _ = client.read(&mut buffer);
}

fn watch_for_a_while(server: &Media, random: &mut Random) {
    let mut client = server.client();
    let rate = random.below(2_000_000) + 100_000;
    client.send(format!("GET /long.mp4?rate={rate} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let until = Instant::now() + Duration::from_millis(random.below(150));
    let mut buffer = [0; 4096];
    while Instant::now() < until && client.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn half_a_head(server: &Media, random: &mut Random) {
    let mut client = server.client();
    let head = "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-";
    client.send(&head[..random.below(head.len() as u64) as usize]);
    if random.below(40) == 0 {
        // Until the server has enough of it.
        let _ = client.answer(Body::AsTold);
    }
}

fn many_at_once(server: &Media, random: &mut Random) {
    let mut client = server.client();
    let request = "GET /series/one.ts HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.send(request.repeat(20));
    for _ in 0..random.below(20) {
        assert_eq!(client.answer(Body::AsTold).unwrap().status, 200);
    }
}

/// Sends several bytes of a TLS greeting, or none.
fn break_the_greeting(server: &Media, random: &mut Random) {
    let greeting = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7, 7];
    let mut socket = TcpStream::connect(server.address).unwrap();
    let _ = socket.write_all(&greeting[..random.below(17) as usize]);
}

/// Asks for a file that is taken away, or cut, while it is sent.
fn a_file_that_changes(server: &Media, place: &Place, visitor: u64, random: &mut Random) {
    let name = format!("of{visitor}.mp4");
    place.file(&place.root(&name), 4 << 20);
    let mut client = server.client();
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    let _ = client.read(&mut [0; 1000]);
    if random.below(2) == 0 {
        fs::remove_file(place.root(&name)).unwrap();
    } else {
        fs::File::options().write(true).open(place.root(&name)).unwrap().set_len(1000).unwrap();
    }
    let mut buffer = vec![0; 1 << 16];
    while client.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn look_at_the_status(server: &Media) {
    status(server, "/api/sessions");
    let mut events = Client::connect(server.status());
    events.send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _ = events.read(&mut [0; 100]);
}

/// Asks for a film, and does not read; sometimes until the server sends the client away.
fn take_nothing(server: &Media, random: &mut Random) {
    let mut client = server.client();
    client.send("GET /long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let is_patient = random.below(100) == 0;
    thread::sleep(Duration::from_millis(if is_patient { 1_500 } else { random.below(20) }));
}

fn nonsense(server: &Media, random: &mut Random) {
    let mut client = server.client();
    let bytes: Vec<u8> = (0..random.below(2_000)).map(|_| random.below(256) as u8).collect();
    client.send(bytes);
    client.send("\r\n\r\n");
    let _ = client.answer(Body::AsTold);
}

/// Leaves with a reset, in the middle of an answer.
fn reset(server: &Media) {
    let mut client = server.client();
    client.send("GET /long.mp4?rate=5M HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _ = client.read(&mut [0; 1000]);
    // Closed while bytes are unread, a socket resets (RFC 9293, 3.10.4); and at once.
    rustix::net::sockopt::set_socket_linger(client.socket(), Some(Duration::ZERO)).unwrap();
}

#[test]
fn visitors_of_every_kind_leave_no_descriptor_and_no_memory_behind() {
    let servers = Servers::start();
    let begun = Instant::now();
    let is_over = |round| {
        if is_long() { begun.elapsed() >= TIME_LONG } else { round >= ROUNDS }
    };
    let visits = if is_long() { VISITS * 20 } else { VISITS };
    let (mut round, mut first) = (0, Vec::new());
    while !is_over(round) {
        servers.round(round, visits);
        round += 1;
        let now = servers.at_rest();
        if round == ROUNDS_TO_WARM_UP {
            first.clone_from(&now);
        }
        println!("after round {round}: {now:?}");
    }
    let last = servers.at_rest();
    println!(
        "soak: {} visits in {} s to 4 servers: open files at rest {}, then {}; memory {} KiB, then \
         {} KiB",
        round * visits * VISITORS,
        begun.elapsed().as_secs(),
        listed(&first, |at| at.open_files as u64),
        listed(&last, |at| at.open_files as u64),
        listed(&first, |at| at.memory_bytes >> 10),
        listed(&last, |at| at.memory_bytes >> 10),
    );
    for ((server, first), last) in servers.servers.iter().zip(&first).zip(&last) {
        assert!(last.open_files <= first.open_files, "{:#?}", names(server));
        assert!(last.memory_bytes <= first.memory_bytes + GROWTH_BYTES_MAX, "{last:?}");
    }
    for server in servers.servers {
        let ran = server.end();
        assert_eq!(ran.status, 0, "{ran:?}");
    }
}
