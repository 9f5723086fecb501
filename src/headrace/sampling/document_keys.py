"""A random order of documents: each has a key, known without the others', and the order is that of the keys.

The rules, in integers (a golden test pins them):

- Document n of cut c of source i, counted from 0, has word `n + c * 2**64 + i * 2**128` (see `philox`) of the stream
  `BUILD` of the seed as its key.
- The documents lie in the order of their keys, and those of one key in the order of (i, c, n).
"""

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words
from headrace.sampling.philox import KEY_WORDS, random_words

__all__ = ["document_keys"]

CUT_BITS, SOURCE_BITS = 64, 128
"""Where the numbers of cut and source lie in that of a word: no two documents share one."""


def document_keys(seed: int, source: int, cut: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return the keys of `count` neighbouring documents.

    Args:
        seed: any integer >= 0.
        source: number of their source, below 2**126.
        cut: number of the cut of it, below 2**64.
        first: number of the first of them in the cut; what is beyond the last is below 2**64.
        count: how many, from 0.

    Returns:
        uint64 `(count,)`.
    """
    if not count:
        return np.empty(0, np.uint64)
    word = first + (cut << CUT_BITS) + (source << SOURCE_BITS)
    key = key_words(seed, 0, Stream.BUILD, KEY_WORDS)
    return random_words(key, word, runs=1, count=count, stride=count)[0]
