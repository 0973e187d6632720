#!/usr/bin/env python3
"""Tests of bench/probe_disk_against_fio: python3 bench/tests/test_probe_disk.py. Needs no fio."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parent.parent

# A haul of 2 GB/s. By the page cache 1 GB/s with its sync.
HAUL = """#!/usr/bin/env python3
import json, sys
delays = {"p50_us": 1000, "p99_us": 2000}
words = sys.argv[1:]
assert words[:2] == ["probe", "disk"] and "--json" in words
print(json.dumps({"event": "host"}))
for operation in ("write", "read"):
    durable = 1.0 if operation == "write" else None
    print(json.dumps({"event": "profile", "operation": operation, "gb_per_s": 2.0,
        "durable_gb_per_s": durable, "delays": delays, "refused": REFUSED}))
"""

# A fio of 1 GB/s, which leaves its file behind.
FIO = """#!/usr/bin/env python3
import json, sys
if "--version" in sys.argv:
    print("fio-0")
    sys.exit()
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
open(words["--filename"], "a").close()
side = {"bw_bytes": 1e9, "clat_ns": {"percentile": {"50.000000": 1e6, "99.000000": 3e6}}}
print(json.dumps({"jobs": [{"write": side, "read": side}]}))
"""


class Compared(unittest.TestCase):
    def run_with(self, folder, *words, refused="None"):
        programs = []
        for name, text in (("haul", HAUL.replace("REFUSED", refused)), ("fio", FIO)):
            path = Path(folder) / name
            path.write_text(text)
            path.chmod(0o755)
            programs += [f"--{name}", str(path)]
        work = Path(folder) / "work"
        work.mkdir(exist_ok=True)
        out = Path(folder) / "out.json"
        command = [sys.executable, str(BENCH / "probe_disk_against_fio"), "--dir", str(work)]
        command += ["--json", str(out), "--rounds", "2", *programs, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(os.listdir(work), [], "it left something behind")
        return done, json.loads(out.read_text()) if out.exists() else None

    def test_ratios_are_of_haul_to_fio_and_the_page_cache_counts_with_its_sync(self):
        with tempfile.TemporaryDirectory() as folder:
            done, found = self.run_with(folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        ratios = {(row["setting"], row["operation"]): row["ratios"] for row in found["rows"]}
        self.assertEqual(len(ratios), 8)
        self.assertEqual(ratios["io-uring 1M x 8", "write"], [2.0, 2.0])
        self.assertEqual(ratios["buffered 1M x 1", "write"], [1.0, 1.0])
        self.assertEqual(ratios["buffered 1M x 1", "read"], [2.0, 2.0])
        self.assertIn("1 of 8 within 5% of fio", done.stdout)

    def test_what_haul_refuses_ends_it_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            done, found = self.run_with(folder, "--method", "direct", refused='"no disk"')
        self.assertEqual((done.returncode, found), (1, None))
        self.assertIn("haul refused direct 1M x 1: no disk", done.stderr)

    def test_a_program_that_is_not_there_is_named(self):
        command = [sys.executable, str(BENCH / "probe_disk_against_fio"), "--haul", "/no/haul"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/no/haul", done.stderr)


if __name__ == "__main__":
    unittest.main()
