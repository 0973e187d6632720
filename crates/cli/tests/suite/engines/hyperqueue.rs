//! HyperQueue runs the shards of a plan: its server and two workers, out of its package for Python.
//!
//! That package has the engine, and no program `hq`.

use super::{Fleet, example, output_of};
use haul_testkit::skip::skip;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Place of the package below the project, where `cargo xtask test` puts it.
const PACKAGE: &str = "../../target/tools/hyperqueue";

/// Starts a server and two workers, and submits the script as a task array, as `hq submit
/// --array=1-N` does; ends with the number of tasks that failed.
const SUBMIT: &str = "
import sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from hyperqueue.task.program import ExternalProgram

count, script, plan, directory = sys.argv[1:]
with LocalCluster(directory + '/hq') as cluster:
    for worker in range(2):
        cluster.start_worker(WorkerConfig(cores=1))
    client = cluster.client()
    job = Job(max_fails=None)
    for number in range(1, int(count) + 1):
        output = f'{directory}/task-{number}'
        job._add_task(ExternalProgram(
            number, args=['bash', script, plan], env={'PAUSE_S': '0'}, cwd=directory,
            stdout=output, stderr=output + '.err', resources=None, crash_limit=5))
    submitted = client.submit(job)
    client.wait_for_jobs([submitted], raise_on_error=False)
    failed = client.get_failed_tasks(submitted)
    print({number: task.error for number, task in failed.items()})
    sys.exit(len(failed))
";

fn package() -> Option<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join(PACKAGE);
    package.join("hyperqueue").is_dir().then_some(package)
}

fn submit(fleet: &Fleet, package: &Path, tasks: u32) -> Command {
    let mut command = fleet.command("python3");
    command.args(["-c", SUBMIT, &tasks.to_string()]);
    command.arg(example("hyperqueue/shard.sh")).arg(fleet.plan()).arg(fleet.place.path("hq"));
    command.env("PYTHONPATH", package);
    fs::create_dir(fleet.place.path("hq")).unwrap();
    command
}

#[test]
fn hyperqueue_runs_a_killed_shard_again_and_a_refused_one_never() {
    let Some(package) = package() else {
        return skip("HyperQueue's package for Python", "none in target/tools/hyperqueue");
    };
    let fleet = Fleet::new(4, "HQ_TASK_ID", 1);
    fleet.slow_down();
    // The plan has no fifth shard.
    let mut command = submit(&fleet, &package, 5);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let running = command.spawn().unwrap();
    fleet.kill_on_the_way();
    let ended = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("{5: 'Program terminated with exit code 2.'}"), "{said}");
    fleet.ran(|shard| fleet.once_more_if_killed(shard), 5);
    fleet.is_moved();
}

#[test]
fn the_lines_for_hq_stand_where_it_reads_them() {
    let text = fs::read_to_string(example("hyperqueue/shard.sh")).unwrap();
    // Behind the first line, with nothing but comments before them (docs/jobs/directives.md).
    let lines: Vec<_> = text.lines().skip(1).take_while(|line| line.starts_with("#HQ ")).collect();
    assert_eq!(lines.len(), text.lines().filter(|line| line.starts_with("#HQ")).count());
    assert!(lines.contains(&"#HQ --crash-limit=5"), "{lines:?}");
    let checked = output_of(Command::new("bash").arg("-n").arg(example("hyperqueue/shard.sh")));
    assert!(checked.status.success(), "{checked:?}");
}
