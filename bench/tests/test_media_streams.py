#!/usr/bin/env python3
"""Tests of bench/media_streams_against_nginx: python3 bench/tests/test_media_streams.py.

Needs no nginx: servers and viewers are small programs that say what a test wants.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

# Listens until it is told to end, and says how many periods it was late in.
HAUL = """#!/usr/bin/env python3
import json, signal, socket, sys
address = sys.argv[sys.argv.index("--listen") + 1]
assert sys.argv[sys.argv.index("--method") + 1] == "one-copy"
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
listener = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
print(json.dumps({"event": "listening"}), flush=True)
signal.sigwait([signal.SIGTERM])
print(json.dumps({"event": "ended", "misses": MISSES, "misses_here": 0}), flush=True)
"""

NGINX = """#!/usr/bin/env python3
import re, signal, socket, sys
configuration = open(sys.argv[sys.argv.index("-c") + 1]).read()
port = int(re.search(r"listen 127.0.0.1:(\\d+)", configuration)[1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
listener = socket.create_server(("127.0.0.1", port))
signal.sigwait([signal.SIGTERM])
"""

# haul's are seen by the name of its program.
VIEWERS = """#!/usr/bin/env python3
import sys
assert sys.argv[1:3] == ["--start-up", "6"]
is_haul = "haul" in open(f"/proc/{sys.argv[8]}/cmdline").read().split("\\0")[1]
late, refused, us, kib = (LATE, REFUSED, COST, KIB) if is_haul else (7, 0, 100.0, 12.0)
print(f"10 streams, {refused} refused, 0 failed")
print(f"90 periods, {late} late: p50 0.0 ms, p99 0.0 ms, most 0.0 ms")
print("1.00 GB taken")
print(f"the server: 1.0 % of a core, {us} us a stream and second, {kib} KiB a stream")
print("the machine: 10.0 % of a core")
"""


def module():
    loader = importlib.machinery.SourceFileLoader(
        "media_streams", str(BENCH / "media_streams_against_nginx")
    )
    spec = importlib.util.spec_from_loader("media_streams", loader)
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    found.FILM_BYTES = 1_000_000
    return found


def run(**figures) -> tuple:
    """The exit status, and what was printed."""
    figures = {"MISSES": 0, "LATE": 0, "REFUSED": 0, "COST": 50.0, "KIB": 2.0, **figures}
    with tempfile.TemporaryDirectory() as name:
        words = ["--streams", "10", "--rounds", "1", "--dir", name]
        for program, text in (("haul", HAUL), ("nginx", NGINX), ("viewers", VIEWERS)):
            for key, value in figures.items():
                text = text.replace(key, str(value))
            path = Path(name) / program
            path.write_text(text)
            path.chmod(0o755)
            words += [f"--{program}", str(path)]
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            status = module().main(words)
        assert not list(Path(name).glob("haul-media-*"))
    return status, output.getvalue()


class Verdict(unittest.TestCase):
    def test_the_aim_is_reached_where_nothing_is_late_and_little_is_spent(self):
        status, said = run()
        self.assertEqual(status, 0, said)
        self.assertIn("it holds here", said)
        self.assertIn("a stream: 0.50 (0.50 to 0.50)", said)

    def test_one_thing_amiss_is_enough(self):
        for amiss in ({"MISSES": 1}, {"LATE": 1}, {"REFUSED": 1}, {"COST": 81.0}, {"KIB": 21.0}):
            status, said = run(**amiss)
            self.assertEqual(status, 1, f"{amiss}: {said}")
            self.assertIn("it does not hold", said)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    unittest.main()
