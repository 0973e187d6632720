//! Maven, and the JDKs that it and the tests of the JVM client run on.
//!
//! JDKs are looked for where Linux distributions put them. Maven fetches what it needs; one that
//! does not reach its repository is told from one that fails.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::child;

/// The directory where Linux distributions put JDKs, each in a directory of its own.
pub const JDKS: &str = "/usr/lib/jvm";
/// The versions of Java that the tests run on: the oldest, on which Maven runs, and the newest.
const VERSIONS: [u32; 2] = [17, 25];
/// The tests' place in the queue for processors, behind the others.
const NICENESS: &str = "5";
/// The time in which a Maven that is out of its time may go by itself.
const PARTING: &str = "30s";
/// The exit status of timeout(1) where it ended a program.
const OUT_OF_TIME: i32 = 124;
/// Words of Maven about a repository that it does not reach; for a package that is not there it
/// has others.
const UNREACHABLE: &str = "Could not transfer ";

/// The JDKs of this host that the tests are for.
#[derive(Debug, Default)]
pub struct Jdks {
    /// Versions with their directories, in the order of [`VERSIONS`].
    found: Vec<(u32, PathBuf)>,
}

impl Jdks {
    /// Finds those in the directories of a directory.
    pub fn below(directory: &Path) -> Jdks {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut homes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        homes.sort();
        let home_of = |version| homes.iter().find(|home| version_of(home) == Some(version));
        let found = VERSIONS.into_iter();
        let found =
            found.filter_map(|version| Some((version, home_of(version)?.clone()))).collect();
        Jdks { found }
    }

    /// Has Maven run on the first of them.
    pub fn choose(&self, maven: &mut Command) {
        if let Some((_, home)) = self.found.first() {
            maven.env("JAVA_HOME", home);
        }
    }

    /// A program of the first of them, or else the one of the search path.
    pub fn program(&self, name: &str) -> PathBuf {
        let home = self.found.first().map(|(_, home)| home.join("bin"));
        home.unwrap_or_default().join(name)
    }

    /// Has Maven run on the first of them, and the tests on the second, too.
    pub fn tell(&self, maven: &mut Command) {
        self.choose(maven);
        if let Some((_, home)) = self.found.get(1) {
            maven.arg(format!("-Dhaul.second.jdk={}", home.display()));
        }
    }

    /// Names what is missing.
    pub fn lack(&self) -> Option<String> {
        let is_missing = |version: &u32| self.found.iter().all(|(found, _)| found != version);
        let missing: Vec<String> =
            VERSIONS.iter().filter(|version| is_missing(version)).map(u32::to_string).collect();
        (!missing.is_empty()).then(|| format!("no JDK {} in {JDKS}", missing.join(" and ")))
    }
}

/// A command at `root` that runs the program of its next arguments behind others, and ends it after
/// a time. It stays in the terminal's group, so that Ctrl-C ends it, too; Maven ends its own
/// children.
pub fn bounded(root: &Path, time_max: &str) -> Command {
    let words = ["-n", NICENESS, "timeout", "--foreground", "-k", PARTING, time_max];
    child::command(root, "nice", &words)
}

/// Whether a bounded program was ended for its time.
pub fn is_out_of_time(status: ExitStatus) -> bool {
    status.code() == Some(OUT_OF_TIME)
}

/// The version of the JDK in a directory, if one is there and has a compiler.
fn version_of(home: &Path) -> Option<u32> {
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    let major = version.split(['.', '-', '+', '"']).next()?.parse().ok()?;
    home.join("bin/javac").exists().then_some(major)
}

/// Maven's words about a repository that it does not reach.
pub fn unreachable(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains(UNREACHABLE))?;
    Some(line.trim_start_matches("[ERROR] ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let begun = std::time::Instant::now();
        let status = bounded(Path::new("/"), "0.2s").args(["sleep", "60"]).status().unwrap();
        assert!(is_out_of_time(status) && begun.elapsed().as_secs() < 30);
        let status = bounded(Path::new("/"), "20s").arg("true").status().unwrap();
        assert!(status.success() && !is_out_of_time(status));
    }
}
