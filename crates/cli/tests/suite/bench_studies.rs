//! The real `haul bench studies`: one page with each figure of the studies, and its JSON lines.
//!
//! Each verdict is computed again from the cells of these lines. No test looks at how fast anything
//! is.

use crate::harness::{Place, as_nobody, is_root, process::Haul, wait_until};
use haul_bench::studies::{MeasuredBy, STUDIES};
use haul_testkit::skip::skip;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt, path::PathBuf};

fn studies(place: &Place, more: &[&str]) -> Vec<OsString> {
    let words = words!["bench", "studies", "--quick", "--json", "--dir", place.path("target")];
    [words, more.iter().map(OsString::from).collect()].concat()
}

/// The median of some numbers, `None` where there are none.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.get(values.len().checked_sub(1)? / 2)?, values[values.len() / 2]);
    Some((below + above) / 2.0)
}

/// Cells of a run, read from its lines alone.
struct Cells<'lines>(&'lines [Value]);

impl Cells<'_> {
    fn of_table(&self, table: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |line| line["table"] == table)
    }

    /// The rates of the rounds of a region, or of the whole file, to the receiver that copies.
    fn offset(&self, engine: &str, region_bytes: Option<u64>) -> Vec<f64> {
        let mut cells = self.of_table("offsets").filter(|cell| {
            cell["send_engine"] == engine
                && cell["receive_engine"] == "read-write"
                && cell["send_block_bytes"] == 64 << 10
        });
        let cell = cells.find(|cell| cell["region_bytes"].as_u64() == region_bytes).unwrap();
        let rounds = cell["rounds_gb_per_s"].as_array().unwrap();
        rounds.iter().map(|rate| rate.as_f64().unwrap()).collect()
    }

    fn recorded(&self, name: &str, value: &str) -> Option<f64> {
        let rounds = self.of_table("recordings").filter(|line| line["name"] == name);
        median(rounds.filter_map(|line| line[value].as_f64()))
    }

    /// How many times as long read-write takes as zero-copy, to `target`.
    fn gain(&self, target: &str) -> Option<f64> {
        let of = |method: &str| self.recorded(&format!("{method}, {target}"), "seconds");
        Some(of("read-write")? / of("zero-copy")?)
    }

    /// Whether the rule of a figure holds; `None` where a cell that it needs is missing.
    fn holds(&self, study: &str, figure: &str) -> Option<bool> {
        Some(match (study, figure) {
            ("massive-data", "table 2") => {
                let rates = [
                    self.offset("sendfile", Some(1 << 20)),
                    self.offset("sendfile", None),
                    self.offset("read-write", Some(1 << 20)),
                    self.offset("read-write", None),
                ];
                let descends = |rates: &[f64]| rates.windows(2).all(|two| two[0] > two[1]);
                let medians: Option<Vec<f64>> =
                    rates.iter().map(|rates| median(rates.iter().copied())).collect();
                let round = |at: usize| rates.iter().map(|rates| rates[at]).collect::<Vec<_>>();
                let rounds = rates[0].len();
                let in_order = (0..rounds).filter(|at| descends(&round(*at))).count();
                descends(&medians?) && 2 * in_order > rounds
            }
            ("massive-data", "table 3") => self.gain("inside one machine")? > 1.0,
            ("massive-data", "figures 12 to 15, 100 GB recorded") => self.gain("recorded")? > 1.0,
            ("massive-data", "figures 12 to 15, to memory only") => {
                let memory = self.gain("to memory only")?;
                memory > 1.0 && memory > self.gain("recorded")?
            }
            ("efficient-transfer", "table 1") => {
                let times = |cell: &Value| {
                    let of = |way: &str| cell[way]["median"].as_f64();
                    Some(of("zero_copy_ms")? < of("traditional_ms")?)
                };
                let less: Vec<bool> = self.of_table("files").filter_map(times).collect();
                if less.is_empty() {
                    return None;
                }
                less.iter().all(|less| *less)
            }
            ("efficient-transfer", "copies and switches") => {
                let cell = self.of_table("files").last()?;
                let of = |key: &str| cell[key].as_f64();
                of("zero_copy_mode_switches")? < of("traditional_mode_switches")?
                    && of("zero_copy_copies_per_byte")? < of("traditional_copies_per_byte")?
            }
            // Also what a page cache absorbs, as a quick run has no file that is larger than it.
            _ => return None,
        })
    }
}

#[test]
fn the_page_has_each_figure_of_the_studies_once_with_the_verdict_of_its_cells() {
    let place = Place::new();
    let page = place.path("page.html");
    let words = [studies(&place, &["--only=engines,files"]), words!["--report", page]].concat();
    let ran = Haul::start(place.command(&words)).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), 0, "it left something behind");
    let beside = fs::read_to_string(place.path("page.json")).unwrap();
    let beside: Vec<Value> =
        beside.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(beside, ran.events, "the lines beside the page are those that it printed");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    assert!(html.contains("<a href=\"page.json\">") && !html.contains("<script"), "{html}");
    let cells = Cells(&ran.events);
    let judged: Vec<&Value> =
        ran.events.iter().filter(|event| event["event"] == "figure").collect();
    let listed = STUDIES.iter().flat_map(|study| study.figures);
    assert_eq!(judged.len(), listed.clone().count());
    for (figure, line) in listed.zip(judged) {
        let (study, number) = (figure.study.id, figure.number);
        assert_eq!((&line["study"], &line["figure"]), (&study.into(), &number.into()));
        let anchor = figure.not_measured("").anchor();
        assert_eq!(html.matches(&format!(" id=\"{anchor}\"")).count(), 1, "{anchor}");
        assert_eq!(html.matches(&format!("href=\"#{anchor}\"")).count(), 1, "{anchor}");
        let sentence = line["sentence"].as_str().unwrap();
        assert!(!sentence.is_empty(), "{line}");
        let expected = match cells.holds(study, number) {
            Some(true) => "came_out",
            Some(false) => "did_not_come_out",
            None => "not_measured",
        };
        assert_eq!(line["verdict"], expected, "{line}");
        match figure.by {
            MeasuredBy::Nothing(why) => assert_eq!(sentence, why),
            MeasuredBy::Tuning | MeasuredBy::Media | MeasuredBy::Fabric => {
                assert!(sentence.contains("left out"), "{line}");
            }
            MeasuredBy::Java => assert!(sentence.contains("needs --jar FILE"), "{line}"),
            MeasuredBy::Engines | MeasuredBy::Files => {}
        }
    }
    for measured in ["table 2", "table 3", "table 1"] {
        let is_it = |line: &&Value| line["event"] == "figure" && line["figure"] == measured;
        let line = ran.events.iter().find(is_it).unwrap();
        assert_ne!(line["verdict"], "not_measured", "{line}");
    }
}

#[test]
fn a_bench_that_cannot_run_is_said_at_its_figures_and_the_others_go_on() {
    let place = Place::new();
    let mut command = place.command(&studies(&place, &["--only=engines,tuning"]));
    if is_root() {
        if !place.open_to_nobody(&[&place.path(""), &place.path("target")]) {
            return skip("a program that every user may run", "one in a closed directory");
        }
        as_nobody(&mut command);
    }
    let ran = Haul::start(command).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let line = |study: &str, figure: &str| {
        let is_it = |line: &&Value| line["study"] == study && line["figure"] == figure;
        ran.events.iter().find(is_it).unwrap_or_else(|| panic!("{figure}: {ran:?}"))
    };
    let refused = line("node-tuning", "figure 6");
    assert_eq!(refused["verdict"], "not_measured");
    assert!(refused["sentence"].as_str().unwrap().contains("needs "), "{refused}");
    assert_ne!(line("massive-data", "table 2")["verdict"], "not_measured");
    let benches = ran.events.iter().filter(|event| event["event"] == "bench");
    let benches: Vec<bool> = benches.map(|bench| bench["refused"].is_string()).collect();
    assert_eq!(benches, [false, true]);
}

/// A directory with a program named `java` that takes the place of the host's.
fn java_that(place: &Place, does: &str) -> PathBuf {
    let bin = place.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("java");
    fs::write(&program, format!("#!/bin/sh\n{does}\n")).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    bin
}

#[test]
fn what_the_jvm_measured_is_judged_and_its_failure_is_told() {
    let place = Place::new();
    let size = json!({
        "bytes": 7_000_000, "traditional_ms": 20.0, "transfer_to_ms": 5.0,
        "traditional_copies_per_byte": 2.0, "transfer_to_copies_per_byte": 0.0,
        "traditional_calls": 9, "transfer_to_calls": 1,
    });
    let line = json!({"event": "bench", "java": "17", "sizes": [size]});
    let print = format!("[ \"$3 $5\" = 'haul.jar --json' ] && echo '{line}'");
    for (does, verdict, says) in [
        (print.as_str(), "came_out", "at each of the 1 sizes"),
        ("echo no heap >&2; exit 3", "not_measured", "exit status: 3: no heap"),
        ("echo surprise", "not_measured", "the program said: surprise"),
    ] {
        let mut command = place.command(&studies(&place, &["--only=java", "--jar=haul.jar"]));
        command.env("PATH", java_that(&place, does));
        let ran = Haul::start(command).finish();
        let is_it = |line: &&Value| line["figure"] == "table 1, by the JVM";
        let line = ran.events.iter().find(is_it).unwrap_or_else(|| panic!("{ran:?}"));
        assert_eq!(line["verdict"], verdict, "{line}");
        assert!(line["sentence"].as_str().unwrap().contains(says), "{line}");
        assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), 0, "{does}");
    }
}

#[test]
fn interrupted_studies_leave_nothing_and_no_page() {
    let place = Place::new();
    let words = words!["bench", "studies", "--only=engines", "--json", "--dir"];
    let page = place.path("page.html");
    let more = words![place.path("target"), "--report", page];
    let running = Haul::start(place.command(&[words, more].concat()));
    let target = place.path("target");
    wait_until("the studies are at work", || fs::read_dir(&target).unwrap().count() > 0);
    running.signal(Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(ran.events[0]["event"], "error", "{ran:?}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert!(!page.exists() && !place.path("page.json").exists());
}
