"""Which samples read given tokens: the orders, backwards. Samples are the order's own, before any are skipped."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.uniform import random_starts

__all__ = ["Places", "random_samples_reading", "windows_reading"]

SCANNED = 1 << 20
"""Random samples looked at together."""


class Places(NamedTuple):
    """Rows of steps, ascending by step and row."""

    steps: NDArray[np.int64]
    """Shape (n,)."""
    rows: NDArray[np.int64]
    """Of the global batch, shape (n,)."""


def windows_reading(
    tokens: range, *, windows: int, first_start: int, stride: int, read_length: int
) -> NDArray[np.uint64]:
    """Return the numbers of the windows that read any token of a range without gaps.

    Args:
        tokens: positions in the line.
        windows: how many there are.
        first_start: where the first one begins.
        stride: tokens from one start to the next.
        read_length: tokens that a window reads.
    """
    if not tokens:
        return np.empty(0, np.uint64)
    # Window w reads [first_start + w * stride, ... + read_length).
    least = -(-(tokens.start - read_length + 1 - first_start) // stride)
    most = (tokens.stop - 1 - first_start) // stride
    return np.arange(max(least, 0), max(min(most, windows - 1) + 1, 0), dtype=np.uint64)


def random_samples_reading(
    tokens: range, samples: range, *, seed: int, bound: int, read_length: int
) -> NDArray[np.uint64]:
    """Return the samples of a random order, out of `samples`, that read any token of a range without gaps.

    Args:
        tokens: positions in the line.
        samples: those to look at.
        seed: of the plan.
        bound: how many different starts there are.
        read_length: tokens that a window reads.
    """
    found = [np.empty(0, np.uint64)]
    for first in range(samples.start, samples.stop if tokens else samples.start, SCANNED):
        count = min(SCANNED, samples.stop - first)
        starts = random_starts(seed, bound, first, runs=1, count=count, stride=count)[0]
        reads = (starts < np.uint64(tokens.stop)) & (starts + np.uint64(read_length) > np.uint64(tokens.start))
        found.append(np.flatnonzero(reads).astype(np.uint64) + np.uint64(first))
    return np.concatenate(found)
