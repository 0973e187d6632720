"""rclone from its own HTTP server and to its own SFTP server.

Both are the fastest that `rclone serve` has for their way: its WebDAV client waits 10 ms before
each request, which makes minutes of a tree. HTTP cannot be written to. A large file is moved by
several streams where rclone decides so itself (--multi-thread-streams), a tree 16 files at a time.
"""

import subprocess

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

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

    def _row(self, name, scenario, label, checks, ends) -> Row:
        def command(place):
            # `copyto` names the target file; of a directory `copy` takes what is in it.
            verb, options = "copyto", []
            if scenario is Scenario.TREE:
                verb, options = "copy", ["--transfers", "16"]
            if scenario is Scenario.DISCARD:
                verb, options = "cat", ["--discard"]
            words = [*options, *CONFIG, *self._remote()]
            return [packages.find("rclone"), verb, *words, *ends(place)]

        return Row(name, scenario, Role.PEER, label, checks, command)

    def _remote(self) -> list:
        """Where the server is, as options of the client."""
        raise NotImplementedError


class RcloneHttp(_Rclone):
    name = "rclone-http"
    protocol = "http"

    def rows(self) -> list:
        def source(place):
            return [f":http:{place.source_served()}"]

        def ends(place):
            return [*source(place), str(place.target)]

        server = "from rclone serve http"
        rows = [
            ("rclone-pull-discard", Scenario.DISCARD, f"rclone cat --discard {server}", source),
            ("rclone-pull-disk", Scenario.DISK, f"rclone copyto {server}", ends),
            ("rclone-pull-tree", Scenario.TREE, f"rclone copy {server}", ends),
        ]
        return with_cold(
            [self._row(name, where, label, "sizes", ends) for name, where, label, ends in rows]
        )

    def _remote(self) -> list:
        return ["--http-url", f"http://127.0.0.1:{self.server.port}"]


class RcloneSftp(_Rclone):
    name = "rclone-sftp"
    protocol = "sftp"
    serve_options = ["--user", USER, "--pass", USER]

    def rows(self) -> list:
        def ends(place):
            target = f":sftp:{place.folder_served()}/{place.target.name}"
            return [str(place.source), target]

        server = "to rclone serve sftp"
        checks = "hash of the file, SSH"
        rows = [
            ("rclone-push-disk", Scenario.DISK, f"rclone copyto {server}"),
            ("rclone-push-tree", Scenario.TREE, f"rclone copy {server}"),
        ]
        return with_cold([self._row(*row, checks, ends) for row in rows])

    def _remote(self) -> list:
        program = packages.find("rclone")
        hidden = subprocess.run(
            [program, "obscure", USER], capture_output=True, text=True, check=True
        )
        server = ["--sftp-host", "127.0.0.1", "--sftp-port", str(self.server.port)]
        return [*server, "--sftp-user", USER, "--sftp-pass", hidden.stdout.strip()]
