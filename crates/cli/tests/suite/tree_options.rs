//! Options of trees: selection, conflicts, removal, attributes, hard links and holes.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees, is_root,
    journey::{Journey, WAYS, Way},
    process::Ran,
    server::{Server, ServerSetup},
};
use haul_testkit::{skip::skip, tree};
use rustix::fs::{Timespec, Timestamps, XattrFlags, lgetxattr, setxattr, utimensat};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink},
    path::Path,
    process::Command,
};

const MIB: u64 = 1 << 20;

impl Journey {
    fn moved(&self, name: &str, options: &[OsString]) -> Ran {
        self.moved_to(name, "", options)
    }

    fn moved_to(&self, name: &str, to: &str, options: &[OsString]) -> Ran {
        match self.way {
            Way::Push => self.place.push(
                &[words![self.place.source(name), self.server.url(to)], options.to_vec()].concat(),
            ),
            Way::Pull => self.place.pull(
                &[words![self.server.url(name), self.place.target(to)], options.to_vec()].concat(),
            ),
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn set_time(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let names = tree::names(directory).unwrap();
    names.iter().map(|name| name.to_str().unwrap().to_owned()).collect()
}

/// Names of a run's files by what became of them.
fn by_status(ran: &Ran) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in ran.named("file") {
        let text = |key: &str| file[key].as_str().unwrap().to_owned();
        all.entry(text("status")).or_default().push(text("path"));
    }
    all.values_mut().for_each(|names| names.sort());
    all
}

fn with_status(ran: &Ran, status: &str) -> Vec<String> {
    by_status(ran).remove(status).unwrap_or_default()
}

#[test]
fn patterns_sizes_and_ages_say_which_files_are_moved() {
    for way in WAYS {
        let journey = Journey::new(way);
        for name in ["a.fits", "a.tmp", "cache/x", "deep/cache/y", "deep/b.fits", "deep/keep.tmp"] {
            write(&journey.from("t").join(name), &format!("{name:>8}"));
        }
        journey.place.file(&journey.from("t/large"), 300_000);
        set_time(&journey.from("t/deep/b.fits"), 1_000_000_000);
        let moved = |options: &[OsString]| {
            let _ = fs::remove_dir_all(journey.to("t"));
            journey.moved("t", options).ok();
            names(&journey.to("t"))
        };
        let exclude = words!["--include", "keep.tmp", "--exclude", "*.tmp", "--exclude", "cache/"];
        let some = ["a.fits", "deep", "deep/b.fits", "deep/keep.tmp", "large"];
        assert_eq!(moved(&exclude), some, "{way:?}");
        let reversed = words!["--exclude", "*.tmp", "--include", "keep.tmp", "--exclude=/t/cache"];
        let some = ["a.fits", "deep", "deep/b.fits", "deep/cache", "deep/cache/y", "large"];
        assert_eq!(moved(&reversed), some, "{way:?}");
        assert_eq!(moved(&words!["--include", "*.fits"]), ["a.fits", "deep", "deep/b.fits"]);
        let sizes = words!["--min-size", "7", "--max-size", "100K", "--exclude", "*.tmp"];
        let all =
            ["a.fits", "cache", "cache/x", "deep", "deep/b.fits", "deep/cache", "deep/cache/y"];
        let some: Vec<&str> = all.into();
        assert_eq!(moved(&sizes), some, "{way:?}");
        let old = moved(&words!["--min-age", "2002-01-01"]);
        assert_eq!(old, ["cache", "deep", "deep/b.fits", "deep/cache"]);
        assert!(!moved(&words!["--max-age", "1h"]).contains(&"deep/b.fits".to_owned()));
    }
    let journey = Journey::new(Way::Push);
    write(&journey.from("t/a"), "a");
    let refused = journey.moved("t", &words!["--exclude", "[a"]);
    refused.refused(&["pattern", "[a"]);
}

#[test]
fn listed_names_are_moved_with_the_directories_above_them() {
    for way in WAYS {
        let journey = Journey::new(way);
        for name in ["a/x", "a/y", "b/c/z", "b/other", "odd\nname", "d/e/f"] {
            write(&journey.from("t").join(name), name);
        }
        let list = journey.place.path("list");
        fs::write(&list, "a/x\nb/c/\n./d/e/f\n\nb/c/z\n").unwrap();
        let options = words!["--files-from", list];
        journey.moved_to("t/", "new/", &options).ok();
        let expected = ["a", "a/x", "b", "b/c", "b/c/z", "d", "d/e", "d/e/f"];
        assert_eq!(names(&journey.to("new")), expected, "{way:?}");
        assert_same_files(&journey.from("t/a/x"), &journey.to("new/a/x"));
        // Names with a zero byte behind them; one that is missing is named and the rest arrives.
        fs::write(&list, b"odd\nname\0gone\0a/y\0").unwrap();
        let ran = journey.moved("t", &[options.clone(), words!["--from0"]].concat());
        ran.failed(1);
        ran.says(&["t/gone", "no such file"]);
        assert_eq!(names(&journey.to("t")), ["a", "a/y", "odd\nname"], "{way:?}");
        fs::write(&list, "../outside\n").unwrap();
        journey.moved("t", &options).refused(&["../outside", "below the source"]);
    }
}

#[test]
fn what_is_there_already_is_kept_replaced_or_refused_as_asked() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        for name in ["same", "differs", "new"] {
            write(&from.join(name), name);
            set_time(&from.join(name), 1_600_000_000);
        }
        symlink("here", from.join("link")).unwrap();
        write(&to.join("same"), "same");
        set_time(&to.join("same"), 1_600_000_000);
        write(&to.join("differs"), "theirs");
        symlink("elsewhere", to.join("link")).unwrap();
        let inode = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().ino();
        let same_before = inode("same");

        let ran = journey.moved("t", &words!["--on-conflict", "fail"]);
        ran.failed(2);
        ran.says(&["differs", "already", "--on-conflict"]);
        assert_eq!(with_status(&ran, "failed"), ["t/differs", "t/link"], "{way:?}");
        assert_eq!(fs::read_to_string(to.join("differs")).unwrap(), "theirs");
        assert_eq!(
            (inode("same"), fs::read_to_string(to.join("new")).unwrap()),
            (same_before, "new".into())
        );

        for again in 0..2 {
            let ran = journey.moved("t", &words!["--on-conflict", "keep-both"]);
            ran.ok();
            assert_eq!(fs::read_to_string(to.join("differs")).unwrap(), "theirs");
            assert_eq!(fs::read_to_string(to.join("differs.1")).unwrap(), "differs");
            assert_eq!(fs::read_link(to.join("link.1")).unwrap(), Path::new("here"));
            assert!(!to.join("differs.2").exists() && !to.join("same.1").exists());
            let stored = ran.named("file").into_iter().find(|file| file["path"] == "t/differs");
            let stored = &stored.unwrap()["stored_as"];
            let expected = if again == 0 && way == Way::Push {
                "t/differs.1".into()
            } else {
                serde_json::Value::Null
            };
            assert!(*stored == expected || way == Way::Pull, "{stored}");
        }

        write(&journey.from("differs"), "differs");
        write(&journey.to("differs"), "theirs");
        let ran = journey.moved("differs", &words!["--on-conflict", "keep-both"]);
        let now = ran.report()["to"].as_str().unwrap();
        assert!(now.ends_with("/differs.1"), "{now}");

        let ran = journey.moved("t", &words!["--on-conflict", "replace"]);
        ran.ok();
        assert_eq!(fs::read_to_string(to.join("differs")).unwrap(), "differs");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("here"));
        assert_ne!(inode("same"), same_before);
        let files = &ran.report()["files"];
        assert_eq!((&files["skipped"], &files["skipped_directories"]), (&0.into(), &1.into()));

        let ran = journey.moved("t", &[]);
        assert_eq!(ran.ok()["files"]["done"], 0, "{ran:?}");
        assert_no_temporaries(&journey.place.path(""));
    }
}

#[test]
fn a_comparison_by_content_sees_what_size_and_time_do_not_tell() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        journey.place.file(&from.join("touched"), 3 * MIB);
        journey.place.file(&from.join("changed"), 3 * MIB);
        write(&from.join("empty"), "");
        write(&from.join("longer"), "longer");
        journey.moved("t", &[]).ok();
        for name in ["touched", "empty"] {
            set_time(&from.join(name), 1_500_000_000);
        }
        let time = fs::metadata(from.join("changed")).unwrap();
        let file = File::options().write(true).open(to.join("changed")).unwrap();
        // One byte of random ones may be the same.
        file.write_all_at(b"changed", 2 * MIB).unwrap();
        drop(file);
        let times = Timespec { tv_sec: time.mtime(), tv_nsec: time.mtime_nsec() };
        let times = Timestamps { last_access: times, last_modification: times };
        let flags = rustix::fs::AtFlags::empty();
        utimensat(rustix::fs::CWD, to.join("changed"), &times, flags).unwrap();
        write(&to.join("longer"), "other length");
        let touched = fs::metadata(to.join("touched")).unwrap().ino();

        let ran = journey.moved("t", &words!["--checksum-compare", "--span-size", "1M"]);
        ran.ok();
        assert_eq!(with_status(&ran, "done"), ["t/changed", "t/longer"], "{way:?}: {ran:?}");
        assert_eq!(with_status(&ran, "skipped"), ["t", "t/empty", "t/touched"], "{way:?}");
        assert_same_trees(&from, &to);
        assert_eq!(fs::metadata(to.join("touched")).unwrap().ino(), touched);
        assert_eq!(ran.report()["moved_bytes"].as_u64(), Some(3 * MIB + 6), "{ran:?}");
        assert_no_temporaries(&journey.place.path(""));
    }
}

/// More large files than the 64 of several spans that a side has open at a time.
#[test]
fn any_number_of_large_files_is_compared() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        (0..150).for_each(|number| journey.place.file(&from.join(number.to_string()), 70_000));
        journey.moved("t", &[]).ok();
        (0..150).for_each(|number| set_time(&from.join(number.to_string()), 1_500_000_000));
        write(&to.join("7"), &"!".repeat(70_000));
        let ran = journey.moved("t", &words!["--checksum-compare", "--span-size", "64K"]);
        assert_eq!(with_status(&ran, "done"), ["t/7"], "{way:?}: {ran:?}");
        assert_same_trees(&from, &to);
    }
}

#[test]
fn a_mirror_removes_what_the_source_lacks_after_all_else_succeeded() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        for name in ["a", "d/b", "d/keep.log"] {
            write(&from.join(name), name);
        }
        journey.moved("t", &[]).ok();
        for name in ["x", "d/y", "gone/p/q", "gone/r", "z.log"] {
            write(&to.join(name), name);
        }
        symlink("/etc", to.join("d/link")).unwrap();
        write(&journey.to("beside"), "not mirrored");

        // Too many: nothing goes. A failure: nothing goes.
        let few = words!["--delete", "--max-delete", "3"];
        let ran = journey.moved("t", &few);
        ran.failed(1);
        ran.says(&["--max-delete", "8", "nothing was removed"]);
        assert!(to.join("gone/p/q").exists());
        // It says to look at them with a dry run, which named none.
        let dry = journey.moved("t", &[&few[..], &words!["--dry-run"]].concat());
        assert_eq!(with_status(&dry, "would-remove").len(), 8, "{way:?}");
        let dry = journey.moved("t", &words!["--delete", "--dry-run", "--exclude", "*.log"]);
        dry.ok();
        let removed = with_status(&dry, "would-remove");
        let expected = ["t/d/link", "t/d/y", "t/gone", "t/gone/p", "t/gone/p/q", "t/gone/r", "t/x"];
        assert_eq!(removed, expected, "{way:?}");
        assert!(to.join("x").exists() && to.join("gone/r").exists());
        let ran = journey.moved("t", &words!["--delete", "--exclude", "*.log"]);
        assert_eq!(ran.ok()["files"]["removed"], 7, "{ran:?}");
        assert_eq!(with_status(&ran, "removed"), expected, "{way:?}");
        assert_eq!(names(&to), ["a", "d", "d/b", "d/keep.log", "z.log"]);
        journey.moved("t", &words!["--delete"]).ok();
        assert_same_trees(&from, &to);
        assert!(journey.to("beside").exists() && Path::new("/etc").exists());
        // The contents of a directory mirror the target itself, and under another name too.
        journey.moved_to("t/", "", &words!["--delete", "--max-delete", "6"]).ok();
        let there = names(&journey.to(""));
        assert_eq!(there, ["a", "d", "d/b", "d/keep.log"], "{way:?}");
        journey.moved_to("t", "renamed", &[]).ok();
        // The directory keeps its name below another path, and is all that is mirrored there.
        write(&journey.to("renamed/extra"), "x");
        write(&journey.to("renamed/t/extra"), "x");
        let ran = journey.moved_to("t", "renamed", &words!["--delete"]);
        assert_eq!(ran.ok()["files"]["removed"], 1, "{way:?}");
        assert!(journey.to("renamed/extra").exists() && journey.to("renamed/t/a").exists());
        assert_no_temporaries(&journey.place.path(""));
    }
}

#[test]
fn what_stands_for_a_fifo_of_the_source_is_not_removed() {
    for way in WAYS {
        let journey = Journey::new(way);
        write(&journey.from("t/a"), "a");
        assert!(Command::new("mkfifo").arg(journey.from("t/fifo")).status().unwrap().success());
        write(&journey.to("t/fifo"), "made in its place");
        write(&journey.to("t/extra"), "extra");
        let ran = journey.moved("t", &words!["--delete"]);
        assert_eq!(ran.ok()["files"]["removed"], 1, "{ran:?}");
        assert_eq!(names(&journey.to("t")), ["a", "fifo"], "{way:?}");
    }
}

#[test]
fn a_failure_keeps_a_mirror_from_removing_anything() {
    let place = Place::new();
    let server = Server::start(&place);
    write(&place.source("t/a"), "a");
    write(&place.source("t/d"), "a file where a directory is");
    write(&place.root("t/d/x"), "x");
    write(&place.root("t/extra"), "extra");
    let words = words![place.source("t"), server.url(""), "--delete", "--on-conflict", "fail"];
    let ran = place.push(&words);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["nothing was removed", "failed"]);
    assert!(place.root("t/extra").exists() && place.root("t/a").exists());
    assert!(place.root("t/d/x").exists());
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        for name in ["same", "changed", "new/file"] {
            write(&from.join(name), name);
        }
        journey.place.file(&from.join("large"), 5 * MIB);
        let first = journey.moved_to("t", "made/deep/", &words!["--dry-run"]);
        let files = &first.ok()["files"];
        assert_eq!((&files["planned"], &files["planned_directories"]), (&4.into(), &2.into()));
        assert!(!journey.to("made").exists());
        write(&to.join("changed"), "what was there");
        fs::copy(from.join("same"), to.join("same")).unwrap();
        set_time(&from.join("same"), 1_600_000_000);
        set_time(&to.join("same"), 1_600_000_000);
        write(&to.join("extra"), "extra");
        let before = tree::names(&journey.to("")).unwrap();
        let options = words!["--delete", "--move"];
        let dry = journey.moved("t", &[options.clone(), words!["-n"]].concat());
        let report = dry.ok();
        assert_eq!((&report["dry_run"], &report["moved_bytes"]), (&true.into(), &0.into()));
        assert_eq!(report["planned_bytes"].as_u64(), Some(5 * MIB + 15));
        assert_eq!(with_status(&dry, "would-replace"), ["t/changed"]);
        assert_eq!(with_status(&dry, "would-copy"), ["t/large", "t/new", "t/new/file"]);
        assert_eq!(with_status(&dry, "would-remove"), ["t/extra"]);
        assert_eq!(with_status(&dry, "skipped"), ["t", "t/same"]);
        assert_eq!(tree::names(&journey.to("")).unwrap(), before);
        assert_eq!(fs::read_to_string(to.join("changed")).unwrap(), "what was there");
        assert!(from.join("same").exists());
        // Then it is done, exactly so.
        let ran = journey.moved("t", &options);
        ran.ok();
        let done = with_status(&ran, "done");
        assert_eq!(done, ["t/changed", "t/large", "t/new", "t/new/file"]);
        assert_eq!(with_status(&ran, "removed"), ["t/extra"]);
    }
    let journey = Journey::new(Way::Push);
    write(&journey.from("f"), "f");
    let dry = journey.moved_to("f", "null:", &words!["--dry-run"]);
    assert_eq!(dry.ok()["moved_bytes"], 0);
    assert_eq!(with_status(&dry, "would-copy"), ["f"]);
}

/// A way to the target of which nothing is there yet, and nothing is made.
#[test]
fn a_dry_run_goes_to_directories_that_are_not_there_and_counts_them_apart() {
    let place = Place::new();
    let server = Server::start(&place);
    write(&place.source("t/d/f"), "four");
    write(&place.root("t/d/f"), "four");
    let here = "new/far/away/";
    for ran in [
        place.push(&words![place.source("t"), server.url(here), "-n"]),
        place.pull(&words![server.url("t"), place.target(here), "-n"]),
        place.pull(&words![server.url("t"), here, "-n"]),
        place.pull(&words![server.url("t/d/f"), "new/far/name", "-n"]),
        place.pull(&words![server.url("t"), "-n"]),
    ] {
        let files = &ran.ok()["files"];
        let directories = files["planned_directories"].as_u64().unwrap_or(0);
        assert_eq!(
            (&files["planned"], ran.report()["planned_bytes"].as_u64()),
            (&1.into(), Some(4))
        );
        assert_eq!(directories, if with_status(&ran, "would-copy").len() == 1 { 0 } else { 2 });
    }
    assert!(!place.path("new").exists() && !place.root("new").exists());
    assert!(!place.target("new").exists() && !place.path("t").exists());
    let words = words!["pull", server.url("t"), "elsewhere/", "-n"];
    let text = String::from_utf8(place.command(&words).output().unwrap().stdout).unwrap();
    assert!(text.contains("1 file would be copied, 4 B"), "{text}");
    assert!(text.contains("2 directories would be made"), "{text}");
}

#[test]
fn a_preflight_looks_at_both_sides_and_moves_nothing() {
    for way in WAYS {
        let journey = Journey::new(way);
        write(&journey.from("t/a"), "a");
        write(&journey.from("t/b"), "b");
        write(&journey.to("t/b"), "another b");
        let ran = journey.moved("t", &words!["--preflight"]);
        let report = ran.ok();
        let checks = report["preflight"].as_array().unwrap();
        let verdicts = checks
            .iter()
            .map(|check| (check["name"].as_str().unwrap(), check["verdict"].as_str().unwrap()));
        let verdicts: BTreeMap<&str, &str> = verdicts.collect();
        for name in ["files", "rights", "space", "inodes", "port", "clock", "buffers"] {
            assert_eq!(verdicts.get(name), Some(&"ok"), "{way:?} {name}: {report}");
        }
        assert_eq!(verdicts["names"], "warning");
        assert_eq!(fs::read_to_string(journey.to("t/b")).unwrap(), "another b");
        assert!(!journey.to("t/a").exists());
    }
    let place = Place::new();
    let root = place.path("root");
    let mounted = is_root().then(|| haul_testkit::mount::Mount::tmpfs(&root, "1m"));
    let Some(Ok(_mount)) = mounted else { return skip("the right to mount", "none") };
    let server = Server::start(&place);
    place.file(&place.source("t/large"), 2 * MIB);
    let ran = place.push(&words![place.source("t"), server.url(""), "--preflight"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let checks = ran.report()["preflight"].as_array().unwrap().clone();
    let space = checks.iter().find(|check| check["name"] == "space").unwrap();
    assert_eq!(space["verdict"], "failed", "{space}");
    assert!(space["found"].as_str().unwrap().contains("2.1 MB"), "{space}");
}

#[test]
fn a_move_removes_each_source_once_its_very_bytes_are_at_the_target() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        let copy = journey.place.path("copy");
        journey.place.tree(&from, 2, 20);
        journey.place.file(&from.join("large"), 5 * MIB);
        symlink("large", from.join("link")).unwrap();
        write(&from.join("there/equal"), "equal");
        write(&from.join("there/unequal"), "what is meant");
        assert!(Command::new("cp").arg("-a").args([&from, &copy]).status().unwrap().success());
        write(&to.join("there/equal"), "equal");
        write(&to.join("there/unequal"), "other bytes!!");
        for name in ["there/equal", "there/unequal"] {
            for side in [&from, &to, &copy] {
                set_time(&side.join(name), 1_600_000_000);
            }
        }
        let ran = journey.moved("t", &words!["--move"]);
        ran.ok();
        assert_eq!(fs::read_to_string(to.join("there/unequal")).unwrap(), "what is meant");
        assert!(with_status(&ran, "skipped").contains(&"t/there/equal".to_owned()));
        assert_eq!(names(&from), [""; 0], "{way:?}");
        fs::remove_dir(&from).unwrap();
        for name in ["there", ""] {
            let time = fs::metadata(copy.join(name)).unwrap().mtime();
            set_time(&to.join(name), time);
            set_time(&copy.join(name), time);
        }
        assert_same_trees(&copy, &to);
        assert_eq!(ran.report()["sources_removed"].as_u64(), Some(44), "{way:?} {ran:?}");
    }
}

#[test]
fn what_a_move_removes_or_would_remove_is_counted_both_ways() {
    for way in WAYS {
        let journey = Journey::new(way);
        for name in ["a", "d/b"] {
            write(&journey.from("t").join(name), name);
        }
        let ran = journey.moved("t", &words!["--move", "-n"]);
        assert_eq!(
            (ran.ok()["sources_removed"].as_u64(), names(&journey.from("t")).len()),
            (Some(2), 3)
        );
        let ran = journey.moved("t", &words!["--move"]);
        assert_eq!(ran.ok()["sources_removed"].as_u64(), Some(2), "{way:?}");
        assert_eq!(names(&journey.from("t")), [""; 0]);
    }
}

#[test]
fn a_pull_that_moves_needs_the_right_to_delete() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--read-only"]).start(&place);
    write(&place.root("f"), "f");
    let ran = place.pull(&words![server.url("f"), place.target(""), "--move"]);
    ran.refused(&["read-only", "without --move"]);
    let server = Server::start(&place);
    let mut command = place.command(&words!["token", "new", "--read", "--json"]);
    command.env("HAUL_STATE", place.path("state"));
    let made: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let url = server.url_with(made["token"].as_str().unwrap(), server.address(), "f");
    let ran = place.pull(&words![url, place.target(""), "--move"]);
    ran.refused(&["no right to delete"]);
    assert!(place.root("f").exists() && !place.target("f").exists());
    place.pull(&words![server.url("f"), place.target("")]).ok();
}

#[test]
fn nothing_is_moved_to_where_it_is_thrown_away_or_not_verified() {
    let place = Place::new();
    let server = Server::start(&place);
    let sink = ServerSetup::new(&place).root("null:").state(place.path("other")).start(&place);
    for path in [place.source("f"), place.root("f")] {
        write(&path, "f");
    }
    let file = place.source("f");
    for target in [server.url("null:"), sink.url("")] {
        place.push(&words![file, target, "--move"]).refused(&["null:", "--move"]);
    }
    place.pull(&words![server.url("f"), "null:", "--move"]).refused(&["null:", "--move"]);
    let unverified = words!["--move", "--protection", "clear", "--digest", "none"];
    let words = [words![file, server.url("")], unverified].concat();
    place.push(&words).refused(&["--move", "verified"]);
    assert!(file.exists() && place.root("f").exists());
}

/// The only copy of a file, there under two paths: as itself, by a link, by a mount.
#[test]
fn what_is_moved_onto_itself_stays() {
    for way in WAYS {
        let journey = Journey::new(way);
        let place = &journey.place;
        let (from, url) = (place.root("t"), journey.server.url(""));
        write(&from.join("f"), "the only copy");
        symlink("f", from.join("link")).unwrap();
        fs::create_dir(from.join("empty")).unwrap();
        symlink(place.root(""), place.path("alias")).unwrap();
        let paths = [place.root(""), place.path("alias")];
        for path in paths {
            let same = |options: &[OsString]| match way {
                Way::Push => place.push(&[words![path.join("t"), url], options.to_vec()].concat()),
                Way::Pull => {
                    let from = journey.server.url("t");
                    let slashed = path.join("");
                    place.pull(&[words![from, slashed], options.to_vec()].concat())
                }
            };
            for conflict in ["skip-same", "replace", "keep-both", "fail"] {
                let options = words!["--move", "--on-conflict", conflict];
                for options in [&options[..], &[&options[..], &words!["-n"]].concat()] {
                    let ran = same(options);
                    assert_eq!(ran.status, 1, "{way:?} {options:?} {ran:?}");
                    let told = format!("{ran:?}");
                    assert!(told.contains("the source and the target are the same"), "{told}");
                }
                let ran = same(&words!["--on-conflict", conflict]);
                assert_eq!(ran.ok()["moved_bytes"], 0, "{way:?} {conflict}");
            }
        }
        assert_eq!(names(&from), ["empty", "f", "link"], "{way:?}");
        assert_eq!(fs::read_to_string(from.join("f")).unwrap(), "the only copy");
    }
}

#[test]
fn what_keep_both_keeps_is_removed_by_no_mirror() {
    for way in WAYS {
        let journey = Journey::new(way);
        write(&journey.from("t/f"), "new");
        write(&journey.to("t/f"), "older");
        let ran = journey.moved("t", &words!["--on-conflict", "keep-both", "--delete"]);
        ran.refused(&["keep-both", "--delete"]);
        assert_eq!(names(&journey.to("t")), ["f"], "{way:?}");
    }
}

/// Two files of one name: the one that is refused would take the other's place in the next run.
#[test]
fn contents_are_moved_alone() {
    let journey = Journey::new(Way::Push);
    let place = &journey.place;
    write(&journey.from("a/f"), "one");
    write(&journey.from("b/f"), "two");
    let [a, b] = ["a/", "b/"].map(|name| journey.from(name));
    place
        .push(&words![a, b, journey.server.url("new/"), "--move"])
        .refused(&["--move", "contents"]);
    write(&place.root("a/f"), "one");
    write(&place.root("b/f"), "two");
    let [a, b] = ["a/", "b"].map(|name| journey.server.url(name));
    place.pull(&words![a, b, place.target(""), "--move"]).refused(&["--move", "contents"]);
    for path in [journey.from("a/f"), journey.from("b/f"), place.root("a/f"), place.root("b/f")] {
        assert!(path.exists(), "{path:?}");
    }
}

#[test]
fn what_fails_to_move_keeps_its_source() {
    let journey = Journey::new(Way::Push);
    write(&journey.from("t/a"), "a");
    write(&journey.from("t/b"), "b");
    fs::create_dir_all(journey.to("t/b")).unwrap();
    let ran = journey.moved("t", &words!["--move"]);
    ran.failed(1);
    assert_eq!(names(&journey.from("t")), ["b"]);
    assert_eq!(fs::read_to_string(journey.to("t/a")).unwrap(), "a");
}

#[test]
fn mode_and_time_arrive_unless_they_are_not_wanted_and_are_brought_up_to_date() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        write(&from.join("f"), "f");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let set_mode = |mode| {
            fs::set_permissions(from.join("f"), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o640);
        set_time(&from.join("f"), 1_600_000_000);
        journey.moved("t", &[]).ok();
        assert_eq!(mode(&to.join("f")), 0o640);
        // Another mode alone: the bytes stay.
        set_mode(0o755);
        let ran = journey.moved("t", &words!["-n"]);
        assert_eq!(ran.ok()["updated_attributes"], 1, "{way:?}");
        assert_eq!(mode(&to.join("f")), 0o640);
        let ran = journey.moved("t", &[]);
        assert_eq!(
            (&ran.ok()["moved_bytes"], &ran.ok()["updated_attributes"]),
            (&0.into(), &1.into())
        );
        assert_eq!(mode(&to.join("f")), 0o755, "{way:?}");
        assert!(journey.moved("t", &[]).ok().get("updated_attributes").is_none());
        fs::remove_dir_all(&to).unwrap();
        set_mode(0o600);
        journey.moved("t", &words!["--preserve", "none"]).ok();
        let there = fs::metadata(to.join("f")).unwrap();
        // Without what the umask takes, and never wider than the source.
        assert!(there.mtime() > 1_600_000_000 && mode(&to.join("f")) == 0o600);
        assert_eq!(mode(&to.join("f")) & 0o111, 0);
    }
    let journey = Journey::new(Way::Push);
    write(&journey.from("f"), "f");
    let ran = journey.moved("f", &words!["--preserve", "colour"]);
    assert_eq!(ran.status, 2, "{ran:?}");
}

#[test]
fn owners_extended_attributes_and_acls_arrive_when_asked_for() {
    if !is_root() {
        return skip("root, to give files away", "another user");
    }
    // An ACL as the kernel writes it: version 2, then entries of tag, rights and number.
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let acl = [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 4, 4321),
        entry(4, 4, none),
        entry(0x10, 4, none),
        entry(0x20, 0, none),
    ]
    .concat();
    let acl_name = "system.posix_acl_access";
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        write(&from.join("d/f"), "f");
        journey.place.file(&from.join("large"), 3 * MIB);
        symlink("large", from.join("link")).unwrap();
        let flags = XattrFlags::empty();
        let set = setxattr(from.join("d/f"), "user.telescope", b"Onsala\0\xff", flags)
            .and_then(|()| setxattr(from.join("d"), "user.run", b"7", flags));
        let has_acls = setxattr(from.join("large"), acl_name, &acl, flags).is_ok();
        if set.is_err() {
            return skip("extended attributes on the temporary directory", "none");
        }
        for name in ["d", "d/f", "large"] {
            chown(from.join(name), Some(4321), Some(8765)).unwrap();
        }
        lchown(from.join("link"), Some(4321), Some(8765)).unwrap();
        let get = |path: &Path, name: &str| {
            let mut value = vec![0; 200];
            lgetxattr(path, name, &mut value).map(|len| value[..len].to_vec())
        };
        journey.moved("t", &[]).ok();
        assert_eq!(fs::metadata(to.join("d/f")).unwrap().uid(), 0, "not asked for");
        assert!(get(&to.join("d/f"), "user.telescope").is_err());
        // A second run brings them to files that are there, and one into a fresh tree.
        for fresh in [false, true] {
            if fresh {
                fs::remove_dir_all(&to).unwrap();
            }
            journey.moved("t", &words!["--preserve", "all"]).ok();
            let looked_at: &[&str] =
                if fresh { &["d", "d/f", "large", "link"] } else { &["d/f", "large"] };
            for name in looked_at {
                let there = fs::symlink_metadata(to.join(name)).unwrap();
                assert_eq!((there.uid(), there.gid()), (4321, 8765), "{way:?} {name}");
            }
            assert_eq!(get(&to.join("d/f"), "user.telescope").unwrap(), b"Onsala\0\xff");
            if fresh {
                assert_eq!(get(&to.join("d"), "user.run").unwrap(), b"7");
            }
            if has_acls {
                assert_eq!(get(&to.join("large"), acl_name).unwrap(), acl);
            }
        }
        assert_same_trees(&from, &to);
    }
}

#[test]
fn an_owner_that_may_not_be_set_is_an_error_that_says_so() {
    let place = Place::new();
    let root = place.path("root");
    if !is_root() || !place.open_to_nobody(&[&root]) {
        return skip("root, to run a server as another user", "another user");
    }
    let server = ServerSetup::new(&place).run_by_nobody().start(&place);
    write(&place.source("f"), "f");
    let url = server.url("");
    let ran = place.push(&words![place.source("f"), url, "--preserve", "mode,mtime,owner"]);
    ran.failed(1);
    ran.says(&["f", "attributes", "root"]);
    assert!(!place.root("f").exists());
    place.push(&words![place.source("f"), url]).ok();
}

#[test]
fn hard_links_stay_one_file() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (from, to) = (journey.from("t"), journey.to("t"));
        journey.place.file(&from.join("a/large"), 5 * MIB);
        write(&from.join("a/small"), "small");
        fs::create_dir_all(from.join("b/c")).unwrap();
        for (first, other) in
            [("a/large", "a/large2"), ("a/large", "b/c/large3"), ("a/small", "b/small2")]
        {
            fs::hard_link(from.join(first), from.join(other)).unwrap();
        }
        let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        let ran = journey.moved("t", &[]);
        assert_eq!(ran.ok()["moved_bytes"].as_u64(), Some(5 * MIB + 5), "{ran:?}");
        assert_same_trees(&from, &to);
        assert!(inode("a/large") == inode("a/large2") && inode("a/large") == inode("b/c/large3"));
        assert_eq!(inode("a/small"), inode("b/small2"), "{way:?}");
        let again = journey.moved("t", &[]);
        assert_eq!(again.ok()["files"]["done"], 0, "{again:?}");
        // A name that became a file of its own becomes a link again.
        fs::remove_file(to.join("b/small2")).unwrap();
        fs::copy(to.join("a/small"), to.join("b/small2")).unwrap();
        journey.moved("t", &[]).ok();
        assert_eq!(inode("a/small"), inode("b/small2"), "{way:?}");
        // Of names that are left out nothing comes; with two kept, each is a file.
        fs::remove_dir_all(&to).unwrap();
        journey.moved("t", &words!["--exclude", "large2"]).ok();
        assert_eq!(inode("a/large"), inode("b/c/large3"), "{way:?}");
        assert!(!to.join("a/large2").exists());
        journey.moved("t", &words!["--delete", "--move"]).ok();
        assert_eq!(inode("a/large"), inode("a/large2"), "{way:?}");
        assert_eq!(names(&from), [""; 0], "{way:?}");
        assert_no_temporaries(&journey.place.path(""));
    }
}

#[test]
fn a_hard_link_to_another_file_system_is_a_file() {
    if !is_root() {
        return skip("root, to mount a file system", "another user");
    }
    let journey = Journey::new(Way::Push);
    write(&journey.from("t/a"), "a");
    fs::create_dir_all(journey.from("t/m")).unwrap();
    fs::hard_link(journey.from("t/a"), journey.from("t/m/b")).unwrap();
    fs::create_dir_all(journey.to("t/m")).unwrap();
    let mount = haul_testkit::mount::Mount::tmpfs(&journey.to("t/m"), "1m");
    let Ok(_mount) = mount else { return skip("the right to mount", "none") };
    let ran = journey.moved("t", &[]);
    assert_eq!(ran.ok()["files"]["done"], 2, "{ran:?}");
    assert_same_files(&journey.from("t/a"), &journey.to("t/m/b"));
}

/// Number of bytes that a file takes on its disk.
fn held_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_stay_holes() {
    let options = [
        words!["--span-size", "64K"],
        words!["--span-size", "1M", "--send-engine", "io-uring", "--receive-engine", "io-uring"],
        words!["--receive-engine", "direct", "--streams", "3"],
        words!["--receive-engine", "mmap", "--protection", "clear"],
    ];
    for (way, options) in WAYS.into_iter().cycle().zip(options.iter().chain(&options)) {
        let journey = Journey::new(way);
        fs::create_dir_all(journey.from("t")).unwrap();
        let sparse = |name: &str, size: u64, data: &[(u64, usize)]| {
            let file = File::create(journey.from("t").join(name)).unwrap();
            file.set_len(size).unwrap();
            for (at, len) in data {
                file.write_all_at(&vec![7; *len], *at).unwrap();
            }
        };
        sparse("disk.img", 64 * MIB, &[(0, 5000), (33 * MIB + 17, 70_000), (64 * MIB - 9, 9)]);
        sparse("nothing", 32 * MIB + 3, &[]);
        sparse("small", 100_000, &[(50_000, 10)]);
        sparse("tail", 9 * MIB, &[(0, 4096)]);
        let mut dense = File::create(journey.from("t/dense")).unwrap();
        dense.write_all(&vec![0; 3 << 20]).unwrap();
        dense.sync_all().unwrap();
        if held_bytes(&journey.from("t/nothing")) > MIB {
            return skip("a file system with holes", "none");
        }
        let ran = journey.moved("t", options);
        let report = ran.ok();
        assert_same_trees(&journey.from("t"), &journey.to("t"));
        for (name, at_most) in
            [("disk.img", 200_000), ("nothing", 70_000), ("small", 16 << 10), ("tail", 70_000)]
        {
            let held = held_bytes(&journey.to("t").join(name));
            assert!(held <= at_most, "{name} takes {held} bytes: {way:?} {options:?}");
        }
        let moved = report["moved_bytes"].as_u64().unwrap();
        assert!(moved < 40 * MIB, "{moved} bytes moved");
        assert_eq!(report["bytes"].as_u64(), Some(108 * MIB + 3 + 100_000));
        assert_eq!(report["resumed_bytes"], 0);
    }
}

#[test]
fn a_sparse_file_goes_on_after_a_kill() {
    for way in WAYS {
        let journey = Journey::new(way);
        let path = journey.from("sparse");
        journey.place.file(&path, 24 * MIB);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(400 * MIB).unwrap();
        file.write_all_at(&[1; 4096], 300 * MIB).unwrap();
        let words = match way {
            Way::Push => words!["push", path, journey.server.url("")],
            Way::Pull => words!["pull", journey.server.url("sparse"), journey.place.target("")],
        };
        let slow = words!["--bwlimit", "3M", "--span-size", "1M"];
        let mut killed = journey.place.start(&[words.clone(), slow].concat());
        // The holes, 375 MiB, count from the beginning.
        killed.wait_for_bytes("bytes_durable", 382 * MIB);
        killed.kill();
        let ran = journey.place.run(&[words, words!["--span-size", "1M"]].concat());
        ran.ok();
        assert_same_files(&path, &journey.to("sparse"));
        let (moved, resumed) = (ran.number("moved_bytes"), ran.number("resumed_bytes"));
        assert!(moved < 24 * MIB && resumed > 0 && resumed < 26 * MIB, "{moved} {resumed}");
        assert!(held_bytes(&journey.to("sparse")) < 27 * MIB);
    }
}

#[test]
fn two_sources_of_one_name_are_refused_before_anything_is_moved() {
    let journey = Journey::new(Way::Push);
    write(&journey.from("a/x"), "1");
    write(&journey.from("b/x"), "2");
    let place = &journey.place;
    let ran = place.push(&words![journey.from("a/x"), journey.from("b/x"), journey.server.url("")]);
    ran.refused(&["two sources", "x"]);
    write(&place.root("a/x"), "1");
    write(&place.root("b/x"), "2");
    let (one, two) = (journey.server.url("a/x"), journey.server.url("b/x"));
    place.pull(&words![one, two, place.target("")]).refused(&["two sources", "x"]);
}
