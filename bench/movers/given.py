"""Movers that no distribution has: they run where the user says where they are.

Their command lines were written from their public documentation, named in each file, and are
checked by tests with programs that only look like them. bench/README.md says which of them were
seen running, and in which version.
"""

import os
import re
import subprocess
from pathlib import Path

from movers.mover import Mover


class Given(Mover):
    """A mover whose path is an option of the bench: `option` is its name there."""

    option = ""
    metavar = "PATH"
    help = ""
    files = ()  # What must be in a directory that is given.
    version_words = ()  # What makes the program print its version; none: it has no such words.

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
        said = ""
        if self.version_words:
            words = [*self.program(), *self.version_words]
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=10)
                said = done.stdout + done.stderr
            except (OSError, subprocess.TimeoutExpired):
                pass
        found = re.search(r"\bv?(\d+\.\d[\w.-]*)", said)
        return found.group(1) if found else f"given by --{self.option}"

    def program(self) -> list:
        return [os.path.join(self.given(), self.files[0]) if self.files else self.given()]
