"""Which pages of a map are in memory, so that the kernel is not told to fetch what is there."""

import ctypes
import mmap
from functools import cache
from typing import Any

__all__ = ["is_resident"]

_IN_MEMORY = 1
"""The bit that `mincore(2)` gives for each page; the others are reserved."""


@cache
def _mincore() -> Any | None:  # noqa: ANN401  # a foreign function
    function = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return function


def is_resident(address: int, size: int) -> bool:
    """Whether every page of `size` mapped bytes at `address` is in memory; False where the system does not say."""
    function = _mincore()
    start = address - address % mmap.PAGESIZE
    pages = -(-(address + size - start) // mmap.PAGESIZE)
    found = ctypes.create_string_buffer(pages)
    if function is None or function(start, address + size - start, found) != 0:
        return False
    return all(page & _IN_MEMORY for page in found.raw)
