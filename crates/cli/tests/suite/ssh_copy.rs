//! Copies between two machines that ssh reaches, each a real sshd with a home of its own.

use crate::harness::{
    Place, assert_same_files, assert_same_trees,
    process::{Haul, Ran},
    sshd::{Sshd, SshdSetup},
    wait_until,
};
use rustix::process::Signal;
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

/// Two machines, `one` and `two`, and the place that haul runs in. The sshds end before the places.
pub struct Machines {
    pub one: Sshd,
    pub two: Sshd,
    pub one_place: Place,
    pub two_place: Place,
    pub place: Place,
}

impl Machines {
    pub fn start() -> Option<Self> {
        Self::with(SshdSetup::new(), SshdSetup::new())
    }

    pub fn with(one: SshdSetup, two: SshdSetup) -> Option<Self> {
        let (one_place, two_place, place) = (Place::new(), Place::new(), Place::new());
        let (one, two) = (one.start(&one_place)?, two.start(&two_place)?);
        let machines = Self { one, two, one_place, two_place, place };
        machines.configure();
        Some(machines)
    }

    /// Writes the configuration of an ssh that knows both.
    pub fn configure(&self) {
        let of = |place: &Place, name: &str| {
            let text = fs::read_to_string(place.path("ssh_config")).unwrap();
            text.replace("Host far", &format!("Host {name}"))
        };
        let text = of(&self.one_place, "one") + &of(&self.two_place, "two");
        fs::write(self.place.path("ssh_config"), text).unwrap();
    }

    /// Words of a copy by the ssh that knows both.
    pub fn words(&self, words: &[OsString]) -> Vec<OsString> {
        let ssh = format!("ssh -F {}", self.place.path("ssh_config").display());
        [&words!["copy"], words, &words!["--ssh", ssh]].concat()
    }

    pub fn copy(&self, words: &[OsString]) -> Ran {
        self.place.run(&self.words(words))
    }

    /// A copy that takes some seconds, once bytes have moved.
    pub fn slow_copy(&self, options: &[OsString]) -> Haul {
        self.one_place.file(&self.one.home("large"), 24 << 20);
        let words = words![at("one", "large"), at("two", "large"), "--bwlimit", "6M"];
        let words = [&words[..], &words!["--span-size", "1M"], options].concat();
        let copy = self.place.start(&self.words(&words));
        copy.wait_for_bytes("bytes_durable", 1 << 20);
        copy
    }

    #[track_caller]
    pub fn are_free(&self) {
        wait_until("over at both", || {
            self.one.far_ends().is_empty() && self.two.far_ends().is_empty()
        });
    }
}

pub fn at(machine: &str, path: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(format!("{machine}:"));
    word.push(path);
    word
}

pub fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn files_and_trees_go_from_one_machine_to_the_other() {
    let Some(machines) = Machines::start() else { return };
    let Machines { one, two, one_place, .. } = &machines;
    one_place.tree(&one.home("run7"), 2, 6);
    one_place.file(&one.home("a b%20"), 300_000);
    let ran = machines.copy(&words![at("one", "run7"), at("one", "a b%20"), at("two", "new/")]);
    let report = ran.ok();
    assert_same_trees(&one.home("run7"), &two.home("new/run7"));
    assert_same_files(&one.home("a b%20"), &two.home("new/a b%20"));
    assert_eq!(report["from"], format!("one:{} and 1 more", one.home("run7").display()));
    assert_eq!(report["to"], format!("two:{}/new/", two.home("").display()).replace("//", "/"));
    assert_eq!((ran.named("session").len(), ran.named("file").len()), (1, 18), "{ran:?}");

    machines.copy(&words![at("one", "run7/d?/f1"), at("two", "null:")]).refused(&["two sources"]);
    machines.copy(&words![at("one", "run7/d1/f*"), at("two", "fit/")]).ok();
    assert_eq!(fs::read_dir(two.home("fit")).unwrap().count(), 6);
    machines.copy(&words![at("one", "zero:3M"), at("two", "null:")]).ok();
    // It is there already, and a dry run tells so.
    let tree = words![at("one", "run7/"), at("two", "new/run7/")];
    let ran = machines.copy(&[&tree[..], &words!["--dry-run"]].concat());
    assert_eq!((ran.ok()["dry_run"].as_bool(), ran.number("planned_bytes")), (Some(true), 0));
    fs::write(two.home("new/run7/extra"), b"x").unwrap();
    let mirror = words!["--delete", "--protection", "private", "--streams", "2"];
    let ran = machines.copy(&[&tree[..], &mirror].concat());
    assert_eq!(ran.ok()["protection"], "private");
    assert!(!two.home("new/run7/extra").exists());
    // Comparing content needs the right to read it, which the machine that sends has then alone.
    let ran = machines.copy(&[&tree[..], &words!["--checksum-compare"]].concat());
    assert_eq!(ran.ok()["files"]["done"], 0, "{ran:?}");
    machines.copy(&words![at("one", "a b%20"), at("two", "moved"), "--move"]).ok();
    assert!(!one.home("a b%20").exists() && two.home("moved").exists());
    machines.are_free();
}

/// Both ssh carry the start and the events, which are small.
#[test]
fn no_byte_of_a_file_comes_to_this_machine_and_no_secret_is_a_word_of_a_program() {
    let Some(machines) = Machines::start() else { return };
    let Machines { one, two, one_place, place, .. } = &machines;
    one_place.file(&one.home("secret-name"), 30 << 20);
    let path = |name: &str| place.path(name).display().to_string();
    let text = format!(
        "{{ printf '%s\\n' \"$@\"; env; }} >> {log}\n\
         tee -a {sent} | ssh -F {config} \"$@\" | tee -a {got}\n",
        log = path("log"),
        sent = path("sent"),
        got = path("got"),
        config = path("ssh_config"),
    );
    fs::write(place.path("my-ssh"), text).unwrap();
    let ssh = format!("sh {}", path("my-ssh"));
    let words = words!["copy", at("one", "secret-name"), at("two", "there"), "--ssh", ssh];
    let ran = place.run(&words);
    assert_eq!(ran.ok()["moved_bytes"], 30 << 20);
    assert_same_files(&one.home("secret-name"), &two.home("there"));
    let through = bytes_of(&place.path("sent")) + bytes_of(&place.path("got"));
    assert!(through < 200_000, "{through} bytes came by here");
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert_eq!(log.lines().filter(|line| *line == "haul serve --over-ssh").count(), 2, "{log}");
    assert!(!log.contains("secret") && !log.contains("haul://"), "{log}");
    let is_of_token = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    assert!(log.split(|c: char| !is_of_token(c)).all(|word| word.len() < 53), "{log}");
}

#[test]
fn what_does_not_begin_is_told_with_the_machine_it_is_about() {
    let Some(machines) = Machines::start() else { return };
    let Machines { one, one_place, two_place, .. } = &machines;
    fs::write(one.home("a"), b"a").unwrap();
    let copy = |from: OsString, to: OsString| machines.copy(&words![from, to]);
    copy(at("one", "absent"), at("two", "")).refused(&["one: cannot read the source", "absent"]);
    copy(at("one", "gone/x"), at("two", "")).refused(&["one: cannot look at"]);
    copy(at("one", "x*"), at("two", "")).refused(&["one: nothing fits", "x*"]);
    copy(at("one", "null:"), at("two", "")).refused(&["one: cannot send null:"]);
    copy(at("one", "a"), at("no-such-host.invalid", "")).refused(&["no-such-host.invalid"]);
    copy("a".into(), "b".into()).refused(&["cp and rsync"]);
    fs::write(one_place.path("authorized_keys"), "").unwrap();
    copy(at("one", "a"), at("two", "")).refused(&["ssh to one failed", "permission denied"]);
    fs::write(two_place.path("authorized_keys"), "").unwrap();
    copy(at("one", "a"), at("two", "")).refused(&["ssh to two failed", "permission denied"]);
    machines.are_free();
}

#[test]
fn machines_without_haul_are_told_or_get_it() {
    let bare = || SshdSetup::new().without_haul();
    let Some(machines) = Machines::with(bare(), bare()) else { return };
    let Machines { one, two, one_place, .. } = &machines;
    one_place.file(&one.home("a"), 100_000);
    let words = words![at("one", "a"), at("two", "a")];
    machines.copy(&words).refused(&["two has no haul", "--install-remote"]);
    let ran = machines.copy(&[&words[..], &words!["--install-remote"]].concat());
    ran.ok();
    let told = ran.named("fallback");
    let copied = |event: &&&serde_json::Value| event["from_to"] == "no haul -> a copy of this one";
    assert_eq!(told.iter().filter(copied).count(), 2, "{ran:?}");
    assert_same_files(&one.home("a"), &two.home("a"));
}

/// A key for one directory lets nothing else out by a copy either.
#[test]
fn a_forced_command_holds_what_is_sent_to_its_directory() {
    let outer = Place::new();
    let haul = env!("CARGO_BIN_EXE_haul");
    let root = outer.path("root").display().to_string();
    let serve = format!("{haul} serve --over-ssh {root} --read-only --protection-min safe");
    let forced = format!("command=\"{serve}\",restrict");
    let one = SshdSetup::new().key_options(&forced);
    let Some(machines) = Machines::with(one, SshdSetup::new()) else { return };
    let Machines { one, two, .. } = &machines;
    outer.file(&outer.root("run7/a"), 1000);
    fs::write(outer.path("secret"), b"s").unwrap();
    std::os::unix::fs::symlink("../secret", outer.root("link")).unwrap();
    std::os::unix::fs::symlink("..", outer.root("up")).unwrap();
    fs::write(one.home("b"), b"b").unwrap();
    let copy = |path: &str, options: &[OsString]| {
        machines.copy(&[&words![at("one", path), at("two", "")], options].concat())
    };
    for path in ["run7/a", "/run7/a", "~/run7/*"] {
        copy(path, &[]).ok();
        assert_same_files(&outer.root("run7/a"), &two.home("a"));
        fs::remove_file(two.home("a")).unwrap();
    }
    let home = one.home("b").display().to_string();
    for path in ["../secret", "link", "up/secret", "up/*", "run7/../../secret", &home] {
        assert_ne!(copy(path, &[]).status, 0, "{path}");
    }
    copy("run7/a", &words!["--move"]).refused(&["read-only", "--move"]);
    copy("run7/a", &words!["--protection", "clear"]).refused(&["--protection safe"]);
    assert!(outer.root("run7/a").exists());
    let names: Vec<_> = fs::read_dir(two.home("")).unwrap().collect();
    assert!(names.is_empty(), "{names:?}");
    // The other way nothing is written there.
    let back = machines.copy(&words![at("two", "zero:1"), at("one", "new")]);
    back.refused(&["read-only"]);
    assert!(!outer.root("new").exists());
}

#[test]
fn an_interrupted_copy_ends_at_both_and_goes_on_by_the_same_command() {
    let Some(machines) = Machines::start() else { return };
    let copy = machines.slow_copy(&words!["--retry-for", "1h"]);
    copy.signal(Signal::INT);
    let ran = copy.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("interrupted"), "{ran:?}");
    machines.are_free();
    assert!(!machines.two.home("large").exists(), "nothing half has a name");
    let ran = machines.copy(&words![at("one", "large"), at("two", "large")]);
    ran.ok();
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_same_files(&machines.one.home("large"), &machines.two.home("large"));
}

/// Ids of the children of a process whose words hold this one.
fn children(of: u32, word: &str) -> Vec<i32> {
    let parent = format!("PPid:\t{of}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let fits = |id: &i32| {
        let read = |name: &str| fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
        let is_child = String::from_utf8_lossy(&read("status")).lines().any(|line| line == parent);
        is_child && read("cmdline").split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    ids.filter(fits).collect()
}

pub fn kill_ssh(copy: &Haul, machine: &str) {
    let found = children(copy.id(), machine);
    let [id] = found[..] else { panic!("one ssh to {machine}: {found:?}") };
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, Signal::KILL).unwrap();
}

/// The machine that sends ends with its ssh; the one that receives needs its own no more.
#[test]
fn a_copy_ends_with_the_ssh_of_its_source_and_not_with_that_of_its_target() {
    let Some(machines) = Machines::start() else { return };
    let copy = machines.slow_copy(&words!["--retry-for", "1s"]);
    kill_ssh(&copy, "one");
    let ran = copy.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["ssh to one ended in the middle", "signal 9", "same command"]);
    machines.are_free();
    let words = words![at("one", "large"), at("two", "large")];
    let slow = words!["--bwlimit", "6M", "--span-size", "1M"];
    let copy = machines.place.start(&machines.words(&[&words[..], &slow].concat()));
    copy.wait_for_bytes("bytes_durable", 3 << 20);
    kill_ssh(&copy, "two");
    let ran = copy.finish();
    ran.ok();
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    let told = ran.named("fallback");
    let is_told = |event: &&&serde_json::Value| event["from_to"] == "with ssh -> without it";
    assert_eq!(told.iter().filter(is_told).count(), 1, "{ran:?}");
    assert_same_files(&machines.one.home("large"), &machines.two.home("large"));
    machines.are_free();
}

/// A haul that is killed leaves both to themselves.
#[test]
fn machines_end_when_the_one_that_started_them_is_gone() {
    let Some(machines) = Machines::start() else { return };
    let mut copy = machines.slow_copy(&words!["--retry-for", "1s"]);
    copy.kill();
    machines.are_free();
    assert!(!machines.two.home("large").exists());
}
