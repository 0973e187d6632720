//! Equal requests to `haul media` and to nginx: equal status, body and fields that matter.
//!
//! With `--nocapture` it prints the table of the requests. Where nginx is neither installed nor
//! unpacked by `cargo xtask test` it is skipped.

use crate::harness::{
    PATIENCE, Place,
    http::{Answer, Body, Client},
    is_long,
    process::Haul,
    wait_until,
};
use haul_testkit::skip::skip;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

const FILE_BYTES: u64 = 10_000;
/// Number of random ranges; the long variant has a million, as the promise says.
const RANGES: u64 = 5_000;
const RANGES_LONG: u64 = 1_000_000;
/// Attempts to start nginx, which can't be told to listen wherever there is a free port.
const ATTEMPTS: usize = 5;
/// Ranges that one connection is used for; each server has its own limit of them.
const RANGES_OF_CONNECTION: u64 = 20_000;
/// Fields of an answer that are compared, whatever they mean to a client; in small letters.
const FIELDS: [&str; 7] = [
    "content-type",
    "content-length",
    "content-range",
    "accept-ranges",
    "last-modified",
    "connection",
    "location",
];

/// Paths where nginx may be; the last is where `cargo xtask test` unpacks it
/// (xtask/src/unpacked.rs).
const PROGRAMS: [&str; 4] = [
    "/usr/sbin/nginx",
    "/usr/local/sbin/nginx",
    "/usr/bin/nginx",
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/nginx/usr/sbin/nginx"),
];

/// nginx in the foreground, killed when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts nginx; `None` where it is not there.
    fn start(place: &Place) -> Option<Self> {
        let program = PROGRAMS.into_iter().find(|path| fs::exists(path).unwrap_or(false))?;
        let directory = place.path("nginx");
        fs::create_dir_all(&directory).unwrap();
        (0..ATTEMPTS).find_map(|_| Self::start_at_some_port(program, place)).or_else(|| {
            let log = fs::read_to_string(directory.join("error.log")).unwrap_or_default();
            panic!("nginx did not start in {ATTEMPTS} attempts:\n{log}")
        })
    }

    /// Starts nginx at a free port; `None` where another took the port between its choice and
    /// nginx's use of it.
    fn start_at_some_port(program: &str, place: &Place) -> Option<Self> {
        let directory = place.path("nginx");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = |name: &str| directory.join(name).display().to_string();
        let temporaries = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", path(kind)));
        let configuration = format!(
            "daemon off; master_process off; pid {}; error_log {};
            events {{ worker_connections 512; }}
            http {{
                access_log off; {} sendfile on; keepalive_requests 1000000;
                types {{ video/mp4 mp4; video/mp2t ts; text/html html; }}
                default_type application/octet-stream;
                server {{ listen 127.0.0.1:{port}; root {}; }}
            }}",
            path("pid"),
            path("error.log"),
            temporaries.join(" "),
            place.path("root").display(),
        );
        fs::write(directory.join("conf"), configuration).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(&directory).arg("-c").arg(directory.join("conf"));
        command.arg("-e").arg(directory.join("error.log"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut nginx = Self { child, address };
        // Whoever took the port would answer a connection; the file is written by nginx itself, and
        // only when it listens.
        let is_there =
            || fs::read_to_string(directory.join("pid")).is_ok_and(|pid| !pid.is_empty());
        let mut has_ended = false;
        wait_until("nginx", || {
            has_ended = nginx.child.try_wait().unwrap().is_some();
            has_ended || is_there()
        });
        (!has_ended).then_some(nginx)
    }
}

/// A haul and an nginx with the same files, and connections to both.
struct Both {
    _haul: Haul,
    _nginx: Nginx,
    addresses: [SocketAddr; 2],
}

fn both(place: &Place) -> Option<Both> {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    for (name, len_bytes) in [("film.mp4", FILE_BYTES), ("one.ts", 1), ("none.mp4", 0)] {
        place.file(&place.root(name), len_bytes);
        let file = fs::File::options().write(true).open(place.root(name)).unwrap();
        file.set_modified(modified).unwrap();
    }
    fs::create_dir_all(place.root("films/a b")).unwrap();
    fs::write(place.root("films/index.html"), "<p>films</p>").unwrap();
    fs::write(place.root("films/a b/c%d.mp4"), "odd").unwrap();
    let nginx = Nginx::start(place)?;
    let haul = place.start(&words![
        "media",
        place.path("root"),
        "--listen",
        "127.0.0.1:0",
        "--cors",
        "off",
        "--host-name",
        "a",
        "--no-index"
    ]);
    let line = haul.wait_for("start", |event| event["event"] == "listening");
    let url = line["url"].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let addresses = [address, nginx.address];
    Some(Both { _haul: haul, _nginx: nginx, addresses })
}

/// The part of an answer that counts: bodies of errors are each server's own words.
fn essence(mut answer: Answer) -> Answer {
    let has_own_words = answer.status >= 300;
    answer.fields.retain(|(name, _)| FIELDS.contains(&&name[..]));
    answer.fields.sort();
    if has_own_words {
        answer.body.clear();
        answer.fields.retain(|(name, _)| !["content-type", "content-length"].contains(&&name[..]));
    }
    for (name, value) in &mut answer.fields {
        // nginx names itself in full; both forms are the same place (RFC 9110, 10.2.2).
        if name == "location"
            && let Some((_, behind)) = value.clone().split_once("://")
        {
            *value = behind[behind.find('/').unwrap()..].to_owned();
        }
        // Each numbers its own parts.
        if let Some(boundary) = value.strip_prefix("multipart/byteranges; boundary=") {
            let text = boundary.as_bytes();
            let places: Vec<usize> = (0..answer.body.len().saturating_sub(text.len() - 1))
                .filter(|&at| answer.body[at..].starts_with(text))
                .collect();
            for at in places {
                answer.body[at..at + text.len()].fill(b'0');
            }
            *value = format!("multipart/byteranges; boundary of {}", text.len());
        }
    }
    answer
}

fn ask(address: SocketAddr, request: &str) -> Option<Answer> {
    let mut client = Client::connect(address);
    client.socket().set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(request);
    let body = if request.starts_with("HEAD") { Body::None } else { Body::AsTold };
    client.answer(body).map(essence)
}

fn requests() -> Vec<String> {
    [of_targets(), of_ranges(), of_conditions(), of_odd_heads()].concat()
}

fn of_targets() -> Vec<String> {
    let mut all = Vec::new();
    for target in [
        "/film.mp4",
        "/one.ts",
        "/none.mp4",
        "/films",
        "/films/",
        "/films?a=b",
        "/films/a%20b/",
        "/films/a%20b/c%25d.mp4",
        "/nothing",
        "/film.mp4/",
        "/films/../film.mp4",
        "/..",
        "/%2e%2e/x",
        "//film.mp4",
        "/./film.mp4",
        "/film%2Emp4",
        "/film.mp4?a=1",
        "/film.mp4#a",
        "/%zz",
        "/film.mp4%00",
        "http://a/film.mp4",
        "/FILM.mp4",
        "/films/a%20b",
    ] {
        for method in ["GET", "HEAD"] {
            all.push(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
    }
    all
}

fn of_ranges() -> Vec<String> {
    let mut all = Vec::new();
    for fields in [
        "Range: bytes=0-0",
        "Range: bytes=0-",
        "Range: bytes=-1",
        "Range: bytes=-0",
        "Range: bytes=9999-",
        "Range: bytes=10000-",
        "Range: bytes=5-2",
        "Range: bytes=0-1,4-5",
        "Range: bytes=0-5000,4000-9999",
        "Range: bytes=0-9999,0-9999",
        "Range: bytes=a-b",
        "Range: bytes=1-2,",
        "Range: bytes=",
        "Range: bits=0-1",
        "Range: bytes 0-1",
        "Range: bytes=0-1,20000-",
        "Range: bytes=20000-,0-1",
        "Range: BYTES=0-1",
        "Range: bytes=99999999999999999999-",
        "Range: bytes= 0 - 1 ,  5 - 6 ",
        "Range: bytes=0-1\r\nRange: bytes=2-3",
        "Range: bytes=- 5",
        "Range: bytes=--5",
    ] {
        for target in ["/film.mp4", "/one.ts", "/none.mp4"] {
            all.push(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        }
        all.push(format!("HEAD /film.mp4 HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        all.push(format!("GET /film.mp4 HTTP/1.0\r\n{fields}\r\n\r\n"));
    }
    all
}

fn of_conditions() -> Vec<String> {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let other = "Sun, 06 Nov 1994 08:49:38 GMT";
    let mut all = Vec::new();
    for condition in [
        format!("If-Modified-Since: {date}"),
        format!("If-Modified-Since: {other}"),
        "If-Modified-Since: x".to_owned(),
        format!("If-Unmodified-Since: {date}"),
        format!("If-Unmodified-Since: {other}"),
        "If-Unmodified-Since: Sat, 05 Nov 1994 08:49:37 GMT".to_owned(),
        "If-None-Match: *".to_owned(),
        "If-None-Match: \"x\"".to_owned(),
        "If-Match: *".to_owned(),
        "If-Match: \"x\", W/\"y\"".to_owned(),
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}"),
        format!("If-Range: {date}\r\nRange: bytes=1-2"),
        format!("If-Range: {other}\r\nRange: bytes=1-2"),
        "If-Range: \"x\"\r\nRange: bytes=1-2".to_owned(),
        format!("If-Modified-Since: {date}\r\nRange: bytes=1-2"),
        "If-None-Match: \"x\"\r\nIf-None-Match: *".to_owned(),
        "If-Match: *\r\nIf-Match: \"x\"".to_owned(),
        format!("If-Modified-Since: {other}\r\nIf-Modified-Since: {date}"),
        format!("If-Unmodified-Since: {date}\r\nIf-Unmodified-Since: {date}"),
        format!("If-Range: {date}\r\nIf-Range: {date}\r\nRange: bytes=1-2"),
        "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT".to_owned(),
        "If-Modified-Since: Sun Nov  6 08:49:37 1994".to_owned(),
    ] {
        for method in ["GET", "HEAD"] {
            all.push(format!("{method} /film.mp4 HTTP/1.1\r\nHost: a\r\n{condition}\r\n\r\n"));
        }
    }
    all
}

fn of_odd_heads() -> Vec<String> {
    let mut all = Vec::new();
    for whole in [
        "GET /film.mp4 HTTP/1.1\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /film.mp4 HTTP/1.0\r\n\r\n",
        "GET /film.mp4 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "GET /film.mp4 HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /film.mp4 HTTP/1.2\r\nHost: a\r\n\r\n",
        "get /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /film.mp4 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
        "PUT /film.mp4 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
        "DELETE /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "BREW /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ://a/film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "\r\n\r\nGET /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\nHost: a\n\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nRange : bytes=0-1\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
            Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\
            \r\n\r\n0\r\n\r\n",
    ] {
        all.push(whole.to_owned());
    }
    all
}

#[test]
fn the_same_requests_have_the_same_answers() {
    let place = Place::new();
    let Some(both) = both(&place) else { return skip("nginx", "none") };
    let mut different = Vec::new();
    for request in requests() {
        let [haul, nginx] = both.addresses.map(|address| ask(address, &request));
        let status = |answer: &Option<Answer>| answer.as_ref().map_or(0, |answer| answer.status);
        let (mark, shown) =
            (if haul == nginx { "  " } else { "!!" }, request.trim().escape_debug());
        println!("{mark} {:3} {:3}  {shown}", status(&haul), status(&nginx));
        if haul != nginx {
            different.push(format!("{shown}\n  haul {:?}\n nginx {:?}", haul, nginx));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// A field that is none, which nginx passes over; two servers that read one differently is how
/// requests are smuggled past a proxy.
#[test]
fn a_field_that_is_none_is_refused_where_nginx_passes_over_it() {
    let place = Place::new();
    let Some(both) = both(&place) else { return skip("nginx", "none") };
    let request = "GET /film.mp4 HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n";
    let [haul, nginx] = both.addresses.map(|address| ask(address, request).unwrap().status);
    assert_eq!((haul, nginx), (400, 200));
}

/// Tags of a file, of which each server has its own, and which mean the same.
#[test]
fn each_servers_own_tag_means_the_same_in_conditions() {
    let place = Place::new();
    let Some(both) = both(&place) else { return skip("nginx", "none") };
    for conditions in [
        "If-None-Match: TAG",
        "If-None-Match: W/TAG",
        "If-None-Match: \"x\", TAG",
        "If-Match: TAG",
        "If-Match: W/TAG",
        "If-Match: \"x\" , TAG",
        "If-Range: TAG\r\nRange: bytes=1-2",
        "If-Range: W/TAG\r\nRange: bytes=1-2",
        "If-None-Match: TAG\r\nRange: bytes=1-2",
        "If-Match: TAG\r\nIf-None-Match: TAG",
    ] {
        let [haul, nginx] = both.addresses.map(|address| {
            let tag = Client::connect(address).get("/film.mp4", "");
            let conditions = conditions.replace("TAG", tag.field("etag").unwrap());
            ask(address, &format!("GET /film.mp4 HTTP/1.1\r\nHost: a\r\n{conditions}\r\n\r\n"))
        });
        assert_eq!(haul, nginx, "{conditions}");
    }
}

/// Requests that haul refuses where nginx does not: a proxy and a server might read one as two, or
/// haul has a smaller limit. What nginx allows stands beside it (docs/decisions/0021).
#[test]
fn where_the_two_differ_it_is_known() {
    let place = Place::new();
    let Some(both) = both(&place) else { return skip("nginx", "none") };
    let many = "A: b\r\n".repeat(150);
    let ranges = (0..201).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
    let long = format!("A: {}\r\n", "b".repeat(9_000));
    for (fields, expected) in [
        (many, (431, 200)),
        (long, (200, 400)),
        (format!("Range: bytes={ranges}\r\n"), (200, 206)),
        ("X(y): z\r\n".to_owned(), (400, 200)),
    ] {
        let request = format!("GET /film.mp4 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let found = both.addresses.map(|address| ask(address, &request).unwrap().status);
        assert_eq!((found[0], found[1]), expected, "{fields:.60}");
    }
    // The host of the target counts, and haul is told by which names it goes.
    let other = "GET http://else/film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n";
    let found = both.addresses.map(|address| ask(address, other).unwrap().status);
    assert_eq!(found, [421, 200]);
    let missing = "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let found = both.addresses.map(|address| ask(address, missing).unwrap().status);
    assert_eq!(found, [405, 404]);
}

#[test]
fn random_ranges_have_the_same_answers() {
    let place = Place::new();
    let Some(both) = both(&place) else { return skip("nginx", "none") };
    let mut random = place.seed.random();
    let mut clients = both.addresses.map(Client::connect);
    let number = |random: &mut haul_testkit::seed::Random| match random.below(8) {
        0 => String::new(),
        1 => "0".to_owned(),
        2 => (FILE_BYTES - 2 + random.below(4)).to_string(),
        3 => random.below(u64::MAX).to_string(),
        _ => random.below(FILE_BYTES).to_string(),
    };
    let (mut count, mut parts) = ([0_u64; 600], 0_usize);
    for at in 0..if is_long() { RANGES_LONG } else { RANGES } {
        if at % RANGES_OF_CONNECTION == 0 {
            clients = both.addresses.map(Client::connect);
        }
        let mut set = Vec::new();
        for _ in 0..=random.below(4) {
            let (first, last) = (number(&mut random), number(&mut random));
            let blank = |random: &mut haul_testkit::seed::Random| match random.below(20) {
                0 => " ",
                _ => "",
            };
            let dash = if random.below(40) == 0 { "" } else { "-" };
            let [one, two] = [blank(&mut random), blank(&mut random)];
            set.push(format!("{one}{first}{dash}{two}{last}"));
        }
        let unit = if random.below(50) == 0 { "Bytes=" } else { "bytes=" };
        let range = format!("{unit}{}", set.join(","));
        let file = ["/film.mp4", "/film.mp4", "/film.mp4", "/one.ts", "/none.mp4"];
        let file = file[random.below(5) as usize];
        let [haul, nginx] = clients
            .each_mut()
            .map(|client| essence(client.get(file, &format!("Range: {range}\r\n"))));
        assert_eq!(haul, nginx, "{file} {range:?}");
        count[usize::from(haul.status)] += 1;
        let of_parts = |(_, value): &(String, String)| value.starts_with("multipart/");
        parts += usize::from(haul.fields.iter().any(of_parts));
    }
    println!(
        "soak: {} random ranges answered as by nginx: {} whole, {} in part ({parts} of them in \
         several parts), {} refused",
        count.iter().sum::<u64>(),
        count[200],
        count[206],
        count[416]
    );
    assert!([count[200], count[206], count[416]].iter().all(|&count| count > 0));
}
