"""iperf3, memory to memory: what the wire gives. No file is moved.

Its receiver copies what comes into memory of its own. From 3.17 on it can throw it away in the
socket instead (`--skip-rx-copy`), which is a row of its own: haul's receiver that discards is
compared with that one, haul's receiver that copies with the other.
"""

import json
import subprocess

from compare import packages, servers
from compare.measure import RunFailed
from compare.networks import SHORT_PATH, short_path_congestion
from movers.mover import Mover, Role, Row, Scenario

SKIP = "--skip-rx-copy"
DISCARDS = "discards in the socket"


class Iperf3(Mover):
    name = "iperf3"
    programs = {"iperf3": "iperf3"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            return [packages.find("iperf3"), "-s", "-B", "127.0.0.1", "-p", str(port)]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        controls = [("", [], "")]
        if self.network.congestion not in SHORT_PATH:  # As haul chooses it.
            chosen = short_path_congestion()
            controls.append((f"-{chosen}", ["-C", chosen], chosen))
        rows = []
        for ending, words, congestion in controls:
            rows.append(self._row(f"iperf3{ending}", words, "copies", congestion))
            if can_skip():
                rows.append(self._row(f"iperf3-skip{ending}", [*words, SKIP], DISCARDS, congestion))
        return rows

    def _row(self, name, words, receiver, congestion) -> Row:
        def command(place):
            ends = ["-c", "127.0.0.1", "-p", str(self.server.port)]
            amount = ["-l", "1M", "-n", str(place.size_bytes)]
            return [packages.find("iperf3"), *ends, *amount, *words, "-J"]

        return Row(
            name,
            Scenario.DISCARD,
            Role.REFERENCE,
            f"{' '.join(['iperf3 -l 1M', *words])}, memory to memory",
            "nothing",
            command,
            read_report=read_report,
            own_clock=True,
            note="own clock: without the set-up of its test",
            congestion=congestion,
            receiver=receiver,
        )


def can_skip() -> bool:
    """Whether this iperf3 can receive without a copy."""
    program = packages.find("iperf3")
    if program is None:
        return False
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    return SKIP in done.stdout + done.stderr


def read_report(stdout: str, place) -> dict:
    """Bytes and seconds that the receiver counted."""
    try:
        received = json.loads(stdout)["end"]["sum_received"]
        return {"bytes": received["bytes"], "seconds": received["seconds"]}
    except (ValueError, KeyError) as error:
        raise RunFailed(f"iperf3 printed no result: {error!r} {stdout[-300:]}") from error
