"""On which side of a split a document lies: a pure function of a seed and of a hash of the document.

The rules, in integers (a golden test pins them):

- The 16 bytes of a hash are two little-endian words a and b; the key is two words of `(seed, 0, Stream.SIDES)`.
- `value = mix(mix(a ^ key[0]) ^ b ^ key[1])`, where `mix(z)` is the finaliser of splitmix64 (Steele, Lea & Flood 2014, after
  Stafford), modulo `2**64`: `z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31`.
- The parts share `[0, 2**64)` in their order: part i ends (exclusive) at `floor(2**64 * (fraction 0 + ... + fraction i))`, and
  what is left belongs to the rest. A document lies where its value does.

So a document goes where it goes whatever else there is; documents with equal hashes go together; and a larger first fraction
keeps what a smaller one had.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words

__all__ = ["Sides"]

_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)


class Sides:
    """Tells sides.

    Args:
        seed: any integer >= 0.
        fractions: of each part but the rest, each above 0, 1 in all at most.
    """

    def __init__(self, seed: int, fractions: Sequence[Fraction]) -> None:
        self._key = key_words(seed, 0, Stream.SIDES, 2)
        stops = [int(total * 2**64) for total in accumulate(fractions)]
        # Nothing lies at or beyond 2**64, which no word holds: the part that ends there has all that is left.
        self._stops = np.array([stop for stop in stops if stop < 2**64], dtype=np.uint64)

    def of(self, hashes: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Number of the part of each document, the rest being the last, shape (n,).

        Args:
            hashes: contiguous, shape (n, 16).
        """
        words = hashes.view("<u8")
        value = _mix(words[:, 0] ^ self._key[0])
        value ^= words[:, 1]
        value ^= self._key[1]
        return np.searchsorted(self._stops, _mix(value), side="right")


def _mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, in place."""
    for shift, factor in ((30, _MULTIPLY_1), (27, _MULTIPLY_2)):
        word ^= word >> np.uint64(shift)
        word *= factor
    word ^= word >> np.uint64(31)
    return word
