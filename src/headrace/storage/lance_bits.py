"""Integers packed into as few bits as they need, 1,024 at a time, in the order of FastLanes.

Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB 2023: 1024 / T lanes of T-bit words, side by side; value r of
lane l is number ORDER[r // 8] x 16 + r % 8 x 128 + l of the 1,024.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK", "unpacked"]

CHUNK = 1024
"""Values packed together."""
_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)


def unpacked(packed: NDArray[Any], width: int, unsigned: np.dtype[Any]) -> NDArray[Any]:
    """Unpack values that all have `width` bits: `packed`, of shape (n, 1024 x width / bits of a word), to shape (n, 1024)."""
    bits = unsigned.itemsize * 8
    if width == 0:
        return np.zeros((len(packed), CHUNK), unsigned)
    if width in {8, 16, 32, 64}:  # parts of words that are numbers by themselves
        return packed.view(f"<u{width // 8}")[:, _parts(width, bits)]
    lanes = CHUNK // bits
    rows = np.arange(bits)
    low, shift = rows * width // bits, (rows * width % bits).astype(unsigned)
    stream = packed.reshape(len(packed), width, lanes)
    values = stream[:, low] >> shift[:, None]
    split = np.flatnonzero(rows * width % bits + width > bits)
    values[:, split] |= stream[:, low[split] + 1] << (unsigned.type(bits) - shift[split])[:, None]
    values &= unsigned.type((1 << width) - 1)
    return values.reshape(len(packed), CHUNK)[:, _places(bits)]


@cache
def _places(bits: int) -> NDArray[np.intp]:
    """Which (row, lane), row by row, each of the 1,024 values is."""
    lanes = CHUNK // bits
    rows = np.arange(bits)
    numbers = (np.array(_ORDER)[rows // 8] * 16 + rows % 8 * 128)[:, None] + np.arange(lanes)
    return np.argsort(numbers.reshape(-1), kind="stable")


@cache
def _parts(width: int, bits: int) -> NDArray[np.intp]:
    """Which part of `width` bits each of the 1,024 values is, where they divide the words."""
    lanes, parts = CHUNK // bits, bits // width
    place = _places(bits)
    row, lane = place // lanes, place % lanes
    return (row // parts * lanes + lane) * parts + row % parts
