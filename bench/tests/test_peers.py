#!/usr/bin/env python3
"""Tests of bench/peers: python3 bench/tests/test_peers.py. Needs neither haul nor any peer."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

from compare import measure, targets  # noqa: E402
from compare.session import RowResult, Sample  # noqa: E402
from movers.mover import Role, Row, Scenario  # noqa: E402

FAKE = BENCH / "tests" / "fake_haul.py"
GB = 10**9


def result(name, scenario, role, seconds, cpu_s=1.0, memory_bytes=0):
    row = Row(name, scenario, role, name, "nothing", command=lambda place: [])
    made = RowResult(row, SimpleNamespace(server=None), "1")
    for number, taken in enumerate(seconds, 1):
        cost = measure.Measurement(taken, cpu_s, 0.0, 0.0, memory_bytes, 0, "")
        made.samples.append(Sample(number, taken, GB, cost, {}))
    return made


def run_peers(folder, *words, **environment):
    out = Path(folder) / "out.json"
    command = [sys.executable, str(BENCH / "peers"), "--size", "2M", "--files", "60", "--haul"]
    command.append(str(FAKE))
    command += ["--dir", str(folder), "--json", str(out), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    return done, json.loads(out.read_text()) if out.exists() else None


class Targets(unittest.TestCase):
    def found(self, results, text):
        return next(target for target in targets.targets(results) if target.text.startswith(text))

    def test_ratios_are_of_medians_and_the_best_peer_is_the_fastest(self):
        results = [
            result("haul-push-safe-disk", Scenario.DISK, Role.HAUL, [0.4, 0.5, 9.0], cpu_s=0.3),
            result("slow", Scenario.DISK, Role.PEER, [2.0, 2.0, 2.0], cpu_s=0.4),
            result("fast", Scenario.DISK, Role.PEER, [1.5, 1.0, 1.5], cpu_s=1.0),
            result("cp-disk", Scenario.DISK, Role.LOCAL, [0.6, 0.6, 0.6]),
        ]
        peer = self.found(results, "warm -> disk, durable, push safe / best peer")
        self.assertEqual((peer.against, peer.verdict()), ("fast", "met"))
        self.assertAlmostEqual(peer.value, 3.0)
        self.assertEqual(self.found(results, "warm -> disk, durable, push safe / cp").verdict(),
                         "missed")
        plain = self.found(results, "warm -> disk, durable, push safe, CPU s per GB / best")
        stricter = self.found(results, "warm -> disk, durable, push safe, CPU s per GB / thrift")
        self.assertEqual((plain.verdict(), stricter.verdict()), ("met", "missed"))

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

    def test_memory_is_the_highest_of_all_runs(self):
        results = [
            result("haul-a", Scenario.DISK, Role.HAUL, [1.0], memory_bytes=10 << 20),
            result("haul-b", Scenario.DISK, Role.HAUL, [1.0], memory_bytes=65 << 20),
        ]
        memory = self.found(results, "peak memory")
        self.assertEqual((memory.value, memory.verdict()), (65.0, "missed"))


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
        self.assertEqual(len(rows), 14)
        for row in rows.values():
            self.assertEqual(len(row["samples"]), 2, row)
            self.assertEqual(row["equality_checked"], row["scenario"] != "discard", row)
        memory = rows["haul-push-safe-disk"]["samples"][0]["server_memory_bytes"]
        self.assertGreater(memory, 1 << 20)
        for text in (done.stdout, done.stderr, json.dumps(numbers)):
            self.assertNotIn("secrettoken", text)
        self.assertIn("| met |", done.stdout)

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
            for words in (["--only", "nothing"], ["--size", "2X"], ["--rounds", "0"]):
                done, _numbers = run_peers(folder, *words)
                self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
