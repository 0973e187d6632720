"""rclone to and from its own WebDAV server, 16 files at a time."""

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario


class Rclone(Mover):
    name = "rclone"
    programs = {"rclone": "rclone"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            listen = ["--addr", f"127.0.0.1:{port}", "--config", "/dev/null"]
            return [packages.find("rclone"), "serve", "webdav", str(workspace.root), *listen]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        return [self._row("pull"), self._row("push")]

    def _row(self, way) -> Row:
        def command(place):
            remote = f"--webdav-url=http://127.0.0.1:{self.server.port}"
            ends = [f":webdav:source/{place.source.name}", str(place.target)]
            if way == "push":
                target = f":webdav:targets/{place.target.parent.name}/{place.target.name}"
                ends = [str(place.source), target]
            options = ["--config", "/dev/null", "--transfers", "16", remote]
            return [packages.find("rclone"), "copy", *options, *ends]

        label = f"rclone copy {'from' if way == 'pull' else 'to'} rclone serve webdav"
        return Row(f"rclone-{way}-tree", Scenario.TREE, Role.PEER, label, "sizes", command)
