//! Disks that fail below the file system, so that io_uring meets it too.
//!
//! The power goes, the space that was promised is not there, the journal is aborted, inodes run
//! out.

use super::{Journey, MIB, Way, assert_nothing_wrong, assert_told};
use crate::harness::{
    Place, assert_same_files, assert_same_trees, is_long, process::Ran, server::Server, temporaries,
};
use haul_testkit::{
    Unavailable,
    mount::{DiskKind, Mount},
    page_cache::forget,
    seed::{Random, Seed},
    skip::skip,
    tree,
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const SPAN: u64 = 64 << 10;

/// A place whose `root` or `target` is a file system of its own; `None` where that cannot be.
fn mounted(mount: impl FnOnce(&Place) -> Result<Mount, Unavailable>) -> Option<(Place, Mount)> {
    let place = Place::new();
    match mount(&place) {
        Ok(mount) => Some((place, mount)),
        Err(why) => {
            skip("a user who may mount (root)", &why);
            None
        }
    }
}

/// Files that were told as done, by their names as they were offered.
fn told_as_done(events: &[Value]) -> Vec<PathBuf> {
    let done = |event: &&Value| event["event"] == "file" && event["status"] == "done";
    events.iter().filter(done).map(|event| event["path"].as_str().unwrap().into()).collect()
}

/// Path of a name in the hidden directory that its first directory is until all of it is there.
fn hidden(name: &Path) -> PathBuf {
    let mut parts = name.components();
    let first = parts.next().unwrap().as_os_str().to_str().unwrap();
    Path::new(&format!(".{first}.haul-staged")).join(parts.as_path())
}

/// Checks that what was told as done before the power went is there when it is back, and equal.
#[track_caller]
fn assert_kept(done: &[PathBuf], from: &Path, to: &Path) {
    for name in done {
        let (source, mut target) = (from.join(name), to.join(name));
        if target.symlink_metadata().is_err() {
            target = to.join(hidden(name));
        }
        let there = target.symlink_metadata();
        assert!(there.is_ok(), "{} was told as done and is not there", name.display());
        if source.is_file() && !source.is_symlink() {
            assert_same_files(&source, &target);
        }
    }
}

/// A journey whose target lies on a disk of which the power can be cut.
struct Fragile {
    journey: Journey,
    disk: Mount,
    /// Names of all files that were ever told as done.
    done: Vec<PathBuf>,
    durable: u64,
}

impl Fragile {
    fn new(way: Way, kind: DiskKind) -> Option<Self> {
        let target = if way == Way::Push { "root" } else { "target" };
        let mount = |place: &Place| Mount::disk(kind, &place.path(target), &place.path("image"));
        let (place, disk) = mounted(mount)?;
        let server = Server::start(&place);
        let journey = Journey { place, server, way };
        Some(Self { journey, disk, done: Vec::new(), durable: 0 })
    }

    fn base(&self) -> PathBuf {
        self.journey.to("")
    }

    /// Starts the transfer, cuts the power at a random moment, and brings it back. True while there
    /// is something left to do.
    fn lose_power_once(&mut self, options: &[OsString], random: &mut Random) -> bool {
        let engine = *random.one_of(&["auto", "io-uring", "direct", "read-write"]);
        let options = [options, &words!["--receive-engine", engine]].concat();
        let mut client = self.journey.start("tree", "", &options);
        thread::sleep(Duration::from_millis(random.below(1800)));
        let running = client.is_running();
        self.disk.cut_power().unwrap();
        // Either it goes on for a while with a disk that fails, or all is dark at once.
        let dark = random.below(2) == 0;
        if dark {
            self.journey.server.process.kill();
            client.kill();
            self.remember(&client.events());
        } else {
            let ran = client.finish();
            if running && ran.status != 0 {
                assert_told(&ran);
            }
            self.remember(&ran.events);
            self.journey.server.process.kill();
        }
        self.disk.mount_again().unwrap();
        let from = self.journey.from("tree");
        assert_kept(&self.done, from.parent().unwrap(), &self.base());
        assert_nothing_wrong(from.parent().unwrap(), &self.base());
        self.journey.server.restart(&self.journey.place);
        running
    }

    fn remember(&mut self, events: &[Value]) {
        self.done.extend(told_as_done(events));
        let durable = events.iter().filter_map(|event| event["bytes_durable"].as_u64()).max();
        self.durable = self.durable.max(durable.unwrap_or(0));
    }
}

/// A tree to lose the power with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// A large file, whose journal tells what is durable of it, and small ones.
    LargeAndSmall,
    /// Small files alone: their directory is hidden, and its list tells which are durable.
    SmallAlone,
}

fn loses_power(way: Way, kind: DiskKind) {
    loses_power_with(way, kind, Holds::LargeAndSmall, if is_long() { 60 } else { 4 });
}

fn loses_power_with(way: Way, kind: DiskKind, holds: Holds, cuts: u32) {
    let Some(mut fragile) = Fragile::new(way, kind) else { return };
    let mut random = fragile.journey.place.seed.random();
    let from = fragile.journey.from("tree");
    match holds {
        Holds::LargeAndSmall => fragile.journey.place.file(&from.join("large"), 20 * MIB + 5),
        Holds::SmallAlone => (0..640).for_each(|number| {
            let name = format!("d{}/f{number}", number % 9);
            fragile.journey.place.file(&from.join(name), 20_000 + random.below(24_000));
        }),
    }
    fragile.journey.place.tree(&from.join("some"), 3, 30);
    let options =
        words!["--bwlimit", "6M", "--span-size", "64K", "--retry-for", "1s", "--streams", "2"];
    let (mut lost, mut rounds) = (0, 0);
    while lost < cuts {
        if fragile.lose_power_once(&options, &mut random) {
            lost += 1;
            continue;
        }
        // It was over before the power went: all of it stays, and another begins. Mode and time of
        // directories come last, and nothing syncs them: the same command sets them again.
        let again = fragile.journey.completes("tree", "", &options);
        assert_eq!(again.number("moved_bytes"), 0, "{again:?}");
        fs::remove_dir_all(fragile.base().join("tree")).unwrap();
        (fragile.done, fragile.durable) = (Vec::new(), 0);
        rounds += 1;
        assert!(rounds <= cuts, "it is always over before the power goes");
    }
    let ran = fragile.journey.completes("tree", "", &[]);
    let all = tree_bytes(&from);
    let moved = ran.number("moved_bytes");
    assert!(moved + fragile.durable <= all, "{} were durable: {ran:?}", fragile.durable);
    println!(
        "soak: {way:?}, {}: {lost} power cuts, {} bytes durable at the last",
        kind.name(),
        fragile.durable
    );
}

fn tree_bytes(root: &Path) -> u64 {
    let names = tree::names(root).unwrap();
    let sizes = names.iter().map(|name| fs::symlink_metadata(root.join(name)).unwrap());
    sizes.filter(|found| found.is_file()).map(|found| found.len()).sum()
}

/// Trees without a large file: nothing is believed of which the list does not tell.
#[test]
fn hidden_directories_lose_their_power_and_keep_all_that_was_told() {
    for (way, kind) in ways_and_kinds() {
        loses_power_with(way, kind, Holds::SmallAlone, if is_long() { 30 } else { 2 });
    }
}

#[test]
fn a_server_that_receives_loses_its_power_and_keeps_all_that_it_told() {
    loses_power(Way::Push, DiskKind::Ext4);
}

/// The xfs file system, which tells who syncs a directory that all is well, though it has given up.
#[test]
fn a_server_on_xfs_loses_its_power_and_keeps_all_that_it_told() {
    loses_power(Way::Push, DiskKind::Xfs);
}

#[test]
fn a_server_on_btrfs_loses_its_disk_and_keeps_all_that_it_told() {
    loses_power(Way::Push, DiskKind::Btrfs);
}

#[test]
fn a_client_that_receives_loses_its_power_and_keeps_all_that_it_told() {
    loses_power(Way::Pull, DiskKind::Ext4);
}

/// Remains of a power cut: any beginning of the journal, and of the data only what it tells of.
#[test]
fn any_beginning_of_a_journal_and_only_its_data_are_gone_on_from() {
    let journey = Journey::new(Way::Push);
    let place = &journey.place;
    let len = 8 * MIB + 11;
    place.file(&place.source("data"), len);
    let slow = words!["--bwlimit", "2M", "--span-size", "64K", "--streams", "1"];
    let mut client = journey.start("data", "", &slow);
    client.wait_for_bytes("bytes_durable", 3 * MIB);
    client.kill();
    journey.server.wait_for_sessions(1);
    let part = File::options().read(true).write(true).open(place.root(".data.haul-part")).unwrap();
    let journal = fs::read(place.root(".data.haul-journal")).unwrap();
    let mut random = place.seed.random();
    let records = records_of(&journal);
    assert!(records.len() >= 2, "two checkpoints at least: {records:?}");
    // From the longest to the shortest: what one image says is whole, the next may say too.
    for count in (0..=records.len()).rev() {
        let durable: u64 = records[..count].iter().map(|(_, len, _)| len).sum();
        let torn = random.below(RECORD as u64) as usize;
        let whole = records[..count].last().map_or(HEADER, |(_, _, end)| *end);
        let cut = (whole + torn).min(journal.len());
        fs::write(place.root(".data.haul-journal"), &journal[..cut]).unwrap();
        spoil_all_but(&part, len, &records[..count], &mut random);
        let mut client = journey.start("data", "", &slow);
        let told = |event: &Value| event["event"] == "resume" || event["event"] == "progress";
        let resumed = client.wait_for("resume", told)["bytes"].as_u64().unwrap_or(0);
        client.kill();
        journey.server.wait_for_sessions(1 + records.len() - count + 1);
        assert_eq!(resumed, durable, "{count} records and {torn} bytes");
        assert!(!place.root("data").exists());
    }
    // The last image, without any record, was gone on from; whatever it has now completes.
    journey.completes("data", "", &[]);
}

/// Bytes of a journal's header, as crates/transfer/src/storage/journal.rs writes it.
const HEADER: usize = 128;
const RECORD: usize = 16;
const DIGEST: usize = 16;

/// Runs of bytes that a journal of spans of 64 KiB tells of, and where each record ends.
fn records_of(journal: &[u8]) -> Vec<(u64, u64, usize)> {
    let number = |at: usize| u32::from_le_bytes(journal[at..at + 4].try_into().unwrap());
    let (mut records, mut at) = (Vec::new(), HEADER);
    while at + RECORD <= journal.len() {
        let (first, count) = (number(at), number(at + 4));
        // Each has the digests of its spans.
        let spans = count & !(1 << 30);
        assert_ne!(count, spans, "a record without digests");
        at += RECORD + spans as usize * DIGEST;
        records.push((u64::from(first) * SPAN, u64::from(spans) * SPAN, at));
    }
    records
}

/// Writes other bytes wherever the journal promises nothing.
fn spoil_all_but(part: &File, len: u64, kept: &[(u64, u64, usize)], random: &mut Random) {
    let is_kept = |at: u64| kept.iter().any(|(from, len, _)| (*from..from + len).contains(&at));
    for at in (0..len).step_by(SPAN as usize).filter(|at| !is_kept(*at)) {
        let mut bytes = vec![0; SPAN.min(len - at) as usize];
        random.fill(&mut bytes);
        part.write_all_at(&bytes, at).unwrap();
    }
}

/// Space that the file system promised and that is not there, which only the sync of many files
/// tells.
#[test]
fn small_files_on_a_disk_that_fails_at_the_sync_are_failed_or_really_there() {
    // The last one slowly, so that most are synced before the space is over.
    for rate in [None, None, None, Some("25M")] {
        disk_fails_at_the_sync(rate);
    }
}

/// A disk that says by itself that a part of it fails, on xfs and btrfs: a loop device that writes
/// only a part of what it is asked to, as on a tmpfs that is full, calls it written (lo_complete_rq
/// in drivers/block/loop.c, Linux 6.18), and no file system could know.
#[test]
fn small_files_on_a_disk_of_which_a_part_fails_are_failed_or_really_there() {
    for (kind, bad_from) in [(DiskKind::Xfs, 200 * MIB), (DiskKind::Btrfs, 30 * MIB)] {
        for rate in [None, Some("25M")] {
            let mount =
                |place: &Place| Mount::disk(kind, &place.path("root"), &place.path("image"));
            let Some((place, disk)) = mounted(mount) else { return };
            disk.fail_disk_from(bad_from).unwrap();
            fails_at_the_sync(&place, &disk, rate, || {});
        }
    }
}

fn disk_fails_at_the_sync(rate: Option<&str>) {
    let mount = |place: &Place| Mount::tmpfs(&place.path("target"), "16m");
    let Some((place, below)) = mounted(mount) else { return };
    let disk = Mount::ext4(&place.path("root"), &place.target("image"), 96 * MIB).unwrap();
    fails_at_the_sync(&place, &disk, rate, || below.remount("size=200m").unwrap());
}

/// Sends many small files to a disk that has no place for some of them, until `mend` and a new
/// mount.
fn fails_at_the_sync(place: &Place, disk: &Mount, rate: Option<&str>, mend: impl Fn()) {
    let mut server = Server::start(place);
    let mut random = place.seed.random();
    for number in 0..400 {
        let len = 20_000 + random.below(60_000);
        place.file(&place.source(format!("tree/d{}/f{number}", number % 7)), len);
    }
    let words = words!["push", place.source("tree"), server.url("")];
    let mut options = words!["--retry-for", "1s"];
    if let Some(rate) = rate {
        options.extend(words!["--bwlimit", rate]);
    }
    let ran = place.run(&[words.clone(), options].concat());
    assert_ne!(ran.status, 0, "{ran:?}");
    assert_told(&ran);
    server.process.kill();
    // What the disk holds now is all that there is.
    mend();
    disk.mount_again().unwrap();
    let done = told_as_done(&ran.events);
    println!(
        "soak: a disk that fails at the sync: {} files told as done, {} errors",
        done.len(),
        ran.named("error").len()
    );
    assert_kept(&done, &place.path("source"), &place.path("root"));
    assert_nothing_wrong(&place.path("source"), &place.path("root"));
    server.restart(place);
    place.run(&words).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert!(temporaries(&place.path("root")).is_empty());
    drop(server);
}

/// The side whose disk fails in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Source,
    Target,
}

/// Runs a slow transfer of a large file and several small ones, lets `fail` do something in the
/// middle, and takes the fault away. What is told holds one of `told`.
fn breaks_in_the_middle(
    way: Way,
    kind: DiskKind,
    failing: Failing,
    receive_engine: &str,
    fail: impl Fn(&Mount),
    told: &[&str],
) {
    println!("{way:?}, {kind:?}, the {failing:?} fails, by {receive_engine}");
    let on = match (way, failing) {
        (Way::Push, Failing::Target) | (Way::Pull, Failing::Source) => "root",
        (Way::Push, Failing::Source) => "source",
        (Way::Pull, Failing::Target) => "target",
    };
    let mount = |place: &Place| Mount::disk(kind, &place.path(on), &place.path("image"));
    let Some((place, disk)) = mounted(mount) else { return };
    let server = Server::start(&place);
    let mut journey = Journey { place, server, way };
    let len = 32 * MIB + 3;
    journey.place.file(&journey.from("tree/large"), len);
    for number in 0..20 {
        journey.place.file(&journey.from(&format!("tree/z/f{number}")), 5000);
    }
    rustix::fs::syncfs(File::open(journey.from("tree")).unwrap()).unwrap();
    if failing == Failing::Source {
        // A disk that is gone can still be read from the page cache.
        forget(&journey.from("tree/large"), 0..len).unwrap();
    }
    let options = words!["--bwlimit", "4M", "--span-size", "64K", "--retry-for", "1s"];
    let engine = words!["--receive-engine", receive_engine];
    let client = journey.start("tree", "", &[options, engine].concat());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    fail(&disk);
    let ran: Ran = client.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_told(&ran);
    let side = format!("{failing:?}");
    let is_told = |error: &&&Value| {
        let text = error.to_string().to_lowercase();
        let holds = |word: &str| text.contains(&word.to_lowercase());
        holds("large") && holds(&side) && told.iter().any(|why| holds(why))
    };
    assert!(ran.named("error").iter().any(|error| is_told(&error)), "{ran:?}");
    journey.server.process.kill();
    disk.mount_again().unwrap();
    let kept = durable.min(len);
    assert_nothing_wrong(&journey.from("tree"), &journey.to("tree"));
    journey.server.restart(&journey.place);
    let ran = journey.completes("tree", "", &[]);
    assert!(ran.number("resumed_bytes") >= kept, "{kept} were durable: {ran:?}");
}

/// Ways and kinds of disks to try: both ways on ext4, on the others one, by the seed.
fn ways_and_kinds() -> Vec<(Way, DiskKind)> {
    let mut random = Seed::from_env_or_random().random();
    let mut all = vec![(Way::Push, DiskKind::Ext4), (Way::Pull, DiskKind::Ext4)];
    for kind in [DiskKind::Xfs, DiskKind::Btrfs] {
        all.push((*random.one_of(&[Way::Push, Way::Pull]), kind));
    }
    all
}

/// Words of a disk that is gone: btrfs turns read-only as soon as it cannot write something of its
/// own.
const DISK_GONE: [&str; 2] = ["input/output error", "read-only file system"];

#[test]
fn a_target_disk_that_fails_under_io_uring_fails_its_files_and_the_next_run_goes_on() {
    for (way, kind) in ways_and_kinds() {
        let fail = |disk: &Mount| disk.cut_power().unwrap();
        breaks_in_the_middle(way, kind, Failing::Target, "io-uring", fail, &DISK_GONE);
    }
}

#[test]
fn a_source_disk_that_fails_is_named_and_the_next_run_goes_on() {
    for (way, kind) in ways_and_kinds() {
        let fail = |disk: &Mount| disk.cut_power().unwrap();
        breaks_in_the_middle(way, kind, Failing::Source, "auto", fail, &DISK_GONE[..1]);
    }
}

#[test]
fn a_disk_that_turns_read_only_in_the_middle_is_named_and_the_next_run_goes_on() {
    // The others take no such request: they turn read-only when their disk fails.
    let fail = |disk: &Mount| disk.remount("abort").unwrap();
    let told = &["read-only", "input/output error"];
    breaks_in_the_middle(Way::Push, DiskKind::Ext4, Failing::Target, "read-write", fail, told);
}

#[test]
fn inodes_that_run_out_fail_some_files_and_the_next_run_brings_them() {
    let mount = |place: &Place| Mount::tmpfs(&place.path("root"), "64m,nr_inodes=40");
    let Some((place, disk)) = mounted(mount) else { return };
    let server = Server::start(&place);
    let journey = Journey { place, server, way: Way::Push };
    for number in 0..80 {
        journey.place.file(&journey.from(&format!("tree/f{number}")), 3000);
    }
    journey.place.file(&journey.from("tree/large"), MIB);
    let ran = journey.run("tree", "", &words!["--span-size", "64K"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_told(&ran);
    ran.says(&["target", "no space left", "free space"]);
    let done = told_as_done(&ran.events);
    assert!(done.len() >= 20, "those that have room arrive: {ran:?}");
    assert_kept(&done, &journey.place.path("source"), &journey.place.path("root"));
    assert_nothing_wrong(&journey.from("tree"), &journey.to("tree"));
    disk.remount("nr_inodes=0").unwrap();
    journey.completes("tree", "", &[]);
}

/// Fills a file system but for `left_bytes`.
fn fill(path: &Path, left_bytes: u64) {
    let room = rustix::fs::statvfs(path).unwrap();
    let len = (room.f_bavail * room.f_frsize).checked_sub(left_bytes).unwrap();
    let file = File::create(path.join("filler")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len).unwrap();
    rustix::fs::syncfs(&file).unwrap();
}

/// A nearly full disk, for which one file is too large, and the others are too many.
#[test]
fn a_full_disk_refuses_what_does_not_fit_and_the_next_run_brings_it_when_there_is_room() {
    for kind in DiskKind::ALL {
        let mount =
            |place: &Place| Mount::disk_to_fill(kind, &place.path("root"), &place.path("image"));
        let Some((place, disk)) = mounted(mount) else { return };
        fill(disk.path(), 6 * MIB);
        let server = Server::start(&place);
        let journey = Journey { place, server, way: Way::Push };
        journey.place.file(&journey.from("tree/large"), 12 * MIB);
        for number in 0..40 {
            journey.place.file(&journey.from(&format!("tree/m{number}")), 400_000);
        }
        let ran = journey.run("tree", "", &words!["--span-size", "64K"]);
        assert_eq!(ran.status, 1, "{kind:?}: {ran:?}");
        assert_told(&ran);
        for error in ran.named("error") {
            assert!(error.to_string().contains("space"), "{kind:?}: {error}");
        }
        ran.says(&["large", "does not fit", "12582912 bytes of free space"]);
        let done = told_as_done(&ran.events);
        println!("{kind:?}: {} of 41 arrive, {} are refused", done.len(), ran.named("error").len());
        assert!((4..20).contains(&done.len()), "{kind:?}: {ran:?}");
        assert!(ran.number("moved_bytes") < 12 * MIB, "{kind:?}: {ran:?}");
        assert_kept(&done, &journey.place.path("source"), &journey.place.path("root"));
        assert_nothing_wrong(&journey.from("tree"), &journey.to("tree"));
        fs::remove_file(disk.path().join("filler")).unwrap();
        rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
        journey.completes("tree", "", &[]);
    }
}

/// A tree that could never fit, of which a full disk was told file by file, after hours.
#[test]
fn a_tree_that_does_not_fit_is_told_before_its_first_file() {
    for way in [Way::Push, Way::Pull] {
        let target = if way == Way::Push { "root" } else { "target" };
        let mount = |place: &Place| Mount::tmpfs(&place.path(target), "12m");
        let Some((place, _disk)) = mounted(mount) else { return };
        let server = Server::start(&place);
        let journey = Journey { place, server, way };
        for number in 0..20 {
            journey.place.file(&journey.from(&format!("tree/f{number}")), MIB);
        }
        let ran = journey.run("tree", "", &[]);
        assert_eq!(ran.status, 1, "{ran:?}");
        let is_told = |event: &Value| event["from_to"] == "free space";
        let is_file = |event: &Value| {
            event["event"] == "file" && event["path"].as_str().unwrap().starts_with("tree/f")
        };
        let told = ran.events.iter().position(is_told);
        let first = ran.events.iter().position(is_file);
        assert!(told.is_some() && told < first, "{told:?} {first:?}: {ran:?}");
        let told = ran.events.iter().filter(|event| is_told(event));
        assert_eq!(
            told.map(|event| event["event"].as_str()).collect::<Vec<_>>(),
            [Some("fallback")]
        );
        assert_nothing_wrong(&journey.from("tree"), &journey.to("tree"));
    }
}
