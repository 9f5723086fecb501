"""The items of a program's documents, taken once, the first of them looked at beforehand."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

__all__ = ["Items"]

_ROWS = 1000
"""Rows that a Hugging Face data set gives at a time: ten times as fast as one by one."""


class Items:
    """The items of an iterable, in order. Iterated once.

    Args:
        items: where they come from.
        name: what they are called where one of them cannot be had.
        columns: the only ones that are asked of a data set that has them all.
    """

    def __init__(self, items: Iterable[Any], name: str, columns: Sequence[str]) -> None:
        self._name = name
        self._taken = 0
        self._head: deque[Any] = deque()
        self._items = _rows(items, columns) if _is_data_set(items) else items
        self._rest: Iterator[Any] | None = None
        self._last: Any = None

    def look_ahead(self, count: int) -> Iterator[Any]:
        """Iterate over the first items, which are given again when all are; before any of these is."""
        yield from islice(self._head, count)
        while len(self._head) < count:
            try:
                self._head.append(self._take())
            except StopIteration:
                return
            yield self._head[-1]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items.

        Raises:
            Exception: whatever the iterator raises, with a note that has the item's number.
        """
        while self._head:
            yield self._head.popleft()
        while True:
            try:
                item = self._take()
            except StopIteration:
                return
            yield item

    def _take(self) -> Any:  # noqa: ANN401  # whatever it holds
        try:
            if self._rest is None:
                self._rest = iter(self._items)
            item = next(self._rest)
        except StopIteration:
            raise
        except Exception as error:
            error.add_note(f"raised by item {self._taken + 1:,} of {self._name}, while headrace.build read it")
            raise
        self._taken += 1
        self._last = item
        return item

    def field_names(self) -> list[str]:
        """Of the last item that was taken."""
        return [str(name) for name in self._last] if isinstance(self._last, Mapping) else []


def _is_data_set(items: object) -> bool:
    """Whether it comes from Hugging Face `datasets`, which need not be installed."""
    return type(items).__module__.partition(".")[0] == "datasets" and callable(getattr(items, "iter", None))


def _rows(items: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401  # a data set
    names = items.column_names  # None where they are not known beforehand
    if isinstance(names, list) and set(columns) <= {*cast("list[str]", names)}:
        items = items.select_columns([*columns])
    for batch in items.iter(batch_size=_ROWS):
        if not isinstance(batch, Mapping):  # but a table or a frame; texts are the same in all formats
            yield from _rows(items.with_format(None), columns)
            return
        names = [*batch]
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(names, values, strict=True))
