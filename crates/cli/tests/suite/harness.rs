//! Runs the real `haul` in a fresh directory: servers and transfers as processes, and their words.
//!
//! Processes are ended by their handles, whatever happens; every wait ends.

pub mod browser;
pub mod crashed;
pub mod far;
pub mod frames;
pub mod http;
pub mod journey;
pub mod media;
pub mod peer;
pub mod process;
pub mod server;
pub mod sshd;
pub mod studio;

use haul_testkit::{content, seed::Seed};
use process::{Haul, Ran};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest time that anything may take. Far more than needed: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// User and group that may nothing, where a test run by root needs one.
pub const NOBODY: u32 = 65_534;

/// Waits for something that no line tells of.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Words of a command line: text, paths, bytes.
#[macro_export]
macro_rules! words {
    ($($word:expr),* $(,)?) => {
        Vec::<std::ffi::OsString>::from([
            $(std::ffi::OsString::from(AsRef::<std::ffi::OsStr>::as_ref(&$word))),*
        ])
    };
}

/// Whether the long variants of the tests run (HAUL_TEST_LONG=1).
pub fn is_long() -> bool {
    std::env::var_os("HAUL_TEST_LONG").is_some_and(|value| value == "1")
}

/// Says that a long variant is left out.
pub fn skip_long(what: &str) {
    haul_testkit::skip::skip(&format!("HAUL_TEST_LONG=1 for {what}"), "it unset");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A fresh directory with `source`, `root` (what a server serves) and `target` in it.
///
/// It outlives what runs in it: a structure has it as its last field.
pub struct Place {
    directory: TempDir,
    pub seed: Seed,
}

impl Place {
    /// Makes the directory, and prints the seed of its files.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["source", "root", "target"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, seed: Seed::from_env_or_random() }
    }

    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.directory.path().join(name.as_ref())
    }

    pub fn source(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path("source").join(name.as_ref())
    }

    pub fn root(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path("root").join(name.as_ref())
    }

    pub fn target(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path("target").join(name.as_ref())
    }

    /// Makes a file of bytes that depend on the seed and its name, and the directory it is in.
    pub fn file(&self, path: &Path, len_bytes: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        let name = path.file_name().unwrap().as_encoded_bytes();
        let of_name = name.iter().fold(0, |sum: u64, byte| sum.rotate_left(9) ^ u64::from(*byte));
        content::fill(&file, Seed(self.seed.0 ^ of_name), len_bytes).unwrap();
    }

    /// Makes a plain tree: `directories` of `files` files each, from empty to several spans long.
    pub fn tree(&self, root: &Path, directories: u32, files: u32) {
        let mut random = self.seed.random();
        for directory in 0..directories {
            for file in 0..files {
                let len_bytes = match random.below(10) {
                    0 => 0,
                    1..8 => random.below(20_000),
                    8 => random.below(300_000),
                    _ => 65_536 * random.below(5),
                };
                self.file(&root.join(format!("d{directory}/f{file}")), len_bytes);
            }
            fs::create_dir_all(root.join(format!("d{directory}/empty"))).unwrap();
        }
    }

    /// Command that runs `haul` with its own home and state here and no variable of the outside.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(words).current_dir(self.directory.path()).env_clear();
        command.env("HOME", self.directory.path()).env("HAUL_STATE", self.path("state-client"));
        command.stdin(Stdio::null());
        command
    }

    /// Starts `haul WORDS --json`.
    pub fn start(&self, words: &[OsString]) -> Haul {
        let words = [words, &words!["--json"]].concat();
        Haul::start(self.command(&words))
    }

    /// Runs `haul WORDS --json` to its end.
    pub fn run(&self, words: &[OsString]) -> Ran {
        self.start(words).finish()
    }

    /// Runs `haul push WORDS`.
    pub fn push(&self, words: &[OsString]) -> Ran {
        self.run(&[&words!["push"], words].concat())
    }

    /// Runs `haul pull WORDS`.
    pub fn pull(&self, words: &[OsString]) -> Ran {
        self.run(&[&words!["pull"], words].concat())
    }

    /// Lets a user without rights into this directory and gives it `paths`. False where that cannot
    /// be: the tests do not run as root, or the program lies where others may not go.
    pub fn open_to_nobody(&self, paths: &[&Path]) -> bool {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.directory.path(), mode).unwrap();
        for path in paths {
            if chown(path, Some(NOBODY), Some(NOBODY)).is_err() {
                return false;
            }
        }
        let mut command = self.command(&words!["--version"]);
        as_nobody(&mut command);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Place {
    /// Removes the directory, and before that what is mounted in it. What cannot be removed has a
    /// user that should have ended, and would stay on the disk after each run.
    fn drop(&mut self) {
        haul_testkit::mount::unmount_below(self.directory.path());
        let removed = fs::remove_dir_all(self.directory.path());
        if !thread::panicking() {
            removed.expect("nothing runs any more in a place that ends");
        }
    }
}

/// Runs a command as a user without rights.
pub fn as_nobody(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.uid(NOBODY).gid(NOBODY);
}

/// Fails when one of haul's temporaries lies anywhere below `directory`.
#[track_caller]
pub fn assert_no_temporaries(directory: &Path) {
    let left = temporaries(directory);
    assert!(left.is_empty(), "temporaries stayed: {left:?}");
}

/// Names of haul's temporaries below a directory.
pub fn temporaries(directory: &Path) -> Vec<PathBuf> {
    let mut names = haul_testkit::tree::names(directory).unwrap();
    names.retain(|name| is_temporary(name));
    names
}

/// Whether a name is that of one of haul's temporaries, or of something in a hidden directory.
pub fn is_temporary(name: &Path) -> bool {
    let suffixes = ["part", "journal", "staged", "durable", "shared", "ranges", "range"]
        .map(|kind| format!(".haul-{kind}"));
    name.iter().any(|part| {
        suffixes.iter().any(|suffix| part.as_encoded_bytes().ends_with(suffix.as_bytes()))
    })
}

/// Fails when the two trees are not the same.
#[track_caller]
pub fn assert_same_trees(one: &Path, other: &Path) {
    let differences = haul_testkit::tree::differences(one, other).unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Fails when the two files are not the same, in bytes, mode and time.
#[track_caller]
pub fn assert_same_files(one: &Path, other: &Path) {
    let difference = haul_testkit::tree::difference(one, other).unwrap();
    assert_eq!(difference, None, "{} and {}", one.display(), other.display());
}
