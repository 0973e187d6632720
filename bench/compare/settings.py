"""The settings that large files are moved in: on which file system, and out of which memory.

The host of a virtual machine hands out memory page by page: who needs a page first waits for it, so
that a buffered write is several times slower in some minutes than in others. Rows therefore start
from memory that the host has given: before each run as much as its target takes is touched and
given back, for peers and haul alike. Rows to the directory's own file system are there once more
from memory as it comes.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from compare.host import mount_of
from movers.mover import Scenario

OWN = "own"
KINDS = ("ext4", "xfs")
LARGE_FILES = frozenset({Scenario.DISK, Scenario.COLD})
# A journal, the room that ext4 keeps for root, and what xfs wants at least (300 MiB).
IMAGE_ROOM_BYTES = 512 << 20
UNMOUNT_S_MAX = 10.0
TOUCH = """\
import mmap, sys
length, step = int(sys.argv[1]), mmap.PAGESIZE
memory = mmap.mmap(-1, length)
memory[::step] = b"\\1" * len(range(0, length, step))
"""


@dataclass(frozen=True)
class Setting:
    """Where rows of some scenarios run. `folder` is where a file system of an image is mounted."""

    key: str
    file_system: str
    scenarios: frozenset
    touched: bool
    folder: Path = None

    def title(self) -> str:
        memory = "memory that the host has given" if self.touched else "memory as it comes"
        return f"{self.file_system}, {memory}"


def own_settings(root, memory) -> list:
    """Of the directory's own file system: touched memory, memory as it comes, or both."""
    shown = file_system_of(root)
    found = []
    if memory in ("both", "touched"):
        found.append(Setting(OWN, shown, frozenset(Scenario), True))
    if memory in ("both", "as-it-comes"):
        every = frozenset(Scenario) if not found else frozenset({Scenario.DISK})
        key = f"{OWN}-as-it-comes" if found else OWN
        found.append(Setting(key, shown, every, False))
    return found


def file_system_of(path) -> str:
    """`ext4 without a journal`: of an ext4 it is told, as few users have one without."""
    mount = mount_of(path)
    kind, device = mount["type"], os.path.basename(os.path.realpath(mount["device"]))
    if kind != "ext4":
        return kind
    journals = list(Path("/proc/fs/jbd2").glob(f"{device}-*"))
    if not journals and not Path(f"/proc/fs/ext4/{device}").exists():
        return kind  # Of a device by another name nothing is known.
    return "ext4 with a journal" if journals else "ext4 without a journal"


def image_bytes(size_bytes) -> int:
    """Room for source and target, and for what the file system keeps for itself."""
    return 2 * size_bytes + size_bytes // 5 + IMAGE_ROOM_BYTES


class Image:
    """A file system in a file of the directory, mounted below it; gone after `remove`."""

    def __init__(self, kind, folder, size_bytes):
        self.kind, self.mounted = kind, False
        self.file, self.folder = folder / f"{kind}.image", folder / kind
        self.size_bytes = size_bytes

    def make(self) -> None:
        """Raises OSError with what was tried."""
        self.folder.mkdir()
        with open(self.file, "xb") as file:
            file.truncate(self.size_bytes)
        _run(f"mkfs.{self.kind}", "-q", str(self.file))
        # Without direct I/O the image would be in the page cache a second time.
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(self.file)).strip()
        try:
            _run("mount", "-t", self.kind, device, str(self.folder))
            self.mounted = True
        finally:
            # From here on the device goes with its mount, also where nobody is left to say so.
            _run("losetup", "--detach", device)
        self.folder.chmod(0o755)

    def remove(self) -> None:
        give_up = time.monotonic() + UNMOUNT_S_MAX
        while self.mounted:
            try:
                _run("umount", str(self.folder))
                self.mounted = False
            except OSError:
                if time.monotonic() > give_up:
                    _run("umount", "-l", str(self.folder))
                    self.mounted = False
                time.sleep(0.05)
        self.file.unlink(missing_ok=True)


def touch_memory(size_bytes) -> None:
    """Takes as much memory and gives it back, at most half of what is free.

    In a process of its own: a child's peak memory begins at what its parent once held.
    """
    size_bytes = min(size_bytes, _available_bytes() // 2)
    if size_bytes > 0:
        subprocess.run([sys.executable, "-c", TOUCH, str(size_bytes)], check=True)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _run(program, *words) -> str:
    path = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise OSError(f"needs {program}, found no such program")
    done = subprocess.run([path, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{program} {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
