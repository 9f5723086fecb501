"""The page cache of a file: how much of it lies in memory, and getting it out; what a process read from the disk."""

import ctypes
import mmap
import os
import re
from pathlib import Path

import numpy as np

LEFT = 0.01
"""Share of a file's pages that may stay for it to count as dropped."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def resident(path: Path) -> float:
    """Return the share of a file's pages that lie in the page cache, as `mincore` tells of a map that touches none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        whole = np.frombuffer(view, np.uint8)
        address, size = int(whole.__array_interface__["data"][0]), len(whole)
        pages = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
        failed = _libc.mincore(address, size, pages.ctypes.data)
        del whole  # a map with views does not close
        if failed:
            raise OSError(ctypes.get_errno(), f"mincore of {path.name}")
    return float((pages & 1).mean())


def load(path: Path) -> None:
    """Read a file once, so that all of it lies in the page cache."""
    buffer = bytearray(1 << 22)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def drop(path: Path) -> float:
    """Take a file out of the page cache: its pages are written, then given up. No process may have it mapped.

    Returns:
        What is left, a share of its pages.

    Raises:
        RuntimeError: that is not next to nothing.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    left = resident(path)
    if left >= LEFT:
        raise RuntimeError(f"{path.name}: wanted less than {LEFT:.0%} of it in the page cache, found {left:.1%}")
    return left


def disk_bytes() -> int:
    """Return the bytes that this process has made the disk read, read-ahead included."""
    counts = Path("/proc/self/io").read_text(encoding="ascii")
    found = re.search(r"^read_bytes: (\d+)$", counts, re.MULTILINE)
    assert found is not None
    return int(found.group(1))
