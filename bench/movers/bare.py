"""The bare sendfile engine without protocol: an example of `crates/datapath`, both ends in one."""

import json
import os
import socket

from compare import packages
from compare.measure import RunFailed
from movers.mover import Mover, Role, Row, Scenario

TCP_CONGESTION = 13


class Bare(Mover):
    name = "bare"

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
        start = "bare sendfile -> discard"
        return [
            self._row("bare-sendfile", start, "nothing", ["--tap", "none"]),
            self._row("bare-sendfile-crc", f"{start}, with digest", "CRC32C", ["--tap", "crc"]),
        ]

    def _row(self, name, label, checks, words) -> Row:
        congestion = short_path_congestion()

        def command(place):
            program = packages.find(self.options.bare) or self.options.bare
            engines = ["--send", "sendfile", "--receive", "discard"]
            rest = ["--file", str(place.source), "--congestion", congestion]
            return [program, *engines, *rest, *words]

        return Row(
            name,
            Scenario.DISCARD,
            Role.FLOOR,
            label,
            checks,
            command,
            read_report=read_report,
        )


def short_path_congestion() -> str:
    """The best for a path below 1 ms that this process may choose: cubic, otherwise reno."""
    for name in ("cubic", "reno"):
        with socket.socket() as probe:
            try:
                probe.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
                return name
            except OSError:
                continue
    return "reno"


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
                    raise RunFailed(f"bare used another engine: {report[side]}")
            return report
    raise RunFailed(f"bare printed no JSON line with bytes and seconds: {stdout[-300:]}")
