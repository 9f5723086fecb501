"""A corpus as one long line of tokens, read through maps of its shards' files."""

import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, MissingShardError, OutOfRangeError, UnreadableShardError
from headrace.storage.extents import NOT_FLAT, ExtentTable
from headrace.storage.pool import HandlePool, handle_limit

__all__ = ["Io", "RangeReader", "TokenLine", "WindowBlock"]

Io = Literal["mmap", "pread"]

_ADDRESSES = 2**47
"""Bytes of address space that a program gets on x86-64 Linux; grown where maps lie higher."""
_MAX_GATHER = 2**15
"""Longest window, in bytes, gathered through `_AllMemory`, whose size in bytes must fit int64; others are copied singly."""


class RangeReader(Protocol):
    """Reads tokens that are not flat on disk."""

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the shard."""
        ...


class _File:
    """An open file of known size: a map of it, or its descriptor. Closed when the last reference goes."""

    __slots__ = ("address", "bytes", "descriptor")

    def __init__(self, path: str, size: int, io: Io) -> None:
        self.descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise MissingShardError(f"{path}: no such file") from error
        except OSError as error:
            raise UnreadableShardError(f"{path}: cannot be opened: {error.strerror}") from error
        try:
            found = os.fstat(descriptor).st_size
            if found != size:  # a map past the end of a cut file would be a SIGBUS
                raise CorruptShardError(f"{path}: wanted {size} bytes, found {found}; copy it again or rebuild it")
            if io == "mmap":
                view = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
                self.bytes = np.frombuffer(view, dtype=np.uint8)
                self.address: int = self.bytes.__array_interface__["data"][0]
            else:
                self.descriptor, descriptor = descriptor, -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """`size` bytes at `offset`: a view of the map, or a copy from the file."""
        if self.descriptor < 0:
            return self.bytes[offset : offset + size]
        data = bytearray()
        while len(data) < size:
            piece = os.pread(self.descriptor, size - len(data), offset + len(data))
            if not piece:
                raise UnreadableShardError(f"the file ends before byte {offset + size}: it was cut while in use")
            data += piece
        return np.frombuffer(data, dtype=np.uint8)


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
        table: where the tokens lie.
        paths: file of each shard.
        digests: sha256 of each shard, hex; empty where unknown.
        dtype: of the stored tokens, little-endian.
        io: `mmap`, or `pread` for file systems that cannot map reliably.
        verify: check each shard quickly when it is first touched (size always; digest and two chunk checksums).
        fallback: makes the reader of a shard that is not flat on disk.
    """

    def __init__(
        self,
        table: ExtentTable,
        paths: Sequence[str],
        digests: Sequence[str],
        dtype: np.dtype[Any],
        *,
        io: Io,
        verify: bool,
        fallback: Callable[[Path], RangeReader],
    ) -> None:
        self.table = table
        self.dtype = dtype
        self.token_count = table.token_count
        self.io: Io = io
        self._paths = paths
        self._digests = digests
        self._verify = verify
        self._fallback = fallback
        self._readers: dict[int, RangeReader] = {}
        self._checked = np.zeros(len(paths), dtype=bool)
        self._stops = np.append(table.first[1:], np.uint64(table.token_count))
        """Position after each extent's last token, shape (e,)."""
        self.bases = np.zeros(len(paths), dtype=np.int64)
        """Item of `_AllMemory` at each mapped shard's byte 0 (its address - 1), else 0."""
        self._addresses = _ADDRESSES
        self._pool = HandlePool(len(paths), self._open, self._forget, handle_limit())
        self._views: dict[int, NDArray[Any]] = {}

    # -- ranges -----------------------------------------------------------------------------------------------------

    def get_slice(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens [start, stop) as a new array of the stored dtype.

        Raises:
            OutOfRangeError: (a ValueError and IndexError) unless 0 <= start <= stop <= token_count.
        """
        start, stop = int(start), int(stop)
        if not 0 <= start <= stop <= self.token_count:
            raise OutOfRangeError(f"wanted 0 <= start <= stop <= {self.token_count} tokens, found [{start}, {stop})")
        out = np.empty(stop - start, dtype=self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill `out`, shape (n,), with the tokens from `start` on, which must all exist."""
        done = 0
        extent = int(np.searchsorted(self.table.first, np.uint64(start), side="right")) - 1
        with self._pool:
            while done < len(out):
                count = min(len(out) - done, int(self._stops[extent]) - start - done)
                out[done : done + count] = self._piece(extent, start + done, count)
                done += count
                extent += 1

    def _piece(self, extent: int, start: int, count: int) -> NDArray[Any]:
        """`count` tokens from `start` on, all inside one extent."""
        table = self.table
        shard = int(table.shard[extent])
        within = start - int(table.first[extent])
        if table.offset[extent] == NOT_FLAT:
            return self._reader(shard).read(within, within + count)
        size = self.dtype.itemsize
        file = self._pool.get(shard)
        return file.read(int(table.offset[extent]) + within * size, count * size).view(self.dtype)

    def _reader(self, shard: int) -> RangeReader:
        reader = self._readers.get(shard)
        if reader is None:
            reader = self._readers[shard] = self._fallback(Path(self._paths[shard]))
        return reader

    # -- windows ----------------------------------------------------------------------------------------------------

    def windows(self, starts: NDArray[np.int64], length: int) -> "WindowBlock":
        """Work out where many windows lie, all at once, for `WindowBlock.gather_into`.

        Args:
            starts: int64, shape (steps, rows).
            length: tokens a window.

        Raises:
            OutOfRangeError: a window that does not lie in the corpus.
        """
        if starts.size and (int(starts.min()) < 0 or int(starts.max()) + length > self.token_count):
            raise OutOfRangeError(f"a window of {length} tokens leaves the corpus of {self.token_count}")
        table = self.table
        begin = starts.astype(np.uint64)
        extent = np.searchsorted(table.first, begin, side="right") - 1
        whole = begin + np.uint64(length) <= self._stops[extent]
        simple = whole & (table.offset[extent] != NOT_FLAT)
        if self.io == "pread" or length * self.dtype.itemsize > _MAX_GATHER:
            simple[...] = False
        within = (begin - table.first[extent]).astype(np.int64) * self.dtype.itemsize
        offset = np.where(simple, table.offset[extent], np.uint64(0)).astype(np.int64)
        return WindowBlock(
            self,
            length=length,
            starts=starts,
            shards=table.shard[extent].astype(np.intp),
            offsets=offset + within,
            simple=simple,
        )

    def gather(self, shards: NDArray[np.intp], offsets: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read windows that each lie in one extent.

        Args:
            shards: shard of each window, shape (n,).
            offsets: byte of each window's first token in its file, shape (n,).
            out: shape (n, length), C-contiguous.
        """
        with self._pool:
            items = self.bases[shards]
            if not items.all():
                needed = sorted(set(shards.tolist()))  # numpy.unique would import numpy.ma
                if len(needed) > self._pool.capacity:
                    half = len(shards) // 2
                    self.gather(shards[:half], offsets[:half], out[:half])
                    self.gather(shards[half:], offsets[half:], out[half:])
                    return
                for shard in needed:
                    self._pool.get(shard)
                items = self.bases[shards]
            items += offsets
            length = out.shape[1]
            memory = self._views.get(length)
            if memory is None:
                memory = np.asarray(_AllMemory(self._addresses, length * self.dtype.itemsize))
                self._views[length] = memory
            out.reshape(-1)[:] = memory[items].view(self.dtype)

    # -- files ------------------------------------------------------------------------------------------------------

    def _open(self, shard: int) -> _File:
        file = _File(self._paths[shard], int(self.table.shards[shard]["file_size"]), self.io)
        if self._verify and not self._checked[shard]:
            self._check(shard, file)
            self._checked[shard] = True
        if self.io == "mmap":
            self.bases[shard] = file.address - 1
            while file.address + len(file.bytes) > self._addresses:
                self._addresses *= 2
                self._views.clear()
        return file

    def _forget(self, shard: int) -> None:
        self.bases[shard] = 0

    def _check(self, shard: int, file: _File) -> None:
        """Refuse a shard whose digest or end chunks are not what the table was made from."""
        row = self.table.shards[shard]
        path = self._paths[shard]
        at = int(row["digest_offset"])
        if at and file.read(at, 64).tobytes() != self._digests[shard].encode():
            raise CorruptShardError(
                f"{path}: the sha256 stored in the file is not the one in shards.json; the shard was replaced or "
                "damaged (`headrace verify` tells), or its extents moved: open the corpus again after removing "
                "extents.bin from its .headrace folder"
            )
        chunk = int(row["chunk_size"])
        first = int(np.searchsorted(self.table.shard, shard, side="left"))
        last = int(np.searchsorted(self.table.shard, shard, side="right")) - 1
        if first > last:
            return
        begin, stop = int(self.table.first[first]), int(self._stops[last])
        tail = begin + (stop - begin - 1) // chunk * chunk
        for start, end, crc in (
            (begin, min(begin + chunk, stop), int(row["first_crc"])),
            (tail, stop, int(row["last_crc"])),
        ):
            if self._crc(file, start, end) != crc:
                raise CorruptShardError(
                    f"{path}: the checksum of tokens [{start - begin}, {end - begin}) of the shard does not match; "
                    "the file is damaged (`headrace verify` lists everything that is)"
                )

    def _crc(self, file: _File, start: int, stop: int) -> int:
        """crc32 of tokens [start, stop), all in this file."""
        crc, size = 0, self.dtype.itemsize
        extent = int(np.searchsorted(self.table.first, np.uint64(start), side="right")) - 1
        while start < stop:
            end = min(stop, int(self._stops[extent]))
            offset = int(self.table.offset[extent]) + (start - int(self.table.first[extent])) * size
            crc = zlib.crc32(file.read(offset, (end - start) * size).data, crc)
            start, extent = end, extent + 1
        return crc

    def close(self) -> None:
        """Drop all maps and descriptors; a later read opens them again."""
        self._pool.clear()
        self._readers.clear()


class WindowBlock:
    """Windows of many steps, their places worked out in advance."""

    __slots__ = ("_all_simple", "_length", "_line", "_offsets", "_shards", "_simple", "_starts")

    def __init__(
        self,
        line: TokenLine,
        *,
        length: int,
        starts: NDArray[np.int64],
        shards: NDArray[np.intp],
        offsets: NDArray[np.int64],
        simple: NDArray[np.bool_],
    ) -> None:
        self._line = line
        self._starts = starts
        self._length = length
        self._shards = shards
        self._offsets = offsets
        self._simple = simple
        """Whether the window lies in one mapped extent, shape (steps, rows)."""
        self._all_simple = cast("NDArray[np.bool_]", simple.all(axis=1)).tolist()

    def gather_into(self, row: int, out: NDArray[Any]) -> None:
        """Read the windows of one step.

        Args:
            row: which step, from 0.
            out: shape (rows, length), C-contiguous, int64 or the stored dtype; overwritten whole.
        """
        if self._all_simple[row]:
            self._line.gather(self._shards[row], self._offsets[row], out)
            return
        simple = self._simple[row]
        if simple.any():
            some = np.empty((int(simple.sum()), self._length), dtype=self._line.dtype)
            self._line.gather(self._shards[row][simple], self._offsets[row][simple], some)
            out[simple] = some
        for index in np.flatnonzero(~simple).tolist():
            self._line.read_into(int(self._starts[row, index]), out[index])
