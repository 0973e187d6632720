//! The real `haul bench tuning`: it measures in namespaces of its own.
//!
//! It leaves neither these nor a changed setting behind.

use crate::harness::{Place, as_nobody, is_root, process::Haul, wait_until};
use haul_testkit::skip::skip;
use rustix::process::Signal;
use serde_json::Value;
use std::{ffi::OsString, fs};

/// Names of the host's own settings, which a bench must never touch.
const SETTINGS: [&str; 4] =
    ["tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_no_metrics_save"];

fn settings() -> Vec<String> {
    let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    SETTINGS.iter().map(read).collect()
}

fn tuning(place: &Place, more: &[&str]) -> Vec<OsString> {
    let words = words!["bench", "tuning", "--quick", "--streams=1,2", "--dir", place.path("")];
    [words, more.iter().map(OsString::from).collect()].concat()
}

/// Names of the namespaces that a process made.
fn namespaces_of(process: u32) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.contains(&format!("-{process}-"))).collect()
}

/// Whether a namespace can be made; a skipped test where none can.
fn can_run() -> bool {
    let made = haul_emulator::namespace::Namespace::make("test", "near");
    made.inspect_err(|why| skip("root and ip(8)", why.to_string())).is_ok()
}

fn program(place: &Place, words: &[OsString]) -> Haul {
    let words = [words, &words!["--json"]].concat();
    let mut command = place.command(&words);
    // Where ip(8), tc(8) and nsenter(1) are.
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Haul::start(command)
}

fn verdict(came_out: bool) -> &'static str {
    if came_out { "came_out" } else { "did_not_come_out" }
}

/// Checks the verdicts of figures 7 and 8 against the cells.
#[track_caller]
fn disks_are_judged_by_the_cells(figures: &[&Value], cells: &[&Value]) {
    let of_table = |table: &str| -> Vec<Value> {
        let of_table = cells.iter().filter(|cell| cell["table"] == table);
        of_table.map(|cell| (*cell).clone()).collect()
    };
    if figures[1]["verdict"] == "not_measured" {
        assert!(figures[1]["sentence"].as_str().unwrap().contains("needs"), "{}", figures[1]);
    } else {
        let rates: Vec<f64> = of_table("storage")
            .iter()
            .map(|cell| cell["rounds_gbit_per_s"][0].as_f64().unwrap())
            .collect();
        let [slow, slow_tuned, fast, fast_tuned] = rates[..] else { panic!("{rates:?}") };
        let came_out = slow < slow_tuned && fast < fast_tuned;
        assert_eq!(figures[1]["verdict"], verdict(came_out), "{rates:?}");
        let delays = of_table("delays");
        let of = |at: usize, name: &str| delays[at][name].as_f64().unwrap();
        let less = |direction: usize| {
            let (one, other) = (direction, direction + 2);
            let is_slower = of(one, "gbit_per_s") <= of(other, "gbit_per_s");
            let (slower, faster) = if is_slower { (one, other) } else { (other, one) };
            of(faster, "p50_us") < of(slower, "p50_us")
        };
        assert_eq!(delays.len(), 4);
        assert_eq!(figures[2]["verdict"], verdict(less(0) && less(1)), "{delays:?}");
    }
}

#[test]
fn each_step_has_a_rate_or_a_reason_and_the_host_s_settings_stay() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let before = settings();
    let page = place.path("page.html");
    let words =
        [tuning(&place, &["--rate=200Mbit", "--rtt=20ms"]), words!["--html", page]].concat();
    let running = program(&place, &words);
    let process = running.id();
    let ran = running.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.events[0]["event"], "host");
    let cells = ran.named("cell");
    for (path, steps) in [("veth", 5), ("wan", 5)] {
        let of_path: Vec<&&Value> = cells.iter().filter(|cell| cell["path"] == path).collect();
        assert_eq!(of_path.len(), steps * 2, "{ran:?}");
        for cell in &of_path {
            let rate = cell["gbit_per_s"]["median"].as_f64();
            match cell["refused"].as_str() {
                Some(why) => assert!(!why.is_empty() && rate.is_none(), "{cell}"),
                None => assert!(rate > Some(0.0), "{cell}"),
            }
        }
        let first = of_path[0];
        assert_eq!((&first["step"], &first["streams"]), (&"default".into(), &1.into()));
        let setting = first["setting"].as_str().unwrap();
        assert!(setting.starts_with("MTU 1500, buffers up to 6 MiB"), "{setting}");
        assert!(rate_of(first).is_some(), "what every host has: {first}");
        for cell in &of_path {
            let has_offload = cell["setting"].as_str().unwrap().contains("offload on");
            let is_later = cell["step"] == "offload" || cell["step"] == "pacing";
            assert!(is_later || !has_offload, "{cell}");
        }
        if path == "wan" {
            let fastest = of_path.iter().filter_map(|cell| rate_of(cell)).fold(0.0, f64::max);
            assert!(fastest <= 0.2, "faster than its link of 200 Mbit/s: {of_path:?}");
        }
    }
    let rate = |step: &str, streams: u32| {
        let mut of_veth = cells.iter().filter(|cell| cell["path"] == "veth");
        let cell = of_veth.find(|cell| cell["step"] == step && cell["streams"] == streams);
        rate_of(cell.unwrap()).unwrap()
    };
    let (one, most) = (rate("jumbo", 1), rate("jumbo", 2));
    let came_out = one > rate("default", 1) && most > one;
    let figures = ran.named("figure");
    let numbers: Vec<&Value> = figures.iter().map(|figure| &figure["figure"]).collect();
    assert_eq!(numbers, ["figure 6", "figure 7", "figure 8"]);
    assert_eq!(figures[0]["verdict"], verdict(came_out), "{}", figures[0]);
    disks_are_judged_by_the_cells(&figures, &cells);
    assert_eq!(settings(), before);
    assert_eq!(namespaces_of(process), [""; 0]);
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg ").count(), 4);
    assert!(page.contains("Figure 6") && page.contains(">2 streams<"), "no scale of streams");
}

fn rate_of(cell: &Value) -> Option<f64> {
    cell["gbit_per_s"]["median"].as_f64()
}

#[test]
fn ctrl_c_removes_what_it_made_and_a_killed_run_s_leftovers_go_with_the_next() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let words = tuning(&place, &["--only=veth", "--time=10m"]);
    let interrupted = program(&place, &words);
    let process = interrupted.id();
    wait_until("made its namespaces", || namespaces_of(process).len() == 2);
    interrupted.signal(Signal::INT);
    let ran = interrupted.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("interrupted"), "{ran:?}");
    assert_eq!(namespaces_of(process), [""; 0]);
    let mut killed = program(&place, &words);
    let process = killed.id();
    let serves = || {
        let far = format!("haul-veth-{process}-1-far");
        let listed = std::process::Command::new("ip").args(["netns", "pids", &far]).output();
        listed.is_ok_and(|listed| !listed.stdout.is_empty())
    };
    wait_until("started its server", serves);
    killed.kill();
    assert_eq!(namespaces_of(process).len(), 2);
    let ran = program(&place, &tuning(&place, &["--only=veth", "--streams=1"]));
    let ran = ran.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(namespaces_of(process), [""; 0]);
    assert!(!serves(), "the killed run's server is still there");
}

#[test]
fn without_root_it_says_what_it_needs() {
    let place = Place::new();
    let mut command = place.command(&[tuning(&place, &[]), words!["--json"]].concat());
    if is_root() {
        if !place.open_to_nobody(&[&place.path("")]) {
            return skip("a program that every user may run", "one in a closed directory");
        }
        as_nobody(&mut command);
    }
    Haul::start(command).finish().refused(&["network namespace", "root", "user ", "sudo"]);
}

#[test]
fn what_makes_no_sense_is_said() {
    let place = Place::new();
    for (words, needs) in [
        (["--rate=20Gbit"], "a rate up to 10Gbit"),
        (["--rtt=1m"], "a time up to 2s"),
        (["--time=10ms"], "1 s or more"),
        (["--disks=/data"], "two directories"),
    ] {
        program(&place, &tuning(&place, &words)).finish().refused(&[needs]);
    }
}
