"""tar over a TCP connection, as `tar | nc` to `nc | tar`: what many people do with small files.

socat stands for nc: its server can tell when the receiving tar has ended.
"""

import shlex

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario


class Tar(Mover):
    name = "tar"
    programs = {"tar": "tar", "socat": "socat"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        self.where = folder / "target"

        def command(port):
            listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork"
            receive = f"SYSTEM:{packages.find('tar')} -xf - -C $(cat {self.where})"
            return [packages.find("socat"), listen, receive]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        def command(place):
            self.where.write_text(str(place.target.parent))
            folder, name = shlex.quote(str(place.source.parent)), shlex.quote(place.source.name)
            # Until the other end closes, which it does when its tar has ended.
            connect = f"socat -t 600 - TCP:127.0.0.1:{self.server.port}"
            return ["/bin/sh", "-c", f"tar -C {folder} -cf - {name} | {connect}"]

        return [Row("tar-tree", Scenario.TREE, Role.PEER, "tar and nc (socat)", "nothing", command)]
