"""Chunks that gzip or zstd alone has compressed, decoded here and kept for the next read.

HDF5 would do it too, but one chunk at a time for the whole process, with its lock held: here threads decode side by
side, and windows of a chunk that is still there cost a tenth. What other filters have made goes through HDF5.
"""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError
from headrace.storage.compression import filters_of

__all__ = ["DecodedChunks", "decoder_of"]

_CACHE_BYTES = 16 << 20
"""Decoded bytes that all readers of this process keep together, if they are not fewer than ..."""
_LEAST_KEPT = 4
"""... so many chunks."""

Decoder = Callable[[bytes, int], bytes]
"""Decodes a chunk of so many bytes, or raises a ValueError."""


class _Cache:
    """The least recently used goes first. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[int, int], NDArray[Any]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[int, int]) -> NDArray[Any] | None:
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is not None:
                self._chunks.move_to_end(key)
            return chunk

    def put(self, key: tuple[int, int], chunk: NDArray[Any]) -> None:
        with self._lock:
            if key in self._chunks:  # another thread was faster
                return
            self._chunks[key] = chunk
            self._bytes += chunk.nbytes
            while self._bytes > _CACHE_BYTES and len(self._chunks) > _LEAST_KEPT:
                self._bytes -= self._chunks.popitem(last=False)[1].nbytes


_cache = _Cache()
_owners = count()
# Another thread may have held the lock when this process was forked.
os.register_at_fork(after_in_child=_cache.__init__)


class DecodedChunks:
    """Reads a data set for which `decoder_of` has a decoder. Safe for threads.

    Args:
        path: the file, for messages.
        dataset: the open data set, of one dimension; it may grow, but what it holds does not change.
        decoder: decodes its chunks.
    """

    def __init__(self, path: Path, dataset: Any, decoder: Decoder) -> None:  # noqa: ANN401  # an h5py.Dataset
        self._path = path
        self._dataset = dataset
        self._decoder = decoder
        self._dtype: np.dtype[Any] = dataset.dtype
        self._size: int = dataset.chunks[0]
        self._owner = next(_owners)  # what another reader has left in the cache may be of another file of that name

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop), which must exist, as a read-only view or a new array.

        Raises:
            CorruptShardError: naming the file and the tokens that cannot be decoded.
        """
        size = self._size
        first, last = start // size, max(stop - 1, start) // size
        # A long read goes through many chunks once: it should not push out those that windows come back to.
        keep = (last - first + 1) * size * self._dtype.itemsize <= _CACHE_BYTES // 4
        if first == last:
            return self._chunk(first, keep=True)[start - first * size : stop - first * size]
        out = np.empty(stop - start, dtype=self._dtype)
        for number in range(first, last + 1):
            begin, end = max(start, number * size), min(stop, (number + 1) * size)
            out[begin - start : end - start] = self._chunk(number, keep=keep)[
                begin - number * size : end - number * size
            ]
        return out

    def _chunk(self, number: int, *, keep: bool) -> NDArray[Any]:
        key = self._owner, number
        chunk = _cache.get(key)
        if chunk is None:
            chunk = self._decode(number)
            if keep:
                _cache.put(key, chunk)
        return chunk

    def _decode(self, number: int) -> NDArray[Any]:
        start = number * self._size
        try:
            skipped, data = self._dataset.id.read_direct_chunk((start,))
        except (OSError, RuntimeError, ValueError):  # a chunk that was never written, unless the file is damaged
            return self._dataset[start : start + self._size]
        wanted = self._size * self._dtype.itemsize
        try:
            if not skipped:
                data = self._decoder(data, wanted)
            if len(data) != wanted:
                raise ValueError(f"it has {len(data)} bytes, not {wanted}")  # noqa: TRY301  # as a decoder's
        except ValueError as error:
            stop = min(start + self._size, len(self._dataset))
            raise CorruptShardError(
                f"{self._path}: chunk {number}, tokens [{start}, {stop}) of the shard, cannot be decoded: {error}; the "
                "file is damaged (`headrace verify` lists everything that is)"
            ) from error
        return np.frombuffer(data, dtype=self._dtype)


def decoder_of(dataset: Any) -> Decoder | None:  # noqa: ANN401  # an h5py.Dataset
    """What decodes the chunks of a data set; None where only HDF5 itself can."""
    if dataset.chunks is None or len(dataset.chunks) != 1:
        return None
    # HDF5 has integers of odd precision.
    if not dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)):
        return None
    return {"gzip": _decode_gzip, "zstd": _decode_zstd}.get(filters_of(dataset).partition(":")[0])


def _decode_gzip(data: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than there should be: the checksum at the end is read only by who asks for more.
        decoded = stream.decompress(data, size + 1)
    except zlib.error as error:
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
