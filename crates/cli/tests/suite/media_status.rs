//! The status of the real `haul media`: figures for programs, and a page in a browser.

use crate::harness::{
    Place,
    browser::Browser,
    http::{Answer, Body, Client},
    media::{self, Media},
    process::Ran,
    wait_until,
};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    ops::Deref,
    thread,
    time::{Duration, Instant},
};

const FILM_BYTES: u64 = 3_000_000;
/// Options for short periods, so that several are over soon.
const PACING: [&str; 4] = ["--period", "200ms", "--start-up", "400ms"];
const STREAM: &str =
    "GET /film.mp4?rate=80k HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test/1\r\n\r\n";

/// A server whose status is watched.
struct Watched(Media);

impl Deref for Watched {
    type Target = Media;

    fn deref(&self) -> &Media {
        &self.0
    }
}

impl Watched {
    fn start(place: &Place, options: &[&str]) -> Self {
        Self::at(place, &[&["--status", "127.0.0.1:0"], options].concat())
    }

    fn at(place: &Place, options: &[&str]) -> Self {
        Self(Media::start(place, options))
    }

    /// Begins a stream: takes what is released at once, and then waits for more.
    fn stream(&self, request: &str) -> Client {
        let mut client = Client::connect(self.address);
        assert!(client.send(request));
        assert!((&mut client.socket()).read(&mut [0; 2_000]).unwrap() > 0);
        client
    }

    fn ask(&self, request: &str) -> Answer {
        let mut client = Client::connect(self.status());
        assert!(client.send(request));
        client.answer(Body::AsTold).unwrap_or_else(|| panic!("no answer to {request:?}"))
    }

    fn get(&self, target: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn json(&self, target: &str) -> Value {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The value of a metric in /metrics.
    fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    fn events(&self) -> Events {
        let mut client = Client::connect(self.status());
        assert!(client.send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let socket = client.socket().try_clone().unwrap();
        Events { lines: BufReader::new(socket).lines() }
    }

    fn end(self) -> Ran {
        self.0.end()
    }
}

struct Events {
    lines: std::io::Lines<BufReader<std::net::TcpStream>>,
}

impl Events {
    /// Name and data of the next event; `None` where the server closed.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).unwrap()));
            }
        }
    }
}

fn place() -> Place {
    let place = Place::new();
    place.file(&place.root("film.mp4"), FILM_BYTES);
    place
}

#[test]
fn a_stream_is_seen_in_every_output_and_its_figures_go_on() {
    let place = place();
    let media = Watched::start(&place, &PACING);
    assert_eq!(media.metric("haul_media_sessions"), 0.0);
    assert_eq!(media.json("/api/sessions")["sessions"], Value::Array(Vec::new()));
    let _client = media.stream(STREAM);

    // Who asked just before got what was seen then.
    wait_until("seen", || media.json("/api/sessions")["sessions_count"] == 1);
    let first = media.json("/api/sessions");
    let session = &first["sessions"][0];
    assert_eq!(session["target"], "/film.mp4?rate=80k");
    assert_eq!((&session["peer"], &session["user_agent"]), (&"127.0.0.1".into(), &"test/1".into()));
    assert_eq!(
        (&session["rate_bits_per_s"], &session["state"]),
        (&80_000.into(), &"waiting".into())
    );
    let periods = |found: &Value| found["sessions"][0]["periods"].as_u64().unwrap();
    wait_until("more periods", || {
        periods(&media.json("/api/sessions?limit=5")) > periods(&first) + 2
    });
    let later = media.json("/api/sessions");
    let sent = |found: &Value| found["sessions"][0]["sent_bytes"].as_u64().unwrap();
    assert!(sent(&later) > sent(&first), "{first} {later}");
    assert!(later["sessions"][0]["slack_ms"].as_i64().is_some(), "{later}");
    assert_eq!(media.json("/api/sessions?limit=0")["sessions"], Value::Array(Vec::new()));
    assert_eq!(media.get("/api/sessions?limit=all").status, 400);

    wait_until("counted", || media.metric("haul_media_sessions") == 1.0);
    let counted = media.metric("haul_media_period_slack_seconds_count");
    assert!(counted >= 3.0 && counted <= media.metric("haul_media_periods_total"));
    assert!(media.metric("process_open_fds") > 5.0);
    assert_eq!(media.metric("haul_media_loops_missing"), 0.0);

    let mut events = media.events();
    let (name, history) = events.next().unwrap();
    assert_eq!(name, "history");
    let before = history.as_array().unwrap().last().unwrap().clone();
    let (name, sample) = events.next().unwrap();
    assert_eq!(name, "sample");
    assert_eq!((&sample["sessions_count"], &sample["streams"]), (&1.into(), &1.into()));
    let number = |sample: &Value, key: &str| sample[key].as_f64().unwrap();
    assert!(number(&sample, "periods") > number(&before, "periods"), "{before} {sample}");
    let interval_s = number(&sample, "interval_s");
    assert!(interval_s > 0.4, "{sample}");
    // The same bytes, told in two ways.
    let bits = 8.0 * (number(&sample, "sent_bytes") - number(&before, "sent_bytes"));
    let told = number(&sample, "sent_bits_per_s") * interval_s;
    assert!((bits - told).abs() <= 0.01 * bits + 100.0, "{before} {sample}");
    assert!(sample["process"]["cpu_cores"].as_f64().is_some(), "{sample}");
}

/// A player that reads nothing more holds its stream back.
#[test]
fn what_players_hold_back_is_told() {
    let place = place();
    place.file(&place.root("long.mp4"), 40 << 20);
    let media = Watched::start(&place, &PACING);
    let _client = media.stream("GET /long.mp4?rate=160M HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_until("held back", || media.metric("haul_media_held_back_total") >= 1.0);
    let found = media.json("/api/sessions");
    assert!(found["sessions"][0]["held_back"].as_u64().unwrap() >= 1, "{found}");
}

#[test]
fn json_has_a_sample_line_now_and_then() {
    let place = place();
    let media = Watched::start(&place, &PACING);
    let _client = media.stream(STREAM);
    let sample = media.haul.wait_for("sample", |event| event["event"] == "sample");
    assert!(sample["interval_s"].as_f64().unwrap() > 5.0, "{sample}");
    assert_eq!(sample["sessions_count"], 1);
    let ran = media.end();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.events.last().unwrap()["event"], "ended");
}

#[test]
fn what_is_no_question_of_its_own_users_is_refused() {
    let place = place();
    let media = Watched::start(&place, &["--host-name", "dash.example.org"]);
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example:8081\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421),
        ("GET /api/events HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: dash.example.org\r\n\r\n", 200),
        ("GET /metrics HTTP/1.1\r\nHost: [::1]:99\r\n\r\n", 200),
        ("GET /metrics HTTP/1.0\r\n\r\n", 200),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("OPTIONS / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n", 405),
        ("GET /film.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("no request at all\r\n\r\n", 400),
    ] {
        let answer = media.ask(request);
        assert_eq!(answer.status, status, "{request:?} {}", answer.text());
        assert_eq!(answer.field("access-control-allow-origin"), None);
        assert!(!answer.text().contains("evil"), "{}", answer.text());
    }
    for target in ["/", "/style.css", "/dashboard.js", "/icon.svg", "/metrics", "/api/sessions"] {
        let whole = media.get(target);
        let policy = whole.field("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert_eq!((whole.status, whole.field("x-content-type-options")), (200, Some("nosniff")));
        let mut client = Client::connect(media.status());
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let head = client.answer(Body::None).unwrap();
        assert_eq!((head.status, head.field("content-type")), (200, whole.field("content-type")));
        assert!(client.is_closed());
    }
    assert_eq!(
        media.get("/metrics").field("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
}

#[test]
fn a_crowd_and_whoever_is_slow_keep_nobody_out() {
    let place = place();
    let media = Watched::start(&place, &[]);
    // Those that ask nothing make room for those that do.
    let silent: Vec<Client> = (0..40).map(|_| Client::connect(media.status())).collect();
    assert_eq!(media.get("/metrics").status, 200);
    drop(silent);
    // Those that look at events stay, and there is room beside them.
    let mut looking: Vec<Client> = (0..40).map(|_| Client::connect(media.status())).collect();
    let statuses: Vec<Option<u16>> = looking
        .iter_mut()
        .map(|client| {
            client.send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let mut line = [0; 12];
            (&mut client.socket()).read_exact(&mut line).ok()?;
            String::from_utf8_lossy(&line[9..]).parse().ok()
        })
        .collect();
    let of = |status| statuses.iter().filter(|one| **one == Some(status)).count();
    assert!(of(200) == 24 && of(503) >= 1, "{statuses:?}");
    assert_eq!(media.get("/metrics").status, 200);
    drop(looking);
    // All at once, as fast as they can.
    let status = media.status();
    let crowd: Vec<_> = (0..40)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::connect(status);
                client.send("GET /api/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n");
                client.answer(Body::AsTold).map(|answer| answer.status)
            })
        })
        .collect();
    for one in crowd {
        let status = one.join().unwrap();
        assert!(matches!(status, None | Some(200 | 503)), "{status:?}");
    }
    // A head that comes byte by byte is cut off; turned away at once it may be while those of the
    // crowd are still closed, and then it comes again.
    let begun = Instant::now();
    let cut_off = || {
        let (mut slow, connected) = (Client::connect(media.status()), Instant::now());
        while slow.send("G") && connected.elapsed() < Duration::from_secs(4) {
            thread::sleep(Duration::from_millis(200));
        }
        slow.answer(Body::AsTold).map(|answer| answer.status)
    };
    let mut status = cut_off();
    while status == Some(503) && begun.elapsed() < Duration::from_secs(15) {
        status = cut_off();
    }
    assert_eq!(status, Some(408));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(Client::connect(media.address).get("/film.mp4", "Range: bytes=0-9\r\n").status, 206);
    assert_eq!(media.get("/metrics").status, 200);
}

#[test]
fn sigterm_ends_it_at_once_and_the_streams_in_their_time() {
    let place = place();
    let media = Watched::start(&place, &[&PACING[..], &["--drain-time", "60s"]].concat());
    // Two more seconds.
    let client = media.stream(
        "GET /film.mp4?rate=80k HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-29999\r\n\r\n",
    );
    let mut events = media.events();
    assert_eq!(events.next().unwrap().0, "history");
    let _stalled = media.events();
    media.signal(Signal::TERM);
    let last = std::iter::from_fn(|| events.next()).last();
    assert_eq!(last.unwrap().0, "end");
    wait_until("free", || TcpListener::bind(media.status()).is_ok());
    let mut rest = Vec::new();
    (&mut client.socket()).read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 20_000, "{}", rest.len());
    let ran = media.0.haul.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.named("ended")[0]["cut"], 0, "{ran:?}");
}

#[test]
fn it_can_be_off_and_an_address_that_is_taken_is_said() {
    let place = place();
    let haul = place.start(&media::words(&place, &["--status", "off"]));
    let line = haul.wait_for("start", |event| event["event"] == "listening");
    assert!(line["status"].is_null() && line["url"].is_string(), "{line}");
    drop(haul);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = taken.local_addr().unwrap().to_string();
    place.run(&media::words(&place, &["--status", &named])).refused(&["--status", &named]);
    place.run(&media::words(&place, &["--status", "nowhere"])).refused(&["--status", "nowhere"]);
    // The usual one is taken by the first at the latest: the second takes another.
    let first = Watched::at(&place, &[]);
    let second = Watched::at(&place, &[]);
    assert_ne!(first.status(), second.status());
    assert!(second.status().ip().is_loopback());
    assert_eq!((first.get("/metrics").status, second.get("/metrics").status), (200, 200));
}

/// Name of a file that would be a script, if the page were careless.
const SCRIPT_NAME: &str = "<img src=x onerror=\"document.title='broken'\">.mp4";
const SCRIPT_TARGET: &str =
    "/%3Cimg%20src=x%20onerror=%22document.title='broken'%22%3E.mp4?rate=80k&<script>";

#[test]
fn a_browser_shows_the_streams_as_they_go_and_says_when_the_server_is_gone() {
    let place = place();
    fs::copy(place.root("film.mp4"), place.root(SCRIPT_NAME)).unwrap();
    let Some(mut browser) = Browser::start(&place) else {
        return haul_testkit::skip::skip("Chromium", "none in PATH");
    };
    let media = Watched::start(&place, &[&PACING[..], &["--max-streams", "2"]].concat());
    let _plain = media.stream(STREAM);
    let _script = media.stream(&format!(
        "GET {SCRIPT_TARGET} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: <i>agent</i>\r\n\r\n"
    ));
    let url = format!("http://{}/", media.status());
    browser.open(&url);
    browser.wait_for("document.querySelectorAll('#sessions tr').length === 2");
    let targets =
        browser.value("[...document.querySelectorAll('.target')].map(e => e.textContent)");
    let targets: Vec<String> = serde_json::from_value(targets).unwrap();
    for target in ["/film.mp4?rate=80k", SCRIPT_TARGET] {
        assert!(targets.iter().any(|one| one == target), "{targets:?}");
    }
    browser.wait_for("document.querySelector('#state').textContent === 'Live'");
    let card = |title: &str| {
        format!(
            "[...document.querySelectorAll('.card')].find(card => card.querySelector('h2')\
            .textContent === '{title}').querySelector('.value').textContent"
        )
    };
    browser.wait_for(&format!("{} === '2'", card("Streams")));
    // Who came when all places were taken.
    let third = Client::connect(media.address).get("/film.mp4?rate=80k", "");
    assert_eq!(third.status, 503);
    let refused = "haul_media_refused_total{why=\"streams\"}";
    wait_until("counted", || media.metric(refused) == 1.0);
    let note = card("Streams").replace(".value", ".note");
    browser.wait_for(&format!("{note} === '100 % of the places taken; 1 refused for the places'"));
    // Live: rates come, periods go on, and the line gets longer.
    for (title, figure) in
        [("Sent", "bit/s$"), ("Processor", "%$"), ("Slack, median of the last minute", "s$")]
    {
        browser.wait_for(&format!("new RegExp('^[0-9].* .*{figure}').test({})", card(title)));
    }
    let periods = "Number(document.querySelector('#sessions tr').children[4].textContent)";
    let before = browser.value(periods).as_u64().unwrap();
    browser.wait_for(&format!("{periods} > {before} + 5"));
    browser
        .wait_for("document.querySelector('.card .line').getAttribute('d').split('L').length > 3");
    assert_eq!(browser.value("document.title"), "haul media");
    assert_eq!(
        browser.value("document.querySelectorAll('main img, main script, main i').length"),
        0
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
    for asked in browser.asked_for() {
        assert!(asked.starts_with(&url) || asked == "about:blank", "{asked}");
    }
    // A phone: nothing is wider than the page.
    let phone = serde_json::json!({
        "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true,
    });
    browser.ask("Emulation.setDeviceMetricsOverride", phone);
    browser.wait_for("document.documentElement.clientWidth === 360");
    browser.wait_for("document.documentElement.scrollWidth <= 360");

    let status = media.status().to_string();
    drop(media);
    browser.wait_for("document.querySelector('#state').textContent.includes('reconnecting')");
    let _again = Watched::at(&place, &["--status", &status]);
    browser.wait_for("document.querySelector('#state').textContent === 'Live'");
    browser.wait_for("document.querySelectorAll('#sessions tr').length === 0");
}
