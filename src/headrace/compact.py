"""Many short texts, or many hashes, as sequences that keep them in one array."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, cast, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Digests", "Texts"]

_SIZE = 32
"""Bytes of a SHA-256."""


class _Strings(Sequence[str]):
    """What both are: equal to every sequence of equal texts."""

    __slots__ = ()

    def _text(self, number: int) -> str:
        """The text of a number from 0 to `len(self) - 1`."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        numbers = range(len(self))[index]
        return self._text(numbers) if isinstance(numbers, int) else list(map(self._text, numbers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} texts>"


class Texts(_Strings):
    """Texts without zero characters. They may hold lone surrogates.

    Args:
        data: the texts as UTF-8, each ended by a zero byte, uint8 `(bytes,)`; not copied.
        prefix: what each text begins with beside that.
    """

    __slots__ = ("_prefix", "_stops", "data")

    def __init__(self, data: NDArray[np.uint8], prefix: str = "") -> None:
        self.data = data
        self._stops = np.flatnonzero(data == 0).astype(np.min_scalar_type(data.size))
        self._prefix = prefix

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Keep texts."""
        return cls(np.frombuffer("\0".join([*texts, ""]).encode("utf-8", "surrogatepass"), np.uint8))

    def behind(self, prefix: str) -> "Texts":
        """The same texts, each behind `prefix`."""
        return Texts(self.data, prefix + self._prefix)

    def __len__(self) -> int:
        return len(self._stops)

    def _text(self, number: int) -> str:
        start = int(self._stops[number - 1]) + 1 if number else 0
        return self._prefix + _decoded(self.data[start : int(self._stops[number])])

    def __iter__(self) -> Iterator[str]:
        texts = _decoded(self.data).split("\0")[:-1]
        return iter([self._prefix + text for text in texts] if self._prefix else texts)


class Digests(_Strings):
    """SHA-256 hashes, as 64 hex digits; or so many empty texts.

    Args:
        rows: uint8 `(n, 32)`; all zero where there are none.
        absent: whether all are empty texts.
    """

    __slots__ = ("absent", "rows")

    def __init__(self, rows: NDArray[np.uint8], *, absent: bool = False) -> None:
        self.rows = rows
        self.absent = absent

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Keep the hashes of lower-case hex digits."""
        return cls(np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, _SIZE))

    @classmethod
    def none(cls, count: int) -> Self:
        """So many empty texts, which take no space."""
        return cls(np.broadcast_to(np.zeros(_SIZE, np.uint8), (count, _SIZE)), absent=True)

    def __len__(self) -> int:
        return len(self.rows)

    def _text(self, number: int) -> str:
        return "" if self.absent else self.rows[number].tobytes().hex()

    def __iter__(self) -> Iterator[str]:
        if self.absent:
            return iter([""] * len(self))
        digits, size = self.rows.tobytes().hex(), 2 * _SIZE
        return iter([digits[start : start + size] for start in range(0, len(digits), size)])


def _decoded(data: NDArray[np.uint8]) -> str:
    return data.tobytes().decode("utf-8", "surrogatepass")
