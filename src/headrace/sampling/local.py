"""A shuffle that reads within a few large pieces at a time, so that what is read lies close together on the disk.

The rules, in integers (a golden test pins them), for `count` units, `piece` units a piece, `at_once` pieces a group:

- Epoch e moves the units on by `turn = (w * count) >> 64`, w being the word of (seed, e, LOCAL_TURN): position x is the
  unit `(x + turn) % count`. So edges of pieces, and what lies in the incomplete one, differ from epoch to epoch.
- `full = count // piece` pieces are permuted under the key of (seed, e, LOCAL_PIECES): place p of the epoch's line of
  pieces is piece `permute(p)`; what is left, fewer than `piece` units, stays at the end.
- That line falls into `groups = max(1, count // (piece * at_once))` groups of `piece * at_once` units, the last of which
  has the rest too. Within group g units are permuted under the key of (seed, e * groups + g, LOCAL_GROUPS).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import ROUNDS, invert, permute
from headrace.sampling.philox import multiply_high
from headrace.sampling.shuffles import runs_of

__all__ = ["LocalShuffle"]

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class LocalShuffle:
    """Pieces in random order, and units in random order within a few of them."""

    count: int
    """Units of an epoch, at least 1."""
    seed: int
    piece: int
    """Units of a piece, at least 1."""
    at_once: int
    """Pieces of a group, at least 1."""

    def units(self, samples: Words) -> Words:
        """Return the unit of each sample, which ascend."""
        if self.count == 1:
            return np.zeros_like(samples)
        epochs, places = np.divmod(samples, np.uint64(self.count))
        for epoch, run in runs_of(epochs):
            line = places[run]
            for group, part in runs_of(self._group(line)):
                line[part] = self._pieces(self._within(line[part], epoch, group, backward=False), epoch, backward=False)
            places[run] = (line + self._turn(epoch)) % np.uint64(self.count)
        return places

    def samples(self, units: Words, epoch: int) -> Words:
        """Return the sample that each unit is in one epoch."""
        count = np.uint64(self.count)
        line = self._pieces((units + (count - self._turn(epoch))) % count, epoch, backward=True)
        groups = self._group(line)
        order = np.argsort(groups, kind="stable")
        for group, run in runs_of(groups[order]):
            part = order[run]
            line[part] = self._within(line[part], epoch, group, backward=True)
        return line + np.uint64(epoch * self.count)

    @property
    def _groups(self) -> int:
        return max(1, self.count // (self.piece * self.at_once))

    def _group(self, line: Words) -> Words:
        """Return the group of each place in the line of pieces."""
        if self._groups == 1:
            return np.zeros_like(line)
        return np.minimum(line // np.uint64(self.piece * self.at_once), np.uint64(self._groups - 1))

    def _within(self, line: Words, epoch: int, group: int, *, backward: bool) -> Words:
        """Permute places that all lie in one group."""
        size = self.piece * self.at_once
        first = group * size
        length = size if group < self._groups - 1 else self.count - first
        key = key_words(self.seed, epoch * self._groups + group, Stream.LOCAL_GROUPS, ROUNDS)
        move = invert if backward else permute
        return move(line - np.uint64(first), length=length, key=key) + np.uint64(first)

    def _pieces(self, places: Words, epoch: int, *, backward: bool) -> Words:
        """Map places in the line of pieces to positions, or back."""
        full = self.count // self.piece
        limit = np.uint64(full * self.piece)
        whole = slice(None) if not places.size or places.max() < limit else np.flatnonzero(places < limit)
        if not places[whole].size:
            return places
        number, within = np.divmod(places[whole], np.uint64(self.piece))
        move, key = invert if backward else permute, key_words(self.seed, epoch, Stream.LOCAL_PIECES, ROUNDS)
        first, last = int(number.min()), int(number.max())
        if last - first < number.size:  # of many places in few pieces, each piece is moved once
            moved = move(np.arange(first, last + 1, dtype=np.uint64), length=full, key=key)[number - np.uint64(first)]
        else:
            moved = move(number, length=full, key=key)
        out = places.copy()
        out[whole] = moved * np.uint64(self.piece) + within
        return out

    def _turn(self, epoch: int) -> np.uint64:
        word = key_words(self.seed, epoch, Stream.LOCAL_TURN, 1)
        return np.uint64(multiply_high(word, self.count)[0])
