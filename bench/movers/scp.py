"""scp to and from an sshd of its own, with the cipher that comes first and with the fastest.

scp has no sink, and of 20,000 small files it makes minutes, so it has rows for large files only.
"""

from compare import packages
from movers.mover import Role, Row, Scenario, with_cold
from movers.ssh import SshMover

FAST_CIPHER = "aes128-gcm@openssh.com"


class Scp(SshMover):
    name = "scp"
    programs = {
        "scp": "openssh-client",
        "sftp": "openssh-client",
        "ssh-keygen": "openssh-client",
        "sshd": "openssh-server",
    }

    def rows(self) -> list:
        return with_cold(
            [
                self._row("scp-push-disk", "to", []),
                self._row("scp-push-gcm-disk", "to", ["-c", FAST_CIPHER]),
                self._row("scp-pull-gcm-disk", "from", ["-c", FAST_CIPHER]),
            ]
        )

    def _row(self, name, way, cipher) -> Row:
        def command(place):
            ends = [str(place.source), f"127.0.0.1:{place.target}"]
            if way == "from":
                ends = [f"127.0.0.1:{place.source}", str(place.target)]
            return [packages.find("scp"), "-q", "-F", str(self.config), *cipher, *ends]

        label = f"{' '.join(['scp', *cipher])} {way} sshd"
        return Row(name, Scenario.DISK, Role.PEER, label, "SSH, encrypted", command)
