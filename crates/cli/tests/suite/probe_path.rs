//! The real `haul probe path`: its four runs, and which stage it names.
//!
//! Nothing of it stays at the target, however it ends.
//!
//! No test looks at how fast anything is, but for what was slowed on purpose.

use crate::harness::{
    Place,
    peer::{FakeServer, Peer},
    process::{Haul, Ran, behind},
    server::{Server, ServerSetup},
    wait_until,
};
use haul_protocol::{Message, message};
use haul_testkit::{disk_limit::DiskLimit, mount::Mount, skip::skip, strace::Strace};
use haul_transfer::{HaulUrl, Interrupt, PushRequest};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

const MIB: u64 = 1 << 20;
const RUNS: [&str; 4] = ["memory_to_memory", "disk_to_memory", "memory_to_disk", "disk_to_disk"];

/// Words of a probe that is short and small: what is found is not looked at.
fn probe(source: impl AsRef<std::ffi::OsStr>, url: &OsString, more: &[&str]) -> Vec<OsString> {
    let own_time = more.iter().any(|word| word.starts_with("--time"));
    let time = if own_time { words![] } else { words!["--time=1s"] };
    let more = more.iter().map(OsString::from).collect();
    [words!["probe", "path", source, url], time, more].concat()
}

fn verdict(ran: &Ran) -> &Value {
    assert_eq!(ran.status, 0, "{ran:?}");
    let last = ran.events.last().unwrap();
    assert_eq!(last["event"], "verdict", "{ran:?}");
    last
}

/// Checks that nothing of any name is below the directory.
#[track_caller]
fn assert_empty(directory: &Path) {
    let names = haul_testkit::tree::names(directory).unwrap();
    assert!(names.is_empty(), "it left {names:?}");
}

/// Files of a process that have no name any more, on the file system of a directory.
fn nameless_files(process: u32, directory: &Path) -> Vec<PathBuf> {
    let device = fs::metadata(directory).unwrap().dev();
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let is_nameless = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|stat| {
            stat.is_file() && stat.nlink() == 0 && stat.dev() == device && stat.len() > 0
        })
    };
    paths.filter(is_nameless).collect()
}

#[test]
fn all_four_runs_are_made_and_every_stage_has_a_rate() {
    let place = Place::new();
    place.file(&place.source("file"), 20 * MIB);
    let server = Server::start(&place);
    let page = place.path("page.html");
    let url = server.url("new/dir");
    let mut words = probe(place.source("file"), &url, &["--size=8M", "--rounds=2", "--streams=2"]);
    words.extend(words!["--html", page]);
    let ran = place.run(&words);
    let decision = verdict(&ran);
    assert_eq!(ran.events[0]["event"], "host");
    assert_eq!(
        (&ran.events[0]["wire"], &ran.events[0]["bench"]),
        (&"server_here".into(), &"probe path".into())
    );
    let checks = ran.named("preflight")[0]["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["name"] == "rights" && check["verdict"] == "ok"));
    let runs = ran.named("run");
    assert_eq!(runs.iter().map(|run| run["run"].as_str().unwrap()).collect::<Vec<_>>(), RUNS);
    for run in &runs {
        assert_eq!((&run["bytes"], &run["rounds"]), (&(8 * MIB).into(), &2.into()), "{run}");
        assert_eq!((&run["streams"], &run["protection"]), (&2.into(), &"safe".into()));
        assert!(run["gbit_per_s"]["median"].as_f64().unwrap() > 0.0, "{run}");
        let from_disk = run["run"].as_str().unwrap().starts_with("disk");
        assert_eq!(run["source"] == "memory", !from_disk, "{run}");
        let last = run["samples"].as_array().unwrap().last().unwrap();
        assert_eq!(last["recorded_bytes"], 8 * MIB);
        assert!(last["sent_bytes"].as_u64() >= Some(8 * MIB), "{run}");
    }
    let stages = decision["capacities"].as_array().unwrap();
    assert_eq!(stages.len(), 5);
    for stage in stages {
        assert!(stage["gbit_per_s"].as_f64().unwrap() > 0.0, "{decision}");
    }
    let named = stages.iter().filter(|stage| stage["stage"] == decision["limiting"]);
    assert_eq!(named.count(), 1, "{decision}");
    let words = decision["verdict"].as_str().unwrap();
    assert!(words.contains(" limits at ") && words.contains("to go faster: "), "{words}");
    assert_empty(&place.path("root"));
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg ").count(), 5, "the bars, and the curves of each run");
    assert!(page.contains("recorded (durable)") && page.contains("LIMITS"));
    server.still_serves(&place);
}

#[test]
fn a_directory_of_small_files_is_probed_and_nothing_of_it_arrives() {
    let place = Place::new();
    place.tree(&place.source("tree"), 4, 12);
    place.file(&place.root("dir/there"), 1000);
    let server = Server::start(&place);
    let url = server.url("dir/");
    let ran = place.run(&probe(place.source("tree"), &url, &["--protection=clear"]));
    verdict(&ran);
    let of_disk = ran.named("run")[3];
    assert!(of_disk["files"].as_u64() > Some(10), "{of_disk}");
    assert_eq!(of_disk["protection"], "clear");
    assert_eq!(haul_testkit::tree::names(&place.path("root")).unwrap().len(), 2);
    assert_eq!(fs::metadata(place.root("dir/there")).unwrap().len(), 1000);
}

#[test]
fn people_read_the_verdict_before_the_tables() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    let server = Server::start(&place);
    let words = probe(place.source("file"), &server.url(""), &[]);
    let output = place.command(&words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}: {text}"));
    let order = ["preflight: ", " limits at ", "could carry: ", "The four runs", "Over time"];
    assert!(order.map(at).is_sorted(), "{text}");
}

#[test]
fn a_slow_target_disk_is_named() {
    let place = Place::new();
    place.file(&place.source("file"), 4 * MIB);
    let server = Server::start(&place);
    let slow = "fdatasync,fsync,syncfs:delay_exit=1500000";
    let slow = match Strace::attach(server.process.id(), slow, None, &place.path("strace")) {
        Ok(slow) => slow,
        Err(why) => return skip("strace and the right to trace", &why),
    };
    let ran = place.run(&probe(place.source("file"), &server.url(""), &[]));
    drop(slow);
    let decision = verdict(&ran);
    assert_eq!(decision["limiting"], "target_disk", "{ran:?}");
    assert_eq!(decision["capacities"][4]["known"], "measured");
    let words = decision["verdict"].as_str().unwrap();
    assert!(words.starts_with("the target disk limits at "), "{words}");
    assert!(words.contains("with a faster target disk it would go at "), "{words}");
    assert!(decision["next_gbit_per_s"].as_f64() > decision["gbit_per_s"].as_f64());
    assert_empty(&place.path("root"));
}

#[test]
fn a_slow_source_disk_is_named_and_was_cold() {
    const RATE: u64 = 8 * MIB;
    let place = Place::new();
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let _mount = match Mount::ext4(&disk, &place.path("image"), 128 * MIB) {
        Ok(mount) => mount,
        Err(why) => return skip("root and loop devices", &why),
    };
    place.file(&disk.join("file"), 3 * RATE);
    let limit = match DiskLimit::of_reads(&disk, RATE) {
        Ok(limit) => limit,
        Err(why) => return skip("root and control groups that limit disks", &why),
    };
    let server = Server::start(&place);
    let words = [probe(disk.join("file"), &server.url(""), &[]), words!["--json"]].concat();
    let ran = Haul::start(behind(&limit.words(), place.command(&words))).finish();
    let decision = verdict(&ran);
    assert_eq!(decision["limiting"], "source_disk", "{ran:?}");
    assert_eq!(ran.named("run")[3]["source"], "cold", "{ran:?}");
}

#[test]
fn while_it_runs_and_after_it_is_killed_nothing_has_a_name_at_the_target() {
    let place = Place::new();
    place.file(&place.source("file"), 32 * MIB);
    let server = Server::start(&place);
    let root = place.path("root");
    let words = ["--time=10m", "--size=8G"];
    let words = [probe(place.source("file"), &server.url(""), &words), words!["--json"]].concat();
    let mut killed = Haul::start(place.command(&words));
    let id = server.process.id();
    wait_until("written to", || !nameless_files(id, &root).is_empty());
    assert_empty(&root);
    killed.kill();
    wait_until("let go of", || nameless_files(id, &root).is_empty());
    assert_empty(&root);
    server.still_serves(&place);
}

#[test]
fn ctrl_c_ends_it_and_says_that_nothing_stays() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    let server = Server::start(&place);
    let words = probe(place.source("file"), &server.url(""), &["--time=10m", "--size=64G"]);
    let running = place.start(&words);
    let is_session = |line: &Value| line["event"] == "session" && line["path"] == "null:";
    assert!(server.process.look_for(crate::harness::PATIENCE, is_session).is_some());
    running.signal(Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("nothing of the probe stays"), "{ran:?}");
    assert_empty(&place.path("root"));
}

#[test]
fn a_single_use_token_is_not_used_up() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    let server = Server::start(&place);
    let mut command = place.command(&words!["token", "new", "--write", "--single-use", "--json"]);
    let made = command.env("HAUL_STATE", place.path("state")).output().unwrap();
    let line: Value = serde_json::from_slice(&made.stdout).unwrap();
    let url = server.url_with(line["token"].as_str().unwrap(), server.address(), "");
    verdict(&place.run(&probe(place.source("file"), &url, &["--size=1M"])));
    place.push(&words![place.source("file"), url]).ok();
}

#[test]
fn what_is_missing_or_makes_no_sense_is_said_before_anything_runs() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    fs::create_dir(place.source("empty")).unwrap();
    let server = Server::start(&place);
    let url = server.url("");
    let file = place.source("file");
    let run = |source: &Path, url: &OsString, more: &[&str]| place.run(&probe(source, url, more));
    run(&place.source("missing"), &url, &[]).refused(&["missing", "source", "no such file"]);
    run(&place.source("empty"), &url, &[]).refused(&["nothing to read", "a file with bytes"]);
    run(Path::new("zero:1M"), &url, &[]).refused(&["disks at both ends", "zero: or null:"]);
    run(&file, &server.url("null:"), &[]).refused(&["disks at both ends", "zero: or null:"]);
    run(&file, &url, &["--size=0"]).refused(&["--size", "a byte or more"]);
    let read_only = ServerSetup::new(&place).options(&["--read-only"]).start(&place);
    run(&file, &read_only.url(""), &[]).refused(&["the server is read-only"]);
    let null = ServerSetup::new(&place).root("null:").start(&place);
    run(&file, &null.url(""), &[]).refused(&["no disk at its end", "serve null:"]);
    assert_empty(&place.path("root"));
}

#[test]
fn a_directory_that_may_not_be_written_is_said() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    if !place.open_to_nobody(&[]) {
        return skip("root, and a program that every user may run", "neither");
    }
    let server = ServerSetup::new(&place).run_by_nobody().start(&place);
    let ran = place.run(&probe(place.source("file"), &server.url(""), &[]));
    ran.refused(&["cannot be probed: rights", "may not be written"]);
}

#[test]
fn a_target_that_is_full_is_said_and_stays_as_it_was() {
    let place = Place::new();
    place.file(&place.source("file"), 4 * MIB);
    let small = match Mount::tmpfs(&place.path("root"), "512k") {
        Ok(small) => small,
        Err(why) => return skip("root", &why),
    };
    let server = Server::start(&place);
    let ran = place.run(&probe(place.source("file"), &server.url(""), &[]));
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["memory to disk", "does not fit", "bytes of free space"]);
    assert_empty(&place.path("root"));
    drop(server);
    drop(small);
}

/// A server that does not know the option, and would give the files their names.
#[test]
fn a_server_that_would_keep_the_files_is_offered_none() {
    let place = Place::new();
    place.file(&place.source("file"), MIB);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let of_thread = heard.clone();
    let fake = FakeServer::start(&place.path("fake"), move |mut peer: Peer| {
        if let Ok(open) = peer.let_in() {
            of_thread
                .lock()
                .unwrap()
                .push(open.file_options.is_some_and(|file_options| file_options.discard));
            let offered =
                |message: &Message| matches!(message, Message::FileOffer(_)).then_some(());
            of_thread.lock().unwrap().extend(peer.hear(offered).map(|()| false));
        }
    });
    let url = fake.url("").parse::<HaulUrl>().unwrap();
    let mut request = PushRequest::new([place.source("file")], url);
    request.options.file_options.discard = true;
    let refused = haul_transfer::push(&request, &Interrupt::default(), &mut |_| {}).unwrap_err();
    drop(fake);
    assert!(refused.to_string().contains("would keep what is only to be measured"), "{refused}");
    assert_eq!(*heard.lock().unwrap(), [true]);
}

/// Options beyond a measurement are refused: what is measured can neither be fetched nor be a
/// reason to remove something.
#[test]
fn a_client_that_asks_for_more_than_to_measure_is_refused() {
    type Change = fn(&mut message::Open, &mut message::FileOptions);
    let place = Place::new();
    place.file(&place.root("there"), 10);
    let server = Server::start(&place);
    let changes: [Change; 7] = [
        |open, _| open.direction = message::Direction::Pull,
        |open, _| open.verify_target = true,
        |_, file_options| file_options.remove_extra = true,
        |_, file_options| file_options.dry_run = true,
        |_, file_options| file_options.move_sources = true,
        |_, file_options| file_options.follow = true,
        |_, file_options| file_options.watch = true,
    ];
    for change in changes {
        let mut open = Peer::asks(&server, message::Direction::Push, b"");
        let mut file_options =
            message::FileOptions { discard: true, ..message::FileOptions::default() };
        change(&mut open, &mut file_options);
        let mut peer = Peer::connect(&server);
        peer.say(crate::harness::peer::hello(1, 1));
        peer.say(Message::Open(message::Open { file_options: Some(file_options), ..open }));
        let opened = |message: &Message| matches!(message, Message::Opened(_)).then_some(());
        assert!(peer.hear(opened).is_err(), "it was let in");
    }
    assert!(place.root("there").exists());
    server.still_serves(&place);
}
