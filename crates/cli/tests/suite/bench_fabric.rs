//! The real `haul bench fabric`: each figure, ratio and verdict computed again from its rounds.
//!
//! No test looks at how fast anything is.

use crate::harness::{Place, process::Haul};
use haul_report::units::{bytes, three_digits};
use haul_testkit::skip::skip;
use serde_json::Value;
use std::fs;

const PROVIDERS: [&str; 2] = ["shm", "tcp"];
const MESSAGES: [u64; 3] = [4, 4096, 1 << 20];
const FILES: [u64; 3] = [1 << 10, 64 << 10, 5 << 20];
const MESSAGE_WAYS: [&str; 4] = ["tcp", "poll", "sleep", "adaptive"];
const FILE_WAYS: [&str; 3] = ["tcp_sendfile", "one_copy", "send_file"];

/// Whether this build has libfabric; where not, the test is skipped.
fn has_fabric() -> bool {
    if !cfg!(feature = "fabric") {
        skip("libfabric-dev 1.17 or newer, and pkg-config", "a build without");
    }
    cfg!(feature = "fabric")
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.get(values.len().checked_sub(1)? / 2)?, values[values.len() / 2]);
    Some((below + above) / 2.0)
}

/// Cells of a run, read from its lines alone.
struct Cells<'lines>(&'lines [Value]);

impl Cells<'_> {
    fn cell(&self, table: &str, provider: &str, way: &str, len_bytes: u64) -> &Value {
        let is_it = |line: &&Value| {
            line["table"] == table
                && line["provider"] == provider
                && (line["way"] == way || table == "fi_pingpong")
                && line["bytes"] == len_bytes
        };
        let mut found = self.0.iter().filter(is_it);
        let cell = found.next().unwrap_or_else(|| panic!("{table} {provider} {way} {len_bytes}"));
        assert!(found.next().is_none(), "twice: {cell}");
        cell
    }

    /// The median of a figure over the rounds of a cell, computed from them.
    fn computed(&self, cell: &Value, figure: &str) -> f64 {
        let runs = cell["runs"].as_array().unwrap();
        let values = runs.iter().map(|run| {
            let of = |key: &str| run[key].as_f64().unwrap();
            let (repeats, bytes) = (of("repeats"), cell["bytes"].as_f64().unwrap());
            let halves = if cell["table"] == "latency" { 2.0 } else { 1.0 };
            match figure {
                "latency_us" => of("sender_ns") / 1e3 / repeats / halves,
                "cpu_us" => of("cpu_ns") / 1e3 / repeats,
                "cpu_share" => of("cpu_ns") / of("sender_ns"),
                "mb_per_s" => bytes * repeats * 1e3 / of("all_ns"),
                "registering_us" => of("registering_ns") / 1e3 / repeats,
                other => panic!("no figure {other}"),
            }
        });
        median(values.collect()).unwrap()
    }

    fn of(&self, figure: &str, table: &str, provider: &str, way: &str, len_bytes: u64) -> f64 {
        self.computed(self.cell(table, provider, way, len_bytes), figure)
    }

    /// Whether the rule of a figure holds for the first provider.
    fn holds(&self, figure: &str) -> bool {
        let provider = PROVIDERS[0];
        let small_files = FILES.iter().filter(|bytes| **bytes <= 256 << 10);
        let best = |way| {
            let all =
                MESSAGES.iter().map(|len| self.of("mb_per_s", "bandwidth", provider, way, *len));
            all.fold(0.0, f64::max)
        };
        match figure {
            "latency" => {
                let of = |way| self.of("latency_us", "latency", provider, way, MESSAGES[0]);
                of("poll") < of("tcp")
            }
            "bandwidth" => best("poll") > best("tcp"),
            "processor use by message size" => MESSAGES.iter().all(|len| {
                let of = |way| self.of("cpu_us", "bandwidth", provider, way, *len);
                of("sleep") < of("tcp")
            }),
            "file latency by size" => small_files.clone().all(|len| {
                let of = |way| self.of("latency_us", "files", provider, way, *len);
                of("send_file") < of("tcp_sendfile")
            }),
            "file processor time by size" => small_files.clone().all(|len| {
                let of = |way| self.of("cpu_us", "files", provider, way, *len);
                of("send_file") < of("one_copy")
            }),
            other => panic!("no figure {other}"),
        }
    }

    /// Columns of a table on the page, behind those that are words.
    fn columns(&self, title: &str, provider: &str, row: &[String]) -> Vec<String> {
        let len_of = |name: &str| {
            let mut lengths = MESSAGES.iter().chain(&FILES).copied();
            lengths.find(|len| bytes(*len) == name).unwrap()
        };
        let len_bytes = len_of(&row[0]);
        let of =
            |figure: &str, table: &str, way: &str| self.of(figure, table, provider, way, len_bytes);
        let by_way = |figure: &str, table: &str| {
            MESSAGE_WAYS.map(|way| three_digits(of(figure, table, way))).to_vec()
        };
        match title {
            "latency, us" => by_way("latency_us", "latency"),
            "processors busy" => by_way("cpu_share", "latency"),
            "bandwidth, MB/s" => by_way("mb_per_s", "bandwidth"),
            "processor time, us" => by_way("cpu_us", "bandwidth"),
            "sender's time of a file" => {
                let way = file_way(&row[1]);
                let cell = self.cell("files", provider, way, len_bytes);
                let end = |end: &str| three_digits(cell["latency_us"][end].as_f64().unwrap());
                let time = of("latency_us", "files", way);
                let repeats: u64 = runs(cell).map(|run| run["repeats"].as_u64().unwrap()).sum();
                vec![
                    three_digits(time),
                    end("lowest"),
                    end("highest"),
                    three_digits(time / of("latency_us", "files", "tcp_sendfile")),
                    three_digits(of("mb_per_s", "files", way)),
                    repeats.to_string(),
                ]
            }
            "sender's processor time of a file" => {
                let way = file_way(&row[1]);
                let cell = self.cell("files", provider, way, len_bytes);
                let end = |end: &str| three_digits(cell["cpu_us"][end].as_f64().unwrap());
                let cpu = of("cpu_us", "files", way);
                let share = |key: &str| cell[key].as_f64();
                let shown = |value: Option<f64>| value.map_or("-".to_owned(), three_digits);
                let is_window = share("window_per_byte").is_some_and(|share| share > 0.0);
                vec![
                    three_digits(cpu),
                    end("lowest"),
                    end("highest"),
                    three_digits(cpu / of("cpu_us", "files", "one_copy")),
                    shown(is_window.then(|| of("registering_us", "files", way))),
                    shown(share("copied_per_byte")),
                    shown(share("window_per_byte")),
                ]
            }
            other => panic!("no table {other}"),
        }
    }
}

fn runs(cell: &Value) -> impl Iterator<Item = &Value> {
    cell["runs"].as_array().unwrap().iter()
}

fn file_way(name: &str) -> &'static str {
    match name {
        "TCP sendfile" => "tcp_sendfile",
        "endpoint, one copy" => "one_copy",
        "endpoint, send_file" => "send_file",
        other => panic!("no way {other}"),
    }
}

fn is(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * other.abs().max(1.0)
}

/// Checks the figures of a cell, and its ratios to its neighbours, by its rounds.
fn is_of_its_rounds(cells: &Cells<'_>, cell: &Value) {
    assert!(cell["refused"].is_null(), "{cell}");
    assert_eq!(runs(cell).count(), 2, "each round is kept: {cell}");
    for run in runs(cell) {
        let repeats = run["repeats"].as_u64().unwrap();
        assert!((3..=20).contains(&repeats), "{run}");
    }
    for figure in ["latency_us", "cpu_us", "cpu_share", "mb_per_s", "registering_us"] {
        let told = cell[figure]["median"].as_f64().unwrap();
        assert!(is(told, cells.computed(cell, figure)), "{figure}: {cell}");
    }
    let sum = |key: &str| runs(cell).map(|run| run[key].as_u64().unwrap()).sum::<u64>();
    let sent = (sum("repeats") * cell["bytes"].as_u64().unwrap()) as f64;
    let counts = ["copied", "buffered", "window"];
    let way = cell["way"].as_str().unwrap();
    if way.starts_with("tcp") {
        return assert!(counts.iter().all(|name| cell[format!("{name}_per_byte")].is_null()));
    }
    for name in counts {
        let told = cell[format!("{name}_per_byte")].as_f64().unwrap();
        assert!(is(told, sum(&format!("{name}_bytes")) as f64 / sent), "{name}: {cell}");
    }
    let of = |name: &str| cell[format!("{name}_per_byte")].as_f64().unwrap();
    let provider = cell["provider"].as_str().unwrap();
    let beside = |figure: &str, other: &str| {
        let len_bytes = cell["bytes"].as_u64().unwrap();
        cells.computed(cell, figure) / cells.of(figure, "files", provider, other, len_bytes)
    };
    if cell["table"] == "files" {
        // All of a file goes one of both ways, and a window is copied by nobody here.
        assert!(is(of("buffered") + of("window"), 1.0), "{cell}");
        assert!(is(of("copied"), of("buffered")), "{cell}");
        let is_window = way == "send_file" && cell["bytes"].as_u64().unwrap() > 16 << 10;
        assert!(is(of("window"), f64::from(u8::from(is_window))), "{cell}");
        let told = |key: &str| cell[key].as_f64().unwrap();
        assert!(is(told("time_of_tcp"), beside("latency_us", "tcp_sendfile")), "{cell}");
        assert!(is(told("cpu_of_one_copy"), beside("cpu_us", "one_copy")), "{cell}");
    } else {
        assert!(cell["time_of_tcp"].is_null() && cell["cpu_of_one_copy"].is_null(), "{cell}");
    }
}

/// Rows of a table on a page: its cells as text.
fn rows(html: &str, caption: &str) -> Vec<Vec<String>> {
    let begin = format!("<caption>{caption}</caption>");
    let at = html.find(&begin).unwrap_or_else(|| panic!("no table {caption}"));
    let table = &html[at..at + html[at..].find("</table>").unwrap()];
    let body = table.split("<tbody>").nth(1).unwrap();
    let cells = |row: &str| {
        let cells = row.split("</td>").filter_map(|cell| Some(cell.rsplit_once('>')?.1.to_owned()));
        cells.filter(|cell| !cell.trim().is_empty()).collect::<Vec<_>>()
    };
    body.split("</tr>").map(cells).filter(|row| !row.is_empty()).collect()
}

#[test]
fn each_column_and_verdict_of_messages_and_files_follows_from_the_rounds() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let page = place.path("page.html");
    let words = words!["bench", "fabric", "--quick", "--fabric=shm,tcp", "--rounds=2", "--json"];
    let sizes = words!["--message-sizes=4,4K,1M", "--file-sizes=1K,64K,5M", "--repeats=20"];
    let more = words!["--only=messages,files", "--html", page, "--dir", place.path("target")];
    let ran = Haul::start(place.command(&[words, sizes, more].concat())).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), 0, "it left something behind");
    let cells = Cells(&ran.events);
    for provider in PROVIDERS {
        for (table, ways, lengths) in [
            ("latency", &MESSAGE_WAYS[..], MESSAGES),
            ("bandwidth", &MESSAGE_WAYS[..], MESSAGES),
            ("files", &FILE_WAYS[..], FILES),
        ] {
            for len_bytes in lengths {
                for way in ways {
                    is_of_its_rounds(&cells, cells.cell(table, provider, way, len_bytes));
                }
            }
        }
    }
    let figures: Vec<&Value> = ran.events.iter().filter(|one| one["event"] == "figure").collect();
    assert_eq!(figures.len(), 5, "{ran:?}");
    for figure in figures {
        let holds = cells.holds(figure["figure"].as_str().unwrap());
        let expected = if holds { "came_out" } else { "did_not_come_out" };
        assert_eq!(figure["verdict"], expected, "{figure}");
        assert!(figure["sentence"].as_str().unwrap().starts_with("by shm, "), "{figure}");
    }
    let html = fs::read_to_string(&page).unwrap();
    for provider in PROVIDERS {
        for (title, lengths, word_columns) in [
            ("latency, us", MESSAGES.len(), 1),
            ("processors busy", MESSAGES.len(), 1),
            ("bandwidth, MB/s", MESSAGES.len(), 1),
            ("processor time, us", MESSAGES.len(), 1),
            ("sender's time of a file", FILES.len() * FILE_WAYS.len(), 2),
            ("sender's processor time of a file", FILES.len() * FILE_WAYS.len(), 2),
        ] {
            let caption = format!("{provider}: {}", title.replace('\'', "&#39;"));
            let rows = rows(&html, &caption);
            assert_eq!(rows.len(), lengths, "{caption}");
            for row in rows {
                let expected = cells.columns(title, provider, &row);
                assert_eq!(row[word_columns..], expected, "{caption}: {row:?}");
            }
        }
    }
    assert!(html.matches("<svg").count() == 10, "five charts for each provider");
}

#[test]
fn messages_to_and_fro_stand_beside_fi_pingpong_where_it_is_installed() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let words = words!["bench", "fabric", "--quick", "--fabric=tcp", "--only=ping-pong"];
    let more = words!["--repeats=3", "--json", "--html", place.path("page.html"), "--dir"];
    let words = [words, more, words![place.path("target")]].concat();
    let mut command = place.command(&words);
    command.env("PATH", place.path("nowhere"));
    let ran = Haul::start(command).finish();
    assert_ne!(ran.status, 0, "nothing was measured: {ran:?}");
    let html = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(html.contains("needs fi_pingpong, found no such program"), "{html}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|path| path.join("fi_pingpong").exists()) {
        return skip("fi_pingpong", "no such program: install libfabric-bin");
    }
    let mut command = place.command(&words);
    command.env("PATH", path);
    let ran = Haul::start(command).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let html = fs::read_to_string(place.path("page.html")).unwrap();
    let rows = rows(&html, "Medians");
    let lines: Vec<&Value> =
        ran.events.iter().filter(|line| line["table"] == "fi_pingpong").collect();
    assert_eq!((lines.len(), rows.len()), (4, 4), "{ran:?}");
    for (line, row) in lines.into_iter().zip(rows) {
        let of = |key: &str| {
            let rounds = line[key].as_array().unwrap();
            assert_eq!(rounds.len(), 1, "{line}");
            median(rounds.iter().map(|round| round.as_f64().unwrap()).collect()).unwrap()
        };
        let (ours, other) = (of("rounds_us"), of("rounds_fi_pingpong_us"));
        assert!(is(line["latency_us"]["median"].as_f64().unwrap(), ours), "{line}");
        assert!(is(line["fi_pingpong_us"]["median"].as_f64().unwrap(), other), "{line}");
        assert!(is(line["ratio"].as_f64().unwrap(), ours / other), "{line}");
        let expected = [ours, other, ours / other].map(three_digits);
        assert_eq!(row[2..], expected, "{row:?}");
        assert_eq!(row[1], bytes(line["bytes"].as_u64().unwrap()));
    }
}

#[test]
fn a_provider_that_this_host_does_not_have_is_refused_with_what_it_needs() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let bench = |more: &[&str]| {
        let words = words!["bench", "fabric", "--quick", "--json", "--dir", place.path("target")];
        let more = more.iter().map(std::ffi::OsString::from).collect();
        Haul::start(place.command(&[words, more].concat())).finish()
    };
    // No card has an address that is for documents only (RFC 5737).
    let ran = bench(&["--fabric=verbs", "--address=192.0.2.1"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    let problem = ran.events[0].to_string();
    assert!(problem.contains("no verbs endpoint here: needs a card with RDMA"), "{problem}");
    let some = ["--repeats=3", "--only=messages", "--message-sizes=4"];
    let ran = bench(&[&["--fabric=verbs,shm", "--address=192.0.2.1"], &some[..]].concat());
    assert_eq!(ran.status, 0, "shm needs no address of a card: {ran:?}");
    let is_missing = |line: &&Value| line["event"] == "provider" && line["refused"].is_string();
    let missing: Vec<&Value> = ran.events.iter().filter(is_missing).collect();
    assert_eq!(missing.len(), 1, "{ran:?}");
    assert_eq!(missing[0]["provider"], "verbs");
    assert!(ran.events.iter().any(|line| line["provider"] == "shm" && line["table"] == "latency"));
    let ran = bench(&["--fabric=efa"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    let words = format!("{ran:?}");
    assert!(words.contains("there are verbs, shm and tcp"), "{words}");
}

#[test]
fn a_build_without_libfabric_says_how_to_get_one() {
    if cfg!(feature = "fabric") {
        return;
    }
    let place = Place::new();
    let words = words!["bench", "fabric", "--quick", "--json", "--dir", place.path("target")];
    let ran = Haul::start(place.command(&words)).finish();
    assert_eq!(ran.status, 2, "{ran:?}");
    let problem = ran.events[0].to_string();
    assert!(problem.contains("cargo install --path crates/cli --features fabric"), "{problem}");
}
