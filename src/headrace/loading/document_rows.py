"""Rows that each hold one document: where they are read, how long they are, and their padding."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.loading.marks import MarkOptions, Marks

__all__ = ["NO_DOCUMENT", "DocumentRows", "documents_reading", "unserved_targets"]

NO_DOCUMENT = -1
"""`document_ids` of padding."""
_COUNTED = 1 << 20
"""Documents whose lengths are looked at together."""


class DocumentRows:
    """The first `read_length` tokens of documents, the short ones padded.

    Args:
        ends: position after each document's last token, int64, ascending.
        numbers: of the documents, int64 `(S, B)`.
        window: T.
        read_length: tokens of a row, targets included.
        token_count: tokens of the corpus.
        options: what to mark.
    """

    def __init__(
        self,
        ends: NDArray[np.int64],
        numbers: NDArray[np.int64],
        *,
        window: int,
        read_length: int,
        token_count: int,
        options: MarkOptions,
    ) -> None:
        self._numbers = numbers
        self._window = window
        self._read_length = read_length
        self._options = options
        self.starts = np.where(numbers > 0, ends[numbers - 1], 0)
        """Of the documents, int64 `(S, B)`."""
        self._stops = ends[numbers]
        # Narrow, for they are compared with every column.
        self._lengths = np.minimum(self._stops - self.starts, read_length).astype(np.int32)
        self._columns = np.arange(read_length, dtype=np.int32)
        self.reads = min(read_length, token_count)
        """Tokens to read for a row, ..."""
        self.places = np.minimum(self.starts, token_count - self.reads)
        """... from these positions on, which lie before the start where it is too close to the corpus' end."""

    def arrange(self, row: int, read: NDArray[Any], pad_id: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the tokens of one step's rows, `(B, read_length)`, in `out` or else in place where possible.

        Args:
            row: which step.
            read: what was read, `(B, reads)`.
            pad_id: stands where a document has ended.
            out: `(B, read_length)`; may be `read` itself.
        """
        moved = self.starts[row] - self.places[row]
        tokens = read
        if self.reads < self._read_length:
            tokens = np.empty((len(read), self._read_length), read.dtype) if out is None else out
            tokens[:, : self.reads] = read
        for number in np.flatnonzero(moved).tolist():
            tokens[number, : self.reads - moved[number]] = read[number, moved[number] :].copy()
        np.copyto(tokens, pad_id, where=self._columns >= self._lengths[row][:, np.newaxis])
        return tokens

    def marks(self, row: int) -> Marks:
        """Return what was asked for, and always which predictions are of a token that the document has."""
        numbers = self._numbers[row]
        held = self._columns < self._lengths[row][:, np.newaxis]
        ids = positions = None
        if self._options.document_ids:
            ids = np.where(held[:, : self._window], numbers[:, np.newaxis], NO_DOCUMENT)
        if self._options.position_ids:
            positions = np.tile(np.arange(self._window), (numbers.size, 1))
        mask = np.zeros((numbers.size, self._window), np.bool_)  # inside, nothing is read after the last input
        mask[:, : self._read_length - 1] = held[:, 1:]
        if self._options.drops_boundary:
            last = self._stops[row] - self.starts[row] - 2
            whole = np.flatnonzero((last >= 0) & (last < self._window))
            mask[whole, last[whole]] = False
        return Marks(ids, positions, mask)


def documents_reading(ends: NDArray[np.int64], tokens: range, read_length: int) -> range:
    """Return the documents of which a row of `read_length` tokens reads any token of a range without gaps."""
    first, last = np.searchsorted(ends, [tokens.start, tokens.stop - 1], side="right").tolist()
    start = int(ends[first - 1]) if first else 0
    return range(first + (start + read_length <= tokens.start), last + 1)


def unserved_targets(ends: NDArray[np.int64], read_length: int) -> int:
    """Return how many tokens of documents lie beyond their first `read_length`."""
    total = previous = 0
    for first in range(0, ends.size, _COUNTED):
        part = ends[first : first + _COUNTED]
        total += int(np.maximum(np.diff(part, prepend=previous) - read_length, 0).sum())
        previous = int(part[-1])
    return total
