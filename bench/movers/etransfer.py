"""etransfer: the client `etc` to the daemon `etd`, over TCP.

After https://github.com/jive-vlbi/etransfer, README.md and the options in src/etc.cc, src/etd.cc.
"""

import os

from compare import servers
from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold


class Etransfer(Given):
    name = "etransfer"
    option, metavar, help = "etransfer", "DIR", "the directory with etransfer's etc and etd"
    files = ("etc", "etd")

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            channels = ["--command", f"tcp://127.0.0.1:{port}"]
            channels += ["--data", f"tcp://127.0.0.1:{servers.free_port()}"]
            return [os.path.join(self.given(), "etd"), "-f", *channels]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        def command(place):
            target = f"127.0.0.1#{self.server.port}:{place.target.parent}/"
            return [os.path.join(self.given(), "etc"), str(place.source), target]

        label = "etc to etd, TCP"
        return with_cold(
            [Row("etransfer-push-disk", Scenario.DISK, Role.PEER, label, "nothing", command)]
        )
