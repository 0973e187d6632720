//! Tests of the JVM client (`clients/java`) as some of the tests, by Maven, beside the others.
//!
//! Maven fetches what it needs. A host without Maven, a JDK or a way to Maven's repository skips
//! these tests, which count as one then. Some of them talk to the program that cargo built.
//!
//! What Maven compiled is tested on JDK 17, and on JDK 25 but for tests that say nothing more
//! there (the profile `second-jdk` of its pom). Where one of them is missing, that is one test
//! that is skipped. One more test, behind them, is that its jars are the same in each build
//! (jars.rs).

use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::maven::{self, JDKS, Jdks};
use crate::{child, jars, prerequisites};

/// The project that Maven builds and tests.
const PROJECT: &str = "clients/java/pom.xml";
/// The programs that it takes.
const PROGRAMS: [&str; 2] = ["mvn", "javac"];
/// The time after which Maven is ended; each test has ten minutes, by the pom. The tests of both
/// JDKs take a quarter of an hour.
const TIME_MAX: &str = "45m";
/// The program that some of the tests start, as cargo's tests build it.
const PROGRAM: &str = "target/debug/haul";

/// The way in which Maven's run went.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The tests ran; on fewer versions of Java than they should where some are missing, named.
    Ran(Counted, Option<String>),
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
    running: JoinHandle<Ran>,
}

/// Maven's run, and the comparison of two builds where that run tested anything.
struct Ran {
    tested: Result<(Ended, String)>,
    compared: Option<Result<jars::Ended>>,
}

impl Tests {
    /// Starts the tests.
    pub fn start(root: &Path) -> Tests {
        let root = root.to_owned();
        let run = move || {
            let tested = run(&root);
            let is_built = matches!(&tested, Ok((Ended::Ran(..), _)));
            Ran { tested, compared: is_built.then(|| jars::compare(&root)) }
        };
        Tests { running: std::thread::spawn(run) }
    }

    /// Waits for the end of the tests, and shows what Maven said where they did not pass. Returns
    /// the lines by which cargo tells the results of tests, and one for the log of skips.
    pub fn finish(self) -> (String, Option<String>) {
        let ran = self.running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = match ran.tested {
            Ok((ended, said)) => {
                if !matches!(&ended, Ended::Ran(Counted { failed: 0, .. }, _)) {
                    print!("{said}");
                }
                ended
            }
            Err(error) => {
                println!("test: {PROJECT}: {error:#}");
                Ended::Broken
            }
        };
        let (mut result, mut skipped) = told(&ended);
        if let Some(compared) = ran.compared {
            let (result_of_jars, skipped_of_jars) = jars::told(compared);
            result = format!("{result}\n{result_of_jars}");
            skipped =
                [skipped, skipped_of_jars].into_iter().flatten().reduce(|all, one| all + &one);
        }
        (result, skipped)
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
    let jdks = Jdks::below(Path::new(JDKS));
    let mut command = maven::bounded(root, TIME_MAX);
    command.args(["mvn", "-B", "-ntp", "-f", PROJECT, &property, "test"]);
    jdks.tell(&mut command);
    let output = command.output().context("cannot start mvn")?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    if maven::is_out_of_time(output.status) {
        said.push_str(&format!("\n[ERROR] Maven was ended after {TIME_MAX}\n"));
    }
    Ok((ended(&said, output.status.success(), jdks.lack()), said))
}

/// Reads how a run went from what Maven said and whether it ended well.
fn ended(said: &str, is_success: bool, lack: Option<String>) -> Ended {
    let counted = counted(said);
    let is_tested = counted != Counted::default();
    match is_success {
        true if is_tested => Ended::Ran(counted, lack),
        false if counted.failed > 0 => Ended::Ran(counted, lack),
        false => maven::unreachable(said).map_or(Ended::Broken, Ended::Lacks),
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
        Ended::Ran(Counted { passed, failed, skipped }, lack) => {
            let word = if *failed == 0 { "ok" } else { "FAILED" };
            // What is skipped by the log is one that passed, as cargo counts.
            let passed = passed + u64::from(lack.is_some());
            let tests = passed + failed + skipped;
            let result = format!("{passed} passed; {failed} failed; {skipped} ignored");
            let line = lack.as_ref().map(|lack| {
                format!("skipped: needs JDK 17 and JDK 25, found: {lack}\t{PROJECT}\t\n")
            });
            (format!("running {tests} tests\ntest result: {word}. {result}"), line)
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
    use std::path::PathBuf;

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
        let ran = ended(SAID, false, None);
        assert_eq!(ran, Ended::Ran(Counted { passed: 12, failed: 3, skipped: 1 }, None));
        assert_eq!(counts(&ran), Counts { passed: 12, failed: 3, skipped: 1 });
    }

    #[test]
    fn tests_run_on_both_versions_of_java_or_tell_which_is_missing() {
        let name = format!("haul-xtask-jdks-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let add = |name: &str, version: &str| {
            let home = directory.join(name);
            std::fs::create_dir_all(home.join("bin")).unwrap();
            std::fs::write(home.join("bin/javac"), "").unwrap();
            let release = format!("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"{version}\"\n");
            std::fs::write(home.join("release"), release).unwrap();
            home
        };
        let told = || {
            let mut maven = std::process::Command::new("mvn");
            let jdks = Jdks::below(&directory);
            jdks.tell(&mut maven);
            let homes = maven.get_envs().filter_map(|(_, home)| Some(PathBuf::from(home?)));
            let words = maven.get_args().map(|word| word.to_string_lossy().into_owned());
            (homes.collect::<Vec<_>>(), words.collect::<Vec<_>>(), jdks.lack())
        };
        add("java-8", "1.8.0_392");
        let (homes, words, lack) = told();
        assert!(homes.is_empty() && words.is_empty());
        let lack_of_both = ended(SAID, false, lack);
        assert_eq!(counts(&lack_of_both), Counts { passed: 12, failed: 3, skipped: 2 });
        let newest = add("temurin-25", "25");
        let (homes, words, lack) = told();
        assert_eq!((homes, words), (vec![newest.clone()], vec![]));
        assert!(lack.unwrap().contains("no JDK 17"));
        let oldest = add("java-17", "17.0.15");
        let second = format!("-Dhaul.second.jdk={}", newest.display());
        assert_eq!(told(), (vec![oldest.clone()], vec![second], None));
        std::fs::remove_file(oldest.join("bin/javac")).unwrap();
        assert!(told().2.is_some(), "a runtime compiles nothing");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_build_that_breaks_has_failed_also_when_maven_says_nothing_of_it() {
        for (said, is_success) in [("[ERROR] cannot find symbol\n", false), ("", true)] {
            let broken = ended(said, is_success, None);
            assert_eq!(broken, Ended::Broken, "{said}");
            assert_eq!(counts(&broken), Counts { passed: 0, failed: 1, skipped: 0 });
        }
    }

    #[test]
    fn a_host_without_a_way_to_the_repository_skips() {
        let lacks =
            ended("[ERROR] x: Could not transfer artifact a:b:1 from central\n", false, None);
        assert_eq!(counts(&lacks), Counts { passed: 0, failed: 0, skipped: 1 });
        let absent = ended("[ERROR] Could not find artifact a:b:1 in central\n", false, None);
        assert_eq!(absent, Ended::Broken);
    }
}
