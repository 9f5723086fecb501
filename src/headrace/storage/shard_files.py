"""The open files of a corpus: each checked against the extent table before a token of it is served."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.errors import CorruptShardError
from headrace.storage.extents import NOT_FLAT, ExtentTable
from headrace.storage.pool import HandlePool
from headrace.storage.stored_file import HeldFile, StoredFile

if TYPE_CHECKING:
    from headrace.storage.document_columns import DocumentColumns

__all__ = ["DocumentReader", "HeldFile", "Io", "Placement", "RangeReader", "ShardFiles", "ShardHandle", "WindowReader"]

Io = Literal["mmap", "pread"]

_ADDRESSES = 2**47
"""Bytes of address space that a program gets on x86-64 Linux; grown where maps lie higher."""


class RangeReader(Protocol):
    """Reads tokens that are not flat on disk."""

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the shard."""
        ...


class DocumentReader(Protocol):
    """Reads the document index of one shard."""

    def documents(self, count: int, /) -> "DocumentColumns":
        """The first `count` documents."""
        ...


@runtime_checkable
class WindowReader(Protocol):
    """A reader that has many windows sooner together than one by one."""

    def gather_into(self, starts: NDArray[np.int64], out: NDArray[Any], /) -> None:
        """Fill `out`, shape (n, length), with the tokens of the shard from each start on, int64 (n,)."""
        ...


class ShardHandle(Protocol):
    """An open shard. Closed when the last reference goes."""

    address: int
    """Where its byte 0 lies in memory; 0 if it is not mapped."""

    def expect_scattered(self) -> None:
        """Prepare for small reads all over the file."""
        ...

    def will_need(self, offset: int, size: int) -> None:
        """Let the system fetch so many bytes of the file, without waiting for them."""
        ...

    def is_resident(self, offset: int, size: int) -> bool:
        """Whether all of these bytes are known to be in memory."""
        ...

    def tokens(self, offset: int, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Tokens [start, start + count) of the extent at byte `offset`: a view, or a new array."""
        ...


class _Decoded:
    """A shard that only its own library can read."""

    __slots__ = ("address", "reader")

    def __init__(self, reader: RangeReader) -> None:
        self.address = 0
        self.reader = reader

    def expect_scattered(self) -> None:
        """The library has a cache of its own."""

    def will_need(self, offset: int, size: int) -> None:
        """Where the bytes lie only the library knows."""

    def is_resident(self, offset: int, size: int) -> bool:  # noqa: ARG002  # the protocol's
        return False

    def tokens(self, offset: int, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:  # noqa: ARG002  # the protocol's
        return self.reader.read(start, start + count)


class Placement(NamedTuple):
    """Where all shards lie in memory. Whoever holds one keeps their maps alive."""

    version: int
    """Differs from that of any earlier placement of the corpus."""
    bases: NDArray[np.int64]
    """Address - 1 of each shard's byte 0, shape (shards,)."""
    handles: tuple[ShardHandle, ...]


class ShardFiles(HandlePool[ShardHandle]):
    """Opens the files of a corpus' shards on demand.

    Args:
        table: where the tokens lie.
        paths: file of each shard.
        digests: sha256 of each shard, hex; empty where unknown.
        dtype: of the stored tokens.
        io: `mmap`, or `pread` for file systems that cannot map reliably.
        verify: check a file when it is opened (size always; digest and two chunk checksums), and again if another one
            has taken its name by the time it is opened again.
        fallback: makes the reader of a shard that is not flat on disk.
        held: files of some shards, by the shard's number, which may not be where their paths say.
        readers: read some shards, by the shard's number, in place of their files, which are not checked.
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
        held: Mapping[int, HeldFile] = MappingProxyType({}),
        readers: Mapping[int, RangeReader] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.addresses = _ADDRESSES
        """Bytes of address space within which all maps lie."""
        self.bases = np.zeros(len(paths), dtype=np.int64)
        """Address - 1 of each mapped shard's byte 0, else 0."""
        self.table = table
        self._paths = paths
        self._digests = digests
        self.dtype = dtype
        self.io: Io = io
        self._verify = verify
        self._fallback = fallback
        self._held = held
        self._readers = readers
        self._identities = np.zeros((len(paths), 2), dtype=np.int64)
        """Inode and modification time of each file that was checked."""
        self._scattered = False
        self._mappable = _distinct(table.shard[table.offset != NOT_FLAT]) if io == "mmap" else 0
        self.placement: Placement | None = None
        """Set while every shard that can be mapped is: then no window needs to ask whether its shard is."""
        self._version = 0

    def open(self, number: int) -> ShardHandle:
        """Open a shard and check it.

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError: naming the file.
        """
        reader = self._readers.get(number)
        if reader is not None:
            return _Decoded(reader)
        path = self._paths[number]
        first = int(np.searchsorted(self.table.shard, number, side="left"))
        flat = self.table.offset[first] != NOT_FLAT
        size = int(self.table.shards[number]["file_size"])
        # Checked without a map, of which the first fault may read megabytes ahead.
        held = self._held.get(number)
        file = StoredFile(path, size, held)
        handle: ShardHandle = file if flat else _Decoded(self._fallback(held.path if held else Path(path)))
        if self._verify and tuple(self._identities[number].tolist()) != file.identity:
            self._check_digest(number, file)
            self._check_ends(number, handle)
            self._identities[number] = file.identity
        if not flat or self.io == "pread":
            return handle
        file.map_whole(size)
        if self._scattered:
            file.expect_scattered()
        self.bases[number] = file.address - 1
        while file.address + size > self.addresses:
            self.addresses *= 2
        return file

    def window_reader(self, number: int) -> WindowReader | None:
        """What reads many windows of a shard together; None where nothing does."""
        handle = self.get(number)
        reader = handle.reader if isinstance(handle, _Decoded) else None
        return reader if isinstance(reader, WindowReader) else None

    def note_opened(self, items: Mapping[int, ShardHandle]) -> None:
        """Note where all shards lie, once they all are mapped."""
        if self.placement is None and np.count_nonzero(self.bases) == self._mappable:
            self._version += 1
            self.placement = Placement(self._version, self.bases.copy(), tuple(items.values()))

    def expect_scattered(self) -> None:
        """Prepare all shards, open or not, for small reads all over the corpus."""
        if not self._scattered:
            self._scattered = True
            for handle in self.held():
                handle.expect_scattered()

    def evicted(self, number: int) -> None:
        """Forget the address."""
        self.placement = None
        self.bases[number] = 0

    def _check_digest(self, number: int, file: StoredFile) -> None:
        at = int(self.table.shards[number]["digest_offset"])
        if at and file.read(at, 64).tobytes() != self._digests[number].encode():
            raise CorruptShardError(
                f"{file.path}: the sha256 stored in the file is not the one in shards.json; the shard was replaced or "
                "damaged (`headrace verify` tells), or its extents moved: open the corpus again after removing "
                "extents.bin from its .headrace folder"
            )

    def _check_ends(self, number: int, handle: ShardHandle) -> None:
        """Refuse a shard whose first or last chunk is not what the table was made from."""
        table, row = self.table, self.table.shards[number]
        chunk = int(row["chunk_size"])
        first = int(np.searchsorted(table.shard, number, side="left"))
        last = int(np.searchsorted(table.shard, number, side="right")) - 1
        begin = int(table.first[first])
        stop = int(table.first[last + 1]) if last + 1 < len(table.first) else table.token_count
        tail = begin + (stop - begin - 1) // chunk * chunk
        for start, end, wanted in (
            (begin, min(begin + chunk, stop), int(row["first_crc"])),
            (tail, stop, int(row["last_crc"])),
        ):
            if self._crc(handle, start, end) != wanted:
                raise CorruptShardError(
                    f"{self._paths[number]}: the checksum of tokens [{start - begin}, {end - begin}) of the shard does "
                    "not match; the file is damaged (`headrace verify` lists everything that is)"
                )

    def _crc(self, handle: ShardHandle, start: int, stop: int) -> int:
        """crc32 of tokens [start, stop) of the corpus, all in this file."""
        table, crc = self.table, 0
        extent = int(np.searchsorted(table.first, np.uint64(start), side="right")) - 1
        while start < stop:
            end = min(stop, int(table.first[extent + 1])) if extent + 1 < len(table.first) else stop
            within = start - int(table.first[extent])
            crc = crc32(handle.tokens(int(table.offset[extent]), within, end - start, self.dtype).data, crc)
            start, extent = end, extent + 1
        return crc


def _distinct(ascending: NDArray[np.uint32]) -> int:
    """How many different values there are."""
    return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + (len(ascending) > 0)
