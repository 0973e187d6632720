"""What the trials share: a compressed disk in memory, a large source, a server, a second host."""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile

ZRAM = pathlib.Path("/sys/class/zram-control")
PAGE_BYTES = 4096
CHUNK_PAGES = 2048


def parse_size(text):
    units = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def write_source(path, size_bytes, seed):
    """Pages that differ from each other and compress well."""
    page = bytearray(random.Random(seed).randbytes(64) * (PAGE_BYTES // 64))
    chunk = bytearray(bytes(page) * CHUNK_PAGES)
    with open(path, "wb", buffering=0) as file:
        written = 0
        while written < size_bytes:
            number = written // PAGE_BYTES
            for at in range(CHUNK_PAGES):
                chunk[at * PAGE_BYTES : at * PAGE_BYTES + 8] = (number + at).to_bytes(8, "little")
            written += file.write(memoryview(chunk)[: min(len(chunk), size_bytes - written)])
        os.fsync(file.fileno())


@contextlib.contextmanager
def compressed_disk(size_bytes):
    number = (ZRAM / "hot_add").read_text().strip()
    device = pathlib.Path(f"/sys/block/zram{number}")
    with tempfile.TemporaryDirectory(prefix="haul-large-") as directory:
        try:
            (device / "comp_algorithm").write_text("lzo-rle")
            (device / "disksize").write_text(str(size_bytes))
            name = f"/dev/zram{number}"
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-T", "largefile4", name], check=True)
            subprocess.run(["mount", name, directory], check=True)
            try:
                yield pathlib.Path(directory), device
            finally:
                subprocess.run(["umount", directory], check=True)
        finally:
            (device / "reset").write_text("1")
            (ZRAM / "hot_remove").write_text(number)


@contextlib.contextmanager
def two_hosts():
    """Two network namespaces and a veth between them (veth(4)): the words that run a command in the
    first, those for the second, and the address of the second."""
    names = [f"haul-lab-{os.getpid()}-{side}" for side in "ab"]
    ip = ["ip", "-4"]
    try:
        for name in names:
            subprocess.run([*ip, "netns", "add", name], check=True)
        peers = [word for name in names for word in ("netns", name)]
        words = ["link", "add", "wire", *peers[:2], "type", "veth", "peer", "wire", *peers[2:]]
        subprocess.run([*ip, *words], check=True)
        for name, address in zip(names, ["10.77.0.1/30", "10.77.0.2/30"]):
            subprocess.run([*ip, "-n", name, "address", "add", address, "dev", "wire"], check=True)
            subprocess.run([*ip, "-n", name, "link", "set", "wire", "up"], check=True)
        enter = [["ip", "netns", "exec", name] for name in names]
        yield enter[0], enter[1], "10.77.0.2"
    finally:
        for name in names:
            subprocess.run([*ip, "netns", "delete", name], check=False)


class Server:
    """`haul serve`; `within` are words that run it on another host."""

    def __init__(self, haul, root, environment, within=(), address="127.0.0.1", options=()):
        self.words = [*within, haul, "serve", str(root), *options, "--json", "--listen"]
        self.environment = environment
        self.start(f"{address}:0")

    def start(self, address):
        self.process = subprocess.Popen(
            [*self.words, address], stdout=subprocess.PIPE, env=self.environment, text=True
        )
        self.url = json.loads(self.process.stdout.readline())["url"]

    def restart(self):
        self.start(self.url.rstrip("/").split("@")[1])


def push(haul, source, server, environment, log, within=()):
    words = [*within, haul, "push", str(source), server.url, "--json"]
    return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
