"""Movers that no distribution has: they run where the user says where they are.

Their command lines were written from their public documentation, named in each file, and are
checked by tests with programs that only look like them. None was seen running here.
"""

import os
from pathlib import Path

from movers.mover import Mover


class Given(Mover):
    """A mover whose path is an option of the bench: `option` is its name there."""

    option = ""
    metavar = "PATH"
    help = ""
    files = ()  # What must be in a directory that is given.

    def given(self):
        path = getattr(self.options, self.option, None)
        return os.path.abspath(path) if path else None

    def lacking(self):
        path = self.given()
        if path is None:
            return f"needs --{self.option} {self.metavar}, found none"
        for wanted in [Path(path) / name for name in self.files] or [Path(path)]:
            if not wanted.is_file():
                return f"needs {wanted}, found no such file"
        return super().lacking()

    def version(self) -> str:
        return f"given by --{self.option}"
