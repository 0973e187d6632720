//! GNU parallel runs the shards of a plan, and again those that did not end well.

use super::{Fleet, example, is_installed, output_of};
use haul_testkit::skip::skip;
use std::{
    fs,
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
