//! Tests of a package one by one: the places that each meets, its time, its verdict on a mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::{fs::PermissionsExt, process::CommandExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::compile::Program;
use crate::child;
use crate::mutants::tool;

/// Seconds of the tests that are tried first on a mutant; each further try has twice as many.
const FIRST_TRY_S: f64 = 0.25;
/// A try ends when it takes this many times what it took without a mutant, and at least the times
/// below: the mutant made it wait for ever, or run in a circle, which is noticed.
const TIMES_MAX: f64 = 5.0;
/// Least time that a try may wait, without the time for which it waited for a processor.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// Least time of processors that a try may take. It grows little on a busy host.
const RUN_MIN: Duration = Duration::from_secs(3);
/// Seconds from which on the tests of a try run beside each other: such tests mostly wait, for a
/// clock, a disk or a rate.
const LONG_TRY_S: f64 = 1.0;
const LONG_TRY_THREADS: usize = 4;
/// Time for a test without a mutant.
const BASELINE_MAX: Duration = Duration::from_secs(120);
/// Interval between looks at whether a test program has ended, and at what it has taken.
const LOOK: Duration = Duration::from_millis(2);
const LOOK_AT_COST: Duration = Duration::from_millis(100);
/// Time between two looks from which on this program was held up with its tests, as by a SIGSTOP
/// for the time of a measurement on the same host.
const HELD_UP: Duration = Duration::from_secs(5);
/// Number of times that a test program is run again because it was held up.
const HELD_UP_MAX: usize = 20;

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub program: Program,
    pub name: String,
    /// Time without a mutant.
    pub seconds: f64,
    /// First numbers of the places that it meets.
    pub met: BTreeSet<usize>,
}

/// How a test program ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Passed,
    Failed,
    OutOfTime,
}

/// A directory for the files of tests, which may be ended before they remove them.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(worker: usize) -> Result<Scratch> {
        let name = format!("haul-mutants-{}-{worker}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }

    fn clear(&self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::create_dir_all(&self.0);
    }

    /// Makes the file that gets the places that a test meets. Children of the test may be of
    /// another account, and write as well.
    fn file_of_met(&self) -> Result<PathBuf> {
        let path = self.0.join("met");
        let made = fs::File::create(&path)
            .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o666)));
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The names of the tests of a program.
pub fn names_of(program: &Program) -> Result<Vec<String>> {
    let mut command = child::command(&program.directory, &program.path, &["--list"]);
    let said = child::output_of(command.args(["--format", "terse"]))?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs one test without a mutant. It is tried a second time, for a test may fail by chance.
pub fn baseline(program: &Program, name: &str, scratch: &Scratch) -> Result<Case> {
    let names = [name];
    for _ in 0..2 {
        scratch.clear();
        let told = scratch.file_of_met()?;
        let started = Instant::now();
        let mut command = command_of(program, &names, 1, &scratch.0);
        command.env("HAUL_MUTANTS_MET", &told);
        let (ended, said) = wait(command, Bound { wait: BASELINE_MAX, run: BASELINE_MAX })?;
        let seconds = started.elapsed().as_secs_f64();
        if ended == Ended::Passed {
            let met = fs::read_to_string(&told).unwrap_or_default();
            let met = met.lines().filter_map(|line| line.parse().ok()).collect();
            return Ok(Case { program: program.clone(), name: name.to_owned(), seconds, met });
        }
        eprintln!("mutants: without any mutant: {name}: {ended:?}\n{said}");
    }
    bail!("the test {name} fails without any mutant")
}

/// Whether one of the cases notices the mutant of this number, the quick ones first.
pub fn is_noticed(number: usize, cases: &[&Case], scratch: &Scratch) -> Result<bool> {
    for one_try in tries(cases) {
        let seconds: f64 = one_try.iter().map(|case| case.seconds).sum();
        let bound = Bound::of(seconds);
        let mut programs: BTreeMap<&Program, Vec<&str>> = BTreeMap::new();
        for case in one_try {
            programs.entry(&case.program).or_default().push(&case.name);
        }
        for (program, names) in programs {
            let run = || {
                let mut command = command_of(program, &names, threads_for(seconds), &scratch.0);
                command.env("HAUL_MUTANT", number.to_string());
                let ended = wait(command, bound)?.0;
                if ended != Ended::Passed {
                    scratch.clear();
                }
                Ok(ended)
            };
            if fails_for_sure(seconds, run)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a try fails. One that takes long is run a second time: it may have failed by chance, as
/// what waits for a clock does on a busy host.
fn fails_for_sure(seconds: f64, run: impl Fn() -> Result<Ended>) -> Result<bool> {
    let is_long = seconds > LONG_TRY_S;
    Ok(match run()? {
        Ended::Passed => false,
        Ended::Failed if is_long => run()? != Ended::Passed,
        Ended::Failed | Ended::OutOfTime => true,
    })
}

/// Limits of what a test program may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// Time without that for which it waited for a processor.
    wait: Duration,
    /// Time of processors, of all its threads.
    run: Duration,
}

impl Bound {
    /// Limits of a try that took so long without a mutant.
    fn of(seconds: f64) -> Bound {
        let longer = Duration::from_secs_f64(seconds * TIMES_MAX);
        Bound { wait: WAIT_MIN.max(longer), run: RUN_MIN.max(longer) }
    }
}

/// Time that each thread of a program has taken, and for which it waited for a processor, in
/// nanoseconds.
#[derive(Default)]
struct Cost(BTreeMap<String, (u64, u64)>);

impl Cost {
    /// Looks at the threads that there are (proc_pid_schedstat(5)); those that ended stay counted.
    fn look(&mut self, pid: u32) {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
        for thread in threads.flatten() {
            let told = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let mut numbers = told.split_whitespace().filter_map(|word| word.parse().ok());
            if let (Some(run), Some(wait)) = (numbers.next(), numbers.next()) {
                let name = thread.file_name().to_string_lossy().into_owned();
                self.0.insert(name, (run, wait));
            }
        }
    }

    fn exceeds(&self, bound: Bound, elapsed: Duration) -> bool {
        let sum = |of: fn(&(u64, u64)) -> u64| Duration::from_nanos(self.0.values().map(of).sum());
        sum(|cost| cost.0) > bound.run || elapsed.saturating_sub(sum(|cost| cost.1)) > bound.wait
    }
}

/// Parts cases into tries, the quickest first, of which each takes about twice the time of the one
/// before.
fn tries<'a>(cases: &[&'a Case]) -> Vec<Vec<&'a Case>> {
    let mut sorted = cases.to_vec();
    sorted.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let mut tries: Vec<Vec<&Case>> = Vec::new();
    let (mut seconds, mut seconds_max) = (0.0, FIRST_TRY_S);
    for case in sorted {
        if tries.is_empty() || seconds + case.seconds > seconds_max {
            if !tries.is_empty() {
                seconds_max *= 2.0;
            }
            tries.push(Vec::new());
            seconds = 0.0;
        }
        seconds += case.seconds;
        if let Some(last) = tries.last_mut() {
            last.push(case);
        }
    }
    tries
}

/// Number of tests of a try that run at a time.
fn threads_for(seconds: f64) -> usize {
    if seconds > LONG_TRY_S { LONG_TRY_THREADS } else { 1 }
}

fn command_of(program: &Program, names: &[&str], threads: usize, scratch: &Path) -> Command {
    let mut command = tool::within_memory(&program.directory, &program.path);
    // Quick ones one after the other: the one that fails ends the program, and a program runs on
    // each processor.
    command.args(["--exact", &format!("--test-threads={threads}")]).args(names);
    command.env("CARGO_MANIFEST_DIR", &program.directory).env("TMPDIR", scratch);
    tool::set_fate(&mut command);
    command
}

/// Waits for a test program, which ends with the first test that fails; also tells what it said.
fn wait(mut command: Command, bound: Bound) -> Result<(Ended, String)> {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    until_not_held_up(|| wait_once(&mut command, bound))
}

/// Runs a test program again when it was held up and did not pass, which says nothing. A run also
/// tells the longest time between two looks at it.
fn until_not_held_up(
    mut run: impl FnMut() -> Result<(Ended, String, Duration)>,
) -> Result<(Ended, String)> {
    for _ in 0..HELD_UP_MAX {
        let (ended, said, longest_look) = run()?;
        if ended == Ended::Passed || longest_look < HELD_UP {
            return Ok((ended, said));
        }
    }
    bail!("a test program was held up {HELD_UP_MAX} times")
}

/// Waits for one run of a test program; also tells the longest time between two looks at it.
fn wait_once(command: &mut Command, bound: Bound) -> Result<(Ended, String, Duration)> {
    let started = Instant::now();
    let (mut cost, mut looked) = (Cost::default(), started);
    let (mut longest_look, mut last) = (Duration::ZERO, started);
    let mut child = command.spawn().context("cannot start a test program")?;
    let said = Arc::new(Mutex::new(String::new()));
    let has_failed = Arc::new(AtomicBool::new(false));
    if let Some(stdout) = child.stdout.take() {
        let (said, has_failed) = (Arc::clone(&said), Arc::clone(&has_failed));
        // Not waited for: a child of the test that lives on has the other end as well.
        std::thread::spawn(move || listen(stdout, &said, &has_failed));
    }
    let ended = loop {
        longest_look = longest_look.max(last.elapsed());
        last = Instant::now();
        if has_failed.load(Ordering::Relaxed) {
            end(&mut child);
            break Ended::Failed;
        }
        if let Some(status) = child.try_wait()? {
            break if status.success() { Ended::Passed } else { Ended::Failed };
        }
        if looked.elapsed() > LOOK_AT_COST {
            looked = Instant::now();
            cost.look(child.id());
            if cost.exceeds(bound, started.elapsed()) {
                end(&mut child);
                break Ended::OutOfTime;
            }
        }
        std::thread::sleep(LOOK);
    };
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((ended, said, longest_look))
}

/// Collects what a test program says, and notes when it says that a test failed.
fn listen(mut stdout: impl Read, said: &Mutex<String>, has_failed: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stdout.read(&mut bytes) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        *said += &String::from_utf8_lossy(&bytes[..count]);
        if says_failed(&said) {
            has_failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether a test program told that a test failed: `test NAME ... FAILED`.
fn says_failed(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("test ") && line.ends_with("... FAILED"))
}

/// Ends a program and those that it started.
fn end(child: &mut Child) {
    let words = ["-c", "kill -9 -\"$0\"", &child.id().to_string()].map(str::to_owned);
    let _ = Command::new("sh").args(words).stderr(Stdio::null()).status();
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, seconds: f64) -> Case {
        let program = Program { path: "/bin/p".into(), directory: "/".into() };
        Case { program, name: name.to_owned(), seconds, met: BTreeSet::new() }
    }

    fn shell(text: &str) -> Command {
        child::command(Path::new("/"), "sh", &["-c", text])
    }

    /// Case of a test that needs a child without root's rights.
    #[test]
    fn a_child_of_another_account_may_tell_which_places_it_meets() {
        let scratch = Scratch::new(900).unwrap();
        let path = scratch.file_of_met().unwrap();
        let said = fs::metadata(&path).unwrap();
        assert_eq!((said.permissions().mode() & 0o777, said.len()), (0o666, 0));
    }

    #[test]
    fn quick_tests_are_tried_first_and_slow_ones_in_growing_tries() {
        let cases = [case("slow", 3.0), case("a", 0.1), case("b", 0.1), case("c", 0.2)];
        let cases: Vec<&Case> = cases.iter().collect();
        let names = |one: &Vec<&Case>| one.iter().map(|case| case.name.clone()).collect();
        let tries: Vec<Vec<String>> = tries(&cases).iter().map(names).collect();
        assert_eq!(tries, [vec!["a", "b"], vec!["c"], vec!["slow"]]);
    }

    #[test]
    fn only_tests_that_take_long_run_beside_each_other() {
        assert_eq!([0.1, 1.0, 1.1].map(threads_for), [1, 1, LONG_TRY_THREADS]);
    }

    fn within(wait_ms: u64, run_ms: u64) -> Bound {
        Bound { wait: Duration::from_millis(wait_ms), run: Duration::from_millis(run_ms) }
    }

    #[test]
    fn a_program_that_fails_is_told_from_one_that_passes() {
        let bound = within(20_000, 20_000);
        assert_eq!(wait(shell("exit 0"), bound).unwrap().0, Ended::Passed);
        assert_eq!(wait(shell("exit 101"), bound).unwrap().0, Ended::Failed);
        assert_eq!(wait(shell("kill -9 $$"), bound).unwrap().0, Ended::Failed);
    }

    /// Case of a mutant whose first failing test is followed by slow ones.
    #[test]
    fn the_first_test_that_fails_ends_the_program_and_what_it_started() {
        let started = Instant::now();
        let text = "sleep 60 & echo 'test a ... ok'; echo 'test b ... FAILED'; sleep 60";
        let (ended, said) = wait(shell(text), within(50_000, 50_000)).unwrap();
        assert_eq!((ended, said.lines().count()), (Ended::Failed, 2));
        assert!(started.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn a_program_that_waits_for_ever_or_runs_in_a_circle_is_out_of_time() {
        for (text, bound) in
            [("while :; do :; done", within(60_000, 300)), ("sleep 60", within(300, 60_000))]
        {
            let started = Instant::now();
            assert_eq!(wait(shell(text), bound).unwrap().0, Ended::OutOfTime, "{text}");
            assert!(started.elapsed() < Duration::from_secs(40), "{text}");
        }
    }

    /// Case of a measurement for which the whole run is stopped: a test that is then out of time
    /// has noticed nothing.
    #[test]
    fn a_program_that_does_not_pass_while_it_is_held_up_runs_again() {
        use Ended::{Failed, OutOfTime, Passed};
        for (ends, expected, runs) in [
            ([(OutOfTime, 300), (Passed, 0)], Passed, 2),
            ([(Failed, 5), (Failed, 4)], Failed, 2),
            ([(Passed, 300), (Failed, 0)], Passed, 1),
            ([(OutOfTime, 4), (Passed, 0)], OutOfTime, 1),
        ] {
            let mut left = ends.into_iter();
            let run = || {
                let (ended, look_s) = left.next().unwrap();
                Ok((ended, String::new(), Duration::from_secs(look_s)))
            };
            assert_eq!(until_not_held_up(run).unwrap().0, expected);
            assert_eq!(2 - left.count(), runs);
        }
        let run = || Ok((Failed, String::new(), HELD_UP));
        assert!(until_not_held_up(run).is_err());
    }

    /// Case of a busy host, on which mutants that change nothing were told to be noticed.
    #[test]
    fn time_without_a_processor_is_no_time_that_a_try_may_not_take() {
        let s = |seconds: u64| seconds * 1_000_000_000;
        let cost = Cost(BTreeMap::from([("1".into(), (s(1), s(9))), ("2".into(), (s(1), s(3)))]));
        for (elapsed_s, bound, is_over) in [
            (20, within(10_000, 3_000), false),
            (23, within(10_000, 3_000), true),
            (20, within(10_000, 1_900), true),
        ] {
            let elapsed = Duration::from_secs(elapsed_s);
            assert_eq!(cost.exceeds(bound, elapsed), is_over, "{elapsed_s} s");
        }
        assert_eq!(Bound::of(0.1), within(10_000, 3_000));
        assert_eq!(Bound::of(4.0), within(20_000, 20_000));
    }

    #[test]
    fn a_long_try_that_fails_once_is_run_again_and_a_quick_one_is_not() {
        use Ended::{Failed, OutOfTime, Passed};
        for (seconds, ends, is_noticed, runs) in [
            (9.0, [Failed, Passed], false, 2),
            (9.0, [Failed, Failed], true, 2),
            (9.0, [Failed, OutOfTime], true, 2),
            (9.0, [OutOfTime, Passed], true, 1),
            (9.0, [Passed, Failed], false, 1),
            (0.1, [Failed, Passed], true, 1),
        ] {
            let left = Mutex::new(ends.into_iter().rev().collect::<Vec<_>>());
            let run = || Ok(left.lock().unwrap().pop().unwrap());
            assert_eq!(fails_for_sure(seconds, run).unwrap(), is_noticed);
            assert_eq!(2 - left.lock().unwrap().len(), runs);
        }
    }

    #[test]
    fn a_name_that_holds_failed_is_no_failure() {
        assert!(!says_failed("test a_test_that_FAILED ... ok\n"));
        assert!(!says_failed("test a ... "));
        assert!(says_failed("running 1 test\ntest a ... FAILED\n"));
    }
}
