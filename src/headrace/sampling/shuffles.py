"""Which unit (a window or a document) each sample of an order is, and which sample each unit is.

Every shuffle numbers samples from 0 through all epochs; epoch e is the samples `[e * count, (e + 1) * count)`, in which
each of the `count` units comes once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import ROUNDS, invert, permute

__all__ = ["GlobalShuffle", "InOrder", "Shuffle", "runs_of"]

Words = NDArray[np.uint64]


class Shuffle(Protocol):
    """A bijection of each epoch's samples and the units. A value: safe to share, equal calls give equal results."""

    def units(self, samples: Words, /) -> Words:
        """Return the unit of each sample, uint64, shape (n,), ascending; units lie in `[0, count)`."""
        ...

    def samples(self, units: Words, epoch: int, /) -> Words:
        """Return the sample that each unit, uint64, shape (n,), is in one epoch."""
        ...


@dataclass(frozen=True, slots=True)
class InOrder:
    """Units one after the other, epoch by epoch."""

    count: int
    """Units of an epoch, at least 1."""

    def units(self, samples: Words) -> Words:
        """Return the unit of each sample."""
        return samples % np.uint64(self.count)

    def samples(self, units: Words, epoch: int) -> Words:
        """Return the sample that each unit is in one epoch."""
        return units + np.uint64(epoch * self.count)


@dataclass(frozen=True, slots=True)
class GlobalShuffle:
    """Every epoch a permutation of all units, under a key of its own."""

    count: int
    """Units of an epoch, at least 1."""
    seed: int
    stream: Stream

    def units(self, samples: Words) -> Words:
        """Return the unit of each sample."""
        if self.count == 1:
            return np.zeros_like(samples)
        epoch, index = np.divmod(samples, np.uint64(self.count))
        begins = np.flatnonzero(np.diff(epoch, prepend=epoch[0] + np.uint64(1)))
        keys = np.stack([self._key(int(e)) for e in epoch[begins]], axis=1)
        # One key a sample only where epochs meet: a small corpus has thousands of epochs in one call.
        key = keys[:, 0] if begins.size == 1 else np.repeat(keys, np.diff(begins, append=samples.size), axis=1)
        return permute(index, length=self.count, key=key)

    def samples(self, units: Words, epoch: int) -> Words:
        """Return the sample that each unit is in one epoch."""
        return invert(units, length=self.count, key=self._key(epoch)) + np.uint64(epoch * self.count)

    def _key(self, epoch: int) -> Words:
        return key_words(self.seed, epoch, self.stream, ROUNDS)


def runs_of(values: NDArray[np.uint64]) -> Iterator[tuple[int, slice]]:
    """Yield each run of equal values, shape (n,): the value, and where the run lies."""
    begins = np.flatnonzero(np.diff(values, prepend=values[:1] + np.uint64(1))).tolist()
    for begin, stop in zip(begins, [*begins[1:], values.size], strict=False):
        yield int(values[begin]), slice(begin, stop)
