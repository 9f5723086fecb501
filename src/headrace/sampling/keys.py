"""Key words for every random stream of a plan."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stream", "key_words"]


class Stream(IntEnum):
    """What a key is for. The numbers are part of every order: never reuse or change one, and never use 0."""

    BLOCKS = 1
    """Round keys of the permutation of one epoch's windows."""
    RANDOM = 2
    """Philox key of random starts; its epoch is always 0."""
    PHASE = 3
    """The word that moves an epoch's block edges."""
    DOCUMENTS = 4
    """Round keys of the permutation of one epoch's documents."""
    LOCAL_TURN = 5
    """The word that moves an epoch's pieces of a local shuffle."""
    LOCAL_PIECES = 6
    """Round keys of the permutation of one epoch's pieces."""
    LOCAL_GROUPS = 7
    """Round keys within one group of pieces; its epoch counts the groups of all epochs."""
    SIDES = 8
    """Key of the sides of a split; its epoch is always 0."""
    BUILD = 9
    """Philox key of the order of a build's documents; its epoch is always 0."""


def key_words(seed: int, epoch: int, stream: Stream, count: int) -> NDArray[np.uint64]:
    """Return `count` uint64 key words of `(seed, epoch, stream)`, never of `seed + epoch`.

    numpy's `SeedSequence` splits each integer into as many 32-bit words as it needs, least significant first, and
    hashes the words, padded with zeros at the end. Since a stream is never 0, two epochs of a seed never share words,
    and neither do two plans while their epochs are below 2**32.

    Args:
        seed: any integer >= 0.
        epoch: any integer >= 0.
        stream: what the key is for.
        count: how many words; a longer key begins with the words of a shorter one.
    """
    words = np.random.SeedSequence((seed, epoch, int(stream))).generate_state(count, np.uint64)
    return words.astype(np.uint64, copy=False)
