"""rclone from its own HTTP server and to its own SFTP server, 16 files at a time.

Both are the fastest that `rclone serve` has for their way: its WebDAV client waits 10 ms before each
request, which makes minutes of a tree. HTTP cannot be written to.
"""

import subprocess

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario

USER = "bench"
CONFIG = ["--config", "/dev/null"]


class _Rclone(Mover):
    programs = {"rclone": "rclone"}
    protocol = ""
    serve_options = []

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            listen = ["--addr", f"127.0.0.1:{port}", *self.serve_options, *CONFIG]
            return [packages.find("rclone"), "serve", self.protocol, str(workspace.root), *listen]

        self.server = servers.launch_on_free_port(command, env, folder)

    def _row(self, name, label, checks, ends) -> Row:
        def command(place):
            options = ["--transfers", "16", *CONFIG, *self._remote()]
            return [packages.find("rclone"), "copy", *options, *ends(place)]

        return Row(name, Scenario.TREE, Role.PEER, label, checks, command)

    def _remote(self) -> list:
        """Where the server is, as options of the client."""
        raise NotImplementedError


class RcloneHttp(_Rclone):
    name = "rclone-http"
    protocol = "http"

    def rows(self) -> list:
        def ends(place):
            return [f":http:source/{place.source.name}", str(place.target)]

        return [self._row("rclone-pull-tree", "rclone copy from rclone serve http", "sizes", ends)]

    def _remote(self) -> list:
        return ["--http-url", f"http://127.0.0.1:{self.server.port}"]


class RcloneSftp(_Rclone):
    name = "rclone-sftp"
    protocol = "sftp"
    serve_options = ["--user", USER, "--pass", USER]

    def rows(self) -> list:
        def ends(place):
            target = f":sftp:targets/{place.target.parent.name}/{place.target.name}"
            return [str(place.source), target]

        label = "rclone copy to rclone serve sftp"
        return [self._row("rclone-push-tree", label, "hash of the file, SSH", ends)]

    def _remote(self) -> list:
        program = packages.find("rclone")
        hidden = subprocess.run([program, "obscure", USER], capture_output=True, text=True, check=True)
        server = ["--sftp-host", "127.0.0.1", "--sftp-port", str(self.server.port)]
        return [*server, "--sftp-user", USER, "--sftp-pass", hidden.stdout.strip()]
