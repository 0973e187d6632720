//! Long forms of the tests of bad days (`cargo xtask soak`). A report of them is in docs/soak.md.
//!
//! Takes about an hour on two cores, and root for what mounts and traces. A test says with a
//! line `soak: ...` what it tried and how often.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Outcome, child, prerequisites};

const REPORT: &str = "docs/soak.md";

/// A suite of tests that belong together.
#[derive(Debug)]
struct Suite {
    name: &'static str,
    what: &'static str,
    /// The beginning of the names of the suite's tests, or all of one: a file of
    /// crates/cli/tests/suite.
    filter: &'static str,
}

const SUITES: [Suite; 13] = [
    Suite {
        name: "kills",
        what: "kill -9 of either side or both: 500 in each direction, over a file and over a tree",
        filter: "bad_days::kills::",
    },
    Suite {
        name: "calls",
        what: "every system call on files fails, with four errors, at six moments, on each side",
        filter: "bad_days::calls::",
    },
    Suite {
        name: "disks",
        what: "60 power cuts in each direction; disks that fail at the sync, abort, run out",
        filter: "bad_days::disks::",
    },
    Suite {
        name: "scarce",
        what: "256 MiB of memory, 64 descriptors, one core, no capabilities, no io_uring",
        filter: "bad_days::scarce::",
    },
    Suite {
        name: "clock",
        what: "clocks that are wrong or are set in the middle, files of the future",
        filter: "bad_days::clock::",
    },
    Suite {
        name: "paths",
        what: "a NAT that forgets, hosts that vanish, a server that dies under 50 clients",
        filter: "bad_days::paths::",
    },
    Suite { name: "outage", what: "100 ms, loss of 1.5 %, an outage of 30 s", filter: "wan::" },
    Suite {
        name: "network",
        what: "resets, stalls, flipped bits, a silence of 30 s",
        filter: "network::",
    },
    Suite { name: "trees", what: "trees of many small files", filter: "trees::" },
    Suite {
        name: "crash",
        what: "50 kills of one transfer of 4 GiB in each direction, damaged journals",
        filter: "crash::",
    },
    Suite {
        name: "recordings",
        what: "150 kills of either side while a file is written, in each direction",
        filter: "killed_at_random_moments_arrives",
    },
    Suite {
        name: "ranges",
        what: "a million requests of random ranges to `haul media` and nginx, each answered alike",
        filter: "media_beside_nginx::random_ranges",
    },
    Suite {
        name: "visitors",
        what: "15 minutes of visitors of `haul media`, good and bad: open files and memory",
        filter: "media_long_run::",
    },
];

/// The result of a suite that ran.
#[derive(Debug, Default)]
struct Ran {
    took: Duration,
    passed: bool,
    result: String,
    lines: Vec<String>,
}

/// Runs the suites of these names, or all, and writes the report, which keeps its words on the
/// others.
pub fn run(root: &Path, names: &[&str]) -> Result<Outcome> {
    let known = |name: &&str| SUITES.iter().any(|suite| suite.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        bail!("there is no suite `{unknown}`; there are {}", all.join(", "));
    }
    prerequisites::provide(root);
    let head = head(root)?;
    let date = date(root)?;
    let mut sections = sections_of(&std::fs::read_to_string(root.join(REPORT)).unwrap_or_default());
    let mut passed = true;
    for suite in SUITES.iter().filter(|s| names.is_empty() || names.contains(&s.name)) {
        let ran = run_suite(root, suite)?;
        println!("soak {}: {}, {} s", suite.name, ran.result, ran.took.as_secs());
        passed &= ran.passed;
        sections.insert(suite.name.into(), section(suite, &ran, &date));
        // After each, so that what was seen so far is there when the next one is broken off.
        let in_order = SUITES.iter().filter_map(|suite| sections.get(suite.name));
        let report = in_order.fold(head.clone(), |report, section| report + "\n" + section);
        std::fs::write(root.join(REPORT), &report)
            .with_context(|| format!("cannot write {REPORT}"))?;
    }
    println!("the report is {REPORT}");
    Ok(if passed { Outcome::InOrder } else { Outcome::NotInOrder })
}

fn run_suite(root: &Path, suite: &Suite) -> Result<Ran> {
    let words =
        ["test", "--package", "haul-cli", "--test", "suite", "--", "--nocapture", suite.filter];
    let mut command = child::cargo(root, &words);
    command.env("HAUL_TEST_LONG", "1").env("RUST_BACKTRACE", "0");
    command.env("PATH", std::env::join_paths(child::search_path())?);
    let begun = Instant::now();
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let mut ran = Ran::default();
    #[expect(clippy::disallowed_methods, reason = "an error of it is returned")]
    if let Some(output) = cargo.stdout.take() {
        read(BufReader::new(output), &mut std::io::stdout(), &mut ran)?;
    }
    ran.passed = cargo.wait().context("cannot wait for cargo test")?.success();
    ran.took = begun.elapsed();
    if ran.result.is_empty() {
        ran.result = "ended without a result".into();
    }
    Ok(ran)
}

/// Passes the output on, and keeps those lines that belong into the report.
fn read(mut output: impl BufRead, target: &mut impl Write, ran: &mut Ran) -> Result<()> {
    let mut bytes = Vec::new();
    while output.read_until(b'\n', &mut bytes)? > 0 {
        target.write_all(&bytes)?;
        let line = String::from_utf8_lossy(&bytes);
        if let Some(result) = line.strip_prefix("test result: ") {
            ran.result = result.split("; finished").next().unwrap_or_default().trim().into();
        }
        // Behind `test NAME ... ` where tests run one after the other.
        for mark in ["soak: ", "skipped: "] {
            if let Some(at) = line.find(mark) {
                ran.lines.push(line[at..].trim_end().trim_start_matches("soak: ").into());
            }
        }
        if line.starts_with("test ") && line.trim_end().ends_with("FAILED") {
            ran.lines.push(line.trim_end().into());
        }
        bytes.clear();
    }
    Ok(())
}

fn said(root: &Path, program: &str, words: &[&str]) -> Result<String> {
    let output = child::output_of(&mut child::command(root, program, words))?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}

fn date(root: &Path) -> Result<String> {
    said(root, "date", &["-u", "+%F"])
}

fn head(root: &Path) -> Result<String> {
    let kernel = said(root, "uname", &["-r"])?;
    let machine = said(root, "uname", &["-m"])?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("?");
    let memory_kib: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    let gib = memory_kib.div_ceil(1 << 20);
    Ok(format!(
        "# The last soak\n\n\
         Written by `cargo xtask soak`, which runs the long forms of the tests. What each fault is \
         and how it\nis made stands in [reliability.md](reliability.md).\n\n\
         Linux {kernel}, {machine}, {cores} cores, {gib} GiB of memory; the tests' own build, not \
         `--release`.\n"
    ))
}

/// The sections of an earlier report, by the names of their suites.
fn sections_of(report: &str) -> BTreeMap<String, String> {
    let sections = report.split("\n## ").skip(1);
    let with_name = sections.filter_map(|text| {
        let name = text.lines().next()?;
        Some((name.to_owned(), format!("## {}\n", text.trim_end())))
    });
    with_name.collect()
}

fn section(suite: &Suite, ran: &Ran, date: &str) -> String {
    let Suite { name, what, filter } = suite;
    let mut text = format!("## {name}\n\n{what}.\n\n");
    text += &format!("    HAUL_TEST_LONG=1 cargo test -p haul-cli --test suite -- {filter}\n\n");
    text += &format!("{date}: {}, {} s\n", ran.result, ran.took.as_secs());
    for (at, line) in ran.lines.iter().enumerate() {
        text += if at == 0 { "\n- " } else { "- " };
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_says_of_a_soak_is_kept_wherever_it_stands_in_its_line() {
        let output = "running 2 tests\ntest a ... soak: 5 kills\nok\nsoak: 7 cuts\n\
            skipped: needs x, found y\ntest b ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; \
            finished in 1.00s\n";
        let (mut ran, mut passed_on) = (Ran::default(), Vec::new());
        read(output.as_bytes(), &mut passed_on, &mut ran).unwrap();
        assert_eq!(passed_on, output.as_bytes());
        let expected = ["5 kills", "7 cuts", "skipped: needs x, found y", "test b ... FAILED"];
        assert_eq!(ran.lines, expected);
        assert!(ran.result.starts_with("FAILED. 1 passed; 1 failed"), "{}", ran.result);
        assert!(!ran.result.contains("finished"), "{}", ran.result);
    }

    #[test]
    fn what_was_seen_of_a_suite_stays_until_it_is_run_again() {
        let ran = Ran { result: "ok. 1 passed".into(), lines: vec!["x".into()], ..Ran::default() };
        let kept = section(&SUITES[1], &ran, "2026-01-02");
        let report = format!("# The last soak\n\nWords.\n\n{kept}\n## gone\n\nOld.\n");
        let sections = sections_of(&report);
        assert_eq!(sections.get("calls"), Some(&kept));
        assert_eq!(sections.len(), 2);
    }

    #[test]
    fn a_suite_that_is_not_there_is_named_with_those_that_are() {
        let error = run(Path::new("/nowhere"), &["kils"]).unwrap_err().to_string();
        assert!(error.contains("`kils`") && error.contains("kills, calls"), "{error}");
    }
}
