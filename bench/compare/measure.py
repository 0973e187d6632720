"""Measures one run: wall time, CPU seconds of both sides, and peak memory.

The client is measured by the kernel's account of an ended child (wait4), so nothing is missed.
The server lives on: its CPU time is read before and after, with its ended threads, its children and
the children it has reaped. Only of the reaped ones the kernel tells no more than clock ticks,
mostly 10 ms; of the others it tells nanoseconds.

Not counted: kernel threads that work for a mover, such as write-back. The CPU seconds of the whole
machine are therefore recorded too; they mean something on a quiet machine only.
"""

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
POLL_S = 0.02
POLL_S_FIRST = 0.002  # Short runs have a peak too.
SETTLE_S_MAX = 2.0
ERROR_TEXT_CHARS_MAX = 600


class RunFailed(Exception):
    """A run that gave no number: what was tried, and what came of it."""


@dataclass
class Measurement:
    """What one run cost."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    machine_cpu_s: float
    client_memory_bytes: int
    server_memory_bytes: int
    stdout: str


def process_tree(pid: int) -> list:
    """The process and all its living descendants; empty when it has ended."""
    if not os.path.isdir(f"/proc/{pid}"):
        return []
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        found.append(parent)
        todo.extend(_children(parent))
    return found


def _children(pid: int) -> list:
    children = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            children.extend(int(word) for word in text.split())
    except OSError:  # It ended meanwhile, or the kernel lacks CONFIG_PROC_CHILDREN.
        return _children_by_scan(pid) if os.path.isdir(f"/proc/{pid}") else []
    return children


def _children_by_scan(pid: int) -> list:
    children = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat_fields(int(name))
        if fields and int(fields[1]) == pid:
            children.append(int(name))
    return children


def _stat_fields(pid: int) -> list:
    """The fields of /proc/PID/stat after the program's name, which may hold spaces."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tree_cpu_s(pid: int) -> float:
    """User and system seconds of a process, its descendants, and all that they have reaped."""
    return sum(_own_cpu_s(member) + _reaped_cpu_s(member) for member in process_tree(pid))


def _own_cpu_s(pid: int) -> float:
    """Of all threads, living and ended. /proc/PID/stat would cut off up to two clock ticks."""
    try:
        # CPUCLOCK_SCHED of another process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # It ended meanwhile.
        return 0.0


def _reaped_cpu_s(pid: int) -> float:
    fields = _stat_fields(pid)
    if not fields:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S  # cutime, cstime of proc(5)


def machine_cpu_s() -> float:
    """Seconds that all CPUs together were busy since boot."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def peak_memory_bytes(pid: int) -> int:
    """The most resident memory a living process has had (VmHWM); 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_peak_memory(pid: int) -> None:
    """Lets VmHWM of a process and its descendants begin anew at what is resident now."""
    for member in process_tree(pid):
        try:
            Path(f"/proc/{member}/clear_refs").write_text("5")  # proc(5), since Linux 4.0
        except OSError:
            pass


def wait_until_settled(pid: int, resident: set) -> None:
    """Waits until the server has reaped what it forked for the last client."""
    give_up = time.monotonic() + SETTLE_S_MAX
    while set(process_tree(pid)) - resident and time.monotonic() < give_up:
        time.sleep(0.01)


class _Watch(threading.Thread):
    """Looks at a running client and its server: peak memory, and the time limit."""

    def __init__(self, client_pid: int, server_pid, limit_s: float):
        super().__init__(daemon=True)
        self.client_pid, self.server_pid = client_pid, server_pid
        self.deadline = time.monotonic() + limit_s
        self.client_memory_bytes = self.server_memory_bytes = 0
        self.timed_out = False
        self.ended = threading.Event()

    def run(self):
        pause_s = POLL_S_FIRST
        while not self.ended.wait(pause_s):
            pause_s = min(2 * pause_s, POLL_S)
            self.look()
            if time.monotonic() > self.deadline and not self.timed_out:
                self.timed_out = True
                os.kill(self.client_pid, signal.SIGKILL)

    def look(self):
        client = peak_memory_bytes(self.client_pid)
        self.client_memory_bytes = max(self.client_memory_bytes, client)
        for pid in process_tree(self.server_pid) if self.server_pid else []:
            self.server_memory_bytes = max(self.server_memory_bytes, peak_memory_bytes(pid))


def measure(commands, server, env, limit_s, scratch) -> Measurement:
    """Runs the commands one after the other as one client of `server` (None: no server)."""
    server_pid = server.pid if server else None
    if server:
        wait_until_settled(server_pid, server.resident)
        forget_peak_memory(server_pid)
    server_cpu = tree_cpu_s(server_pid) if server else 0.0
    machine_cpu = machine_cpu_s()
    client_cpu, client_memory, server_memory, stdout = 0.0, 0, 0, ""
    wall_s = 0.0
    for command in commands:
        seconds, usage, watch, text = _run_client(command, server_pid, env, limit_s, scratch)
        wall_s += seconds
        client_cpu += usage.ru_utime + usage.ru_stime
        client_memory = max(client_memory, _client_memory(usage, watch))
        server_memory = max(server_memory, watch.server_memory_bytes)
        stdout += text
    machine_cpu = machine_cpu_s() - machine_cpu
    if server:
        wait_until_settled(server_pid, server.resident)
        if not process_tree(server_pid):
            raise RunFailed(f"the server ended during the run: {server.last_words()}")
        server_cpu = tree_cpu_s(server_pid) - server_cpu
        server_memory = max(server_memory, peak_memory_bytes(server_pid))
    return Measurement(
        wall_s, client_cpu, server_cpu, machine_cpu, client_memory, server_memory, stdout
    )


def _run_client(command, server_pid, env, limit_s, scratch):
    out_path, error_path = scratch / "client.out", scratch / "client.err"
    with open(out_path, "wb") as out, open(error_path, "wb") as error:
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=error, env=env
        )
        watch = _Watch(process.pid, server_pid, limit_s)
        watch.start()
        try:
            # WNOWAIT keeps the ended child's number taken until the watch has let go of it.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.monotonic() - started
        except BaseException:
            process.kill()
            raise
        finally:
            watch.ended.set()
            watch.join()
            _pid, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    text = out_path.read_text(errors="replace")
    if process.returncode != 0:
        why = f"more than {limit_s:.0f} s" if watch.timed_out else f"status {process.returncode}"
        words = (error_path.read_text(errors="replace") + text)[-ERROR_TEXT_CHARS_MAX:]
        # A progress line's control characters are no words.
        words = "".join(letter if letter.isprintable() else " " for letter in words).strip()
        raise RunFailed(f"{os.path.basename(command[0])} ended with {why}: {words}")
    return seconds, usage, watch, text


def _client_memory(usage, watch) -> int:
    """The kernel's peak when it can be trusted, otherwise the highest one seen.

    ru_maxrss of a child begins at what its parent, this program, held when it forked (exec_mmap in
    fs/exec.c keeps the old peak), so it is exact only above that.
    """
    kernel_bytes = usage.ru_maxrss * 1024
    if kernel_bytes > peak_memory_bytes(os.getpid()) or not watch.client_memory_bytes:
        return kernel_bytes
    return watch.client_memory_bytes
