//! One file by many runs, each of which brings a range of it to servers that share a directory.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees,
    crashed::{journal_of_an_earlier_boot, register_of_an_earlier_boot, spoil},
    is_long,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
    temporaries,
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;
const SHARDS: usize = 4;

/// A large file beside small ones, two servers of one directory, and a plan that cuts the file.
struct Fleet {
    place: Place,
    servers: [Server; 2],
    len_bytes: u64,
}

impl Fleet {
    fn new(len_bytes: u64) -> Self {
        let place = Place::new();
        place.tree(&place.source("tree"), 2, 5);
        place.file(&place.source("tree/huge"), len_bytes);
        let first = Server::start(&place);
        let second = ServerSetup::new(&place).state(place.path("state2")).start(&place);
        Self { place, servers: [first, second], len_bytes }
    }

    fn plan(&self, options: &[OsString]) -> Ran {
        let urls = self.servers.each_ref().map(|server| server.url(""));
        let words = words!["plan", self.place.source("tree"), &urls[0], &urls[1]];
        let out =
            words!["--shards", SHARDS.to_string(), "--out", self.place.path("plan"), "--json"];
        let words = [&words[..], &out[..], options].concat();
        Haul::start(self.place.command(&words)).finish()
    }

    fn words(&self, shard: usize, options: &[&str]) -> Vec<OsString> {
        let shard = shard.to_string();
        let mut words = words!["push", "--plan", self.place.path("plan"), "--shard", shard];
        words.extend(options.iter().map(OsString::from));
        words
    }

    fn run(&self, shard: usize) -> Ran {
        self.place.run(&self.words(shard, &[]))
    }

    /// Puts another file of the same size and time in the place of the large one.
    fn replace_source(&self) {
        let path = self.place.source("tree/huge");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let other = self.place.path("other");
        fs::write(&other, vec![0x55; usize::try_from(self.len_bytes).unwrap()]).unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
    }

    fn assert_arrived(&self) {
        assert_same_trees(&self.place.source("tree"), &self.place.root("tree"));
        assert_no_temporaries(&self.place.root("tree"));
    }

    fn is_named(&self) -> bool {
        self.place.root("tree/huge").exists()
    }

    /// Checks that the file that got the name first has it still.
    #[track_caller]
    fn assert_named_once(&self, first: &mut Option<u64>) {
        let Ok(there) = fs::metadata(self.place.root("tree/huge")) else {
            return assert_eq!(*first, None, "the name is gone");
        };
        assert_eq!(*first.get_or_insert(there.ino()), there.ino(), "it was named once more");
    }
}

fn cut() -> Vec<OsString> {
    words!["--stripe-size", "1M", "--shared-target"]
}

#[test]
fn a_file_by_four_runs_through_two_servers_has_its_name_behind_the_last() {
    let fleet = Fleet::new(41 * MIB + 77);
    let planned = fleet.plan(&cut());
    assert_eq!(planned.status, 0, "{planned:?}");
    let bytes = planned.named("shard").into_iter().map(|shard| shard["bytes"].as_u64().unwrap());
    let (least, most) = bytes.fold((u64::MAX, 0), |(a, b), it| (a.min(it), b.max(it)));
    assert!(most - least < 2 * MIB && least > 9 * MIB, "{planned:?}");
    let mut brought = 0;
    for shard in [3, 1, 4, 2] {
        assert!(!fleet.is_named());
        brought += fleet.run(shard).ok()["bytes"].as_u64().unwrap();
    }
    assert!(brought >= fleet.len_bytes, "{brought}");
    fleet.assert_arrived();
    let inode = fs::metadata(fleet.place.root("tree/huge")).unwrap().ino();
    for shard in 1..=SHARDS {
        let report = fleet.run(shard);
        assert_eq!(report.ok()["moved_bytes"], 0, "{report:?}");
    }
    fleet.assert_arrived();
    assert_eq!(fs::metadata(fleet.place.root("tree/huge")).unwrap().ino(), inode);
}

#[test]
fn runs_of_one_file_that_are_killed_and_doubled_go_on_and_name_it_once() {
    let (len_bytes, kills) = if is_long() { (20 << 30, 100) } else { (48 * MIB, 10) };
    let mut fleet = Fleet::new(len_bytes);
    assert_eq!(fleet.plan(&cut()).status, 0);
    let mut random = fleet.place.seed.random();
    let rate = format!("{}M", (len_bytes / MIB / 16).max(4));
    let options = ["--bwlimit", &rate, "--span-size", "64K", "--retry-for", "20s"];
    let (mut inode, mut unnamed_kills) = (None, 0);
    for kill in 0..kills {
        let mut runs: Vec<Haul> =
            (1..=SHARDS).map(|shard| fleet.place.start(&fleet.words(shard, &options))).collect();
        thread::sleep(Duration::from_millis(random.below(900)));
        // Of a server now and then: its sessions end in the middle of whatever they do.
        if kill % 5 == 4 {
            let server = &mut fleet.servers[kill / 5 % 2];
            server.process.kill();
            server.restart(&fleet.place);
        }
        runs.iter_mut().for_each(Haul::kill);
        assert!(!fleet.is_named() || fleet_is_whole(&fleet), "a part of it has the name");
        unnamed_kills += u32::from(!fleet.is_named());
        fleet.assert_named_once(&mut inode);
    }
    assert!(unnamed_kills > 0, "none of {kills} kills came before the name");
    // Each shard twice at once, until all of them are through.
    for _ in 0..5 {
        let twice = (1..=SHARDS).chain(1..=SHARDS);
        let runs: Vec<Haul> = twice.map(|n| fleet.place.start(&fleet.words(n, &[]))).collect();
        let ran: Vec<Ran> = runs.into_iter().map(Haul::finish).collect();
        assert!(ran.iter().all(|ran| ran.status <= 1), "{ran:?}");
        fleet.assert_named_once(&mut inode);
    }
    for shard in 1..=SHARDS {
        fleet.run(shard).ok();
    }
    fleet.assert_named_once(&mut inode);
    assert!(inode.is_some());
    fleet.assert_arrived();
}

fn fleet_is_whole(fleet: &Fleet) -> bool {
    assert_same_files(&fleet.place.source("tree/huge"), &fleet.place.root("tree/huge"));
    true
}

#[test]
fn a_run_that_is_ended_in_order_brings_no_byte_of_its_range_twice() {
    let fleet = Fleet::new(64 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    let slow = fleet.words(2, &["--bwlimit", "6M", "--span-size", "64K"]);
    let run = fleet.place.start(&slow);
    let durable = run.wait_for_bytes("bytes_durable", 2 * MIB);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 1);
    for shard in [1, 3, 4] {
        fleet.run(shard).ok();
    }
    assert!(!fleet.is_named() && temporaries(&fleet.place.root("tree")).len() >= 3);
    let ran = fleet.run(2);
    ran.ok();
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
    fleet.assert_arrived();
}

/// Writes a file anew, with a hole in it.
fn with_hole(path: &Path, hole: Range<u64>) {
    let bytes = fs::read(path).unwrap();
    let file = fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    let (begin, end) = (hole.start as usize, hole.end as usize);
    file.write_all_at(&bytes[..begin], 0).unwrap();
    file.write_all_at(&bytes[end..], hole.end).unwrap();
}

/// Runs all shards but the last, and makes what they left that of an earlier start of the host.
fn crashed_before_the_last_shard(fleet: &Fleet) -> Vec<PathBuf> {
    assert_eq!(fleet.plan(&cut()).status, 0);
    for shard in 1..SHARDS {
        fleet.place.run(&fleet.words(shard, &["--span-size", "64K"])).ok();
    }
    register_of_an_earlier_boot(&fleet.place.root("tree/.huge.haul-ranges"));
    let left = temporaries(&fleet.place.root("tree"));
    let journals = left.iter().filter(|it| it.extension().is_some_and(|it| it == "haul-range"));
    let journals: Vec<_> = journals.map(|it| fleet.place.root("tree").join(it)).collect();
    assert_eq!(journals.len(), SHARDS - 1);
    journals.iter().for_each(|journal| journal_of_an_earlier_boot(journal));
    journals
}

#[test]
fn after_a_crash_of_the_host_the_last_run_reads_back_what_the_others_brought() {
    let fleet = Fleet::new(32 * MIB);
    // In the second range, and in a part of a span.
    with_hole(&fleet.place.source("tree/huge"), 10 * MIB + 777..12 * MIB + 5);
    crashed_before_the_last_shard(&fleet);
    let ran = fleet.run(SHARDS);
    assert_eq!(ran.status, 0, "{ran:?}");
    let told =
        ran.named("fallback").into_iter().find(|it| it["from_to"] == "the name of tree/huge");
    assert!(told.is_some_and(|it| it["why"].as_str().unwrap().contains("read back")), "{ran:?}");
    let recheck = &ran.report()["recheck"];
    assert!(recheck["bytes"].as_u64() >= Some(22 * MIB), "all of three ranges: {ran:?}");
    assert_eq!(recheck["lost_bytes"], 0);
    fleet.assert_arrived();
}

#[test]
fn what_a_crash_of_the_host_took_of_ranges_comes_again_with_their_shards_and_nothing_else_does() {
    let fleet = Fleet::new(32 * MIB);
    crashed_before_the_last_shard(&fleet);
    // In the first and in the second range.
    spoil(&fleet.place.root("tree/.huge.haul-shared"), &[48, 136]);
    let lost = ["131072 bytes are others than had come, in bytes", "run all shards again"];
    let missing = ["ranges of it that other runs had brought", "run all shards again"];
    for (recheck_min, says) in [(22 * MIB, lost), (0, missing)] {
        let ran = fleet.run(SHARDS);
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&says);
        assert!(ran.report()["recheck"]["bytes"].as_u64().unwrap_or_default() >= recheck_min);
        assert!(!fleet.is_named());
    }
    let mut lost = 0;
    for (shard, status) in [(3, 1), (1, 1), (2, 0)] {
        let ran = fleet.run(shard);
        assert_eq!(ran.status, status, "{ran:?}");
        assert_eq!(fleet.is_named(), status == 0);
        let report = ran.report();
        let recheck = &report["recheck"];
        assert_eq!(recheck["bytes"].as_u64() >= Some(7 * MIB), shard != 3, "{ran:?}");
        lost += recheck["lost_bytes"].as_u64().unwrap_or_default();
    }
    assert_eq!(lost, 2 * (64 << 10), "of the first and of the second range one span each");
    fleet.assert_arrived();
    for shard in 1..=SHARDS {
        fleet.run(shard).ok();
    }
}

/// Case of a server that found a range lost, and another of the same directory, which was not
/// started anew, and has its journal.
#[test]
fn what_one_server_found_lost_another_does_not_believe() {
    let fleet = Fleet::new(32 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    for shard in 1..SHARDS {
        fleet.place.run(&fleet.words(shard, &["--span-size", "64K"])).ok();
    }
    register_of_an_earlier_boot(&fleet.place.root("tree/.huge.haul-ranges"));
    spoil(&fleet.place.root("tree/.huge.haul-shared"), &[48]);
    let ran = fleet.run(SHARDS);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["65536 bytes are others than had come, in bytes"]);
    let ran = fleet.run(1);
    assert_eq!(ran.report()["recheck"]["lost_bytes"], 64 << 10, "{ran:?}");
    assert_eq!(ran.status, 0, "{ran:?}");
    fleet.assert_arrived();
}

/// Cases of runs of one file that differ: in the size of spans after a kill, and in protection.
#[test]
fn ranges_that_came_in_other_ways_are_read_back_by_who_completes_the_file() {
    let fleet = Fleet::new(32 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    let slow = ["--bwlimit", "6M", "--span-size", "1M"];
    let run = fleet.place.start(&fleet.words(1, &slow));
    run.wait_for_bytes("bytes_durable", 2 * MIB);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 1);
    fleet.place.run(&fleet.words(1, &["--span-size", "256K"])).ok();
    fleet.place.run(&fleet.words(2, &["--protection", "clear"])).ok();
    fleet.run(3).ok();
    register_of_an_earlier_boot(&fleet.place.root("tree/.huge.haul-ranges"));
    fleet.run(SHARDS).ok();
    fleet.assert_arrived();
}

#[test]
fn a_range_without_its_journal_is_not_read_back_by_others() {
    let fleet = Fleet::new(32 * MIB);
    let journals = crashed_before_the_last_shard(&fleet);
    fs::remove_file(&journals[0]).unwrap();
    let ran = fleet.run(SHARDS);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["bytes 0 to 8388608 have no journal", "run all shards again"]);
    assert!(!fleet.is_named());
    let named: Vec<bool> = (1..SHARDS).map(|shard| fleet.run(shard).status == 0).collect();
    assert!(named.contains(&true) && fleet.is_named(), "{named:?}");
    fleet.assert_arrived();
}

#[test]
fn a_file_that_changed_between_its_ranges_is_never_named_of_both() {
    let fleet = Fleet::new(32 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    for shard in 1..SHARDS {
        fleet.run(shard).ok();
    }
    let path = fleet.place.source("tree/huge");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    // Its time is set back, so that only its inode's change time tells.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0x55; 100], 5).unwrap();
    file.set_modified(time).unwrap();
    let ran = fleet.run(SHARDS);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["its source has changed", "run their shards again"]);
    assert!(!fleet.is_named());
    // The first shard finds that its bytes are others.
    let ran = fleet.run(1);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(!fleet.is_named());
    for _ in 0..2 {
        for shard in 1..=SHARDS {
            fleet.run(shard);
        }
    }
    fleet.assert_arrived();
}

/// Case of a file that an atomic writer puts in the place of the planned one, with its time.
#[test]
fn no_run_says_done_of_a_file_that_was_replaced_between_its_ranges() {
    let fleet = Fleet::new(32 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    for shard in 1..SHARDS {
        fleet.run(shard).ok();
    }
    fleet.replace_source();
    for _ in 0..2 {
        let ran = fleet.run(SHARDS);
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["replaced by another file since it was planned", "haul plan --again"]);
    }
    assert!(!fleet.is_named());
    let out = words!["--again", fleet.place.path("plan"), "--shards", SHARDS.to_string()];
    let options = words!["--out", fleet.place.path("plan-2"), "--stripe-size", "1M"];
    let words = [&words!["plan"], &out[..], &options, &words!["--shared-target"]].concat();
    assert_eq!(Haul::start(fleet.place.command(&words)).finish().status, 0);
    for shard in 1..=SHARDS {
        assert!(!fleet.is_named());
        let shard = shard.to_string();
        let words = words!["push", "--plan", fleet.place.path("plan-2"), "--shard", shard];
        fleet.place.run(&words).ok();
    }
    // What the planned file lost to the other one stays known, until somebody says otherwise.
    assert_eq!(temporaries(&fleet.place.root("tree")), [Path::new(".huge.haul-ranges")]);
    fs::remove_file(fleet.place.root("tree/.huge.haul-ranges")).unwrap();
    fleet.assert_arrived();
}

/// Case of a hidden file that somebody removed, since it looked like rubbish.
#[test]
fn no_run_says_done_of_a_file_whose_ranges_were_removed_until_all_are_there_again() {
    let fleet = Fleet::new(32 * MIB);
    assert_eq!(fleet.plan(&cut()).status, 0);
    for shard in 1..SHARDS {
        fleet.run(shard).ok();
    }
    fs::remove_file(fleet.place.root("tree/.huge.haul-shared")).unwrap();
    for _ in 0..2 {
        let ran = fleet.run(SHARDS);
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["are not there any more", "run all shards again"]);
    }
    for shard in 1..SHARDS - 1 {
        assert_eq!(fleet.run(shard).status, 1);
        assert!(!fleet.is_named());
    }
    fleet.run(SHARDS - 1).ok();
    for shard in 1..=SHARDS {
        fleet.run(shard).ok();
    }
    fleet.assert_arrived();
}

/// Files are names, whether they are cut or not: a plan and the report of its runs agree.
#[test]
fn a_file_in_several_shards_is_one_file_for_the_plan_and_for_its_report() {
    for size in [["--shards", "4"], ["--shard-size", "11M"]] {
        let place = Place::new();
        let server = Server::start(&place);
        place.tree(&place.source("tree"), 2, 5);
        place.file(&place.source("tree/huge"), 41 * MIB + 77);
        let words = words!["plan", place.source("tree"), server.url(""), "--stripe-size", "1M"];
        let out = words!["--out", place.path("plan"), "--json", size[0], size[1]];
        let planned = Haul::start(place.command(&[&words[..], &out].concat())).finish();
        assert_eq!(planned.status, 0, "{planned:?}");
        let shards = planned.named("plan")[0]["shards"].as_u64().unwrap();
        assert!(shards >= 3, "{planned:?}");
        // Ten files, the large one, and two empty directories.
        assert_eq!(planned.named("plan")[0]["files"], 13, "{size:?} {planned:?}");
        let report = || {
            let ran = place.run(&words!["report", place.path("plan")]);
            ran.events.last().unwrap().clone()
        };
        for shard in 1..=shards {
            place.push(&words!["--plan", place.path("plan"), "--shard", shard.to_string()]).ok();
            let last = report();
            let files = last["files"].as_u64().unwrap();
            assert!(files <= 13, "{size:?} {last}");
        }
        let last = report();
        assert_eq!((&last["planned_files"], &last["files"]), (&13.into(), &13.into()), "{last}");
        assert_eq!((&last["bytes"], &last["files_skipped"]), (&last["planned_bytes"], &0.into()));
        assert_same_trees(&place.source("tree"), &place.root("tree"));
    }
}

/// Case of a range as small as what goes in packs, which are read from the begin of a file.
#[test]
fn a_range_of_a_few_bytes_at_the_end_of_a_file_arrives_as_they_are() {
    let place = Place::new();
    let server = Server::start(&place);
    for name in ["tree/a", "tree/b"] {
        place.file(&place.source(name), 16 * MIB + 77);
    }
    let words = words!["plan", place.source("tree"), server.url(""), "--stripe-size", "1M"];
    let out = words!["--shards", "2", "--out", place.path("plan"), "--json"];
    assert_eq!(Haul::start(place.command(&[&words[..], &out].concat())).finish().status, 0);
    let shard = fs::read_to_string(place.path("plan/shard-00002.jsonl")).unwrap();
    assert!(shard.contains("\"bytes\":77"), "{shard}");
    for shard in ["1", "2"] {
        place.push(&words!["--plan", place.path("plan"), "--shard", shard]).ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn files_are_cut_for_several_servers_only_where_they_share_a_directory() {
    let fleet = Fleet::new(32 * MIB);
    for options in [&words!["--stripe-size", "1M"], &words!["--shared-target", "--whole-files"]] {
        let planned = fleet.plan(options);
        let shards = planned.named("shard");
        let most = shards.iter().map(|shard| shard["bytes"].as_u64().unwrap()).max().unwrap();
        assert!(most >= 32 * MIB, "{planned:?}");
        fs::remove_dir_all(fleet.place.path("plan")).unwrap();
    }
    let ran = fleet.plan(&words!["--stripe-size", "100K"]);
    ran.refused(&["--stripe-size", "a multiple of 64K"]);
    assert_eq!(fleet.plan(&cut()).status, 0);
    let ran = fleet.place.run(&fleet.words(1, &["--manifest", "manifest"]));
    ran.refused(&["ranges of files", "--whole-files"]);
}
