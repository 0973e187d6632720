"""An sshd of the bench's own, for the movers that go over SSH.

It listens on a free loopback port, with host key and user key of the session in its temporary
directory; nothing below /etc/ssh or the user's ~/.ssh is read. It lets in the user who runs the
bench, by the session's key only. As root sshd needs the empty directory /run/sshd: it is made when
it is missing, and removed again.
"""

import os
import pwd
import subprocess
from pathlib import Path

from compare import packages, servers
from compare.measure import RunFailed
from movers.mover import Mover

SEPARATION = Path("/run/sshd")  # Compiled into Debian's sshd.
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 64
Subsystem sftp internal-sftp
"""
CLIENT = """\
Host *
    Port {port}
    User {user}
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
"""


class SshMover(Mover):
    """A mover whose server is sshd. `config` is the client's configuration file."""

    config = Path()
    made_separation = False

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        folder.chmod(0o700)
        self.config = folder / "ssh_config"
        for key in ("host_key", "user_key"):
            words = ["-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            done = subprocess.run(
                [packages.find("ssh-keygen"), *words], capture_output=True, text=True
            )
            if done.returncode != 0:
                raise RunFailed(f"ssh-keygen made no key: {done.stderr.strip()}")
        if self.options.is_root and not SEPARATION.exists():
            SEPARATION.mkdir(mode=0o755)
            self.made_separation = True

        def command(port):
            values = {"folder": folder, "port": port, "user": pwd.getpwuid(os.geteuid()).pw_name}
            (folder / "sshd_config").write_text(SERVER.format(**values))
            self.config.write_text(CLIENT.format(**values))
            host = (folder / "host_key.pub").read_text()
            (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}")
            # sshd starts itself anew for each connection, so it must be named by its full path.
            return [packages.find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")]

        self.server = servers.launch_on_free_port(command, env, folder)
        # Whom sshd will not have, such as a user whose account is locked, is known before any run.
        words = ["-q", "-b", "/dev/null", "-F", str(self.config), "127.0.0.1"]
        done = subprocess.run([packages.find("sftp"), *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RunFailed(f"sshd let this user not in: {self.server.last_words()}")

    def stop(self) -> None:
        super().stop()
        if self.made_separation:
            SEPARATION.rmdir()
            self.made_separation = False
