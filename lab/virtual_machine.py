"""Programs of this host under another kernel: one of Debian's in QEMU, without KVM.

The kernel's package is downloaded and unpacked below target/, never installed. The machine has the
host's files, read-only (9p); what is written lies above them in its memory and goes with it. It
boots out of an archive that `busybox` begins in and that has the modules for that.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import typing
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Names a folder that has another one: lib/modules/RELEASE with vmlinuz in it, and bin/busybox, as
# the packages linux-modules-*, linux-base-* and linux-binary-* of Debian's later kernels have them.
OTHER_KERNEL = "HAUL_LAB_KERNEL"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
# What the machine itself needs, as provide() takes it.
NEEDS = {
    "qemu-system-x86_64": "qemu-system-x86", "modprobe": "kmod", "xz": "xz-utils", "cpio": "cpio",
}
# What the host's files are reached by.
BOOT_MODULES = ["virtio_pci", "virtio_rng", "9pnet_virtio", "9p", "overlay"]

BEGIN = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /host /own /new
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in /modules/*; do insmod $module; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host
mount -t tmpfs -o size=90% own /own; mkdir /own/upper /own/work
mount -t overlay -o lowerdir=/host,upperdir=/own/upper,workdir=/own/work new /new
for one in proc sys dev; do mkdir -p /new/$one; mount --move /$one /new/$one; done
cp /begin /new/begin
exec switch_root /new /begin
"""

BEGIN_THERE = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/tmp LANG=C.UTF-8
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t devpts devpts /dev/pts
mkdir -p /lib/modules; mount --bind {modules} /lib/modules
ulimit -n 20000; ulimit -l unlimited; ip link set lo up
echo "lab: kernel $(uname -r)"
for module in {names}; do modprobe $module; done
cd {directory}
{commands}
echo "lab: over"
echo o > /proc/sysrq-trigger; sleep 20
"""


def executables():
    """The programs that `cargo xtask test` builds, by the names of their targets."""
    words = ["cargo", "test", "--no-run", "--message-format", "json", "--workspace"]
    # As `cargo xtask test` builds them: with libfabric where that is there.
    if subprocess.run(["pkg-config", "--exists", "libfabric"], check=False).returncode == 0:
        words += ["--features", "haul-cli/fabric"]
    lines = subprocess.run(words, cwd=ROOT, check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, text=True).stdout.splitlines()
    made = [one for one in map(json.loads, lines) if one.get("executable")]
    names = {one["target"]["name"]: one["executable"] for one in made if one["profile"]["test"]}
    names["haul"] = next(one["executable"] for one in made
                         if one["target"]["name"] == "haul" and not one["profile"]["test"])
    return names


def is_there(program):
    return shutil.which(program, path=PATH) is not None


def lacks(what):
    """Ends with what cannot be had here, and the status by which others know that."""
    print(f"lab: {what}")
    sys.exit(77)


class Kernel(typing.NamedTuple):
    """A kernel of Debian's: its series, and where its package comes from."""

    series: str
    # Names that apt-get knows and that depend on the newest package of the series.
    depended_on_by: tuple = ()
    # Address and SHA-256 of a package that this host's apt-get does not know.
    address: str = ""
    sha256: str = ""

    @property
    def tools(self):
        return ROOT / "target" / "tools" / f"linux-{self.series}"


# Of Debian 12 and of Debian 13.
LINUX_6_12 = Kernel("6.12", ("linux-image-6.12-amd64", "linux-image-amd64"))


def provide(needs, kernel=LINUX_6_12):
    """Installs the packages of programs that are missing, and unpacks the kernel, or says what is
    missing. `needs` names the package of each program, or of each file."""
    missing = sorted({package for what, package in needs.items() if not (
        pathlib.Path(what).exists() if what.startswith("/") else is_there(what))})
    if missing:
        install(missing)
    unpacked(kernel)


def install(missing):
    words = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not is_there("apt-get"):
        lacks("missing; install it: " + " ".join(words))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-q", "update"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)


def unpacked(kernel):
    """The folder of the unpacked kernel, and its release."""
    if other := os.environ.get(OTHER_KERNEL):
        root = pathlib.Path(other)
        return root, next(one.name for one in (root / "lib/modules").iterdir())
    root = kernel.tools / "root"

    def releases():
        return sorted(one.name for one in (root / "lib/modules").glob(f"{kernel.series}*"))
    if not releases() or not (root / "bin/busybox").exists():
        unpack(kernel)
    return root, releases()[-1]


def unpack(kernel):
    """Unpacks the kernel, and the busybox that needs no library."""
    shutil.rmtree(kernel.tools, ignore_errors=True)
    download = kernel.tools / "download"
    download.mkdir(parents=True)
    names = ["busybox-static"]
    if kernel.address:
        fetch(kernel, download)
    else:
        names.append(kernel_package(kernel))
    print(f"lab: unpacking Linux {kernel.series} and busybox-static below "
          f"{kernel.tools.relative_to(ROOT)}")
    # As root it would become another user, who may not write here.
    words = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *names]
    subprocess.run(words, cwd=download, check=True, stdout=subprocess.DEVNULL)
    for file in sorted(download.iterdir()):
        subprocess.run(["dpkg-deb", "-x", file, kernel.tools / "root"], check=True)
    shutil.rmtree(download)
    # Debian 13 has them below usr/ only.
    for name in ("bin", "lib"):
        if not (kernel.tools / "root" / name).exists():
            (kernel.tools / "root" / name).symlink_to(f"usr/{name}")


def fetch(kernel, folder):
    """Downloads the kernel's package from its address."""
    try:
        with urllib.request.urlopen(kernel.address, timeout=60) as answer:
            package = answer.read()
    except (urllib.error.URLError, OSError) as error:
        lacks(f"no {kernel.address} ({error}): unpack another kernel of the series, and name its "
              f"folder by {OTHER_KERNEL}")
    if (found := hashlib.sha256(package).hexdigest()) != kernel.sha256:
        sys.exit(f"lab: {kernel.address} has SHA-256 {found}, not {kernel.sha256}")
    (folder / "kernel.deb").write_bytes(package)


def kernel_package(kernel):
    """The newest package of the series that apt-get knows; as root its lists are read again where
    it knows none."""
    package = newest(kernel)
    if package is None and os.geteuid() == 0:
        subprocess.run(["apt-get", "-q", "update"], check=True, stdout=subprocess.DEVNULL)
        package = newest(kernel)
    if package is None:
        lacks(f"no package of Linux {kernel.series} is known to apt-get: update its lists, or add "
              "Debian 12's security updates or Debian 13")
    return package


def newest(kernel):
    series = re.escape(kernel.series)
    for name in kernel.depended_on_by:
        asked = subprocess.run(["apt-cache", "depends", name], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
        found = re.search(rf"Depends: (linux-image-{series}\.\S*amd64)$", asked.stdout, re.M)
        if found:
            return found[1]
    return None


def archive(own, root, release):
    """The archive that the kernel begins with."""
    subprocess.run(["depmod", "-b", root, release], check=True, env={**os.environ, "PATH": PATH})
    content = own / "content"
    for name in ("bin", "modules"):
        (content / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", content / "bin/busybox")
    wanted = []
    for module in BOOT_MODULES:
        words = ["modprobe", "-d", root, "-S", release, "--show-depends", module]
        asked = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True,
                               env={**os.environ, "PATH": PATH})
        files = [line.split()[1] for line in asked.stdout.splitlines()
                 if line.startswith("insmod")]
        wanted += [file for file in files if file not in wanted]
    for number, file in enumerate(wanted):
        target = content / "modules" / f"{number:03}-{pathlib.Path(file).name.split('.')[0]}.ko"
        if file.endswith(".xz"):
            with open(target, "wb") as unpacked:
                subprocess.run(["xz", "-dc", file], stdout=unpacked, check=True)
        else:
            shutil.copy(file, target)
    return content


def run(directory, commands, modules, log, hear, seconds_max, kernel=LINUX_6_12):
    """Runs the commands there, one after the other, and has `hear` hear each line of the console,
    which `log` keeps. True when the last command was over in time."""
    root, release = unpacked(kernel)
    image = root / f"boot/vmlinuz-{release}"
    if not image.exists():
        image = root / f"lib/modules/{release}/vmlinuz"
    with tempfile.TemporaryDirectory(prefix="haul-vm-") as own:
        own = pathlib.Path(own)
        content = archive(own, root, release)
        scripts = {
            "init": BEGIN,
            "begin": BEGIN_THERE.format(modules=root / "lib/modules", names=" ".join(modules),
                                        directory=directory, commands="\n".join(commands)),
        }
        for name, text in scripts.items():
            (content / name).write_text(text)
            (content / name).chmod(0o755)
        names = "\n".join(str(one.relative_to(content)) for one in sorted(content.rglob("*")))
        with open(own / "archive", "wb") as file:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=content, check=True,
                           input=names.encode(), stdout=file)
        words = [
            # However this process ends, the machine ends with it.
            "setpriv", "--pdeathsig", "KILL",
            "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512",
            "-cpu", "max", "-smp", "2", "-m", "3G", "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-serial", "stdio",
            "-kernel", str(image), "-initrd", str(own / "archive"),
            "-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-object", "rng-random,id=rng,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=rng",
        ]
        return follow(words, log, hear, seconds_max)


def follow(words, log, hear, seconds_max):
    """Starts the machine, and ends it when it has taken too long or this process is told to end."""
    is_over = False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with open(log, "w", buffering=1) as kept:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        clock = threading.Timer(seconds_max, process.kill)
        clock.start()
        try:
            for line in process.stdout:
                line = line.rstrip("\r\n")
                print(line, file=kept)
                is_over |= line == "lab: over"
                hear(line)
        finally:
            clock.cancel()
            process.kill()
            process.wait()
    return is_over
