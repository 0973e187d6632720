//! Plans whose target is a machine that ssh reaches: each run starts a server of its own there.

use crate::harness::{
    Place, assert_same_trees,
    process::Haul,
    sshd::{Sshd, there},
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

/// The servers of the runs share nothing but the directory, so ranges meet by their register.
#[test]
fn shards_go_over_ssh_at_once_and_what_has_changed_is_planned_again() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.tree(&place.source("tree"), 2, 20);
    place.file(&place.source("tree/large"), (6 << 20) + 77);
    let plan = |words: &[std::ffi::OsString]| {
        let ran = Haul::start(place.command(&[words, &words!["--json"]].concat())).finish();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    };
    let words = words!["plan", place.source("tree"), there("into/"), "--shards", "3"];
    let ranges = words!["--stripe-size", "64K", "--out", place.path("plan")];
    plan(&[words, ranges].concat());
    let start = |plan: &str, shard: u32| {
        let words = words!["push", "--plan", place.path(plan), "--shard", shard.to_string()];
        sshd.start_haul(&place, &words)
    };
    let runs: Vec<Haul> = (1..=3).map(|shard| start("plan", shard)).collect();
    for run in runs {
        run.finish().ok();
    }
    assert_same_trees(&place.source("tree"), &sshd.home("into/tree"));
    let report = |plan: &str| place.run(&words!["report", place.path(plan)]);
    assert_eq!(report("plan").status, 0);

    place.file(&place.source("tree/d0/new"), 4000);
    place.file(&place.source("tree/large"), (7 << 20) + 5);
    let private = Permissions::from_mode(0o600);
    fs::set_permissions(place.source("tree/d1/f3"), private).unwrap();
    let again = words!["plan", "--again", place.path("plan"), "--out", place.path("new")];
    let ran = plan(&[again, words!["--shards", "2", "--stripe-size", "64K"]].concat());
    assert_eq!(ran.named("plan")[0]["files"], 3, "{ran:?}");
    let runs = [start("new", 1), start("new", 2)];
    for run in runs {
        run.finish().ok();
    }
    assert_same_trees(&place.source("tree"), &sshd.home("into/tree"));
    assert_eq!(report("new").status, 0);
    // A run that went elsewhere does not count.
    let words = words!["push", "--plan", place.path("new"), "--shard", "1", there("other/")];
    fs::remove_dir_all(place.path("new/reports")).unwrap();
    sshd.run(&place, &words).ok();
    assert_eq!(report("new").status, 1);
}
