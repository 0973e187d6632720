//! GNU parallel runs the shards of a plan, and again those that did not end well.

use super::{Fleet, example, is_installed, output_of};
use haul_testkit::skip::skip;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

fn command(fleet: &Fleet) -> Command {
    let mut command = fleet.command("bash");
    command.arg(example("parallel/run.sh")).arg(fleet.plan());
    command
}

fn start(fleet: &Fleet) -> Child {
    command(fleet).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Removes the plan, and plans the tree anew in its place.
fn plan_anew(fleet: &Fleet, url: OsString, shards: u32) {
    fs::remove_dir_all(fleet.plan()).unwrap();
    let words = words!["plan", fleet.place.source("tree"), url, "--out", fleet.plan()];
    let ran = fleet.place.run(&[words, words!["--shards", shards.to_string()]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn parallel_runs_a_killed_shard_again_and_no_other() {
    if !is_installed("parallel") {
        return skip("GNU parallel", "no program parallel");
    }
    let fleet = Fleet::new(5, "PARALLEL_SEQ", 1);
    fleet.slow_down();
    let mut running = start(&fleet);
    fleet.kill_on_the_way();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    fleet.is_moved();
    fleet.ran(|shard| fleet.once_more_if_killed(shard), 5);
    // By its log all is done.
    assert!(output_of(&mut command(&fleet)).status.success());
    fleet.ran(|shard| fleet.once_more_if_killed(shard), 5);
}

#[test]
fn parallel_does_not_run_again_what_ended_with_two_until_it_is_started_again() {
    if !is_installed("parallel") {
        return skip("GNU parallel", "no program parallel");
    }
    let fleet = Fleet::new(4, "PARALLEL_SEQ", 1);
    let shard = fleet.plan().join("shard-00003.jsonl");
    let text = fs::read(&shard).unwrap();
    fleet.spoil(3);
    let ended = output_of(&mut command(&fleet));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("ended with 2: 3"), "{said}");
    fleet.ran(|_| 1, 4);
    fs::write(shard, text).unwrap();
    assert!(output_of(&mut command(&fleet)).status.success());
    fleet.ran(|shard| if shard == 3 { 2 } else { 1 }, 4);
    fleet.is_moved();
}

/// The log outlived the plan that it was of, and all shards of the next one there were done by it.
#[test]
fn parallel_runs_all_shards_of_a_plan_in_the_place_of_one_that_was_run() {
    if !is_installed("parallel") {
        return skip("GNU parallel", "no program parallel");
    }
    let fleet = Fleet::new(2, "PARALLEL_SEQ", 1);
    assert!(output_of(&mut command(&fleet)).status.success());
    fleet.ran(|_| 1, 2);
    fleet.place.file(&fleet.place.source("tree/later"), 1000);
    plan_anew(&fleet, fleet.server.url(""), 3);
    // What a planner left that was killed: no shard of this plan.
    fs::write(fleet.plan().join("shard-00009.jsonl"), "").unwrap();
    assert!(output_of(&mut command(&fleet)).status.success());
    fleet.ran(|shard| if shard == 3 { 1 } else { 2 }, 3);
    fleet.is_moved();
}

/// On other machines a run starts in another directory, and has no variable of this one's.
#[test]
fn parallel_takes_a_relative_plan_and_the_token_to_other_machines() {
    if !is_installed("parallel") {
        return skip("GNU parallel", "no program parallel");
    }
    let fleet = Fleet::new(2, "PARALLEL_SEQ", 1);
    plan_anew(&fleet, format!("haul://{}/", fleet.server.address()).into(), 2);
    let ssh = fleet.place.path("bin/ssh");
    let log = fleet.place.path("machines");
    let text = format!(
        "#!/bin/sh\n\
        echo $1 >>{log}\n\
        while [ \"$1\" != -- ]; do shift; done\n\
        shift\n\
        unset HAUL_TOKEN\n\
        export SHELL=/bin/sh\n\
        cd / && exec sh -c \"$*\"\n",
        log = log.display(),
    );
    fs::write(&ssh, text).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = fleet.command("bash");
    command.arg(example("parallel/run.sh")).args(["plan/", "n1,n2"]);
    command.env("HAUL_TOKEN", &*fleet.server.token().reveal());
    let ended = output_of(&mut command);
    assert!(ended.status.success(), "{ended:?}");
    let machines = fs::read_to_string(log).unwrap();
    assert!(machines.contains("n1") || machines.contains("n2"), "{machines}");
    fleet.ran(|_| 1, 2);
    fleet.is_moved();
}
