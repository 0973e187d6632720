//! Tests of a fleet that is added up: reports written here, whole and damaged, of many nodes.

use super::*;
use crate::fleet::{
    line::{Ended, Files, Head, Interval, Line},
    place::name_of,
};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

const BEGAN_MS: u64 = 1_700_000_000_000;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let plan = json!({ "haul_plan": 1, "id": "this", "path": "/data", "targets": ["h:x"],
            "shards": 4096, "files": 10, "bytes": 1000 });
        fs::write(place.0.path().join("plan.json"), plan.to_string()).unwrap();
        fs::create_dir(path_of(place.0.path())).unwrap();
        place
    }

    fn plan(&self) -> Plan {
        Plan::open(self.0.path()).unwrap()
    }

    fn fleet(&self) -> Fleet {
        Fleet::read(&self.plan()).unwrap()
    }

    fn write(&self, shard: u32, attempt: u32, text: &str) {
        fs::write(path_of(self.0.path()).join(name_of(shard, attempt)), text).unwrap();
    }

    fn run(&self, (shard, attempt): (u32, u32), host: &str, lines: &[Line]) {
        self.write(shard, attempt, &text(shard, host, lines));
    }
}

fn text(shard: u32, host: &str, lines: &[Line]) -> String {
    let head = Head {
        haul_run: 1,
        plan: "this".to_owned(),
        shard,
        of: 4096,
        attempt: 1,
        host: host.to_owned(),
        boot: "another".to_owned(),
        pid: 1,
        locked: true,
        software: "haul/1".to_owned(),
        target: "h:x".to_owned(),
        began_ms: BEGAN_MS,
    };
    let mut text = serde_json::to_string(&head).unwrap() + "\n";
    for line in lines {
        text += &(serde_json::to_string(line).unwrap() + "\n");
    }
    text
}

fn interval(at_s: f64, bytes: u64, limited_by: &str) -> Line {
    let limited_by = limited_by.to_owned();
    Line::Interval(Interval { at_s, seconds: 1.0, bytes, files: 1, limited_by })
}

fn ended(lines: u64, status: u8, (done, skipped, failed): (u64, u64, u64), moved: u64) -> Line {
    Line::Ended(Box::new(Ended {
        lines,
        status,
        at_s: lines as f64,
        files: Files { done, skipped, failed, left_out: 0 },
        bytes: 100 * (done + skipped),
        moved_bytes: moved,
        limited_by: "disk".to_owned(),
        verdict: "The disk.".to_owned(),
        ..Ended::default()
    }))
}

#[test]
fn a_later_run_counts_instead_of_an_earlier_one_and_no_file_twice() {
    let place = Place::new();
    let failure = Line::Failed(Problem::in_general("gone", "", "", ""));
    // Eight of ten files, then the other two; and a third run that had nothing to do.
    place.run((1, 1), "a", &[failure.clone(), ended(2, 1, (8, 0, 2), 800)]);
    place.run((1, 2), "b", &[ended(1, 0, (2, 8, 0), 200)]);
    place.run((1, 3), "a", &[ended(1, 1, (0, 9, 1), 0)]);
    place.run((2, 1), "a", &[failure, ended(2, 1, (8, 0, 2), 800)]);
    place.run((2, 2), "a", &[interval(1.0, 50, "")]);
    let fleet = place.fleet();
    let [first, second] = &fleet.shards[..2] else { panic!("shards") };
    assert_eq!((first.state, first.runs, first.attempt), (ShardState::Done, 3, 2));
    assert_eq!((first.files, first.files_moved, first.moved_bytes), (10, 10, 1000));
    assert!(first.failures.is_empty() && first.host == "b");
    // Killed in the middle: what the first run left is still there.
    assert_eq!((second.state, second.runs, second.attempt), (ShardState::Stopped, 2, 2));
    assert_eq!((second.files, second.files_moved, second.moved_bytes), (8, 9, 850));
    assert_eq!(fleet.left().count(), 4095);
    let nodes: Vec<_> = fleet.nodes.iter().map(|it| (&*it.host, it.runs, it.shards_done)).collect();
    assert_eq!(nodes, [("a", 4, 0), ("b", 1, 1)]);
}

#[test]
fn the_slowest_node_is_named_with_what_limited_it() {
    let place = Place::new();
    let intervals = |bytes, stage| {
        let mut lines: Vec<_> = (1..=4).map(|at| interval(f64::from(at), bytes, stage)).collect();
        lines.push(ended(5, 0, (1, 0, 0), 4 * bytes));
        lines
    };
    place.run((1, 1), "fast", &intervals(1 << 30, "network"));
    place.run((2, 1), "slow", &intervals(1 << 20, "disk"));
    // Skipped all, so that its rate says nothing.
    place.run((3, 1), "idle", &[ended(1, 0, (0, 1, 0), 0)]);
    let fleet = place.fleet();
    let slowest = fleet.slowest_node().unwrap();
    assert_eq!(
        (&*slowest.host, &*slowest.limited_by, &*slowest.verdict),
        ("slow", "disk", "The disk.")
    );
    let rate = (4 << 20) as f64 * 8e-9 / 5.0;
    assert!((slowest.gbit_per_s - rate).abs() < 1e-9, "{}", slowest.gbit_per_s);
    let moved: f64 = fleet.rates.points().iter().map(|point| point.1).sum();
    let of_intervals = 4.0 * ((1 << 30) + (1 << 20)) as f64 * 8e-9 / fleet.rates.seconds();
    assert!((moved - of_intervals).abs() < 1e-6, "{moved} {of_intervals}");
}

#[test]
fn what_is_damaged_is_told_and_never_taken_for_done() {
    let place = Place::new();
    let whole = text(1, "a", &[interval(1.0, 1, ""), ended(2, 0, (1, 0, 0), 1)]);
    let lines: Vec<&str> = whole.lines().collect();
    let last = lines[2];
    let damaged = [
        whole.replace(lines[1], "\0\0\0"),
        format!("{}\n{last}\n", lines[0]),
        whole.replace("\"haul_run\":1", "\"haul_run\":2"),
        whole.replace("\"shard\":1", "\"shard\":9"),
        whole.replace("\"of\":4096", "\"of\":5"),
        format!("{whole}{last}\n"),
        format!("{}\n\"{}", lines[0], "x".repeat(300 << 10)),
        "no report at all\n".to_owned(),
    ];
    for text in &damaged {
        place.write(1, 1, text);
        let fleet = place.fleet();
        let found = (fleet.shards[0].state, fleet.faults.len());
        assert_eq!(found, (ShardState::Stopped, 1), "{text:.200}");
    }
    // Half of the last line, and a crash before the first came to the disk.
    for text in [whole.trim_end(), &whole[..whole.len() - 9], ""] {
        place.write(1, 1, text);
        let fleet = place.fleet();
        assert_eq!((fleet.shards[0].state, fleet.faults.len()), (ShardState::Stopped, 0));
    }
    place.write(1, 1, &whole.replace("\"this\"", "\"that\""));
    let fleet = place.fleet();
    assert_eq!((fleet.shards[0].state, fleet.of_another_plan), (ShardState::NotBegun, 1));
    place.write(1, 1, &whole);
    assert_eq!(place.fleet().shards[0].state, ShardState::Done);
}

#[test]
fn reports_that_others_can_write_are_not_believed() {
    let place = Place::new();
    let whole = text(1, "a", &[ended(1, 0, (1, 0, 0), 1)]);
    let reports = path_of(place.0.path());
    fs::write(place.0.path().join("elsewhere"), &whole).unwrap();
    symlink(place.0.path().join("elsewhere"), reports.join(name_of(1, 1))).unwrap();
    let fleet = place.fleet();
    assert_eq!((fleet.shards[0].state, fleet.faults.len()), (ShardState::Stopped, 1));
    assert!(fleet.faults[0].to_string().contains("symbolic link"), "{}", fleet.faults[0]);
    fs::remove_file(reports.join(name_of(1, 1))).unwrap();
    place.write(1, 1, &whole);
    let mode = |mode| fs::set_permissions(&reports, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o770);
    assert!(Fleet::read(&place.plan()).unwrap_err().to_string().contains("others can write"));
    mode(0o755);
    assert_eq!(place.fleet().shards[0].state, ShardState::Done);
    fs::rename(&reports, place.0.path().join("away")).unwrap();
    assert_eq!(place.fleet().count(ShardState::NotBegun), 4096);
    symlink("away", &reports).unwrap();
    assert!(Fleet::read(&place.plan()).is_err());
}

/// A run on another machine has no lock that is seen here, so its lines tell whether it goes.
/// Where the clock of its machine was an hour ahead, a dead run went for an hour more.
#[test]
fn a_run_elsewhere_goes_until_it_was_silent_for_a_minute() {
    let place = Place::new();
    let now_ms = crate::clocks::now_ms();
    let began = |ago_s: i64| {
        let began_ms = now_ms.saturating_add_signed(-ago_s * 1000).to_string();
        let text = text(1, "a", &[interval(10.0, 5, "")]);
        text.replace(&BEGAN_MS.to_string(), &began_ms)
    };
    // The last line is of ten seconds behind the begin.
    for (ago_s, state) in [
        (30, ShardState::Running),
        (10, ShardState::Running),
        (-45, ShardState::Running),
        (200, ShardState::Stopped),
        (-100, ShardState::Stopped),
        (-3600, ShardState::Stopped),
    ] {
        place.write(1, 1, &began(ago_s));
        assert_eq!(place.fleet().shards[0].state, state, "{ago_s} s");
    }
}

#[test]
fn a_run_is_of_the_plan_where_it_went_to_the_same_host_and_path() {
    let token = crate::Token::generate([7; 16]).unwrap().reveal();
    let place = Place::new();
    let is_of = |target: &str, targets: &[&str]| {
        let mut plan = place.plan();
        plan.targets = targets.iter().map(|target| (*target).to_owned()).collect();
        was_sent_to(target, &plan, 1)
    };
    for (target, of_plan) in [
        (format!("haul://{token}@dtn1:7/run/"), "haul://dtn1:9/run"),
        ("bob@dtn1:/run".to_owned(), "ann@dtn1:/run/"),
        ("ann@dtn1:run".to_owned(), "ann@dtn1:run/"),
    ] {
        assert!(is_of(&target, &[of_plan]), "{target} {of_plan}");
    }
    for (target, of_plan) in [
        ("haul://dtn1/run", "haul://dtn2/run"),
        ("haul://dtn1/run", "haul://dtn1/run2"),
        ("dtn1:run", "dtn1:run/7"),
        ("dtn1:run", "dtn2:run"),
        // Below the home of each.
        ("bob@dtn1:run", "ann@dtn1:run"),
    ] {
        assert!(!is_of(target, &[of_plan]), "{target} {of_plan}");
    }
    let both = ["haul://dtn1:7001/run", "haul://dtn1:7002/run"];
    assert!(is_of(both[0], &both) && !is_of(both[1], &both), "the other server of this host");
}
