"""The networks that rows run in: the system's, and one of its own with cubic for all.

The second is a network namespace whose loopback is up and whose default congestion control is
cubic, or reno. Nothing of the system is changed, and it is gone when this process is, also after
`kill -9`: no name is given to it. A thread enters it by setns(2), and what it starts is in it too,
so commands need no words before them and cost no process more.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

CLONE_NEWNET = 0x40000000  # unshare(2)
SIOCSIFFLAGS = 0x8914  # netdevice(7)
IFF_UP = 0x1
SETTINGS = Path("/proc/sys/net/ipv4")  # Of the network that the reading thread is in.
SHORT_PATH = ("cubic", "reno")  # What holds no rate back on a short path, the better one first.
TCP_CONGESTION = 13  # tcp(7)


class NetworkMissing(Exception):
    """There is no second network here: what it needs, and what was found."""


@dataclass(frozen=True)
class Network:
    """A network that servers and clients run in together."""

    key: str
    congestion: str
    settings: dict  # Sizes of socket buffers, for the report.
    descriptor: Optional[int] = None  # None: where this process began.
    home: Optional[int] = None

    def title(self) -> str:
        if self.descriptor is None:
            return f"{self.congestion}, as the system is set"
        return f"{self.congestion} for all"

    @contextlib.contextmanager
    def entered(self):
        """This thread, and every process that it starts meanwhile, is in the network."""
        if self.descriptor is None:
            yield
            return
        _enter(self.descriptor)
        try:
            yield
        finally:
            _enter(self.home)


def system() -> Network:
    return Network("system", _setting("tcp_congestion_control"), _buffers())


def own() -> Network:
    """A network of its own. Of its settings only the congestion control differs."""
    if os.geteuid() != 0:
        raise NetworkMissing(
            f"needs root to make a network namespace, found user id {os.geteuid()}"
        )
    here = system()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", CLONE_NEWNET)
    except OSError as error:
        os.close(home)
        raise NetworkMissing(f"needs a network namespace, found {error}") from error
    try:
        _raise_loopback()
        for name, value in here.settings.items():
            if _setting(name) != value:
                (SETTINGS / name).write_text(value)
        congestion = _set_congestion()
        descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        return Network(congestion, congestion, _buffers(), descriptor, home)
    except OSError as error:
        raise NetworkMissing(f"could not set up a network namespace: {error}") from error
    finally:
        _enter(home)


def short_path_congestion() -> str:
    """The best for a path below 1 ms that this process may choose: cubic, otherwise reno."""
    for name in SHORT_PATH:
        with socket.socket() as probe:
            try:
                probe.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
                return name
            except OSError:
                continue
    return SHORT_PATH[-1]


def _set_congestion() -> str:
    for name in SHORT_PATH:
        try:
            (SETTINGS / "tcp_congestion_control").write_text(name)
            return name
        except OSError:
            continue
    raise OSError("neither cubic nor reno may be set")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # struct ifreq: 16 bytes of name, flags, and the rest of the union.
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))


def _setting(name) -> str:
    try:
        return " ".join((SETTINGS / name).read_text().split())
    except OSError:
        return "unknown"


def _buffers() -> dict:
    return {name: _setting(name) for name in ("tcp_rmem", "tcp_wmem")}


def _enter(descriptor) -> None:
    _call("setns", descriptor, CLONE_NEWNET)


def _call(name, *arguments) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
