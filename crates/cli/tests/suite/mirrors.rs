//! Mirrors whose names change their kind, by `--delete` and in a dry run.
//!
//! What a dry run says, what is removed, and what stays.

use crate::harness::{Place, process::Ran, server::Server};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::{fs, os::unix::fs::symlink, path::Path};

fn write(path: &Path, bytes: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Makes a target that has `to_dir` and `link` as a file and a link, and `to_file/` as a directory;
/// the source has it the other way round.
fn changed(place: &Place) -> Server {
    for name in ["to_dir", "to_file/old/deep", "same"] {
        write(&place.root("m").join(name), "old");
    }
    symlink("to_file", place.root("m/link")).unwrap();
    for name in ["to_dir/a", "to_dir/sub/b", "link/c", "to_file", "same"] {
        write(&place.source("m").join(name), "new");
    }
    Server::start(place)
}

fn push(place: &Place, server: &Server, options: &[&str]) -> Ran {
    let mut words = words![place.source("m/"), server.url("m/")];
    words.extend(options.iter().map(std::ffi::OsString::from));
    place.push(&words)
}

/// Status of each file of a run, by name.
fn files(ran: &Ran) -> Vec<(String, String)> {
    let text = |event: &serde_json::Value, key: &str| event[key].as_str().unwrap().to_owned();
    let files = ran.events.iter().filter(|event| event["event"] == "file");
    let mut files: Vec<_> =
        files.map(|event| (text(event, "path"), text(event, "status"))).collect();
    files.sort();
    files
}

fn names_with(ran: &Ran, statuses: &[&str]) -> Vec<String> {
    let files = files(ran).into_iter();
    files.filter(|(_, is)| statuses.contains(&is.as_str())).map(|(name, _)| name).collect()
}

#[test]
fn without_delete_what_is_in_the_way_stays_and_a_dry_run_says_so() {
    let place = Place::new();
    let server = changed(&place);
    let dry = push(&place, &server, &["-n"]);
    let failed = names_with(&dry, &["would-fail", "failed"]);
    let ran = push(&place, &server, &[]);
    assert_eq!((dry.status, ran.status), (1, 1), "{}{}", dry.err, ran.err);
    assert_eq!(failed, names_with(&ran, &["failed"]), "{}\n{}", dry.err, ran.err);
    ran.says(&["--delete"]);
    assert_eq!(fs::read_to_string(place.root("m/to_dir")).unwrap(), "old");
    assert_eq!(fs::read_to_string(place.root("m/to_file/old/deep")).unwrap(), "old");
    assert_eq!(fs::read_link(place.root("m/link")).unwrap(), Path::new("to_file"));
    assert_eq!(fs::read_to_string(place.root("m/same")).unwrap(), "new");
}

#[test]
fn with_delete_directories_and_files_change_places() {
    let place = Place::new();
    let server = changed(&place);
    let dry = push(&place, &server, &["-n", "--delete"]);
    assert!(fs::metadata(place.root("m/to_dir")).unwrap().is_file());
    let first = push(&place, &server, &["--delete"]);
    for statuses in [&["would-fail", "failed"][..], &["would-remove", "removed"]] {
        assert_eq!(names_with(&dry, statuses), names_with(&first, statuses), "{statuses:?}");
    }
    // The file comes when the directory in its way has gone, which is when all else is there.
    assert_eq!(names_with(&first, &["failed"]), ["to_file"], "{}", first.err);
    assert_eq!(names_with(&first, &["removed"]).last().unwrap(), "to_file/old/deep");
    first.says(&["run the same command again"]);
    push(&place, &server, &["--delete"]).ok();
    for name in ["to_dir/a", "to_dir/sub/b", "link/c", "to_file", "same"] {
        assert_eq!(fs::read_to_string(place.root("m").join(name)).unwrap(), "new", "{name}");
    }
    assert!(fs::symlink_metadata(place.root("m/link")).unwrap().is_dir());
}

#[test]
fn a_directory_in_the_way_stays_where_more_would_go_than_allowed_or_another_file_failed() {
    let place = Place::new();
    let server = changed(&place);
    let few = push(&place, &server, &["--delete", "--max-delete", "2"]);
    assert_eq!(few.status, 1);
    few.says(&["--max-delete"]);
    assert!(place.root("m/to_file/old/deep").exists());
    // What --exclude leaves out is not removed either, and so is not its directory.
    let kept = push(&place, &server, &["--delete", "--exclude", "deep"]);
    assert_eq!(kept.status, 1);
    assert!(place.root("m/to_file/old/deep").exists(), "{kept:?}");
}

#[test]
fn a_dry_run_after_a_run_finds_every_hard_link_in_place() {
    let place = Place::new();
    write(&place.source("m/a"), "bytes");
    for name in ["b", "c"] {
        fs::hard_link(place.source("m/a"), place.source("m").join(name)).unwrap();
    }
    let server = Server::start(&place);
    push(&place, &server, &[]).ok();
    let dry = push(&place, &server, &["-n"]);
    assert_eq!(dry.ok()["files"]["planned"], 0, "{dry:?}");
    // Another file: its names are made again, and a dry run says that too.
    fs::write(place.source("m/a"), "other bytes").unwrap();
    let dry = push(&place, &server, &["-n"]);
    let ran = push(&place, &server, &[]);
    assert_eq!(dry.ok()["files"]["planned"], ran.ok()["files"]["done"], "{dry:?}");
}

/// Makes a directory whose path is nearly as long as one may be, with a file in it whose path is
/// longer.
fn make_too_deep(base: &Path) {
    let mut directory = fs::File::open(base).unwrap();
    let names = (0..15).map(|_| "d".repeat(255)).chain(["d".repeat(200)]);
    for name in names {
        mkdirat(&directory, &name, Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        directory = openat(&directory, &name, flags, Mode::empty()).unwrap().into();
    }
    openat(&directory, "f".repeat(200), OFlags::CREATE, Mode::RUSR).unwrap();
}

#[test]
fn a_name_that_is_too_long_to_be_told_is_removed_and_the_mirror_ends_well() {
    let place = Place::new();
    write(&place.source("m/kept"), "here");
    write(&place.root("m/kept"), "there");
    make_too_deep(&place.root("m"));
    let server = Server::start(&place);
    let dry = push(&place, &server, &["-n", "--delete"]);
    assert_eq!(dry.status, 0, "{}", dry.err);
    let ran = push(&place, &server, &["--delete"]);
    assert_eq!(ran.ok()["files"]["removed"], 17, "{ran:?}");
    assert_eq!(fs::read_dir(place.root("m")).unwrap().count(), 1);
    let told = names_with(&ran, &["removed"]);
    assert!(told.iter().all(|name| name.len() < 4096), "{told:?}");
    assert!(told.iter().any(|name| name.ends_with("/...")), "{told:?}");
}
