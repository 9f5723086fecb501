"""Which token ids a corpus may hold, where its dtype allows others."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenIdError

__all__ = ["IdRange"]


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
        unsigned = tokens.view(f"u{tokens.dtype.itemsize}")  # negative ids are large ones then
        if not tokens.size or int(unsigned.max()) < self.below:
            return
        row, column = np.argwhere(unsigned >= self.below)[0].tolist()
        raise TokenIdError(
            f"{self.place(int(starts[row]) + column)}: wanted token ids from 0 to {self.below - 1}, found "
            f"{tokens[row, column]}"
        )
