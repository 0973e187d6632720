//! Crash-safety: either side, killed at random moments, goes on where it was and is never wrong.

use crate::harness::{
    PATIENCE, Place, assert_no_temporaries, assert_same_files, assert_same_trees, is_long,
    journey::Way,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
    skip_long, temporaries,
};
use haul_testkit::{seed::Random, tree};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// Length of a file whose push is interrupted: four seconds at the rate it is given.
const LEN: u64 = 24 * MIB;

/// A transfer that is killed again and again.
struct Victim {
    server: Server,
    way: Way,
    /// Name of the source, a file or a directory.
    name: &'static str,
    options: Vec<OsString>,
    /// A copy of what was under the final name before, which stays until the new is complete.
    old: Option<PathBuf>,
    place: Place,
}

impl Victim {
    fn new(way: Way, name: &'static str, options: Vec<OsString>) -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        Self { place, server, way, name, options, old: None }
    }

    fn source(&self) -> PathBuf {
        match self.way {
            Way::Push => self.place.source(self.name),
            Way::Pull => self.place.root(self.name),
        }
    }

    fn target_directory(&self) -> PathBuf {
        self.place.path(if self.way == Way::Push { "root" } else { "target" })
    }

    fn target(&self) -> PathBuf {
        self.target_directory().join(self.name)
    }

    fn start(&self) -> Haul {
        let words = match self.way {
            Way::Push => words!["push", self.source(), self.server.url("")],
            Way::Pull => words!["pull", self.server.url(self.name), self.target_directory()],
        };
        self.place.start(&[words, self.options.clone()].concat())
    }

    /// Checks that what stands under final names is whole: the new, the old, or nothing.
    #[track_caller]
    fn assert_nothing_half_visible(&self) {
        let (source, target) = (self.source(), self.target());
        if source.is_dir() {
            let hidden = temporaries(&self.target_directory());
            let names = tree::names(&self.target_directory()).unwrap();
            for name in names.iter().filter(|name| !hidden.contains(name)) {
                let (from, to) =
                    (source.parent().unwrap().join(name), self.target_directory().join(name));
                // Directories get their times at the end.
                if to.is_file() {
                    assert_same_files(&from, &to);
                }
            }
        } else if target.exists() {
            let old = self.old.as_ref().is_some_and(|old| tree::same_bytes(old, &target).unwrap());
            assert!(old || tree::same_bytes(&source, &target).unwrap(), "half a file is visible");
        } else {
            assert!(self.old.is_none(), "the old file is gone before the new one is there");
        }
    }

    /// Kills one side or both at random moments, and lets the transfer end at last.
    fn kill_at_random_moments(&mut self, kills: u32, random: &mut Random) -> (Ran, u32, u64) {
        let mut client = self.start();
        let (mut durable, mut killed) = (0, 0);
        let begun = Instant::now();
        while killed < kills && begun.elapsed() < Duration::from_secs(20 * u64::from(kills)) {
            thread::sleep(Duration::from_millis(150 + random.below(2200)));
            if !client.is_running() {
                break;
            }
            killed += 1;
            let (server_dies, client_dies) =
                *random.one_of(&[(true, false), (false, true), (true, true)]);
            if server_dies {
                self.server.process.kill();
            }
            if client_dies {
                client.kill();
            }
            durable = durable.max(client.progress("bytes_durable"));
            self.assert_nothing_half_visible();
            if server_dies {
                self.server.restart(&self.place);
            }
            if client_dies {
                assert_goes_on(&client, durable);
                client = self.start();
            }
        }
        (client.finish(), killed, durable)
    }

    #[track_caller]
    fn assert_arrived(&self) {
        if self.source().is_dir() {
            assert_same_trees(&self.source(), &self.target());
        } else {
            assert_same_files(&self.source(), &self.target());
        }
        assert_no_temporaries(&self.target_directory());
    }
}

/// Checks that a killed run, where it says anything of what arrived, knows of all that was durable
/// before.
#[track_caller]
fn assert_goes_on(client: &Haul, durable: u64) {
    let events = client.events();
    let told = events.iter().filter(|event| event["bytes_received"].as_u64() > Some(0));
    let most = told.filter_map(|event| event["bytes_durable"].as_u64()).max();
    assert!(most.is_none_or(|most| most >= durable), "{most:?} after {durable}");
}

/// Durable bytes that the last session of a run, which may not be its first, tells when it has just
/// begun.
fn durable_in_last_session(ran: &Ran) -> u64 {
    let last = ran.events.iter().rposition(|event| event["event"] == "session").unwrap();
    let told = ran.events[last..].iter().find(|event| event["event"] == "progress");
    // It was over before it told anything.
    told.map_or(u64::MAX, |event| event["bytes_durable"].as_u64().unwrap())
}

fn killed_many_times(way: Way) {
    let (len, rate, kills) =
        if is_long() { (4096 * MIB, "32M", 50) } else { (256 * MIB, "24M", 8) };
    if !is_long() {
        skip_long("50 kills of a transfer of 4 GiB");
    }
    let mut victim = Victim::new(way, "data", words!["--bwlimit", rate]);
    victim.place.file(&victim.source(), len);
    if way == Way::Pull {
        victim.place.file(&victim.target(), 3 * MIB);
        fs::copy(victim.target(), victim.place.path("old")).unwrap();
        victim.old = Some(victim.place.path("old"));
    }
    let mut random = victim.place.seed.random();
    let (ran, killed, durable) = victim.kill_at_random_moments(kills, &mut random);
    ran.ok();
    assert!(killed >= kills / 2, "it was over after {killed} kills");
    let there = durable_in_last_session(&ran);
    assert!(there >= durable, "{there} of {durable} that were durable: {ran:?}");
    println!("{killed} kills, {durable} bytes durable at the last, {}", ran.report());
    victim.assert_arrived();
}

#[test]
fn a_push_killed_at_random_moments_goes_on_and_arrives() {
    killed_many_times(Way::Push);
}

#[test]
fn a_pull_killed_at_random_moments_goes_on_and_arrives() {
    killed_many_times(Way::Pull);
}

fn tree_killed_many_times(way: Way) {
    let mut victim = Victim::new(way, "tree", words!["--bwlimit", "8M", "--span-size", "64K"]);
    victim.place.tree(&victim.source(), 10, 30);
    for number in 0..6 {
        victim.place.file(&victim.source().join(format!("large{number}")), 5 * MIB + number);
    }
    let mut random = victim.place.seed.random();
    let (ran, killed, durable) = victim.kill_at_random_moments(4, &mut random);
    ran.ok();
    assert!(killed >= 2, "it was over after {killed} kills");
    let there = durable_in_last_session(&ran);
    assert!(there >= durable, "{there} of {durable} that were durable: {ran:?}");
    victim.assert_arrived();
}

#[test]
fn a_pushed_tree_killed_at_random_moments_goes_on_and_arrives() {
    tree_killed_many_times(Way::Push);
}

#[test]
fn a_pulled_tree_killed_at_random_moments_goes_on_and_arrives() {
    tree_killed_many_times(Way::Pull);
}

/// Kills the server in the middle and starts it again after a while.
fn goes_on_by_itself(way: Way) {
    let mut victim = Victim::new(way, "data", words!["--bwlimit", "16M", "--retry-for", "60s"]);
    victim.place.file(&victim.source(), 64 * MIB);
    let client = victim.start();
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    victim.server.process.kill();
    thread::sleep(Duration::from_millis(700));
    victim.assert_nothing_half_visible();
    victim.server.restart(&victim.place);
    let ran = client.finish();
    ran.ok();
    let resumes = ran.named("resume");
    assert!(!resumes.is_empty() && !resumes[0]["why"].as_str().unwrap().is_empty(), "{ran:?}");
    assert!(ran.gone_on_from() >= durable, "{durable} were durable: {ran:?}");
    assert!(ran.gone_on_from() < 64 * MIB, "{ran:?}");
    assert!(ran.number("reconnections") >= 1, "{ran:?}");
    victim.assert_arrived();
}

#[test]
fn a_push_survives_a_restart_of_the_server_by_itself() {
    goes_on_by_itself(Way::Push);
}

#[test]
fn a_pull_survives_a_restart_of_the_server_by_itself() {
    goes_on_by_itself(Way::Pull);
}

#[test]
fn a_server_that_stays_away_is_given_up_in_time_and_the_next_run_goes_on() {
    let mut victim = Victim::new(Way::Push, "data", words!["--bwlimit", "8M", "--retry-for", "1s"]);
    victim.place.file(&victim.source(), 24 * MIB);
    let client = victim.start();
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    victim.server.process.kill();
    let ran = client.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    let address = victim.server.address().to_string();
    ran.says(&[&address, "--retry-for", "run the same command again"]);
    victim.server.restart(&victim.place);
    let ran = victim.start().finish();
    ran.ok();
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
    victim.assert_arrived();
}

#[test]
fn ctrl_c_leaves_a_transfer_that_resumes() {
    for way in [Way::Push, Way::Pull] {
        let victim = Victim::new(way, "data", words!["--bwlimit", "16M"]);
        victim.place.file(&victim.source(), 48 * MIB);
        let client = victim.start();
        let durable = client.wait_for_bytes("bytes_durable", MIB);
        client.signal(rustix::process::Signal::INT);
        let ran = client.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["interrupted", "same command"]);
        victim.assert_nothing_half_visible();
        let ran = victim.start().finish();
        ran.ok();
        assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
        victim.assert_arrived();
    }
}

#[test]
fn a_server_that_is_ended_in_order_ends_and_the_client_goes_on_with_the_next() {
    for way in [Way::Push, Way::Pull] {
        let mut victim = Victim::new(way, "data", words!["--bwlimit", "8M"]);
        victim.place.file(&victim.source(), 24 * MIB);
        let client = victim.start();
        let durable = client.wait_for_bytes("bytes_durable", MIB);
        victim.server.process.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        while victim.server.process.is_running() {
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        }
        victim.assert_nothing_half_visible();
        victim.server.restart(&victim.place);
        let ran = client.finish();
        ran.ok();
        assert!(ran.gone_on_from() >= durable, "{durable} were durable: {ran:?}");
        victim.assert_arrived();
    }
}

/// Makes a push that was killed when a part of it was durable, and the server idle again.
fn interrupted() -> (Victim, u64) {
    let options = words!["--bwlimit", "6M", "--span-size", "64K", "--streams", "1"];
    let victim = Victim::new(Way::Push, "data", options);
    victim.place.file(&victim.source(), LEN);
    let mut client = victim.start();
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    client.kill();
    victim.server.wait_for_sessions(1);
    assert_eq!(temporaries(&victim.target_directory()).len(), 2);
    (victim, durable)
}

impl Victim {
    fn journal(&self) -> PathBuf {
        self.place.root(".data.haul-journal")
    }

    fn part(&self) -> PathBuf {
        self.place.root(".data.haul-part")
    }

    /// Runs the push again, fast, to its end.
    #[track_caller]
    fn run_again(&self) -> Ran {
        let ran = self.place.push(&words![self.source(), self.server.url("")]);
        ran.ok();
        self.assert_arrived();
        ran
    }
}

#[test]
fn an_untouched_journal_is_believed() {
    let (victim, durable) = interrupted();
    let ran = victim.run_again();
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
    assert_eq!(ran.number("resumed_bytes") + ran.number("moved_bytes"), LEN);
}

#[test]
fn a_damaged_journal_is_never_believed_for_what_is_not_there() {
    let (victim, _) = interrupted();
    let mut random = victim.place.seed.random();
    let mut journal = fs::read(victim.journal()).unwrap();
    // Beyond what it says, the temporary holds other bytes: a journal that said more would show.
    let part = File::options().write(true).open(victim.part()).unwrap();
    part.write_all_at(&[0x55; 65_536], LEN - 65_536).unwrap();
    for _ in 0..20 {
        let at = random.below(journal.len() as u64) as usize;
        journal[at] ^= 1 << random.below(8);
    }
    fs::write(victim.journal(), &journal).unwrap();
    victim.run_again();
}

#[test]
fn a_damaged_head_of_a_journal_gives_a_clean_restart() {
    let (victim, _) = interrupted();
    File::options().write(true).open(victim.journal()).unwrap().write_all_at(b"?", 9).unwrap();
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
}

#[test]
fn a_journal_cut_off_gives_no_more_than_it_still_says() {
    let (victim, _) = interrupted();
    let mut random = victim.place.seed.random();
    let file = File::options().write(true).open(victim.journal()).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(random.below(len)).unwrap();
    victim.run_again();
}

#[test]
fn a_journal_of_an_older_source_gives_a_clean_restart() {
    let (victim, _) = interrupted();
    // The same size and name, other bytes, another time.
    victim.place.file(&victim.source(), MIB);
    victim.place.file(&victim.source(), LEN);
    let file = File::options().write(true).open(victim.source()).unwrap();
    file.write_all_at(b"newer", 100).unwrap();
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
}

#[test]
fn a_journal_of_another_file_gives_a_clean_restart() {
    let (victim, _) = interrupted();
    let other = victim.place.source("other");
    victim.place.file(&other, LEN);
    let words = words!["push", other, victim.server.url(""), "--span-size", "64K"];
    let words = [words, words!["--bwlimit", "6M"]].concat();
    let mut client = victim.place.start(&words);
    client.wait_for_bytes("bytes_durable", MIB);
    client.kill();
    victim.server.wait_for_sessions(2);
    // Each with the journal of the other.
    let (one, two) =
        (fs::read(victim.journal()).unwrap(), victim.place.root(".other.haul-journal"));
    fs::copy(&two, victim.journal()).unwrap();
    fs::write(&two, one).unwrap();
    let ran = victim.place.push(&words![other, victim.server.url("")]);
    assert_eq!(ran.ok()["resumed_bytes"], 0);
    assert_same_files(&other, &victim.place.root("other"));
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
}

#[test]
fn a_temporary_that_was_cut_or_replaced_gives_a_clean_restart() {
    let (victim, _) = interrupted();
    File::options().write(true).open(victim.part()).unwrap().set_len(5 * MIB).unwrap();
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
    let (victim, _) = interrupted();
    // The same size, but another file.
    fs::rename(victim.part(), victim.place.path("moved")).unwrap();
    File::create_new(victim.part()).unwrap().set_len(LEN).unwrap();
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
}

#[test]
fn temporaries_without_a_journal_and_odd_things_in_their_place_do_no_harm() {
    let (victim, _) = interrupted();
    fs::remove_file(victim.journal()).unwrap();
    assert_eq!(victim.run_again().number("resumed_bytes"), 0);
    // A link where the temporary belongs leads nowhere.
    let place = &victim.place;
    fs::write(place.path("outside"), b"outside").unwrap();
    let more = place.source("more");
    place.file(&more, MIB);
    std::os::unix::fs::symlink(place.path("outside"), place.root(".more.haul-part")).unwrap();
    let ran = place.push(&words![more, victim.server.url("")]);
    assert_eq!(fs::read(place.path("outside")).unwrap(), b"outside");
    if ran.status != 0 {
        ran.failed(1);
        ran.says(&["more", "target"]);
        fs::remove_file(place.root(".more.haul-part")).unwrap();
        place.push(&words![more, victim.server.url("")]).ok();
    }
    assert_same_files(&more, &place.root("more"));
}

#[test]
fn a_second_writer_is_refused_while_the_first_lives_and_not_after_it_died() {
    let victim = Victim::new(Way::Push, "data", words!["--bwlimit", "8M"]);
    victim.place.file(&victim.source(), 64 * MIB);
    let other = victim.place.path("other");
    victim.place.file(&other, 2 * MIB);
    let mut first = victim.start();
    first.wait_for_bytes("bytes_received", MIB);
    let second = words![other, victim.server.url("data")];
    let ran = victim.place.push(&second);
    ran.failed(1);
    ran.says(&["data", "target", "another transfer", "lock"]);
    assert!(first.is_running() && !victim.target().exists());
    // Not even by way of another server on the same directory.
    let of_its_own = victim.place.path("state2");
    let server = ServerSetup::new(&victim.place).state(of_its_own).start(&victim.place);
    let ran = victim.place.push(&words![other, server.url("data")]);
    ran.failed(1);
    ran.says(&["data", "another transfer"]);
    first.kill();
    let ran = victim.place.push(&second);
    ran.ok();
    assert_same_files(&other, &victim.target());
    assert_no_temporaries(&victim.target_directory());
}

#[test]
fn a_second_pull_to_the_same_name_is_refused_while_the_first_lives() {
    let victim = Victim::new(Way::Pull, "data", words!["--bwlimit", "8M"]);
    victim.place.file(&victim.source(), 32 * MIB);
    let mut first = victim.start();
    first.wait_for_bytes("bytes_received", MIB);
    let ran = victim.start().finish();
    ran.failed(1);
    ran.says(&["data", "another transfer"]);
    first.kill();
    let words = words![victim.server.url("data"), victim.target_directory()];
    victim.place.pull(&words).ok();
    victim.assert_arrived();
}

/// The lock of a target, which the kernel lets go of when its holder dies, however it dies.
#[test]
fn a_server_killed_in_the_middle_leaves_no_lock_behind() {
    let mut victim = Victim::new(Way::Push, "data", words!["--bwlimit", "8M"]);
    victim.place.file(&victim.source(), 24 * MIB);
    let mut client = victim.start();
    client.wait_for_bytes("bytes_received", MIB);
    victim.server.process.kill();
    client.kill();
    let left: Vec<PathBuf> = temporaries(&victim.target_directory());
    assert!(left.iter().any(|name| name == Path::new(".data.haul-part")), "{left:?}");
    victim.server.restart(&victim.place);
    let begun = Instant::now();
    victim.run_again();
    assert!(begun.elapsed() < PATIENCE);
}

/// Counts of a report, which fit together however often the transfer was interrupted.
#[test]
fn the_bytes_of_a_report_add_up_after_a_restart_of_the_server() {
    let mut victim = Victim::new(Way::Push, "data", words!["--bwlimit", "8M"]);
    victim.place.file(&victim.source(), 24 * MIB);
    let client = victim.start();
    client.wait_for_bytes("bytes_durable", MIB);
    victim.server.restart(&victim.place);
    let ran = client.finish();
    let report: &Value = ran.ok();
    let number = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(number("bytes"), 24 * MIB);
    assert!(number("moved_bytes") >= 24 * MIB, "all of it was moved by this run: {report}");
    assert_eq!(
        (report["files"]["done"].as_u64(), report["files"]["skipped"].as_u64()),
        (Some(1), Some(0))
    );
}

/// Two names of one file in a killed move: had one gone before the kill, the next run would meet
/// the other as a file of its own.
#[test]
fn a_killed_move_leaves_names_of_one_file_together() {
    let place = Place::new();
    let server = Server::start(&place);
    let from = place.source("t");
    place.file(&from.join("a/one"), 100_000);
    // More than are offered at a time, by the bytes of their names, so that the other name is met
    // long after the first is there.
    let deep = vec!["d".repeat(250); 14].join("/");
    for number in 0..2000 {
        place.file(&from.join(format!("m/{deep}/{number}")), 1500);
    }
    fs::create_dir(from.join("z")).unwrap();
    fs::hard_link(from.join("a/one"), from.join("z/other")).unwrap();
    let words = words!["push", from, server.url(""), "--move"];
    let slow = words!["--bwlimit", "1M"];
    let mut first = place.start(&[words.clone(), slow].concat());
    first.wait_for_bytes("bytes_durable", MIB / 2);
    first.kill();
    server.wait_for_sessions(1);
    let left = tree::names(&from).unwrap().len();
    assert!((10..2000).contains(&left), "it was killed too early or too late: {left} are left");
    place.run(&words).ok();
    let inode = |name: &str| fs::metadata(place.root("t").join(name)).unwrap().ino();
    assert_eq!(inode("a/one"), inode("z/other"));
    assert!(tree::names(&from).unwrap().is_empty());
}
