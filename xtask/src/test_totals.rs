//! Counts tests from what `cargo test` prints and from the log of the skipped ones.
//!
//! A test that returned early because the host lacks something looks passed to `cargo test`. Here
//! it counts as skipped and not as passed, so that the three numbers add up to all tests.

use std::collections::BTreeSet;

/// The name of libtest's main thread; a test that runs there has no thread of its own name.
const MAIN_THREAD: &str = "main";

#[derive(Debug, Default)]
pub struct TestTotals {
    /// Tests that passed as cargo counts, so with those that skipped themselves.
    passed: u64,
    failed: u64,
    ignored: u64,
    failed_names: BTreeSet<String>,
    passed_names: BTreeSet<String>,
    running: Option<Running>,
}

/// A test binary that has said how many tests it holds, and not yet how they went.
#[derive(Debug)]
struct Running {
    tests: u64,
    passed: u64,
    ignored: u64,
}

impl Running {
    /// Tests that have not said how they went.
    fn unheard(&self) -> u64 {
        self.tests.saturating_sub(self.passed + self.ignored)
    }
}

/// The three numbers of the closing line.
#[derive(Debug, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl TestTotals {
    /// Takes in one line of the output of `cargo test`.
    pub fn read_line(&mut self, line: &str) {
        if let Some(tests) = tests_announced(line) {
            self.close_running();
            self.running = Some(Running { tests, passed: 0, ignored: 0 });
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.running = None;
            self.passed += number_before(result, "passed");
            self.failed += number_before(result, "failed");
            self.ignored += number_before(result, "ignored");
        } else if let Some((name, outcome)) = test_outcome(line) {
            if outcome.starts_with("FAILED") {
                self.failed_names.insert(name.into());
                return;
            }
            if outcome.starts_with("ok") {
                self.passed_names.insert(name.into());
            }
            if let Some(running) = &mut self.running {
                running.passed += u64::from(outcome.starts_with("ok"));
                running.ignored += u64::from(outcome.starts_with("ignored"));
            }
        }
    }

    /// Tests that have failed so far, those of a binary that died with them.
    pub fn failures(&self) -> u64 {
        let unheard = self.running.as_ref().map_or(0, Running::unheard);
        self.failed + unheard
    }

    /// Names of the tests that said they failed.
    pub fn failed_names(&self) -> &BTreeSet<String> {
        &self.failed_names
    }

    /// Counts those failed tests as passed that passed in `second`, in which they ran once more;
    /// returns their names.
    pub fn forgive(&mut self, second: &TestTotals) -> BTreeSet<String> {
        let passed = second.passed_names.difference(&second.failed_names);
        let forgiven: BTreeSet<String> =
            passed.filter(|name| self.failed_names.contains(*name)).cloned().collect();
        self.failed_names.retain(|name| !forgiven.contains(name));
        let count = (forgiven.len() as u64).min(self.failed);
        self.failed -= count;
        self.passed += count;
        forgiven
    }

    /// Counts the tests of a binary that died and has no result line: those that had not passed by
    /// then have failed.
    fn close_running(&mut self) {
        if let Some(running) = self.running.take() {
            self.passed += running.passed;
            self.ignored += running.ignored;
            self.failed += running.unheard();
        }
    }

    /// The closing numbers, with the lines of the skip log taken in.
    pub fn finish(mut self, skip_log: &str) -> Counts {
        self.close_running();
        let mut skipped_tests = BTreeSet::new();
        for (index, line) in skip_log.lines().enumerate() {
            let mut parts = line.split('\t').skip(1);
            let program = parts.next().unwrap_or_default();
            let test = parts.next().unwrap_or_default();
            if self.failed_names.contains(test) {
                continue;
            }
            // Without a name, every line stands for a test of its own.
            let is_named = !test.is_empty() && test != MAIN_THREAD;
            let own_line = if is_named { 0 } else { index + 1 };
            skipped_tests.insert((program, test, own_line));
        }
        let skipped = skipped_tests.len() as u64;
        let passed = self.passed.saturating_sub(skipped);
        Counts { passed, failed: self.failed, skipped: skipped + self.ignored }
    }
}

/// The number in `running 12 tests`.
fn tests_announced(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("running ")?;
    let number = rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test"))?;
    number.parse().ok()
}

/// The name and the outcome in `test module::name ... ok`.
fn test_outcome(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    // `test name - should panic ... ok`
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some((name, outcome))
}

/// The number in front of a word, as in `ok. 3 passed; 0 failed;`.
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';', '.']).filter(|part| !part.is_empty()).collect();
    let at = words.iter().position(|one| *one == word).unwrap_or_default();
    at.checked_sub(1).and_then(|before| words[before].parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(output: &str, skip_log: &str) -> Counts {
        let mut totals = TestTotals::default();
        output.lines().for_each(|line| totals.read_line(line));
        totals.finish(skip_log)
    }

    const TWO_BINARIES: &str = "\
running 3 tests
test a::one ... ok
test a::two ... FAILED
test a::three - should panic ... ok
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test b ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.00s
";

    #[test]
    fn results_are_summed_over_all_binaries() {
        assert_eq!(count(TWO_BINARIES, ""), Counts { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_skipped_test_has_not_passed_and_counts_once() {
        let log = "skipped: needs x, found y\tbin\ta::one\n".repeat(2);
        assert_eq!(count(TWO_BINARIES, &log), Counts { passed: 2, failed: 1, skipped: 1 });
    }

    #[test]
    fn tests_without_a_name_count_by_line() {
        let log = "skipped: needs x, found y\tbin\tmain\n".repeat(2);
        assert_eq!(count(TWO_BINARIES, &log), Counts { passed: 1, failed: 1, skipped: 2 });
    }

    #[test]
    fn a_test_that_skipped_a_part_and_failed_has_failed() {
        let log = "skipped: needs x, found y\tbin\ta::two\n";
        assert_eq!(count(TWO_BINARIES, log), Counts { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn an_ignored_test_is_skipped() {
        let output = "running 1 test\ntest a ... ignored\n\
            test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(output, ""), Counts { passed: 0, failed: 0, skipped: 1 });
    }

    #[test]
    fn the_tests_of_a_binary_that_died_have_failed() {
        let output = format!("running 4 tests\ntest a ... ok\n{TWO_BINARIES}");
        assert_eq!(count(&output, ""), Counts { passed: 4, failed: 4, skipped: 0 });
        assert_eq!(count("running 2 tests\n", ""), Counts { passed: 0, failed: 2, skipped: 0 });
    }

    #[test]
    fn a_test_that_passes_alone_counts_as_passed_and_is_named() {
        let totals_of = |output: &str| {
            let mut totals = TestTotals::default();
            output.lines().for_each(|line| totals.read_line(line));
            totals
        };
        let mut totals = totals_of(TWO_BINARIES);
        assert_eq!(totals.failures(), 1);
        let again = "running 1 test\ntest a::two ... FAILED\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out\n";
        assert!(totals.forgive(&totals_of(again)).is_empty());
        // Of two tests of one name, one has failed again.
        let both = format!("running 1 test\ntest a::two ... ok\n{again}");
        assert!(totals.forgive(&totals_of(&both)).is_empty());
        assert!(totals.forgive(&totals_of("running 1 test\n")).is_empty(), "it died");
        let passed = totals.forgive(&totals_of("running 1 test\ntest a::two ... ok\n"));
        assert_eq!(passed, BTreeSet::from(["a::two".to_owned()]));
        assert_eq!(totals.finish(""), Counts { passed: 4, failed: 0, skipped: 0 });
    }
}
