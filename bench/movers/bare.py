"""Bare pairs of engines without protocol: an example of `crates/datapath`, both ends in one.

What the engines do without haul's protocol, spans and digests is the floor that its targets stand
on. A pair's congestion control is that of the network, as haul's is: where that is neither cubic
nor reno, cubic, or reno where cubic may not be chosen.
"""

import json
import os

from compare import packages
from compare.measure import RunFailed
from compare.networks import SHORT_PATH, short_path_congestion
from movers.mover import Mover, NotHere, Role, Row, Scenario

# To the disk; the best of them counts. All that can write a file faster than read and write.
DISK_PAIRS = (
    ("sendfile", "io-uring"),
    ("sendfile", "direct"),
    ("sendfile", "dontcache"),
    ("splice", "io-uring"),
)


class Bare(Mover):
    name = "bare"
    in_every_network = False  # It is a floor: the first tables have it.

    def lacking(self):
        path = self.options.bare
        if os.access(path, os.X_OK):
            return None
        return (
            f"needs {path} (cargo build --release --package haul-datapath --example bare),"
            " found no such program"
        )

    def version(self) -> str:
        return "this tree"

    def rows(self) -> list:
        rows = [
            self._row("bare-sendfile", ("sendfile", "discard"), "nothing", ["--tap", "none"]),
            self._row("bare-sendfile-crc", ("sendfile", "discard"), "CRC32C", ["--tap", "crc"]),
        ]
        for pair in DISK_PAIRS:
            rows.append(self._row(f"bare-{'-'.join(pair)}-disk", pair, "nothing", ["--sync"]))
        return rows

    def _row(self, name, pair, checks, words) -> Row:
        congestion = self.network.congestion
        if congestion not in SHORT_PATH:
            congestion = short_path_congestion()

        def command(place):
            program = packages.find(self.options.bare) or self.options.bare
            engines = ["--send", pair[0], "--receive", pair[1]]
            rest = ["--file", str(place.source), "--congestion", congestion]
            target = ["--target", str(place.target)] if place.target else []
            return [program, *engines, *rest, *target, *words]

        return Row(
            name,
            Scenario.DISK if "--sync" in words else Scenario.DISCARD,
            Role.FLOOR,
            f"bare {pair[0]} -> {pair[1]}" + (", with digest" if "crc" in words else ""),
            checks,
            command,
            makes_durable=True,
            read_report=read_report,
            congestion=congestion,
            receiver="copies" if "crc" in words else "discards in the socket",
        )


def read_report(stdout: str, place) -> dict:
    """The last JSON line, which must name bytes and seconds."""
    for line in reversed(stdout.splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and report.get("bytes") and report.get("seconds"):
            for side in ("send_fallbacks", "receive_fallbacks"):
                if report.get(side, "[]") != "[]":
                    raise NotHere(f"bare used another engine: {report[side]}")
            return report
    raise RunFailed(f"bare printed no JSON line with bytes and seconds: {stdout[-300:]}")
