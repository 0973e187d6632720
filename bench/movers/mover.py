"""What a mover is to the bench: programs, a server, and the rows that it has in the tables."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from compare import packages


class Scenario(enum.Enum):
    """The tables."""

    DISCARD = "discard"
    DISK = "disk"
    TREE = "tree"


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

    source: Path
    size_bytes: int
    target: Optional[Path]  # The new file or directory; None when the bytes are thrown away.


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


class Mover:
    """One program or pair of programs. `start` may set `server` and `client_env`."""

    name = ""
    programs = {}  # Program -> Debian package.

    def __init__(self, options):
        self.options, self.server, self.client_env = options, None, {}

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
