"""Sizes in bytes, as people write and read them: units are powers of 1024."""

import argparse

UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
SIZE_BYTES_MIN = 1 << 20
MIB, GIB = 1 << 20, 1 << 30


def size_bytes(text: str) -> int:
    """`2G`, `64MiB`, `1048576`."""
    digits = text.rstrip("iBKMGTkmgt")
    unit = text[len(digits) :].upper().replace("I", "").replace("B", "")
    if not digits.isdigit() or unit not in UNITS:
        raise argparse.ArgumentTypeError(f"needs a size such as 2G or 64M, found {text}")
    size = int(digits) << UNITS[unit]
    if size < SIZE_BYTES_MIN:
        raise argparse.ArgumentTypeError(f"needs at least 1M, found {text}")
    return size


def shown_size(size: int) -> str:
    return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"
