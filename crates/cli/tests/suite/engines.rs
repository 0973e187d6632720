//! Schedulers: the files of `examples/`, run by the real engines over a plan.
//!
//! A shard's run that is killed is run again, one that ended with 2 is not, and at the end the
//! trees are equal.

mod hyperqueue;
mod kubernetes;
mod parallel;
mod slurm;

use crate::harness::{
    PATIENCE, Place, assert_same_trees, process::Haul, server::Server, temporaries, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Rate of a run that is to be killed on the way.
const SLOW: &str = "1M";

/// A planned tree, a server for it, and a program `haul` that tells of each of its runs.
struct Fleet {
    server: Server,
    /// The shard that holds a file of many spans.
    large: u32,
    place: Place,
}

impl Fleet {
    /// Plans a tree for an engine that tells a run its number in `variable`, counted from `first`.
    fn new(shards: u32, variable: &str, first: u32) -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        place.tree(&place.source("tree"), 4, 20);
        place.file(&place.source("tree/large"), 9 << 20);
        symlink("d0/f1", place.source("tree/link")).unwrap();
        let mut fleet = Self { server, large: 0, place };
        fleet.make_program(variable, first);
        let words = words!["plan", fleet.place.source("tree"), fleet.server.url("")];
        let words = [words, words!["--shards", shards.to_string(), "--out", fleet.plan()]].concat();
        let ran = fleet.place.run(&words);
        assert_eq!(ran.status, 0, "{ran:?}");
        fleet.find_large(&fleet.plan(), shards);
        fleet
    }

    /// Looks which shard of a plan has the large file.
    fn find_large(&mut self, plan: &Path, shards: u32) {
        let text = |shard: &u32| fs::read_to_string(plan.join(format!("shard-{shard:05}.jsonl")));
        let has_it = |shard: &u32| text(shard).unwrap().contains("\"large\"");
        self.large = (1..=shards).find(has_it).unwrap();
    }

    fn plan(&self) -> PathBuf {
        self.place.path("plan")
    }

    /// Makes a program `haul` that writes down each of its runs, and is slow where that was asked.
    fn make_program(&self, variable: &str, first: u32) {
        let (runs, programs) = (self.place.path("runs"), self.place.path("bin"));
        for directory in [&runs, &programs] {
            fs::create_dir(directory).unwrap();
        }
        let text = format!(
            "#!/bin/sh\n\
            shard=$((${{{variable}:-{first}}} + 1 - {first}))\n\
            echo $$ >>{runs}/$shard\n\
            rm {runs}/$shard.fails 2>&- && exit 1\n\
            rm {runs}/$shard.slow 2>&- && set -- \"$@\" --bwlimit {SLOW}\n\
            exec env HAUL_STATE={state} {haul} \"$@\"\n",
            runs = runs.display(),
            state = self.place.path("state-client").display(),
            haul = env!("CARGO_BIN_EXE_haul"),
        );
        fs::write(programs.join("haul"), text).unwrap();
        fs::set_permissions(programs.join("haul"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Command in the place, that finds the program `haul` of the fleet, and those of the system.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.place.path("")).env("PATH", self.search_path());
        command.current_dir(self.place.path("")).stdin(Stdio::null());
        command
    }

    fn search_path(&self) -> OsString {
        let mut path = self.place.path("bin").into_os_string();
        path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        path
    }

    /// Lets the next run of the shard with the large file be slow.
    fn slow_down(&self) {
        fs::write(self.place.path(format!("runs/{}.slow", self.large)), "").unwrap();
    }

    /// Lets the next run of a shard end with 1.
    fn fail_once(&self, shard: u32) {
        fs::write(self.place.path(format!("runs/{shard}.fails")), "").unwrap();
    }

    /// Waits until that run has begun to write the file.
    fn wait_until_on_the_way(&self) {
        let root = self.place.root("");
        let has_begun = || {
            let named = |name: &PathBuf| name.to_string_lossy().contains("large");
            // Names come and go meanwhile, so a walk may fail.
            let names = haul_testkit::tree::names(&root);
            names.is_ok_and(|names| names.iter().any(named)) && !temporaries(&root).is_empty()
        };
        wait_until("a file on the way", has_begun);
    }

    /// Kills that run by SIGKILL once it has begun to write the file.
    fn kill_on_the_way(&self) {
        self.wait_until_on_the_way();
        let id = self.runs(self.large).last().copied().and_then(Pid::from_raw).unwrap();
        kill_process(id, Signal::KILL).unwrap();
    }

    /// Process ids of the runs of a shard, in order.
    fn runs(&self, shard: u32) -> Vec<i32> {
        let text = fs::read_to_string(self.place.path(format!("runs/{shard}")));
        text.unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Checks how often each shard was run, from the first on.
    #[track_caller]
    fn ran(&self, times: impl Fn(u32) -> usize, shards: u32) {
        for shard in 1..=shards {
            assert_eq!(self.runs(shard).len(), times(shard), "runs of shard {shard}");
        }
    }

    /// Number of runs of a shard where the one with the large file was killed once.
    fn once_more_if_killed(&self, shard: u32) -> usize {
        if shard == self.large { 2 } else { 1 }
    }

    #[track_caller]
    fn is_moved(&self) {
        assert_same_trees(&self.place.source("tree"), &self.place.root("tree"));
    }

    /// Spoils a shard's file, so that its run ends with 2.
    fn spoil(&self, shard: u32) {
        fs::write(self.plan().join(format!("shard-{shard:05}.jsonl")), "{}\n").unwrap();
    }
}

/// A file of `examples/`.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Whether a program is where the system has its own.
fn is_installed(program: &str) -> bool {
    let directories = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    directories.iter().any(|directory| Path::new(directory).join(program).exists())
}

/// Waits for a child's end; one that takes too long is ended.
#[track_caller]
fn output_of(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // What these say fits into a pipe.
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it does not end: {command:?}: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn an_example_says_the_exit_statuses_that_haul_has() {
    let fleet = Fleet::new(2, "NONE", 1);
    let plan = fleet.plan();
    let words = |shard: &str| words!["push", "--plan", plan, "--shard", shard];
    fleet.spoil(2);
    assert_eq!(fleet.place.run(&words("1")).status, 0);
    assert_eq!(fleet.place.run(&words("2")).status, 2);
    drop(fleet.server);
    assert_eq!(Haul::start(fleet.place.command(&words("1"))).finish().status, 1);
}
