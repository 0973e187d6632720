//! cargo-mutants: installed below `target/tools`, asked for the mutants, and run on some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::scope::{EXCLUDED_FILES, EXCLUDED_NAMES, SCOPE};
use crate::{child, prerequisites};

/// Names of mutants, and so our record, may change with the version.
const VERSION: &str = "27.1.0";
const TOOLS: &str = "target/tools/cargo-mutants";
/// The copy of the project that is mutated, and what cargo-mutants says of it.
pub const TREE: &str = "target/mutants/tree";
const REPORT: &str = "target/mutants/report";
const BUILD: &str = "target/mutants/build";
/// Seconds after which the tests of one mutant are ended: it runs in a circle, which is noticed.
const TEST_S_MAX: &str = "120";
/// Memory of one test program: a loop that a mutant made endless must not take the host's.
const TEST_BYTES_MAX: u64 = 6 << 30;
/// The exit status of cargo-mutants when the tests fail without any mutant.
const STATUS_TESTS_FAIL: i32 = 4;
/// The statuses that say how the mutants went: all killed, some missed, some ran out of time.
const STATUSES_OF_A_RUN: [i32; 3] = [0, 2, 3];

/// One place where the code is broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The mutant's name in cargo-mutants: `FILE:LINE:COLUMN: WHAT`.
    pub name: String,
    pub file: String,
    /// The name without the place, so that it stays as lines move; ` #2` marks the second one.
    pub key: String,
    pub package: String,
    pub change: Change,
}

/// Text that a mutant replaces, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The kind of change, in the words of cargo-mutants.
    pub genre: String,
    /// Line and column, counted from 1, of the first letter and of the one after the last.
    pub start: (usize, usize),
    pub end: (usize, usize),
    pub replacement: String,
}

impl Change {
    /// Reads what cargo-mutants says of a mutant.
    fn of(one: &Value) -> Option<Change> {
        let place = |end: &str| {
            let at = |name: &str| usize::try_from(one["span"][end][name].as_u64()?).ok();
            Some((at("line")?, at("column")?))
        };
        let text = |name: &str| one[name].as_str().map(str::to_owned);
        let (genre, replacement) = (text("genre")?, text("replacement")?);
        Some(Change { genre, start: place("start")?, end: place("end")?, replacement })
    }
}

/// The names of the mutants that were tried, by what came of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The tests failed, or ran until they were ended.
    pub killed: BTreeSet<String>,
    pub survived: BTreeSet<String>,
    /// Survivors that no test ran into.
    pub unmet: BTreeSet<String>,
    /// Mutants that the compiler refused.
    pub refused: BTreeSet<String>,
}

impl Verdicts {
    pub fn reached(&self) -> usize {
        self.killed.len() + self.survived.len() + self.refused.len()
    }

    pub fn survivors<'a>(&self, mutants: &[&'a Mutant]) -> Vec<&'a Mutant> {
        mutants.iter().copied().filter(|one| self.survived.contains(&one.name)).collect()
    }

    /// The verdicts of these mutants alone.
    pub fn of(&self, mutants: &[&Mutant]) -> Verdicts {
        let of = |names: &BTreeSet<String>| {
            let names = mutants.iter().map(|one| &one.name).filter(|name| names.contains(*name));
            names.cloned().collect()
        };
        Verdicts {
            killed: of(&self.killed),
            survived: of(&self.survived),
            unmet: of(&self.unmet),
            refused: of(&self.refused),
        }
    }

    pub fn add(&mut self, others: Verdicts) {
        self.killed.extend(others.killed);
        self.survived.extend(others.survived);
        self.unmet.extend(others.unmet);
        self.refused.extend(others.refused);
    }

    pub fn sum(&self, asked: usize) -> String {
        format!(
            "{asked} mutants: {} killed, {} survived, {} that do not compile, {} not reached",
            self.killed.len(),
            self.survived.len(),
            self.refused.len(),
            asked.saturating_sub(self.reached())
        )
    }
}

/// Installs cargo-mutants where it is missing. Without optimization: it waits for cargo anyway.
pub fn provide(root: &Path) -> Result<()> {
    if is_there(root) {
        return Ok(());
    }
    println!("mutants: installing cargo-mutants {VERSION} below {TOOLS}, about a minute");
    let words = ["install", "--quiet", "--locked", "--debug", "--force", "cargo-mutants"];
    let mut command = child::cargo(root, &words);
    command.args(["--version", VERSION, "--root", TOOLS]);
    // Dropped, as a directory that is set for haul's own build would keep its build for nothing.
    command.env_remove("CARGO_TARGET_DIR").env("CARGO_PROFILE_DEV_DEBUG", "0");
    child::run(&mut command)
}

fn is_there(root: &Path) -> bool {
    let said =
        child::output_of(&mut child::command(root, program(root), &["mutants", "--version"]));
    said.is_ok_and(|said| String::from_utf8_lossy(&said).trim().ends_with(VERSION))
}

fn program(root: &Path) -> PathBuf {
    root.join(TOOLS).join("bin/cargo-mutants")
}

/// Brings the copy up to date. What is equal stays, so that cargo builds only what changed.
pub fn copy_tree(root: &Path) -> Result<()> {
    let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = child::output_of(&mut child::command(root, "git", &words))?;
    let listed = String::from_utf8(listed).context("a path of the project is not UTF-8")?;
    let tree = root.join(TREE);
    let mut kept = BTreeSet::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let (source, target) = (root.join(path), tree.join(path));
        // A file that is deleted in the working tree is still listed.
        if !source.is_file() {
            continue;
        }
        kept.insert(target.clone());
        let bytes = fs::read(&source).with_context(|| format!("cannot read {path}"))?;
        if fs::read(&target).ok().as_deref() != Some(&bytes) {
            let parent = target.parent().unwrap_or(&tree);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&target, &bytes))
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    remove_others(&tree, &kept)
}

fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), kept)?;
        } else if !kept.contains(&entry.path()) {
            fs::remove_file(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// All mutants of the scope, in the order of the source.
pub fn list(root: &Path) -> Result<Vec<Mutant>> {
    let mut command = mutants(root);
    command.args(["--list", "--json"]);
    for part in &SCOPE {
        command.args(["--package", part.package]);
        command.args(part.files.iter().flat_map(|glob| ["--file", glob]));
    }
    command.args(EXCLUDED_FILES.iter().flat_map(|glob| ["--exclude", glob]));
    command.args(EXCLUDED_NAMES.iter().flat_map(|name| ["--exclude-re", name]));
    mutants_of(&child::output_of(&mut command)?)
}

/// Reads a list of cargo-mutants.
fn mutants_of(json: &[u8]) -> Result<Vec<Mutant>> {
    let list: Value =
        serde_json::from_slice(json).context("cannot read the list of cargo-mutants")?;
    let all = list.as_array().context("the list of cargo-mutants is no array")?;
    let names = all.iter().filter_map(|one| one["name"].as_str()).map(str::to_owned);
    let mut mutants = with_keys(names);
    if mutants.len() != all.len() || mutants.is_empty() {
        bail!("read {} of {} mutants of cargo-mutants' list", mutants.len(), all.len());
    }
    for (mutant, one) in mutants.iter_mut().zip(all) {
        let told = || format!("cannot read what `{}` changes", mutant.name);
        mutant.change = Change::of(one).with_context(told)?;
        mutant.package = one["package"].as_str().unwrap_or_default().to_owned();
    }
    Ok(mutants)
}

/// Mutants from their names, of which one that has no place in a file is left out.
pub fn with_keys(names: impl IntoIterator<Item = String>) -> Vec<Mutant> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let with_keys = names.into_iter().filter_map(|name| {
        let (place, what) = name.split_once(": ")?;
        let mut parts = place.rsplitn(3, ':');
        let file = parts.nth(2)?.to_owned();
        let mut key = format!("{file}: {what}");
        let count = seen.entry(key.clone()).and_modify(|count| *count += 1).or_insert(1);
        if *count > 1 {
            key += &format!(" #{count}");
        }
        Some(Mutant { name, file, key, package: String::new(), change: Change::default() })
    });
    with_keys.collect()
}

/// Words for cargo that turn on a package's code for RDMA, which is of the scope where its library
/// is.
pub fn features(root: &Path, package: &str) -> Vec<&'static str> {
    let part = SCOPE.iter().find(|part| part.package == package);
    let feature = part.and_then(|part| part.fabric).filter(|_| prerequisites::has_libfabric(root));
    feature.map_or_else(Vec::new, |feature| vec!["--features", feature])
}

/// Tries mutants of one package one after the other until `deadline`, each by a build of its own,
/// after the tests passed without any.
pub fn judge(root: &Path, mutants: &[&Mutant], deadline: Instant) -> Result<Verdicts> {
    let seconds = deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
    let report = root.join(REPORT);
    let _ = fs::remove_dir_all(&report);
    fs::create_dir_all(&report).with_context(|| format!("cannot make {REPORT}"))?;
    // At an interrupt cargo-mutants ends its children and puts the file back.
    let bound = ["--signal=INT", "--kill-after=60", &seconds.to_string()].map(str::to_owned);
    let mut command = child::command(root, "timeout", &[]);
    command.args(bound).arg(program(root)).args(["mutants", "--in-place", "--no-shuffle"]);
    command.args(["--timeout", TEST_S_MAX, "--no-times", "--colors", "never", "--output"]);
    command.arg(&report).arg("--dir").arg(root.join(TREE));
    for part in &SCOPE {
        command.args(["--package", part.package]);
    }
    for one in mutants {
        command.args(["--file", &one.file, "--re", &exactly(&one.name)]);
    }
    let package = mutants.first().map_or("", |one| one.package.as_str());
    command.args(features(root, package)).args(runner()).args(["--", "--lib", "--tests"]);
    set_variables(root, &mut command);
    let output = command.output().context("cannot start timeout and cargo-mutants")?;
    let status = output.status.code().unwrap_or(-1);
    let is_out_of_time = status == 124;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if status == STATUS_TESTS_FAIL {
        bail!("the tests fail without any mutant:\n{said}");
    }
    if !is_out_of_time && !STATUSES_OF_A_RUN.contains(&status) {
        bail!("cargo-mutants ended with status {status}:\n{said}");
    }
    let report = report.join("mutants.out");
    if is_out_of_time && !report.join("mutants.json").exists() {
        return Ok(Verdicts::default());
    }
    // It takes those that delete a field, too, whatever is asked for (27.1).
    let taken = mutants_of(&fs::read(report.join("mutants.json")).unwrap_or_default())?;
    let is_missing = |one: &&&Mutant| !taken.iter().any(|taken| taken.name == one.name);
    if let Some(missing) = mutants.iter().find(is_missing) {
        bail!("cargo-mutants did not take `{}`", missing.name);
    }
    Ok(read_report(&report).of(mutants))
}

fn read_report(report: &Path) -> Verdicts {
    let names = |file: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(report.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let mut killed = names("caught.txt");
    killed.extend(names("timeout.txt"));
    let (survived, refused) = (names("missed.txt"), names("unviable.txt"));
    Verdicts { killed, survived, unmet: BTreeSet::new(), refused }
}

/// An expression of cargo-mutants that takes the mutant of this name alone.
fn exactly(name: &str) -> String {
    let mut expression = String::from("^");
    for letter in name.chars() {
        // Not every mark: behind a backslash `<` is the beginning of a word.
        if r"\.+*?()|[]{}^$#&-~".contains(letter) {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression + "$"
}

fn mutants(root: &Path) -> Command {
    let mut command = child::command(root, program(root), &["mutants", "--dir"]);
    command.arg(root.join(TREE));
    command
}

/// The option that limits a test program's memory, where the host can.
fn runner() -> Vec<String> {
    if !child::is_installed("prlimit") {
        return Vec::new();
    }
    let runner = format!("target.'cfg(unix)'.runner='prlimit --as={TEST_BYTES_MAX}'");
    vec![format!("--cargo-arg=--config={runner}")]
}

/// A test program at `directory`, with limited memory where the host can.
pub fn within_memory(directory: &Path, program: &Path) -> Command {
    if !child::is_installed("prlimit") {
        return child::command(directory, program, &[]);
    }
    let mut command = child::command(directory, "prlimit", &[]);
    command.arg(format!("--as={TEST_BYTES_MAX}")).arg(program);
    command
}

/// Variables that make a verdict the same each time, and keep its builds apart and small.
///
/// Cargo tells packages apart by their paths below the root, which are those of the project: in one
/// target directory the project's next test would run what was built of a mutant.
pub fn set_variables(root: &Path, command: &mut Command) {
    command.env("CARGO_TARGET_DIR", root.join(BUILD));
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    // A mutant is built once and tried for long: property tests take a twentieth of the time.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    set_fate(command);
}

/// Variables that make the tests draw the same cases each time.
pub fn set_fate(command: &mut Command) {
    command.env("PROPTEST_RNG_SEED", "1");
    // A case that a mutant fails is none to keep.
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = [
        "a/b.rs:5:9: replace < with <= in up_to",
        "a/b.rs:9:9: replace < with <= in up_to",
        "a/b.rs:9:9: replace <impl X for Y>::at -> Option<u8> with Some(1)",
    ];

    #[test]
    fn a_key_has_no_place_and_two_alike_are_told_apart() {
        let all = with_keys(NAMES.map(str::to_owned));
        assert_eq!(all[0].key, "a/b.rs: replace < with <= in up_to");
        assert_eq!(all[1].key, "a/b.rs: replace < with <= in up_to #2");
        assert_eq!(all[2].key, "a/b.rs: replace <impl X for Y>::at -> Option<u8> with Some(1)");
        assert!(all.iter().all(|one| one.file == "a/b.rs"));
    }

    /// Case of a test that ran the code of a mutant, which cargo took for the project's own.
    #[test]
    fn what_is_built_of_a_mutant_lies_apart_from_what_is_built_of_the_project() {
        let mut command = Command::new("true");
        set_variables(Path::new("/project"), &mut command);
        let directory = command.get_envs().find(|(name, _)| *name == "CARGO_TARGET_DIR");
        let directory = directory.and_then(|(_, value)| value).map(Path::new);
        assert_eq!(directory, Some(Path::new("/project/target/mutants/build")));
    }

    #[test]
    fn every_mark_of_a_name_stands_for_itself() {
        assert_eq!(exactly("a.rs:1: f -> (x)"), r"^a\.rs:1: f \-> \(x\)$");
        assert_eq!(exactly("replace | with <="), r"^replace \| with <=$");
    }

    #[test]
    fn a_list_of_which_a_mutant_cannot_be_read_is_refused() {
        let list = br#"[{"name": "a.rs:1:1: delete ! in f", "package": "p", "replacement": "",
            "genre": "UnaryOperator", "span": {"start": {"line": 1, "column": 1},
            "end": {"line": 1, "column": 2}}}]"#;
        let mutant = &mutants_of(list).unwrap()[0];
        assert_eq!((mutant.file.as_str(), mutant.package.as_str()), ("a.rs", "p"));
        assert_eq!((mutant.change.start, mutant.change.end), ((1, 1), (1, 2)));
        let without_place = &br#"[{"name": "a.rs:1:1: delete ! in f"}]"#[..];
        let without_file = &br#"[{"name": "delete ! in f"}]"#[..];
        for damaged in [&b"[]"[..], b"{}", b"", without_place, without_file] {
            assert!(mutants_of(damaged).is_err());
        }
    }

    #[test]
    fn a_mutant_that_ran_out_of_time_is_killed_and_one_without_a_verdict_was_not_reached() {
        let report = std::env::temp_dir().join(format!("haul-mutants-{}", std::process::id()));
        fs::create_dir_all(&report).unwrap();
        fs::write(report.join("missed.txt"), format!("{}\n", NAMES[0])).unwrap();
        fs::write(report.join("timeout.txt"), format!("{}\n", NAMES[1])).unwrap();
        let verdicts = read_report(&report);
        fs::remove_dir_all(&report).unwrap();
        let all = with_keys(NAMES.map(str::to_owned));
        let asked: Vec<&Mutant> = all.iter().collect();
        assert_eq!(verdicts.survivors(&asked), [&all[0]]);
        assert_eq!(
            verdicts.sum(asked.len()),
            "3 mutants: 1 killed, 1 survived, 0 that do not compile, 1 not reached"
        );
    }

    #[test]
    fn a_package_of_the_scope_is_there_with_all_that_is_mutated() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for part in &SCOPE {
            for glob in part.files {
                let path = glob.split("/**").next().unwrap();
                assert!(root.join(path).exists(), "{path}");
            }
        }
    }
}
