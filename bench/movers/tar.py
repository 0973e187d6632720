"""tar over a TCP connection, as `tar | nc` to `nc | tar`: what many people do with small files.

socat stands for nc: its server can tell when the receiving tar has ended. Its blocks are as large
as a full pipe takes, not the 8 KiB that it comes with.
"""

import shlex

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

BLOCK_BYTES = 64 << 10  # A pipe holds 16 pages of 4 KiB (pipe(7)).
# Where the bytes go is in a file: the server starts before the targets are known.
RECEIVE = """\
where=$(cat {where})
if [ -z "$where" ]; then exec cat > /dev/null; fi
exec {tar} -xf - -C "$where"
"""


class Tar(Mover):
    name = "tar"
    programs = {"tar": "tar", "socat": "socat"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        self.where, script = folder / "target", folder / "receive.sh"
        script.write_text(RECEIVE.format(where=self.where, tar=packages.find("tar")))

        def command(port):
            listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork"
            block = ["-b", str(BLOCK_BYTES)]
            return [packages.find("socat"), *block, listen, f"EXEC:/bin/sh {script}"]

        self.where.write_text("")  # The port is tried before there is a target.
        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        def command(place):
            self.where.write_text(str(place.target.parent) if place.target else "")
            folder, name = shlex.quote(str(place.source.parent)), shlex.quote(place.source.name)
            # Until the other end closes, which it does when its tar has ended.
            connect = f"socat -b {BLOCK_BYTES} -t 600 - TCP:127.0.0.1:{self.server.port}"
            return ["/bin/sh", "-c", f"tar -C {folder} -cf - {name} | {connect}"]

        names = {
            "tar-discard": Scenario.DISCARD,
            "tar-disk": Scenario.DISK,
            "tar-tree": Scenario.TREE,
        }
        return with_cold(
            [
                Row(name, scenario, Role.PEER, "tar and nc (socat)", "nothing", command)
                for name, scenario in names.items()
            ]
        )
