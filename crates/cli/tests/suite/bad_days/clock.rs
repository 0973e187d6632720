//! Clocks that are wrong: set back, far ahead, changed in the middle; files of the future.
//!
//! Only the expiry of tokens looks at the wall clock.

use super::{Journey, MIB, WAYS, Way, mixed_tree};
use crate::harness::{
    Place, assert_same_trees,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
    temporaries,
};
use haul_testkit::skip::skip;
use std::{
    ffi::OsString,
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

const YEAR_S: i64 = 365 * 24 * 3600;

/// Source of a library that adds the seconds in the file that HAUL_TEST_CLOCK names to the wall
/// clock. Rust asks for it by libc's clock_gettime(2), which comes from here when this is loaded
/// first (ld.so(8)).
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    const char *path = getenv("HAUL_TEST_CLOCK");
    if (result != 0 || clock != CLOCK_REALTIME || path == NULL) return result;
    FILE *file = fopen(path, "re");
    long long ahead = 0;
    if (file != NULL) {
        if (fscanf(file, "%lld", &ahead) == 1) now->tv_sec += ahead;
        fclose(file);
    }
    return result;
}
"#;

/// A wall clock that a test sets.
struct Clock {
    library: PathBuf,
    setting: PathBuf,
}

impl Clock {
    /// Builds the library; `None` and a skipped test without a C compiler, or where the program
    /// does not ask libc.
    fn new(place: &Place) -> Option<Self> {
        let (code, library) = (place.path("clock.c"), place.path("clock.so"));
        fs::write(&code, WRONG_CLOCK).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&code);
        match compiler.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skip("a C compiler", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Err(error) => {
                skip("a C compiler", error.to_string());
                return None;
            }
        }
        Some(Self { library, setting: place.path("clock") })
    }

    fn set(&self, ahead_s: i64) {
        // Nobody may read half of it.
        let new = self.setting.with_extension("new");
        fs::write(&new, ahead_s.to_string()).unwrap();
        fs::rename(new, &self.setting).unwrap();
    }

    fn server(&self, place: &Place) -> Server {
        let setup = ServerSetup::new(place).variable("LD_PRELOAD", &self.library);
        setup.variable("HAUL_TEST_CLOCK", &self.setting).start(place)
    }

    fn start(&self, place: &Place, words: &[OsString]) -> Haul {
        let mut command = place.command(&[words, &words!["--json"]].concat());
        command.env("LD_PRELOAD", &self.library).env("HAUL_TEST_CLOCK", &self.setting);
        Haul::start(command)
    }

    fn run(&self, place: &Place, words: &[OsString]) -> Ran {
        self.start(place, words).finish()
    }
}

fn new_token(clock: &Clock, place: &Place, expires: &str) -> String {
    let words = words!["token", "new", "--expires", expires, "--state", place.path("state")];
    let ran = clock.run(place, &words);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.events[0]["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_token_expires_by_the_clock_of_the_server_whichever_way_that_is_set() {
    let place = Place::new();
    let Some(clock) = Clock::new(&place) else { return };
    clock.set(0);
    let server = clock.server(&place);
    let token = new_token(&clock, &place, "1h");
    place.file(&place.source("data"), 1000);
    let push = |into: &str| {
        let url = server.url_with(&token, server.address(), into);
        place.push(&words![place.source("data"), url])
    };
    push("now/").ok();
    clock.set(7200);
    push("late/").refused(&["expired", "token"]);
    // Set back to before it was made: it has not expired.
    clock.set(-YEAR_S);
    push("early/").ok();
    clock.set(-50 * YEAR_S);
    push("earliest/").ok();
    assert!(!place.root("late").exists());
}

#[test]
fn sides_whose_clocks_differ_by_years_move_a_tree_both_ways() {
    for ahead_s in [-40 * YEAR_S, 30 * YEAR_S] {
        for way in WAYS {
            let place = Place::new();
            let Some(clock) = Clock::new(&place) else { return };
            clock.set(ahead_s);
            let server = clock.server(&place);
            let journey = Journey { place, server, way };
            mixed_tree(&journey.place, &journey.from("tree"));
            journey.completes("tree", "", &words!["--span-size", "64K"]);
            let again = journey.completes("tree", "", &words!["--span-size", "64K"]);
            assert_eq!(again.number("moved_bytes"), 0, "{again:?}");
        }
    }
}

/// Timeouts, rates and checkpoints, which go by another clock than the wall's.
#[test]
fn a_clock_set_back_or_ahead_in_the_middle_breaks_nothing() {
    for way in WAYS {
        let place = Place::new();
        let Some(clock) = Clock::new(&place) else { return };
        clock.set(0);
        let server = clock.server(&place);
        let journey = Journey { place, server, way };
        journey.place.file(&journey.from("data"), 15 * MIB);
        let slow = words!["--bwlimit", "3M", "--span-size", "64K", "--stall-timeout", "2s"];
        let client = clock.start(&journey.place, &journey.words("data", "", &slow));
        client.wait_for_bytes("bytes_received", MIB);
        clock.set(-YEAR_S);
        client.wait_for_bytes("bytes_received", 6 * MIB);
        clock.set(YEAR_S);
        let ran = client.finish();
        ran.ok();
        assert_eq!(ran.number("reconnections"), 0, "{ran:?}");
        assert!(ran.named("stall").is_empty(), "{ran:?}");
        journey.assert_arrived("data", "");
    }
}

fn set_times(path: &Path, time: SystemTime) {
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
}

/// Sources, temporaries and journals of years to come, and of before 1970.
#[test]
fn files_of_the_future_and_of_long_ago_are_moved_and_gone_on_with() {
    let future = SystemTime::now() + Duration::from_secs(YEAR_S as u64 * 20);
    let past = SystemTime::UNIX_EPOCH - Duration::new(YEAR_S as u64, 7);
    for (way, time) in [(Way::Push, future), (Way::Pull, future), (Way::Push, past)] {
        let journey = Journey::new(way);
        mixed_tree(&journey.place, &journey.from("tree"));
        journey.place.file(&journey.from("tree/slow"), 6 * MIB);
        for name in ["slow", "alone", "small/f3", "small"] {
            set_times(&journey.from("tree").join(name), time);
        }
        let slow = words!["--bwlimit", "3M", "--span-size", "64K"];
        let mut client = journey.start("tree", "", &slow);
        client.wait_for_bytes("bytes_durable", 2 * MIB);
        client.kill();
        let ended = if way == Way::Push { "root" } else { "target" };
        if way == Way::Push {
            journey.server.wait_for_sessions(1);
        }
        let left = temporaries(&journey.place.path(ended));
        assert!(!left.is_empty());
        for name in &left {
            set_times(&journey.place.path(ended).join(name), future);
        }
        let ran = journey.completes("tree", "", &words!["--span-size", "64K"]);
        assert!(ran.number("resumed_bytes") >= MIB, "{ran:?}");
        assert_same_trees(&journey.from("tree"), &journey.to("tree"));
    }
}
