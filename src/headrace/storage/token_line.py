"""A corpus as one long line of tokens, read through maps of its shards' files."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import OutOfRangeError
from headrace.storage.extents import NOT_FLAT, ExtentTable
from headrace.storage.id_range import IdRange
from headrace.storage.shard_files import Io, Placement, RangeReader, ShardFiles
from headrace.storage.window_block import WindowBlock

__all__ = ["Io", "RangeReader", "TokenLine"]

_PIECE = 1 << 22
"""Most tokens copied at once."""
_TABLE_BITS = 14
"""The table of `_extents` has at most 2 to this power entries (128 KiB)."""
_SCATTERED = 2
"""Windows are scattered if they span more than so many times the tokens that they hold."""
_MAX_GATHER = 2**15
"""Longest window, in bytes, gathered through `_AllMemory`; others are copied singly."""


class _AllMemory:
    """Array interface of the address space as overlapping opaque items: item i is the `size` bytes at address i + 1.

    Indexing the array made from this with addresses gathers windows out of any number of maps in one numpy call, where
    a view for each file would cost two calls each; opaque items are copied whole, whatever their alignment. Only
    addresses inside live maps are ever used as an index.
    """

    def __init__(self, addresses: int, size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "data": (1, True),  # numpy refuses a null pointer
            "shape": (addresses,),
            "strides": (1,),
        }


class TokenLine:
    """Reads token ranges and windows of a corpus.

    Safe for threads. Not picklable: a corpus reopens by its path.

    Args:
        files: opens the shards' files, and knows where the tokens lie in them.
        table: where they lie, if the last shard has grown since `files` was made.
        ids: which token ids there may be; None where their dtype allows no other.
    """

    def __init__(self, files: ShardFiles, table: ExtentTable | None = None, *, ids: IdRange | None = None) -> None:
        table = self.table = table or files.table
        self.dtype = files.dtype
        self.io = files.io
        self.token_count = table.token_count
        self._files = files
        self._ids = ids
        self._stops = np.append(table.first[1:], np.uint64(table.token_count))
        """Position after each extent's last token, shape (e,)."""
        self._shift = np.uint64(0)
        self._entries: NDArray[np.intp] | None = None
        """Extent at each multiple of 2 to the power `_shift`, made when first needed; see `_extents`."""
        self._views: dict[tuple[int, int], tuple[NDArray[Any] | None, NDArray[Any]]] = {}
        """`_AllMemory` by its size and the length of a window in tokens: window by window, None where that would be too
        large, and byte by byte."""

    # -- ranges -----------------------------------------------------------------------------------------------------

    def get_slice(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens [start, stop) as a new array of the stored dtype.

        Raises:
            OutOfRangeError: (a ValueError and IndexError) unless 0 <= start <= stop <= token_count.
        """
        start, stop = index(start), index(stop)
        if not 0 <= start <= stop <= self.token_count:
            raise OutOfRangeError(f"wanted 0 <= start <= stop <= {self.token_count} tokens, found [{start}, {stop})")
        out = np.empty(stop - start, dtype=self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill `out`, shape (n,), with the tokens from `start` on, which must all exist."""
        self.read_unchecked(start, out)
        self.require_ids(out[None], np.array([start]))

    def require_ids(self, tokens: NDArray[Any], starts: NDArray[np.int64]) -> None:
        """Refuse ids that there may not be; see `IdRange.require`."""
        if self._ids is not None:
            self._ids.require(tokens, starts)

    def read_unchecked(self, start: int, out: NDArray[Any]) -> None:
        """As `read_into`, without a look at the ids."""
        table, done = self.table, 0
        extent = int(np.searchsorted(table.first, np.uint64(start), side="right")) - 1
        while done < len(out):
            count = min(len(out) - done, int(self._stops[extent]) - start - done, _PIECE)
            file = self._files.get(int(table.shard[extent]))
            within = start + done - int(table.first[extent])
            out[done : done + count] = file.tokens(int(table.offset[extent]), within, count, self.dtype)
            done += count
            if start + done == int(self._stops[extent]):
                extent += 1

    # -- windows ----------------------------------------------------------------------------------------------------

    def windows(self, starts: NDArray[np.int64], length: int) -> WindowBlock:
        """Work out where many windows lie, all at once, for `WindowBlock.gather_into`.

        Args:
            starts: integers, shape (steps, rows).
            length: tokens a window, at least 1.

        Raises:
            OutOfRangeError: a window that does not lie in the corpus.
            TypeError: `starts` are no integers.
            ValueError: of another shape, or a length below 1.
        """
        length = index(length)
        if starts.dtype.kind not in "iu":
            raise TypeError(f"starts are integers, not {starts.dtype}")
        if starts.ndim != 2 or length < 1:  # noqa: PLR2004  # steps and rows
            raise ValueError(
                f"wanted starts of shape (steps, rows) and a length from 1, found {starts.shape}, {length}"
            )
        if starts.size and (int(starts.min()) < 0 or int(starts.max()) + length > self.token_count):
            raise OutOfRangeError(
                f"windows of {length} tokens at {starts.min()} to {starts.max()} leave the corpus of "
                f"{self.token_count} tokens"
            )
        if starts.size and int(starts.max()) - int(starts.min()) > _SCATTERED * starts.size * length:
            self._files.expect_scattered()
        table = self.table
        begin = starts.astype(np.uint64)
        extent = self._extents(begin)
        whole = begin + np.uint64(length) <= self._stops[extent]
        flat = whole & (table.offset[extent] != NOT_FLAT)
        gathers = self.io != "pread" and length * self.dtype.itemsize <= _MAX_GATHER
        simple = flat if gathers else np.zeros_like(flat)
        within = (begin - table.first[extent]).astype(np.int64) * self.dtype.itemsize
        offset = np.where(flat, table.offset[extent], np.uint64(0)).astype(np.int64)
        return WindowBlock(
            self,
            length=length,
            starts=starts,
            shards=table.shard[extent].astype(np.intp),
            offsets=offset + within,
            flat=flat,
            simple=simple,
            decoded=whole & ~flat,
        )

    def _extents(self, positions: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Extent of each position, any shape.

        A binary search takes 30 to 100 ns. So a table of the extents at evenly spaced positions comes first: it has the
        answer wherever no extent begins between the entry and the position.
        """
        if self._entries is None:
            self._shift = np.uint64(max(self.token_count.bit_length() - _TABLE_BITS, 0))
            spaced = np.arange(int(self.token_count >> int(self._shift)) + 1, dtype=np.uint64) << self._shift
            self._entries = np.searchsorted(self.table.first, spaced, side="right") - 1
        extents = self._entries[positions >> self._shift]
        later = np.nonzero(positions >= self._stops[extents])
        extents[later] = np.searchsorted(self.table.first, positions[later], side="right") - 1
        return extents

    def gather(self, shards: NDArray[np.intp], offsets: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read windows that each lie in one extent, of shards of which some may not be mapped yet.

        Args:
            shards: shard of each window, shape (n,).
            offsets: byte of each window's first token in its file, shape (n,).
            out: shape (n, length), C-contiguous.
        """
        with self._files.pinned():
            items = self._files.bases[shards]
            if items.all():
                self.copy(items + offsets, out)
                return
        needed = sorted(set(shards.tolist()))  # numpy.unique would import numpy.ma
        if len(needed) > self._files.capacity:
            half = len(shards) // 2
            self.gather(shards[:half], offsets[:half], out[:half])
            self.gather(shards[half:], offsets[half:], out[half:])
            return
        handles = [self._files.get(shard) for shard in needed]  # held, so that no other thread's eviction unmaps them
        bases = np.array([handle.address - 1 for handle in handles], dtype=np.int64)
        self.copy(bases[np.searchsorted(needed, shards)] + offsets, out)

    def gather_decoded(self, shards: NDArray[np.intp], offsets: NDArray[np.int64], out: NDArray[Any]) -> list[int]:
        """Read windows that each lie in one shard that is not flat, as far as such a shard has them sooner together.

        Args:
            shards: shard of each window, shape (n,).
            offsets: its first token in the shard, times bytes a token, shape (n,).
            out: shape (n, length).

        Returns:
            Those of the n that were read.
        """
        done: list[int] = []
        for shard in sorted(set(shards.tolist())):
            reader = self._files.window_reader(shard)
            if reader is None:
                continue
            those = np.flatnonzero(shards == shard)
            starts = offsets[those] // self.dtype.itemsize
            if len(those) == len(out):
                reader.gather_into(starts, out)
            else:
                some = np.empty((len(those), out.shape[1]), out.dtype)
                reader.gather_into(starts, some)
                out[those] = some
            done += those.tolist()
        return done

    def will_need(self, shards: NDArray[np.intp], offsets: NDArray[np.int64], size: int) -> None:
        """Let the system fetch windows of `size` bytes from the disk, without waiting for them; see `gather`."""
        for shard, offset in zip(shards.tolist(), offsets.tolist(), strict=True):
            self._files.get(shard).will_need(offset, size)

    def resident(self, shards: NDArray[np.intp], offsets: NDArray[np.int64], size: int) -> int:
        """How many of these windows lie in memory, as far as that is known; see `gather`."""
        places = zip(shards.tolist(), offsets.tolist(), strict=True)
        return sum(self._files.get(shard).is_resident(offset, size) for shard, offset in places)

    @property
    def placement(self) -> Placement | None:
        """Where all shards lie in memory, once all that can be mapped are."""
        return self._files.placement

    def copy(self, items: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Copy windows out of memory.

        Args:
            items: address - 1 of each window, in a live map, shape (n,).
            out: shape (n, length), C-contiguous.
        """
        size = self._files.addresses, out.shape[1]
        if size not in self._views:
            fits = size[0] * size[1] * self.dtype.itemsize < 1 << 63  # numpy's limit on the bytes of an array
            memory = np.asarray(_AllMemory(size[0], size[1] * self.dtype.itemsize)) if fits else None
            self._views[size] = memory, np.asarray(_AllMemory(size[0], 1))
        memory, single_bytes = self._views[size]
        if memory is None:
            token = np.asarray(_AllMemory(size[0], self.dtype.itemsize))
            for row, item in enumerate(items.tolist()):
                out[row] = token[item : item + size[1] * self.dtype.itemsize : self.dtype.itemsize].view(self.dtype)
            return
        # A byte of each first: their cache misses overlap, where those of long copies come one after another.
        single_bytes[items]
        np.copyto(out, memory[items].view(self.dtype).reshape(out.shape))

    def close(self) -> None:
        """Drop all maps and descriptors; a later read opens them again."""
        self._files.clear()
