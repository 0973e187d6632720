//! Plans: a tree cut into shards, each moved by a run of its own.

use crate::harness::{
    Place, as_nobody, assert_same_trees, is_root,
    process::{Haul, Ran, behind, runnable},
    server::{Server, ServerSetup},
};
use haul_testkit::{mount::Mount, skip::skip};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    os::unix::{
        ffi::OsStringExt,
        fs::{PermissionsExt, symlink},
    },
    time::{Duration, Instant},
};

/// A tree with all that a shard may hold.
fn tree_of(place: &Place) -> u64 {
    place.tree(&place.source("tree"), 4, 50);
    place.file(&place.source("tree/large"), 9 << 20);
    let odd = OsString::from_vec(b"odd \xff\n\"name".to_vec());
    place.file(&place.source("tree/d0").join(odd), 1000);
    symlink("d0/f1", place.source("tree/link")).unwrap();
    fs::create_dir_all(place.source("tree/no/thing/here")).unwrap();
    4 * 50 + 3
}

fn planned(place: &Place, words: &[OsString]) -> Ran {
    let words = [&words!["plan"], words, &words!["--json", "--out", place.path("plan")]].concat();
    Haul::start(place.command(&words)).finish()
}

fn push_shard(place: &Place, shard: &str) -> Ran {
    place.push(&words!["--plan", place.path("plan"), "--shard", shard])
}

fn lines_of(place: &Place, shard: u32) -> Vec<Value> {
    let text = fs::read_to_string(place.path(format!("plan/shard-{shard:05}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn shards_together_move_the_tree_and_each_name_is_in_one() {
    let place = Place::new();
    let server = Server::start(&place);
    let files = tree_of(&place);
    let words = words![place.source("tree"), server.url(""), server.url(""), "--shards", "5"];
    let ran = planned(&place, &words);
    assert_eq!(ran.status, 0, "{ran:?}");
    // Four directories of the tree hold an empty one, and one lies deep.
    let plan = &ran.named("plan")[0];
    assert_eq!((&plan["files"], &plan["targets"]), (&(files + 5).into(), &2.into()), "{plan}");
    let said = (1..=5).map(|shard| lines_of(&place, shard));
    let mut names = Vec::new();
    for (lines, shard) in said.zip(ran.named("shard")) {
        assert_eq!(lines[0]["files"].as_u64().unwrap() as usize, lines.len() - 1);
        assert_eq!(lines[0]["bytes"], shard["bytes"]);
        let sum: u64 = lines[1..].iter().map(|line| line["bytes"].as_u64().unwrap()).sum();
        assert_eq!(lines[0]["bytes"], sum);
        names.extend(lines[1..].iter().map(|line| line["path"].as_str().unwrap().to_owned()));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u64, files + 5);
    let mode = fs::metadata(place.path("plan/plan.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds tokens");
    for shard in ["1", "2/5", "3", "4", "5"] {
        push_shard(&place, shard).ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn shards_take_the_targets_in_turn_and_the_number_from_the_scheduler() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of(&place);
    let source = OsString::from(format!("{}/", place.source("tree").display()));
    let words =
        words![source, server.url("a/"), server.url("b/"), "--shards", "2", "--exclude", "large"];
    assert_eq!(planned(&place, &words).status, 0);
    for index in ["0", "1"] {
        let words = words!["push", "--plan", place.path("plan"), "--shard", "auto", "--json"];
        let mut command = place.command(&words);
        command.env("JOB_COMPLETION_INDEX", index);
        Haul::start(command).finish().ok();
    }
    let count = |root: &str| haul_testkit::tree::names(&place.root(root)).unwrap().len();
    assert!(count("a") > 50 && count("b") > 50, "{} {}", count("a"), count("b"));
    // Shard K goes to the target with the number (K - 1) mod M.
    for (shard, (own, other)) in [(1, ("a", "b")), (2, ("b", "a"))] {
        for line in lines_of(&place, shard)[1..].iter().filter(|line| line["kind"] == "file") {
            let Some(name) = line["path"].as_str().filter(|_| line["path_encoded"].is_null())
            else {
                continue;
            };
            let is_in = |root: &str| place.root(root).join(name).exists();
            assert_eq!((is_in(own), is_in(other)), (true, false), "{line} of shard {shard}");
        }
    }
    let large = |root: &str| place.root(root).join("large").exists();
    assert!(!large("a") && !large("b"), "it is left out");
}

/// A scheduler runs again what ended with 1, and gives up what ended with 2.
#[test]
fn a_server_that_is_away_or_full_is_a_reason_to_run_the_shard_again() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--max-sessions", "1"]).start(&place);
    place.file(&place.source("tree/large"), 8 << 20);
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    let slow = words![place.source("tree/large"), server.url("slow"), "--bwlimit", "1M"];
    let mut slow = place.start(&[words!["push"], slow].concat());
    slow.wait_for_bytes("bytes_received", 1);
    let part = words![place.source("tree"), server.url(""), "--part", "1/1"];
    let plain = words![place.source("tree"), server.url("")];
    let statuses = || {
        let ran = [push_shard(&place, "1"), place.push(&part), place.push(&plain)];
        ran.map(|ran| ran.status)
    };
    assert_eq!(statuses(), [1, 1, 2], "no session is free");
    slow.kill();
    drop(server);
    assert_eq!(statuses(), [1, 1, 2], "nobody listens");
}

/// A scheduler tells a run that its time is up by a signal of its own choice.
#[test]
fn a_signal_that_was_named_ends_a_run_so_that_the_next_goes_on() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/large"), 24 << 20);
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    let shard = words!["push", "--plan", place.path("plan"), "--shard", "1"];
    let slow = words!["--bwlimit", "6M", "--span-size", "1M", "--signal", "SIGUSR1"];
    let run = place.start(&[&shard[..], &slow].concat());
    run.wait_for_bytes("bytes_durable", 4 << 20);
    let told = Instant::now();
    run.signal(Signal::USR1);
    let ran = run.finish();
    assert_eq!(ran.status, 1, "the shard is to be run again: {ran:?}");
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    let ran = push_shard(&place, "1");
    assert!(ran.gone_on_from() >= 4 << 20, "{ran:?}");
    ran.ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let refused = words!["--signal", "KILL"];
    Haul::start(place.command(&[&shard[..], &refused, &words!["--json"]].concat()))
        .finish()
        .refused(&["--signal", "USR1"]);
}

/// Case of a scheduler that ends a run while its server says nothing at all.
#[test]
fn a_run_whose_server_is_silent_or_away_ends_within_ten_seconds_of_sigterm() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/large"), 24 << 20);
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    let shard = words!["push", "--plan", place.path("plan"), "--shard", "1"];
    let ends = |run: Haul, what: &str| {
        let told = Instant::now();
        run.signal(Signal::TERM);
        let ran = run.finish();
        assert!(told.elapsed() < Duration::from_secs(10), "{what}: {:?}", told.elapsed());
        assert_eq!(ran.status, 1, "{what}: {ran:?}");
    };
    let stopped = |signal| server.process.signal(signal);
    // In the middle of its data.
    let slow = words!["--bwlimit", "4M", "--span-size", "1M"];
    let run = place.start(&[&shard[..], &slow].concat());
    run.wait_for_bytes("bytes_durable", 2 << 20);
    stopped(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    ends(run, "a server that stopped in the middle");
    // Before it has said anything.
    for wait in [&words![][..], &words!["--wait"]] {
        let run = place.start(&[&shard[..], wait].concat());
        std::thread::sleep(Duration::from_secs(1));
        ends(run, "a server that accepts and says nothing");
    }
    stopped(Signal::CONT);
    // Nobody answers there: a network for documents (RFC 5737).
    for wait in [&words![][..], &words!["--wait"]] {
        let nowhere = words![format!("haul://{}@192.0.2.1:7117/", server.token().reveal())];
        let run = place.start(&[&shard[..], &nowhere, wait].concat());
        std::thread::sleep(Duration::from_secs(1));
        ends(run, "an address that answers nothing");
    }
    let (token, gone) = (server.token().reveal(), server.address());
    drop(server);
    let words = words![format!("haul://{token}@{gone}/"), "--wait"];
    let run = place.start(&[&shard[..], &words].concat());
    std::thread::sleep(Duration::from_secs(1));
    ends(run, "a port at which nobody listens");
}

/// A directory of which the patterns leave nothing is made, and what they left out stays here.
#[test]
fn what_is_left_out_of_a_plan_is_in_no_shard() {
    let place = Place::new();
    let server = Server::start(&place);
    for name in ["keys/secret.key", "keys/deep/other.key", "data", "late/.keep"] {
        place.file(&place.source("tree").join(name), 100);
    }
    let words = words![place.source("tree"), server.url(""), "--shards", "1", "--exclude", "*.key"];
    assert_eq!(planned(&place, &words).status, 0);
    let paths: Vec<Value> = lines_of(&place, 1)[1..].iter().map(|it| it["path"].clone()).collect();
    assert_eq!(paths, ["data", "keys/deep", "late/.keep"]);
    push_shard(&place, "1").ok();
    for (name, is_there) in [("data", true), ("keys/deep", true), ("keys/secret.key", false)] {
        assert_eq!(place.root("tree").join(name).exists(), is_there, "{name}");
    }
    assert_eq!(fs::read_dir(place.root("tree/keys/deep")).unwrap().count(), 0);
}

/// A plan says what goes where, and has the tokens.
#[test]
fn a_plan_of_others_is_not_run_and_none_lies_where_it_would_be_moved() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 1, 9);
    let words = words!["plan", ".", server.url(""), "--shards", "2", "--json", "--out", "plan"];
    let mut within = place.command(&words);
    within.current_dir(place.source("tree"));
    Haul::start(within).finish().refused(&["outside of the source"]);
    // What lies there already is neither followed nor kept.
    fs::create_dir(place.path("plan")).unwrap();
    fs::write(place.path("mine"), "untouched").unwrap();
    for name in [".plan.json.new", ".lines.new", "shard-00001.jsonl"] {
        symlink(place.path("mine"), place.path("plan").join(name)).unwrap();
    }
    let words = words![place.source("tree"), server.url(""), "--shards", "2"];
    assert_eq!(planned(&place, &words).status, 0);
    assert_eq!(fs::read_to_string(place.path("mine")).unwrap(), "untouched");
    let mode = fs::metadata(place.path("plan/shard-00001.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let plan = place.path("plan/plan.json");
    fs::set_permissions(&plan, fs::Permissions::from_mode(0o620)).unwrap();
    push_shard(&place, "1").refused(&["nobody but its user", "mode 620"]);
    fs::set_permissions(&plan, fs::Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(&plan).unwrap();
    let id = serde_json::from_str::<Value>(&text).unwrap()["id"].as_str().unwrap().to_owned();
    fs::write(&plan, text.replace(&id, "another")).unwrap();
    push_shard(&place, "1").refused(&["the shard of another plan"]);
    fs::write(&plan, text).unwrap();
    push_shard(&place, "1").ok();
}

#[test]
fn a_shard_that_is_run_twice_at_once_or_killed_is_run_again() {
    let place = Place::new();
    let server = Server::start(&place);
    tree_of(&place);
    planned(&place, &words![place.source("tree"), server.url(""), "--shards", "2"]);
    let start = |shard: &str, rate: &str| {
        let words = words!["push", "--plan", place.path("plan"), "--shard", shard];
        place.start(&[words, words!["--bwlimit", rate]].concat())
    };
    let mut killed = ["1", "2"].map(|shard| start(shard, "2M"));
    // The shard with 9 MiB in one file is in the middle then; the other may be over.
    let has_large = |shard| lines_of(&place, shard).iter().any(|line| line["path"] == "large");
    killed[usize::from(has_large(2))].wait_for_bytes("bytes_received", 1);
    killed.iter_mut().for_each(Haul::kill);
    for twice in ["1", "1", "2", "2"].map(|shard| start(shard, "20M")) {
        let status = twice.finish().status;
        assert!(status <= 1, "status {status}: of two writers one may say that the other is there");
    }
    for shard in ["1", "2"] {
        push_shard(&place, shard).ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn what_is_no_plan_and_no_shard_ends_with_two() {
    let place = Place::new();
    let server = Server::start(&place);
    fs::create_dir(place.path("plan")).unwrap();
    push_shard(&place, "1").refused(&["cannot read the plan", "haul plan"]);
    place.tree(&place.source("tree"), 1, 3);
    let words = words![place.source("tree"), server.url(""), "--shards", "2"];
    assert_eq!(planned(&place, &words).status, 0);
    planned(&place, &words).refused(&["there is a plan", "another directory"]);
    push_shard(&place, "3").refused(&["no such shard", "from 1 to 2"]);
    push_shard(&place, "1/3").refused(&["the 2 shards of the plan"]);
    push_shard(&place, "auto").refused(&["SLURM_ARRAY_TASK_ID"]);
    let shard = place.path("plan/shard-00001.jsonl");
    let text = fs::read_to_string(&shard).unwrap();
    let cut = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    for broken in [cut, "", &text.replace("\"f", "\"../f"), &text.replace(":1,", ":9,")] {
        fs::write(&shard, broken).unwrap();
        push_shard(&place, "1").refused(&["cannot read the shard"]);
    }
    fs::remove_dir_all(place.path("plan")).unwrap();
    let file = words![place.source("tree/d0/f0"), server.url(""), "--shards", "2"];
    planned(&place, &file).refused(&["a directory", "a single file"]);
    let two = words![place.source("tree"), place.source("tree"), "--shards", "2"];
    planned(&place, &two).refused(&["haul serve"]);
    assert!(!place.path("plan").exists());
}

/// Case of a pipe in the place of a file of the plan: a run waited for its writer, and no signal
/// ended it.
#[test]
fn a_pipe_in_the_place_of_a_plans_file_ends_with_two_and_a_link_is_followed() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 1, 3);
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    for name in ["shard-00001.jsonl", "plan.json"] {
        let (path, kept) = (place.path("plan").join(name), place.path("kept"));
        fs::rename(&path, &kept).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        push_shard(&place, "1").refused(&[name, "it is no file"]);
        let simulated =
            words!["plan", place.path("plan"), "--simulate", "nodes=1,nic=1G", "--json"];
        Haul::start(place.command(&simulated)).finish().refused(&[name, "it is no file"]);
        fs::remove_file(&path).unwrap();
        symlink(&kept, &path).unwrap();
        push_shard(&place, "1").ok();
        fs::remove_file(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
    }
    push_shard(&place, "1").ok();
}

#[test]
fn a_plan_that_was_made_stays_where_it_cannot_be_simulated_and_the_error_says_so() {
    let place = Place::new();
    place.tree(&place.source("tree"), 2, 6);
    let fleet = |start: &str| format!("nodes=2,disk=1M,mtbf=1s,repair=1s,requeue=1s,start={start}");
    let words = words![place.source("tree"), "dtn1:/data/", "--shards", "2", "--simulate"];
    let ran = planned(&place, &[words, words![fleet("60s")]].concat());
    assert_eq!(ran.status, 1, "the plan is there: {ran:?}");
    ran.says(&["never be through", "the plan is made: haul plan", "--simulate FLEET"]);
    let words = words!["plan", place.path("plan"), "--json", "--simulate"];
    let later = |start: &str| {
        let words = [&words[..], &words![fleet(start)]].concat();
        Haul::start(place.command(&words)).finish()
    };
    later("60s").refused(&["never be through"]);
    assert_eq!(later("0s").status, 0);
}

/// Case of a token that was revoked, or has expired, after the plan was made.
#[test]
fn a_run_of_a_plan_takes_another_token_and_another_server_in_the_place_of_the_plans() {
    let place = Place::new();
    place.tree(&place.source("tree"), 2, 6);
    let gone = Server::start(&place);
    let words = words![place.source("tree"), gone.url(""), "--shards", "2"];
    assert_eq!(planned(&place, &words).status, 0);
    drop(gone);
    let server = ServerSetup::new(&place).state(place.path("state2")).start(&place);
    assert_eq!(push_shard(&place, "1").status, 1, "its server is gone");
    let run = |shard: &str, urls: &[OsString]| {
        let words = words!["--plan", place.path("plan"), "--shard", shard];
        place.push(&[&words[..], urls].concat())
    };
    run("1", &words![server.url(""), server.url("")]).refused(&["1, in the order of the plan"]);
    run("1", &words![place.source("tree")]).refused(&["with --plan the words are URLs"]);
    run("1", &words![server.url("")]).ok();
    // Without a token in it, for other users see the words of a command.
    let url = server.url("").into_string().unwrap();
    let (token, rest) = url.strip_prefix("haul://").unwrap().split_once('@').unwrap();
    fs::write(place.path("token"), token).unwrap();
    let by_file = words![format!("haul://{rest}"), "--token-file", place.path("token")];
    run("2", &by_file).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let report = place.run(&words!["report", place.path("plan")]);
    assert_eq!(report.status, 0, "{report:?}");
}

/// Files of a plan in whose place something without bytes of its own is by now.
#[test]
fn no_run_says_done_of_a_file_whose_place_something_else_took_since_it_was_planned() {
    let place = Place::new();
    let server = Server::start(&place);
    for (name, bytes) in [("f1", 5), ("f2", 5), ("f3", 5), ("big", 40 << 20)] {
        place.file(&place.source("tree").join(name), bytes);
    }
    fs::create_dir(place.source("tree/empty")).unwrap();
    let words =
        words![place.source("tree"), server.url(""), "--shards", "2", "--stripe-size", "1M"];
    assert_eq!(planned(&place, &words).status, 0);
    for name in ["f1", "f2", "big", "empty"] {
        let path = place.source("tree").join(name);
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    }
    for name in ["f1", "empty"] {
        let path = place.source("tree").join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600))
            .unwrap();
    }
    for name in ["f2", "big"] {
        fs::create_dir(place.source("tree").join(name)).unwrap();
        fs::write(place.source("tree").join(name).join("inside"), "x").unwrap();
    }
    let ran = [push_shard(&place, "1"), push_shard(&place, "2")];
    assert_eq!(ran.each_ref().map(|ran| ran.status), [1, 1], "{ran:?}");
    let said = |name: &str| {
        let path = format!("tree/{name}");
        let failed = |ran: &Ran| {
            let errors = ran.named("error");
            errors
                .iter()
                .any(|it| it["path"] == *path && it["found"].as_str().unwrap().contains("planned"))
        };
        ran.iter().any(failed)
    };
    let told = ["f1", "f2", "f3", "big", "empty"].map(said);
    assert_eq!(told, [true, true, false, true, true], "{ran:?}");
    let assert_left = || {
        let report = place.run(&words!["report", place.path("plan")]);
        assert_eq!(report.status, 1, "{report:?}");
        assert_eq!(report.named("fleet")[0]["left"], "1-2", "{report:?}");
    };
    assert_left();
    fs::remove_dir_all(place.source("tree")).unwrap();
    fs::write(place.source("tree"), "a file").unwrap();
    for shard in ["1", "2"] {
        let ran = push_shard(&place, shard);
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["when it was planned"]);
    }
    assert_left();
}

/// Case of a node on which the mount of the source is missing: another node may have it, and it may
/// come back.
#[test]
fn a_shard_whose_source_is_not_there_is_to_be_run_again() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 2, 6);
    let words = words![place.source("tree"), server.url(""), "--shards", "2"];
    assert_eq!(planned(&place, &words).status, 0);
    fs::rename(place.source("tree"), place.path("away")).unwrap();
    let ran = push_shard(&place, "1");
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["cannot read the source"]);
    let part = |words: &[OsString]| place.push(&[words, &words![server.url("")]].concat());
    assert_eq!(part(&words![place.source("tree"), "--part", "1/2"]).status, 1);
    assert_eq!(part(&words![place.source("tree")]).status, 2, "nobody runs it again by itself");
    fs::rename(place.path("away"), place.source("tree")).unwrap();
    push_shard(&place, "1").ok();
    // The mount of the server is missing.
    fs::rename(place.root(""), place.path("away")).unwrap();
    let ran = push_shard(&place, "2");
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(part(&words![place.source("tree"), "--part", "1/2"]).status, 1);
    assert_eq!(part(&words![place.source("tree")]).status, 2, "nobody runs it again by itself");
    fs::rename(place.path("away"), place.root("")).unwrap();
    push_shard(&place, "2").ok();
}

/// Case of a node on which the home directory with the token is not mounted.
#[test]
fn a_shard_whose_token_is_not_there_is_to_be_run_again_and_one_with_another_is_not() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/x"), 5);
    let url = server.url("").into_string().unwrap();
    let (token, host) = url.trim_start_matches("haul://").split_once('@').unwrap();
    let bare = format!("haul://{host}");
    assert_eq!(planned(&place, &words![place.source("tree"), bare, "--shards", "1"]).status, 0);
    let file = place.path("home/token");
    let push = || {
        let words = words!["--plan", place.path("plan"), "--shard", "1", "--token-file", &file];
        place.push(&words)
    };
    let ran = push();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["cannot take the token from", "No such file"]);
    fs::create_dir(place.path("home")).unwrap();
    fs::write(&file, "no token").unwrap();
    assert_eq!(push().status, 2);
    fs::write(&file, token).unwrap();
    push().ok();
}

/// Case of a target's disk that has no room for the first file, and so for nothing.
#[test]
fn a_shard_that_finds_a_full_disk_is_to_be_run_again() {
    let place = Place::new();
    let _mount = match Mount::tmpfs(&place.path("root"), "8m") {
        Ok(mount) => mount,
        Err(why) => return skip("a user who may mount (root)", why),
    };
    let server = Server::start(&place);
    place.file(&place.source("tree/x"), 5 << 20);
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    place.file(&place.root("filler"), 7 << 20);
    for _ in 0..2 {
        let ran = push_shard(&place, "1");
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["free space"]);
    }
    fs::remove_file(place.root("filler")).unwrap();
    push_shard(&place, "1").ok();
}

/// Case of a source with a slash at its end, which is no entry of its own: nothing was offered.
#[test]
fn a_shard_none_of_whose_names_can_be_looked_at_is_to_be_run_again() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/only"), 5);
    let source = format!("{}/", place.source("tree").display());
    let words = words![source, server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    fs::rename(place.source("tree/only"), place.path("away")).unwrap();
    let ran = push_shard(&place, "1");
    assert_eq!(ran.status, 1, "{ran:?}");
    fs::rename(place.path("away"), place.source("tree/only")).unwrap();
    push_shard(&place, "1").ok();
}

/// Case of a directory that its user may not write, as those of archives often are.
#[test]
fn two_shards_bring_files_into_a_directory_that_nobody_may_write_in_the_end() {
    let place = Place::new();
    for name in ["ro/a", "ro/b"] {
        place.file(&place.source("tree").join(name), 3 << 20);
    }
    let closed = place.source("tree/ro");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let pulled = place.path("pulled");
    fs::create_dir(&pulled).unwrap();
    let state = place.path("state-client");
    fs::create_dir_all(&state).unwrap();
    let own = [&*place.path("root"), &*pulled, &*state];
    if !is_root() || !place.open_to_nobody(&own) {
        return skip("root, to serve as another user", "another user");
    }
    let server = ServerSetup::new(&place).run_by_nobody().start(&place);
    let words = words![place.source("tree"), server.url(""), "--shards", "2"];
    assert_eq!(planned(&place, &words).status, 0);
    for shard in [1, 2] {
        assert_eq!(lines_of(&place, shard).len(), 2, "a file in each");
    }
    for shard in ["1", "2"] {
        push_shard(&place, shard).ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    // A pull into a directory that is there, too.
    let pull = |name: &str| {
        let words = words!["pull", server.url("tree/"), pulled, "--include", name, "--json"];
        let mut command = place.command(&words);
        as_nobody(&mut command);
        Haul::start(command).finish()
    };
    for name in ["a", "b"] {
        pull(name).ok();
    }
    assert_same_trees(&place.source("tree/ro"), &pulled.join("ro"));
}

/// The shard that is through first narrows no directory that another still fills: one that is new,
/// and so perhaps hidden until a run's end, and one that is there.
#[test]
fn two_shards_at_once_fill_a_directory_that_nobody_may_write_in_the_end() {
    for (is_there, slow) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let place = Place::new();
        let closed = place.source("tree/ro");
        let state = place.path("state-client");
        fs::create_dir_all(&state).unwrap();
        if !is_root() || !place.open_to_nobody(&[&*place.path("root"), &*state]) {
            return skip("root, to serve as another user", "another user");
        }
        let server = ServerSetup::new(&place).run_by_nobody().start(&place);
        let close = || fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        if is_there {
            place.file(&closed.join("c"), 1000);
            close();
            place.run(&words!["push", place.source("tree"), server.url("")]).ok();
        }
        for name in ["a", "b"] {
            place.file(&closed.join(name), 3 << 20);
        }
        close();
        let words = words![place.source("tree"), server.url(""), "--shards", "2"];
        assert_eq!(planned(&place, &words).status, 0);
        let start = |shard: u32, options: &[&str]| {
            let words = words!["push", "--plan", place.path("plan"), "--shard", shard.to_string()];
            let options: Vec<OsString> = options.iter().map(OsString::from).collect();
            place.start(&[words, options].concat())
        };
        let slower = start(slow, &["--bwlimit", "1M"]);
        slower.wait_for_bytes("bytes_received", 1);
        start(3 - slow, &[]).finish().ok();
        slower.finish().ok();
        assert_same_trees(&place.source("tree"), &place.root("tree"));
    }
}

/// A file system that answers with an error now may be there again soon.
#[test]
fn a_plan_that_cannot_be_read_for_a_while_is_a_reason_to_run_the_shard_again() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 1, 9);
    // No file system is mounted there yet.
    assert_eq!(push_shard(&place, "1").status, 1, "its directory may come");
    let words = words![place.source("tree"), server.url(""), "--shards", "1"];
    assert_eq!(planned(&place, &words).status, 0);
    let log = place.path("strace").into_os_string().into_string().unwrap();
    for (file, call, error, status) in [
        ("plan.json", "openat", "ESTALE", 1),
        ("plan.json", "read", "EIO", 1),
        ("plan.json", "openat", "EACCES", 2),
        ("shard-00001.jsonl", "openat", "ESTALE", 1),
        ("shard-00001.jsonl", "read", "EIO", 1),
        ("shard-00001.jsonl", "openat", "EACCES", 2),
    ] {
        let path = place.path("plan").join(file).into_os_string().into_string().unwrap();
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}"));
        let strace = ["strace", "-D", "-f", "-o", &log, "-P", &path, "-e", &trace, "-e", &inject];
        let Some(strace) = runnable(&strace) else { return };
        let words = words!["push", "--plan", place.path("plan"), "--shard", "1", "--json"];
        let ran = Haul::start(behind(&strace, place.command(&words))).finish();
        assert!(fs::read_to_string(&log).unwrap().contains("INJECTED"), "{file} {call} {ran:?}");
        assert_eq!(ran.status, status, "{file} {call} {error}: {ran:?}");
    }
    push_shard(&place, "1").ok();
}

/// Sparse files are planned by their inodes alone: opening each would cost a network's file system
/// a message and a half.
#[test]
fn a_plan_opens_no_file_of_its_source() {
    let place = Place::new();
    for name in ["sparse", "d/sparse-too"] {
        place.file(&place.source("tree").join(name), 10);
        let file = fs::File::options().write(true).open(place.source("tree").join(name)).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let log = place.path("strace").into_os_string().into_string().unwrap();
    let strace = ["strace", "-D", "-f", "-o", &log, "-e", "trace=open,openat,openat2"];
    let Some(strace) = runnable(&strace) else { return };
    let words = words!["plan", place.source("tree"), "dtn1:/data/", "--shards", "1", "--json"];
    let words = [words, words!["--out", place.path("plan")]].concat();
    let ran = Haul::start(behind(&strace, place.command(&words))).finish();
    assert_eq!((ran.status, &ran.named("plan")[0]["files"]), (0, &2.into()), "{ran:?}");
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"d\"") && !log.contains("sparse"), "{log}");
}

/// Predictions are of the plan that is there, and nothing of it changes.
#[test]
fn a_plan_is_simulated_when_it_is_made_and_later() {
    let place = Place::new();
    for number in 0..8 {
        place.file(&place.source(format!("tree/{number}")), 1 << 20);
    }
    let target = "ann@dtn1:/data/";
    let fleet = ["--simulate", "nodes=2,disk=1M,start=0s"];
    let words = words![place.source("tree"), target, "--shards", "4", fleet[0], fleet[1]];
    let ran = planned(&place, &words);
    assert_eq!(ran.status, 0, "{ran:?}");
    let made = &ran.named("simulation")[0];
    assert_eq!(made["seconds"], 4.0, "four shards of 2 MiB by two nodes: {made}");
    assert_eq!((&made["limited_by"], &made["servers"]), (&"node_disk".into(), &1.into()), "{made}");
    let simulated = |words: &[OsString]| {
        let words = [&words!["plan", place.path("plan"), "--json"], words].concat();
        Haul::start(place.command(&words)).finish()
    };
    let later = simulated(&words![fleet[0], fleet[1]]);
    assert_eq!((later.status, &later.named("simulation")[0]), (0, made), "{later:?}");
    // A failure now and then, and one server that is slow.
    let words = "nodes=2,disk=1M,start=0s,servers=2,server-disk.2=256K,mtbf=1h,seed=3";
    let ran = simulated(&words!["--simulate", words]);
    let slow = &ran.named("simulation")[0];
    assert_eq!((&slow["limited_by"], &slow["courses"]), (&"server_disk".into(), &100.into()));
    assert!(slow["seconds"].as_f64().unwrap() >= 16.0, "{slow}");
    let words = words!["plan", place.path("plan"), "--simulate", words];
    let output = place.command(&words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("limited by the disk of server 2"), "{text}");
    for (words, said) in [
        (words!["--simulate", "nodes=2,nic.3=1G"], "a number from 1 to 2"),
        (words!["--simulate", fleet[1], "--shards", "5"], "leave out the options of a new plan"),
        (words!["--simulate", fleet[1], target], "name its directory alone"),
        (words!["--shards", "5", "--out", "other"], "a directory and a URL"),
    ] {
        simulated(&words).refused(&[said]);
    }
    let words = words!["plan", place.path("none"), fleet[0], fleet[1], "--json"];
    Haul::start(place.command(&words)).finish().refused(&["cannot read the plan"]);
}
