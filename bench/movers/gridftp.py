"""globus-gridftp-server, anonymous, and globus-url-copy with four streams (mode E)."""

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

DROPPED_USER = "nobody"


class GridFtp(Mover):
    name = "gridftp"
    programs = {
        "globus-url-copy": "globus-gass-copy-progs",
        "globus-gridftp-server": "globus-gridftp-server-progs",
    }

    def version(self) -> str:
        client, server = (packages.version(name, self.programs[name]) for name in self.programs)
        return f"client {client}, server {server}"

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        local = ["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
        # `-c none`: no configuration of this host's; usage statistics would go out by UDP.
        quiet = ["-c", "none", "-disable-usage-stats", "-log-level", "none"]
        user = ["-anonymous-user", DROPPED_USER] if self.options.is_root else []

        def command(port):
            program = packages.find("globus-gridftp-server")
            return [program, "-p", str(port), "-aa", *user, *local, *quiet]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        return with_cold(
            [
                self._row("gridftp-pull-discard", Scenario.DISCARD, pull=True),
                self._row("gridftp-push-discard", Scenario.DISCARD, pull=False),
                self._row("gridftp-pull-disk", Scenario.DISK, pull=True),
                self._row("gridftp-push-disk", Scenario.DISK, pull=False),
                self._row("gridftp-pull-tree", Scenario.TREE, pull=True),
                self._row("gridftp-push-tree", Scenario.TREE, pull=False),
            ]
        )

    def _row(self, name, scenario, *, pull) -> Row:
        def command(place):
            remote, local = f"ftp://127.0.0.1:{self.server.port}", "file://"
            source = f"{remote if pull else local}{place.source}"
            target = f"{local if pull else remote}{place.target or '/dev/null'}"
            if scenario is Scenario.TREE:
                # Recursive, making directories, pipelined, four transfers at a time.
                tree = ["-r", "-cd", "-pp", "-cc", "4", f"{source}/", f"{target}/"]
                return [packages.find("globus-url-copy"), *tree]
            return [packages.find("globus-url-copy"), "-p", "4", source, target]

        way = "from" if pull else "to"
        options = "-r -pp -cc 4" if scenario is Scenario.TREE else "-p 4"
        drops = self.options.is_root and not pull
        return Row(
            name,
            scenario,
            Role.PEER,
            f"globus-url-copy {options} {way} globus-gridftp-server",
            "nothing",
            command,
            target_owner=DROPPED_USER if drops else None,
        )
