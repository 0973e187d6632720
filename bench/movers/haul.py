"""haul itself: one server, pushes to it and pulls from it, by every protection."""

import json
import os
import subprocess
import time

from compare import servers
from compare.measure import RunFailed
from compare.networks import SHORT_PATH, short_path_congestion
from movers.mover import Mover, Role, Row, Scenario, with_cold

START_S_MAX = 15.0
PROTECTIONS = {
    "clear-none": (["--protection", "clear", "--digest", "none"], "nothing"),
    "clear": (["--protection", "clear"], "digest of each span"),
    "safe": (["--protection", "safe"], "keyed MAC of each span"),
    # As iperf3, curl and most others receive: into memory of the program's own.
    "clear-none-copy": (
        ["--protection", "clear", "--digest", "none", "--receive-engine", "read-write"],
        "nothing",
    ),
}


class Haul(Mover):
    name = "haul"
    url = ""

    def lacking(self):
        path = self.options.haul
        if os.access(path, os.X_OK):
            return None
        return f"needs {path} (cargo build --release), found no such program"

    def version(self) -> str:
        done = subprocess.run([self.options.haul, "--version"], capture_output=True, text=True)
        lines = done.stdout.strip().splitlines()
        return lines[0].replace("haul ", "") if lines else "unknown"

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        folder.chmod(0o700)  # The URL that the server prints holds its token.
        self.client_env = {"HAUL_STATE": str(folder / "client-state")}
        env = {**env, "HAUL_STATE": str(folder / "server-state")}
        command = [*self.words_before(), self.options.haul, "serve", str(workspace.root)]
        command += ["--listen", "127.0.0.1:0", "--json"]
        events_path = folder / "events.jsonl"
        with open(events_path, "wb") as events:
            self.server = servers.launch(command, env, folder, stdout=events)
        self.url = _listening_url(events_path, self.server)
        self.server.settle()

    def words_before(self) -> list:
        """What the server is started by."""
        return []

    def rows(self) -> list:
        rows = []
        for way in ("push", "pull"):
            for protection in ("clear-none", "clear-none-copy", "clear", "safe"):
                rows.append(self._row(way, Scenario.DISCARD, protection))
        for protection in ("safe", "clear", "clear-none"):
            rows.append(self._row("push", Scenario.DISK, protection))
        rows.append(self._row("pull", Scenario.DISK, "safe"))
        rows.append(self._row("push", Scenario.TREE, "safe"))
        rows.append(self._row("pull", Scenario.TREE, "safe"))
        return with_cold(rows)

    def _row(self, direction, scenario, protection) -> Row:
        words, checks = PROTECTIONS[protection]

        def command(place):
            ends = self._push(place) if direction == "push" else self._pull(place)
            return [self.options.haul, direction, *ends, "--json", *words]

        return Row(
            f"haul-{direction}-{protection}-{scenario.value}",
            scenario,
            Role.HAUL,
            f"haul {direction} `{' '.join(words)}`",
            checks,
            command,
            makes_durable=True,
            read_report=read_report,
            congestion=self.congestion(),
            receiver="discards in the socket" if protection == "clear-none" else "copies",
        )

    def congestion(self) -> str:
        """What haul chooses on a short path: it leaves cubic and reno as they are."""
        own = self.network.congestion
        return own if own in SHORT_PATH else short_path_congestion()

    def _push(self, place) -> list:
        if place.target is None:
            return [str(place.source), f"{self.url}/null:"]
        return [str(place.source), f"{self.url}/{place.folder_served()}/"]

    def _pull(self, place) -> list:
        target = "null:" if place.target is None else str(place.target.parent)
        return [f"{self.url}/{place.source_served()}", target]


def read_report(stdout: str, place) -> dict:
    """The report, which must say that all bytes of the file arrived."""
    report = {}
    for line in reversed(stdout.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "report":
            report = event
            break
    if not report:
        raise RunFailed(f"haul printed no report: {stdout[-300:]}")
    if report.get("ok") is not True:
        raise RunFailed(f"haul's report is not ok: {json.dumps(report)[:400]}")
    if report.get("bytes") != place.size_bytes:
        raise RunFailed(f"haul's report has {report.get('bytes')} of {place.size_bytes} bytes")
    return report


def _listening_url(events_path, server) -> str:
    """Waits for the line that says where the server listens."""
    give_up = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up and server.process.poll() is None:
        for line in events_path.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") == "listening":
                return event["url"].rstrip("/")
        time.sleep(0.02)
    seen = events_path.read_text(errors="replace")[-200:]
    raise RunFailed(f"haul serve named no URL: {seen} {server.last_words()}")
