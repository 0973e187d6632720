"""Programs of this host in another kernel: user-mode Linux (Debian's package user-mode-linux, and
kmod for its modules).

It boots with the host's files as its own, so that any program of the host runs in it. What is
written goes to a tmpfs, or to a disk of its own that is gone with it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

INIT = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run
mkdir -p /run/modules/lib/modules
ln -s /usr/lib/uml/modules/$(uname -r) /run/modules/lib/modules/
for module in {modules}; do modprobe -d /run/modules $module; done
ip link set lo up; ulimit -n 20000
echo "kernel $(uname -r)"
cd {directory}
{commands}
echo o > /proc/sysrq-trigger; sleep 5
"""


def test_binary(words):
    """Builds a test and names its program."""
    command = ["cargo", "test", "--no-run", "--message-format", "json", *words]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    made = [json.loads(line) for line in lines.splitlines()]
    names = [one["executable"] for one in made if one.get("profile", {}).get("test")]
    return next(name for name in names if name)


def run(linux, directory, commands, modules=(), disk_bytes=0, seconds_max=600):
    """What the commands print, run one after the other in that directory. With `disk_bytes` there
    is an empty disk, /dev/ubda, with a file system (ext4)."""
    needs = {linux: "user-mode-linux", **({"modprobe": "kmod"} if modules else {})}
    for program, package in needs.items():
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            sys.exit(f"needs {program}, found none: apt-get install {package}")
    with tempfile.TemporaryDirectory(prefix="haul-uml-") as own:
        init = pathlib.Path(own, "init")
        init.write_text(INIT.format(modules=" ".join(modules), directory=directory,
                                    commands="\n".join(commands)))
        init.chmod(0o755)
        boot = [linux, "mem=2G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
                f"init={init}", "con=null", "con0=null,fd:1", "con1=null", "ssl=null", "quiet",
                "loglevel=3", "panic=-1"]
        if disk_bytes:
            disk = pathlib.Path(own, "disk")
            with open(disk, "wb") as file:
                file.truncate(disk_bytes)
            subprocess.run(["mkfs.ext4", "-q", disk], check=True)
            boot.append(f"ubd0={disk}")
        environment = {**os.environ, "TMPDIR": "/dev/shm"}
        ran = subprocess.run(boot, env=environment, stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, timeout=seconds_max)
    return ran.stdout
