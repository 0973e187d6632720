"""A limit on the memory of some processes, page cache included: a control group of their own."""

import os
import shlex
import time
from pathlib import Path

# Where version 1 and version 2 of control groups are mounted most of the time, and the limit.
GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
REMOVE_S_MAX = 10.0  # The kernel lets a group go a moment after its last process.


class NoLimit(Exception):
    """The memory of processes cannot be limited here: what was tried and why not."""


class MemoryLimit:
    """A control group. It is gone after `remove`; this process is never in it."""

    def __init__(self, limit_bytes: int):
        why = "no control groups"
        for root, limit in GROUPS:
            group = root / f"haul-peers-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as error:
                why = str(error)
                continue
            self.group = group
            try:
                (group / limit).write_text(str(limit_bytes))
                return
            except OSError as error:
                why = str(error)
                group.rmdir()
        raise NoLimit(f"needs root and control groups that limit memory, found {why}")

    def words(self) -> list:
        """What a command in the group begins with. The shell is replaced by the command."""
        into = shlex.quote(str(self.group / "cgroup.procs"))
        return ["/bin/sh", "-c", f'echo $$ > {into} && exec "$@"', "limited"]

    def remove(self) -> None:
        give_up = time.monotonic() + REMOVE_S_MAX
        while True:
            try:
                self.group.rmdir()
                return
            except OSError:
                if time.monotonic() > give_up or not self.group.exists():
                    return
                time.sleep(0.02)
