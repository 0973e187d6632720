"""Runs every row once a round, in rounds, and keeps what each run cost.

All servers run for the whole session; idle ones cost nothing. The rows of a round begin one further
than in the round before, so that none always follows the same one.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

from compare import packages
from compare.measure import RunFailed, measure
from compare.workspace import FILE_NAME, TREE_NAME, sha256_of
from movers.mover import Place, Scenario

SLOWEST_BYTES_PER_S = 20_000_000
LIMIT_S_MIN = 60.0
LIMIT_S_TREE = 300.0
ENV_KEPT = ("PATH", "TZ")
TOKEN_IN_URL = re.compile(r"haul://[^@/ ]+@")


@dataclass
class RowResult:
    """All runs of one row. `failure` says why there is no number, or too few."""

    row: object
    mover: object
    version: str
    command_shown: str = ""
    samples: list = field(default_factory=list)
    equality_checked: bool = False
    failure: str = ""


@dataclass
class Sample:
    """One run."""

    round: int
    seconds: float
    bytes: int
    measurement: object
    report: dict

    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9

    def cpu_s_per_gb(self) -> float:
        return self.cpu_s() / (self.bytes / 1e9)

    def cpu_s(self) -> float:
        return self.measurement.client_cpu_s + self.measurement.server_cpu_s

    def as_dict(self) -> dict:
        cost = asdict(self.measurement)
        del cost["stdout"]
        return {
            "round": self.round,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "gb_per_s": self.gb_per_s(),
            "cpu_s_per_gb": self.cpu_s_per_gb(),
            **cost,
            "report": self.report,
        }


class Session:
    """The movers that can run here, and their results in table order."""

    def __init__(self, options, workspace, movers):
        self.options, self.workspace, self.movers = options, workspace, movers
        self.skipped, self.results = {}, []
        self.env = {name: os.environ[name] for name in ENV_KEPT if name in os.environ}
        self.env.setdefault("PATH", packages.PATH)
        home = workspace.root / "home"  # Settings of this user's must not reach the movers.
        home.mkdir()
        self.env.update(HOME=str(home), LC_ALL="C")

    def run(self) -> None:
        started = []
        try:
            for mover in self.movers:
                self._start(mover, started)
            self._run_rounds()
        finally:
            for mover in started:
                mover.stop()

    def _start(self, mover, started) -> None:
        lacking = mover.lacking()
        if lacking:
            self.skipped[mover.name] = lacking
            say(f"{mover.name}: skipped: {lacking}")
            return
        started.append(mover)  # Before the start: a server that half started is ended too.
        try:
            mover.start(self.workspace, self.env)
        except (RunFailed, OSError, LookupError) as error:
            self.skipped[mover.name] = f"its server did not start: {error}"
            say(f"{mover.name}: skipped: {self.skipped[mover.name]}")
            return
        version = mover.version()
        for row in mover.rows():
            if self.options.wants(mover.name, row.name):
                self.results.append(RowResult(row, mover, version))

    def _run_rounds(self) -> None:
        for number in range(1, self.options.rounds + 1):
            for scenario in Scenario:
                rows = [result for result in self.results if result.row.scenario is scenario]
                first = (number - 1) % len(rows) if rows else 0
                for result in rows[first:] + rows[:first]:
                    if not result.failure:
                        self._run_row(result, number)

    def _run_row(self, result, number) -> None:
        row, folder = result.row, None
        try:
            if row.scenario is not Scenario.DISCARD:
                folder = self.workspace.fresh_target(f"{row.name}-{number}", row.target_owner)
            if row.scenario is Scenario.TREE:
                target = folder / TREE_NAME
                place = Place(self.workspace.tree, self.workspace.tree_bytes, target)
            else:
                target = folder / FILE_NAME if folder else None
                place = Place(self.workspace.source, self.workspace.size_bytes, target)
            sample = self._timed_run(result, place, number)
            if row.scenario is Scenario.TREE:
                self._check_tree(result, target)
            elif target:
                self._check_target(result, target)
            result.samples.append(sample)
            say(
                f"round {number}/{self.options.rounds} {row.name}: {sample.gb_per_s():.2f} GB/s,"
                f" {sample.cpu_s_per_gb():.2f} CPU s/GB"
            )
        except (RunFailed, OSError) as error:
            result.failure = self._hide(f"round {number}: {error}")
            say(f"round {number}/{self.options.rounds} {row.name}: FAILED: {result.failure}")
        finally:
            if folder and row.scenario is Scenario.TREE:
                self.workspace.keep_target(folder)
            elif folder:
                self.workspace.remove_target(folder)

    def _timed_run(self, result, place, number) -> Sample:
        row = result.row
        commands = [row.command(place)]
        if place.target and not row.makes_durable:
            sync = packages.find("sync") or "sync"
            # Of a tree the whole file system: sync(1) of 20,000 names is one fsync(2) for each.
            whole = ["--file-system"] if row.scenario is Scenario.TREE else [str(place.target)]
            commands.append([sync, *whole, str(place.target.parent)])
        result.command_shown = self._hide(" && ".join(" ".join(words) for words in commands))
        env = {**self.env, **result.mover.client_env, **row.env}
        limit_s = max(LIMIT_S_MIN, place.size_bytes / SLOWEST_BYTES_PER_S)
        if row.scenario is Scenario.TREE:
            limit_s = LIMIT_S_TREE
        if row.scenario is Scenario.TREE:
            self.workspace.warm_tree()
        else:
            self.workspace.warm_source()
        cost = measure(commands, result.mover.server, env, limit_s, self.workspace.scratch)
        report = row.read_report(cost.stdout, place) if row.read_report else {}
        seconds, size = cost.wall_s, place.size_bytes
        if row.own_clock:
            seconds, size = report["seconds"], report["bytes"]
        return Sample(number, seconds, size, cost, report)

    def _check_target(self, result, target) -> None:
        """The size in every round, every byte once, both outside the measured time."""
        if not target.is_file():
            raise RunFailed(f"the target {target} is not there")
        found = target.stat().st_size
        if found != self.workspace.size_bytes:
            raise RunFailed(f"the target has {found} of {self.workspace.size_bytes} bytes")
        if not result.equality_checked:
            if sha256_of(target) != self.workspace.source_sha256:
                raise RunFailed("the target's SHA-256 is not the source's")
            result.equality_checked = True

    def _check_tree(self, result, target) -> None:
        """The number of files in every round, every byte once."""
        found = sum(len(files) for _, _, files in os.walk(target))
        if found != self.workspace.tree_files:
            raise RunFailed(f"the target has {found} of {self.workspace.tree_files} files")
        if not result.equality_checked:
            words = ["diff", "-rq", str(self.workspace.tree), str(target)]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                raise RunFailed(f"the target is not the source: {done.stdout[:300]}")
            result.equality_checked = True

    def _hide(self, text: str) -> str:
        """A text without tokens and without this session's random directory name."""
        text = TOKEN_IN_URL.sub("haul://TOKEN@", text)
        return text.replace(str(self.workspace.root), "/WORK")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
