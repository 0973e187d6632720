"""Finds a mover's programs, and installs the Debian packages that hold them when asked to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_POLICY = Path("/usr/sbin/policy-rc.d")


def find(program: str):
    """The program's path, or None. Servers stand in sbin, which users' PATH often lacks."""
    return shutil.which(program, path=PATH) or shutil.which(program)


def missing(programs: dict) -> list:
    return [program for program in programs if not find(program)]


def lacking(programs: dict):
    """None when all programs are there, otherwise what is needed and what was found."""
    absent = missing(programs)
    if not absent:
        return None
    needs = ", ".join(f"{program} (Debian package {programs[program]})" for program in absent)
    found = ", ".join(program for program in programs if program not in absent) or "none of them"
    return f"needs {needs}, found {found}"


def version(program: str, package: str) -> str:
    """The Debian package's version, or the first line of what the program says itself."""
    asked = _output(["dpkg-query", "-W", "-f", "${Version}", package])
    if asked:
        return asked
    said = _output([find(program) or program, "--version"])
    return said.splitlines()[0] if said else "unknown"


def install(wanted: list) -> None:
    """Installs what the given {program: package} maps lack, one mover at a time."""
    lists = [sorted({programs[name] for name in missing(programs)}) for programs in wanted]
    lists = [packages for packages in lists if packages]
    if not lists:
        return
    if os.geteuid() != 0 or not find("apt-get"):
        print("peers: --install needs root and apt-get; nothing installed.", file=sys.stderr)
        return
    own_policy = not START_POLICY.exists()
    if own_policy:  # invoke-rc.d(8): 101 forbids packages to start their services.
        START_POLICY.write_text("#!/bin/sh\nexit 101\n")
        START_POLICY.chmod(0o755)
    try:
        _apt_get("update")
        for packages in lists:
            print(f"peers: installing {' '.join(packages)}", file=sys.stderr)
            _apt_get("install", "-y", "--no-install-recommends", *packages)
    finally:
        if own_policy:
            START_POLICY.unlink()


def _apt_get(*words) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-400:].strip()
        print(f"peers: apt-get {' '.join(words)} failed: {tail}", file=sys.stderr)


def _output(command) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
