"""mscp: scp over several connections, to an sshd of the bench's own.

After https://github.com/upa/mscp, doc/mscp.rst.
"""

from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold
from movers.scp import FAST_CIPHER, Scp
from movers.ssh import SshMover


class Mscp(Given, SshMover):
    name = "mscp"
    option, help = "mscp", "the program mscp"
    version_words = ("-h",)
    programs = {name: Scp.programs[name] for name in ("sftp", "ssh-keygen", "sshd")}

    def rows(self) -> list:
        return with_cold(
            [
                self._row("mscp-push-disk", []),
                self._row("mscp-push-gcm-disk", ["-c", FAST_CIPHER]),
            ]
        )

    def _row(self, name, cipher) -> Row:
        def command(place):
            ends = [str(place.source), f"127.0.0.1:{place.target}"]
            return [self.given(), "-q", "-F", str(self.config), *cipher, *ends]

        label = f"{' '.join(['mscp', *cipher])} to sshd"
        return Row(name, Scenario.DISK, Role.PEER, label, "SSH, encrypted", command)
