//! `cargo xtask test`: runs every test of the workspace and counts those this host cannot run.
//!
//! Tests wait more than they compute, so several run on each core; those that judge a rate or a
//! clock run afterwards, one after the other. A test that failed beside others runs once more
//! alone: what passes then counts as passed and is named, as its first failure may be a race.
//!
//! Beside the first of them run the tests of the JVM client (jvm.rs); behind both, alone, the
//! trials in a virtual machine (trials.rs), each of which counts as one test.
//!
//! When all passed, a sample of mutants (mutants.rs) asks whether the tests still notice them.
//!
//! The output of `cargo test` is passed on as it comes. After it stand the reasons of the skipped
//! tests, and on the last line `N passed, N failed, N skipped`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::test_totals::TestTotals;
use crate::{Outcome, child, jvm, mutants, prerequisites, trials};

/// The variable that tells `haul_testkit::skip` where to write.
const SKIP_LOG_VARIABLE: &str = "HAUL_SKIP_LOG";
/// Tests that run at a time, on each core.
const TESTS_PER_CORE: usize = 3;
/// Parts of the names of tests that measure the host, and so need it alone.
const QUIET: [&str; 3] = ["verdicts::", "tune::a_change_that_helps", "media_players::ffmpeg_seeks"];
/// Failures above which none is tried again: a change broke them, and no neighbour.
const SECOND_CHANCES_MAX: usize = 5;

/// Runs the tests of the project at `root`, or those that `arguments` of `cargo test` name.
pub fn run(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    prerequisites::provide(root);
    let skip_log = SkipLog::create()?;
    let mut totals = TestTotals::default();
    let mut is_in_order = true;
    let features = prerequisites::features(root);
    let passes = match arguments {
        [] => all_tests(features),
        _ => vec![named_tests(features, arguments)],
    };
    let mut trials = if arguments.is_empty() { trials::TRIALS.to_vec() } else { Vec::new() };
    let mut of_jvm = arguments.is_empty().then(|| jvm::Tests::start(root));
    for pass in &passes {
        let failed_before = totals.failures();
        let status = run_cargo_test(root, pass, &skip_log, &mut totals)?;
        if !status.success() && totals.failures() == failed_before {
            println!("test: cargo test ended with {status}");
            is_in_order = false;
        }
        // What needs the host alone comes behind both.
        let of_jvm = of_jvm.take().map(jvm::Tests::finish);
        let tried = trials.drain(..).map(|trial| trials::try_out(root, trial));
        let tried = tried.map(|(result, skipped)| (result.to_owned(), skipped));
        for (result, skipped) in of_jvm.into_iter().chain(tried) {
            result.lines().for_each(|line| totals.read_line(line));
            skip_log.add(&skipped.unwrap_or_default())?;
        }
    }
    if arguments.is_empty() {
        try_again(root, features, &skip_log, &mut totals)?;
    }
    // A mutant says something only when the tests pass without it.
    if arguments.is_empty() && is_in_order && totals.failures() == 0 {
        is_in_order = mutants::sample_of_tests(root) == Outcome::InOrder;
    }
    let skipped = skip_log.read()?;
    let counts = totals.finish(&skipped);
    print_reasons(&skipped);
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    is_in_order &= counts.failed == 0;
    Ok(if is_in_order { Outcome::InOrder } else { Outcome::NotInOrder })
}

/// The words after `cargo` of each run that all tests take.
fn all_tests(features: &[&str]) -> Vec<Vec<String>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores * TESTS_PER_CORE).to_string();
    let begin = ["test", "--workspace", "--no-fail-fast"].iter().chain(features).copied();
    let crowd = begin.clone().chain(["--", "--test-threads", &threads]);
    let skips = QUIET.iter().flat_map(|name| ["--skip", name]);
    // The same selection as before: with another one cargo builds for other features again.
    let quiet = begin.chain(["--", "--test-threads", "1"]);
    let to_owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
    vec![to_owned(crowd.chain(skips).collect()), to_owned(quiet.chain(QUIET).collect())]
}

/// The words after `cargo` of a run with a user's own arguments.
fn named_tests(features: &[&str], arguments: &[&str]) -> Vec<String> {
    let words = ["test", "--workspace", "--no-fail-fast"];
    words.iter().chain(features).chain(arguments).map(|word| (*word).to_owned()).collect()
}

/// Runs the few tests that failed once more, one after the other.
fn try_again(
    root: &Path,
    features: &[&str],
    skip_log: &SkipLog,
    totals: &mut TestTotals,
) -> Result<()> {
    let failed = totals.failed_names().clone();
    if failed.is_empty() || failed.len() > SECOND_CHANCES_MAX {
        return Ok(());
    }
    println!("test: {} failed; once more, alone: {}", failed.len(), listed(&failed));
    let words = ["--", "--exact", "--test-threads", "1"];
    let names = failed.iter().map(String::as_str);
    let pass = named_tests(features, &words.into_iter().chain(names).collect::<Vec<_>>());
    let mut second = TestTotals::default();
    run_cargo_test(root, &pass, skip_log, &mut second)?;
    let passed = totals.forgive(&second);
    if !passed.is_empty() {
        println!(
            "test: {} failed beside others and passed alone: {}",
            passed.len(),
            listed(&passed)
        );
    }
    Ok(())
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn run_cargo_test(
    root: &Path,
    words: &[String],
    skip_log: &SkipLog,
    totals: &mut TestTotals,
) -> Result<ExitStatus> {
    let mut command = child::cargo(root, &[]);
    command.args(words).env(SKIP_LOG_VARIABLE, &skip_log.path);
    command.env("PATH", std::env::join_paths(child::search_path())?);
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    #[expect(clippy::disallowed_methods, reason = "an error of it is returned")]
    let passed_on = match cargo.stdout.take() {
        Some(output) => pass_on(BufReader::new(output), &mut std::io::stdout(), totals),
        None => Ok(()),
    };
    let status = cargo.wait().context("cannot wait for cargo test")?;
    passed_on.context("cannot pass on the output of cargo test")?;
    Ok(status)
}

/// Passes every line on as it comes, byte for byte, and counts the tests in it.
fn pass_on(
    mut output: impl BufRead,
    target: &mut impl Write,
    totals: &mut TestTotals,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        target.write_all(&line)?;
        target.flush()?;
        totals.read_line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
    Ok(())
}

fn print_reasons(skipped: &str) {
    println!();
    for line in skipped.lines() {
        let mut parts = line.split('\t');
        let reason = parts.next().unwrap_or_default();
        let place: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        println!("{reason} ({})", place.join(" "));
    }
}

/// The file where tests write why they are skipped; removed when dropped.
struct SkipLog {
    path: PathBuf,
}

impl SkipLog {
    fn create() -> Result<SkipLog> {
        let name = format!("haul-skipped-{}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(SkipLog { path })
    }

    fn add(&self, line: &str) -> Result<()> {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(&self.path);
        log.and_then(|mut log| log.write_all(line.as_bytes()))
            .context("cannot write the log of the skipped tests")
    }

    fn read(&self) -> Result<String> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error).context("cannot read the log of the skipped tests"),
        }
    }
}

impl Drop for SkipLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_totals::Counts;

    #[test]
    fn output_is_passed_on_byte_for_byte_also_when_it_is_not_text() {
        let output: &[u8] = b"running 1 test\n\xff\xfe\r\ntest a ... ok\ntest result: ok. 1 passed";
        let mut passed_on = Vec::new();
        let mut totals = TestTotals::default();
        pass_on(output, &mut passed_on, &mut totals).unwrap();
        assert_eq!(passed_on, output);
        assert_eq!(totals.finish(""), Counts { passed: 1, failed: 0, skipped: 0 });
    }

    #[test]
    fn tests_that_need_the_host_alone_run_once() {
        let passes = all_tests(&["--features", "x/y"]);
        for pass in &passes {
            assert_eq!(pass[3..5], ["--features", "x/y"]);
        }
        for name in QUIET {
            let skips =
                passes[0].windows(2).filter(|words| words[0] == "--skip" && words[1] == name);
            assert_eq!(skips.count(), 1, "{name}");
            assert_eq!(passes[1].iter().filter(|word| *word == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_name_of_a_quiet_test_is_one_in_the_suite() {
        let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/suite");
        for name in QUIET {
            let (file, test) = name.split_once("::").unwrap();
            let text = std::fs::read_to_string(suite.join(file).with_extension("rs")).unwrap();
            assert!(text.contains(&format!("fn {test}")), "{name}");
        }
    }
}
