"""Random starts: sample s of the order is word s of one Philox stream, reduced to the starts that there are."""

import numpy as np
from numpy.typing import NDArray

from headrace.sampling.keys import Stream, key_words
from headrace.sampling.philox import KEY_WORDS, multiply_high, random_words

__all__ = ["random_starts", "random_starts_of"]


def random_starts(seed: int, bound: int, first: int, *, runs: int, count: int, stride: int) -> NDArray[np.uint64]:
    """Return the starts of the samples `first + i * stride + j` for i in `[0, runs)`, j in `[0, count)`.

    Args:
        seed: of the plan.
        bound: how many different starts there are, at least 1.
        first: number of the first sample.
        runs: how many runs of consecutive samples.
        count: samples in a run, `1 <= count <= stride`.
        stride: samples from the begin of a run to that of the next.

    Returns:
        uint64 `(runs, count)`, in `[0, bound)`.
    """
    key = key_words(seed, 0, Stream.RANDOM, KEY_WORDS)
    return multiply_high(random_words(key, first, runs=runs, count=count, stride=stride), bound)


def random_starts_of(seed: int, bound: int, samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the starts of any samples, shape as given; fast where neighbours follow each other."""
    flat = samples.reshape(-1)
    begins = np.flatnonzero(np.diff(flat, prepend=flat[:1]) != 1)
    starts = np.empty_like(flat)
    for begin, stop in zip(begins.tolist(), [*begins[1:].tolist(), flat.size], strict=True):
        count = stop - begin
        starts[begin:stop] = random_starts(seed, bound, int(flat[begin]), runs=1, count=count, stride=count)[0]
    return starts.reshape(samples.shape)
