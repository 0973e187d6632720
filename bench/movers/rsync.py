"""The rsync daemon and rsync, whole files, no compression. It checks a digest of each file.

rsync has no sink, but `--write-devices` lets it write into /dev/null as into a file.
"""

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

CONFIGURATION = """\
use chroot = no
reverse lookup = no
pid file = {folder}/rsyncd.pid
lock file = {folder}/rsyncd.lock
log file = {folder}/rsyncd.log
[files]
path = {root}
read only = no
{user}
"""


class Rsync(Mover):
    name = "rsync"
    programs = {"rsync": "rsync"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        configuration = folder / "rsyncd.conf"
        user = "uid = root\ngid = root" if self.options.is_root else ""
        values = {"folder": folder, "root": workspace.root, "user": user}
        configuration.write_text(CONFIGURATION.format(**values))

        def command(port):
            listen = [f"--port={port}", "--address=127.0.0.1"]
            config = f"--config={configuration}"
            return [packages.find("rsync"), "--daemon", "--no-detach", config, *listen]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        return with_cold(
            [
                self._row("rsync-pull-discard", Scenario.DISCARD, pull=True),
                self._row("rsync-pull-disk", Scenario.DISK, pull=True),
                self._row("rsync-push-disk", Scenario.DISK, pull=False),
                self._row("rsync-pull-tree", Scenario.TREE, pull=True),
                self._row("rsync-push-tree", Scenario.TREE, pull=False),
            ]
        )

    def _row(self, name, scenario, *, pull) -> Row:
        def command(place):
            remote = f"rsync://127.0.0.1:{self.server.port}/files"
            options = ["--whole-file"] + ([] if place.target else ["--write-devices"])
            ends = [f"{remote}/{place.source_served()}", str(place.target or "/dev/null")]
            if not pull:
                target = f"{place.folder_served()}/{place.target.name}"
                ends = [str(place.source), f"{remote}/{target}"]
            if scenario is Scenario.TREE:
                options = ["--archive", "--whole-file"]
                ends = [f"{remote}/{place.source_served()}", str(place.target.parent)]
                if not pull:
                    ends = [str(place.source), f"{remote}/{place.folder_served()}/"]
            return [packages.find("rsync"), *options, *ends]

        return Row(
            name,
            scenario,
            Role.PEER,
            f"rsync {'from' if pull else 'to'} rsync daemon",
            "digest of the file (rsync's own choice)",
            command,
            note="by --write-devices, as it has no sink" if scenario is Scenario.DISCARD else "",
        )
