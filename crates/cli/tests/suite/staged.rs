//! Directories of small files that a transfer makes, hidden until all of them is there.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_trees, is_temporary, journey::Way, server::Server,
    temporaries,
};
use haul_testkit::{mount::Mount, skip::skip, tree};
use std::{fs, path::Path};

const MIB: u64 = 1 << 20;
const FILES: u64 = 600;

/// A tree of small files, and nothing else.
fn small_tree(place: &Place, at: &Path) {
    for number in 0..FILES {
        place.file(&at.join(format!("d{}/f{number}", number % 7)), 16 << 10);
    }
    fs::write(at.join("empty"), "").unwrap();
}

/// Starts a slow transfer of such a tree, and kills both sides when some of it is durable.
fn killed(place: &Place, server: &mut Server, way: Way) -> Vec<std::ffi::OsString> {
    let (source, target) = match way {
        Way::Push => (place.source("tree"), place.root("tree")),
        Way::Pull => (place.root("tree"), place.path("target/tree")),
    };
    small_tree(place, &source);
    let words = match way {
        Way::Push => words!["push", source, server.url("")],
        Way::Pull => words!["pull", server.url("tree"), place.path("target")],
    };
    let mut first = place.start(&[words.clone(), words!["--bwlimit", "2M"]].concat());
    first.wait_for_bytes("bytes_durable", MIB);
    assert!(!target.exists(), "it is not whole");
    server.process.kill();
    first.kill();
    let left = temporaries(target.parent().unwrap());
    assert!(left.iter().any(|name| name.ends_with(".tree.haul-durable")), "{left:?}");
    assert!(!target.exists());
    server.restart(place);
    words
}

#[test]
fn a_killed_run_is_gone_on_with_where_its_directory_is_hidden() {
    for way in [Way::Push, Way::Pull] {
        let place = Place::new();
        let mut server = Server::start(&place);
        let words = killed(&place, &mut server, way);
        let (from, to) = match way {
            Way::Push => (place.source("tree"), place.root("")),
            Way::Pull => (place.root("tree"), place.path("target")),
        };
        let ran = place.run(&words);
        ran.ok();
        let skipped = ran.report()["files"]["skipped"].as_u64().unwrap();
        assert!(skipped >= MIB / (16 << 10), "{skipped} were durable: {ran:?}");
        assert_same_trees(&from, &to.join("tree"));
        assert_no_temporaries(&to);
    }
}

/// A client's sessions after the first, which find what that has hidden.
#[test]
fn a_client_goes_on_by_itself_with_a_hidden_directory_when_its_server_is_back() {
    for way in [Way::Push, Way::Pull] {
        for wait_bytes in [1, MIB] {
            let place = Place::new();
            let mut server = Server::start(&place);
            let (from, to) = match way {
                Way::Push => (place.source("tree"), place.root("")),
                Way::Pull => (place.root("tree"), place.path("target")),
            };
            small_tree(&place, &from);
            let words = match way {
                Way::Push => words!["push", from, server.url("")],
                Way::Pull => words!["pull", server.url("tree"), to],
            };
            let slowly = words!["--bwlimit", "4M", "--retry-for", "60s"];
            let client = place.start(&[words, slowly].concat());
            client.wait_for_bytes("bytes_received", wait_bytes);
            server.restart(&place);
            let ran = client.finish();
            ran.ok();
            assert!(ran.number("reconnections") >= 1, "{ran:?}");
            assert_same_trees(&from, &to.join("tree"));
            assert_no_temporaries(&to);
        }
    }
}

/// A file in a hidden directory of which no list tells may be half a file.
#[test]
fn what_no_list_tells_of_comes_again() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let words = killed(&place, &mut server, Way::Push);
    let hidden = place.root(".tree.haul-staged");
    // As a crash of the host leaves them: sizes and times are there, bytes are not.
    let mut spoilt = 0;
    for number in 0..FILES {
        let (name, own) = (format!("d{}/f{number}", number % 7), format!("f{number}"));
        let (there, source) = (hidden.join(&name), place.source("tree").join(&name));
        if !there.exists() && there.parent().unwrap().is_dir() {
            let time = fs::metadata(&source).unwrap().modified().unwrap();
            let file = fs::File::create(&there).unwrap();
            file.set_len(16 << 10).unwrap();
            file.set_modified(time).unwrap();
            assert!(there.ends_with(own));
            spoilt += 1;
        }
    }
    assert!(spoilt > 50, "{spoilt}");
    place.run(&words).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert_no_temporaries(&place.root(""));
}

#[test]
fn a_directory_with_a_large_file_is_there_as_soon_as_that_begins() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("tree");
    place.file(&source.join("a-small"), 1000);
    place.file(&source.join("large"), 24 * MIB);
    let words = words!["push", source, server.url(""), "--bwlimit", "8M"];
    let first = place.start(&words);
    first.wait_for_bytes("bytes_durable", MIB);
    let names = tree::names(&place.root("")).unwrap();
    assert!(names.contains(&"tree/a-small".into()), "{names:?}");
    first.finish().ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert_no_temporaries(&place.root(""));
}

#[test]
fn two_that_make_one_directory_have_all_files_of_both_in_it() {
    let place = Place::new();
    let server = Server::start(&place);
    let (one, other) = (place.source("tree"), place.path("other/tree"));
    small_tree(&place, &one);
    place.file(&other.join("own"), 1000);
    place.file(&other.join("d1/own"), 1000);
    let words = words!["push", one, server.url(""), "--bwlimit", "2M"];
    let first = place.start(&words);
    first.wait_for_bytes("bytes_durable", MIB);
    place.push(&words![other, server.url("")]).ok();
    assert!(place.root("tree/d1/own").exists() && !place.root("tree/d1/f1").exists());
    first.finish().ok();
    for name in ["own", "d1/own"] {
        assert!(tree::same_bytes(&other.join(name), &place.root("tree").join(name)).unwrap());
        fs::remove_file(place.root("tree").join(name)).unwrap();
    }
    let differences = tree::differences(&one, &place.root("tree")).unwrap();
    let others = differences.iter().filter(|line| !line.contains("time")).collect::<Vec<_>>();
    assert!(others.is_empty(), "{others:?}");
    assert_no_temporaries(&place.root(""));
}

#[test]
fn a_mirror_removes_what_a_killed_run_hid_with_the_directory_above() {
    let place = Place::new();
    let server = Server::start(&place);
    let gone = place.root("tree/gone");
    fs::create_dir_all(gone.join(".x.haul-staged/d")).unwrap();
    fs::write(gone.join(".x.haul-staged/d/file"), "x").unwrap();
    fs::write(gone.join(".x.haul-durable"), "").unwrap();
    small_tree(&place, &place.source("tree"));
    place.push(&words![place.source("tree"), server.url(""), "--delete"]).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

/// A disk that has room again goes on where it was: what came stays hidden until then.
#[test]
fn a_full_disk_leaves_the_directory_hidden_and_the_next_run_goes_on() {
    let place = Place::new();
    let _mount = match Mount::tmpfs(&place.path("root"), "12m") {
        Ok(mount) => mount,
        Err(why) => return skip("a user who may mount (root)", &why),
    };
    let server = Server::start(&place);
    place.file(&place.root("filler"), 6 * MIB);
    small_tree(&place, &place.source("tree"));
    let words = words![place.source("tree"), server.url("")];
    let ran = place.push(&words);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["tree", "target", "disk was full", ".tree.haul-staged", "same command"]);
    assert!(!place.root("tree").exists() && place.root(".tree.haul-staged").is_dir());
    // Again before there is room: what came stays.
    assert_eq!(place.push(&words).status, 1);
    assert!(!place.root("tree").exists() && place.root(".tree.haul-staged").is_dir());
    fs::remove_file(place.root("filler")).unwrap();
    let ran = place.push(&words);
    ran.ok();
    let skipped = ran.report()["files"]["skipped"].as_u64().unwrap();
    assert!(skipped > FILES / 4, "{skipped} had come: {ran:?}");
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    fs::remove_dir_all(place.root("tree")).unwrap();
    assert_no_temporaries(&place.root(""));
}

/// A file system whose disk takes less than was promised: the failure comes at the sync, when the
/// files are closed.
#[test]
fn files_whose_writes_fail_late_are_never_shown() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let disk = Mount::tmpfs(&place.path("disk"), "6m");
    let image = place.path("disk").join("image");
    let system =
        disk.and_then(|disk| Ok((disk, Mount::ext4(&place.path("root"), &image, 64 * MIB)?)));
    let _mounts = match system {
        Ok(mounts) => mounts,
        Err(why) => return skip("a user who may mount (root)", &why),
    };
    let server = Server::start(&place);
    small_tree(&place, &place.source("tree"));
    let ran = place.push(&words![place.source("tree"), server.url("")]);
    assert_eq!(ran.status, 1, "{ran:?}");
    for name in tree::names(&place.root("")).unwrap() {
        let (there, source) = (place.root(&name), place.path("source").join(&name));
        if !is_temporary(&name) && there.is_file() {
            assert!(tree::same_bytes(&source, &there).unwrap(), "{name:?} is half a file");
        }
    }
    // The server itself is well.
    place.push(&words!["zero:1M", server.url("null:")]).ok();
}
