"""Uniform starts out of raw Philox words: sample number -> word -> start, each sample by itself.

Source: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): Philox4x64-10, a block cipher
of a 256-bit counter. numpy promises the raw words of its `Philox`, not what `Generator` makes of them.

The rules, in integers (a golden test pins them):

- Word s is word `s % 4` of the block `Philox4x64-10(counter = s // 4, key)`.
- A word w becomes the start `(w * bound) >> 64`, an integer in `[0, bound)`. Each start's probability differs from
  `1 / bound` by less than `2**-64`; nothing is rejected, so that sample s always takes exactly word s.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY_WORDS", "multiply_high", "random_words"]

KEY_WORDS = 2
"""uint64 words of a Philox4x64 key."""

BLOCK_WORDS = 4
LOW_HALF = np.uint64(0xFFFFFFFF)
HALF_WORD = np.uint64(32)


def random_words(key: NDArray[np.uint64], first: int, *, runs: int, count: int, stride: int) -> NDArray[np.uint64]:
    """Return the words `first + i * stride + j` for i in `[0, runs)`, j in `[0, count)`.

    Args:
        key: uint64 `(KEY_WORDS,)`.
        first: number of the first word, >= 0; any size, the cost does not depend on it.
        runs: how many runs of consecutive words.
        count: words in a run, `1 <= count <= stride`.
        stride: words from the begin of a run to that of the next.

    Returns:
        uint64 `(runs, count)`.
    """
    if runs == 1 or count == stride:
        return _run(_generator(key, first), first, runs * count).reshape(runs, count)
    words = np.empty((runs, count), np.uint64)
    generator = _generator(key, first)
    for i in range(runs):
        begin = first + i * stride
        words[i] = _run(generator, begin, count)
        # Where the generator stands, to where the next run begins; it may lie in the block just used.
        used = -(-(begin % BLOCK_WORDS + count) // BLOCK_WORDS)
        generator.advance((begin + stride) // BLOCK_WORDS - begin // BLOCK_WORDS - used)
    return words


def _generator(key: NDArray[np.uint64], first: int) -> np.random.Philox:
    """Return a generator whose next block is the one that holds word `first`: numpy counts up before it encrypts."""
    return np.random.Philox(key=key, counter=(first // BLOCK_WORDS - 1) % 2**256)


def _run(generator: np.random.Philox, first: int, count: int) -> NDArray[np.uint64]:
    skip = first % BLOCK_WORDS
    return generator.random_raw(skip + count)[skip:]


def multiply_high(words: NDArray[np.uint64], bound: int) -> NDArray[np.uint64]:
    """Return `(word * bound) >> 64` of each word, exactly, from four 32-bit products.

    Args:
        words: uint64, any shape.
        bound: `1 <= bound < 2**64`.
    """
    bound_low, bound_high = np.uint64(bound & 0xFFFFFFFF), np.uint64(bound >> 32)
    low, high = words & LOW_HALF, words >> HALF_WORD
    # Each sum is at most (2**32 - 1)**2 + (2**32 - 1), below 2**64.
    middle = high * bound_low + ((low * bound_low) >> HALF_WORD)
    carry = low * bound_high + (middle & LOW_HALF)
    return high * bound_high + (middle >> HALF_WORD) + (carry >> HALF_WORD)
