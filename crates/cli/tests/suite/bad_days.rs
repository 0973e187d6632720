//! Bad days: failing calls, power cuts, scarcity, wrong clocks, kills, half-open connections.
//!
//! Whatever happens, no wrong byte is ever under a final name, everything ends, and the same
//! command completes when the fault is gone. docs/reliability.md lists what was tried.

mod calls;
mod clock;
mod disks;
mod file_times;
mod kills;
mod paths;
mod scarce;

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees, is_temporary,
    journey::{Journey, WAYS, Way},
    process::Haul,
    process::Ran,
};
use haul_testkit::tree;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Journey {
    /// The words that move `name` into the directory `into` of the target, which is made.
    fn words(&self, name: &str, into: &str, options: &[OsString]) -> Vec<OsString> {
        let into = if into.is_empty() { String::new() } else { format!("{into}/") };
        let words = match self.way {
            Way::Push => words!["push", self.place.source(name), self.server.url(into)],
            Way::Pull => words!["pull", self.server.url(name), self.place.target(into)],
        };
        [words, options.to_vec()].concat()
    }

    fn start(&self, name: &str, into: &str, options: &[OsString]) -> Haul {
        self.place.start(&self.words(name, into, options))
    }

    fn run(&self, name: &str, into: &str, options: &[OsString]) -> Ran {
        self.start(name, into, options).finish()
    }

    /// Runs the same command without the fault: it completes, and leaves nothing of its own behind.
    #[track_caller]
    fn completes(&self, name: &str, into: &str, options: &[OsString]) -> Ran {
        let ran = self.run(name, into, options);
        ran.ok();
        self.assert_arrived(name, into);
        ran
    }

    #[track_caller]
    fn assert_arrived(&self, name: &str, into: &str) {
        let (from, to) = (self.from(name), self.to(into).join(name));
        if from.is_dir() {
            assert_same_trees(&from, &to);
        } else {
            assert_same_files(&from, &to);
        }
        assert_no_temporaries(&self.to(into));
    }
}

/// Makes a tree of everything that takes another way: a file of several spans, one of one span that
/// is sent by itself, packed ones, an empty one, links, directories.
fn mixed_tree(place: &Place, root: &Path) {
    place.file(&root.join("large"), 12 * 64 * KIB + 77);
    place.file(&root.join("alone"), 64 * KIB - 1);
    for number in 0..8 {
        place.file(&root.join(format!("small/f{number}")), 700 * number + 1);
    }
    place.file(&root.join("small/none"), 0);
    fs::create_dir_all(root.join("small/deep/empty")).unwrap();
    symlink("f1", root.join("small/link")).unwrap();
}

/// Checks that whatever stands under a final name below `to` is whole.
#[track_caller]
fn assert_nothing_wrong(from: &Path, to: &Path) {
    if !to.exists() {
        return;
    }
    let names = tree::names(to).unwrap();
    // A disk of its own may have a directory of its file system's.
    let is_ours = |name: &&PathBuf| !is_temporary(name) && !name.starts_with("lost+found");
    for name in names.iter().filter(is_ours) {
        let (source, target) = (from.join(name), to.join(name));
        // Directories get mode and time at the end.
        if target.is_file() && !target.is_symlink() {
            assert_same_files(&source, &target);
        } else {
            assert!(source.symlink_metadata().is_ok(), "{} came from nowhere", target.display());
        }
    }
}

/// Checks that errors are told in full: in which file or where, what could not be done, why, and
/// what to do.
#[track_caller]
fn assert_told(ran: &Ran) {
    let errors = ran.named("error");
    assert!(!errors.is_empty(), "nothing was told: {ran:?}");
    for error in errors {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        assert!(!text("what").is_empty(), "{error}");
        assert!(!text("hint").is_empty(), "no word of what to do: {error}\n{ran:?}");
        assert!(!text("side").is_empty(), "{error}");
    }
}
