//! Trials of `lab/` that are tests, in a virtual machine: RDMA cards, and TLS in the kernel.
//!
//! The machine emulates each instruction, and has peers that wait for each other: beside other
//! tests it took four times as long, and waits in it came to their ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::{child, prerequisites};

/// A trial that counts as one test, in its brief form.
#[derive(Clone, Copy)]
pub struct Trial {
    /// The name of its script below `lab/`.
    script: &'static str,
    /// Whether the programs that it runs are built with libfabric.
    has_fabric: bool,
}

/// The trials, in the order in which they run.
pub const TRIALS: [Trial; 2] =
    [Trial { script: "rdma", has_fabric: true }, Trial { script: "kernel-tls", has_fabric: false }];

/// The exit status by which the trial says that something cannot be had on this host.
const LACKS: i32 = 77;

/// The way in which the trial went.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Holds,
    DoesNotHold,
    /// Something is missing on this host, named.
    Lacks(String),
}

/// Runs the trial while no other test runs; one that does not hold is tried once more. Returns the
/// lines by which cargo tells the result of a test, and one for the log of skips.
pub fn try_out(root: &Path, trial: Trial) -> (&'static str, Option<String>) {
    let name = trial.name();
    if let Some(lacks) = get_ready(root, trial) {
        return told(&name, Ended::Lacks(lacks));
    }
    let run = || shown(&name, run(root, trial, "--brief"));
    let ended = match run() {
        Ended::DoesNotHold => {
            println!("test: {name} does not hold; once more");
            run()
        }
        ended => ended,
    };
    told(&name, ended)
}

impl Trial {
    /// The command that runs the whole of it.
    fn name(self) -> String {
        format!("cargo xtask lab {}", self.script)
    }
}

fn told(name: &str, ended: Ended) -> (&'static str, Option<String>) {
    match ended {
        Ended::Holds => ("running 1 test\ntest result: ok. 1 passed; 0 failed", None),
        Ended::DoesNotHold => ("running 1 test\ntest result: FAILED. 0 passed; 1 failed", None),
        Ended::Lacks(what) => {
            let line = format!("skipped: needs a virtual machine, found: {what}\t{name}\t\n");
            ("running 1 test\ntest result: ok. 1 passed; 0 failed", Some(line))
        }
    }
}

fn shown(name: &str, ran: Result<(Ended, String)>) -> Ended {
    match ran {
        Ok((ended, output)) => {
            print!("{output}");
            ended
        }
        Err(error) => {
            println!("test: {name}: {error:#}");
            Ended::DoesNotHold
        }
    }
}

/// Installs and unpacks what the machine needs and builds the tests; says what is missing.
fn get_ready(root: &Path, trial: Trial) -> Option<String> {
    if !child::is_installed("python3") {
        return Some("python3".to_owned());
    }
    if trial.has_fabric && !prerequisites::has_libfabric(root) {
        return Some("libfabric-dev".to_owned());
    }
    // What does not build is said by the tests' own run.
    let mut build = child::cargo(root, &["test", "--no-run", "--workspace"]);
    build.args(prerequisites::features(root)).stdout(Stdio::null()).status().ok();
    match run(root, trial, "--provide") {
        Ok((Ended::Holds, _)) => None,
        Ok((Ended::Lacks(what), _)) => Some(what),
        Ok((Ended::DoesNotHold, said)) => Some(said),
        Err(error) => Some(format!("{error:#}")),
    }
}

fn run(root: &Path, trial: Trial, word: &str) -> Result<(Ended, String)> {
    let script: PathBuf = root.join("lab").join(trial.script);
    let mut command = child::command(root, "python3", &[]);
    command.arg(script).arg(word).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", trial.name()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended = match output.status.code() {
        Some(0) => Ended::Holds,
        Some(LACKS) => Ended::Lacks(last_line(&said)),
        _ => Ended::DoesNotHold,
    };
    Ok((ended, said))
}

fn last_line(said: &str) -> String {
    said.lines().last().unwrap_or_default().trim_start_matches("lab: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_totals::{Counts, TestTotals};

    #[test]
    fn a_trial_counts_as_one_test_and_without_its_machine_as_skipped() {
        let counts = |ended| {
            let (result, skipped) = told("a trial", ended);
            let mut totals = TestTotals::default();
            // A program of tests that died before it.
            totals.read_line("running 2 tests");
            result.lines().for_each(|line| totals.read_line(line));
            totals.finish(&skipped.unwrap_or_default())
        };
        assert_eq!(counts(Ended::Holds), Counts { passed: 1, failed: 2, skipped: 0 });
        assert_eq!(counts(Ended::DoesNotHold), Counts { passed: 0, failed: 3, skipped: 0 });
        let lacks = Ended::Lacks("python3".to_owned());
        assert_eq!(counts(lacks), Counts { passed: 0, failed: 2, skipped: 1 });
    }

    #[test]
    fn what_is_missing_is_what_the_trial_said_last() {
        assert_eq!(last_line("x\nlab: missing; install it: a b\n"), "missing; install it: a b");
    }
}
