"""What a mover is to the bench: programs, a server, and the rows that it has in the tables."""

import enum
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Optional

from compare import packages
from compare.measure import RunFailed


class Scenario(enum.Enum):
    """The tables, in the report's order."""

    DISCARD = "discard"
    DISK = "disk"
    TREE = "tree"
    COLD = "cold"
    BEYOND = "beyond"


# A cold row leaves the cache as it found it; trees come last, as their removal disturbs ext4.
RUN_ORDER = (Scenario.DISCARD, Scenario.DISK, Scenario.COLD, Scenario.BEYOND, Scenario.TREE)


class Role(enum.Enum):
    """What a row is compared as. Only PEER rows can be the best peer."""

    HAUL = "haul"
    PEER = "peer"
    FLOOR = "floor: the engine without protocol"
    REFERENCE = "reference: no file is moved"
    LOCAL = "local: no network"


@dataclass(frozen=True)
class Place:
    """Where one run takes its bytes from and puts them."""

    source: object  # A path, or the words `zero:SIZE`.
    size_bytes: int
    target: Optional[Path]  # The new file or directory; None when the bytes are thrown away.
    root: Optional[Path] = None  # The directory that servers serve.

    def source_served(self) -> str:
        """The source's path, as a server names it."""
        return str(self.source.relative_to(self.root))

    def folder_served(self) -> str:
        """The path of the directory of the target, as a server names it."""
        return str(self.target.parent.relative_to(self.root))


@dataclass(frozen=True)
class Row:
    """One line of a table: a way to move the source file."""

    name: str
    scenario: Scenario
    role: Role
    label: str
    checks: str
    command: Callable[[Place], list]
    makes_durable: bool = False  # Otherwise `sync FILE DIRECTORY` is run, and timed with it.
    target_owner: Optional[str] = None  # The user that a server drops to.
    env: dict = field(default_factory=dict)
    read_report: Optional[Callable[[str, Place], dict]] = None  # From what the client printed.
    own_clock: bool = False  # Rates come from the report's seconds, not from the process's life.
    note: str = ""
    congestion: str = ""  # Of a mover that chooses its own; otherwise it has its network's.
    receiver: str = "copies"  # What becomes of the bytes where they are thrown away.
    twin: str = ""  # Of a cold row the same row from a warm source.
    source: Optional[object] = None  # A source of its own: a path or `zero:SIZE`,
    size_bytes: int = 0  # and its size.
    rounds_max: Optional[int] = None
    prepare: Optional[Callable[[], None]] = None  # Before the clock starts.
    look_after: Optional[Callable[[], dict]] = None  # After it stopped; added to the report.


class NotHere(RunFailed):
    """A row that this host cannot run: it is skipped, which is no failure."""


def with_cold(rows) -> list:
    """The rows, and behind them those that write to the disk once more, from a cold source."""
    return rows + [
        replace(
            row,
            name=row.name.replace(Scenario.DISK.value, Scenario.COLD.value),
            scenario=Scenario.COLD,
            twin=row.name,
        )
        for row in rows
        if row.scenario is Scenario.DISK
    ]


class Mover:
    """One program or pair of programs. `start` may set `server` and `client_env`."""

    name = ""
    programs = {}  # Program -> Debian package.
    in_every_network = True  # Otherwise the system's congestion control does not touch it.
    rows_known = True  # Before `start`; otherwise --only takes the mover's name.

    def __init__(self, options, network=None):
        self.options, self.network = options, network
        self.server, self.client_env = None, {}

    def lacking(self):
        """None, or what is needed and what was found."""
        return packages.lacking(self.programs)

    def version(self) -> str:
        program, package = next(iter(self.programs.items()))
        return packages.version(program, package)

    def start(self, workspace, env) -> None:
        """Starts the server, if there is one, on a free loopback port."""

    def rows(self) -> list:
        raise NotImplementedError

    def stop(self) -> None:
        if self.server:
            self.server.end()
            self.server = None
