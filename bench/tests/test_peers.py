#!/usr/bin/env python3
"""Tests of bench/: python3 bench/tests/test_peers.py. Needs neither haul nor any peer."""

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

from compare import measure, networks, packages, page_cache, report, session  # noqa: E402
from compare import settings, targets  # noqa: E402
from compare.memory_limit import MemoryLimit, NoLimit  # noqa: E402
from compare.session import RowResult, Sample, Session  # noqa: E402
from compare.workspace import TREE_FILE_BYTES, Workspace  # noqa: E402
from movers import GIVEN, beyond, etransfer, iperf3  # noqa: E402
from movers.mover import Role, Row, Scenario, with_cold  # noqa: E402

FAKE = BENCH / "tests" / "fake_haul.py"
FAKE_MOVERS = BENCH / "tests" / "fake_movers.py"
GB = 10**9
GIB = 1 << 30
SYSTEM = networks.Network("system", "bbr", {})
APART = networks.Network("reno", "reno", {}, 7, 8)


def result(name, scenario, role, seconds, cpu_s=1.0, memory_bytes=0, network="system"):
    row = Row(name, scenario, role, name, "nothing", command=lambda place: [])
    made = RowResult(row, SimpleNamespace(server=None), "1", network)
    for number, taken in enumerate(seconds, 1):
        cost = measure.Measurement(taken, cpu_s, 0.0, 0.0, memory_bytes, 0, "")
        made.samples.append(Sample(number, taken, GB, cost, {}))
    return made


def run_peers(folder, *words, **environment):
    out = Path(folder) / "out.json"
    command = [sys.executable, str(BENCH / "peers"), "--size", "2M", "--files", "60", "--haul"]
    command.append(str(FAKE))
    command += ["--dir", str(folder), "--json", str(out), "--congestion", "system"]
    command += ["--file-systems", "own", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    return done, json.loads(out.read_text()) if out.exists() else None


def session_of(results, *where):
    made = Session.__new__(Session)
    made.networks, made.results = list(where) or [SYSTEM], results
    made.settings = [settings.Setting(settings.OWN, "disk", frozenset(Scenario), True)]
    made.options = SimpleNamespace(files=20_000, all=False, rounds=5)
    return made


class Targets(unittest.TestCase):
    def found(self, results, text, *where):
        every = targets.targets(session_of(results, *where))
        return next(target for target in every if target.text.startswith(text))

    def test_ratios_are_of_medians_and_the_best_peer_is_the_fastest(self):
        results = [
            result("haul-push-safe-disk", Scenario.DISK, Role.HAUL, [0.4, 0.5, 9.0], cpu_s=0.3),
            result("slow", Scenario.DISK, Role.PEER, [2.0, 2.0, 2.0], cpu_s=0.4),
            result("fast", Scenario.DISK, Role.PEER, [1.6, 1.0, 1.6], cpu_s=1.0),
            result("cp-disk", Scenario.DISK, Role.LOCAL, [0.6, 0.6, 0.6]),
            result("bare-a-disk", Scenario.DISK, Role.FLOOR, [0.7, 0.7, 0.7]),
            result("bare-b-disk", Scenario.DISK, Role.FLOOR, [0.45, 0.45, 0.45]),
        ]
        start = "warm -> disk durable, push safe"
        peer = self.found(results, f"{start} / best peer")
        self.assertEqual((peer.against, peer.verdict()), ("fast", "met"))
        self.assertAlmostEqual(peer.value, 3.2)
        self.assertEqual(self.found(results, f"{start} / cp").verdict(), "missed")
        pair = self.found(results, f"{start} / best bare pair")
        self.assertEqual((pair.against, pair.verdict()), ("bare-b-disk", "met"))
        plain = self.found(results, f"{start}, CPU s per GB / best")
        stricter = self.found(results, f"{start}, CPU s per GB / thrift")
        self.assertEqual((plain.verdict(), stricter.verdict()), ("met", "missed"))

    def test_rounds_are_compared_with_the_same_round(self):
        ours = result("haul-push-safe-disk", Scenario.DISK, Role.HAUL, [1.0, 2.0, 4.0])
        rested = result("peer", Scenario.DISK, Role.PEER, [1.0, 1.0])
        rested.samples[1].round = 3
        target = self.found([ours, rested], "warm -> disk durable, push safe / best peer")
        self.assertEqual(target.per_round, (0.25, 1.0))

    def test_each_congestion_control_has_its_own_best_mover_and_its_own_limit(self):
        ours, scenario = "haul-push-clear-none-discard", Scenario.DISCARD
        results = [
            result(ours, scenario, Role.HAUL, [0.5]),
            result("curl", scenario, Role.PEER, [1.0]),
            result(ours, scenario, Role.HAUL, [0.5], network="reno"),
            result("curl", scenario, Role.PEER, [0.7], network="reno"),
            result("bare-sendfile", scenario, Role.FLOOR, [0.5]),
        ]
        results[-1].shared = True
        start = "warm -> null:, push, clear without digest"
        system = self.found(results, f"{start} / best mover, as the", SYSTEM, APART)
        apart = self.found(results, f"{start} / best mover, reno for all", SYSTEM, APART)
        self.assertEqual((system.value, system.limit), (2.0, 2.3))
        self.assertEqual((round(apart.value, 6), apart.limit), (1.4, 1.5))
        bare = [
            target.verdict()
            for target in targets.targets(session_of(results, SYSTEM, APART))
            if target.text == f"{start} / bare sendfile"
        ]
        self.assertEqual(bare, ["met", "met"])

    def test_iperf3_is_compared_with_the_congestion_control_and_the_receiver_of_haul(self):
        results = [
            result("haul-push-clear-none-discard", Scenario.DISCARD, Role.HAUL, [0.5]),
            result("iperf3-skip-cubic", Scenario.DISCARD, Role.REFERENCE, [0.5]),
            result("haul-push-clear-none-copy-discard", Scenario.DISCARD, Role.HAUL, [1.0]),
            result("iperf3", Scenario.DISCARD, Role.REFERENCE, [4.0]),
            result("iperf3-cubic", Scenario.DISCARD, Role.REFERENCE, [0.8]),
        ]
        start = "warm -> null:, push, clear without digest"
        target = self.found(results, f"{start}, receiver copies / iperf3")
        self.assertEqual((target.against, target.verdict()), ("iperf3-cubic", "missed"))
        target = self.found(results, f"{start} / iperf3 --skip-rx-copy")
        self.assertEqual((target.against, target.verdict()), ("iperf3-skip-cubic", "met"))

    def test_references_are_never_the_best_peer_and_failed_rows_have_no_number(self):
        failed = result("broken", Scenario.DISCARD, Role.PEER, [0.01])
        failed.failure = "round 2: it broke"
        results = [
            failed,
            result("iperf3", Scenario.DISCARD, Role.REFERENCE, [0.1]),
            result("curl", Scenario.DISCARD, Role.PEER, [1.0]),
        ]
        self.assertEqual(targets.best_peer(results, Scenario.DISCARD).row.name, "curl")
        self.assertIsNone(targets.speed(failed))
        self.assertEqual(self.found(results, "warm -> null:").verdict(), "not measured")

    def test_larger_than_memory_is_a_rate_and_what_is_still_cached(self):
        base = result("beyond-base-zero", Scenario.BEYOND, Role.HAUL, [1.0])
        large = result("beyond-large-zero", Scenario.BEYOND, Role.HAUL, [1.2])
        large.samples[0].report["witness_resident"] = 0.9
        start = "larger than memory, push of zeros"
        self.assertEqual(self.found([base, large], f"{start} /").verdict(), "missed")
        cached = self.found([base, large], f"{start}: of another")
        self.assertEqual((cached.value, cached.verdict()), (0.9, "missed"))

    def test_memory_is_the_highest_of_all_runs(self):
        results = [
            result("haul-a", Scenario.DISK, Role.HAUL, [1.0], memory_bytes=10 << 20),
            result("haul-b", Scenario.DISK, Role.HAUL, [1.0], memory_bytes=65 << 20),
        ]
        memory = self.found(results, "peak memory")
        self.assertEqual((memory.value, memory.verdict()), (65.0, "missed"))


class Reports(unittest.TestCase):
    def shown(self, results, scenario, *where):
        """The tables of a part, each as its title and its lines."""
        parts = report._tables(session_of(results, *where), scenario)
        return dict(zip(parts[::3], parts[1::3])), parts[2::3]

    def made(self, name, role, seconds, congestion, network="system", setting=None):
        one = result(name, Scenario.DISK, role, seconds, network=network)
        one.congestion = congestion
        one.setting = setting or one.setting
        return one

    def test_a_row_shows_its_median_and_every_round_never_the_best_alone(self):
        ours = self.made("ours", Role.HAUL, [0.5, 4.0, 1.0], "cubic")
        rested = self.made("rested", Role.PEER, [2.0, 8.0], "cubic")
        rested.samples[1].round = 3
        tables, rounds = self.shown([ours, rested], Scenario.DISK)
        [table] = tables.values()
        self.assertIn("| 1.00 (0.25 .. 2.00) |", table)
        self.assertEqual(
            rounds[0].splitlines()[2:],
            ["| ours | 2.00 | 0.25 | 1.00 |", "| rested | 0.50 | - | 0.12 |"],
        )

    def test_no_table_has_two_congestion_controls_and_the_headline_has_all(self):
        results = [
            self.made("ours", Role.HAUL, [1.0], "reno", "reno"),
            self.made("curl", Role.PEER, [1.0], "reno", "reno"),
            self.made("cp", Role.LOCAL, [1.0], "", "reno"),
            self.made("ours", Role.HAUL, [1.0], "cubic"),
            self.made("curl", Role.PEER, [1.0], "bbr"),
        ]
        tables, _rounds = self.shown(results, Scenario.DISK, APART, SYSTEM)
        movers = [
            (title.split(";")[0], re.findall(r"^\| (\w+) \[?", table, re.M)[1:])
            for title, table in tables.items()
        ]
        names = [names for _, names in movers]
        self.assertEqual(names, [["ours", "curl", "cp"], ["ours"], ["curl"]])
        self.assertIn("reno", movers[0][0])
        self.assertIn("cubic, which they choose themselves", movers[1][0])
        self.assertIn("bbr", movers[2][0])
        with self.assertRaisesRegex(ValueError, "two: congestion"):
            report._table(results[3:], Scenario.DISK)

    def test_each_row_says_its_file_system_and_no_table_has_two(self):
        xfs = settings.Setting("xfs", "xfs (image)", settings.LARGE_FILES, True)
        results = [
            self.made("ours", Role.HAUL, [1.0], "bbr"),
            self.made("ours", Role.HAUL, [2.0], "bbr", setting=xfs),
        ]
        made = session_of(results)
        made.settings.append(xfs)
        tables = report._tables(made, Scenario.DISK)[1::3]
        for table, name, rate in zip(tables, ("disk", "xfs (image)"), ("1.00", "0.50")):
            self.assertRegex(table, rf"\| {re.escape(name)} \| {rate}")
        with self.assertRaisesRegex(ValueError, "two: setting"):
            report._table(results, Scenario.DISK)
        self.assertEqual(made.of(SYSTEM, "xfs"), results[1:])
        self.assertEqual(made.of(SYSTEM), results[:1])

    def test_who_copies_is_said_and_iperf3_has_a_row_of_each_where_it_can(self):
        options, where = SimpleNamespace(), networks.Network("system", "bbr", {})
        chosen = networks.short_path_congestion()
        for can, receivers in ((False, ["copies"]), (True, ["copies", iperf3.DISCARDS])):
            with mock.patch.object(iperf3, "can_skip", lambda can=can: can):
                rows = iperf3.Iperf3(options, where).rows()
            self.assertEqual([row.receiver for row in rows], 2 * receivers)
            self.assertEqual({row.congestion for row in rows}, {"", chosen})
        one = RowResult(rows[-1], SimpleNamespace(server=None), "1")
        self.assertIn(f"| {iperf3.DISCARDS} |", report._table([one], Scenario.DISCARD))
        ours = result("ours", Scenario.DISCARD, Role.HAUL, [1.0])
        ours.samples[0].report["copied_bytes"] = 5
        self.assertNotIn("in spite of", report._note(ours))
        ours.row = replace(ours.row, receiver=iperf3.DISCARDS)
        self.assertIn("copied 5 bytes in spite of", report._note(ours))


class Rounds(unittest.TestCase):
    def test_a_peer_that_cannot_be_the_best_one_rests_and_so_does_its_cold_row(self):
        rows = with_cold([Row("a-disk", Scenario.DISK, Role.PEER, "a", "", command=None)])
        self.assertEqual([row.name for row in rows], ["a-disk", "a-cold"])
        slow, cold = (RowResult(row, None, "1") for row in rows)
        slow.samples = result("", Scenario.DISK, Role.PEER, [3.1]).samples
        fast = result("b-disk", Scenario.DISK, Role.PEER, [1.0])
        near = result("c-disk", Scenario.DISK, Role.PEER, [2.9])
        ours = result("haul-push-safe-disk", Scenario.DISK, Role.HAUL, [9.0])
        other = result("d-disk", Scenario.DISK, Role.PEER, [0.1], network="reno")
        made = session_of([slow, cold, fast, near, ours, other])
        taking = [made._takes_part(one, 2) for one in made.results]
        self.assertEqual(taking, [False, False, True, True, True, True])
        self.assertIn("warm source", cold.resting)
        near.samples = result("", Scenario.DISK, Role.PEER, [2.9, 2.1]).samples
        self.assertFalse(made._takes_part(near, 3))
        near.resting, near.samples[0].seconds = "", 1.9
        self.assertTrue(made._takes_part(near, 3))
        made.options.all, slow.resting = True, ""
        self.assertTrue(made._takes_part(slow, 2))

    def test_the_next_round_takes_the_time_of_the_rows_that_do_not_rest(self):
        near = result("a-disk", Scenario.DISK, Role.PEER, [1.0])
        slow = result("b-disk", Scenario.DISK, Role.PEER, [9.0])
        once = result("c-disk", Scenario.DISK, Role.HAUL, [1.0])
        once.row = replace(once.row, rounds_max=1)
        made = session_of([near, slow, once])
        near.took_s, slow.took_s, once.took_s = 5.0, 60.0, 7.0
        near.ran_in, slow.ran_in, once.ran_in = 1, 1, 1
        # 8 seconds of the round belong to no row.
        self.assertEqual(made._next_round_s(1, 80.0), 13.0)
        # What rested in the last round has no part in its time.
        near.ran_in = 2
        self.assertEqual(made._next_round_s(2, 13.0), 13.0)

    def test_rows_of_two_networks_run_side_by_side_and_each_begins_in_turn(self):
        names = [("a", "system"), ("b", "system"), ("a", "reno"), ("b", "reno")]
        made = session_of(
            [result(name, Scenario.DISK, Role.PEER, [], network=key) for name, key in names]
        )
        orders = [
            [f"{one.row.name} {one.network}" for one in made._in_order(Scenario.DISK, number)]
            for number in (1, 2)
        ]
        self.assertEqual(orders[0], ["a system", "a reno", "b system", "b reno"])
        self.assertEqual(orders[1], ["b reno", "b system", "a reno", "a system"])
        self.assertEqual(made._in_order(Scenario.TREE, 1), [])

    def test_trees_stay_to_the_sessions_end_where_half_of_the_room_is_enough(self):
        tree = 100 * TREE_FILE_BYTES
        # Source, tree and the trees of one round; then those of the other rounds.
        needed = 2 * GIB + (1 + 8) * tree + GIB // 10
        enough = 2 * (needed + 8 * 4 * tree)
        for free, keeps in [(enough, True), (enough - 2, False)]:
            with tempfile.TemporaryDirectory() as folder:
                room = SimpleNamespace(free=free)
                with mock.patch.object(shutil, "disk_usage", return_value=room):
                    workspace = Workspace(folder, GIB, 100, trees_a_round=8, rounds=5)
                target = workspace.fresh_target("run", None)
                workspace.keep_target(target)
                workspace.remove_trees()
                self.assertEqual((workspace.kept / "run").exists(), keeps, free)
                workspace.remove()
                self.assertEqual(os.listdir(folder), [])


class Kernel(unittest.TestCase):
    def test_a_network_of_its_own_changes_nothing_outside(self):
        if os.geteuid() != 0:
            with self.assertRaisesRegex(networks.NetworkMissing, "needs root"):
                networks.own()
            self.skipTest("needs root")
        before = networks.system()
        try:
            apart = networks.own()
        except networks.NetworkMissing as error:
            self.skipTest(str(error))
        words = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control", "/proc/net/dev"]
        with apart.entered():
            inside = subprocess.run(words, capture_output=True, text=True).stdout
            self.assertEqual(networks.system().settings, before.settings)
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=5).close()
        self.assertEqual(inside.split()[0], apart.congestion)
        self.assertIn(apart.congestion, networks.SHORT_PATH)
        self.assertNotIn("eth0", inside)
        self.assertEqual(networks.system(), before)

    def test_a_file_is_seen_to_come_into_the_cache_and_to_leave_it(self):
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
            file.write(os.urandom(1 << 20))
            file.flush()
            self.assertEqual(page_cache.residency(file.name), 1.0)
            try:
                page_cache.evict(file.name)
            except measure.RunFailed as error:
                self.skipTest(str(error))
            self.assertLess(page_cache.residency(file.name), 0.02)
            with open(file.name, "rb") as again:
                again.read()
            self.assertEqual(page_cache.residency(file.name), 1.0)

    def test_a_program_behind_a_limits_words_is_in_its_group(self):
        try:
            limit = MemoryLimit(64 << 20)
        except NoLimit as error:
            self.skipTest(str(error))
        try:
            done = subprocess.run(
                [*limit.words(), "cat", "/proc/self/cgroup"], capture_output=True, text=True
            )
            self.assertIn(limit.group.name, done.stdout)
        finally:
            limit.remove()
        self.assertFalse(limit.group.exists())

    def test_the_file_is_larger_than_the_memory_that_is_left_for_it(self):
        whole = beyond.plan(2 * GIB, 16 * GIB, 100 * GIB)
        self.assertEqual((whole.limited, whole.limit_bytes), (False, 16 * GIB))
        self.assertGreaterEqual(whole.large_bytes, 17 * GIB)
        small = beyond.plan(2 * GIB, 16 * GIB, 30 * GIB)
        tiny = beyond.plan(2 << 20, 16 * GIB, 30 * GIB)
        for plan, base_bytes in ((small, 2 * GIB), (tiny, 2 << 20)):
            self.assertTrue(plan.limited)
            self.assertGreaterEqual(plan.large_bytes, 2 * plan.limit_bytes)
            # The file beside it, and the witness, are held by what the large one exceeds.
            self.assertGreaterEqual(plan.limit_bytes, base_bytes + beyond.WITNESS_BYTES)


class Given(unittest.TestCase):
    """Movers that only a path names, by programs that check their arguments and copy."""

    def run_one(self, kind, paths):
        programs = {"java": "java", "sshd": "sshd", "ssh-keygen": "ssh_keygen"}
        programs.update({name: name for name in ("bbcp", "etd", "etc", "mscp", "wdt", "sftp")})
        with tempfile.TemporaryDirectory() as folder:
            for name, role in programs.items():
                wrapper = Path(folder) / name
                wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_MOVERS} {role} "$@"\n')
                wrapper.chmod(0o755)
            (Path(folder) / "fdt.jar").write_text("")
            given = {kind.option: str(Path(folder) / paths)}
            options = SimpleNamespace(
                rounds=1, minutes=5, all=True, wants=lambda *_: True, is_root=False, **given
            )
            workspace = Workspace(folder, 1 << 20, 1, 0, 1)

            def find(program):
                own = Path(folder) / program
                return str(own) if own.exists() else shutil.which(program)

            with mock.patch.object(packages, "find", find), mock.patch.object(session, "say"):
                workspace.make_source()
                made = Session(options, workspace, [kind], [SYSTEM])
                made.run()
            workspace.remove()
        return made

    def test_each_is_called_as_its_documentation_says(self):
        paths = {"fdt": "fdt.jar", "etransfer": "."}
        for kind in GIVEN:
            with self.subTest(kind.name):
                made = self.run_one(kind, paths.get(kind.option, kind.option))
                self.assertEqual(made.skipped, {})
                self.assertGreaterEqual(len(made.results), 2)
                for one in made.results:
                    self.assertEqual(one.failure, "")
                    if not one.absent:  # A cold row, on a file system that keeps its pages.
                        self.assertTrue(one.equality_checked, one.row.name)

    def test_etransfer_which_refuses_to_be_root_is_nobody_who_owns_the_target(self):
        for is_root, owner in ((True, "nobody"), (False, None)):
            made = etransfer.Etransfer(SimpleNamespace(is_root=is_root), SYSTEM)
            self.assertEqual({row.target_owner for row in made.rows()}, {owner})

    def test_touched_memory_is_not_this_programs_own(self):
        before = measure.peak_memory_bytes(os.getpid())
        settings.touch_memory(256 << 20)
        self.assertLess(measure.peak_memory_bytes(os.getpid()) - before, 32 << 20)
        with mock.patch.object(session, "touch_memory") as touched:
            made = session_of([])
            made.workspace = mock.Mock(size_bytes=7, tree_bytes=5)
            wanted_of = {Scenario.DISK: [7], Scenario.TREE: [5], Scenario.DISCARD: []}
            for scenario, wanted in wanted_of.items():
                touched.reset_mock()
                row = Row("a", scenario, Role.PEER, "a", "", command=None)
                for memory in (True, False):
                    made._prepare(row, settings.Setting("own", "", frozenset(Scenario), memory))
                self.assertEqual([call.args[0] for call in touched.call_args_list], wanted)

    def test_without_a_path_it_is_skipped_by_the_name_of_its_option(self):
        for kind in GIVEN:
            lacking = kind(SimpleNamespace(**{kind.option: None}), SYSTEM).lacking()
            self.assertEqual(lacking, f"needs --{kind.option} {kind.metavar}, found none")
            lacking = kind(SimpleNamespace(**{kind.option: "/nowhere"}), SYSTEM).lacking()
            self.assertRegex(lacking, "needs /nowhere.*, found no such file")


class Measure(unittest.TestCase):
    def test_cpu_of_a_reaped_grandchild_and_memory_are_counted(self):
        burn = "x = bytearray(60 << 20)\nimport time\nwhile time.process_time() < 0.3: pass"
        parent = f"import subprocess,sys; subprocess.run([sys.executable, '-c', {burn!r}])"
        with tempfile.TemporaryDirectory() as folder:
            cost = measure.measure(
                [[sys.executable, "-c", parent], ["true"]], None, os.environ, 60, Path(folder)
            )
        self.assertGreater(cost.client_cpu_s, 0.28)
        self.assertGreater(cost.wall_s, 0.28)
        self.assertGreater(cost.client_memory_bytes, 60 << 20)

    def test_server_cpu_counts_what_it_has_reaped(self):
        burn = "import time\nwhile time.process_time() < 0.3: pass"
        parent = (
            f"import subprocess,sys,time; subprocess.run([sys.executable, '-c', {burn!r}]);"
            "print(1, flush=True); time.sleep(30)"
        )
        process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            self.assertGreater(measure.tree_cpu_s(process.pid), 0.28)
        finally:
            process.kill()
            process.communicate()

    def test_a_run_past_its_limit_is_ended_and_named(self):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(measure.RunFailed, "sleep ended with more than"):
                measure.measure([["sleep", "20"]], None, os.environ, 0.2, Path(folder))
        self.assertLess(time.monotonic() - started, 10)


class WholeRun(unittest.TestCase):
    def test_haul_rows_are_measured_verified_and_cleaned_up(self):
        with tempfile.TemporaryDirectory() as folder:
            done, numbers = run_peers(folder, "--only", "haul,cp", "--rounds", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), ["out.json"])
        rows = {row["name"]: row for row in numbers["rows"]}
        self.assertEqual(len(rows), 21)
        # To the disk also from memory as it comes: haul's four rows, and cp's.
        self.assertEqual(sum(row["memory"] == "as it comes" for row in numbers["rows"]), 5)
        for row in rows.values():
            if row["absent"]:  # On a file system that keeps its pages.
                self.assertEqual(row["scenario"], "cold")
                continue
            self.assertEqual(len(row["samples"]), 2, row)
            self.assertEqual(row["equality_checked"], row["scenario"] != "discard", row)
        memory = rows["haul-push-safe-disk"]["samples"][0]["server_memory_bytes"]
        self.assertGreater(memory, 1 << 20)
        for text in (done.stdout, done.stderr, json.dumps(numbers)):
            self.assertNotIn("secrettoken", text)
        self.assertIn("| met |", done.stdout)

    def test_with_two_networks_each_row_has_numbers_of_both(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--only", "haul-push-safe-disk", "--rounds", "1", "--congestion", "both"]
            done, numbers = run_peers(folder, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = numbers["host"]["networks"]
        if len(found) == 1:
            self.skipTest(numbers["host"]["networks_missing"])
        rows = {row["network"]: row for row in numbers["rows"]}
        self.assertEqual(set(rows), set(found))
        self.assertEqual([len(row["samples"]) for row in rows.values()], [1, 1])
        self.assertEqual(next(iter(found)), rows[next(iter(found))]["congestion"])
        for title in found.values():
            self.assertRegex(done.stdout, f"\n### (.*; )?{title}")

    def test_large_files_on_a_file_system_of_an_image_are_rows_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--only", "haul-push-safe-disk", "--rounds", "1", "--memory", "touched"]
            done, numbers = run_peers(folder, *words, "--file-systems", "ext4")
            self.assertEqual(os.listdir(folder), ["out.json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        if numbers["skipped"]:
            self.assertRegex(numbers["skipped"]["large files on ext4"], "mkfs|losetup|mount")
            self.skipTest(str(numbers["skipped"]))
        own, image = numbers["rows"]
        self.assertEqual(image["file_system"], "ext4 with a journal (image)")
        self.assertEqual((own["setting"], image["setting"]), ("own", "ext4"))
        self.assertTrue(image["equality_checked"])
        self.assertIn("/WORK/ext4/source/", image["command"])

    def test_a_changed_byte_fails_the_row(self):
        with tempfile.TemporaryDirectory() as folder:
            # The bench passes a bare environment on, so the fault comes by a wrapper.
            wrapper = Path(folder) / "haul"
            wrapper.write_text(f'#!/bin/sh\nFAKE_HAUL_FAULT=flip exec {FAKE} "$@"\n')
            wrapper.chmod(0o755)
            done, numbers = run_peers(
                folder, "--only", "haul-pull-safe-disk", "--rounds", "2", "--haul", str(wrapper)
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("SHA-256", numbers["rows"][0]["failure"])
        self.assertIsNone(numbers["rows"][0]["gb_per_s"])

    def test_a_failing_client_is_named_with_its_words(self):
        with tempfile.TemporaryDirectory() as folder:
            wrapper = Path(folder) / "haul"
            wrapper.write_text(f'#!/bin/sh\nFAKE_HAUL_FAULT=fail exec {FAKE} "$@"\n')
            wrapper.chmod(0o755)
            done, numbers = run_peers(
                folder, "--only", "haul-push-safe-disk", "--rounds", "1", "--haul", str(wrapper)
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("as asked, this fails", numbers["rows"][0]["failure"])

    def test_a_missing_program_is_skipped_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            done, numbers = run_peers(
                folder, "--only", "haul,cp", "--rounds", "1", "--haul", "/nonexistent/haul"
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("needs /nonexistent/haul", numbers["skipped"]["haul"])
        self.assertIn("haul: skipped: needs", done.stdout)

    def test_unknown_names_and_sizes_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (
                ["--only", "nothing"],
                ["--size", "2X"],
                ["--rounds", "0"],
                ["--file-systems", "own,ntfs"],
            ):
                done, _numbers = run_peers(folder, *words)
                self.assertEqual(done.returncode, 2, done.stderr)


class Network(unittest.TestCase):
    """bench/network, without running anything."""

    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("network", str(BENCH / "network"))
        spec = importlib.util.spec_from_loader("network", loader)
        self.network = importlib.util.module_from_spec(spec)
        loader.exec_module(self.network)

    def test_ratios_are_of_runs_of_the_same_round(self):
        runs = []
        for number, (theirs, ours) in enumerate([(10, 11), (20, 20), (40, 36)], 1):
            for name, rate in (("iperf3", theirs), ("haul", ours)):
                case = {"streams": 2, "block": "1M", "reverse": False, "round": number}
                runs.append({**case, "program": name, "gbit_per_s": rate, "cpu_s_per_gb": 0.5})
        [line] = self.network.summary(runs)
        self.assertEqual((line["ratio"], line["lowest"], line["highest"]), (1.0, 0.9, 1.1))
        self.assertEqual((line["iperf3_gbit_per_s"], line["haul_gbit_per_s"]), (20, 20))

    def test_what_is_missing_is_named_with_what_to_do(self):
        with mock.patch("sys.stderr") as told:
            self.assertEqual(self.network.main(["--haul", "/nowhere/haul"]), 1)
        words = "".join(call.args[0] for call in told.write.call_args_list)
        self.assertIn("/nowhere/haul", words)
        self.assertIn("cargo build", words)

    def test_a_wrong_command_line_ends_with_2(self):
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit) as ended:
            self.network.options(["--rounds", "0"])
        self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
