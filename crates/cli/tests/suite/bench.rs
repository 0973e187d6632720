//! The real `haul bench`: what it measures, prints and draws, and that it leaves nothing behind.
//!
//! No test looks at how fast anything is: only that it was measured, or why it was not.

use haul_datapath::engines::ENGINES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest time that anything may take. Far more than needed: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn bench(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.arg("bench").args(words).current_dir(directory).env_remove("HAUL_TOKEN");
    command
}

/// Runs a bench: returns the objects it printed, and checks that nothing new is in the directory.
fn measured(directory: &Path, words: &[&str]) -> Vec<Value> {
    let before = names(directory);
    let output = bench(directory, &[words, &["--json"]].concat()).output().unwrap();
    let lines = objects(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after: Vec<_> = names(directory).into_iter().filter(|name| name != PAGE).collect();
    assert_eq!(after, before, "it left something behind");
    assert_eq!(lines[0]["event"], "host");
    assert_eq!(lines[0]["wire"], "loopback");
    lines
}

const PAGE: &str = "page.html";

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn of_table<'a>(lines: &'a [Value], table: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["table"] == table).collect()
}

/// Checks that a cell has a rate with what it cost both sides, or says why there is none.
#[track_caller]
fn has_a_rate_or_a_reason(cell: &Value) {
    if cell["refused"].is_string() {
        assert!(!cell["refused"].as_str().unwrap().is_empty() && cell["gb_per_s"].is_null());
        return;
    }
    assert!(cell["gb_per_s"]["median"].as_f64().unwrap() > 0.0, "{cell}");
    for side in ["send", "receive"] {
        assert!(cell[side]["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{cell}");
        let calls = &cell[side]["system_calls_per_gb"];
        assert!(calls.is_null() || calls.as_f64().unwrap() > 0.0, "{cell}");
    }
}

/// Checks that a page is whole, with charts, and nothing that a browser would fetch or run.
#[track_caller]
fn is_a_page(path: &Path) {
    let page = fs::read_to_string(path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for element in ["svg", "table", "section", "figure", "tr", "td", "text", "p"] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    assert!(page.contains("<svg ") && page.contains("prefers-color-scheme"));
    for foreign in ["<script", "src=", "href=", "url(", "@import", "NaN"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn every_pair_of_the_engine_list_has_a_rate_or_a_reason() {
    let fresh = TempDir::new().unwrap();
    let lines = measured(
        fresh.path(),
        &[
            "engines",
            "--quick",
            "--size=8M",
            "--rounds=1",
            "--block-sizes=64K",
            "--streams=2",
            "--html",
            PAGE,
        ],
    );
    let pairs = of_table(&lines, "pairs");
    let senders =
        || ENGINES.iter().filter(|engine| engine.takes_tcp() && engine.open_send.is_some());
    let receivers =
        || ENGINES.iter().filter(|engine| engine.takes_tcp() && engine.open_receive.is_some());
    for send in senders() {
        for receive in receivers() {
            let found = pairs.iter().filter(|cell| {
                cell["send_engine"] == send.name && cell["receive_engine"] == receive.name
            });
            assert_eq!(found.count(), 1, "{} to {}", send.name, receive.name);
        }
    }
    assert_eq!(pairs.len(), senders().count() * receivers().count());
    assert_eq!(of_table(&lines, "cold").len(), senders().count());
    assert_eq!(of_table(&lines, "blocks").len(), senders().count() + receivers().count());
    let offsets = of_table(&lines, "offsets");
    let region = |cell: &&Value| cell["region_bytes"].as_u64();
    let regions: Vec<_> = offsets.iter().step_by(2).map(region).collect();
    let each = [Some(64 << 10), Some(1 << 20), None, Some(1 << 20), None];
    assert_eq!(regions, [each, each].concat(), "to both receivers, smaller than 8M or all");
    assert_eq!(offsets.len(), 2 * 2 * 5, "two engines to two receivers, fixed and advancing");
    assert_eq!(of_table(&lines, "streams").len(), 3);
    for cell in lines.iter().filter(|line| line["event"] == "cell") {
        has_a_rate_or_a_reason(cell);
    }
    let copies = |cell: &&Value| cell["send"]["copies_per_byte"].as_f64();
    let by = |engine: &str| pairs.iter().find(|cell| cell["send_engine"] == engine).map(copies);
    assert_eq!(by("sendfile").flatten(), Some(0.0));
    assert_eq!(by("read-write").flatten(), Some(1.0));
    is_a_page(&fresh.path().join(PAGE));
}

#[test]
fn the_studies_are_repeated_beside_their_own_figures() {
    let fresh = TempDir::new().unwrap();
    let lines = measured(fresh.path(), &["files", "--quick", "--size=64M", "--html", PAGE]);
    let files = of_table(&lines, "files");
    let sizes: Vec<&str> = files.iter().map(|cell| cell["file"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["7 MB", "21 MB", "63 MB"]);
    assert_eq!(files[0]["study_traditional_ms"], 156);
    for cell in &files {
        assert!(cell["traditional_ms"]["median"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["zero_copy_ms"]["median"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let recordings = of_table(&lines, "recordings");
    assert_eq!(recordings.len(), 8, "two methods to two targets, haul's best pair, a smaller file");
    let receivers = |name: &str| {
        let of_name =
            recordings.iter().filter(|line| line["name"].as_str().unwrap().contains(name));
        of_name.map(|line| line["receive_engine"].as_str().unwrap()).collect::<Vec<_>>()
    };
    for target in ["recorded", "to memory only", "inside one machine"] {
        let of = |method: &str| receivers(&format!("{method}, {target}"));
        assert_eq!(of("zero-copy"), of("read-write"), "sending is the only difference");
    }
    for recording in recordings {
        let seconds = recording["seconds"].as_f64().unwrap();
        assert!(recording["recorded_gbit_per_s"].as_f64().unwrap() > 0.0, "{recording}");
        let points = recording["sending"].as_array().unwrap();
        // Ten looks a second: at least one falls into a run that took longer than two of them.
        assert!(seconds < 0.3 || !points.is_empty(), "{recording}");
    }
    is_a_page(&fresh.path().join(PAGE));
}

#[test]
fn each_protection_stands_beside_the_bare_cipher() {
    let fresh = TempDir::new().unwrap();
    let lines = measured(fresh.path(), &["protection", "--size=8M", "--rounds=3", "--html", PAGE]);
    let cells = of_table(&lines, "protection");
    assert_eq!(cells.len(), 8, "three protections, one of them twice, to two targets");
    let bare = of_table(&lines, "cipher");
    let mut bare: Vec<f64> =
        bare.iter().map(|line| line["seal_gb_per_s"].as_f64().unwrap()).collect();
    assert_eq!(bare.len(), 3, "one a round");
    bare.sort_by(f64::total_cmp);
    for cell in &cells {
        if cell["refused"].is_string() {
            assert_eq!(cell["encrypted_by"], "kernel", "{cell}");
            continue;
        }
        let rounds = cell["rounds_gb_per_s"].as_array().unwrap();
        let mut rounds: Vec<f64> = rounds.iter().map(|rate| rate.as_f64().unwrap()).collect();
        rounds.sort_by(f64::total_cmp);
        let share = cell["of_bare"].as_f64().unwrap();
        assert!((share - rounds[1] / bare[1]).abs() < 1e-9, "{cell}");
        if cell["encrypted_by"] == "process" {
            assert_eq!(cell["engines"], "tls to tls");
            let copies = cell["copies_per_byte"].as_f64().unwrap();
            assert!((2.0..2.1).contains(&copies), "{cell}");
        }
    }
    let private = cells.iter().find(|cell| cell["encrypted_by"] == "process").unwrap();
    let target = lines.iter().find(|line| line["event"] == "target").unwrap();
    assert_eq!((&target["found"], &target["needs"]), (&private["of_bare"], &0.8.into()));
    is_a_page(&fresh.path().join(PAGE));
}

#[test]
fn the_choice_is_set_beside_each_pair() {
    let fresh = TempDir::new().unwrap();
    let lines = measured(
        fresh.path(),
        &[
            "chooser",
            "--dir=.",
            "--sizes=1M,16M",
            "--streams=1",
            "--rounds=1",
            "--send-engine=sendfile,read-write",
            "--receive-engine=read-write,splice",
            "--html",
            PAGE,
        ],
    );
    let cells = of_table(&lines, "chooser");
    assert_eq!(cells.len(), 4, "two sizes, warm and cold");
    for cell in cells {
        if cell["skipped"].is_string() {
            assert_eq!(cell["source"], "cold", "a tmpfs is never cold: {cell}");
            continue;
        }
        assert_eq!(cell["pairs"].as_array().unwrap().len(), 4, "{cell}");
        assert!(cell["choice"]["gb_per_s"]["median"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["best"]["gb_per_s"]["median"].as_f64().unwrap() > 0.0, "{cell}");
        let ratio = cell["ratio"]["median"].as_f64().unwrap();
        assert_eq!(cell["within_5_percent"], ratio >= 0.95, "{cell}");
        let duels = cell["duels"].as_u64().unwrap();
        assert!(duels > 0 || ratio == 1.0, "a ratio is of duels, or of a pair with itself: {cell}");
    }
    is_a_page(&fresh.path().join(PAGE));
}

/// A server, killed when dropped.
struct Server(Child, String);

impl Server {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["serve", ".", "--listen", "127.0.0.1:0", "--json"]).current_dir(directory);
        command.env("HAUL_STATE", directory.join("state")).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        Self(child, line["url"].as_str().unwrap().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_measured_by_real_transfers_with_each_engine() {
    let (fresh, served) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(served.path());
    let words = [
        "engines",
        &server.1,
        "--quick",
        "--size=8M",
        "--target=kept.bin",
        "--send-engine=sendfile,read-write",
        "--receive-engine=splice,discard",
        "--json",
    ];
    let output = bench(fresh.path(), &words).output().unwrap();
    let lines = objects(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines[0]["wire"], "server_here", "loopback is said to be loopback");
    let cells = of_table(&lines, "remote");
    assert_eq!(cells.len(), 2 * 2 * 2, "zeros and a file, two engines on each side");
    for cell in cells {
        assert!(cell["gb_per_s"]["median"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["send_cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{cell}");
        let target = if cell["receive_engine"] == "discard" { "null:" } else { "kept.bin" };
        assert_eq!(cell["target"], target);
    }
    assert_eq!(fs::metadata(served.path().join("kept.bin")).unwrap().len(), 8 << 20);
    let token = server.1.split(['/', '@']).nth(2).unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains(token), "the token was printed");
}

#[test]
fn an_interrupted_bench_removes_what_it_made() {
    let fresh = TempDir::new().unwrap();
    let mut command = bench(fresh.path(), &["engines", "--size=16M", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Its directory is there, so it is at work.
    while names(fresh.path()).is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(objects(&output)[0]["event"], "error");
    assert_eq!(names(fresh.path()), [""; 0]);
}

#[test]
fn what_cannot_start_says_why_and_what_to_do() {
    let fresh = TempDir::new().unwrap();
    for (words, says) in [
        (&["engines", "--dir=nowhere"][..], "--dir"),
        (&["engines", "--size=1"], "4096 bytes"),
        (&["engines", "--send-engine=discard"], "sendfile"),
        (&["engines", "--block-sizes=1"], "4K"),
        (&["engines", "haul://h"], "HAUL_TOKEN"),
        (&["chooser", "--dir=nowhere"], "--dir"),
        (&["files", "--html=nowhere/page.html"], "--html"),
        (&["files", "--small", "--dir=nowhere"], "--dir"),
        (&["files", "--small", "--report=nowhere/page.html"], "--report"),
        (&[], "engines"),
    ] {
        let output = bench(fresh.path(), words).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(says), "{words:?}: {err}");
    }
    assert_eq!(names(fresh.path()), [""; 0]);
}

#[test]
fn a_file_that_does_not_fit_is_said_before_anything_is_measured() {
    let fresh = TempDir::new().unwrap();
    let output = bench(fresh.path(), &["engines", "--size=8000000T"]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("free") && err.contains("--size"), "{err}");
}
