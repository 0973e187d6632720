//! File systems that do not keep the times they are given: silently not set, or rounded.

use super::{Journey, MIB, WAYS, Way, mixed_tree};
use crate::harness::{Place, process::Ran, server::Server};
use haul_testkit::{mount::Mount, skip::skip, tree};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A time long ago, and no whole second: what a file gets when it is made cannot be taken for it.
const LONG_AGO: Timespec = Timespec { tv_sec: 987_654_321, tv_nsec: 123_456_789 };

/// Gives a tree, with its root, times of long ago.
fn age(root: &Path) -> Vec<PathBuf> {
    let mut names = tree::names(root).unwrap();
    names.push(PathBuf::new());
    names.sort();
    let times = Timestamps { last_access: LONG_AGO, last_modification: LONG_AGO };
    for name in names.iter().rev() {
        utimensat(CWD, root.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    names
}

fn fallbacks_about_times(events: &[Value]) -> Vec<&Value> {
    let is_meant = |event: &&Value| {
        event["event"] == "fallback" && event["from_to"].as_str().unwrap().contains("times")
    };
    events.iter().filter(is_meant).collect()
}

/// The file system bindfs, FUSE by libfuse 2: of a time that comes alone it says that it is set,
/// and everything was sent again by each run.
#[test]
fn times_arrive_on_a_file_system_that_ignores_one_alone_and_the_next_run_moves_nothing() {
    for way in WAYS {
        let place = Place::new();
        let target = if way == Way::Push { "root" } else { "target" };
        fs::create_dir(place.path("below")).unwrap();
        let _bindfs = match Mount::bindfs(&place.path("below"), &place.path(target)) {
            Ok(mount) => mount,
            Err(why) => return skip("root, bindfs and a kernel with FUSE", &why),
        };
        let server = Server::start(&place);
        let journey = Journey { place, server, way };
        mixed_tree(&journey.place, &journey.from("tree"));
        journey.place.file(&journey.from("tree/larger"), 3 * MIB);
        let names = age(&journey.from("tree"));
        let ran = journey.completes("tree", "", &words!["--span-size", "64K"]);
        assert_eq!(fallbacks_about_times(&ran.events), [&Value::Null; 0]);
        for name in &names {
            let there = journey.to("tree").join(name).symlink_metadata().unwrap();
            let time = (there.mtime(), there.mtime_nsec());
            assert_eq!(time, (LONG_AGO.tv_sec, LONG_AGO.tv_nsec), "{}", name.display());
        }
        let again = journey.completes("tree", "", &[]);
        assert_eq!(again.number("moved_bytes"), 0, "{way:?}: {again:?}");
    }
}

/// File systems that round times: inodes of 128 bytes hold whole seconds, as those of an old ext3
/// do; FAT holds every second one.
#[test]
fn a_file_system_that_rounds_times_is_told_once_on_both_sides() {
    for way in WAYS {
        let place = Place::new();
        let target = if way == Way::Push { "root" } else { "target" };
        let mount =
            Mount::ext2_of_whole_seconds(&place.path(target), &place.path("image"), 8 * MIB);
        let _rounding = match mount {
            Ok(mount) => mount,
            Err(why) => return skip("a user who may mount (root)", &why),
        };
        let server = Server::start(&place);
        let journey = Journey { place, server, way };
        for name in ["a", "b", "c/d"] {
            journey.place.file(&journey.from("tree").join(name), 100_000);
        }
        age(&journey.from("tree"));
        let ran = journey.run("tree", "", &words!["--span-size", "64K"]);
        ran.ok();
        journey.server.wait_for_sessions(1);
        for events in [&ran.events, &journey.server.process.events()] {
            let told = fallbacks_about_times(events);
            assert_eq!(told.len(), 1, "{events:?}");
            let why = told[0]["why"].as_str().unwrap();
            for words in ["987654321.123456789", "987654321.000000000", "--checksum-compare"] {
                assert!(why.contains(words), "{why}");
            }
        }
        // It says what happens, and that is so.
        let moved = |ran: Ran| {
            ran.ok();
            ran.number("moved_bytes")
        };
        assert_eq!(moved(journey.run("tree", "", &[])), 300_000);
        assert_eq!(moved(journey.run("tree", "", &words!["--checksum-compare"])), 0);
    }
}
