"""The bytes of a file as they lie on disk, counted, and compared with the size that was listed."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, BinaryIO

from headrace.errors import SourceError
from headrace.sources.files import Cut, SourceFile

__all__ = ["DamagedFileError", "Observer", "RawFile", "open_raw"]

Observer = Callable[[SourceFile, bytes], None]
"""Receives every piece of a file, in order, as it lies on disk."""

READ_BYTES = 128 * 1024


class DamagedFileError(SourceError):
    """A file that cannot be read to its end as it was listed.

    Args:
        label: of the file.
        what: is wrong with it, and what to do.
    """

    def __init__(self, label: str, what: str) -> None:
        self.label = label
        self.what = what
        super().__init__(f"{label}: {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.label, self.what)


class RawFile:
    """Sequential reads of one open file, or of a cut of it; all sizes and offsets are bytes on disk.

    Attributes:
        size: bytes to be read in sequence, and ...
        consumed: ... how many of them were read.
    """

    def __init__(
        self, file: SourceFile, handle: BinaryIO, observe: Observer | None = None, cut: Cut | None = None
    ) -> None:
        self.file = file
        self.size = cut.size if cut else file.size
        self.consumed = 0
        self._handle = handle
        self._observe = observe
        self._start = cut.start if cut else 0
        self._middle = cut is not None and cut.stop < file.size
        self._modified = cut.modified if cut else os.fstat(handle.fileno()).st_mtime_ns
        if cut:
            handle.seek(cut.start)

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes, fewer only at the end of the file or cut.

        Raises:
            DamagedFileError: the file cannot be read, has another size than when it was listed, or was written to since
                it was opened (of a cut file: since it was listed).
        """
        if self._middle:
            return self._read_middle(count)
        try:
            data = self._handle.read(count)
        except OSError as error:
            raise self.damaged(f"cannot be read ({error.strerror or error})") from error
        self.consumed += len(data)
        # Found on either side of the end: what was appended is read as well, what was cut off leaves a shorter read.
        if self.consumed > self.size or (len(data) < count and self.consumed != self.size):
            found = os.fstat(self._handle.fileno()).st_size
            if found == self.file.size:  # as in /proc
                raise self.damaged(f"its size is {found} bytes, but {self.consumed} came out of it; read a copy")
            raise self._changed(f"{self.file.size} bytes when it was listed, {found} now")
        if len(data) < count and os.fstat(self._handle.fileno()).st_mtime_ns != self._modified:
            raise self._changed("something wrote to it and left its size alone")
        if self._observe is not None and data:
            self._observe(self.file, data)
        return data

    def _read_middle(self, count: int) -> bytes:
        """Read from a cut that others follow; its last piece is given once the file is known to be what it was."""
        count = min(count, self.size - self.consumed)
        data = self.read_at(self._start + self.consumed, count)
        self.consumed += len(data)
        if len(data) < count or (count and self.consumed == self.size):
            self.check_unchanged()
        if self._observe is not None and data:
            self._observe(self.file, data)
        return data

    def read_at(self, place: int, count: int) -> bytes:
        """Return the `count` bytes at a place, fewer only at the end, besides the sequential reads and unobserved.

        Raises:
            DamagedFileError: the file cannot be read.
        """
        parts: list[bytes] = []
        try:
            while count > 0 and (data := os.pread(self._handle.fileno(), count, place)):
                parts.append(data)
                place, count = place + len(data), count - len(data)
        except OSError as error:
            raise self.damaged(f"cannot be read ({error.strerror or error})") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_unchanged(self) -> None:
        """Raise DamagedFileError where the file is not what it was when it was listed and opened."""
        status = os.fstat(self._handle.fileno())
        if status.st_size != self.file.size:
            raise self._changed(f"{self.file.size} bytes when it was listed, {status.st_size} now")
        if status.st_mtime_ns != self._modified:
            raise self._changed("something wrote to it and left its size alone")

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error that says what is wrong with this file."""
        return DamagedFileError(self.file.label, what)

    def _changed(self, how: str) -> DamagedFileError:
        return self.damaged(f"changed while it was read: {how}. Build again when nothing writes to it.")


@contextmanager
def open_raw(
    file: SourceFile, observe: Observer | None = None, buffer_bytes: int = READ_BYTES, *, cut: Cut | None = None
) -> Generator[RawFile]:
    """Open a listed file, or a cut of it, for one sequential read, of at least `buffer_bytes` at a time.

    Raises:
        DamagedFileError: the file cannot be opened any more.
    """
    try:
        handle = file.path.open("rb", buffering=buffer_bytes)
    except OSError as error:
        raise DamagedFileError(file.label, f"cannot be opened ({error.strerror or error})") from error
    with handle:
        yield RawFile(file, handle, observe, cut)
