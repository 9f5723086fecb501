"""A corpus that is an array: exact values in a test, without a file."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import OutOfRangeError

__all__ = ["MemoryBlock", "MemoryCorpus", "MemoryDocuments"]


class MemoryCorpus:
    """Serves an array of token ids as a corpus (`token_count`, `windows`) and as a store (`total_tokens`, `get_slice`).

    Args:
        tokens: token ids, one dimension.
        dtype: the stored dtype, uint16 or uint32; None for uint32 if the tokens come as such, else uint16.
        lengths: tokens of each document, boundary included; None where no documents are known.

    Raises:
        ValueError: the tokens have another number of dimensions, an id does not fit the dtype, or the documents do not
            make the line.
    """

    def __init__(
        self,
        tokens: ArrayLike,
        dtype: type[np.uint16 | np.uint32] | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> None:
        given = np.asarray(tokens)
        stored = np.dtype(dtype or (np.uint32 if given.dtype == np.uint32 else np.uint16))
        self.tokens: NDArray[Any] = given.astype(stored)
        if given.ndim != 1 or not np.array_equal(self.tokens, given):
            raise ValueError(f"wanted token ids of one dimension that fit {stored}, found {given.dtype} {given.shape}")
        self.tokens.flags.writeable = False
        self.documents: MemoryDocuments | None = None
        """Where the documents end, if that is known."""
        if lengths is not None:
            ends = np.cumsum(np.asarray(lengths, np.int64))
            if np.min(lengths) < 1 or ends[-1] != self.tokens.size:
                raise ValueError(f"wanted lengths from 1 whose sum is {self.tokens.size}, found a sum of {ends[-1]}")
            self.documents = MemoryDocuments(ends)

    @property
    def token_count(self) -> int:
        """Tokens of the whole line."""
        return self.tokens.size

    @property
    def total_tokens(self) -> int:
        """The same, under the name that a store has for it."""
        return self.tokens.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored dtype."""
        return self.tokens.dtype

    @property
    def fingerprint(self) -> str:
        """SHA-256, hex, of dtype and tokens; not the fingerprint that a stored corpus of the same tokens has."""
        return hashlib.sha256(self.dtype.str.encode() + self.tokens.tobytes()).hexdigest()

    def __len__(self) -> int:
        return self.tokens.size

    def get_slice(self, start: int, stop: int) -> NDArray[Any]:
        """Return a new array of the tokens `[start, stop)`.

        Raises:
            OutOfRangeError: the range is not within the line.
        """
        if not 0 <= start <= stop <= self.tokens.size:
            raise OutOfRangeError(f"wanted a range within [0, {self.tokens.size}], found [{start}, {stop})")
        return self.tokens[start:stop].copy()

    def windows(self, starts: NDArray[np.int64], length: int) -> "MemoryBlock":
        """Locate windows of `length` tokens at `starts`, int64 `(S, B)`.

        Raises:
            OutOfRangeError: a window is not within the line.
        """
        if starts.size and not (starts.min() >= 0 and starts.max() + length <= self.tokens.size):
            raise OutOfRangeError(
                f"windows of {length} tokens must lie within [0, {self.tokens.size}], "
                f"found starts {starts.min()} to {starts.max()}"
            )
        return MemoryBlock(np.lib.stride_tricks.sliding_window_view(self.tokens, length), starts)


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Windows of several steps over an array."""

    line: NDArray[Any]
    """Every window of the line, `(token_count - length + 1, length)`, a view."""
    starts: NDArray[np.int64]
    """int64 `(S, B)`."""

    def gather_into(self, row: int, out: NDArray[Any]) -> None:
        """Fill `out`, `(B, length)`, with the windows of one row of the starts."""
        np.copyto(out, self.line[self.starts[row]])

    def cold_share(self) -> float:
        """Return 0: all of it is in memory."""
        return 0.0

    def will_need(self, row: int) -> None:
        """Do nothing: it is there."""


@dataclass(frozen=True, slots=True)
class MemoryDocuments:
    """The documents of a line, as far as a loader needs them."""

    ends: NDArray[np.int64]
    """Position after each document's last token, int64 `(documents,)`."""

    def __len__(self) -> int:
        return self.ends.size
