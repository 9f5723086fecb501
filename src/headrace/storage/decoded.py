"""Chunks that gzip or zstd alone has compressed, decoded here and kept for the next read.

HDF5 would do it too, but one chunk at a time for the whole process, with its lock held: here threads decode side by
side, and windows of a chunk that is still there cost half. What other filters have made goes through HDF5.
"""

import os
import threading
from array import array
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, UnreadableShardError
from headrace.storage.compression import filters_of
from headrace.storage.kept import Kept

__all__ = ["DecodedChunks", "decoded_chunks"]

Decoder = Callable[[bytes, int], bytes]
"""Decodes a chunk of so many bytes, or raises a ValueError."""


_cache: "Kept[tuple[int, int]]" = Kept(16 << 20, least=4)
"""Decoded chunks, by reader and number, that all readers of this process keep together."""
_owners = count()


class DecodedChunks:
    """Tokens of a data set in compressed chunks, read from the file without HDF5. Safe for threads and after a fork.

    Takes 16 bytes of memory a chunk; an open HDF5 file takes 640 KiB.

    Args:
        path: the file, for messages.
        descriptor: of the file, open for reading; closed with this object.
        dtype: of the tokens.
        chunk_size: tokens a chunk.
        offsets: byte offset of each chunk in the file, shape (n,).
        sizes: bytes of each chunk as it lies there, shape (n,).
        decode: decodes one.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        *,
        dtype: np.dtype[Any],
        chunk_size: int,
        offsets: "array[int]",
        sizes: "array[int]",
        decode: Decoder,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._dtype = dtype
        self._chunk_size = chunk_size
        self._offsets = offsets
        self._sizes = sizes
        self._decode = decode
        self._owner = next(_owners)  # what another reader has left in the cache may be of another file of that name

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # held here: at exit its module may be gone first
        close(self._descriptor)

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop), which must exist, as a read-only view or a new array.

        Raises:
            CorruptShardError: naming the file and the tokens that cannot be decoded.
            UnreadableShardError: the file cannot be read.
        """
        size = self._chunk_size
        first, last = start // size, max(stop - 1, start) // size
        if first == last:
            return self._chunk(first, keep=True)[start - first * size : stop - first * size]
        # A long read goes through many chunks once: it should not push out those that windows come back to.
        keep = (last - first + 1) * size * self._dtype.itemsize <= _cache.most // 4
        out = np.empty(stop - start, dtype=self._dtype)
        for number in range(first, last + 1):
            begin, end = max(start, number * size), min(stop, (number + 1) * size)
            chunk = self._chunk(number, keep=keep)
            out[begin - start : end - start] = chunk[begin - number * size : end - number * size]
        return out

    def _chunk(self, number: int, *, keep: bool) -> NDArray[Any]:
        key = self._owner, number
        chunk = _cache.get(key)
        if chunk is None:
            chunk = self._decoded(number)
            if keep:
                _cache.put(key, chunk)
        return chunk

    def _decoded(self, number: int) -> NDArray[Any]:
        size = self._sizes[number]
        try:
            data = os.pread(self._descriptor, size, self._offsets[number])
        except OSError as error:
            raise UnreadableShardError(f"{self._path}: cannot be read: {error.strerror}") from error
        if len(data) < size:
            end = self._offsets[number] + size
            raise UnreadableShardError(f"{self._path}: ends before byte {end}: it was cut while in use")
        wanted = self._chunk_size * self._dtype.itemsize
        try:
            data = self._decode(data, wanted)
            if len(data) != wanted:
                raise ValueError(f"it has {len(data)} bytes, not {wanted}")  # noqa: TRY301  # as a decoder's
        except ValueError as error:
            start = number * self._chunk_size
            raise CorruptShardError(
                f"{self._path}: chunk {number}, tokens [{start}, {start + self._chunk_size}) of the shard, cannot be "
                f"decoded: {error}; the file is damaged (`headrace verify` lists everything that is)"
            ) from error
        return np.frombuffer(data, dtype=self._dtype)


def decoded_chunks(path: Path, dataset: Any) -> DecodedChunks | None:  # noqa: ANN401  # an h5py.Dataset
    """A reader of the data set, which is needed no more then; None where only HDF5 itself can read it.

    Raises:
        UnreadableShardError: this process may open no more files.
    """
    decode = {"gzip": _decode_gzip, "zstd": _decode_zstd}.get(filters_of(dataset).partition(":")[0])
    # HDF5 has integers of odd precision; and whether offsets count from the end of a user block differs by version.
    plain = dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)) and not dataset.file.userblock_size
    if decode is None or not plain:
        return None
    chunk_size = int(dataset.chunks[0])
    offsets, sizes = array("Q"), array("Q")
    whole = True

    def note(chunk: Any) -> None:  # noqa: ANN401  # an h5py.h5d.StoreInfo
        nonlocal whole
        # In order, none left out (it would hold the fill value), and none that the filter could not compress.
        whole = whole and chunk.chunk_offset[0] == len(offsets) * chunk_size and not chunk.filter_mask
        offsets.append(chunk.byte_offset)
        sizes.append(chunk.size)

    dataset.id.chunk_iter(note)
    if not whole or len(offsets) * chunk_size < len(dataset):
        return None
    try:
        descriptor = os.dup(dataset.file.id.get_vfd_handle())
    except OSError as error:
        raise UnreadableShardError(f"{path}: cannot be opened: {error.strerror}") from error
    return DecodedChunks(
        path,
        descriptor,
        dtype=dataset.dtype,
        chunk_size=chunk_size,
        offsets=offsets,
        sizes=sizes,
        decode=decode,
    )


_GZIP_ERROR = cast("type[Exception]", isal_zlib.error)  # its stub calls it an instance


def _decode_gzip(data: bytes, size: int) -> bytes:
    stream = isal_zlib.decompressobj()
    try:
        # One byte more than there should be: the checksum at the end is read only by who asks for more.
        decoded = stream.decompress(data, size + 1)
    except _GZIP_ERROR as error:
        raise ValueError(str(error)) from error
    if not stream.eof:
        raise ValueError("its gzip stream is cut, or too long")
    return decoded


def _decode_zstd(data: bytes, size: int) -> bytes:
    import zstandard  # noqa: PLC0415  # few shards need it

    try:
        found = zstandard.frame_content_size(data)
        if found not in {size, -1}:  # it would be believed
            raise ValueError(f"its zstd frame is of {found} bytes, not {size}")
        return _zstd.decompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


class _Zstd(threading.local):
    """One decompressor for each thread: they are not shared, and making one takes longer than a small chunk."""

    found: Any = None

    def decompressor(self) -> Any:  # noqa: ANN401  # zstandard is imported late
        if self.found is None:
            import zstandard  # noqa: PLC0415

            self.found = zstandard.ZstdDecompressor()
        return self.found


_zstd = _Zstd()
