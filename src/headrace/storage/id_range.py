"""Which token ids a corpus may hold, where its dtype allows others."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenIdError

__all__ = ["IdRange", "id_limit", "ids_below"]

_MOST_IDS = 1 << 32
"""What a uint32 holds."""


def id_limit(dtype: np.dtype[Any]) -> int:
    """One more than the highest id that tokens of a dtype may be."""
    return min(_MOST_IDS, int(np.iinfo(dtype).max) + 1)


def ids_below(dtype: np.dtype[Any], vocab_size: int | None) -> int | None:
    """Where the ids of a corpus that does not vouch for them end: they have to be looked at; None if any will do.

    Args:
        dtype: of the stored tokens.
        vocab_size: how many ids there are, if that was told.
    """
    if vocab_size is None and dtype.kind == "u" and 1 << 8 * dtype.itemsize <= _MOST_IDS:
        return None
    return vocab_size or id_limit(dtype)


class IdRange(NamedTuple):
    """Which token ids there may be."""

    below: int
    """At most 2 to the power 63. Those from 0 on, exclusive."""
    place: Callable[[int], str]
    """Names a position of the corpus for a message."""

    def require(self, tokens: NDArray[Any], starts: NDArray[np.int64]) -> None:
        """Refuse other ids.

        Args:
            tokens: of windows, shape (n, length).
            starts: corpus position of each, shape (n,).

        Raises:
            TokenIdError: naming the first one.
        """
        # Negative ids are large ones then. Some files have their bytes the other way round.
        unsigned = tokens.view(tokens.dtype.str.replace("i", "u"))
        if not tokens.size or int(unsigned.max()) < self.below:
            return
        row, column = np.argwhere(unsigned >= self.below)[0].tolist()
        raise TokenIdError(
            f"{self.place(int(starts[row]) + column)}: wanted token ids from 0 to {self.below - 1}, found "
            f"{tokens[row, column]}"
        )
