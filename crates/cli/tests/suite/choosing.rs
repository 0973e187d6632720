//! Choice of engines and congestion control: made, told (`--explain`), and made again meanwhile.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files,
    far::Far,
    journey::{Journey, WAYS, Way},
    process::{Haul, Ran, behind},
    server::Server,
};
use haul_testkit::{disk_limit::DiskLimit, mount::Mount, page_cache, skip::skip, wan::Path};
use serde_json::Value;
use std::{ops::Range, process::Command, time::Duration};

const MIB: u64 = 1 << 20;

fn explained<'ran>(ran: &'ran Ran, side: &str) -> &'ran Value {
    let all: Vec<_> = ran.named("explained").into_iter().filter(|e| e["side"] == side).collect();
    assert_eq!(all.len(), 1, "{side}: {ran:?}");
    all[0]
}

/// The name of the engine that was chosen.
fn choice(explained: &Value) -> &str {
    let candidates = explained["candidates"].as_array().unwrap();
    let usable = candidates.iter().find(|candidate| candidate["usable"] == true);
    usable.unwrap()["engine"].as_str().unwrap()
}

#[test]
fn explain_says_facts_candidates_and_choice_of_both_sides_and_of_the_path() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("f"), 70 * MIB);
        for dry_run in [true, false] {
            let options = if dry_run { words!["--dry-run"] } else { words![] };
            let words = match way {
                Way::Push => {
                    words!["push", journey.from("f"), journey.server.url("made/deep/")]
                }
                Way::Pull => words!["pull", journey.server.url("f"), journey.to("made/deep/")],
            };
            let words = [words, words!["--explain"], options].concat();
            let ran = journey.place.run(&words);
            let report = ran.ok().clone();
            for side in ["source", "target"] {
                let explained = explained(&ran, side);
                let facts = explained["facts"].to_string();
                assert!(facts.contains("70 MiB") && facts.contains("Linux"), "{facts}");
                let because = explained["because"].to_string();
                assert!(because.contains(choice(explained)), "{because}");
                let at_work = if side == "source" { "send_engine" } else { "receive_engine" };
                if !dry_run {
                    assert_eq!(report[at_work], choice(explained));
                }
            }
            let path = explained(&ran, "path");
            let because = path["because"].to_string();
            assert!(because.contains("round trip") && because.contains("stream"), "{because}");
            let there = journey.to("made").exists();
            assert_eq!(there, !dry_run, "a dry run makes nothing");
        }
        let plain = journey.place.run(&match way {
            Way::Push => words!["push", journey.from("f"), journey.server.url("other")],
            Way::Pull => words!["pull", journey.server.url("f"), journey.to("other")],
        });
        plain.ok();
        assert!(plain.named("explained").is_empty(), "only who asks is told");
    }
}

#[test]
fn an_engine_that_was_asked_for_is_the_choice_and_the_only_candidate_but_the_last_resort() {
    let journey = Journey::new(Way::Push);
    journey.place.file(&journey.from("f"), MIB);
    let words = words![
        "push",
        journey.from("f"),
        journey.server.url(""),
        "--explain",
        "--send-engine",
        "mmap"
    ];
    let ran = journey.place.run(&words);
    ran.ok();
    let source = explained(&ran, "source");
    assert_eq!(choice(source), "mmap");
    assert_eq!(source["candidates"].as_array().unwrap().len(), 2, "{source}");
}

/// Makes the page cache forget a part of a file; false where it keeps it.
fn forget(path: &std::path::Path, part: Range<u64>) -> bool {
    let forgotten = page_cache::forget(path, part);
    if let Err(why) = &forgotten {
        skip("a page cache that forgets", why);
    }
    forgotten.is_ok()
}

/// A file of which the page cache holds the first part alone.
#[test]
fn where_the_page_cache_ends_another_engine_goes_on_and_it_is_said_once() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("f"), 400 * MIB);
        if !forget(&journey.from("f"), 240 * MIB..400 * MIB) {
            return;
        }
        let words = match way {
            Way::Push => words!["push", journey.from("f"), journey.server.url("")],
            Way::Pull => words!["pull", journey.server.url("f"), journey.to("f")],
        };
        let ran = journey.place.run(&[words, words!["--explain"]].concat());
        let report = ran.ok().clone();
        if !explained(&ran, "source")["facts"].to_string().contains("ext4") {
            skip("ext4 below the temporary directory", "another file system");
            return;
        }
        let changes: Vec<_> =
            ran.named("fallback").into_iter().filter(|e| e["side"] == "source").collect();
        assert_eq!(changes.len(), 1, "two streams change, and it is said once: {ran:?}");
        assert_eq!(changes[0]["from_to"], "sendfile -> io-uring");
        let why = changes[0]["why"].as_str().unwrap();
        assert!(why.ends_with("MiB is in the page cache"), "{why}");
        assert_eq!(report["send_engine"], "io-uring+sendfile");
        assert_same_files(&journey.from("f"), &journey.to("f"));
        assert_no_temporaries(&journey.place.path(""));
        // One that was asked for is kept.
        let words = words![
            "push",
            journey.from("f"),
            journey.server.url("null:"),
            "--send-engine",
            "sendfile"
        ];
        if way == Way::Push && forget(&journey.from("f"), 240 * MIB..400 * MIB) {
            let ran = journey.place.run(&words);
            assert_eq!(ran.ok()["send_engine"], "sendfile");
            assert!(ran.named("fallback").is_empty(), "{ran:?}");
        }
    }
}

/// Engines for many files, which are not those for the first.
#[test]
fn many_files_behind_a_small_one_get_engines_of_their_own() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("tree/0"), 3);
        for number in 1..=40 {
            let file = journey.from(&format!("tree/file{number:02}"));
            journey.place.file(&file, 2 * MIB);
            if !forget(&file, 0..2 * MIB) {
                return;
            }
        }
        let words = match way {
            Way::Push => words!["push", journey.from("tree"), journey.server.url("")],
            Way::Pull => words!["pull", journey.server.url("tree"), journey.to("")],
        };
        let ran = journey.place.run(&[words, words!["--explain"]].concat());
        let report = ran.ok().clone();
        for (side, at_work) in [("source", "send_engine"), ("target", "receive_engine")] {
            let told = ran.named("explained").into_iter().filter(|e| e["side"] == side);
            let told: Vec<_> = told.collect();
            let facts: Vec<_> = told.iter().map(|e| e["facts"][0].as_str().unwrap()).collect();
            // A server tells the choice that counts where the first did not last.
            let last = told[told.len() - 1];
            assert!(told.len() <= 2 && facts[0].starts_with(['3', '6']), "{facts:?}");
            assert!(last["facts"][0].as_str().unwrap().starts_with("64 MiB"), "{facts:?}");
            if !facts[0].contains("ext4") {
                return skip("ext4 below the temporary directory", facts[0]);
            }
            let name = choice(last);
            assert_eq!(name, "io-uring", "{last}");
            assert!(report[at_work].as_str().unwrap().contains(name), "{report}");
        }
        for number in [1, 40] {
            let name = format!("tree/file{number:02}");
            assert_same_files(&journey.from(&name), &journey.to(&name));
        }
    }
}

/// The disk of a source that becomes five times slower: the other engines are tried.
#[test]
fn a_disk_that_slows_down_is_tried_with_the_other_engines() {
    const RATE: u64 = 30 * MIB;
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = match Mount::ext4(&disk, &place.path("image"), 700 * MIB) {
        Ok(mount) => mount,
        Err(why) => return skip("root and loop devices", &why),
    };
    place.file(&disk.join("file"), 600 * MIB);
    // Nothing of it is in the page cache afterwards.
    mount.mount_again().unwrap();
    let mut limit = match DiskLimit::of_reads(&disk, RATE) {
        Ok(limit) => limit,
        Err(why) => return skip("root and control groups that limit disks", &why),
    };
    let server = Server::start(&place);
    let words =
        words!["push", disk.join("file"), server.url("null:"), "--json", "--span-size", "1M"];
    let mut client = Haul::start(behind(&limit.words(), place.command(&words)));
    client.wait_for_bytes("bytes_received", 5 * RATE);
    limit.change_to(RATE / 5).unwrap();
    let slowed = client.wait_for("a trial", |event| event["event"] == "fallback");
    let why = slowed["why"].as_str().unwrap();
    assert!(why.starts_with("the disk slowed from") && why.contains("trying direct"), "{slowed}");
    assert_eq!((&slowed["side"], &slowed["from_to"]), (&"source".into(), &"-> direct".into()));
    // Another may or may not be faster; each is tried once.
    let end = |event: &Value| event["why"].as_str().is_some_and(|why| why.contains("MB/s for"));
    client.wait_for("the end of a trial", end);
    client.kill();
}

/// Reno takes each lost segment for a full queue; BBR does not, where it is permitted.
#[test]
fn a_long_path_that_loses_segments_changes_its_congestion_control() {
    let place = Place::new();
    let path = Path::new(Duration::from_millis(40), 400_000_000, 0.002);
    let Some(far) = Far::start(&place, path) else { return };
    let set = ["-qw", "net.ipv4.tcp_congestion_control=reno"];
    let set = far.wan.near(Command::new("sysctl").args(set)).status();
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !set.is_ok_and(|status| status.success()) || !available.unwrap().contains("bbr") {
        return skip("reno and bbr", "one of them is missing");
    }
    place.file(&place.source("f"), 160 * MIB);
    let ran = far.run(&place, &words!["push", place.source("f"), far.url()]);
    ran.ok();
    let changes: Vec<_> =
        ran.named("fallback").into_iter().filter(|e| e["side"] == "path").collect();
    assert_eq!(changes.len(), 1, "{ran:?}");
    assert_eq!(changes[0]["from_to"], "reno -> bbr");
    let why = changes[0]["why"].as_str().unwrap();
    assert!(why.contains("% of what was sent had to be sent again"), "{why}");
    assert_same_files(&place.source("f"), &place.root("f"));
}

/// Within one subnet a slow round trip is a queue's, but not where a tunnel makes the subnet.
#[test]
fn a_long_path_through_a_tunnel_keeps_the_systems_congestion_control() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(Duration::from_millis(10), 400_000_000, 0.0))
    else {
        return;
    };
    let near = |words: &[&str]| {
        far.wan.near(Command::new(words[0]).args(&words[1..])).status().unwrap().success()
    };
    if !near(&["sysctl", "-qw", "net.ipv4.tcp_congestion_control=bbr"]) {
        return skip("bbr", "it is missing");
    }
    assert!(near(&["ip", "address", "add", "10.79.0.1/24", "dev", "wan"]), "a subnet of both");
    place.file(&place.source("f"), 3);
    let ran = far.run(&place, &words!["push", place.source("f"), far.url(), "--explain"]);
    ran.ok();
    let why = explained(&ran, "path")["because"][0].as_str().unwrap();
    assert!(why.ends_with("so the system's congestion control (bbr) stays"), "{why}");
}
