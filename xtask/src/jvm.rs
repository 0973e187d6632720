//! Tests of the JVM client (`clients/java`) as some of the tests, by Maven, beside the others.
//!
//! Maven fetches what it needs. A host without Maven, a JDK or a way to Maven's repository skips
//! these tests, which count as one then. Some of them talk to the program that cargo built.

use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::{child, prerequisites};

/// The project that Maven builds and tests.
const PROJECT: &str = "clients/java/pom.xml";
/// The programs that it takes.
const PROGRAMS: [&str; 2] = ["mvn", "javac"];
/// The program that some of the tests start, as cargo's tests build it.
const PROGRAM: &str = "target/debug/haul";
/// The tests' place in the queue for processors, behind the others.
const NICENESS: &str = "5";
/// Words of Maven about a repository that it does not reach; for a package that is not there it
/// has others.
const UNREACHABLE: &str = "Could not transfer ";

/// The way in which Maven's run went.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Ran(Counted),
    /// Nothing was tested: the project does not build.
    Broken,
    /// Something is missing on this host, named.
    Lacks(String),
}

/// The numbers of tests that Maven told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The client's tests, which run beside the others.
pub struct Tests {
    running: JoinHandle<Result<(Ended, String)>>,
}

impl Tests {
    /// Starts the tests.
    pub fn start(root: &Path) -> Tests {
        let root = root.to_owned();
        Tests { running: std::thread::spawn(move || run(&root)) }
    }

    /// Waits for the end of the tests, and shows what Maven said where they did not pass. Returns
    /// the lines by which cargo tells the results of tests, and one for the log of skips.
    pub fn finish(self) -> (String, Option<String>) {
        let ran = self.running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = match ran {
            Ok((ended, said)) => {
                if !matches!(&ended, Ended::Ran(Counted { failed: 0, .. })) {
                    print!("{said}");
                }
                ended
            }
            Err(error) => {
                println!("test: {PROJECT}: {error:#}");
                Ended::Broken
            }
        };
        told(&ended)
    }
}

fn run(root: &Path) -> Result<(Ended, String)> {
    let missing = PROGRAMS.into_iter().find(|program| !child::is_installed(program));
    if let Some(missing) = missing {
        return Ok((Ended::Lacks(missing.to_owned()), String::new()));
    }
    // What does not build is said by the tests' own run; the client's tests skip the program then.
    let mut build = child::cargo(root, &["test", "--no-run", "--workspace"]);
    build.args(prerequisites::features(root)).stdout(Stdio::null()).stderr(Stdio::null());
    build.status().context("cannot start cargo")?;
    let program = root.join(PROGRAM);
    let program = if program.exists() { program.display().to_string() } else { String::new() };
    let property = format!("-Dhaul.program={program}");
    let words = ["-n", NICENESS, "mvn", "-B", "-ntp", "-f", PROJECT, &property, "test"];
    let output = child::command(root, "nice", &words).output().context("cannot start mvn")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((ended(&said, output.status.success()), said))
}

/// Reads how a run went from what Maven said and whether it ended well.
fn ended(said: &str, is_success: bool) -> Ended {
    let counted = counted(said);
    let is_tested = counted != Counted::default();
    match is_success {
        true if is_tested => Ended::Ran(counted),
        false if counted.failed > 0 => Ended::Ran(counted),
        false => match said.lines().find(|line| line.contains(UNREACHABLE)) {
            Some(line) => Ended::Lacks(line.trim_start_matches("[ERROR] ").to_owned()),
            None => Ended::Broken,
        },
        true => Ended::Broken,
    }
}

/// Adds up the totals of the projects; those of single classes have a time behind them.
fn counted(said: &str) -> Counted {
    let mut sum = Counted::default();
    for line in said.lines().filter(|line| !line.contains("Time elapsed")) {
        let Some((_, numbers)) = line.split_once("Tests run: ") else { continue };
        let mut numbers = numbers.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
        let mut next = || numbers.next().and_then(|number| number.parse::<u64>().ok());
        let (Some(tests), Some(failures), Some(errors), Some(skipped)) =
            (next(), next(), next(), next())
        else {
            continue;
        };
        sum.failed += failures + errors;
        sum.skipped += skipped;
        sum.passed += tests.saturating_sub(failures + errors + skipped);
    }
    sum
}

fn told(ended: &Ended) -> (String, Option<String>) {
    match ended {
        Ended::Ran(Counted { passed, failed, skipped }) => {
            let word = if *failed == 0 { "ok" } else { "FAILED" };
            let tests = passed + failed + skipped;
            let result = format!("{passed} passed; {failed} failed; {skipped} ignored");
            (format!("running {tests} tests\ntest result: {word}. {result}"), None)
        }
        Ended::Broken => {
            ("running 1 test\ntest result: FAILED. 0 passed; 1 failed".to_owned(), None)
        }
        Ended::Lacks(what) => {
            let line = format!("skipped: needs Maven and a JDK, found: {what}\t{PROJECT}\t\n");
            ("running 1 test\ntest result: ok. 1 passed; 0 failed".to_owned(), Some(line))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_totals::{Counts, TestTotals};

    const SAID: &str = "\
[INFO] Tests run: 9, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.5 s -- in a.VectorsTest
[INFO] Tests run: 11, Failures: 0, Errors: 0, Skipped: 1
[ERROR] Tests run: 5, Failures: 1, Errors: 2, Skipped: 0
";

    fn counts(ended: &Ended) -> Counts {
        let (result, skipped) = told(ended);
        let mut totals = TestTotals::default();
        result.lines().for_each(|line| totals.read_line(line));
        totals.finish(&skipped.unwrap_or_default())
    }

    #[test]
    fn results_of_all_projects_are_counted_once() {
        let ran = ended(SAID, false);
        assert_eq!(ran, Ended::Ran(Counted { passed: 12, failed: 3, skipped: 1 }));
        assert_eq!(counts(&ran), Counts { passed: 12, failed: 3, skipped: 1 });
    }

    #[test]
    fn a_build_that_breaks_has_failed_also_when_maven_says_nothing_of_it() {
        for (said, is_success) in [("[ERROR] cannot find symbol\n", false), ("", true)] {
            let broken = ended(said, is_success);
            assert_eq!(broken, Ended::Broken, "{said}");
            assert_eq!(counts(&broken), Counts { passed: 0, failed: 1, skipped: 0 });
        }
    }

    #[test]
    fn a_host_without_a_way_to_the_repository_skips() {
        let lacks = ended("[ERROR] x: Could not transfer artifact a:b:1 from central\n", false);
        assert_eq!(counts(&lacks), Counts { passed: 0, failed: 0, skipped: 1 });
        let absent = ended("[ERROR] Could not find artifact a:b:1 in central\n", false);
        assert_eq!(absent, Ended::Broken);
    }
}
