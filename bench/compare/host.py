"""Facts about this host that a number needs beside it."""

import os
import platform
import time
from pathlib import Path


def host_facts(work_folder) -> dict:
    mount = mount_of(work_folder)
    return {
        "wire": "loopback: both ends on this host, 127.0.0.1",
        "lo_mtu_bytes": int(_text("/sys/class/net/lo/mtu") or 0),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "virtual_machine": " hypervisor" in _text("/proc/cpuinfo"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "distribution": _distribution(),
        "file_system": mount["type"],
        "mount_options": mount["options"],
        "device": mount["device"],
        "congestion_default": _text("/proc/sys/net/ipv4/tcp_congestion_control"),
        "congestion_available": _text("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        "tcp_rmem": " ".join(_text("/proc/sys/net/ipv4/tcp_rmem").split()),
        "tcp_wmem": " ".join(_text("/proc/sys/net/ipv4/tcp_wmem").split()),
        "load_before": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
    }


def mount_of(path) -> dict:
    """The mount that holds a path: the longest mount point above it, the last one mounted there."""
    path = os.path.realpath(path)
    best = {"point": "", "type": "unknown", "device": "unknown", "options": ""}
    for line in _text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")  # proc(5), /proc/PID/mountinfo
        point = left.split()[4].encode().decode("unicode_escape")
        below = path == point or path.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best["point"]):
            kind, device, _options = right.split(None, 2)
            best = {
                "point": point,
                "type": kind,
                "device": device,
                "options": left.split()[5],
            }
    return best


def _text(path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _cpu_model() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _distribution() -> str:
    for line in _text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "unknown"
