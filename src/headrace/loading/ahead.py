"""Asking for what coming rows of a plan read, where it has to come from the disk."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headrace.loading.source import WindowBlock

__all__ = ["AHEAD_BYTES", "AHEAD_STEPS", "COLD", "LocatedRows", "ReadAhead"]

AHEAD_STEPS = 8
"""Steps of which the windows are asked for before they are read: the disk then works on many at once, ..."""
AHEAD_BYTES = 1 << 26
"""... if they are no more bytes, for what is asked for too early may be gone before it is read."""
_LARGEST_TOKEN = 4
"""Bytes of a stored token at most."""
COLD = 0.1
"""Share of windows that are not in memory from which on it pays: where they are, asking for them costs as much as reading."""


class LocatedRows(Protocol):
    """Rows that were located together."""

    @property
    def windows(self) -> WindowBlock:
        """Where they are."""
        ...

    @property
    def numbers(self) -> range:
        """Of the rows in the whole order; the first is row 0 of the windows."""
        ...

    @property
    def of(self) -> int:
        """Rows of a step."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Of the windows of a row: how many there are, and tokens."""
        ...


Located = TypeVar("Located", bound=LocatedRows)


class ReadAhead(Generic[Located]):
    """Lets the system fetch the windows of coming rows while the present one is used.

    Rows are expected in order; after a jump it begins anew. Of the first row of all, nothing is looked at: a first batch
    waits for its own windows alone.
    """

    def __init__(self) -> None:
        self._rows: Located | None = None
        self._asked = 0
        """Number of the row before which all were asked for."""
        self.cold_share: float | None = None
        """Of a sample of the windows that were located together with the present row; None if none was taken yet."""
        self.warm: Located | None = None
        """The present rows, if there is nothing to ask for."""

    def before(self, rows: Located, row: int, after: Callable[[Located], Located | None]) -> None:
        """Ask for the windows of a row that is about to be read, and of those of the next few steps, if they are cold.

        Args:
            rows: hold the row.
            row: of these, from 0.
            after: gives the rows that follow others, or None after the last.
        """
        if self._rows is None:
            self._rows = rows
            return
        if self.cold_share is None or rows is not self._rows:
            self._rows, self.cold_share = rows, rows.windows.cold_share()
            self.warm = rows if self.cold_share < COLD else None
        if self.warm is None:
            self._ask(rows, rows.numbers[row], after)

    def _ask(self, rows: Located, number: int, after: Callable[[Located], Located | None]) -> None:
        windows, tokens = rows.shape
        stop = number + 1 + min(AHEAD_STEPS * rows.of, AHEAD_BYTES // (windows * tokens * _LARGEST_TOKEN))
        first = self._asked if number < self._asked <= stop else number
        following = after(rows) if stop > rows.numbers.stop else None
        for some in (rows,) if following is None else (rows, following):
            self._asked = min(stop, some.numbers.stop)
            for coming in range(max(first, some.numbers.start), self._asked):
                some.windows.will_need(coming - some.numbers.start)
