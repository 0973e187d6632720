"""bbcp, four streams; its other end is started over an sshd of the bench's own.

After `bbcp -h` of version 17.12 and http://www.slac.stanford.edu/~abh/bbcp; seen with 14.04.
"""

from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold
from movers.scp import Scp
from movers.ssh import SshMover


class Bbcp(Given, SshMover):
    name = "bbcp"
    option, help = "bbcp", "the program bbcp"
    version_words = ("--version",)
    programs = {**Scp.programs, "ssh": "openssh-client"}

    def rows(self) -> list:
        def command(place):
            other_end = f"ssh -F {self.config} -x -a %H {self.given()}"
            streams = ["-s", "4", "-w", "8M"]
            ends = [str(place.source), f"127.0.0.1:{place.target}"]
            return [self.given(), "-4", "-T", other_end, *streams, *ends]

        label = "bbcp -s 4 -w 8M"
        return with_cold(
            [Row("bbcp-push-disk", Scenario.DISK, Role.PEER, label, "nothing", command)]
        )
