"""What a loader says of the tokens of a batch: whose document each is, its place in it, whether its prediction counts.

Everything comes from the positions at which documents end, never from a token's id.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import is_bool

__all__ = ["BoundaryLoss", "MarkOptions", "Marker", "Marks", "WindowMarker", "both"]

BoundaryLoss = Literal["keep", "target", "after", "both"]


@dataclass(frozen=True, slots=True)
class MarkOptions:
    """What is asked for."""

    document_ids: bool = False
    position_ids: bool = False
    boundary_loss: BoundaryLoss = "keep"
    """`target` drops the prediction of a document's last token, its boundary; `after` that of the next document's first
    token; `both` the two."""

    def __post_init__(self) -> None:
        for name, value in (("document_ids", self.document_ids), ("position_ids", self.position_ids)):
            if not is_bool(value):
                raise PlanError(f"{name} must be True or False, found {value!r}")
        if self.boundary_loss not in get_args(BoundaryLoss):
            raise PlanError(
                f"boundary_loss must be one of {', '.join(get_args(BoundaryLoss))}; found {self.boundary_loss!r}"
            )

    @property
    def drops_boundary(self) -> bool:
        """Whether predicting a document's last token does not count."""
        return self.boundary_loss in {"target", "both"}

    @property
    def drops_after(self) -> bool:
        """Whether predicting a document's first token does not count."""
        return self.boundary_loss in {"after", "both"}

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.document_ids or self.position_ids or self.boundary_loss != "keep"


class Marks(NamedTuple):
    """Of the rows of a batch, each `(B, T)` or None."""

    document_ids: NDArray[np.int64] | None = None
    position_ids: NDArray[np.int64] | None = None
    loss_mask: NDArray[np.bool_] | None = None


class Marker(Protocol):
    """Knows the rows of several steps."""

    def marks(self, row: int, /) -> Marks:
        """Return those of one step, in arrays of their own."""
        ...


class WindowMarker:
    """Marks windows that may begin and end anywhere.

    Args:
        ends: position after each document's last token, int64, ascending.
        starts: of the windows, int64 `(S, B)`.
        window: T.
        reads_next: whether the token after a window's last input is a target.
        options: what to mark.
    """

    def __init__(
        self,
        ends: NDArray[np.int64],
        starts: NDArray[np.int64],
        *,
        window: int,
        reads_next: bool,
        options: MarkOptions,
    ) -> None:
        self._ends = ends
        self._starts = starts
        self._window = window
        self._reads_next = reads_next
        self._options = options
        # In ascending order, for that each search begins in memory that the one before has touched is five times as fast.
        order = np.argsort(starts, axis=None)
        ascending = starts.reshape(-1)[order]
        self._first = np.empty(starts.shape, np.int64)
        """Document of each window's first token; as many end at or before it. Likewise ..."""
        self._stop = np.empty(starts.shape, np.int64)
        """... how many end at or before the end of its last target."""
        self._first.reshape(-1)[order] = np.searchsorted(ends, ascending, side="right")
        self._stop.reshape(-1)[order] = np.searchsorted(ends, ascending + (window + 1), side="right")

    def marks(self, row: int) -> Marks:
        """Return what was asked for, of one step's rows."""
        starts, first = self._starts[row], self._first[row]
        counts = self._stop[row] - first
        rows = np.repeat(np.arange(starts.size), counts)
        # The documents that end within each window, and the column after the end of each, from 1 to T + 1.
        ending = np.arange(rows.size) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        columns = self._ends[ending] - starts[rows]
        ids, positions = self._runs(first, rows, columns, ending)
        return Marks(ids, positions, self._mask(rows, columns))

    def _runs(
        self, first: NDArray[np.int64], rows: NDArray[np.intp], columns: NDArray[np.int64], ending: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Return documents and positions: a run of tokens of one document after the other, through all rows."""
        options, window = self._options, self._window
        if not (options.document_ids or options.position_ids):
            return None, None
        inside = columns < window
        begins = np.concatenate([np.arange(first.size) * window, rows[inside] * window + columns[inside]])
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        lengths = np.diff(begins, append=first.size * window)
        shape = first.size, window
        ids = positions = None
        if options.document_ids:
            documents = np.concatenate([first, ending[inside] + 1])[order]
            ids = np.repeat(documents, lengths).reshape(shape)
        if options.position_ids:
            positions = np.arange(first.size * window)
            positions -= np.repeat(begins, lengths)
            positions = positions.reshape(shape)
        return ids, positions

    def _mask(self, rows: NDArray[np.intp], columns: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        if self._options.boundary_loss == "keep":
            return None
        mask = np.ones((self._starts.shape[1], self._window), np.bool_)
        if self._options.drops_boundary:
            predicted = columns >= 2  # noqa: PLR2004  # the last token is target number columns - 2
            mask[rows[predicted], columns[predicted] - 2] = False
        if self._options.drops_after:
            predicted = columns <= self._window
            mask[rows[predicted], columns[predicted] - 1] = False
        if not self._reads_next:
            mask[:, -1] = False
        return mask


def both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return which predictions count in both masks; None counts all."""
    if one is None or other is None:
        return other if one is None else one
    return one & other
