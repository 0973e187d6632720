"""iperf3, memory to memory: what the wire gives a program that copies. No file is moved."""

import json

from compare import packages, servers
from compare.measure import RunFailed
from compare.networks import short_path_congestion
from movers.mover import Mover, Role, Row, Scenario


class Iperf3(Mover):
    name = "iperf3"
    programs = {"iperf3": "iperf3"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            return [packages.find("iperf3"), "-s", "-B", "127.0.0.1", "-p", str(port)]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        rows = [self._row("iperf3", [])]
        chosen = short_path_congestion()  # As haul chooses it.
        if chosen != self.network.congestion:
            rows.append(self._row(f"iperf3-{chosen}", ["-C", chosen]))
        return rows

    def _row(self, name, words) -> Row:
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
        )


def read_report(stdout: str, place) -> dict:
    """Bytes and seconds that the receiver counted."""
    try:
        received = json.loads(stdout)["end"]["sum_received"]
        return {"bytes": received["bytes"], "seconds": received["seconds"]}
    except (ValueError, KeyError) as error:
        raise RunFailed(f"iperf3 printed no result: {error!r} {stdout[-300:]}") from error
