//! Parts of a tree (`--part`), each moved by a run of its own that knows nothing of the others.

use crate::harness::{Place, assert_same_trees, process::Haul, server::Server};
use std::{ffi::OsString, fs, os::unix::fs::symlink};

#[test]
fn runs_that_know_nothing_of_each_other_move_each_file_once_and_equal_the_tree() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 4, 60);
    symlink("d0/f1", place.source("tree/link")).unwrap();
    let runs: Vec<Haul> = ["1/3", "2/3", "3/3"]
        .map(|part| {
            place.start(&words!["push", place.source("tree"), server.url(""), "--part", part])
        })
        .into();
    let mut done = 0;
    for run in runs {
        let ran = run.finish();
        let files = &ran.ok()["files"];
        assert_eq!((&files["skipped"], &files["failed"]), (&0.into(), &0.into()), "{files}");
        let own = files["done"].as_u64().unwrap();
        assert!((40..120).contains(&own), "{own} of 241");
        done += own;
    }
    assert_eq!(done, 4 * 60 + 1);
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

/// The run that comes last to a directory removes it.
#[test]
fn parts_that_move_their_files_at_once_leave_nothing_and_fail_for_nothing() {
    let place = Place::new();
    let server = Server::start(&place);
    for round in 0..3 {
        let (source, copy) = (place.source(format!("t{round}")), place.path(format!("c{round}")));
        place.tree(&source, 12, 5);
        let copied = std::process::Command::new("cp").arg("-a").args([&source, &copy]).status();
        assert!(copied.unwrap().success());
        let runs = ["1/3", "2/3", "3/3"].map(|part| {
            place.start(&words!["push", &source, server.url(""), "--move", "--part", part])
        });
        runs.into_iter().for_each(|run| drop(run.finish().ok().clone()));
        // The directory that was named stays.
        assert_eq!(fs::read_dir(&source).unwrap().count(), 0, "{round}");
        // A run may list a directory when another has removed a file of it, which gives it a time.
        let arrived = place.root(format!("t{round}"));
        let differences = haul_testkit::tree::differences(&copy, &arrived).unwrap();
        let others = differences.iter().filter(|it| it.contains('/') || !it.contains(": times "));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    }
}

#[test]
fn the_number_comes_from_the_scheduler() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 1, 40);
    let pushed = |part: &str, variable: (&str, &str)| {
        let words = words!["push", place.source("tree"), server.url(""), "--part", part, "--json"];
        let mut command = place.command(&words);
        command.env(variable.0, variable.1);
        Haul::start(command).finish()
    };
    pushed("auto/2", ("SLURM_ARRAY_TASK_ID", "2")).ok();
    // The same part again, said by its number: nothing is left to move.
    let again = pushed("2/2", ("UNUSED", "")).ok()["files"].clone();
    assert_eq!(again["done"], 0);
    pushed("auto/2", ("JOB_COMPLETION_INDEX", "0")).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    // What never can be right ends with 2, so that no scheduler tries it again.
    let refused = pushed("auto/2", ("SLURM_PROCID", "2"));
    assert_eq!(refused.status, 2, "{refused:?}");
}

#[test]
fn a_part_is_neither_pulled_nor_the_reason_to_remove_the_others() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::create_dir_all(place.root("tree")).unwrap();
    place.tree(&place.source("tree"), 1, 4);
    let run = |words: &[OsString]| place.run(&[words, &words!["--part", "1/2"]].concat());
    run(&words!["pull", server.url("tree"), place.target("")]).refused(&["a push", "a pull"]);
    let words = words!["push", place.source("tree"), server.url(""), "--delete"];
    run(&words).refused(&["--delete", "--part"]);
    run(&words!["copy", "a:x", "b:y"]).refused(&["--part"]);
}
