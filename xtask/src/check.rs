//! `cargo xtask check`: all that CI checks before it runs the tests, step by step.
//!
//! Every step runs, also after one has failed, so that one run shows all there is to do.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{Outcome, bench, child, generate, prerequisites, tidy};

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

const STEPS: [Step; 6] = [
    Step { name: "tidy", run: tidy::run },
    Step { name: "rustfmt", run: rustfmt },
    Step { name: "generated files", run: generate::compare },
    Step { name: "clippy", run: clippy },
    Step { name: "documentation", run: documentation },
    Step { name: "bench's tests", run: bench::test },
];

struct StepResult {
    name: &'static str,
    outcome: Outcome,
    duration: Duration,
}

/// Runs every step on the project at `root` and prints a summary.
pub fn run(root: &Path) -> Result<Outcome> {
    let results: Vec<StepResult> = STEPS.iter().map(|step| run_step(step, root)).collect();
    println!("\ncheck:");
    for result in &results {
        let seconds = result.duration.as_secs_f64();
        println!("  {:<16} {:<6} {seconds:>7.1} s", result.name, word_for(result.outcome));
    }
    let failed = results.iter().filter(|result| result.outcome == Outcome::NotInOrder).count();
    println!("check: {} of {} steps passed", results.len() - failed, results.len());
    Ok(if failed == 0 { Outcome::InOrder } else { Outcome::NotInOrder })
}

fn run_step(step: &Step, root: &Path) -> StepResult {
    println!("\n== {}", step.name);
    let start = Instant::now();
    let outcome = (step.run)(root).unwrap_or_else(|error| {
        println!("{error:#}");
        Outcome::NotInOrder
    });
    let duration = start.elapsed();
    println!("== {}: {}, {:.1} s", step.name, word_for(outcome), duration.as_secs_f64());
    StepResult { name: step.name, outcome, duration }
}

fn word_for(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::InOrder => "passed",
        Outcome::NotInOrder => "FAILED",
    }
}

fn rustfmt(root: &Path) -> Result<Outcome> {
    needs_component(root, "fmt", "rustfmt")?;
    passes(&mut child::cargo(root, &["fmt", "--all", "--check"]))
}

fn clippy(root: &Path) -> Result<Outcome> {
    needs_component(root, "clippy", "clippy")?;
    let mut command = child::cargo(root, &["clippy", "--workspace", "--all-targets"]);
    passes(command.args(prerequisites::features(root)).args(["--", "-D", "warnings"]))?;
    // Without its benches and RDMA, too.
    let arguments = ["clippy", "-p", "haul-cli", "--no-default-features", "--all-targets"];
    passes(child::cargo(root, &arguments).args(["--", "-D", "warnings"]))
}

fn documentation(root: &Path) -> Result<Outcome> {
    let mut command = child::cargo(root, &["doc", "--no-deps", "--workspace"]);
    passes(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs a command of the toolchain to see that it is there; says what to install where rustup
/// leaves it out by request.
fn needs_component(root: &Path, command: &str, component: &str) -> Result<()> {
    let is_there = child::output_of(&mut child::cargo(root, &[command, "--version"])).is_ok();
    if !is_there {
        bail!(
            "not checked: needs {component}, found a toolchain without it.\n\
             Install it: rustup component add {component}"
        );
    }
    Ok(())
}

fn passes(command: &mut Command) -> Result<Outcome> {
    child::run(command)?;
    Ok(Outcome::InOrder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_cannot_run_has_failed() {
        let step = Step { name: "broken", run: |_| bail!("no disk") };
        assert_eq!(run_step(&step, Path::new("/")).outcome, Outcome::NotInOrder);
    }

    #[test]
    fn a_missing_component_is_named_with_its_cure() {
        let error = needs_component(Path::new("/"), "no-such-command-7117", "rustfmt");
        let text = error.unwrap_err().to_string();
        assert!(text.contains("rustup component add rustfmt"), "{text}");
    }
}
