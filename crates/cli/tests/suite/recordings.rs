//! Recordings: files that are sent while they are written, by the real `haul`.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, is_root,
    journey::{WAYS, Way},
    process::{Haul, Ran},
    server::Server,
    temporaries, wait_until,
};
use haul_testkit::{
    faulty_proxy::{Arrival, Fault, FaultyProxy, Kind},
    seed::Random,
    skip::skip,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const SPAN: u64 = 64 << 10;
/// Idle time longer than any test: such a file ends when its writer says so.
const NEVER_IDLE: &str = "10m";

/// A file that is being written, and where it goes.
struct Recording {
    server: Server,
    way: Way,
    /// The writer of the file; `None` once it has closed it.
    writer: Option<File>,
    random: Random,
    len_bytes: u64,
    proxy: Option<FaultyProxy>,
    place: Place,
}

impl Recording {
    fn new(way: Way) -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        let random = place.seed.random();
        let mut this = Self { place, server, way, writer: None, random, len_bytes: 0, proxy: None };
        this.writer = Some(File::create(this.source()).unwrap());
        this
    }

    fn by_way_of(mut self, plan: impl FnMut(Arrival) -> Fault + Send + 'static) -> Self {
        self.proxy = Some(FaultyProxy::start(self.server.address(), plan).unwrap());
        self
    }

    fn source(&self) -> PathBuf {
        match self.way {
            Way::Push => self.place.source("scan"),
            Way::Pull => self.place.root("scan"),
        }
    }

    fn target_directory(&self) -> PathBuf {
        self.place.path(if self.way == Way::Push { "root" } else { "target" })
    }

    fn target(&self) -> PathBuf {
        self.target_directory().join("scan")
    }

    fn part(&self) -> PathBuf {
        self.target_directory().join(".scan.haul-part")
    }

    /// Writes this many bytes more.
    fn write(&mut self, len_bytes: u64) {
        let mut bytes = vec![0; usize::try_from(len_bytes).unwrap()];
        self.random.fill(&mut bytes);
        self.writer.as_mut().unwrap().write_all(&bytes).unwrap();
        self.len_bytes += len_bytes;
    }

    /// Writes over what was written before, at the beginning.
    fn rewrite_header(&mut self) {
        let mut bytes = vec![0; 4096];
        self.random.fill(&mut bytes);
        self.writer.as_ref().unwrap().write_all_at(&bytes, 0).unwrap();
    }

    fn close(&mut self) {
        self.writer = None;
    }

    fn words(&self, options: &[OsString]) -> Vec<OsString> {
        let url = |path: &str| match &self.proxy {
            Some(proxy) => self.server.url_by(proxy.address(), path),
            None => self.server.url(path),
        };
        let words = match self.way {
            Way::Push => words!["push", self.source(), url("")],
            Way::Pull => words!["pull", url("scan"), self.target_directory()],
        };
        let follow = words!["--follow", "--span-size", "64K"];
        [words, follow, options.to_vec()].concat()
    }

    fn start_with(&self, options: &[OsString]) -> Haul {
        self.place.start(&self.words(options))
    }

    fn start(&self) -> Haul {
        self.start_with(&words!["--idle", NEVER_IDLE])
    }

    /// Waits until every full span that was written is durable at the target.
    #[track_caller]
    fn wait_until_durable(&self, haul: &Haul) {
        haul.wait_for_bytes("bytes_durable", self.len_bytes / SPAN * SPAN);
        assert!(!self.target().exists(), "it has its name before it is complete");
        assert!(self.part().exists());
    }

    #[track_caller]
    fn assert_arrived(&self) {
        assert_same_files(&self.source(), &self.target());
        assert_no_temporaries(&self.target_directory());
    }

    /// Checks that the recording arrived as one file, and that what is counted of it fits.
    #[track_caller]
    fn assert_done(&self, ran: &Ran) {
        let report = ran.ok();
        assert_eq!(report["files"]["done"], 1, "{ran:?}");
        assert_eq!(report["bytes"], self.len_bytes, "{ran:?}");
        let files = ran.named("file");
        assert_eq!(files.len(), 1, "a round is no file: {ran:?}");
        assert_eq!((&files[0]["path"], &files[0]["status"]), (&"scan".into(), &"done".into()));
        self.assert_arrived();
    }
}

#[test]
fn a_file_arrives_as_it_grows_and_has_its_name_when_its_writer_closes_it() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(3 * SPAN);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        for len_bytes in [SPAN, 20 * SPAN + 77, 5000, 7 * SPAN] {
            recording.write(len_bytes);
            recording.wait_until_durable(&haul);
            assert!(haul.events().iter().all(|event| event["event"] != "file"));
        }
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert_eq!(
            (ran.number("moved_bytes"), ran.number("resumed_bytes")),
            (recording.len_bytes, 0)
        );
    }
}

#[test]
fn another_name_ends_a_file_and_what_its_writer_wrote_before_arrives() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(2 * SPAN + 9);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        recording.write(3 * SPAN);
        let elsewhere = recording.source().with_file_name("complete");
        fs::rename(recording.source(), &elsewhere).unwrap();
        let ran = haul.finish();
        assert_eq!(ran.ok()["files"]["done"], 1, "{ran:?}");
        assert_same_files(&elsewhere, &recording.target());
        assert_no_temporaries(&recording.target_directory());
    }
}

#[test]
fn a_file_that_nobody_writes_to_any_more_is_complete() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(4 * SPAN + 1);
        // Its writer keeps it open.
        let ran = recording.start_with(&words!["--idle", "1s"]).finish();
        recording.assert_done(&ran);
        // The same again finds it there.
        let again = recording.start_with(&words!["--idle", "1s"]).finish();
        assert_eq!(again.ok()["files"]["skipped"], 1, "{again:?}");
        recording.assert_arrived();
    }
}

/// A header that is written last, as that of WAV and MP4 with its lengths.
#[test]
fn a_header_that_is_rewritten_at_the_end_arrives_as_it_is() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(6 * SPAN + 100);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        recording.rewrite_header();
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert_eq!(ran.number("resumed_bytes"), 0, "{ran:?}");
    }
}

/// Files of which the user said that no byte changes: nothing is read again.
#[test]
fn with_append_only_nothing_is_read_again_at_the_end() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(6 * SPAN + 100);
        let header = fs::read(recording.source()).unwrap()[..4096].to_vec();
        let haul = recording.start_with(&words!["--idle", NEVER_IDLE, "--append-only"]);
        recording.wait_until_durable(&haul);
        recording.rewrite_header();
        recording.write(10);
        recording.close();
        let ran = haul.finish();
        assert_eq!(ran.ok()["bytes"], recording.len_bytes, "{ran:?}");
        let (source, target) =
            (fs::read(recording.source()).unwrap(), fs::read(recording.target()).unwrap());
        assert!(target[..4096] == header[..], "it was read again");
        assert!(source[4096..] == target[4096..]);
    }
}

#[test]
fn bytes_that_fill_no_span_are_durable_soon_too() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(SPAN + 10);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        for _ in 0..3 {
            recording.write(1000);
            haul.wait_for_bytes("bytes_durable", recording.len_bytes);
        }
        // Of the part that is no full span nothing is counted twice.
        assert_eq!(haul.progress("bytes_received"), recording.len_bytes);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert_eq!(ran.number("moved_bytes"), recording.len_bytes);
    }
}

#[test]
fn the_lag_is_told_while_it_is_written_and_is_nothing_at_the_end() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(40 * SPAN);
        // So slow that there is a lag.
        let haul = recording.start_with(&words!["--idle", NEVER_IDLE, "--bwlimit", "1M"]);
        let behind = |event: &serde_json::Value| {
            event["event"] == "lag" && event["bytes"].as_u64() > Some(0)
        };
        let lag = haul.wait_for("lag", behind);
        assert_eq!(lag["path"], "scan");
        assert!(lag["seconds"].as_f64() >= Some(0.0), "{lag}");
        recording.wait_until_durable(&haul);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        let lags = ran.named("lag");
        assert_eq!(lags.last().unwrap()["bytes"], 0, "{ran:?}");
        assert!(ran.report()["largest_lag"]["bytes"].as_u64() > Some(0), "{ran:?}");
    }
}

/// The lag of a new session, which first was the whole file, written just now; and what an earlier
/// session had brought was counted twice.
#[test]
fn after_an_outage_the_lag_is_what_is_not_durable_and_as_old_as_the_outage() {
    let mut recording = Recording::new(Way::Push);
    recording.write(40 * SPAN);
    let haul = recording.start_with(&words!["--idle", NEVER_IDLE, "--bwlimit", "1M"]);
    recording.wait_until_durable(&haul);
    recording.server.process.kill();
    recording.write(30 * SPAN);
    thread::sleep(Duration::from_secs(3));
    recording.server.restart(&recording.place);
    recording.wait_until_durable(&haul);
    recording.close();
    let ran = haul.finish();
    recording.assert_done(&ran);
    let back = ran.events.iter().position(|event| event["event"] == "resume").unwrap();
    let lags = ran.events[back..].iter().filter(|event| event["event"] == "lag");
    let behind: Vec<_> = lags.filter(|lag| lag["bytes"].as_u64() > Some(0)).collect();
    let first = behind.first().unwrap();
    assert!(first["bytes"].as_u64() <= Some(31 * SPAN), "{first}: {ran:?}");
    assert!(first["bytes"].as_u64() >= Some(4 * SPAN), "{first}: {ran:?}");
    assert!(first["seconds"].as_f64() >= Some(2.5), "{first}: {ran:?}");
}

#[test]
fn a_client_that_is_killed_sends_nothing_durable_again() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(20 * SPAN + 500);
        let mut haul = recording.start();
        recording.wait_until_durable(&haul);
        haul.kill();
        recording.server.wait_for_sessions(1);
        recording.write(5 * SPAN);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert_eq!(ran.number("resumed_bytes"), 20 * SPAN, "{ran:?}");
        assert_eq!(ran.number("moved_bytes"), recording.len_bytes - 20 * SPAN, "{ran:?}");
    }
}

#[test]
fn a_server_that_is_killed_comes_back_and_the_file_goes_on() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(20 * SPAN + 500);
        let haul = recording.start_with(&words!["--idle", NEVER_IDLE, "--retry-for", "100s"]);
        recording.wait_until_durable(&haul);
        recording.server.process.kill();
        recording.write(3 * SPAN);
        recording.server.restart(&recording.place);
        recording.wait_until_durable(&haul);
        recording.write(SPAN);
        recording.wait_until_durable(&haul);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert!(ran.number("reconnections") >= 1, "{ran:?}");
        assert!(ran.gone_on_from() >= 20 * SPAN, "it did not begin anew: {ran:?}");
        assert_eq!(ran.number("moved_bytes"), recording.len_bytes, "all by this run: {ran:?}");
        assert_eq!(ran.number("resumed_bytes"), 0, "nothing was there before it: {ran:?}");
    }
}

#[test]
fn ctrl_c_leaves_what_resumes() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(9 * SPAN + 5);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        haul.signal(rustix::process::Signal::INT);
        let ran = haul.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["interrupted", "same command"]);
        assert!(!recording.target().exists());
        recording.close();
        let ran = recording.start_with(&words!["--idle", "1s"]).finish();
        recording.assert_done(&ran);
        assert_eq!(ran.number("resumed_bytes"), 9 * SPAN, "{ran:?}");
    }
}

#[test]
fn a_network_that_breaks_in_the_middle_does_no_harm() {
    for way in WAYS {
        let mut recording = Recording::new(way).by_way_of(|arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0 | 1 } => Fault::ResetAfter(5 * SPAN),
            Arrival { kind: Kind::Control, number: 0 } => Fault::ResetAfter(7000),
            _ => Fault::None,
        });
        recording.write(8 * SPAN);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        // Until the control connection has broken too.
        let mut rounds = 0;
        while haul.look_for(Duration::ZERO, |event| event["event"] == "resume").is_none() {
            recording.write(SPAN + 1);
            recording.wait_until_durable(&haul);
            rounds += 1;
            assert!(rounds < 1000, "nothing broke");
        }
        recording.write(4 * SPAN);
        recording.wait_until_durable(&haul);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
        assert!(ran.number("reconnections") >= 2, "{ran:?}");
    }
}

#[test]
fn a_file_that_becomes_shorter_begins_anew() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(9 * SPAN + 5);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        let path = recording.source();
        // What the writer writes next stands where it was, behind a hole, if it is not sought back.
        let writer = recording.writer.as_mut().unwrap();
        writer.set_len(0).unwrap();
        std::io::Seek::rewind(writer).unwrap();
        recording.len_bytes = 0;
        recording.write(2 * SPAN + 1);
        let part = recording.part();
        let same_part = || {
            let (source, part) = (fs::read(&path).unwrap(), fs::read(&part).unwrap_or_default());
            source == part
        };
        wait_until("taken over", same_part);
        recording.write(SPAN);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
    }
}

#[test]
fn a_file_that_is_removed_is_an_error_that_names_it() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        recording.write(3 * SPAN);
        let haul = recording.start();
        recording.wait_until_durable(&haul);
        fs::remove_file(recording.source()).unwrap();
        recording.close();
        let ran = haul.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["scan", "source", "removed"]);
        let failed = |file: &&&serde_json::Value| file["status"] == "failed";
        assert_eq!(ran.named("file").iter().filter(failed).count(), 1, "{ran:?}");
        assert!(!recording.target().exists());
    }
}

#[test]
fn more_files_than_either_side_has_under_way_at_a_time_arrive() {
    for way in WAYS {
        let place = Place::new();
        let server = Server::start(&place);
        let root = place.path(if way == Way::Push { "source" } else { "root" });
        let tree = root.join("run");
        (0..150).for_each(|number| place.file(&tree.join(number.to_string()), 1 + number));
        let options = words!["--follow", "--idle", "1s"];
        let (ran, target) = match way {
            Way::Push => {
                let words = [words![tree, server.url("")], options].concat();
                (place.push(&words), place.root("run"))
            }
            Way::Pull => {
                let words = [words![server.url("run"), place.path("target")], options].concat();
                (place.pull(&words), place.target("run"))
            }
        };
        assert_eq!(ran.ok()["files"]["done"], 150, "{ran:?}");
        crate::harness::assert_same_trees(&tree, &target);
    }
}

#[test]
fn what_has_the_name_stays_until_the_new_file_is_complete() {
    for way in WAYS {
        let mut recording = Recording::new(way);
        fs::write(recording.target(), b"old").unwrap();
        recording.write(3 * SPAN + 8);
        let haul = recording.start();
        haul.wait_for_bytes("bytes_durable", 3 * SPAN);
        assert_eq!(fs::read(recording.target()).unwrap(), b"old");
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
    }
}

#[test]
fn small_and_empty_files_and_trees_are_followed_too() {
    let place = Place::new();
    let server = Server::start(&place);
    let tree = place.source("run");
    for (name, len_bytes) in
        [("empty", 0), ("a/one", 1), ("a/small", 5000), ("b/c/large", 3 * SPAN)]
    {
        place.file(&tree.join(name), len_bytes);
    }
    let ran = place.push(&words![tree, server.url(""), "--follow", "--idle", "1s"]);
    assert_eq!(ran.ok()["files"]["failed"], 0);
    crate::harness::assert_same_trees(&tree, &place.root("run"));
    assert_no_temporaries(&place.path("root"));
    // And back.
    let words = words![server.url("run"), place.path("target"), "--follow", "--idle", "1s"];
    place.pull(&words).ok();
    crate::harness::assert_same_trees(&tree, &place.target("run"));
    // Where nothing is kept nothing comes twice.
    let null = server.url("null:");
    let words = words![tree.join("b/c/large"), null, "--follow", "--idle", "1s"];
    let ran = place.push(&words);
    assert_eq!(ran.ok()["bytes"], 3 * SPAN);
    place.push(&words!["zero:1M", server.url("zeros"), "--follow"]).ok();
    assert_eq!(fs::metadata(place.root("zeros")).unwrap().len(), 1 << 20);
}

#[test]
fn a_small_file_that_grows_arrives_whole_and_with_its_mode_and_time() {
    // A change of the mode alone, as its last, changes neither size nor time.
    for (way, bytes_after) in WAYS.into_iter().flat_map(|way| [(way, 100), (way, 0)]) {
        let mut recording = Recording::new(way);
        recording.write(100);
        let haul = recording.start();
        haul.wait_for_bytes("bytes_durable", 100);
        recording.write(100);
        haul.wait_for_bytes("bytes_durable", 200);
        fs::set_permissions(
            recording.source(),
            std::os::unix::fs::PermissionsExt::from_mode(0o440),
        )
        .unwrap();
        recording.write(bytes_after);
        recording.close();
        let ran = haul.finish();
        recording.assert_done(&ran);
    }
}

#[test]
fn owner_and_extended_attributes_that_changed_meanwhile_arrive_too() {
    if !is_root() {
        return skip("root, to give files away", "another user");
    }
    for way in WAYS {
        let mut recording = Recording::new(way);
        let (name, flags) = ("user.telescope", rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(recording.source(), name, b"before", flags).unwrap();
        recording.write(2 * SPAN);
        let haul = recording.start_with(&words!["--idle", NEVER_IDLE, "--preserve", "all"]);
        recording.wait_until_durable(&haul);
        rustix::fs::setxattr(recording.source(), name, b"Onsala", flags).unwrap();
        std::os::unix::fs::chown(recording.source(), Some(4321), Some(1234)).unwrap();
        recording.close();
        recording.assert_done(&haul.finish());
        let there = fs::metadata(recording.target()).unwrap();
        assert_eq!((there.uid(), there.gid()), (4321, 1234), "{way:?}");
        let mut value = [0; 16];
        let len = rustix::fs::lgetxattr(recording.target(), name, &mut value).unwrap();
        assert_eq!(&value[..len], b"Onsala", "{way:?}");
    }
}

#[test]
fn a_temporary_that_somebody_damaged_is_found_out_at_the_end() {
    let mut recording = Recording::new(Way::Push);
    recording.write(5 * SPAN);
    let haul = recording.start();
    recording.wait_until_durable(&haul);
    let part = File::options().write(true).open(recording.part()).unwrap();
    part.write_all_at(b"damaged", 3 * SPAN).unwrap();
    recording.close();
    let ran = haul.finish();
    recording.assert_done(&ran);
}

#[test]
fn options_that_make_no_sense_with_follow_are_refused() {
    let place = Place::new();
    let url = "haul://localhost/";
    for words in [
        words!["push", "x", url, "--append-only"],
        words!["push", "x", url, "--follow", "--checksum-compare"],
        words!["push", "x", url, "--follow", "--move"],
        words!["push", "x", url, "--follow", "--idle", "0s"],
    ] {
        let ran = place.run(&words);
        assert_eq!(ran.status, 2, "{ran:?}");
    }
    let ran = place.run(&words!["push", "x", url, "--follow", "--move", "--delete"]);
    ran.says(&["--follow", "--move"]);
}

/// Writes random sizes at random moments, with kills of either side in between; many in the long
/// form.
fn killed_at_random_moments(way: Way) {
    let mut recording = Recording::new(way);
    let mut random = recording.place.seed.random();
    recording.write(SPAN + 1);
    let options = words!["--idle", NEVER_IDLE, "--retry-for", "100s"];
    let mut haul = recording.start_with(&options);
    let kills = if crate::harness::is_long() { 150 } else { 6 };
    for _ in 0..kills {
        for _ in 0..5 {
            recording.write(random.below(4 * SPAN));
            thread::sleep(Duration::from_millis(random.below(150)));
        }
        if random.below(2) == 0 {
            recording.server.restart(&recording.place);
        } else {
            haul.kill();
            haul = recording.start_with(&options);
        }
        assert!(!recording.target().exists());
    }
    recording.wait_until_durable(&haul);
    recording.write(12_345);
    recording.close();
    let ran = haul.finish();
    recording.assert_done(&ran);
    println!("soak: {way:?} of a file that grew to {} bytes: {kills} kills", recording.len_bytes);
}

#[test]
fn a_push_killed_at_random_moments_arrives() {
    killed_at_random_moments(Way::Push);
}

#[test]
fn a_pull_killed_at_random_moments_arrives() {
    killed_at_random_moments(Way::Pull);
}

#[test]
fn two_recordings_at_once_arrive_side_by_side() {
    let place = Place::new();
    let server = Server::start(&place);
    let names = ["one", "two", "three"];
    let mut writers: Vec<File> =
        names.iter().map(|name| File::create(place.source(name)).unwrap()).collect();
    let mut random = place.seed.random();
    let mut write = |writers: &mut [File]| {
        for writer in writers {
            let mut bytes = vec![0; 5 * SPAN as usize];
            random.fill(&mut bytes);
            writer.write_all(&bytes).unwrap();
        }
    };
    write(&mut writers);
    let sources = names.map(|name| place.source(name).into_os_string());
    let options = words![server.url(""), "--follow", "--idle", NEVER_IDLE, "--span-size", "64K"];
    let words = [words!["push"], sources.to_vec(), options].concat();
    let haul = place.start(&words);
    haul.wait_for_bytes("bytes_durable", 15 * SPAN);
    write(&mut writers);
    haul.wait_for_bytes("bytes_durable", 30 * SPAN);
    assert_eq!(temporaries(&place.path("root")).len(), 6);
    drop(writers);
    let ran = haul.finish();
    assert_eq!(ran.ok()["files"]["done"], 3, "{ran:?}");
    for name in names {
        assert_same_files(&place.source(name), &place.root(Path::new(name)));
    }
    assert_no_temporaries(&place.path("root"));
}
