"""How much of a file is in the page cache, and how it is taken out of it."""

import ctypes
import mmap
import os
import time

from compare.measure import RunFailed

COLD_SHARE_MAX = 0.01  # Of an evicted file; a page that someone else holds may stay.
# The kernel keeps pages that are in a list of some processor, until it is asked again.
EVICTIONS_MAX, EVICTION_PAUSE_S = 5, 0.1
MAP_FAILED = ctypes.c_void_p(-1).value


def evict(path) -> None:
    """Takes a file out of the page cache, or says that it did not go.

    What a disk or a host of virtual machines keeps in its own memory cannot be taken away.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())  # A dirty page stays where it is.
        for _ in range(EVICTIONS_MAX):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            share = residency(path)
            if share <= COLD_SHARE_MAX:
                return
            time.sleep(EVICTION_PAUSE_S)
    raise RunFailed(
        f"{path}: needs a file system whose pages can be evicted, found {share:.0%} of the"
        " file in the page cache after POSIX_FADV_DONTNEED"
    )


def residency(path) -> float:
    """The share of a file's pages that are in the page cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0.0
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == MAP_FAILED:
            raise OSError(ctypes.get_errno(), f"mmap of {path}")
        pages = -(-size // mmap.PAGESIZE)
        found = ctypes.create_string_buffer(pages)
        failed = libc.mincore(address, size, found)
        libc.munmap(address, size)
        if failed:
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    # Only the lowest bit of each byte is defined.
    return sum(byte & 1 for byte in found.raw) / pages
