//! A second look where the first may deceive, at sources and at temporaries.
//!
//! Sources may have been rewritten and their time set back, and a crash of their host may have
//! spoilt temporaries.

use crate::harness::{
    assert_no_temporaries, assert_same_files,
    crashed::{edit_journal, journal_of_an_earlier_boot, spoil},
    journey::{Journey, WAYS, Way},
    process::{Haul, Ran},
};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

const MIB: u64 = 1 << 20;
const SPAN: u64 = 64 << 10;

/// Options that make a transfer so slow that something can be done in the middle.
fn slow() -> Vec<OsString> {
    words!["--bwlimit", "3M", "--span-size", "64K", "--streams", "2", "--retry-for", "1s"]
}

/// Options for one span, larger than a socket's buffer, and looked at before its trailer leaves.
fn in_one_span() -> Vec<OsString> {
    words!["--bwlimit", "24M", "--span-size", "64M"]
}

impl Journey {
    fn data_words(&self, options: &[OsString]) -> Vec<OsString> {
        let words = match self.way {
            Way::Push => words!["push", self.from("data"), self.server.url("")],
            Way::Pull => words!["pull", self.server.url("data"), self.place.target("")],
        };
        [&words, options].concat()
    }

    fn begin(&self, options: &[OsString]) -> Haul {
        self.place.start(&self.data_words(options))
    }

    fn run_data(&self, options: &[OsString]) -> Ran {
        self.place.run(&self.data_words(options))
    }

    /// Checks that the next run brings all of the file.
    #[track_caller]
    fn arrives(&self, options: &[OsString]) -> Ran {
        let ran = self.run_data(options);
        ran.ok();
        assert_same_files(&self.from("data"), &self.to("data"));
        assert_no_temporaries(&self.to(""));
        ran
    }

    /// Brings a part of the file, and ends by a kill; returns the durable bytes.
    fn is_killed_midway(&self) -> u64 {
        let mut client = self.begin(&slow());
        let durable = client.wait_for_bytes("bytes_durable", 2 * MIB);
        client.kill();
        self.server.wait_for_sessions(1);
        durable
    }
}

/// Writes other bytes of the same length, and sets the modification time that was there before.
fn rewrite(path: &Path, offset: u64) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[b'x'; 1000], offset).unwrap();
    set_modified(&file, modified);
}

fn set_modified(file: &File, modified: SystemTime) {
    file.set_modified(modified).unwrap();
}

#[test]
fn a_source_that_was_rewritten_and_set_back_is_an_error_and_arrives_by_the_next_run() {
    // Of many spans, and of one that is sent by itself.
    for (len, options) in [(12 * MIB, slow()), (48 * MIB, in_one_span())] {
        for way in WAYS {
            let journey = Journey::new(way);
            journey.place.file(&journey.from("data"), len);
            let client = journey.begin(&options);
            client.wait_for_bytes("bytes_received", MIB);
            // What was sent already; of the file of many spans what was not, too.
            rewrite(&journey.from("data"), 0);
            if options == slow() {
                rewrite(&journey.from("data"), len - 2000);
            }
            let ran = client.finish();
            assert_eq!(ran.status, 1, "{way:?}: {ran:?}");
            ran.says(&["changed while it was being moved", "set back"]);
            assert!(!journey.to("data").exists(), "{way:?}: a mixture got the name");
            journey.arrives(&[]);
        }
    }
}

#[test]
fn another_mode_or_name_of_a_source_is_no_change_of_its_bytes() {
    for (len, options) in [(8 * MIB, slow()), (48 * MIB, in_one_span())] {
        for way in WAYS {
            let journey = Journey::new(way);
            journey.place.file(&journey.from("data"), len);
            let client = journey.begin(&options);
            client.wait_for_bytes("bytes_received", MIB);
            fs::set_permissions(journey.from("data"), Permissions::from_mode(0o640)).unwrap();
            fs::hard_link(journey.from("data"), journey.place.path("another-name")).unwrap();
            let ran = client.finish();
            ran.ok();
            let bytes = |path| fs::read(path).unwrap();
            assert!(bytes(journey.from("data")) == bytes(journey.to("data")), "{way:?}");
            if way == Way::Push {
                let told = ran.named("rereading");
                assert!(told.len() == 1 && told[0]["path"] == "data", "{ran:?}");
            }
        }
    }
}

/// A changed inode without a digest: there is nothing to compare by.
#[test]
fn without_a_digest_a_changed_inode_is_an_error() {
    let journey = Journey::new(Way::Push);
    journey.place.file(&journey.from("data"), 8 * MIB);
    let none = words!["--protection", "clear", "--digest", "none"];
    let client = journey.begin(&[slow(), none].concat());
    client.wait_for_bytes("bytes_received", MIB);
    fs::set_permissions(journey.from("data"), Permissions::from_mode(0o640)).unwrap();
    let ran = client.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["without a digest"]);
}

#[test]
fn what_a_killed_run_sent_of_a_source_that_was_set_back_since_is_not_gone_on_from() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("data"), 12 * MIB);
        journey.is_killed_midway();
        rewrite(&journey.from("data"), 100);
        let ran = journey.run_data(&[]);
        assert_eq!(ran.status, 1, "{way:?}: {ran:?}");
        ran.says(&["an earlier run", "set back"]);
        assert!(!journey.to("data").exists(), "{way:?}: a mixture got the name");
        let ran = journey.arrives(&[]);
        assert_eq!(ran.number("resumed_bytes"), 0, "nothing of it is believed: {ran:?}");
    }
}

#[test]
fn a_killed_run_is_gone_on_from_though_mode_and_links_of_its_source_have_changed() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("data"), 12 * MIB);
        let durable = journey.is_killed_midway();
        fs::set_permissions(journey.from("data"), Permissions::from_mode(0o600)).unwrap();
        let ran = journey.arrives(&[]);
        assert!(ran.number("resumed_bytes") >= durable, "{way:?}, {durable} durable: {ran:?}");
        assert!(ran.report()["recheck"].is_null(), "nobody changed the temporary: {ran:?}");
    }
}

#[test]
fn after_a_crash_of_the_host_what_is_durable_is_read_back_and_what_differs_comes_again() {
    for way in WAYS {
        for (crash, options) in [(true, words![]), (false, words!["--recheck"])] {
            let journey = Journey::new(way);
            journey.place.file(&journey.from("data"), 12 * MIB + 5);
            let durable = journey.is_killed_midway();
            spoil(&journey.to(".data.haul-part"), &[1, 7]);
            if crash {
                journal_of_an_earlier_boot(&journey.to(".data.haul-journal"));
            }
            let ran = journey.arrives(&options);
            let recheck = &ran.report()["recheck"];
            assert_eq!(recheck["lost_bytes"], 2 * SPAN, "{way:?} {crash}: {ran:?}");
            assert!(recheck["bytes"].as_u64().unwrap() >= durable, "{recheck}");
            let resumed = ran.number("resumed_bytes");
            assert!(resumed >= durable - 2 * SPAN && resumed < 12 * MIB, "{resumed}: {ran:?}");
        }
    }
}

/// A temporary that a program of somebody else changed, or a disk that was repaired: no crash of
/// the host tells of it.
#[test]
fn a_temporary_that_was_changed_after_its_journal_is_read_back_and_what_differs_comes_again() {
    for way in WAYS {
        let journey = Journey::new(way);
        journey.place.file(&journey.from("data"), 12 * MIB + 5);
        let durable = journey.is_killed_midway();
        // Longer than a run that was killed may have written behind its last record.
        thread::sleep(Duration::from_secs(4));
        spoil(&journey.to(".data.haul-part"), &[2]);
        let ran = journey.arrives(&[]);
        let recheck = &ran.report()["recheck"];
        assert_eq!(recheck["lost_bytes"], SPAN, "{way:?}: {ran:?}");
        assert!(recheck["bytes"].as_u64().unwrap() >= durable, "{recheck}");
        let told = |event: &&serde_json::Value| format!("{event}").contains("was changed since");
        assert_eq!(ran.named("resume").into_iter().any(|event| told(&event)), way == Way::Pull);
    }
}

/// A device with another number, as a btrfs has at each mount, and any disk at another boot.
#[test]
fn where_a_device_has_another_number_a_killed_run_is_gone_on_from() {
    let zero_ctime = |header: &mut [u8]| header[96..108].fill(0);
    for (what, is_target, loses_ctime) in [
        ("the target's", true, false),
        ("the source's", false, false),
        ("both unknown", false, true),
    ] {
        let journey = Journey::new(Way::Push);
        journey.place.file(&journey.from("data"), 12 * MIB + 5);
        let durable = journey.is_killed_midway();
        edit_journal(&journey.to(".data.haul-journal"), |header| {
            header[if is_target { 56 } else { 40 }] ^= 1;
            if loses_ctime {
                zero_ctime(header);
            }
        });
        if is_target {
            spoil(&journey.to(".data.haul-part"), &[4]);
        }
        let ran = journey.arrives(&[]);
        let recheck = &ran.report()["recheck"];
        assert_eq!(recheck.is_null(), !is_target, "{what}: {ran:?}");
        if is_target {
            assert_eq!(recheck["lost_bytes"], SPAN, "{what}: {ran:?}");
        }
        let resumed = ran.number("resumed_bytes");
        assert_eq!(resumed >= durable - SPAN, !loses_ctime, "{what}: {resumed} of {durable}");
    }
}

/// A second kill finds what the run before it has read back, and believes it.
#[test]
fn what_was_read_back_once_is_believed_by_later_runs_of_the_same_boot() {
    let journey = Journey::new(Way::Push);
    journey.place.file(&journey.from("data"), 24 * MIB);
    let durable = journey.is_killed_midway();
    spoil(&journey.to(".data.haul-part"), &[3]);
    journal_of_an_earlier_boot(&journey.to(".data.haul-journal"));
    let mut client = journey.begin(&slow());
    client.wait_for_bytes("bytes_durable", durable + 2 * MIB);
    client.kill();
    journey.server.wait_for_sessions(2);
    let ran = journey.arrives(&[]);
    assert!(ran.report()["recheck"].is_null(), "{ran:?}");
    assert!(ran.number("resumed_bytes") >= durable + MIB, "{ran:?}");
}

#[test]
fn what_came_without_a_digest_is_not_believed_after_a_crash_of_the_host() {
    let journey = Journey::new(Way::Push);
    journey.place.file(&journey.from("data"), 12 * MIB);
    let none = words!["--protection", "clear", "--digest", "none"];
    let mut client = journey.begin(&[slow(), none.clone()].concat());
    client.wait_for_bytes("bytes_durable", 2 * MIB);
    client.kill();
    journey.server.wait_for_sessions(1);
    spoil(&journey.to(".data.haul-part"), &[0, 1]);
    journal_of_an_earlier_boot(&journey.to(".data.haul-journal"));
    let ran = journey.arrives(&none);
    assert_eq!(ran.number("resumed_bytes"), 0, "{ran:?}");
}
