"""The windows of many steps, located at once and read step by step."""

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from headrace.storage.shard_files import Placement

if TYPE_CHECKING:
    from headrace.storage.token_line import TokenLine

__all__ = ["WindowBlock"]

_INT64 = np.dtype(np.int64)
_SAMPLE = 64
"""Windows of which it is asked whether they are in memory."""


class WindowBlock:
    """Windows of many steps, their places worked out in advance."""

    __slots__ = (
        "_all_simple",
        "_decoded",
        "_flat",
        "_length",
        "_line",
        "_offsets",
        "_placed",
        "_shape",
        "_shards",
        "_simple",
        "_starts",
    )

    def __init__(
        self,
        line: "TokenLine",
        *,
        length: int,
        starts: NDArray[np.int64],
        shards: NDArray[np.intp],
        offsets: NDArray[np.int64],
        flat: NDArray[np.bool_],
        simple: NDArray[np.bool_],
        decoded: NDArray[np.bool_],
    ) -> None:
        self._line = line
        self._starts = starts
        self._length = length
        self._shape = starts.shape[1], length
        self._shards = shards
        self._offsets = offsets
        self._placed: tuple[int, NDArray[np.int64]] = 0, offsets
        """A placement's version, and the item of `_AllMemory` of each window under it, shape (steps, rows)."""
        self._flat = flat
        """Whether the window lies in one extent, shape (steps, rows)."""
        self._simple = simple
        """Whether the window lies in one mapped extent, shape (steps, rows)."""
        self._decoded = decoded
        """Whether the window lies in one extent that is not flat, shape (steps, rows)."""
        self._all_simple = cast("NDArray[np.bool_]", simple.all(axis=1)).tolist()

    def gather_into(self, row: int, out: NDArray[Any]) -> None:
        """Read the windows of one step.

        Args:
            row: which step, from 0.
            out: shape (rows, length), C-contiguous, int64 or the stored dtype; overwritten whole.

        Raises:
            ValueError: `out` is of another shape, dtype or order.
        """
        if out.shape != self._shape or not out.flags.c_contiguous:
            raise ValueError(
                f"wanted a C-contiguous buffer of shape {self._shape}, found {out.shape}, strides {out.strides}"
            )
        if out.dtype not in (_INT64, self._line.dtype):
            raise ValueError(f"wanted a buffer of int64 or {self._line.dtype}, found {out.dtype}: ids would be wrapped")
        if self._all_simple[row]:
            placement = self._line.placement  # held until the copy is done, and the maps with it
            if placement is None:
                self._line.gather(self._shards[row], self._offsets[row], out)
            else:
                self._line.copy(self._items(placement)[row], out)
        else:
            self._gather_others(row, out)
        self._line.require_ids(out, self._starts[row])

    def _gather_others(self, row: int, out: NDArray[Any]) -> None:
        """Read the windows of a step that do not all lie in mapped extents."""
        simple = self._simple[row]
        if simple.any():
            some = np.empty((int(simple.sum()), self._length), dtype=self._line.dtype)
            self._line.gather(self._shards[row][simple], self._offsets[row][simple], some)
            out[simple] = some
        left = ~simple
        decoded = np.flatnonzero(self._decoded[row])
        if decoded.size == len(out):
            left[self._line.gather_decoded(self._shards[row], self._offsets[row], out)] = False
        elif decoded.size:
            some = np.empty((decoded.size, self._length), dtype=out.dtype)
            done = self._line.gather_decoded(self._shards[row][decoded], self._offsets[row][decoded], some)
            out[decoded[done]] = some[done]
            left[decoded[done]] = False
        for number in np.flatnonzero(left).tolist():
            self._line.read_unchecked(int(self._starts[row, number]), out[number])

    def cold_share(self) -> float:
        """The share of a sample of the windows that have to come from the disk, from 0 to 1.

        Windows that lie in several extents, or are not flat on disk, are left out; 0 if all are. What is read without
        maps counts as cold: the system does not say.
        """
        flat = np.flatnonzero(self._flat)
        if not len(flat):
            return 0.0
        sample = flat[:: -(-len(flat) // _SAMPLE)]
        shards, offsets = self._shards.reshape(-1)[sample], self._offsets.reshape(-1)[sample]
        return 1.0 - self._line.resident(shards, offsets, self._bytes) / len(sample)

    def will_need(self, row: int) -> None:
        """Let the system fetch the windows of one step from the disk, without waiting for them; those of `cold_share`."""
        flat = self._flat[row]
        self._line.will_need(self._shards[row][flat], self._offsets[row][flat], self._bytes)

    @property
    def _bytes(self) -> int:
        """Of a window, as it is stored."""
        return self._length * self._line.dtype.itemsize

    def _items(self, placement: Placement) -> NDArray[np.int64]:
        version, items = self._placed
        if version != placement.version:
            items = placement.bases[self._shards] + self._offsets
            self._placed = placement.version, items
        return items
