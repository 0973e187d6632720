//! Plans that grow while their shards are run, and plans of what has changed since another.

use crate::harness::{
    Place, assert_same_trees,
    process::{Haul, Ran, behind, runnable},
    server::{Server, ServerSetup},
};
use haul_testkit::{mount::Mount, skip::skip, tree::names};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

/// Eight directories of six files, whose listing takes 0.8 s each.
fn slow_planner(place: &Place, words: &[OsString]) -> Option<Haul> {
    let log = place.path("strace").into_os_string().into_string().unwrap();
    let strace = ["strace", "-D", "-f", "-o", &log, "-e", "trace=getdents64", "-e"];
    let slow = runnable(&[&strace[..], &["inject=getdents64:delay_enter=400000"]].concat())?;
    Some(Haul::start(behind(&slow, place.command(words))))
}

fn tree_of_eight(place: &Place) {
    for number in 0..48 {
        place.file(&place.source(format!("tree/d{}/f{}", number / 6, number % 6)), 1000 + number);
    }
}

fn plan_of(place: &Place, name: &str) -> Value {
    let text = fs::read(place.path(name).join("plan.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Waits until the plan grows and has so many shards.
fn wait_for_shards(place: &Place, count: u64) {
    let begun = Instant::now();
    loop {
        let plan = plan_of(place, "plan");
        if plan["shards"].as_u64() >= Some(count) {
            assert!(plan["growing"].is_object(), "it is whole already: {plan}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no {count} shards: {plan}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn push(place: &Place, plan: &str, shard: u32) -> Haul {
    let shard = shard.to_string();
    place.start(&words!["push", "--plan", place.path(plan), "--shard", shard])
}

/// Paths in all shards of a plan, each once, and sorted.
fn planned(place: &Place, plan: &str) -> Vec<String> {
    let shards = plan_of(place, plan)["shards"].as_u64().unwrap();
    let mut paths = Vec::new();
    for shard in 1..=shards {
        let text = fs::read_to_string(place.path(plan).join(format!("shard-{shard:05}.jsonl")));
        for line in text.unwrap().lines().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            paths.push(line["path"].as_str().unwrap().to_owned());
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn report(place: &Place, plan: &str) -> (i32, Value) {
    let ran = place.run(&words!["report", place.path(plan)]);
    (ran.status, ran.events.last().unwrap().clone())
}

#[test]
fn a_second_planner_in_a_directory_is_refused_and_a_killed_one_blocks_nobody() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let words = |size: &[&str]| {
        let words = words!["plan", place.source("tree"), server.url("/"), "--out"];
        let size: Vec<OsString> = size.iter().map(OsString::from).collect();
        [words, words![place.path("plan"), "--json"], size].concat()
    };
    let few = words(&["--shards", "3"]);
    let Some(mut first) = slow_planner(&place, &words(&["--shards", "5"])) else { return };
    let begun = Instant::now();
    while fs::read_dir(place.path("plan")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no directory");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    for size in [&["--shards", "3"], &["--shard-size", "1M"]] {
        let second = Haul::start(place.command(&words(size))).finish();
        second.refused(&["another haul plan makes a plan in", "name another directory by --out"]);
    }
    assert!(!place.path("plan/plan.json").exists(), "the first is through already");
    first.kill();
    // What it left, were it killed a moment later.
    for shard in 1..=5 {
        fs::write(place.path(format!("plan/shard-{shard:05}.jsonl")), "half a shard").unwrap();
    }
    assert_eq!(Haul::start(place.command(&few)).finish().status, 0);
    assert_eq!(planned(&place, "plan").len(), 48);
    let shards = names(&place.path("plan")).unwrap();
    let shards = shards.iter().filter(|name| name.to_string_lossy().contains("shard-")).count();
    assert_eq!(shards, 3, "those of the first are gone");
    Haul::start(place.command(&few)).finish().refused(&["there is a plan in"]);
}

#[test]
fn the_first_shards_run_while_the_plan_is_made_and_a_run_waits_for_a_later_one() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), server.url(""), "--shard-size", "1G,6"];
    let words = [words, words!["--out", place.path("plan"), "--json"]].concat();
    let Some(planner) = slow_planner(&place, &words) else { return };
    wait_for_shards(&place, 1);
    let waiting = push(&place, "plan", 8);
    // Of runs whose number was said before that of the shards was known.
    let of_thirty =
        |shard: &str| place.start(&words!["push", "--plan", place.path("plan"), "--shard", shard]);
    let none = of_thirty("30/30");
    let ended = push(&place, "plan", 7);
    ended.wait_for_count("waiting", 1);
    ended.signal(Signal::TERM);
    assert_eq!(ended.finish().status, 1, "it is to be run again");
    assert_eq!(push(&place, "plan", 1).finish().ok()["files"]["done"], 6);
    let (status, fleet) = report(&place, "plan");
    assert_eq!((status, &fleet["whole"]), (1, &false.into()), "{fleet}");
    assert!(plan_of(&place, "plan")["growing"].is_object(), "it was not run meanwhile");
    let simulated = words!["plan", place.path("plan"), "--simulate", "nodes=1,nic=1Gbit", "--json"];
    Haul::start(place.command(&simulated)).finish().refused(&["not whole", "so far"]);
    let again = words!["plan", "--again", place.path("plan"), "--out", place.path("new")];
    let again = [again, words!["--shards", "1", "--json"]].concat();
    Haul::start(place.command(&again)).finish().refused(&["--again", "grows no more"]);
    let ran = planner.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((ran.named("shard").len(), &ran.named("plan")[0]["files"]), (8, &48.into()));
    let plan = plan_of(&place, "plan");
    assert!(plan["growing"].is_null() && plan["shards"] == 8 && plan["files"] == 48, "{plan}");
    let ran = waiting.finish();
    assert_eq!(ran.ok()["files"]["done"], 6);
    assert_eq!(ran.named("waiting")[0]["shard"], 8, "{ran:?}");
    let nothing = none.finish();
    assert_eq!(nothing.ok()["files"]["done"], 0, "there is no such shard");
    for shard in 2..8 {
        push(&place, "plan", shard).finish().ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let (status, fleet) = report(&place, "plan");
    assert_eq!((status, &fleet["whole"], &fleet["states"]["done"]), (0, &true.into(), &8.into()));
    assert_eq!(fleet["files"], 48);
    push(&place, "plan", 5000).finish().refused(&["no such shard"]);
    of_thirty("2/7").finish().refused(&["2/7", "8 shards"]);
    assert_eq!(of_thirty("2/8").finish().ok()["files"]["skipped"], 6);
    // As where a directory could not be listed.
    let file = place.path("plan/plan.json");
    let plan = fs::read_to_string(&file).unwrap().replacen('{', "{\"failed\":2,", 1);
    fs::write(&file, plan).unwrap();
    let (status, fleet) = report(&place, "plan");
    assert_eq!((status, &fleet["not_planned"]), (1, &2.into()), "{fleet}");
    let limits = words!["push", "--plan", place.path("plan"), "--shard", "1", "--json"];
    for limit in ["--min-age=1h", "--max-age=1h", "--min-size=9", "--max-size=9"] {
        let words = [limits.clone(), words![limit]].concat();
        Haul::start(place.command(&words)).finish().refused(&["cannot be used with"]);
    }
}

/// The last range of a file was in the shard that was not full.
#[test]
fn a_file_of_which_a_given_up_plan_lacks_a_range_is_planned_again() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/a"), (6 << 20) + 100_000);
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), server.url(""), "--shard-size", "1M"];
    let words = [words, words!["--stripe-size", "64K", "--out", place.path("plan")]].concat();
    let Some(planner) = slow_planner(&place, &[words, words!["--json"]].concat()) else { return };
    wait_for_shards(&place, 6);
    planner.signal(Signal::TERM);
    assert_eq!(planner.finish().status, 1);
    for shard in 1..=6 {
        push(&place, "plan", shard).finish().ok();
    }
    assert!(!place.root("tree/a").exists(), "a range is missing");
    again(&place, "plan", "rest", &words!["--shards", "1"]);
    assert!(planned(&place, "rest").contains(&"a".to_owned()));
    push(&place, "rest", 1).finish().ok();
    for name in names(&place.source("tree")).unwrap() {
        let (from, to) = (place.source("tree").join(&name), place.root("tree").join(&name));
        assert!(from.is_dir() || fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{name:?}");
    }
}

#[test]
fn a_plan_that_was_given_up_is_told_and_the_rest_is_planned_again() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), server.url(""), "--shard-size", "1G,6"];
    let words = [words, words!["--out", place.path("plan"), "--json"]].concat();
    let Some(planner) = slow_planner(&place, &words) else { return };
    wait_for_shards(&place, 2);
    let waiting = push(&place, "plan", 8);
    waiting.wait_for_count("waiting", 1);
    planner.signal(Signal::TERM);
    assert_eq!(planner.finish().status, 1);
    waiting.finish().refused(&["shard 8", "given up", "--again"]);
    let there = u32::try_from(plan_of(&place, "plan")["shards"].as_u64().unwrap()).unwrap();
    assert!((2..8).contains(&there), "{there}");
    for shard in 1..=there {
        push(&place, "plan", shard).finish().ok();
    }
    let (status, fleet) = report(&place, "plan");
    assert_eq!((status, &fleet["whole"]), (1, &false.into()), "names are in no shard");
    let rest = again(&place, "plan", "rest", &words!["--shards", "1"]);
    assert_eq!(rest.named("plan")[0]["files"], 48 - 6 * there, "{rest:?}");
    push(&place, "rest", 1).finish().ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

/// Room for the plan's file is what the shard took that did not come to its end.
#[test]
fn a_planner_that_finds_a_full_disk_says_so_in_the_plan_and_the_report_names_the_cure() {
    let place = Place::new();
    place.tree(&place.source("tree"), 4, 50);
    fs::create_dir(place.path("plan")).unwrap();
    let _mount = match Mount::tmpfs(&place.path("plan"), "16k") {
        Ok(mount) => mount,
        Err(why) => return skip("a small disk of its own", &why),
    };
    let words = words!["plan", place.source("tree"), "dtn1:/data/", "--shard-size", "1G"];
    let words = [words, words!["--json", "--out", place.path("plan")]].concat();
    Haul::start(place.command(&words)).finish().refused(&["cannot write the plan"]);
    let names = names(&place.path("plan")).unwrap();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".new")), "{names:?}");
    assert_eq!(plan_of(&place, "plan")["growing"]["given_up"], true);
    let said = place.command(&words!["report", place.path("plan")]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("nobody makes the plan any more") && text.contains("--again"), "{text}");
}

/// No beat and no lock tells of a planner that was killed, though its plan still grows.
#[test]
fn the_report_of_a_plan_whose_planner_was_killed_names_the_cure() {
    let place = Place::new();
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), "dtn1:/data/", "--shard-size", "1G,6"];
    let words = [words, words!["--out", place.path("plan"), "--json"]].concat();
    let Some(mut planner) = slow_planner(&place, &words) else { return };
    wait_for_shards(&place, 2);
    planner.kill();
    let file = place.path("plan/plan.json");
    let file = fs::File::options().write(true).open(file).unwrap();
    let report = || {
        let said = place.command(&words!["report", place.path("plan")]).output().unwrap();
        (said.status.code(), String::from_utf8(said.stdout).unwrap())
    };
    let (status, text) = report();
    assert!(status == Some(1) && text.contains("the plan is still made"), "{text}");
    file.set_modified(SystemTime::now() - Duration::from_secs(70)).unwrap();
    let (status, text) = report();
    assert!(status == Some(1) && text.contains("nobody makes the plan any more"), "{text}");
    assert!(text.contains("and then plan what is missing: haul plan --again"), "{text}");
    let words = words!["plan", place.path("plan"), "--simulate", "nodes=1,nic=1G", "--json"];
    Haul::start(place.command(&words)).finish().refused(&["nobody makes more", "--again"]);
}

fn again(place: &Place, earlier: &str, new: &str, words: &[OsString]) -> Ran {
    let plans = words!["plan", "--again", place.path(earlier), "--out", place.path(new), "--json"];
    let ran = Haul::start(place.command(&[&plans[..], words].concat())).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    ran
}

fn touch(path: &Path) {
    let later = SystemTime::now() + Duration::from_secs(7);
    fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
}

#[test]
fn what_differs_from_an_earlier_plan_is_planned_and_no_more() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let source = |name: &str| place.source("tree").join(name);
    place.file(&source("d3/left-out.tmp"), 9);
    symlink("f1", source("d3/link")).unwrap();
    symlink("f2", source("d3/other-link")).unwrap();
    fs::create_dir_all(source("d9/empty")).unwrap();
    let words = words!["plan", place.source("tree"), server.url(""), "--shards", "3"];
    let words = [words, words!["--exclude", "*.tmp", "--out", place.path("plan")]].concat();
    assert_eq!(place.run(&words).status, 0);
    // No run has moved anything yet.
    let ran = again(&place, "plan", "all", &words!["--shards", "2"]);
    assert_eq!(ran.named("plan")[0]["unchanged"], 0);
    assert_eq!(planned(&place, "all"), planned(&place, "plan"));
    for shard in 1..=3 {
        push(&place, "plan", shard).finish().ok();
    }
    let ran = again(&place, "plan", "none", &words!["--shard-size", "1G"]);
    assert_eq!(ran.named("plan")[0]["files"], 0, "{ran:?}");
    assert_eq!(ran.named("plan")[0]["unchanged"], 51);
    push(&place, "none", 1).finish().ok();

    place.file(&source("d0/new"), 10);
    place.file(&source("d00/new-directory/file"), 10);
    place.file(&source("d9/empty/no-more"), 1);
    place.file(&source("d5/new.tmp"), 10);
    place.file(&source("d1/f1"), 77);
    touch(&source("d2/f2"));
    fs::remove_file(source("d3/f3")).unwrap();
    fs::remove_dir_all(source("d4")).unwrap();
    fs::remove_file(source("d3/link")).unwrap();
    symlink("f2", source("d3/link")).unwrap();
    fs::remove_file(source("d3/other-link")).unwrap();
    place.file(&source("d3/other-link"), 0);
    let ran = again(&place, "plan", "changed", &words!["--shards", "2"]);
    let changed = [
        "d0/new",
        "d00/new-directory/file",
        "d1/f1",
        "d2/f2",
        "d3/link",
        "d3/other-link",
        "d9/empty/no-more",
    ];
    assert_eq!(planned(&place, "changed"), changed);
    // Six files of a directory, a file, and the empty directory that is none any more.
    let plan = &ran.named("plan")[0];
    assert_eq!((&plan["gone"], &plan["unchanged"]), (&8.into(), &(51 - 8 - 4).into()), "{plan}");
    for shard in 1..=2 {
        push(&place, "changed", shard).finish().ok();
    }
    let name = |root: &Path, name: &str| fs::read(root.join(name)).unwrap();
    for file in changed {
        let there = place.root("tree");
        assert_eq!(name(&there, file), name(&place.source("tree"), file), "{file}");
    }
    assert!(
        !names(&place.root("tree")).unwrap().iter().any(|it| it.to_string_lossy().contains("tmp"))
    );
    let words = words!["--again", place.path("changed"), "--shards", "1"];
    let ran = again(&place, "plan", "nothing", &words);
    assert_eq!(ran.named("plan")[0]["files"], 0, "{ran:?}");
}

/// Case of a chmod(1), and of an editor that sets size and time back: the change time of the inode
/// tells. A name whose change time an earlier plan does not tell counts by size and time.
#[test]
fn another_mode_and_other_bytes_of_the_same_size_and_time_are_planned_again() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let path = |name: &str| place.source("tree").join(name);
    fs::create_dir_all(path("d9/empty")).unwrap();
    let words = words!["plan", place.source("tree"), server.url(""), "--shards", "2"];
    let words = [words, words!["--out", place.path("plan")]].concat();
    assert_eq!(place.run(&words).status, 0);
    for shard in 1..=2 {
        push(&place, "plan", shard).finish().ok();
    }
    let modified = |name: &str| fs::metadata(path(name)).unwrap().modified().unwrap();
    let (of_mode, of_bytes) = (modified("d1/f1"), modified("d2/f2"));
    fs::set_permissions(path("d1/f1"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(path("d9/empty"), Permissions::from_mode(0o750)).unwrap();
    let bytes = fs::read(path("d2/f2")).unwrap();
    fs::write(path("d2/f2"), vec![7; bytes.len()]).unwrap();
    fs::File::options().write(true).open(path("d2/f2")).unwrap().set_modified(of_bytes).unwrap();
    assert_eq!((modified("d1/f1"), modified("d2/f2")), (of_mode, of_bytes));
    again(&place, "plan", "changed", &words!["--shards", "1"]);
    assert_eq!(planned(&place, "changed"), ["d1/f1", "d2/f2", "d9/empty"]);
    push(&place, "changed", 1).finish().ok();
    for (name, mode) in [("d1/f1", 0o640), ("d9/empty", 0o750)] {
        let there = fs::metadata(place.root("tree").join(name)).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, mode, "{name}");
    }
    let both = words!["--again", place.path("changed"), "--shards", "1"];
    again(&place, "plan", "nothing", &both);
    assert_eq!(planned(&place, "nothing"), [""; 0]);
    // A plan of another tool, or of an earlier haul.
    for shard in 1..=2 {
        let file = place.path(format!("plan/shard-{shard:05}.jsonl"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"ctime_", "\"was_ctime_")).unwrap();
    }
    again(&place, "plan", "blind", &words!["--shards", "1"]);
    assert_eq!(planned(&place, "blind"), [""; 0]);
}

/// A file has the size and the time again that it had in the first of two plans: the target has
/// what the second brought.
#[test]
fn of_several_plans_that_have_a_name_the_last_counts() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), server.url(""), "--shards", "1"];
    let words = [words, words!["--out", place.path("plan")]].concat();
    assert_eq!(place.run(&words).status, 0);
    push(&place, "plan", 1).finish().ok();
    let path = place.source("tree/d1/f1");
    let (first, time) =
        (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    fs::write(&path, vec![7; first.len()]).unwrap();
    touch(&path);
    again(&place, "plan", "second", &words!["--shards", "1"]);
    push(&place, "second", 1).finish().ok();
    fs::write(&path, &first).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let both = words!["--again", place.path("second"), "--shards", "1"];
    again(&place, "plan", "third", &both);
    assert_eq!(planned(&place, "third"), ["d1/f1"]);
    push(&place, "third", 1).finish().ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    // Plans of two sources are none of one another.
    place.tree(&place.source("other"), 1, 2);
    let words = words!["plan", place.source("other"), server.url(""), "--shards", "1"];
    let words = [words, words!["--out", place.path("other")]].concat();
    assert_eq!(place.run(&words).status, 0);
    let plans = words!["plan", "--again", place.path("plan"), "--again", place.path("other")];
    let rest = words!["--out", place.path("new"), "--shards", "1", "--json"];
    Haul::start(place.command(&[plans, rest].concat())).finish().refused(&["one source"]);
}

#[test]
fn a_file_of_which_one_range_was_not_moved_is_planned_again_whole() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/large"), 6 << 20);
    place.tree(&place.source("tree"), 1, 9);
    let words = words!["plan", place.source("tree"), server.url(""), "--stripe-size", "64K"];
    let words = [words, words!["--shards", "3", "--out", place.path("plan")]].concat();
    assert_eq!(place.run(&words).status, 0);
    for shard in [1, 3] {
        push(&place, "plan", shard).finish().ok();
    }
    let ran = again(&place, "plan", "rest", &words!["--shards", "1"]);
    let lines = fs::read_to_string(place.path("rest/shard-00001.jsonl")).unwrap();
    let large = lines.lines().find(|line| line.contains("large")).expect("it is not moved");
    assert!(large.contains(&format!("\"bytes\":{}", 6 << 20)), "{large}");
    assert!(!large.contains("range_begin"), "{large}");
    push(&place, "plan", 2).finish().ok();
    let done = again(&place, "plan", "nothing", &words!["--shards", "1"]);
    assert_eq!(done.named("plan")[0]["files"], 0, "{ran:?} {done:?}");
    // A file that was planned in ranges and has grown.
    place.file(&place.source("tree/large"), 7 << 20);
    again(&place, "plan", "grown", &words!["--shards", "2", "--stripe-size", "64K"]);
    assert_eq!(planned(&place, "grown"), ["large"]);
}

/// Case of two servers that share nothing: what has changed replaces what is there.
#[test]
fn what_has_changed_goes_to_the_server_that_has_it() {
    let place = Place::new();
    let servers = ["one", "two"].map(|name| {
        fs::create_dir(place.path(name)).unwrap();
        let state = place.path(format!("state-{name}"));
        ServerSetup::new(&place).root(place.path(name)).state(state).start(&place)
    });
    tree_of_eight(&place);
    let urls = servers.each_ref().map(|server| server.url(""));
    let words = words!["plan", place.source("tree"), urls[0], urls[1], "--shards", "4"];
    assert_eq!(place.run(&[words, words!["--out", place.path("plan")]].concat()).status, 0);
    for shard in 1..=4 {
        push(&place, "plan", shard).finish().ok();
    }
    let name_of = |number: u32| format!("d{}/f{}", number / 6, number % 6);
    for number in (0..48).filter(|number| number % 3 == 0) {
        place.file(&place.source("tree").join(name_of(number)), 5000 + u64::from(number));
        touch(&place.source("tree").join(name_of(number)));
    }
    place.file(&place.source("tree/new/file"), 100);
    let ran = again(&place, "plan", "new", &words!["--shards", "3"]);
    assert_eq!(ran.named("plan")[0]["files"], 17, "{ran:?}");
    for shard in 1..=3 {
        push(&place, "new", shard).finish().ok();
    }
    for name in (0..48).map(name_of).chain(["new/file".to_owned()]) {
        let source = fs::read(place.source("tree").join(&name)).unwrap();
        let there = ["one", "two"].map(|root| fs::read(place.path(root).join("tree").join(&name)));
        let there: Vec<_> = there.into_iter().filter_map(Result::ok).collect();
        assert!(there == [source], "{name} is at {} servers, or as it was", there.len());
    }
    for (number, (options, refused)) in
        [(["--shards", "1"], "at least 2 shards"), (["--shard-size", "1M"], "--shared-target")]
            .into_iter()
            .enumerate()
    {
        let out = place.path(format!("refused-{number}"));
        let words = words!["plan", "--again", place.path("plan"), "--out", out, "--json"];
        let words = [words, words![options[0], options[1]]].concat();
        Haul::start(place.command(&words)).finish().refused(&["--again", refused]);
    }
    again(&place, "plan", "shared", &words!["--shard-size", "1M", "--shared-target"]);
}

/// A file system that answers late is asked for several names at a time, also by patterns.
#[test]
fn a_slow_file_system_is_listed_by_several_at_once() {
    let place = Place::new();
    for directory in 0..60 {
        let at = place.source(format!("tree/d{directory}"));
        fs::create_dir_all(&at).unwrap();
        (0..100).for_each(|file| fs::write(at.join(format!("f{file}")), "x").unwrap());
    }
    let log = place.path("strace").into_os_string().into_string().unwrap();
    let calls = "trace=newfstatat,statx";
    let slow = "inject=newfstatat,statx:delay_enter=1000";
    let strace = ["strace", "-D", "-f", "-o", &log, "-e", calls, "-e", slow];
    let Some(strace) = runnable(&strace) else { return };
    // What a pattern leaves out the walk does not come to, and no thread looks at it.
    for (number, pattern) in [None, Some("*.tmp")].into_iter().enumerate() {
        let out = place.path(format!("plan-{number}"));
        let words = words!["plan", place.source("tree"), "dtn1:/data/", "--shards", "2"];
        let exclude = pattern.map_or(Vec::new(), |pattern| words!["--exclude", pattern]);
        let words = [words, words!["--out", out, "--json"], exclude].concat();
        let ran = Haul::start(behind(&strace, place.command(&words))).finish();
        assert_eq!((ran.status, &ran.named("plan")[0]["files"]), (0, &6000.into()), "{ran:?}");
        // Each line begins with the number of the thread.
        let text = fs::read_to_string(&log).unwrap();
        let mut looks = std::collections::BTreeMap::<&str, u32>::new();
        for line in text.lines().filter(|line| line.contains("stat")) {
            *looks.entry(line.split(' ').next().unwrap()).or_default() += 1;
        }
        let busy = looks.values().filter(|count| **count > 100).count();
        let is_as_meant = if pattern.is_none() { busy >= 4 } else { busy == 1 };
        assert!(is_as_meant, "{busy} threads looked at many names, {pattern:?}: {looks:?}");
    }
}

#[test]
fn a_plan_that_cannot_be_made_again_says_why() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of_eight(&place);
    let words = words!["plan", place.source("tree"), server.url(""), "--shards", "2"];
    let words = [words, words!["--out", place.path("plan")]].concat();
    assert_eq!(place.run(&words).status, 0);
    let refused = |more: &[OsString], words: &[&str]| {
        let plan = words!["plan", "--again", place.path("plan"), "--out", place.path("new")];
        let plan = [&plan[..], more, &words!["--json"]].concat();
        Haul::start(place.command(&plan)).finish().refused(words);
    };
    refused(&words!["--shards", "2", "--exclude", "*.o"], &["--again", "--exclude"]);
    refused(&words![place.source("tree"), "--shards", "2"], &["--again", "no SOURCE"]);
    // Another tool may have written the lines in another order.
    let shard = place.path("plan/shard-00001.jsonl");
    let text = fs::read_to_string(&shard).unwrap();
    let (head, lines) = text.split_once('\n').unwrap();
    let turned: Vec<&str> = lines.lines().rev().collect();
    fs::write(&shard, format!("{head}\n{}\n", turned.join("\n"))).unwrap();
    refused(&words!["--shards", "2"], &["order of a walk"]);
    push(&place, "plan", 1).finish().ok();
}
