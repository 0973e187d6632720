//! Kubernetes' files: kubectl reads them, and their containers' words are run as a node would.
//!
//! No cluster takes part. kubectl decodes each object as its own type of the API, and what it knows
//! not is not in its answer. Of the controller of jobs, what the files ask of it is done here.

use super::{Fleet, example, is_installed, output_of};
use crate::harness::{is_root, process::Haul};
use haul_testkit::skip::skip;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, ExitStatus},
};

/// First version of kubectl that knows `backoffLimitPerIndex`.
const MINOR_MIN: u32 = 28;

/// Whether kubectl is there and new enough; else the test is skipped.
fn has_kubectl() -> bool {
    if !is_installed("kubectl") {
        skip("kubectl 1.28 or newer", "none");
        return false;
    }
    let output = output_of(Command::new("kubectl").args(["version", "--client", "-o", "json"]));
    let version: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let minor = version["clientVersion"]["minor"].as_str().unwrap_or_default();
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let is_new = digits.parse::<u32>().is_ok_and(|minor| minor >= MINOR_MIN);
    if !is_new {
        skip("kubectl 1.28 or newer", format!("1.{minor}"));
    }
    is_new
}

/// Objects of a file, as kubectl answers to these words.
fn objects(file: &Path, words: &[&str]) -> (Vec<Value>, String) {
    let mut command = Command::new("kubectl");
    let output = output_of(command.args(words).args(["--local", "-o", "json", "-f"]).arg(file));
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (values.map(Result::unwrap).collect(), said)
}

/// Objects of a file as they are written.
fn written(file: &str) -> Vec<Value> {
    let (objects, said) = objects(&example(file), &["label", "read=yes"]);
    assert!(!objects.is_empty(), "{file}: {said}");
    objects
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

/// Fields that the test itself changes, as kubectl answers nothing otherwise.
const MADE: [&str; 2] = ["labels", "image"];

/// Fails for a field that is written and not known.
fn assert_is_known(written: &Value, known: &Value, place: &str) {
    match (written, known) {
        (Value::Object(fields), _) => {
            for (name, value) in fields.iter().filter(|(name, _)| !MADE.contains(&&***name)) {
                assert_is_known(value, &known[name], &format!("{place}.{name}"));
            }
        }
        (Value::Array(values), _) => {
            for (at, value) in values.iter().enumerate() {
                assert_is_known(value, &known[at], &format!("{place}[{at}]"));
            }
        }
        _ => assert_eq!(written, known, "{place} is not known to kubectl"),
    }
}

#[test]
fn kubectl_knows_every_field_of_the_files() {
    if !has_kubectl() {
        return;
    }
    for file in ["kubernetes/plan.yaml", "kubernetes/push.yaml"] {
        let (known, said) = objects(&example(file), &["set", "image", "*=another"]);
        assert!(!said.contains("unable to decode"), "{file}: {said}");
        assert_is_known(of_kind(&written(file), "Job"), of_kind(&known, "Job"), file);
    }
    // What the server looks at (pkg/apis/batch/validation of Kubernetes).
    let objects = written("kubernetes/push.yaml");
    let job = &of_kind(&objects, "Job")["spec"];
    assert_eq!((&job["completionMode"], &job["backoffLimit"]), (&"Indexed".into(), &Value::Null));
    assert_eq!(job["template"]["spec"]["restartPolicy"], "Never");
    let plan = written("kubernetes/plan.yaml");
    let shards = of_kind(&plan, "ConfigMap")["data"]["SHARDS"].as_str().unwrap();
    assert_eq!(job["completions"].to_string(), shards, "a completion for each shard");
    for job in [job, &of_kind(&plan, "Job")["spec"]] {
        let rules = job["podFailurePolicy"]["rules"].as_array().unwrap();
        let named = rules.iter().map(|rule| &rule["onExitCodes"]["containerName"]);
        let named: Vec<&Value> = named.filter(|name| !name.is_null()).collect();
        assert_eq!(named, [&container(job)["name"]]);
    }
}

fn container(job: &Value) -> &Value {
    &job["template"]["spec"]["containers"][0]
}

fn text_of(word: &Value) -> String {
    word.as_str().unwrap().to_owned()
}

/// Words that run others as the user of a container, in the group that Kubernetes gives it.
fn as_user(pod: &Value, container: &Value) -> String {
    let users = [container, pod].map(|it| &it["securityContext"]["runAsUser"]);
    let user = users.into_iter().find_map(Value::as_u64).unwrap();
    format!("setpriv --reuid={user} --regid=0 --clear-groups")
}

/// Pods of a job on this machine: its words, its variables, and its volumes in namespaces.
struct Pods<'a> {
    job: &'a Value,
    variables: BTreeMap<String, String>,
    fleet: &'a Fleet,
}

impl Pods<'_> {
    /// A pod, as the node would start it for an index: its first containers, and then its own, as
    /// the user that each is to have.
    fn command(&self, index: u32) -> Command {
        let mut variables = self.variables.clone();
        variables.insert("JOB_COMPLETION_INDEX".into(), index.to_string());
        // Two nodes take the indices in turn.
        for variable in container(self.job)["env"].as_array().unwrap() {
            if variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName" {
                variables.insert(text_of(&variable["name"]), format!("node-{}", index % 2));
            }
        }
        // The containers have an own /mnt, with the volumes in it.
        let mut script = String::from("set -e; mount -t tmpfs none /mnt\n");
        for mount in container(self.job)["volumeMounts"].as_array().unwrap() {
            let at = mount["mountPath"].as_str().unwrap();
            let volume =
                self.fleet.place.path(format!("volume-{}", mount["name"].as_str().unwrap()));
            let options = if mount["readOnly"] == true { "bind,ro" } else { "bind" };
            let volume = volume.display();
            script += &format!("mkdir -p {at}; mount -o {options} {volume} {at}\n");
        }
        let pod = &self.job["template"]["spec"];
        for first in pod["initContainers"].as_array().into_iter().flatten() {
            let words = first["command"].as_array().unwrap().iter();
            let words: Vec<String> = words.map(|word| format!("'{}'", text_of(word))).collect();
            script += &format!("{} {}\n", as_user(pod, first), words.join(" "));
        }
        script += &format!("exec {} haul \"$@\"", as_user(pod, container(self.job)));
        let mut command = self.fleet.command("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).envs(&variables);
        for word in container(self.job)["args"].as_array().unwrap() {
            // Kubernetes puts variables in where a word has $(NAME).
            let put_in = |word: String, (name, value): (&String, &String)| {
                word.replace(&format!("$({name})"), value)
            };
            command.arg(variables.iter().fold(text_of(word), put_in));
        }
        command
    }

    /// Runs an index until it has ended well, or may not be run again by the job's policy; gives
    /// the status of its last pod.
    fn run(&self, index: u32) -> ExitStatus {
        let limits = ["backoffLimitPerIndex", "backoffLimit"].map(|limit| &self.job[limit]);
        let again_max = limits.into_iter().find_map(Value::as_u64).unwrap();
        let rules = self.job["podFailurePolicy"]["rules"].as_array().unwrap();
        let fails = rules.iter().find(|rule| !rule["onExitCodes"].is_null()).unwrap();
        let action = if self.job["completionMode"] == "Indexed" { "FailIndex" } else { "FailJob" };
        assert_eq!(
            (&fails["action"], &fails["onExitCodes"]["operator"]),
            (&action.into(), &"In".into())
        );
        let never = fails["onExitCodes"]["values"].as_array().unwrap();
        let mut again = 0;
        loop {
            let status = output_of(&mut self.command(index)).status;
            let is_final = status.code().is_some_and(|code| never.contains(&code.into()));
            if status.success() || is_final || again == again_max {
                return status;
            }
            again += 1;
        }
    }
}

/// The variables of a container, with the secret's token and this target.
fn variables(fleet: &Fleet) -> BTreeMap<String, String> {
    let objects = written("kubernetes/plan.yaml");
    let settings = of_kind(&objects, "ConfigMap")["data"].as_object().unwrap();
    let text =
        |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
    let mut variables: BTreeMap<_, _> = settings.iter().map(text).collect();
    variables.insert("TARGET".into(), format!("haul://{}/tree/", fleet.server.address()));
    variables.insert("HAUL_TOKEN".into(), fleet.server.token().reveal());
    variables
}

/// A fleet with the volumes of the pods; `None` where their user or containers cannot be had.
fn fleet_with_volumes() -> Option<Fleet> {
    if !has_kubectl() {
        return None;
    }
    if !is_root() {
        skip("root, for a container's volumes", "another user");
        return None;
    }
    let fleet = Fleet::new(1, "JOB_COMPLETION_INDEX", 0);
    std::os::unix::fs::symlink(fleet.place.source("tree"), fleet.place.path("volume-data"))
        .unwrap();
    // A new volume, which is root's.
    std::fs::create_dir(fleet.place.path("volume-plan")).unwrap();
    if !fleet.place.open_to_nobody(&[]) {
        skip("a program that other users may run", "one where they may not go");
        return None;
    }
    // What notes the runs, and the state of the programs.
    for name in ["runs", "state-client"] {
        let path = fleet.place.path(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut opened = Command::new("chmod");
        assert!(opened.args(["-R", "a+rwX"]).arg(path).status().unwrap().success());
    }
    Some(fleet)
}

/// Makes the plan by its job; gives the status of its last pod.
fn plan_by_job(fleet: &Fleet) -> ExitStatus {
    let plan = written("kubernetes/plan.yaml");
    let job = &of_kind(&plan, "Job")["spec"];
    Pods { job, variables: variables(fleet), fleet }.run(0)
}

/// Checks that `haul report` finds all shards of the pods' plan done.
fn assert_reported(fleet: &Fleet, shards: u32, status: i32) -> Value {
    let words = crate::words!["report", fleet.place.path("volume-plan/run"), "--json"];
    let mut command = fleet.place.command(&words);
    use std::os::unix::process::CommandExt;
    command.uid(7117).gid(0);
    let ran = Haul::start(command).finish();
    let last = ran.events.last().unwrap().clone();
    assert_eq!((ran.status, &last["states"]["done"]), (status, &shards.into()), "{ran:?}");
    let nodes: Vec<&str> =
        ran.named("node").into_iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["node-0", "node-1"], "a chart a node, not a pod");
    last
}

#[test]
fn the_pods_of_an_indexed_job_move_a_planned_tree() {
    let Some(mut fleet) = fleet_with_volumes() else { return };
    assert!(plan_by_job(&fleet).success());
    std::fs::remove_file(fleet.place.path("runs/1")).unwrap();
    let push = written("kubernetes/push.yaml");
    let job = &of_kind(&push, "Job")["spec"];
    let count = u32::try_from(job["completions"].as_u64().unwrap()).unwrap();
    let run = fleet.place.path("volume-plan/run");
    fleet.find_large(&run, count);
    fleet.slow_down();
    let pods = Pods { job, variables: variables(&fleet), fleet: &fleet };
    std::thread::scope(|scope| {
        let killed = scope.spawn(|| pods.run(fleet.large - 1));
        fleet.kill_on_the_way();
        assert!(killed.join().unwrap().success());
    });
    for index in (0..count).filter(|index| *index != fleet.large - 1) {
        assert!(pods.run(index).success(), "{index}");
    }
    // A plan has no shard behind its last.
    assert_eq!(pods.run(count).code(), Some(2));
    fleet.ran(|shard| fleet.once_more_if_killed(shard), count + 1);
    fleet.is_moved();
    assert_reported(&fleet, count, 0);
}

/// A retry would find the plan that the first pod wrote, and fail for that.
#[test]
fn a_plan_without_an_entry_that_cannot_be_listed_is_made_by_one_pod_and_run() {
    use std::os::unix::fs::PermissionsExt;
    let Some(fleet) = fleet_with_volumes() else { return };
    let closed = fleet.place.source("tree/closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(plan_by_job(&fleet).code(), Some(1), "its log names the directory");
    assert_eq!(fleet.runs(1).len(), 1, "pods of the plan's job");
    let plan = || std::fs::read(fleet.place.path("volume-plan/run/plan.json")).unwrap();
    let made = plan();
    assert_eq!(plan_by_job(&fleet).code(), Some(2), "started again, it says that there is a plan");
    assert_eq!(plan(), made);
    let push = written("kubernetes/push.yaml");
    let job = &of_kind(&push, "Job")["spec"];
    let count = u32::try_from(job["completions"].as_u64().unwrap()).unwrap();
    let pods = Pods { job, variables: variables(&fleet), fleet: &fleet };
    for index in 0..count {
        assert!(pods.run(index).success(), "{index}");
    }
    fleet.is_moved();
    assert_eq!(assert_reported(&fleet, count, 1)["not_planned"], 1);
}
