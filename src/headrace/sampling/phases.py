"""By how much each epoch moves the edges of its blocks, so that they do not cut the corpus at the same places for ever.

The phase of epoch e is `(w * stride) >> 64`, in `[0, stride)`, w being the word of (seed, e, PHASE); a golden test pins it.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words
from headrace.sampling.philox import multiply_high
from headrace.sampling.shuffles import runs_of

__all__ = ["phase_of", "phases_of"]


def phase_of(seed: int, epoch: int, stride: int) -> int:
    """Return by how many tokens the windows of an epoch are moved on."""
    return int(multiply_high(key_words(seed, epoch, Stream.PHASE, 1), stride)[0])


def phases_of(seed: int, epochs: NDArray[np.uint64], stride: int) -> NDArray[np.uint64]:
    """Return the phase of each epoch, shape (n,), ascending."""
    phases = np.empty_like(epochs)
    for epoch, run in runs_of(epochs):
        phases[run] = phase_of(seed, epoch, stride)
    return phases
