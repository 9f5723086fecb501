"""One file of known size, read through a map or its descriptor."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, MissingShardError, UnreadableShardError

__all__ = ["HeldFile", "StoredFile"]

_LONG_READ = 1 << 16
"""Bytes from which on a read asks for its pages at once, where faults do not read ahead."""
_fadvise = getattr(os, "posix_fadvise", None)


class HeldFile(Protocol):
    """A file that may not stay where it is."""

    @property
    def path(self) -> Path:
        """Where it is, if anywhere."""
        ...

    def open(self) -> int:
        """A new descriptor of it."""
        ...


class StoredFile:
    """A file of known size: its descriptor, or a map of it. Closed when the last reference goes."""

    __slots__ = ("address", "bytes", "descriptor", "identity", "map", "path", "scattered")

    def __init__(self, path: str, size: int, held: HeldFile | None = None) -> None:
        self.address = 0
        self.descriptor = -1
        self.map: mmap.mmap | None = None
        self.path = path
        self.scattered = False
        try:
            self.descriptor = held.open() if held else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise MissingShardError(f"{path}: no such file") from error
        except OSError as error:
            raise UnreadableShardError(f"{path}: cannot be opened: {error.strerror}") from error
        status = os.fstat(self.descriptor)
        self.identity = status.st_ino & (1 << 63) - 1, status.st_mtime_ns
        if status.st_size != size:  # a map past the end of a cut file would be a SIGBUS
            raise CorruptShardError(f"{path}: wanted {size} bytes, found {status.st_size}; copy it again or rebuild it")

    def map_whole(self, size: int) -> None:
        """Read through a map of all `size` bytes from now on."""
        try:
            self.map = mmap.mmap(self.descriptor, size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UnreadableShardError(f"{self.path}: cannot be mapped: {error.strerror}") from error
        os.close(self.descriptor)  # the map has its own
        self.descriptor = -1
        self.bytes = np.frombuffer(self.map, dtype=np.uint8)
        self.address = int(self.bytes.__array_interface__["data"][0])

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # held here: at exit its module may be gone first
        if self.descriptor >= 0:
            close(self.descriptor)

    def expect_scattered(self) -> None:
        """Let a fault read its page alone: the kernel would read ahead megabytes for each of them."""
        if self.map is not None and not self.scattered:
            self.map.madvise(mmap.MADV_RANDOM)
            self.scattered = True

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """`size` bytes at `offset`: a view of the map, or a copy from the file."""
        if self.map is not None:
            if self.scattered and size >= _LONG_READ and not self.is_resident(offset, size):
                self.will_need(offset, size)
            return self.bytes[offset : offset + size]
        data = bytearray()
        while len(data) < size:
            piece = os.pread(self.descriptor, size - len(data), offset + len(data))
            if not piece:
                raise UnreadableShardError(f"{self.path}: ends before byte {offset + size}: it was cut while in use")
            data += piece
        return np.frombuffer(data, dtype=np.uint8)

    def will_need(self, offset: int, size: int) -> None:
        """Let the system fetch so many bytes, without waiting for them."""
        if self.map is not None:
            start = offset - offset % mmap.PAGESIZE
            self.map.madvise(mmap.MADV_WILLNEED, start, offset + size - start)
        elif _fadvise is not None:
            _fadvise(self.descriptor, offset, size, os.POSIX_FADV_WILLNEED)

    def is_resident(self, offset: int, size: int) -> bool:
        """Whether all of these bytes are known to be in memory."""
        return self.map is not None and _is_resident(self.address + offset, size)

    def tokens(self, offset: int, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Tokens [start, start + count) of the extent at byte `offset`: a view, or a new array."""
        return self.read(offset + start * dtype.itemsize, count * dtype.itemsize).view(dtype)


def _is_resident(address: int, size: int) -> bool:
    from headrace.storage.residency import is_resident  # noqa: PLC0415  # imports ctypes, which few reads need

    return is_resident(address, size)
