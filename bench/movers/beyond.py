"""haul alone with a file that is larger than memory, beside one that is not.

Where the disk has room for source and target, the file is a tenth larger than this host's memory.
Otherwise both ends of haul are in a control group whose memory, page cache included, holds the
smaller file and is half as large as the large one. Another program's file is read into the cache
before: it shall still be there afterwards. In a control group the reader is in it too, so that its
pages are the group's.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compare import page_cache
from compare.measure import RunFailed
from compare.memory_limit import MemoryLimit, NoLimit
from compare.sizes import MIB, shown_size
from movers.haul import Haul, read_report
from movers.mover import Role, Row, Scenario

BLOCK_BYTES = MIB
WITNESS_BYTES = 256 * MIB
WITNESS_READ_MIN = 0.9  # What is gone at once was taken by others; more would be no witness.
PROGRAM_BYTES = 256 * MIB  # More than both ends of haul need beside the page cache.
ROUNDS_MAX = 3
ROOM_LEFT_BYTES = 1 << 30  # No disk is filled to its end.


@dataclass(frozen=True)
class Plan:
    """What is moved, and the memory it is moved in: this host's, or that of a control group."""

    base_bytes: int
    large_bytes: int
    limit_bytes: int
    limited: bool


def plan(base_bytes, memory_bytes, free_bytes) -> Plan:
    """The whole memory where the disk has room for source and target, otherwise a part of it."""
    whole = (memory_bytes + memory_bytes // 10) // BLOCK_BYTES * BLOCK_BYTES
    if 2 * whole + ROOM_LEFT_BYTES <= free_bytes and base_bytes < memory_bytes // 2:
        return Plan(base_bytes, whole, memory_bytes, False)
    limit = base_bytes + WITNESS_BYTES + PROGRAM_BYTES
    return Plan(base_bytes, 2 * limit, limit, True)


class Beyond(Haul):
    name = "beyond"
    in_every_network = False  # haul chooses its congestion control.
    rows_known = False  # Their sizes follow from the room on the disk.
    group = None
    folder = None
    witness_read = 1.0  # The share of the witness that its reader left in the cache.

    def start(self, workspace, env) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = shutil.disk_usage(workspace.root).free
        self.plan = plan(workspace.size_bytes, memory, free)
        needed = 2 * self.plan.large_bytes + WITNESS_BYTES
        if free < needed:
            raise RunFailed(f"needs {needed} free bytes for source and target, found {free}")
        if self.plan.limited:
            try:
                self.group = MemoryLimit(self.plan.limit_bytes)
            except NoLimit as error:
                raise RunFailed(
                    f"{error}; a file larger than this host's memory needs"
                    f" {2 * memory * 11 // 10} free bytes, found {free}"
                ) from error
        self.folder, self.workspace = workspace.root / "beyond", workspace
        self.folder.mkdir()
        self.large, self.witness = self.folder / "large.bin", self.folder / "witness.bin"
        _write(self.large, self.plan.large_bytes)
        _write(self.witness, WITNESS_BYTES)
        page_cache.evict(self.large)
        super().start(workspace, env)

    def stop(self) -> None:
        super().stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.group:
            self.group.remove()
            self.group = None

    def words_before(self) -> list:
        return self.group.words() if self.group else []

    def rows(self) -> list:
        base, large = self.plan.base_bytes, self.plan.large_bytes
        return [
            self._beyond_row("base-zero", f"zero:{base}", base),
            self._beyond_row("large-zero", f"zero:{large}", large),
            self._beyond_row("base-file", self.workspace.source, base),
            self._beyond_row("large-file", self.large, large),
        ]

    def _beyond_row(self, name, source, size_bytes) -> Row:
        def command(place):
            # The target's name too, as that of zeros would be `zero:SIZE`.
            target = f"{self.url}/{place.folder_served()}/{place.target.name}"
            push = [self.options.haul, "push", str(place.source), target, "--json"]
            return [*self.words_before(), *push]

        def prepare():
            if isinstance(source, Path):
                page_cache.evict(source)
            page_cache.evict(self.witness)
            reader = ["/bin/cat", str(self.witness)]
            subprocess.run([*self.words_before(), *reader], stdout=subprocess.DEVNULL, check=True)
            self.witness_read = page_cache.residency(self.witness)
            if self.witness_read < WITNESS_READ_MIN:
                raise RunFailed(f"of a file just read {self.witness_read:.0%} is in the cache")

        def look_after() -> dict:
            share = page_cache.residency(self.witness) / self.witness_read
            return {"witness_resident": min(1.0, share)}

        what = "zeros" if isinstance(source, str) else "a cold file"
        return Row(
            f"beyond-{name}",
            Scenario.BEYOND,
            Role.HAUL,
            f"haul push of {what}, {shown_size(size_bytes)}",
            "keyed MAC of each span",
            command,
            makes_durable=True,
            read_report=read_report,
            source=source,
            size_bytes=size_bytes,
            rounds_max=ROUNDS_MAX,
            prepare=prepare,
            look_after=look_after,
            congestion=self.congestion(),
            note=self._note(),
        )

    def _note(self) -> str:
        if not self.plan.limited:
            return f"this host's memory, {shown_size(self.plan.limit_bytes)}"
        return (
            f"in a control group with {shown_size(self.plan.limit_bytes)} of memory, page cache"
            " included"
        )


def _write(path, size_bytes) -> None:
    """A file on the disk, every block of other bytes than the one before it."""
    block = bytearray(os.urandom(BLOCK_BYTES))
    with open(path, "wb") as file:
        for number in range(size_bytes // BLOCK_BYTES):
            block[:8] = number.to_bytes(8, "little")
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
