//! Files of a server, named without being moved: `haul ls`, and patterns in what is pulled.

use crate::harness::{Place, assert_same_files, process::Ran, server::Server};
use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

fn names(ran: &Ran) -> Vec<String> {
    let mut names: Vec<String> =
        ran.named("entry").iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn place() -> (Place, Server) {
    let place = Place::new();
    for name in ["run7/a.vdif", "run7/b.vdif", "run7/log", "run7/.c.vdif", "run8/d.vdif"] {
        place.file(&place.root(name), 1000);
    }
    place.file(&place.root("run7/deep/down/e.vdif"), 2000);
    fs::create_dir(place.root("empty")).unwrap();
    let server = Server::start(&place);
    (place, server)
}

fn made_token(place: &Place, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(std::ffi::OsString::from).collect();
    let state = words!["--state", place.path("state")];
    let made = place.run(&[words!["token", "new"], words, state].concat());
    made.events[0]["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_directory_is_listed_with_sizes_times_and_kinds() {
    let (place, server) = place();
    symlink("run7/log", place.root("link")).unwrap();
    fs::hard_link(place.root("run8/d.vdif"), place.root("run8/again.vdif")).unwrap();
    let ls = |path: &str, options: &[&str]| {
        let options: Vec<_> = options.iter().map(std::ffi::OsString::from).collect();
        let ran = place.run(&[words!["ls", server.url(path)], options].concat());
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    };
    assert_eq!(names(&ls("", &[])), ["empty", "link", "run7", "run8"]);
    for path in ["run7", "run7/", "/run7", "run7/."] {
        let ran = ls(path, &[]);
        assert_eq!(names(&ran), [".c.vdif", "a.vdif", "b.vdif", "deep", "log"], "{path}");
    }
    assert_eq!(names(&ls("run7/deep", &["-R"])), ["down", "down/e.vdif"]);
    assert!(names(&ls("empty", &[])).is_empty());
    // Each name of an inode has its size; a file is listed as itself.
    let ran = ls("run8", &[]);
    assert!(ran.named("entry").iter().all(|entry| entry["bytes"] == 1000), "{ran:?}");
    let entry = ls("run7/a.vdif", &[]).named("entry")[0].clone();
    assert_eq!((&entry["path"], &entry["kind"]), (&"a.vdif".into(), &"file".into()));
    assert_eq!(names(&ls("run7/a.vdif/", &[])), ["a.vdif"]);
    let modified = fs::metadata(place.root("run7/a.vdif")).unwrap().modified().unwrap();
    let told: jiff::Timestamp = entry["modified"].as_str().unwrap().parse().unwrap();
    assert_eq!(std::time::SystemTime::from(told), modified);
    let words = words!["ls", server.url("")];
    let text = String::from_utf8(place.command(&words).output().unwrap().stdout).unwrap();
    assert!(text.lines().any(|line| line.ends_with("  run7/")), "{text}");
    assert!(text.lines().any(|line| line.ends_with("  link -> run7/log")), "{text}");
    assert!(server.process.events().iter().all(|event| event["event"] != "error"));
}

#[test]
fn a_listing_needs_its_right_alone_and_says_what_is_not_there() {
    let (place, server) = place();
    let list = made_token(&place, &["--list", "--single-use"]);
    let url = |token: &str, path: &str| server.url_with(token, server.address(), path);
    // It moves nothing, so it uses no token up.
    for _ in 0..2 {
        place.run(&words!["ls", url(&list, "run7")]).named("entry").first().unwrap();
    }
    let write = made_token(&place, &["--write"]);
    place.run(&words!["ls", url(&write, "run7")]).refused(&["no right to list"]);
    place.run(&words!["ls", server.url("absent")]).refused(&["absent"]);
    place.run(&words!["ls", server.url("../x")]).refused(&["name is refused"]);
    let once = made_token(&place, &["--single-use"]);
    place.run(&words!["ls", url(&once, "run7")]).named("entry").first().unwrap();
    place.pull(&words![url(&once, "run7/a.vdif"), place.target("")]).ok();
    assert_eq!(place.run(&words!["ls", url(&once, "run7")]).status, 2, "it is used up");
}

#[test]
fn patterns_are_expanded_at_the_server() {
    let (place, server) = place();
    let pulled = |path: &str, to: &str| {
        let target = place.target(to);
        place.pull(&words![server.url(path), format!("{}/", target.display())]).ok();
        let mut names: Vec<String> = haul_testkit::tree::names(&target)
            .unwrap()
            .iter()
            .map(|name| name.to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(pulled("run7/*.vdif", "1"), ["a.vdif", "b.vdif"]);
    assert_eq!(pulled("run?/[bd].vdif", "2"), ["b.vdif", "d.vdif"]);
    assert_eq!(pulled("run7/d*", "3"), ["deep", "deep/down", "deep/down/e.vdif"]);
    assert_eq!(pulled("run7/d*/", "4"), ["down", "down/e.vdif"]);
    // The directory itself has no name in a listing of it: `*` took it for one of its names.
    let all = ["a.vdif", "b.vdif", "deep", "deep/down", "deep/down/e.vdif", "log"];
    assert_eq!(pulled("run7/*", "6"), all);
    assert_eq!(pulled("run7/**", "7"), all);
    assert_eq!(pulled("run7/*/", "8"), ["down", "down/e.vdif"]);
    assert_same_files(&place.root("run7/a.vdif"), &place.target("1/a.vdif"));
    let ran = place.pull(&words![server.url("run7/*.fits"), place.target("")]);
    ran.refused(&["nothing at the server fits", "haul ls"]);
    let moved = place.pull(&words![server.url("run7/deep/*"), place.target("9/"), "--move"]);
    moved.ok();
    assert!(place.root("run7/deep").exists() && !place.root("run7/deep/down/e.vdif").exists());
    // Two of one name would replace each other.
    place.file(&place.root("run8/a.vdif"), 10);
    let ran = place.pull(&words![server.url("run*/a.vdif"), place.target("5/")]);
    ran.refused(&["two sources are called a.vdif"]);
}

#[test]
fn a_name_that_really_has_such_characters_comes_before_the_pattern() {
    let (place, server) = place();
    place.file(&place.root("run7/*.vdif"), 30);
    place.file(&place.root("run7/[x]"), 40);
    let odd = std::ffi::OsStr::from_bytes(b"n\xff*");
    place.file(&place.root("run7").join(odd), 50);
    for (path, len_bytes) in [("run7/*.vdif", 30), ("run7/[x]", 40), ("run7/n%FF*", 50)] {
        place.pull(&words![server.url(path), place.target("")]).ok();
        let names = haul_testkit::tree::names(&place.target("")).unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        let pulled = place.target("").join(&names[0]);
        assert_eq!(fs::metadata(&pulled).unwrap().len(), len_bytes);
        fs::remove_file(pulled).unwrap();
    }
}
