"""A fleet on one machine: network namespaces behind one switch, by links of a shaped rate, and Slurm.

The switch is a namespace with a bridge. Each host is a namespace with a veth to it, whose both ends
have a token bucket (tc-tbf(8)). A node of Slurm has a host name and numbers of processes of its own,
too (uts_namespaces(7), pid_namespaces(7)): when its first process dies, all of it is gone at once, as
when a machine loses its power.
"""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import time

from trial import kill

NETWORK = "10.78.0"
CONTROLLER = f"{NETWORK}.254"
# A packet that leaves in one piece (GSO) is at most 64 KiB; the queue is one of 10 ms and such a burst.
BUCKET = ["burst", "256kb", "latency", "10ms"]
PROGRAMS = ["ip", "tc", "unshare", "nsenter", "munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue"]
# Seconds in which the controller knows that a node is gone.
NODE_TIMEOUT_S = 10
PATIENCE_S = 60
# Each look at the queue starts a program, which costs the machine some milliseconds.
QUEUE_EVERY_S = 0.5


def wait_until(what, is_so, timeout_s=PATIENCE_S):
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


class Switch:
    """Namespaces by the name of the host, and the words that run a command in one."""

    def __init__(self, hosts, mbit_per_s):
        self.hosts = {host: f"{NETWORK}.{number}" for number, host in enumerate(hosts, 1)}
        self.mbit_per_s = mbit_per_s

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def namespace(host):
        return f"haul-fleet-{os.getpid()}-{host}"

    def within(self, host):
        # ip-netns(8) would mount another /sys, without the control groups that slurmd looks for.
        return ["nsenter", f"--net=/run/netns/{self.namespace(host)}"]

    def make(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        for host in ["switch", *self.hosts]:
            ip("netns", "add", self.namespace(host))
            ip("-n", self.namespace(host), "link", "set", "lo", "up")
        switch = self.namespace("switch")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "address", "add", f"{CONTROLLER}/24", "dev", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host, address in self.hosts.items():
            own = self.namespace(host)
            there = ["netns", switch, "name", host]
            ip("link", "add", "wire", "netns", own, "type", "veth", "peer", *there)
            ip("-n", switch, "link", "set", host, "master", "bridge", "up")
            ip("-n", own, "address", "add", f"{address}/24", "dev", "wire")
            ip("-n", own, "link", "set", "wire", "up")
            for namespace, device in [(own, "wire"), (switch, host)]:
                words = ["tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf"]
                subprocess.run([*words, "rate", f"{self.mbit_per_s}mbit", *BUCKET], check=True)

    def remove(self):
        for host in ["switch", *self.hosts]:
            words = ["ip", "netns", "delete", self.namespace(host)]
            subprocess.run(words, check=False, stderr=subprocess.DEVNULL)

    def connect(self, host, state):
        """Plugs a host's cable in (`up`) or out (`down`), at the switch."""
        words = ["ip", "-n", self.namespace("switch"), "link", "set", host, state]
        subprocess.run(words, check=True)


class Slurm:
    """A controller beside the switch, munged, and a node in each host that is named."""

    def __init__(self, switch, nodes, place, environment):
        self.switch, self.nodes, self.place = switch, nodes, pathlib.Path(place)
        self.environment = {**environment, "SLURM_CONF": str(self.place / "slurm.conf")}
        self.daemons, self.running = [], {}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            print("\n".join(self.logs()))
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.configure()
        self.launch("munged", [], ["munged", "-F", "--force", *self.words_of_munge()])
        wait_until("munged answers", (self.place / "munge.socket").exists)
        within = self.switch.within("switch")
        self.controller = self.launch("controller", within, ["slurmctld", "-D", "-i"])
        wait_until("the controller answers", lambda: "UP" in self.ask("scontrol", "ping"))
        for node in self.nodes:
            self.start_node(node)
        self.wait_for_nodes()

    def words_of_munge(self):
        (self.place / "munge.key").write_bytes(os.urandom(128))
        (self.place / "munge.key").chmod(0o600)
        words = [f"--{of}-file={self.place}/munge.{of}" for of in ["key", "pid", "seed", "log"]]
        return [*words, f"--socket={self.place}/munge.socket"]

    def configure(self):
        (self.place / "state").mkdir(parents=True)
        host = os.uname().nodename.split(".")[0]
        lines = [
            "ClusterName=haul",
            f"SlurmctldHost={host}({CONTROLLER})",
            f"AuthType=auth/munge\nAuthInfo=socket={self.place}/munge.socket",
            "SlurmUser=root\nSlurmdUser=root",
            f"StateSaveLocation={self.place}/state",
            f"SlurmdSpoolDir={self.place}/spool-%n",
            f"SlurmctldPidFile={self.place}/controller.pid\nSlurmdPidFile={self.place}/%n.pid",
            f"SlurmctldLogFile={self.place}/controller.log\nSlurmdLogFile={self.place}/%n.log",
            "MailProg=/bin/true\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none",
            "SwitchType=switch/none\nMpiDefault=none",
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU",
            "SchedulerType=sched/builtin",
            "SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0",
            f"SlurmdParameters=config_overrides\nSlurmdTimeout={NODE_TIMEOUT_S}\nReturnToService=2",
        ]
        for node in self.nodes:
            (self.place / f"spool-{node}").mkdir()
            address = self.switch.hosts[node]
            # One task of array.sh, which takes two processors, at a time.
            lines.append(f"NodeName={node} NodeHostname={node} NodeAddr={address} CPUs=2")
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        (self.place / "slurm.conf").write_text("\n".join(lines) + "\n")

    def launch(self, name, within, words):
        with open(self.place / f"{name}.out", "ab") as log:
            process = subprocess.Popen(
                [*within, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.place,
            )
        self.daemons.append(process)
        return process

    def start_node(self, node):
        self.switch.connect(node, "up")
        own = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        first = ["sh", "-c", 'hostname "$0"; slurmd -D -N "$0" & wait', node]
        within = self.switch.within(node)
        self.running[node] = self.launch(node, within, [*own, *first])

    def kill_node(self, node):
        """Takes a node away as when its power is lost: no packet tells of the end of its processes,
        those of its jobs too."""
        self.switch.connect(node, "down")
        kill(self.running.pop(node))

    @staticmethod
    def words_as(node, words):
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', node, *words]

    def words_on(self, node, words):
        """Words that run a command on a node without Slurm, as by ssh."""
        return [*self.switch.within(node), *self.words_as(node, words)]

    def wait_for_nodes(self):
        def are_there():
            states = self.ask("sinfo", "-h", "-N", "-o", "%T").split()
            return len(states) == len(self.nodes) and set(states) <= {"idle", "mixed", "allocated"}

        wait_until("all nodes are there", are_there)

    def ask(self, *words):
        within = self.switch.within("switch")
        ran = subprocess.run(
            [*within, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.place,
            text=True,
            timeout=PATIENCE_S,
        )
        return ran.stdout

    def submit(self, script, *words, options=()):
        told = self.ask("sbatch", "--parsable", *options, str(script), *map(str, words)).strip()
        if not told.isdigit():
            raise RuntimeError(f"sbatch: {told}")
        return told

    def queue(self, job):
        """Number, state, reason, and node of each task that has not ended."""
        told = self.ask("squeue", "-h", "-r", "-j", job, "-o", "%K|%A|%T|%r|%N")
        return [line.split("|") for line in told.splitlines() if line.count("|") == 4]

    def finish(self, job, timeout_s, look=lambda queue: None):
        """Waits for a job, with a look at its queue now and then. Slurm lets a task that is run again
        wait for two minutes: here for three seconds, by scontrol."""
        deadline, hurried = time.monotonic() + timeout_s, set()
        while queue := self.queue(job):
            for _, number, state, reason, _ in queue:
                if (state, reason) == ("PENDING", "BeginTime") and number not in hurried:
                    hurried.add(number)
                    self.ask("scontrol", "update", f"JobId={number}", "StartTime=now+3")
            look(queue)
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} has not ended within {timeout_s} s: {queue}")
            time.sleep(QUEUE_EVERY_S)
        return self.told(job)

    def told(self, job):
        """What `scontrol show job` says of each task, by its number in the array."""
        lines = self.ask("scontrol", "show", "job", "-o", job).splitlines()
        words = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        return {int(one["ArrayTaskId"]): one for one in words if "ArrayTaskId" in one}

    def logs(self):
        for path in sorted(self.place.glob("*.log")) + sorted(self.place.glob("*.out")):
            text = path.read_text(errors="replace").splitlines()
            yield f"== {path.name}\n" + "\n".join(text[-15:])

    def bytes_to(self, hosts):
        """Bytes that left the switch for the hosts, with headers of Ethernet, IP and TCP: the counters of
        the controller's namespace (proc(5))."""
        text = pathlib.Path(f"/proc/{self.controller.pid}/net/dev").read_text()
        rows = (line.split(":") for line in text.splitlines()[2:])
        return sum(int(row[1].split()[8]) for row in rows if row[0].strip() in hosts)

    def stop(self):
        for process in reversed(self.daemons):
            kill(process)
        self.daemons = []


@contextlib.contextmanager
def fleet(nodes, receivers, mbit_per_s, directory, environment):
    with Switch([*nodes, *receivers], mbit_per_s) as switch:
        with tempfile.TemporaryDirectory(prefix="slurm-", dir=directory) as place:
            with Slurm(switch, nodes, place, environment) as slurm:
                try:
                    yield switch, slurm
                except Exception:
                    print("\n".join(slurm.logs()))
                    raise
