"""Starts servers on free loopback ports and ends them, each by its own process number."""

import os
import socket
import subprocess
import time

from compare.measure import ERROR_TEXT_CHARS_MAX, RunFailed, process_tree

START_S_MAX = 15.0
END_S_MAX = 5.0
PORT_TRIES_MAX = 3
STABLE_S = 0.2


class Server:
    """A server that this program started. `resident` are the processes it keeps when idle."""

    def __init__(self, process, log_path):
        self.process, self.pid, self.log_path = process, process.pid, log_path
        self.port, self.resident = None, set()

    def last_words(self) -> str:
        return self.log_path.read_text(errors="replace")[-ERROR_TEXT_CHARS_MAX:].strip()

    def settle(self) -> None:
        """Takes what lives on after start-up as the server's residents."""
        give_up, since, tree = time.monotonic() + START_S_MAX, time.monotonic(), None
        while time.monotonic() < give_up:
            now = set(process_tree(self.pid))
            if now != tree:
                tree, since = now, time.monotonic()
            if time.monotonic() - since > STABLE_S:
                break
            time.sleep(0.02)
        self.resident = tree or set()

    def end(self) -> None:
        """Asks the server to end, then makes it. Touches only it and its own descendants."""
        descendants = [pid for pid in process_tree(self.pid) if pid != self.pid]
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in descendants:
            try:
                if os.getsid(pid) == self.pid:  # Still ours: the session we gave the server.
                    os.kill(pid, 9)
            except ProcessLookupError:
                pass


def launch(command, env, folder, stdout=None) -> Server:
    """Starts a server in a session of its own. Its log goes to `folder`."""
    log_path = folder / "server.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout or log,
            stderr=log,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    return Server(process, log_path)


def launch_on_free_port(make_command, env, folder) -> Server:
    """Starts `make_command(port)` and waits until it accepts connections."""
    for attempt in range(1, PORT_TRIES_MAX + 1):
        port = free_port()
        server = launch(make_command(port), env, folder)
        server.port = port
        try:
            if _accepts(server, port):
                server.settle()
                return server
        except BaseException:
            server.end()
            raise
        server.end()
    raise RunFailed(f"the server did not accept connections: {server.last_words()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _accepts(server, port) -> bool:
    give_up = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up and server.process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
