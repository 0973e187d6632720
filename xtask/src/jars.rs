//! `cargo xtask jars`: two builds of the JVM client's jars are the same, byte for byte.
//!
//! Each build begins with the sources alone. The second one has what the builds of other people
//! have: another directory, time, time zone, language, charset and umask. The JDK and Maven are
//! the same ones: another javac may write other classes. Builds that differ are kept.
//!
//! Jars that are the same are tried (trial.rs).

mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::maven::{self, JDKS, Jdks};
use crate::{Outcome, child};

/// Sources that Maven builds from.
const SOURCES: [&str; 4] =
    ["clients/java", "crates/protocol/proto", "LICENSE-APACHE", "LICENSE-MIT"];
/// The directory that holds a directory for each build.
const BUILDS: &str = "target/jars";
/// The jars that are given away; all others have to be the same, too.
const GIVEN_AWAY: [&str; 7] = [
    "clients/java/client/target/haul-client-*.jar",
    "clients/java/client/target/haul-client-*-sources.jar",
    "clients/java/client/target/haul-client-*-javadoc.jar",
    "clients/java/command/target/haul.jar",
    "clients/java/hadoop/target/haul-hadoop.jar",
    "clients/java/hadoop/target/haul-hadoop-*-sources.jar",
    "clients/java/hadoop/target/haul-hadoop-*-javadoc.jar",
];
/// Maven's words: tests and checks of the sources have run already.
const BUILD: &str = "exec mvn -B -ntp -f clients/java/pom.xml package -DskipTests \
    -Dspotless.check.skip -Dcheckstyle.skip";
/// Settings of Maven's JVM: a build ends before the compiler that is left out here is worth it.
const MAVEN_OPTIONS: &str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

/// The time after which a build is ended; it takes a quarter of a minute.
const TIME_MAX: &str = "15m";

/// Surroundings of one build: its place and what its processes inherit.
struct Surroundings {
    directory: &'static str,
    umask: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

const ONE: Surroundings = Surroundings { directory: "one", umask: "022", variables: &[] };
const OTHER: Surroundings = Surroundings {
    directory: "at/another/place",
    umask: "002",
    variables: &[
        ("TZ", "Asia/Tokyo"),
        ("LC_ALL", "C"),
        ("JAVA_TOOL_OPTIONS", "-Duser.language=ja -Duser.country=JP"),
    ],
};

/// The jars of a build: their bytes by their paths.
type Jars = BTreeMap<String, Vec<u8>>;

/// The way in which the comparison went.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// All jars are the same: their number.
    Same(usize),
    /// Jars are not the same, are not there or fail their trial: a sentence for each.
    Faulty(Vec<String>),
    /// Maven does not reach its repository, in its words.
    Lacks(String),
}

/// Builds twice and says how that went; what differs is also an error for the caller's shell.
pub fn run(root: &Path) -> Result<Outcome> {
    match compare(root)? {
        Ended::Same(jars) => {
            println!("jars: {jars} jars are the same in two builds, and pass their trial");
        }
        Ended::Faulty(sentences) => {
            sentences.iter().for_each(|sentence| println!("jars: {sentence}"));
            return Ok(Outcome::NotInOrder);
        }
        Ended::Lacks(what) => bail!("jars not built: {what}"),
    }
    Ok(Outcome::InOrder)
}

/// Builds twice below `root` and compares.
pub fn compare(root: &Path) -> Result<Ended> {
    let builds = root.join(BUILDS);
    clear(&builds)?;
    let mut made = Vec::new();
    for surroundings in [&ONE, &OTHER] {
        let directory = builds.join(surroundings.directory);
        copy_sources(root, &directory)?;
        if let Some(lacks) = build(&directory, surroundings)? {
            return Ok(Ended::Lacks(lacks));
        }
        made.push(jars_of(&directory)?);
    }
    let mut sentences = differences(&made[0], &made[1]);
    if sentences.is_empty() {
        let names: Vec<&str> = made[0].keys().map(String::as_str).collect();
        sentences = trial::faults(&builds.join(ONE.directory), &names)?;
    }
    if !sentences.is_empty() {
        return Ok(Ended::Faulty(sentences));
    }
    clear(&builds)?;
    Ok(Ended::Same(made[0].len()))
}

/// The lines by which cargo tells the result of a test, and one for the log of skips.
pub fn told(ended: Result<Ended>) -> (String, Option<String>) {
    let passed = "running 1 test\ntest result: ok. 1 passed; 0 failed".to_owned();
    let sentences = match ended {
        Ok(Ended::Same(_)) => return (passed, None),
        Ok(Ended::Lacks(what)) => {
            let line = format!("skipped: needs Maven's repository, found: {what}\t{BUILDS}\t\n");
            return (passed, Some(line));
        }
        Ok(Ended::Faulty(sentences)) => sentences,
        Err(error) => vec![format!("{error:#}")],
    };
    sentences.iter().for_each(|sentence| println!("test: cargo xtask jars: {sentence}"));
    ("running 1 test\ntest result: FAILED. 0 passed; 1 failed".to_owned(), None)
}

fn clear(builds: &Path) -> Result<()> {
    match std::fs::remove_dir_all(builds) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", builds.display()))
        }
        _ => Ok(()),
    }
}

/// Copies what Git tracks or would, without what builds have left there.
fn copy_sources(root: &Path, directory: &Path) -> Result<()> {
    let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    let mut list = child::command(root, "git", &words);
    let paths = child::output_of(list.args(SOURCES))?;
    let paths = String::from_utf8(paths).context("a path is not UTF-8")?;
    for path in paths.split_terminator('\0') {
        let (source, target) = (root.join(path), directory.join(path));
        // What is deleted and not committed yet is listed, too.
        if !source.exists() {
            continue;
        }
        let parent = target.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::copy(&source, &target))
            .with_context(|| format!("cannot copy {path} to {}", target.display()))?;
    }
    Ok(())
}

/// Builds in a directory; returns what Maven says where it does not reach its repository.
fn build(directory: &Path, surroundings: &Surroundings) -> Result<Option<String>> {
    let script = format!("umask {}; {BUILD}", surroundings.umask);
    let mut command = maven::bounded(directory, TIME_MAX);
    command.args(["sh", "-c", &script]);
    command.env("MAVEN_OPTS", MAVEN_OPTIONS).envs(surroundings.variables.iter().copied());
    Jdks::below(Path::new(JDKS)).choose(&mut command);
    ended_well(&mut command)
}

fn ended_well(command: &mut Command) -> Result<Option<String>> {
    let output = command.output().context("cannot start mvn")?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    match maven::unreachable(&said) {
        Some(lacks) => Ok(Some(lacks)),
        None if maven::is_out_of_time(output.status) => {
            bail!("the jars were not built in {TIME_MAX}; Maven says:\n{said}")
        }
        None => bail!("the jars do not build; Maven says:\n{said}"),
    }
}

/// Reads the jars of a build.
fn jars_of(directory: &Path) -> Result<Jars> {
    let mut jars = Jars::new();
    let modules = directory.join("clients/java");
    for module in paths_in(&modules)? {
        let target = module.join("target");
        if !target.is_dir() {
            continue;
        }
        for path in paths_in(&target)? {
            if path.extension().is_some_and(|extension| extension == "jar") {
                let name = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
                let bytes = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
                jars.insert(name, bytes);
            }
        }
    }
    Ok(jars)
}

fn paths_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// A sentence for each jar that is missing or differs.
fn differences(one: &Jars, other: &Jars) -> Vec<String> {
    let missing =
        GIVEN_AWAY.into_iter().filter(|pattern| !one.keys().any(|name| fits(pattern, name)));
    let mut sentences: Vec<String> =
        missing.map(|pattern| format!("no build made {pattern}")).collect();
    for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
        let sentence = match (one.get(name), other.get(name)) {
            (Some(bytes), Some(others)) if bytes == others => continue,
            (Some(_), Some(_)) => format!("{name} differs; both are kept in {BUILDS}"),
            _ => format!("only one of two builds made {name}"),
        };
        sentences.push(sentence);
    }
    sentences
}

/// Whether a name is that of a pattern, whose `*` stands for a version.
fn fits(pattern: &str, name: &str) -> bool {
    if pattern.contains('*') { version_in(pattern, name).is_some() } else { pattern == name }
}

/// The version, digits and points, for which the `*` of a pattern stands in a name.
fn version_in<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let (begin, end) = pattern.split_once('*')?;
    let version = name.strip_prefix(begin)?.strip_suffix(end)?;
    version.chars().all(|c| c.is_ascii_digit() || c == '.').then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jars(last: &[u8]) -> Jars {
        let name = |pattern: &str| pattern.replace('*', "0.1.0");
        let mut jars: Jars =
            GIVEN_AWAY.iter().map(|pattern| (name(pattern), b"bytes".to_vec())).collect();
        jars.insert(name(GIVEN_AWAY[4]), last.to_vec());
        jars
    }

    #[test]
    fn jars_that_differ_or_are_missing_are_named() {
        assert!(differences(&jars(b"same"), &jars(b"same")).is_empty());
        let differing = differences(&jars(b"same"), &jars(b"other"));
        assert_eq!(differing.len(), 1);
        assert!(differing[0].contains("haul-hadoop.jar differs"), "{differing:?}");
        let without_one = |index: usize| {
            let mut less = jars(b"same");
            less.remove(&GIVEN_AWAY[index].replace('*', "0.1.0"));
            less
        };
        for (index, pattern) in GIVEN_AWAY.iter().enumerate() {
            let less = without_one(index);
            assert_eq!(differences(&less, &less), [format!("no build made {pattern}")]);
            let only_one = differences(&jars(b"same"), &less);
            assert!(only_one[0].contains("only one of two builds"), "{only_one:?}");
        }
    }

    #[test]
    fn the_comparison_counts_as_one_test() {
        let failed = "running 1 test\ntest result: FAILED. 0 passed; 1 failed";
        assert_eq!(told(Ok(Ended::Faulty(vec!["x differs".to_owned()]))).0, failed);
        assert_eq!(told(Err(anyhow::anyhow!("it does not build"))).0, failed);
        assert_eq!(told(Ok(Ended::Same(9))).1, None);
        let (_, skipped) = told(Ok(Ended::Lacks("no way".to_owned())));
        assert!(skipped.unwrap().contains("found: no way"));
    }
}
