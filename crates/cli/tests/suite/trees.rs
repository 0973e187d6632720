//! Trees of many small files: packs, their damage, few descriptors, names that are taken.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_trees,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
};
use haul_testkit::faulty_proxy::{Direction, Fault, FaultyProxy, Kind};
use std::{ffi::OsString, fs, path::Path, process::Command};

/// Makes files around the size up to which they are packed, and of no bytes.
fn small_files(place: &Place, root: &Path, directories: u32, files: u32) {
    let mut random = place.seed.random();
    for directory in 0..directories {
        for file in 0..files {
            let len_bytes = match random.below(20) {
                0 => 0,
                1 => 131_070 + random.below(5),
                2 => random.below(300_000),
                _ => random.below(9_000),
            };
            place.file(&root.join(format!("d{directory}/f{file}")), len_bytes);
        }
    }
}

/// Pushes and pulls the tree, and checks that both arrive.
fn move_both_ways(place: &Place, url: impl Fn(&str) -> OsString, options: &[OsString]) -> [Ran; 2] {
    let pushed = [words![place.source("tree"), url("")], options.to_vec()].concat();
    let pushed = place.push(&pushed);
    pushed.ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let pulled = [words![url("tree"), place.target("")], options.to_vec()].concat();
    let pulled = place.pull(&pulled);
    pulled.ok();
    assert_same_trees(&place.source("tree"), &place.target("tree"));
    assert_no_temporaries(&place.path(""));
    [pushed, pulled]
}

#[test]
fn small_files_arrive_with_every_protection_and_number_of_streams() {
    let options = [
        words!["--protection", "clear", "--digest", "none", "--streams", "1"],
        words!["--protection", "clear", "--digest", "xxh3-128", "--streams", "3"],
        words!["--span-size", "64K", "--streams", "2"],
        words!["--send-engine", "io-uring", "--receive-engine", "direct"],
    ];
    for options in options {
        let place = Place::new();
        let server = Server::start(&place);
        small_files(&place, &place.source("tree"), 4, 150);
        let [pushed, pulled] = move_both_ways(&place, |path| server.url(path), &options);
        for ran in [pushed, pulled] {
            let files = &ran.report()["files"];
            assert_eq!((&files["done"], &files["done_directories"]), (&600.into(), &5.into()));
        }
        let again = place.push(&[words![place.source("tree"), server.url("")], options].concat());
        let files = &again.ok()["files"];
        assert_eq!((&files["skipped"], &files["skipped_directories"]), (&600.into(), &5.into()));
        assert_eq!(again.number("moved_bytes"), 0, "{again:?}");
    }
}

#[test]
fn a_bit_flipped_in_a_pack_costs_a_span_or_a_stream_and_never_a_file() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut random = place.seed.random();
    let proxy = FaultyProxy::start(server.address(), move |arrival| match arrival.kind {
        Kind::Data if arrival.number < 10 => {
            // By twos: of the push, of the pull.
            let direction =
                if arrival.number < 6 { Direction::ToServer } else { Direction::ToClient };
            Fault::Flip { direction, at: 64 + random.below(1 << 20), every: None }
        }
        _ => Fault::None,
    })
    .unwrap();
    small_files(&place, &place.source("tree"), 6, 120);
    let url = |path: &str| server.url_by(proxy.address(), path);
    let runs = move_both_ways(&place, url, &words!["--streams", "2", "--stall-timeout", "3s"]);
    let repaired: u64 =
        runs.iter().map(|ran| ran.number("resent_spans") + ran.number("reconnections")).sum();
    assert!(repaired > 0, "no flip was met: {runs:?}");
}

/// Command of `haul WORDS --json` with at most this many open descriptors.
fn with_few_descriptors(place: &Place, most: u32, words: &[OsString]) -> Command {
    let haul = place.command(&[words, &words!["--json"]].concat());
    crate::harness::server::with_few_descriptors(&haul, most)
}

#[test]
fn thousands_of_small_files_need_few_descriptors() {
    let place = Place::new();
    small_files(&place, &place.source("tree"), 3, 700);
    let serve = words!["serve", place.path("root"), "--listen", "127.0.0.1:0"];
    let server = Haul::start(with_few_descriptors(&place, 96, &serve));
    let line = server.wait_for("listening line", |_| true);
    let url = line["url"].as_str().unwrap();
    let push = words!["push", place.source("tree"), url];
    Haul::start(with_few_descriptors(&place, 96, &push)).finish().ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let pull = words!["pull", format!("{url}tree"), place.target("")];
    Haul::start(with_few_descriptors(&place, 96, &pull)).finish().ok();
    assert_same_trees(&place.source("tree"), &place.target("tree"));
    assert_no_temporaries(&place.path(""));
}

#[test]
fn what_stands_in_the_way_is_replaced_and_what_an_earlier_run_left_is_tidied() {
    let place = Place::new();
    let server = Server::start(&place);
    small_files(&place, &place.source("tree"), 2, 30);
    // Another file of that name, a link, and the temporary and journal of a run that died.
    fs::create_dir_all(place.root("tree/d0")).unwrap();
    fs::write(place.root("tree/d0/f1"), b"another").unwrap();
    fs::write(place.root("outside"), b"not to be touched").unwrap();
    std::os::unix::fs::symlink(place.root("outside"), place.root("tree/d0/f2")).unwrap();
    fs::write(place.root("tree/d0/.f3.haul-part"), vec![7; 100_000]).unwrap();
    fs::write(place.root("tree/d0/.f3.haul-journal"), b"of another").unwrap();
    place.push(&words![place.source("tree"), server.url("")]).ok();
    fs::remove_file(place.root("outside")).unwrap();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert_no_temporaries(&place.root(""));
}

#[test]
fn a_directory_where_a_small_file_belongs_is_an_error_and_the_rest_arrives() {
    let place = Place::new();
    let server = ServerSetup::new(&place).start(&place);
    small_files(&place, &place.source("tree"), 2, 30);
    fs::create_dir_all(place.root("tree/d1/f7")).unwrap();
    let ran = place.push(&words![place.source("tree"), server.url("")]);
    ran.failed(1);
    ran.says(&["tree/d1/f7", "a directory of that name is there"]);
    fs::remove_dir(place.root("tree/d1/f7")).unwrap();
    place.push(&words![place.source("tree"), server.url("")]).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}
