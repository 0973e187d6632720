//! The real `haul bench files --small`: what it measures, prints and draws, and leaves: nothing.
//!
//! No test looks at how fast anything is.

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

const FILES: u64 = 50;
const MOVERS: [&str; 6] = ["floor", "haul_push", "haul_pull", "tar", "rsync_push", "rsync_pull"];

/// A fresh directory in memory, where there is such a place: each run syncs its file system, and
/// that of a disk has what other tests have written.
fn fresh() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

fn bench(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(["bench", "files", "--small", "--files=50", "--rounds=2", "--dir=."]);
    command.args(words).current_dir(directory).env_remove("HAUL_TOKEN");
    command
}

fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_table<'a>(lines: &'a [Value], table: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["table"] == table).collect()
}

fn cell<'a>(lines: &'a [Value], mover: &str) -> &'a Value {
    let mut cells = lines.iter().filter(|line| line["table"] == "small_files");
    cells.find(|line| line["mover"] == mover).unwrap_or_else(|| panic!("no cell of {mover}"))
}

/// Checks that a cell's figures are those of its rounds.
fn is_of_its_rounds(lines: &[Value], cell: &Value) {
    let rounds: Vec<&Value> = of_table(lines, "small_file_rounds")
        .into_iter()
        .filter(|round| round["mover"] == cell["mover"])
        .collect();
    assert_eq!(rounds.len(), 2, "{cell}");
    let numbers = |key: &str| -> Vec<f64> {
        rounds.iter().map(|round| round[key].as_f64().unwrap()).collect()
    };
    let mean = |key: &str| numbers(key).iter().sum::<f64>() / 2.0;
    let is = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs().max(1.0);
    assert!(is(cell["seconds"]["median"].as_f64().unwrap(), mean("seconds")), "{cell}");
    let cpu_us = (mean("send_cpu_s") + mean("receive_cpu_s")) * 1e6 / FILES as f64;
    assert!(is(cell["cpu_us"]["median"].as_f64().unwrap(), cpu_us), "{cell}");
    assert!(cpu_us > 0.0 && numbers("seconds").iter().all(|seconds| *seconds > 0.0), "{cell}");
    let ratio = |other: &Value, of_other: bool| {
        let (own, other) = (&cell["seconds"]["median"], &other["seconds"]["median"]);
        let ratio = own.as_f64()? / other.as_f64()?;
        Some(if of_other { 1.0 / ratio } else { ratio })
    };
    let ratios = [("times_of_tar", "tar", true), ("times_of_floor", "floor", false)];
    for (key, other, of_other) in ratios {
        match ratio(self::cell(lines, other), of_other) {
            Some(ratio) => assert!(is(cell[key].as_f64().unwrap(), ratio), "{cell}"),
            None => assert!(cell[key].is_null(), "{cell}"),
        }
    }
}

#[test]
fn each_mover_of_small_files_has_rounds_or_a_reason_and_each_target_its_figure() {
    let fresh = fresh();
    let words = ["--file-systems=own", "--report=page.html", "--json"];
    let lines = objects(&bench(fresh.path(), &words).output().unwrap());
    assert_eq!((&lines[0]["event"], &lines[0]["wire"]), (&"host".into(), &"loopback".into()));
    for mover in MOVERS {
        let cell = cell(&lines, mover);
        if let Some(why) = cell["refused"].as_str() {
            let is_program = why.contains("found no such program");
            assert!(is_program && !mover.starts_with("haul") && mover != "floor", "{cell}");
            continue;
        }
        assert_eq!((&cell["files"], &cell["rounds"]), (&50.into(), &2.into()));
        is_of_its_rounds(&lines, cell);
    }
    for counted in of_table(&lines, "small_file_calls") {
        let named = counted["named"].as_object().unwrap().values();
        let named: u64 = named.map(|calls| calls.as_u64().unwrap()).sum();
        let all = counted["calls"].as_u64().unwrap();
        assert!(named <= all && all > FILES, "{counted}");
    }
    let targets: Vec<_> = of_table(&lines, "small_file_targets");
    let is_here =
        |target: &&&Value| target["file_system"].as_str().unwrap().ends_with("the directory's own");
    let here = targets.iter().filter(is_here);
    for target in here {
        let cell = cell(&lines, target["mover"].as_str().unwrap());
        let figure = match target["measure"].as_str().unwrap() {
            "cpu_us" => &cell["cpu_us"]["median"],
            ratio => &cell[ratio],
        };
        assert_eq!(&target["found"], figure);
        assert!(target["is_met"].is_null(), "50 files are not judged: {target}");
    }
    let page = fs::read_to_string(fresh.path().join("page.html")).unwrap();
    assert!(page.contains("<svg ") && page.ends_with("</html>\n"));
    assert!(!page.contains("NaN"));
    let beside = fs::read_to_string(fresh.path().join("page.json")).unwrap();
    assert_eq!(beside.lines().count(), lines.len());
    let left = fs::read_dir(fresh.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["page.html", "page.json"], "it left something behind");
}

#[test]
fn movers_that_are_not_installed_are_said_to_be_missing() {
    let fresh = fresh();
    let mut without = bench(fresh.path(), &["--file-systems=own"]);
    let output = without.env("PATH", fresh.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (mover, program) in [("tar", "tar"), ("rsync push", "rsync"), ("rsync pull", "rsync")] {
        let says = format!("needs {program}, found no such program");
        let is_said =
            text.lines().any(|line| line.trim_start().starts_with(mover) && line.ends_with(&says));
        assert!(is_said, "{mover}: {text}");
    }
    assert!(text.contains("Not judged"), "{text}");
}
