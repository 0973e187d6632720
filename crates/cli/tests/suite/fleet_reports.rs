//! Reports of a plan's runs (`haul report`): what is done, what is not, and what finishes it.

use crate::harness::{
    Place, assert_same_trees,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

/// A file of 9 MiB and a hundred small ones, in three shards that two servers of the root take.
struct Planned {
    servers: [Server; 2],
    place: Place,
}

impl Planned {
    fn new() -> Self {
        let place = Place::new();
        let servers = ["one", "two"]
            .map(|state| ServerSetup::new(&place).state(place.path(state)).start(&place));
        place.tree(&place.source("tree"), 2, 50);
        place.file(&place.source("tree/large"), 9 << 20);
        let [first, second] = &servers;
        let words = words!["plan", place.source("tree"), first.url(""), second.url("")];
        let words =
            [words, words!["--shards", "3", "--out", place.path("plan"), "--json"]].concat();
        assert_eq!(Haul::start(place.command(&words)).finish().status, 0);
        Self { servers, place }
    }

    fn start(&self, shard: u32, options: &[&str]) -> Haul {
        let words = words!["push", "--plan", self.place.path("plan"), "--shard", shard.to_string()];
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        self.place.start(&[words, options].concat())
    }

    fn push(&self, shard: u32) -> Ran {
        self.start(shard, &[]).finish()
    }

    fn report(&self) -> Fleet {
        let ran = self.place.run(&words!["report", self.place.path("plan")]);
        assert!(ran.status < 2, "{ran:?}");
        Fleet(ran)
    }

    fn lines(&self, shard: u32) -> Vec<Value> {
        let path = self.place.path(format!("plan/shard-{shard:05}.jsonl"));
        let text = fs::read_to_string(path).unwrap();
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The shard with the large file, and the two others.
    fn shards(&self) -> (u32, [u32; 2]) {
        let is_large = |line: &Value| line["path"] == "large";
        let large = (1..=3).find(|shard| self.lines(*shard).iter().any(is_large)).unwrap();
        let mut others = (1..=3).filter(|shard| *shard != large);
        (large, [others.next().unwrap(), others.next().unwrap()])
    }

    fn reports(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.place.path("plan/reports")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Lines that `haul report --json` printed.
struct Fleet(Ran);

impl Fleet {
    fn last(&self) -> &Value {
        let last = self.0.events.last().unwrap();
        assert_eq!(last["event"], "fleet", "{:?}", self.0);
        last
    }

    fn shard(&self, number: u32) -> &Value {
        self.0.named("shard")[number as usize - 1]
    }

    fn states(&self) -> [u64; 5] {
        let states = &self.last()["states"];
        ["done", "failed", "stopped", "running", "not_begun"]
            .map(|state| states[state].as_u64().unwrap())
    }
}

/// Runs a line of a report as its reader would, by a shell.
fn typed(place: &Place, line: &str) -> i32 {
    let program = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(place.path("")).env_clear();
    command.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
    command.env("HOME", place.path("")).env("HAUL_STATE", place.path("state-client"));
    let ran = command.output().unwrap();
    ran.status.code().unwrap()
}

#[test]
fn a_shard_is_done_fails_or_is_killed_and_the_report_says_how_to_finish_it() {
    let planned = Planned::new();
    let place = &planned.place;
    let (killed, [done, failing]) = planned.shards();
    let before = planned.report();
    assert_eq!((before.0.status, before.states()), (1, [0, 0, 0, 0, 3]), "{:?}", before.0);
    assert_eq!(before.last()["commands"].as_array().unwrap().len(), 3);
    planned.push(done).ok();
    let gone = planned.lines(failing).into_iter().find(|line| line["kind"] == "file").unwrap();
    let gone = place.source("tree").join(gone["path"].as_str().unwrap());
    fs::rename(&gone, place.path("kept")).unwrap();
    planned.push(failing).failed(1);
    let mut run = planned.start(killed, &["--bwlimit", "2M"]);
    run.wait_for_bytes("bytes_received", 1);
    let meanwhile = planned.report();
    assert_eq!((meanwhile.0.status, meanwhile.states()), (1, [1, 1, 0, 1, 0]));
    assert_eq!(meanwhile.last()["left"], failing.to_string());
    run.kill();
    let after = planned.report();
    assert_eq!((after.0.status, after.states()), (1, [1, 1, 1, 0, 0]), "{:?}", after.0);
    assert_eq!(after.shard(done)["command"], Value::Null);
    let failed = after.shard(failing);
    assert_eq!((&failed["status"], &failed["failed"]), (&1.into(), &1.into()), "{failed}");
    let name = gone.file_name().unwrap().to_str().unwrap();
    assert!(failed["failures"][0]["path"].as_str().unwrap().ends_with(name), "{failed}");
    let stopped = after.shard(killed);
    assert_eq!((&stopped["status"], &stopped["runs"]), (&Value::Null, &1.into()), "{stopped}");
    assert!(stopped["moved_bytes"].as_u64().unwrap() > 0, "{stopped}");
    // Those are the words for people, too.
    let text = place.command(&words!["report", "plan"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "1 done, 1 failed, 1 stopped before their end".to_owned(),
        format!("shard {failing}: run 1 on "),
        format!("shard {killed}: run 1 on "),
        "began and has not ended".to_owned(),
        format!("  haul push --plan plan --shard {killed}\n"),
        name.to_owned(),
    ] {
        assert!(text.contains(&part), "no {part:?}: {text}");
    }
    fs::rename(place.path("kept"), &gone).unwrap();
    for command in after.last()["commands"].as_array().unwrap() {
        assert_eq!(typed(place, command.as_str().unwrap()), 0, "{command}");
    }
    let last = planned.report();
    assert_eq!((last.0.status, last.states()), (0, [3, 0, 0, 0, 0]), "{:?}", last.0);
    let sums = last.last();
    // With two empty directories.
    assert_eq!((&sums["files"], &sums["planned_files"]), (&103.into(), &103.into()), "{sums}");
    assert_eq!(&sums["bytes"], &sums["planned_bytes"], "{sums}");
    assert_eq!((&sums["failed"], &sums["nodes"]), (&0.into(), &1.into()), "{sums}");
    assert!(sums["commands"].as_array().unwrap().is_empty(), "{sums}");
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let tokens = planned.servers.each_ref().map(|server| server.token().reveal());
    for path in planned.reports() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"target\":\"haul://127.0.0.1:"), "{text}");
        assert!(tokens.iter().all(|token| !text.contains(token)), "{text}");
    }
}

/// Numbers that no run has, names with anything in them, and halves of lines: table, JSON and page
/// are made of them, and what is no report is named.
#[test]
fn odd_and_hostile_reports_are_shown_or_named() {
    let planned = Planned::new();
    let place = &planned.place;
    planned.push(1).ok();
    let good = fs::read_to_string(&planned.reports()[0]).unwrap();
    let at_s = "\"at_s\":";
    let began = good.find("\"began_ms\":").unwrap();
    let odd = [
        good.replace(at_s, "\"at_s\":1e308,\"x\":"),
        good.replace(at_s, "\"at_s\":-1e308,\"x\":"),
        good.replace("\"bytes\":", "\"bytes\":18446744073709551615,\"x\":"),
        good.replace("\"moved_bytes\":", "\"moved_bytes\":18446744073709551615,\"x\":"),
        good.replace("\"done\":", "\"done\":18446744073709551615,\"x\":"),
        good.replace("\"seconds\":", "\"seconds\":1e300,\"x\":"),
        good.replacen("\"began_ms\":", "\"began_ms\":18446744073709551615,\"x\":", 1),
        good.replacen("\"host\":\"", "\"host\":\"<script>\\u0000\\u001b[2J\\u202e", 1),
        good.replacen("\"status\":0", "\"status\":256", 1),
        good.replacen("\"haul_run\":1", "\"haul_run\":7", 1),
        good[..began].to_owned() + "\n",
        good.clone() + &good,
        "\0".repeat(100_000),
        "x".repeat(300_000),
        "[".repeat(100_000) + "\n",
    ];
    for (number, text) in odd.iter().enumerate() {
        let at = planned.reports()[0].with_file_name(format!("shard-00002.{}.jsonl", number + 1));
        fs::write(&at, text).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
        let page = place.path("page.html");
        for words in [
            words!["report", place.path("plan")],
            words!["report", place.path("plan"), "--json"],
            words!["report", place.path("plan"), "--html", page],
        ] {
            let ran = place.command(&words).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert!(matches!(ran.status.code(), Some(0 | 1)), "{number}: {said}");
            assert!(!ran.stdout.contains(&0x1b) && !said.contains('\u{1b}'), "{number}");
        }
        let page = fs::read_to_string(page).unwrap();
        assert!(!page.contains("<script>\0") && !page.contains('\u{1b}'), "{number}");
    }
    let fleet = planned.report();
    let unreadable = fleet.last()["unreadable"].as_u64().unwrap();
    // Status, version, head, two reports in one, and three that are no lines of JSON.
    assert!(unreadable >= 6, "{}", fleet.last());
}

/// More than eight shards are left: they have one line for a shell, and numbers for an array.
#[test]
fn many_shards_are_finished_by_a_loop_or_by_an_array() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 3, 40);
    let at = place.path("the plan");
    let words = words!["plan", place.source("tree"), server.url(""), "--shards", "16"];
    let ran = Haul::start(place.command(&[words, words!["--out", at, "--json"]].concat())).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let push = |shard: &str| place.run(&words!["push", "--plan", at, "--shard", shard]);
    for shard in ["1", "4", "9", "10", "16"] {
        push(shard).ok();
    }
    let report = || Fleet(place.run(&words!["report", at]));
    let before = report();
    assert_eq!((before.0.status, before.states()), (1, [5, 0, 0, 0, 11]), "{:?}", before.0);
    assert_eq!(before.last()["left"], "2-3,5-8,11-15");
    let text = place.command(&words!["report", "the plan"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "(as an array: 2-3,5-8,11-15)",
        "for shard in $(seq 2 3) $(seq 5 8) $(seq 11 15); do haul push --plan 'the plan' --shard",
    ] {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
    // Tasks of the array, as Slurm numbers them.
    for number in [2, 3, 7] {
        let task = format!("SLURM_ARRAY_TASK_ID={number} haul push --plan 'the plan' --shard auto");
        assert_eq!(typed(&place, &task), 0, "{task}");
    }
    let between = report();
    assert_eq!(between.last()["left"], "5-6,8,11-15", "eight are left: a line each");
    assert_eq!(between.last()["commands"].as_array().unwrap().len(), 8);
    let commands = before.last()["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert_eq!(typed(&place, commands[0].as_str().unwrap()), 0, "{commands:?}");
    let last = report();
    assert_eq!((last.0.status, last.states()), (0, [16, 0, 0, 0, 0]), "{:?}", last.0);
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

/// A shard of which a file is gone fails each time: what finishes it is another plan.
#[test]
fn a_file_that_is_gone_from_the_source_is_left_out_by_the_plan_that_the_report_names() {
    let planned = Planned::new();
    let place = &planned.place;
    let (_, [failing, other]) = planned.shards();
    let gone = planned.lines(failing).into_iter().find(|line| line["kind"] == "file").unwrap();
    fs::remove_file(place.source("tree").join(gone["path"].as_str().unwrap())).unwrap();
    for shard in (1..=3).filter(|shard| *shard != failing && *shard != other) {
        planned.push(shard).ok();
    }
    assert_eq!(planned.report().last()["again"], Value::Null);
    planned.push(failing).failed(1);
    let report = planned.report();
    let again = report.last()["again"].as_str().expect("a plan by --again").to_owned();
    let text = place.command(&words!["report", "plan"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let said = "haul plan --again plan --shards";
    assert!(text.contains(said) && text.contains("gone from the source"), "{text}");
    planned.push(other).ok();
    assert_eq!(typed(place, &again.replace("ANOTHER-PLAN", "new")), 0, "{again}");
    let shards = fs::read_dir(place.path("new")).unwrap();
    let shards = shards.filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("shard-")
    });
    for shard in 1..=shards.count() {
        place.push(&words!["--plan", place.path("new"), "--shard", shard.to_string()]).ok();
    }
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

/// A run may be sent to other URLs; what it brought there is not at the plan's.
#[test]
fn a_run_to_another_place_than_the_plans_is_told_and_does_not_count_as_done() {
    let planned = Planned::new();
    let place = &planned.place;
    let elsewhere = planned.servers.each_ref().map(|server| server.url("elsewhere/"));
    let words = words!["--plan", place.path("plan"), "--shard", "1", elsewhere[0], elsewhere[1]];
    place.push(&words).ok();
    let report = planned.report();
    assert_eq!((report.0.status, report.states()), (1, [0, 0, 0, 0, 3]), "{:?}", report.0);
    let first = report.shard(1);
    assert_eq!((&first["runs_elsewhere"], &first["files"]), (&1.into(), &0.into()), "{first}");
    assert!(first["elsewhere"].as_str().unwrap().ends_with("/elsewhere/"), "{first}");
    let text = place.command(&words!["report", "plan"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("shard 1: a run went to haul://127.0.0.1"), "{text}");
    for shard in [2, 3] {
        planned.push(shard).ok();
    }
    let again = words!["plan", "--again", place.path("plan"), "--out", place.path("rest")];
    let again = [again, words!["--shards", "2", "--json"]].concat();
    let ran = Haul::start(place.command(&again)).finish();
    assert_eq!(ran.named("plan")[0]["files"], planned.lines(1).len(), "{ran:?}");
    planned.push(1).ok();
    let report = planned.report();
    assert_eq!((report.0.status, report.states()), (0, [3, 0, 0, 0, 0]), "{:?}", report.0);
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn runs_of_one_shard_at_once_have_a_report_each_and_count_once() {
    let planned = Planned::new();
    let (large, others) = planned.shards();
    for shard in others {
        planned.push(shard).ok();
    }
    for run in [0; 3].map(|_| planned.start(large, &["--bwlimit", "20M"])) {
        assert!(run.finish().status <= 1, "one may say that another writes the file");
    }
    planned.push(large).ok();
    planned.push(others[0]).ok();
    let report = planned.report();
    assert_eq!((report.0.status, report.states()), (0, [3, 0, 0, 0, 0]), "{:?}", report.0);
    assert_eq!((planned.reports().len(), &report.shard(large)["runs"]), (7, &4.into()));
    let sums = report.last();
    // With two empty directories.
    assert_eq!((&sums["files"], &sums["planned_files"]), (&103.into(), &103.into()), "{sums}");
    assert_eq!(&sums["bytes"], &sums["planned_bytes"], "{sums}");
    assert_eq!(&sums["moved_bytes"], &sums["planned_bytes"], "{sums}");
}

/// A report that cannot be kept is told of once, and the shard is moved.
#[test]
fn a_run_whose_report_cannot_be_kept_moves_its_shard() {
    let planned = Planned::new();
    let reports = planned.place.path("plan/reports");
    let told = |ran: &Ran| ran.err.matches("the report of this run is not kept").count();
    fs::write(&reports, "").unwrap();
    let ran = planned.push(1);
    assert_eq!((ran.ok()["files"]["failed"].as_u64(), told(&ran)), (Some(0), 1), "{ran:?}");
    fs::remove_file(&reports).unwrap();
    // Another user's link, and a directory that another user can write.
    fs::create_dir(planned.place.path("theirs")).unwrap();
    symlink(planned.place.path("theirs"), &reports).unwrap();
    let ran = planned.push(2);
    assert_eq!((ran.ok()["files"]["failed"].as_u64(), told(&ran)), (Some(0), 1), "{ran:?}");
    assert_eq!(fs::read_dir(planned.place.path("theirs")).unwrap().count(), 0);
    fs::remove_file(&reports).unwrap();
    fs::create_dir(&reports).unwrap();
    fs::set_permissions(&reports, fs::Permissions::from_mode(0o777)).unwrap();
    let ran = planned.push(3);
    assert_eq!((ran.ok()["files"]["failed"].as_u64(), told(&ran)), (Some(0), 1), "{ran:?}");
    assert_eq!(fs::read_dir(&reports).unwrap().count(), 0);
    let words = words!["report", planned.place.path("plan")];
    planned.place.run(&words).refused(&["cannot read the reports", "others can write it"]);
    fs::set_permissions(&reports, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(planned.report().states(), [0, 0, 0, 0, 3], "none of them was kept");
    // A link in the place of a report is not written through, and the next name is taken.
    fs::write(planned.place.path("mine"), "untouched").unwrap();
    symlink(planned.place.path("mine"), reports.join("shard-00001.1.jsonl")).unwrap();
    assert_eq!(told(&planned.push(1)), 0);
    assert_eq!(fs::read_to_string(planned.place.path("mine")).unwrap(), "untouched");
    let report = planned.report();
    assert_eq!((report.states(), &report.last()["unreadable"]), ([1, 0, 0, 0, 2], &1.into()));
    let mode = fs::metadata(reports.join("shard-00001.2.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_moves_nothing_keeps_no_report_and_what_cannot_start_does() {
    let planned = Planned::new();
    let place = &planned.place;
    for option in ["--dry-run", "--preflight"] {
        planned.start(1, &[option]).finish();
        assert!(!place.path("plan/reports").exists(), "{option}");
    }
    place.run(&words!["report", place.source("tree")]).refused(&["cannot read the plan"]);
    let plan = place.path("plan/plan.json");
    let text = fs::read_to_string(&plan).unwrap();
    let token = planned.servers[0].token().reveal();
    fs::write(&plan, text.replace(&format!("{token}@"), "")).unwrap();
    planned.push(1).refused(&["token"]);
    let report = planned.report();
    let first = report.shard(1);
    assert_eq!((&first["state"], &first["status"]), (&"failed".into(), &2.into()), "{first}");
    assert!(first["failures"][0]["what"].as_str().unwrap().contains("token"), "{first}");
}

#[test]
fn the_page_has_a_chart_for_the_fleet_and_for_each_node_and_names_the_slowest() {
    let planned = Planned::new();
    let (large, others) = planned.shards();
    planned.start(large, &["--bwlimit", "4M"]).finish().ok();
    for shard in others {
        planned.push(shard).ok();
    }
    // As if the large shard had been moved by another machine.
    let path = planned.place.path(format!("plan/reports/shard-{large:05}.1.jsonl"));
    let text = fs::read_to_string(&path).unwrap();
    let head: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let host = format!("\"host\":{}", head["host"]);
    assert!(text.contains(&host), "{text}");
    fs::write(&path, text.replace(&host, "\"host\":\"node <7>\"")).unwrap();
    let page = planned.place.path("page.html");
    let ran = planned.place.run(&words!["report", "plan", "--html", page]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let fleet = Fleet(ran);
    assert_eq!(fleet.last()["slowest_node"], "node <7>", "{:?}", fleet.0);
    assert_eq!(fleet.last()["slowest_shard"], large, "{:?}", fleet.0);
    let node = |host: &str| {
        let nodes = fleet.0.named("node");
        nodes.into_iter().find(|node| node["host"] == host).unwrap().clone()
    };
    let slow = node("node <7>");
    assert!(slow["limited_by"] != "" && slow["verdict"] != "", "{slow}");
    let moved = |rates: &Value, seconds: &Value| {
        let rates = rates.as_array().unwrap();
        let sum: f64 = rates.iter().map(|point| point[1].as_f64().unwrap()).sum();
        sum * 1e9 / 8.0 * seconds.as_f64().unwrap()
    };
    let bytes = slow["moved_bytes"].as_f64().unwrap();
    let in_chart = moved(&slow["rates"], &slow["interval_seconds"]);
    assert!((in_chart / bytes - 1.0).abs() < 0.1, "{in_chart} of {bytes}: {slow}");
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg").count(), 3, "the fleet and two nodes");
    assert!(html.contains("node &lt;7&gt;") && !html.contains("node <7>"), "{html}");
    let ran = planned.place.run(&words!["report", "plan", "--html", "no/such/directory"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["cannot write the page", "--html"]);
}
