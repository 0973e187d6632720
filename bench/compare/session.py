"""Runs every row once a round, in rounds, and keeps what each run cost.

A row runs in each setting that has its scenario: a file system, and memory touched before or not.
Rows of memory as it comes are run before the others of their round, which touch it.

All servers run for the whole session; idle ones cost nothing. The rows of a round begin one further
than in the round before, so that none always follows the same one. Where there are two networks, a
row runs in one and then in the other, and in the next round the other way round.

A peer that cannot be the best one rests: after one run that was slower than a third of the best
peer's median, after more when none of its runs reached a half. Its cold row, which is no faster, is
judged by the warm one before it has run. That saves half of a session's time.
"""

import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

from compare import packages, page_cache, settings
from compare.measure import RunFailed, measure
from compare.settings import OWN, Setting, touch_memory
from compare.workspace import FILE_NAME, TREE_NAME, sha256_of, sha256_of_zeros
from movers.mover import RUN_ORDER, NotHere, Place, Role, Scenario

SLOWEST_BYTES_PER_S = 20_000_000
LIMIT_S_MIN = 60.0
LIMIT_S_TREE = 300.0
# Of the best peer's speed. One run may have had bad luck; several do not have it by a half.
REST_BELOW_ONCE, REST_BELOW = 1 / 3, 1 / 2
WRITING = frozenset({Scenario.DISK, Scenario.COLD, Scenario.TREE})
EXTRA_ROUNDS_MAX = 3  # In settings beside the directory's own.
ENV_KEPT = ("PATH", "TZ")
TOKEN_IN_URL = re.compile(r"haul://[^@/ ]+@")
PASSWORD = re.compile(r"(--sftp-pass) [^ ]+")


@dataclass
class RowResult:
    """All runs of one row in one network and one setting.

    `failure` says why there is no number, or too few; `absent` why this host cannot run the row;
    `resting` why it was not run in every round.
    """

    row: object
    mover: object
    version: str
    network: str = "system"
    shared: bool = False  # It was run in the first network only, for all of them.
    setting: Setting = Setting(OWN, "disk", frozenset(Scenario), True)
    congestion: str = ""  # Of its connections; empty where it has none.
    absent: str = ""
    resting: str = ""
    command_shown: str = ""
    samples: list = field(default_factory=list)
    took_s: float = 0.0  # Of its last run, with what was prepared for it and checked after it.
    ran_in: int = 0  # The last round in which it was run.
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

    def __init__(self, options, workspace, kinds, networks, places=None):
        self.options, self.workspace, self.kinds = options, workspace, kinds
        self.networks = networks  # The one that the headline tables are of is the first.
        self.settings = places or settings.own_settings(workspace.root, "touched")
        self.skipped, self.results, self.rounds_done = {}, [], 0
        self.env = {name: os.environ[name] for name in ENV_KEPT if name in os.environ}
        self.env.setdefault("PATH", packages.PATH)
        home = workspace.root / "home"  # Settings of this user's must not reach the movers.
        home.mkdir()
        self.env.update(HOME=str(home), LC_ALL="C")

    def run(self) -> None:
        started = []
        try:
            for kind in self.kinds:
                for network in self.networks if kind.in_every_network else self.networks[:1]:
                    with network.entered():
                        self._start(kind(self.options, network), started)
            self._run_rounds()
        finally:
            for mover in started:
                mover.stop()

    def of(self, network, setting=OWN) -> list:
        """The results that are compared with each other: those of a network and a setting."""
        return [
            result
            for result in self.results
            if (result.shared or result.network == network.key) and result.setting.key == setting
        ]

    def _start(self, mover, started) -> None:
        lacking = mover.lacking()
        if lacking:
            self._skip(mover, lacking)
            return
        started.append(mover)  # Before the start: a server that half started is ended too.
        try:
            mover.start(self.workspace, self.env)
        except (RunFailed, OSError, LookupError) as error:
            self._skip(mover, f"its server did not start: {self._hide(str(error))}")
            return
        version = mover.version()
        for row in mover.rows():
            if not self.options.wants(mover.name, row.name):
                continue
            for setting in self._settings_of(row, mover.network):
                result = RowResult(row, mover, version, mover.network.key, setting=setting)
                result.shared = not mover.in_every_network
                if row.role is not Role.LOCAL:
                    result.congestion = row.congestion or mover.network.congestion
                self.results.append(result)

    def _settings_of(self, row, network) -> list:
        """Every setting is there with the headline's congestion control, the own one with all."""
        return [
            setting
            for setting in self.settings
            if row.scenario in setting.scenarios
            and (setting.key == OWN or network is self.networks[0])
        ]

    def _skip(self, mover, why) -> None:
        first = mover.network is self.networks[0]
        name = mover.name if first else f"{mover.name} ({mover.network.title()})"
        why = " ".join(why.split())  # A server's last words have lines of their own.
        if first or self.skipped.get(mover.name) != why:
            self.skipped[name] = why
            say(f"{name}: skipped: {why}")

    def _run_rounds(self) -> None:
        started = time.monotonic()
        for number in range(1, self.options.rounds + 1):
            begun = time.monotonic()
            for scenario in RUN_ORDER:
                if scenario is Scenario.TREE:
                    self.workspace.await_inodes()
                for setting in sorted(self.settings, key=lambda setting: setting.touched):
                    for result in self._in_order(scenario, number, setting.key):
                        if self._takes_part(result, number):
                            self._run_row(result, number)
            self.workspace.remove_trees()
            self.rounds_done = number
            now = time.monotonic()
            ends_s = now - started + self._next_round_s(number, now - begun)
            over = ends_s > self.options.minutes * 60
            if over and number < self.options.rounds:
                say(f"{number} rounds in {(now - started) / 60:.0f} minutes: no time for another")
                break

    def _next_round_s(self, number, took_s) -> float:
        """Seconds of the round behind this one, which took `took_s`: without the rows that rest."""
        rows_s = sum(result.took_s for result in self.results if result.ran_in == number)
        taking_part = (result for result in self.results if self._takes_part(result, number + 1))
        return took_s - rows_s + sum(result.took_s for result in taking_part)

    def _in_order(self, scenario, number, setting=OWN) -> list:
        """The rows of a table in a round: a row's networks one behind the other, in turns first."""
        results = [
            result
            for result in self.results
            if result.row.scenario is scenario and result.setting.key == setting
        ]
        names = list(dict.fromkeys(result.row.name for result in results))
        first = (number - 1) % len(names) if names else 0
        ordered = []
        for name in names[first:] + names[:first]:
            networks = [result for result in results if result.row.name == name]
            ordered += networks if number % 2 else networks[::-1]
        return ordered

    def _takes_part(self, result, number) -> bool:
        if result.failure or result.absent or number > (result.row.rounds_max or number):
            return False
        if result.setting.key != OWN and number > EXTRA_ROUNDS_MAX:
            return False
        if not result.resting and not self.options.all and result.row.role is Role.PEER:
            result.resting = self._why_resting(result)
        return not result.resting

    def _why_resting(self, result) -> str:
        peers = [
            other
            for other in self.results
            if other.network == result.network
            and other.setting.key == result.setting.key
            and other.row.role is Role.PEER
        ]
        judged, where = result, ""
        if not result.samples and result.row.twin:
            judged = next((peer for peer in peers if peer.row.name == result.row.twin), result)
            where = " from a warm source"
        if not judged.samples:
            return ""
        best = max(_middle(peer) for peer in peers if peer.row.scenario is judged.row.scenario)
        share = max(sample.gb_per_s() for sample in judged.samples) / best if best else 1.0
        limit = REST_BELOW_ONCE if len(judged.samples) == 1 else REST_BELOW
        return f"{share:.2f} of the best peer{where}, so it rested" if share < limit else ""

    def _run_row(self, result, number) -> None:
        row, folder = result.row, None
        begun, result.ran_in = time.monotonic(), number
        shown = f"round {number}/{self.options.rounds} {row.name}"
        if result.setting.key != OWN:
            shown += f" ({result.setting.key})"
        if len(self.networks) > 1 and not result.shared:
            shown += f" ({result.mover.network.congestion})"
        try:
            if row.scenario is not Scenario.DISCARD:
                name = f"{row.name}-{result.network}-{result.setting.key}-{number}"
                on = result.setting.folder
                folder = self.workspace.fresh_target(name, row.target_owner, on)
            place = self._place(row, folder, result.setting)
            with result.mover.network.entered():
                sample = self._timed_run(result, place, number)
            if row.scenario is Scenario.TREE:
                self._check_tree(result, place.target)
            elif place.target:
                self._check_target(result, place)
            result.samples.append(sample)
            say(f"{shown}: {sample.gb_per_s():.2f} GB/s, {sample.cpu_s_per_gb():.2f} CPU s/GB")
        except NotHere as error:
            result.absent = self._hide(str(error))
            say(f"{shown}: skipped: {result.absent}")
        except (RunFailed, OSError) as error:
            result.failure = self._hide(f"round {number}: {error}")
            say(f"{shown}: FAILED: {result.failure}")
        finally:
            if folder and row.scenario is Scenario.TREE:
                self.workspace.keep_target(folder)
            elif folder:
                self.workspace.remove_target(folder)
            result.took_s = time.monotonic() - begun

    def _place(self, row, folder, setting) -> Place:
        root = self.workspace.root
        if row.scenario is Scenario.TREE:
            target = folder / TREE_NAME
            return Place(self.workspace.tree, self.workspace.tree_bytes, target, root)
        target = folder / FILE_NAME if folder else None
        if row.source is not None:
            return Place(row.source, row.size_bytes, target, root)
        source = self.workspace.source_in(setting.folder)
        return Place(source, self.workspace.size_bytes, target, root)

    def _prepare(self, row, setting) -> None:
        """Takes memory for the target and gives it back; the source comes into the page cache, or
        out of it."""
        if setting.touched and row.scenario in WRITING:
            tree = row.scenario is Scenario.TREE
            touch_memory(self.workspace.tree_bytes if tree else self.workspace.size_bytes)
        if row.prepare:
            row.prepare()
        elif row.scenario is Scenario.TREE:
            self.workspace.warm_tree()
        elif row.scenario is Scenario.COLD:
            try:
                page_cache.evict(self.workspace.source_in(setting.folder))
            except RunFailed as error:
                raise NotHere(str(error)) from error
        else:
            self.workspace.warm_source(setting.folder)

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
        self._prepare(row, result.setting)
        cost = measure(commands, result.mover.server, env, limit_s, self.workspace.scratch)
        report = row.read_report(cost.stdout, place) if row.read_report else {}
        if row.look_after:
            report.update(row.look_after())
        seconds, size = cost.wall_s, place.size_bytes
        if row.own_clock:
            seconds, size = report["seconds"], report["bytes"]
        return Sample(number, seconds, size, cost, report)

    def _check_target(self, result, place) -> None:
        """The size in every round, every byte once, both outside the measured time."""
        target = place.target
        if not target.is_file():
            raise RunFailed(f"the target {target} is not there")
        found = target.stat().st_size
        if found != place.size_bytes:
            raise RunFailed(f"the target has {found} of {place.size_bytes} bytes")
        if not result.equality_checked:
            if sha256_of(target) != self._expected_sha256(place):
                raise RunFailed("the target's SHA-256 is not the source's")
            result.equality_checked = True

    def _expected_sha256(self, place) -> str:
        if not isinstance(place.source, str) and place.source.name == FILE_NAME:
            return self.workspace.source_sha256
        if isinstance(place.source, str):
            return sha256_of_zeros(place.size_bytes)
        return sha256_of(place.source)

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
        """A text without tokens, passwords and without this session's random directory name."""
        text = TOKEN_IN_URL.sub("haul://TOKEN@", text)
        text = PASSWORD.sub(r"\1 PASSWORD", text)
        return text.replace(str(self.workspace.root), "/WORK")


def _middle(result) -> float:
    """The median speed; 0 of a row without a number."""
    if result.failure or not result.samples:
        return 0.0
    return statistics.median(sample.gb_per_s() for sample in result.samples)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
