"""etransfer: the client `etc` to the daemon `etd`, over TCP.

After https://github.com/jive-vlbi/etransfer, README.md and the options in src/etc.cc, src/etd.cc.
The daemon refuses to be root, and to become another user (`--run-as`) in the foreground (`-f`): as
root the bench starts it as `nobody`, who is given the targets.
"""

import os
from dataclasses import replace

from compare import servers
from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold


DROPPED_USER = "nobody"
AS_NOBODY = ["setpriv", f"--reuid={DROPPED_USER}", "--regid=nogroup", "--clear-groups"]


class Etransfer(Given):
    name = "etransfer"
    option, metavar, help = "etransfer", "DIR", "the directory with etransfer's etc and etd"
    files = ("etc", "etd")
    programs = {"setpriv": "util-linux"}
    version_words = ("--version",)

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            channels = ["--command", f"tcp://127.0.0.1:{port}"]
            channels += ["--data", f"tcp://127.0.0.1:{servers.free_port()}"]
            user = AS_NOBODY if self.options.is_root else []
            return [*user, os.path.join(self.given(), "etd"), "-f", *channels]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        def command(place):
            target = f"127.0.0.1#{self.server.port}:{place.target.parent}/"
            return [os.path.join(self.given(), "etc"), str(place.source), target]

        label = "etc to etd, TCP"
        row = Row("etransfer-push-disk", Scenario.DISK, Role.PEER, label, "nothing", command)
        if self.options.is_root:
            row = replace(row, target_owner=DROPPED_USER)
        return with_cold([row])
