//! The real `haul media`: files, parts and pages over HTTP, and clients that mean harm.

use crate::harness::{
    Place,
    http::{Answer, Body, Client},
    media::{self, Media},
    process::{Haul, behind},
    wait_until,
};
use haul_testkit::{skip::skip, strace::Strace};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::{
    ffi::OsString,
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const FILM_BYTES: u64 = 3_000_000;

/// Starts a server behind words that run it.
fn start_behind(place: &Place, runner: &[&str], options: &[&str]) -> Media {
    let runner: Vec<OsString> = runner.iter().map(OsString::from).collect();
    let words = media::words(place, &[options, &["--json"]].concat());
    Media::of(Haul::start(behind(&runner, place.command(&words))))
}

/// Ticks of the server's processor time, in user and kernel mode (proc_pid_stat(5)).
fn cpu_ticks(media: &Media) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", media.haul.id())).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn place() -> Place {
    let place = Place::new();
    place.file(&place.root("film.mp4"), FILM_BYTES);
    place.file(&place.root("series/one.ts"), 100_000);
    fs::write(place.root("series/list.m3u8"), "#EXTM3U\n").unwrap();
    place
}

fn film(place: &Place) -> Vec<u8> {
    fs::read(place.root("film.mp4")).unwrap()
}

#[test]
fn by_every_method_a_file_and_its_parts_arrive() {
    let place = place();
    let film = film(&place);
    for options in [
        &["--method", "one-copy"][..],
        &["--method", "normal"],
        &["--method", "two-copy"],
        &["--method", "direct"],
        &["--method", "direct", "--buffer-memory", "1M"],
        &["--method", "one-copy", "--no-readahead", "--loops", "1"],
    ] {
        let media = Media::start(&place, options);
        let mut client = media.client();
        let whole = client.get("/film.mp4", "");
        assert_eq!((whole.status, whole.field("content-type")), (200, Some("video/mp4")));
        assert!(whole.body == film, "{options:?}");
        let part = client.get("/film.mp4", "Range: bytes=1000000-1999999\r\n");
        assert_eq!(part.field("content-range"), Some("bytes 1000000-1999999/3000000"));
        assert!(part.body == film[1_000_000..2_000_000]);
        let parts = client.get("/film.mp4", "Range: bytes=0-1,-2\r\n");
        let kind = parts.field("content-type").unwrap();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let expected = [
            format!(
                "\r\n--{boundary}\r\nContent-Type: video/mp4\r\n\
                Content-Range: bytes 0-1/3000000\r\n\r\n"
            )
            .as_bytes(),
            &film[..2],
            format!(
                "\r\n--{boundary}\r\nContent-Type: video/mp4\r\n\
                Content-Range: bytes 2999998-2999999/3000000\r\n\r\n"
            )
            .as_bytes(),
            &film[2_999_998..],
            format!("\r\n--{boundary}--\r\n").as_bytes(),
        ]
        .concat();
        assert!(parts.body == expected, "{}", parts.text());
        let tag = whole.field("etag").unwrap();
        let again = client.get("/film.mp4", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(again.status, 304);
        assert_eq!(client.get("/film.mp4", "Range: bytes=3000000-\r\n").status, 416);
    }
}

#[test]
fn requests_one_behind_the_other_are_answered_in_order() {
    let place = place();
    let film = film(&place);
    let media = Media::start(&place, &[]);
    let mut client = media.client();
    let mut requests = String::new();
    for number in 0..200 {
        let end = number + 9;
        requests.push_str(&format!(
            "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes={number}-{end}\r\n\r\n"
        ));
    }
    requests.push_str("HEAD /film.mp4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(client.send(requests));
    for number in 0..200 {
        assert_eq!(client.answer(Body::AsTold).unwrap().body, film[number..number + 10]);
    }
    let head = client.answer(Body::None).unwrap();
    assert_eq!((head.status, head.field("content-length")), (200, Some("3000000")));
    assert!(client.is_closed());
}

#[test]
fn a_directory_is_a_page_with_players_and_its_owners_page_comes_first() {
    let place = place();
    let media = Media::start(&place, &[]);
    let mut client = media.client();
    let page = client.get("/", "");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    let text = page.text();
    assert!(text.contains("<a href=\"./film.mp4\" data-play=\"video\">"), "{text}");
    assert!(text.contains("<a href=\"./series/\">"), "{text}");
    let moved = client.get("/series?x=1", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/series/?x=1")));
    let list = client.get("/series/list.m3u8", "");
    assert_eq!(list.field("content-type"), Some("application/vnd.apple.mpegurl"));
    fs::write(place.root("series/index.html"), "mine").unwrap();
    assert_eq!(client.get("/series/", "").text(), "mine");

    let media = Media::start(&place, &["--no-index"]);
    assert_eq!(media.client().get("/", "").status, 403);
}

/// Films of a server that only this machine reaches: any page that its browser shows could read
/// them all, by itself, or by a name of its own that leads here (DNS rebinding).
#[test]
fn pages_of_other_sites_read_what_everybody_reaches_and_nothing_else() {
    let place = place();
    let (own, all) = ("127.0.0.1:0", "0.0.0.0:0");
    for (listen, options, host, status, origins) in [
        (own, &[][..], "localhost:8080", 200, None),
        (own, &[], "127.0.0.1", 200, None),
        (own, &[], "evil.example", 421, None),
        (own, &[], "localhost.evil.example:8080", 421, None),
        (own, &["--host-name", "films.example.org"], "films.example.org", 200, None),
        (own, &["--cors", "on"], "evil.example", 200, Some("*")),
        (own, &["--cors", "off"], "evil.example", 421, None),
        (all, &[], "films.example.org", 200, Some("*")),
        (all, &["--cors", "off"], "films.example.org", 200, None),
    ] {
        let words = words!["media", place.path("root"), "--listen", listen];
        let words = words.into_iter().chain(options.iter().map(OsString::from));
        let media = Media::of(place.start(&words.collect::<Vec<_>>()));
        let port = media.address.port();
        let mut client = Client::connect(([127, 0, 0, 1], port).into());
        let fields = format!("Host: {host}\r\nOrigin: http://evil.example\r\n\r\n");
        client.send(format!("HEAD /film.mp4 HTTP/1.1\r\n{fields}"));
        let answer = client.answer(Body::None).unwrap();
        let told = answer.field("access-control-allow-origin");
        assert_eq!((answer.status, told), (status, origins), "{options:?} {host}");
        client.send(format!("OPTIONS /film.mp4 HTTP/1.1\r\n{fields}"));
        let expected = if status == 421 { 421 } else { origins.map_or(405, |_| 204) };
        let asked = client.answer(Body::AsTold).unwrap();
        assert_eq!(asked.status, expected, "{options:?} {host}");
        // Of no page (RFC 9110, 9.3.7 and 15.5.6).
        client.send(format!("OPTIONS /film.mp4 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let asked = client.answer(Body::AsTold).unwrap();
        assert_eq!(asked.status, expected, "{options:?} {host}");
        let allows = asked.field("allow").is_some_and(|names| names.contains("OPTIONS"));
        assert_eq!(allows, expected == 204, "{asked:?}");
    }
}

#[test]
fn nothing_above_the_root_is_served() {
    let place = place();
    fs::write(place.path("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", place.root("link")).unwrap();
    std::os::unix::fs::symlink("film.mp4", place.root("within")).unwrap();
    let media = Media::start(&place, &[]);
    for (target, status) in [
        ("/../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/series/../../secret", 400),
        ("/series/%2e%2e%2f%2e%2e%2fsecret", 400),
        ("//../secret", 400),
        ("/link", 403),
        ("/within", 200),
        ("/film.mp4/../../secret", 400),
        ("/film.mp4%00.html", 400),
        ("/nothing", 404),
    ] {
        let answer = media.client().get(target, "");
        assert_eq!(answer.status, status, "{target}");
        assert!(!answer.text().contains("secret"), "{target}");
    }
}

#[test]
fn heads_that_come_slowly_or_never_end_are_cut_off_and_others_are_served() {
    let place = place();
    let media = Media::start(&place, &["--head-time", "1s", "--idle-time", "2s"]);
    let mut slow: Vec<Client> = (0..200).map(|_| media.client()).collect();
    for client in &mut slow {
        assert!(client.send("GET /film.mp4 HTTP/1.1\r\n"));
    }
    let mut idle: Vec<Client> = (0..200).map(|_| media.client()).collect();
    let begun = Instant::now();
    // A byte now and then does not help.
    while begun.elapsed() < Duration::from_secs(3) {
        for client in &mut slow {
            client.send("A");
        }
        media.assert_serves();
        thread::sleep(Duration::from_millis(200));
    }
    for client in &mut slow {
        let answer = client.answer(Body::AsTold);
        assert!(answer.is_none_or(|answer| answer.status == 408));
    }
    assert!(idle.iter_mut().all(Client::is_closed));

    let mut flood = media.client();
    flood.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "b".repeat(1 << 20)));
    assert_eq!(flood.answer(Body::AsTold).map(|answer| answer.status), Some(431));
    let mut fields = media.client();
    fields.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(2000)));
    assert_eq!(fields.answer(Body::AsTold).map(|answer| answer.status), Some(431));
    let mut long = media.client();
    long.send(format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(10_000)));
    assert_eq!(long.answer(Body::AsTold).map(|answer| answer.status), Some(414));
    media.assert_serves();
}

#[test]
fn a_client_that_takes_nothing_is_left_and_one_that_goes_away_costs_nothing() {
    let place = place();
    let media = Media::start(&place, &["--stall-time", "1s"]);
    media.assert_serves();
    wait_until("idle", || media.open_files() < 40);
    let before = media.open_files();
    let mut stalled: Vec<Client> = (0..50).map(|_| media.client()).collect();
    for client in &mut stalled {
        // More than the buffers between hold.
        for _ in 0..20 {
            client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
    }
    for _ in 0..200 {
        let mut client = media.client();
        client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    media.assert_serves();
    wait_until("left", || media.open_files() <= before);
}

/// A stream of long periods, which was cut at its first period's end, as it was looked at there
/// alone what had arrived.
#[test]
fn a_period_may_be_longer_than_a_client_may_take_nothing() {
    let place = place();
    let options = ["--stall-time", "300ms", "--period", "1s", "--start-up", "0s"];
    let media = Media::start(&place, &options);
    let answer = media.client().get("/film.mp4?rate=8M", "");
    assert_eq!((answer.status, answer.body.len()), (200, 3_000_000));
}

#[test]
fn with_no_room_the_idlest_makes_room_and_those_at_work_stay() {
    let place = place();
    let media = Media::start(&place, &["--max-connections", "4", "--loops", "1"]);
    let mut idle: Vec<Client> = (0..4).map(|_| media.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
    }
    let mut new = media.client();
    assert_eq!(new.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
    assert!(idle[0].is_closed());
    assert_eq!(idle[1].get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
}

/// Idle connections in thousands: each has a descriptor on both sides, and no buffer.
#[test]
fn thousands_of_idle_connections_leave_a_stream_in_time() {
    const IDLE: u64 = 4_000;
    let limit = getrlimit(Resource::Nofile);
    let needed = IDLE + 500;
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return skip(&format!("{needed} open files"), format!("{:?}", limit.maximum));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let place = place();
    // A second in hand, of which a busy machine may take some.
    let media = Media::start(&place, &["--period", "1s", "--start-up", "1s"]);
    let asked = Instant::now();
    let mut client = media.client();
    client.send("GET /film.mp4?rate=3M HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let stream = thread::spawn(move || client.answer(Body::AsTold).unwrap());
    let mut idle: Vec<Client> = (0..IDLE).map(|_| media.client()).collect();
    // Half of them have had an answer.
    for client in idle.iter_mut().step_by(2) {
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-9\r\n").status, 206);
    }
    media.assert_serves();
    assert_eq!(stream.join().unwrap().status, 200);
    assert!(asked.elapsed() > Duration::from_secs(5), "{:?}", asked.elapsed());
    for client in idle.iter_mut().step_by(100) {
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-9\r\n").status, 206);
    }
    let ran = media.end();
    let ended = ran.named("ended")[0];
    assert_eq!((&ended["misses_here"], &ended["turned_away"]), (&0.into(), &0.into()), "{ran:?}");
}

#[test]
fn an_address_has_its_share_of_connections_and_no_more() {
    let place = place();
    let media = Media::start(&place, &["--max-connections-per-address", "3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| media.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
    }
    assert!(media.client().is_closed());
    assert_eq!(clients[0].get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
    drop(clients.pop());
    wait_until("room again", || {
        let mut client = media.client();
        client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        client.answer(Body::AsTold).is_some()
    });
    drop(clients);
    let ran = media.end();
    assert!(ran.named("ended")[0]["turned_away"].as_u64().unwrap() >= 1, "{ran:?}");
}

/// A server without a descriptor, which looked for one without end, and closed whoever was idle
/// meanwhile.
#[test]
fn without_a_descriptor_it_waits_and_does_not_spin() {
    let place = place();
    let media =
        start_behind(&place, &["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"], &["--loops", "1"]);
    // One behind the other: each has begun its head before the next comes, so that none is idle.
    let clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = media.client();
            client.send("G");
            thread::sleep(Duration::from_millis(10));
            client
        })
        .collect();
    let before = cpu_ticks(&media);
    thread::sleep(Duration::from_secs(2));
    let spent = cpu_ticks(&media) - before;
    // 200 ticks are both seconds.
    assert!(spent < 100, "{spent} ticks");
    drop(clients);
    media.assert_serves();
}

#[test]
fn whoever_floods_it_takes_nothing_from_the_others() {
    let place = place();
    let media = Media::start(&place, &["--loops", "1"]);
    let heads = [
        "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
        format!(
            "GET /film.mp4?rate=100k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            u64::MAX
        ),
        format!(
            "GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes={}\r\n\r\n",
            (0..190).map(|at| format!("{0}-{0}", at * 15_000)).collect::<Vec<_>>().join(",")
        ),
    ];
    let over = Instant::now() + Duration::from_secs(2);
    let floods = heads.map(|head| {
        let mut client = media.client();
        client.socket().set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        thread::spawn(move || {
            client.send(head);
            while Instant::now() < over && client.send([b'x'; 1 << 16]) {}
        })
    });
    while Instant::now() < over {
        media.assert_serves();
    }
    for flood in floods {
        flood.join().unwrap();
    }
}

/// A kernel that lets go of io_uring in the middle: the films come by another way.
#[test]
fn where_io_uring_fails_under_way_all_answers_go_on() {
    for method in ["direct", "one-copy"] {
        let place = place();
        place.file(&place.root("long.mp4"), 32 << 20);
        let options =
            ["--method", method, "--loops", "1", "--cache", "drop", "--status", "127.0.0.1:0"];
        let media = Media::start(&place, &options);
        let mut clients: Vec<Client> = (0..3).map(|_| media.client()).collect();
        for client in &mut clients {
            client.send("GET /long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        let log = place.path("strace");
        let fault = "io_uring_enter:error=EINVAL";
        let failing = match Strace::attach(media.haul.id(), fault, None, &log) {
            Ok(failing) => failing,
            Err(why) => return skip("strace and the right to trace", &why),
        };
        let whole = fs::read(place.root("long.mp4")).unwrap();
        for client in &mut clients {
            assert!(client.answer(Body::AsTold).unwrap().body == whole, "{method}");
        }
        media.assert_serves();
        let failed = failing.detach();
        // What is in the page cache needs no ring.
        let lost = u64::from(failed > 0);
        let line = format!("\nhaul_media_loops_without_ring {lost}\n");
        wait_until("told", || {
            let mut client = Client::connect(media.status());
            client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            client.answer(Body::AsTold).unwrap().text().contains(&line)
        });
        assert!(failed > 0 || method == "one-copy");
        assert_eq!(media.end().status, 0);
    }
}

#[test]
fn a_second_server_finds_the_address_taken() {
    let place = place();
    let media = Media::start(&place, &[]);
    let address = media.address.to_string();
    let ran = place.run(&words!["media", place.path("root"), "--listen", address]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(format!("{ran:?}").contains("another program listens there"), "{ran:?}");
    media.assert_serves();
}

#[test]
fn a_body_that_nobody_wants_is_thrown_away_before_the_next_request() {
    let place = place();
    let media = Media::start(&place, &[]);
    let mut client = media.client();
    client.send(format!(
        "POST /film.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n{}GET \
        /film.mp4 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-0\r\n\r\n",
        "GET ".repeat(17_500)
    ));
    let refused = client.answer(Body::AsTold).unwrap();
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
    assert_eq!(client.answer(Body::AsTold).unwrap().status, 206);
    // One that is too long ends the connection, after the answer.
    let mut client = media.client();
    client.send("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n");
    let answer = client.answer(Body::AsTold).unwrap();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
}

#[test]
fn a_file_that_gets_shorter_ends_the_connection_and_not_the_server() {
    let place = place();
    place.file(&place.root("shrinking.mp4"), 64 << 20);
    for method in ["one-copy", "direct", "two-copy", "normal"] {
        let media = Media::start(&place, &["--method", method]);
        let mut client = media.client();
        client.send("GET /shrinking.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        thread::sleep(Duration::from_millis(200));
        let file = fs::File::options().write(true).open(place.root("shrinking.mp4")).unwrap();
        file.set_len(1 << 20).unwrap();
        let mut sum_bytes = 0;
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = std::io::Read::read(&mut client.socket(), &mut buffer) {
            sum_bytes += count;
        }
        assert!(sum_bytes < 64 << 20);
        media.assert_serves();
        file.set_len(64 << 20).unwrap();
    }
}

#[test]
fn sigterm_lets_answers_end_and_sighup_opens_the_log_again() {
    let place = place();
    place.file(&place.root("long.mp4"), 64 << 20);
    let log = place.path("access.log");
    let media = Media::start(&place, &["--access-log", log.to_str().unwrap()]);
    media.client().get("/film.mp4", "User-Agent: one\r\nConnection: close\r\n");
    wait_until("logged", || fs::read_to_string(&log).unwrap().lines().count() == 1);
    fs::rename(&log, place.path("access.log.1")).unwrap();
    media.signal(Signal::HUP);
    wait_until("opened again", || log.exists());
    media.client().get("/nothing", "User-Agent: two\r\nConnection: close\r\n");
    wait_until("logged again", || fs::read_to_string(&log).unwrap().contains("two"));
    let mut odd = media.client();
    odd.send("BREW coffee\x07 HTTP/1.1\r\n\r\n");
    assert_eq!(odd.answer(Body::AsTold).unwrap().status, 400);
    wait_until("logged a third time", || fs::read_to_string(&log).unwrap().contains("BREW"));
    let lines = fs::read_to_string(&log).unwrap();
    assert!(lines.contains("\"GET /nothing HTTP/1.1\" 404 "), "{lines}");
    assert!(lines.contains("\"BREW coffee\\x07 HTTP/1.1\" 400 "), "{lines}");
    drop(odd);

    let mut idle = media.client();
    idle.get("/film.mp4", "Range: bytes=0-0\r\n");
    let mut client = media.client();
    client.send("GET /long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    thread::sleep(Duration::from_millis(200));
    media.signal(Signal::TERM);
    assert!(idle.is_closed());
    let answer: Answer = client.answer(Body::AsTold).unwrap();
    assert_eq!(answer.body.len(), 64 << 20);
    let ran = media.haul.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let ended = ran.named("ended")[0];
    assert_eq!((&ended["requests"], &ended["cut"]), (&5.into(), &0.into()), "{ran:?}");
}

/// Viewers who are connected and have asked when the server is told to end: a new version is put in
/// place of the old one this way, and no viewer may see it.
#[test]
fn who_has_asked_when_sigterm_comes_is_answered() {
    let place = place();
    let media = Media::start(&place, &[]);
    media.assert_serves();
    let mut silent = media.client();
    let mut kept: Vec<Client> = (0..8).map(|_| media.client()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/film.mp4", "Range: bytes=0-0\r\n").status, 206);
    }
    media.signal(Signal::STOP);
    // More than are accepted at once.
    let mut new: Vec<Client> = (0..300).map(|_| media.client()).collect();
    for client in kept.iter_mut().chain(&mut new) {
        assert!(client.send("GET /series/one.ts HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    let began = Instant::now();
    media.signal(Signal::TERM);
    media.signal(Signal::CONT);
    for client in kept.iter_mut().chain(&mut new) {
        let answer = client.answer(Body::AsTold).expect("an answer");
        assert_eq!((answer.status, answer.body.len()), (200, 100_000));
        assert!(client.is_closed());
    }
    assert!(silent.is_closed());
    let ran = media.haul.finish();
    assert_eq!((ran.status, &ran.named("ended")[0]["cut"]), (0, &0.into()), "{ran:?}");
    // Nobody who says nothing holds it up.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A pipe whose other end nobody reads, or writes: it would be waited for, and then no signal was
/// heard.
#[test]
fn pipes_are_not_waited_for() {
    let place = place();
    let pipe = place.path("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let root = place.path("root");
    for (option, why) in [("--access-log", "nobody reads"), ("--config", "no regular file")] {
        let ran = place.run(&words!["media", &root, "--listen", "127.0.0.1:0", option, &pipe]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(format!("{ran:?}").contains(why), "{ran:?}");
    }
    let path = place.path("media.toml");
    fs::write(&path, "rate = '2M'\n").unwrap();
    let media = Media::start(&place, &["--config", path.to_str().unwrap()]);
    fs::rename(&pipe, &path).unwrap();
    media.signal(Signal::HUP);
    thread::sleep(Duration::from_millis(200));
    media.assert_serves();
    assert_eq!(media.end().status, 0);
}

/// A film of 3 MB at 1 MB a second, of which one and a half second's are sent at once.
#[test]
fn a_stream_comes_period_by_period_and_no_sooner() {
    let place = place();
    let film = film(&place);
    let pacing = ["--period", "500ms", "--start-up", "1s"];
    for (target, options) in [("/film.mp4?rate=8M", &[][..]), ("/film.mp4", &["--rate", "8M"])] {
        let media = Media::start(&place, &[&pacing, options].concat());
        let mut client = media.client();
        let begun = Instant::now();
        let answer = client.get(target, "");
        assert!(answer.body == film);
        assert!(begun.elapsed() >= Duration::from_millis(1400), "{:?}", begun.elapsed());
        // What is no film is not paced by --rate, and a short part is there at once.
        assert_eq!(client.get("/series/list.m3u8", "").status, 200);
        assert_eq!(client.get(target, "Range: bytes=-1000\r\n").status, 206);
        let ran = media.end();
        let ended = ran.named("ended")[0];
        assert_eq!(ended["streams"], 2, "{ran:?}");
        assert!(ended["periods"].as_u64().unwrap() >= 2, "{ran:?}");
    }
    let media = Media::start(&place, &[]);
    let refused = media.client().get("/film.mp4?rate=fast", "");
    assert_eq!((refused.status, refused.text().contains("such as 2M")), (400, true));
}

/// The kernel's pacing rate of a stream, eight times its own rate, as a period is to be there well
/// before it is due.
#[test]
fn the_kernel_is_asked_to_pace_a_stream_and_nothing_else() {
    let place = place();
    place.file(&place.root("long.mp4"), 64 << 20);
    let media = Media::start(&place, &[]);
    let max_of = |target: &str| {
        let mut client = media.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.answer(Body::None).unwrap().status, 200);
        let from = format!("sport = :{}", media.address.port());
        let to = format!("dport = :{}", client.socket().local_addr().unwrap().port());
        let shown = Command::new("ss").args(["-tinH", &from, "and", &to]).output().ok()?;
        let text = String::from_utf8(shown.stdout).unwrap();
        let (_, rates) = text.split_once("pacing_rate ").unwrap_or_else(|| panic!("{text:?}"));
        let rates = rates.split_whitespace().next().unwrap().to_owned();
        Some(rates.split_once('/').map(|(_, max)| max.to_owned()))
    };
    let Some(paced) = max_of("/long.mp4?rate=40M") else { return skip("ss", "none") };
    // As older and newer versions of ss write it.
    let known = ["320000000bps", "320.0Mbps", "320Mbps"].map(str::to_owned);
    assert!(paced.as_ref().is_some_and(|max| known.contains(max)), "{paced:?}");
    assert_eq!(max_of("/long.mp4?rate=max"), Some(None));
}

/// A player that is paused takes nothing for a while, and goes on where it was.
#[test]
fn a_stream_that_is_paused_goes_on() {
    let place = place();
    place.file(&place.root("long.mp4"), 40 << 20);
    let media = Media::start(&place, &["--period", "200ms", "--start-up", "200ms"]);
    let mut client = media.client();
    client.send("GET /long.mp4?rate=160M HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(client.answer(Body::AsTold).unwrap().body.len(), 40 << 20);
    let ran = media.end();
    let ended = ran.named("ended")[0];
    assert!(ended["held_back"].as_u64().unwrap() >= 1, "{ran:?}");
}

/// A receive buffer of 2 KiB, which holds less than a period: the socket is never full.
#[test]
fn a_stream_of_which_nothing_is_taken_gives_its_place_back() {
    let place = place();
    let options = ["--max-streams", "1", "--stall-time", "1s", "--period", "200ms"];
    let media = Media::start(&place, &options);
    let mut stalled = Client::connect_with_buffer(media.address, 2 << 10);
    stalled.send("GET /film.mp4?rate=400k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(stalled.answer(Body::None).unwrap().status, 200);
    let status = || {
        let mut client = media.client();
        client.send("GET /film.mp4?rate=2M HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.answer(Body::None).unwrap().status
    };
    assert_eq!(status(), 503);
    wait_until("given back", || status() == 200);
    assert!(media.end().named("ended")[0]["held_back"].as_u64().unwrap() >= 1);
}

#[test]
fn what_cannot_be_is_said_before_anything_starts() {
    let place = place();
    for (words, expected) in [
        (&["--listen", "nowhere:x"][..], "--listen"),
        (&["--listen", "192.0.2.1:0"], "192.0.2.1:0"),
        (&["--method", "magic"], "one-copy, direct, two-copy, normal"),
        (&["--head-time", "0s"], "--head-time"),
    ] {
        let own = words.iter().map(OsString::from);
        let all: Vec<OsString> =
            words!["media", place.path("root")].into_iter().chain(own).collect();
        let ran = place.run(&all);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(format!("{ran:?}").contains(expected), "{ran:?}");
    }
    let ran = place.run(&words!["media", place.path("missing"), "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.status, 2, "{ran:?}");
}
