#!/usr/bin/env python3
"""Stands in for movers that only a user's path names: `fake_movers.py ROLE ARGUMENTS`.

Each role refuses arguments other than those that its program documents, then copies as asked.
"""

import re
import shutil
import socket
import sys
import time
from pathlib import Path

PATH = r"/[^ ]+"
PORT = r"\d+"
CIPHER = ["-c", "aes128-gcm@openssh\\.com"]
PLAIN = ["-encryption_type", "none"]


def match(words, *forms):
    """The captured parts of the form that the words have, or the end with status 2."""
    for form in forms:
        found = [re.fullmatch(part, word) for part, word in zip(form, words)]
        if len(form) == len(words) and all(found):
            return [group for one in found for group in one.groups()]
    print(f"fake: cannot read the arguments {words}", file=sys.stderr)
    sys.exit(2)


def listen(*ports):
    listeners = []
    for port in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(port)))
        listener.listen()
        listeners.append(listener)
    return listeners


def must_listen(port):
    socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()


def serve_for_ever(*ports):
    kept = listen(*ports)
    while kept:
        kept[0].accept()[0].close()


def java(words):
    jar = ["-jar", f"{PATH}/fdt\\.jar", "-noupdates", "-p", f"({PORT})"]
    if "-c" not in words:
        serve_for_ever(*match(words, [*jar, "-f", r"127\.0\.0\.1"]))
    client = [*jar, "-c", r"127\.0\.0\.1", "-P", "4"]
    ends = ["-d", f"({PATH})", f"({PATH})"]
    port, folder, source = match(words, [*client, *ends], [*client, "-pull", *ends])
    must_listen(port)
    shutil.copy(source, folder)


def bbcp(words):
    other_end = rf"ssh -F ({PATH}) -x -a %H {PATH}/bbcp"
    streams = ["-s", "4", "-w", "8M"]
    form = ["-4", "-T", other_end, *streams, f"({PATH})", rf"127\.0\.0\.1:({PATH})"]
    config, source, target = match(words, form)
    assert "IdentityFile" in Path(config).read_text()
    shutil.copyfile(source, target)


def etd(words):
    address = rf"tcp://127\.0\.0\.1:({PORT})"
    serve_for_ever(*match(words, ["-f", "--command", address, "--data", address]))


def etc(words):
    source, port, folder = match(words, [f"({PATH})", rf"127\.0\.0\.1#({PORT}):({PATH}/)"])
    must_listen(port)
    shutil.copy(source, folder)


def mscp(words):
    head, ends = ["-q", "-F", f"({PATH})"], [f"({PATH})", rf"127\.0\.0\.1:({PATH})"]
    config, source, target = match(words, [*head, *ends], [*head, *CIPHER, *ends])
    must_listen(re.search(r"Port (\d+)", Path(config).read_text()).group(1))
    shutil.copyfile(source, target)


def wdt(words):
    if words[-1] != "-":
        receive = ["-hostname", r"127\.0\.0\.1", "-start_port", "0", "-directory", f"({PATH})"]
        (folder,) = match(words, receive, [*receive, *PLAIN])
        (listener,) = listen(0)
        print(f"wdt://127.0.0.1?ports={listener.getsockname()[1]}", flush=True)
        with listener.accept()[0].makefile("rb") as stream:
            name = stream.readline().decode().strip()
            (Path(folder) / name).write_bytes(stream.read())
        return
    send = ["-directory", f"({PATH})", "-manifest", f"({PATH})"]
    folder, manifest = match(words, [*send, "-"], [*send, *PLAIN, "-"])
    port = int(sys.stdin.readline().rpartition("=")[2])
    name = Path(manifest).read_text()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(name.encode() + (Path(folder) / name.strip()).read_bytes())
        connection.shutdown(socket.SHUT_WR)
    time.sleep(0.2)  # The receiver writes; a real sender hears from it.


def sshd(words):
    (config,) = match(words, ["-D", "-e", "-f", f"({PATH})"])
    serve_for_ever(re.search(r"Port (\d+)", Path(config).read_text()).group(1))


def sftp(words):
    head = ["-q", "-b", "/dev/null", "-F", f"({PATH})", r"127\.0\.0\.1"]
    (config,) = match(words, head)
    must_listen(re.search(r"Port (\d+)", Path(config).read_text()).group(1))


def ssh_keygen(words):
    (path,) = match(words, ["-q", "-t", "ed25519", "-N", "", "-f", f"({PATH})"])
    Path(path).write_text("secret\n")
    Path(f"{path}.pub").write_text("ssh-ed25519 AAAA fake\n")


if __name__ == "__main__":
    roles = (java, bbcp, etd, etc, mscp, wdt, sftp, sshd, ssh_keygen)
    {role.__name__: role for role in roles}[sys.argv[1]](sys.argv[2:])
