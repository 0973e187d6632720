//! Slurm runs the shards of a plan: its controller and two nodes, all on this machine.
//!
//! Debian's slurmd can be several nodes of one machine (`slurmd -N NAME`).

use super::{Fleet, example, is_installed, output_of};
use crate::harness::{PATIENCE, is_root, wait_until};
use haul_testkit::skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::Read,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// The programs of a cluster.
const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol"];
/// Range in which ports are looked for: below those that the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Longest time in which a daemon may end by itself.
const END_MAX: Duration = Duration::from_secs(10);

/// A cluster with the nodes n1 and n2, ended when dropped.
struct Cluster {
    /// Daemons, in the order of their start.
    daemons: Vec<Child>,
    fleet: Fleet,
}

/// A job, or one task of an array, as `scontrol show job` tells.
#[derive(Debug)]
struct Told {
    task: Option<u32>,
    state: String,
    /// Exit status and signal.
    ended_with: String,
    restarts: u32,
}

impl Cluster {
    /// Starts a cluster for the fleet; `None` and a skipped test where that cannot be.
    fn start(fleet: Fleet) -> Option<Self> {
        if let Some(missing) = PROGRAMS.iter().find(|program| !is_installed(program)) {
            skip("Slurm (slurmctld, slurmd, slurm-client, munge)", format!("no {missing}"));
            return None;
        }
        if !is_root() {
            skip("root, for Slurm's daemons", "another user");
            return None;
        }
        let mut cluster = Self { daemons: Vec::new(), fleet };
        cluster.configure();
        let at = |name: &str| cluster.path(name).into_os_string().into_string().unwrap();
        let key = format!("--key-file={}", at("munge.key"));
        let socket = format!("--socket={}", at("munge.socket"));
        let munge = ["-F", "--force", &key, &socket]
            .map(str::to_owned)
            .into_iter()
            .chain(["pid", "seed", "log"].map(|of| format!("--{of}-file={}", at(of))));
        let munge: Vec<_> = munge.collect();
        cluster.launch("munged", &munge);
        wait_until("munged answers", || cluster.path("munge.socket").exists());
        cluster.launch("slurmctld", &["-D", "-i"].map(str::to_owned));
        wait_until("the controller answers", || cluster.ask("scontrol", &["ping"]).contains("UP"));
        for node in ["n1", "n2"] {
            cluster.launch("slurmd", &["-D", "-N", node].map(str::to_owned));
        }
        let idle = || cluster.ask("sinfo", &["-h", "-t", "idle", "-o", "%D"]).trim() == "2";
        let deadline = Instant::now() + PATIENCE;
        while !idle() {
            assert!(Instant::now() < deadline, "two nodes are never there:\n{}", cluster.logs());
            thread::sleep(Duration::from_millis(100));
        }
        Some(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fleet.place.path("slurm").join(name)
    }

    fn configure(&self) {
        fs::create_dir_all(self.path("state")).unwrap();
        for node in ["n1", "n2"] {
            fs::create_dir(self.path(&format!("spool-{node}"))).unwrap();
        }
        fs::write(self.path("munge.key"), random_bytes::<128>()).unwrap();
        fs::set_permissions(self.path("munge.key"), fs::Permissions::from_mode(0o600)).unwrap();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap().to_owned();
        let directory = self.path("").display().to_string();
        let [controller, first, second] = free_ports();
        let text = format!(
            "ClusterName=haul\n\
            SlurmctldHost={host}(127.0.0.1)\n\
            SlurmctldPort={controller}\n\
            AuthType=auth/munge\n\
            AuthInfo=socket={directory}munge.socket\n\
            SlurmUser=root\n\
            SlurmdUser=root\n\
            StateSaveLocation={directory}state\n\
            SlurmdSpoolDir={directory}spool-%n\n\
            SlurmctldPidFile={directory}controller.pid\n\
            SlurmdPidFile={directory}%n.pid\n\
            SlurmctldLogFile={directory}controller.log\n\
            SlurmdLogFile={directory}%n.log\n\
            MailProg=/bin/true\n\
            ProctrackType=proctrack/linuxproc\n\
            TaskPlugin=task/none\n\
            SwitchType=switch/none\n\
            MpiDefault=none\n\
            SelectType=select/cons_tres\n\
            SelectTypeParameters=CR_CPU\n\
            SchedulerType=sched/builtin\n\
            SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0\n\
            SlurmdParameters=config_overrides\n\
            ReturnToService=2\n\
            NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=8\n\
            NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=8\n\
            PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(self.path("slurm.conf"), text).unwrap();
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.fleet.command(program);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        command
    }

    fn launch(&mut self, program: &str, words: &[String]) {
        let log = fs::File::create(self.path(&format!("{program}.out"))).unwrap();
        let mut command = self.command(program);
        command.args(words).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    /// Output of a program of Slurm.
    fn ask(&self, program: &str, words: &[&str]) -> String {
        let output = output_of(self.command(program).args(words));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Submits a script of `examples/slurm` and gives the job's number.
    #[track_caller]
    fn submit(&self, script: &str, options: &[&str]) -> String {
        let mut command = self.command("sbatch");
        command.arg("--parsable").args(options).arg(example("slurm").join(script));
        let output = output_of(command.arg(self.fleet.plan()));
        assert!(output.status.success(), "{output:?}\n{}", self.logs());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Waits for the end of a job. The two minutes that Slurm waits before it runs a job again are
    /// cut short to three seconds by its own command: a node refuses what comes back in the same
    /// second ("Job credential revoked").
    #[track_caller]
    fn finish(&self, job: &str) -> Vec<Told> {
        let deadline = Instant::now() + PATIENCE;
        let mut hurried = BTreeSet::new();
        loop {
            let queue = self.ask("squeue", &["-h", "-j", job, "-o", "%A %T %r"]);
            if queue.trim().is_empty() {
                break;
            }
            for line in queue.lines().filter(|line| line.ends_with(" PENDING BeginTime")) {
                let id = line.split(' ').next().unwrap();
                if hurried.insert(id.to_owned()) {
                    self.ask("scontrol", &["update", &format!("JobId={id}"), "StartTime=now+3"]);
                }
            }
            assert!(Instant::now() < deadline, "it does not end: {queue}\n{}", self.logs());
            thread::sleep(Duration::from_millis(100));
        }
        let told = self.ask("scontrol", &["show", "job", "-o", job]);
        told.lines().filter(|line| line.contains("JobId=")).map(read_job).collect()
    }

    /// Last lines of all logs, for a failure's message.
    fn logs(&self) -> String {
        let mut files: Vec<_> =
            fs::read_dir(self.path("")).into_iter().flatten().flatten().collect();
        files.extend(fs::read_dir(self.fleet.place.path("")).into_iter().flatten().flatten());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|it| it == "log" || it == "out");
        let files = files.iter().map(fs::DirEntry::path).filter(is_log);
        let tail = |text: String| {
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(30)..].join("\n")
        };
        files
            .map(|path| {
                let text = fs::read(&path).unwrap_or_default();
                format!("== {}\n{}\n", path.display(), tail(String::from_utf8_lossy(&text).into()))
            })
            .collect()
    }

    /// Processes of this cluster, known by the configuration in their environment.
    fn processes(&self) -> Vec<Pid> {
        let mark = format!("SLURM_CONF={}", self.path("slurm.conf").display()).into_bytes();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |number: &i32| {
            let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        };
        numbers.filter(is_ours).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The nodes first, then the controller and munged, which they need for their end.
        for mut daemon in self.daemons.drain(..).rev() {
            let id = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
            let _ = id.map(|id| kill_process(id, Signal::TERM));
            let deadline = Instant::now() + END_MAX;
            while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Jobs of a test that failed have processes of their own, which outlive the nodes.
        for id in self.processes() {
            let _ = kill_process(id, Signal::KILL);
        }
        let deadline = Instant::now() + END_MAX;
        while !self.processes().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn read_job(line: &str) -> Told {
    let of =
        |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Told {
        task: of("ArrayTaskId").and_then(|task| task.parse().ok()),
        state: of("JobState").unwrap().to_owned(),
        ended_with: of("ExitCode").unwrap().to_owned(),
        restarts: of("Restarts").unwrap().parse().unwrap(),
    }
}

/// Ports that nobody has: from a place that differs from process to process.
fn free_ports() -> [u16; 3] {
    let start = usize::from(random_bytes::<1>()[0]) * 40;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut ports = PORTS.skip(start).filter(is_free);
    std::array::from_fn(|_| ports.next().unwrap())
}

fn random_bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn an_array_job_of_slurm_runs_a_killed_shard_again_and_a_refused_one_never() {
    let Some(cluster) = Cluster::start(Fleet::new(4, "SLURM_ARRAY_TASK_ID", 1)) else { return };
    let fleet = &cluster.fleet;
    fleet.slow_down();
    // The plan has no fifth shard.
    let job = cluster.submit("array.sh", &["--array=1-5%4"]);
    fleet.kill_on_the_way();
    let told = cluster.finish(&job);
    assert_eq!(told.len(), 5, "{told:?}");
    for task in &told {
        let number = task.task.unwrap();
        let ended = if number == 5 { ("FAILED", "2:0") } else { ("COMPLETED", "0:0") };
        assert_eq!((&task.state[..], &task.ended_with[..]), ended, "{told:?}\n{}", cluster.logs());
        assert_eq!(task.restarts, u32::from(number == fleet.large), "{told:?}");
    }
    fleet.ran(|shard| fleet.once_more_if_killed(shard), 5);
    fleet.is_moved();
    // The last task of an array has the number of the whole as its own.
    fleet.fail_once(4);
    let job = cluster.submit("array.sh", &["--array=1-4"]);
    let told = cluster.finish(&job);
    let again: Vec<_> =
        told.iter().filter(|task| task.restarts > 0).map(|task| task.task).collect();
    assert_eq!((again, told.len()), (vec![Some(4)], 4), "{told:?}\n{}", cluster.logs());
}

#[test]
fn the_tasks_of_srun_take_a_shard_each_and_the_job_is_run_again_when_its_time_is_over() {
    let Some(cluster) = Cluster::start(Fleet::new(2, "SLURM_PROCID", 0)) else { return };
    let fleet = &cluster.fleet;
    // As its first lines say: a node for each task, and there are two.
    let mut command = cluster.command("sbatch");
    command.arg("--ntasks=3").arg(example("slurm/srun.sh")).arg(fleet.plan());
    let refused = String::from_utf8(output_of(&mut command).stderr).unwrap();
    assert!(refused.contains("Requested node configuration is not available"), "{refused}");
    // More tasks than shards: haul refuses, and Slurm does not try again.
    let job = cluster.submit("srun.sh", &["--ntasks=3", "--ntasks-per-node=2"]);
    let told = cluster.finish(&job);
    assert_eq!((&told[0].ended_with[..], told[0].restarts), ("2:0", 0), "{}", cluster.logs());
    fleet.ran(|_| 1, 3);
    fleet.slow_down();
    let job = cluster.submit("srun.sh", &["--ntasks=2"]);
    fleet.wait_until_on_the_way();
    // As Slurm does a minute before the job's time is over, by the script's `--signal`.
    cluster.ask("scancel", &["--signal=TERM", &job]);
    let told = cluster.finish(&job);
    assert_eq!((&told[0].state[..], told[0].restarts), ("COMPLETED", 1), "{}", cluster.logs());
    // The whole job is run again: its other shard, too.
    fleet.ran(|shard| if shard == 3 { 1 } else { 3 }, 3);
    fleet.is_moved();
}
