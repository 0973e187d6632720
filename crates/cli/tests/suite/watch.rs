//! Watched directories: what appears in them is sent by the real `haul`, until it is ended.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files,
    journey::{Journey, WAYS, Way},
    process::{Haul, Ran},
    server::Server,
    wait_until,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    thread,
    time::Duration,
};

const SPAN: u64 = 64 << 10;
/// Idle time longer than any test: such a file is complete when its writer says so.
const NEVER_IDLE: &str = "10m";

/// A watched directory and where it goes.
struct Watch(Journey);

impl Watch {
    fn new(way: Way) -> Self {
        let this = Self(Journey::new(way));
        fs::create_dir(this.source("")).unwrap();
        this
    }

    fn source(&self, name: &str) -> PathBuf {
        self.0.from("run").join(name)
    }

    fn target(&self, name: &str) -> PathBuf {
        self.0.to("run").join(name)
    }

    fn start(&self, options: &[OsString]) -> Haul {
        let Journey { place, server, way } = &self.0;
        let words = match way {
            Way::Push => words!["push", self.0.from("run"), server.url("")],
            Way::Pull => words!["pull", server.url("run"), place.path("target")],
        };
        let haul = place.start(&[words, words!["--watch"], options.to_vec()].concat());
        // From here on the directory is watched.
        haul.wait_for("directory", |event| event["event"] == "file" && event["path"] == "run");
        haul
    }

    /// Checks that the same files are there. Directories have the time of their appearance.
    #[track_caller]
    fn assert_arrived(&self) {
        let names = haul_testkit::tree::names(&self.source("")).unwrap();
        assert_eq!(names, haul_testkit::tree::names(&self.target("")).unwrap());
        for name in names {
            let (from, to) = (self.source("").join(&name), self.target("").join(&name));
            if !from.is_dir() {
                assert_same_files(&from, &to);
            }
        }
    }

    fn write(&self, name: &str, len_bytes: u64) {
        self.0.place.file(&self.source(name), len_bytes);
    }

    /// Waits for the event of a file, the `count`th of its name.
    #[track_caller]
    fn wait_for_file(&self, haul: &Haul, name: &str, count: usize) {
        let path = format!("run/{name}");
        wait_until(&format!("{count} times {path}: {:?}", haul.events()), || {
            let done = |event: &&serde_json::Value| {
                event["event"] == "file" && event["path"] == *path && event["status"] == "done"
            };
            haul.events().iter().filter(done).count() >= count
        });
        assert_same_files(&self.source(name), &self.target(name));
    }

    /// Ends the watch by Ctrl-C, in order.
    #[track_caller]
    fn finish(&self, haul: Haul) -> Ran {
        haul.signal(rustix::process::Signal::INT);
        let ran = haul.finish();
        ran.ok();
        assert_no_temporaries(self.target("").parent().unwrap());
        ran
    }
}

#[test]
fn a_watch_sends_what_is_there_and_what_appears_and_ends_by_ctrl_c() {
    for way in WAYS {
        let watch = Watch::new(way);
        watch.write("old", 3 * SPAN + 5);
        let haul = watch.start(&words!["--idle", "1s"]);
        watch.wait_for_file(&haul, "old", 1);
        watch.write("closed", 5000);
        watch.wait_for_file(&haul, "closed", 1);
        // Directories that appear, as deep as they are.
        watch.write("a/b/c/deep", 200_000);
        watch.wait_for_file(&haul, "a/b/c/deep", 1);
        watch.write("a/b/c/deeper", 1);
        watch.wait_for_file(&haul, "a/b/c/deeper", 1);
        // Renamed into place, whole, from elsewhere; a directory too.
        let elsewhere = watch.0.place.path("elsewhere");
        watch.0.place.file(&elsewhere.join("day/moved"), 70_000);
        fs::rename(elsewhere.join("day"), watch.source("day")).unwrap();
        watch.wait_for_file(&haul, "day/moved", 1);
        watch.0.place.file(&elsewhere.join("single"), 100);
        fs::rename(elsewhere.join("single"), watch.source("single")).unwrap();
        watch.wait_for_file(&haul, "single", 1);
        std::os::unix::fs::symlink("single", watch.source("link")).unwrap();
        // It has its name before it is settled, and until then it is under way.
        let is_link = |event: &serde_json::Value| event["path"] == "run/link";
        wait_until("linked", || haul.events().iter().any(is_link));
        assert!(fs::read_link(watch.target("link")).is_ok());
        let ran = watch.finish(haul);
        watch.assert_arrived();
        assert_eq!(ran.report()["files"]["skipped"], 0, "{ran:?}");
    }
}

#[test]
fn a_file_that_changes_after_it_was_sent_is_sent_anew() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", NEVER_IDLE]);
        watch.write("data", 1000);
        watch.wait_for_file(&haul, "data", 1);
        watch.write("data", 2000);
        watch.wait_for_file(&haul, "data", 2);
        fs::remove_file(watch.source("data")).unwrap();
        watch.write("data", 300_000);
        watch.wait_for_file(&haul, "data", 3);
        watch.finish(haul);
    }
}

#[test]
fn a_file_that_is_written_is_not_sent_before_it_is_complete() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", NEVER_IDLE]);
        let mut writer = File::create(watch.source("slow")).unwrap();
        writer.write_all(b"half").unwrap();
        // Another one, that is behind it, says that this one was seen.
        watch.write("other", 10);
        watch.wait_for_file(&haul, "other", 1);
        assert!(!watch.target("slow").exists());
        writer.write_all(b" and the rest").unwrap();
        drop(writer);
        watch.wait_for_file(&haul, "slow", 1);
        watch.finish(haul);
    }
}

/// A file that a push still waits for at its end, and that its user must not take for sent.
#[test]
fn a_file_that_a_push_still_waits_for_at_its_end_is_an_error_that_names_it() {
    let watch = Watch::new(Way::Push);
    watch.write("old", 5000);
    let haul = watch.start(&words!["--idle", "1h"]);
    watch.write("closed", 5000);
    watch.wait_for_file(&haul, "closed", 1);
    // It was closed before the watch began, a moment ago.
    haul.signal(rustix::process::Signal::INT);
    let ran = haul.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["run/old", "was not sent"]);
    assert!(!watch.target("old").exists());
    let told = ran.named("error");
    assert!(told.len() == 1, "what was sent is no error: {told:?}");
}

#[test]
fn a_file_that_stays_open_is_sent_when_it_is_idle() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", "1s"]);
        let mut writer = File::create(watch.source("open")).unwrap();
        writer.write_all(b"all of it").unwrap();
        watch.wait_for_file(&haul, "open", 1);
        drop(writer);
        watch.finish(haul);
    }
}

#[test]
fn with_follow_a_watch_sends_files_from_their_beginning_on() {
    for way in WAYS {
        let watch = Watch::new(way);
        let options = words!["--follow", "--idle", NEVER_IDLE, "--span-size", "64K"];
        let haul = watch.start(&options);
        let mut random = watch.0.place.seed.random();
        for name in ["first", "second"] {
            let mut bytes = vec![0; 5 * SPAN as usize];
            random.fill(&mut bytes);
            let before = haul.progress("bytes_durable");
            let mut writer = File::create(watch.source(name)).unwrap();
            writer.write_all(&bytes).unwrap();
            haul.wait_for_bytes("bytes_durable", before + 5 * SPAN);
            assert!(!watch.target(name).exists());
            writer.write_all(&bytes[..1000]).unwrap();
            drop(writer);
            watch.wait_for_file(&haul, name, 1);
        }
        let ran = watch.finish(haul);
        assert_eq!(ran.report()["files"]["done"], 2, "without the directory: {ran:?}");
    }
}

#[test]
fn with_follow_a_file_that_was_closed_at_once_is_complete() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--follow", "--idle", NEVER_IDLE]);
        (0..100).for_each(|number| watch.write(&format!("file-{number}"), 10 + number));
        (0..100).for_each(|number| watch.wait_for_file(&haul, &format!("file-{number}"), 1));
        watch.finish(haul);
        watch.assert_arrived();
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_sent_anew_when_that_is_over() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", NEVER_IDLE, "--bwlimit", "2M"]);
        watch.write("growing", 3 << 20);
        haul.wait_for_bytes("bytes_received", 1 << 19);
        for _ in 0..3 {
            let mut file = File::options().append(true).open(watch.source("growing")).unwrap();
            file.write_all(b"more").unwrap();
            drop(file);
            thread::sleep(Duration::from_millis(100));
        }
        // It may have been sent as it was before.
        haul.wait_for("all of it", |event| {
            event["path"] == "run/growing" && event["bytes"] == (3 << 20) + 12
        });
        let ran = watch.finish(haul);
        assert_eq!(ran.report()["files"]["failed"], 0, "{ran:?}");
        watch.assert_arrived();
    }
}

#[test]
fn a_watched_directory_that_has_another_name_is_an_error_that_names_it() {
    for way in WAYS {
        for removed in [false, true] {
            let watch = Watch::new(way);
            let haul = watch.start(&words!["--idle", "1s"]);
            if removed {
                fs::remove_dir(watch.source("")).unwrap();
            } else {
                fs::rename(watch.source(""), watch.source("").with_file_name("run.old")).unwrap();
                fs::create_dir(watch.source("")).unwrap();
            }
            let ran = haul.finish();
            assert_eq!(ran.status, 1, "{ran:?}");
            ran.says(&["run", "renamed or removed while it was watched"]);
        }
    }
}

#[test]
fn a_watch_ends_by_itself_when_nothing_is_new_for_long_enough() {
    for way in WAYS {
        let watch = Watch::new(way);
        watch.write("one", 100);
        let ran = watch.start(&words!["--idle", "500ms", "--watch-for", "2s"]).finish();
        assert_eq!(ran.ok()["files"]["done"], 1, "{ran:?}");
        watch.assert_arrived();
    }
}

#[test]
fn a_watch_does_not_end_while_a_file_waits_to_be_idle() {
    for way in WAYS {
        let watch = Watch::new(way);
        // Nobody is heard to close it: it was there before.
        watch.write("fresh", 100);
        let ran = watch.start(&words!["--idle", "3s", "--watch-for", "500ms"]).finish();
        assert_eq!(ran.ok()["files"]["done"], 1, "{ran:?}");
        watch.assert_arrived();
    }
}

#[test]
fn a_watch_goes_on_after_the_server_was_away_and_finds_what_appeared_meanwhile() {
    for way in WAYS {
        let mut watch = Watch::new(way);
        watch.write("before", 1000);
        let haul = watch.start(&words!["--idle", "1s", "--retry-for", "100s"]);
        watch.wait_for_file(&haul, "before", 1);
        watch.0.server.process.kill();
        watch.write("meanwhile", 1000);
        watch.0.server.restart(&watch.0.place);
        watch.wait_for_file(&haul, "meanwhile", 1);
        let ran = watch.finish(haul);
        assert!(ran.number("reconnections") >= 1, "{ran:?}");
    }
}

#[test]
fn what_the_patterns_leave_out_is_not_sent_by_a_watch_either() {
    for way in WAYS {
        let watch = Watch::new(way);
        let options = words!["--idle", "1s", "--exclude", "*.tmp"];
        let haul = watch.start(&options);
        watch.write("a/scan.tmp", 10);
        fs::rename(watch.source("a/scan.tmp"), watch.source("a/scan.fits")).unwrap();
        watch.wait_for_file(&haul, "a/scan.fits", 1);
        watch.write("a/more.tmp", 10);
        watch.write("a/more.fits", 10);
        watch.wait_for_file(&haul, "a/more.fits", 1);
        watch.finish(haul);
        assert!(!watch.target("a/more.tmp").exists());
    }
}

/// Directories with --include rules alone: one is made when something in it is meant.
#[test]
fn a_directory_that_comes_to_hold_something_meant_is_made_by_a_watch() {
    let watch = Watch::new(Way::Push);
    watch.write("first.fits", 10);
    let haul = watch.start(&words!["--idle", "1s", "--include", "*.fits"]);
    watch.write("a/b/notes.txt", 10);
    watch.write("c/scan.fits", 10);
    watch.wait_for_file(&haul, "c/scan.fits", 1);
    assert!(!watch.target("a").exists());
    watch.write("a/b/scan.fits", 10);
    watch.wait_for_file(&haul, "a/b/scan.fits", 1);
    watch.finish(haul);
}

#[test]
fn files_that_come_many_at_a_time_all_arrive() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", "1s"]);
        for number in 0..2000 {
            let path = watch.source(&format!("d{}/f{number}", number % 7));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, number.to_string()).unwrap();
        }
        // With their directories, each once.
        haul.wait_for_count("file", 1 + 2000 + 7);
        watch.finish(haul);
        watch.assert_arrived();
    }
}

/// A file that nobody has written yet: it is not due, however little patience there is.
#[test]
fn a_watch_in_which_nothing_happens_for_long_is_not_given_up() {
    for way in WAYS {
        let watch = Watch::new(way);
        let haul = watch.start(&words!["--idle", NEVER_IDLE, "--stall-timeout", "500ms"]);
        thread::sleep(Duration::from_secs(8));
        watch.write("late", 1000);
        watch.wait_for_file(&haul, "late", 1);
        let ran = watch.finish(haul);
        assert_eq!(ran.number("reconnections"), 0, "{ran:?}");
        assert_eq!(ran.named("session").len(), 1, "{ran:?}");
    }
}

#[test]
fn only_directories_are_watched() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("file"), 10);
    let ran = place.push(&words![place.source("file"), server.url(""), "--watch"]);
    ran.refused(&["watch", "a directory"]);
    let ran = place.push(&words![place.source(""), server.url(""), "--watch-for", "1s"]);
    assert_eq!(ran.status, 2, "{ran:?}");
}
