"""Files whose formats are read here and there, while all of their bytes pass by in order as well."""

import io

from headrace.sources.rawfile import RawFile

__all__ = ["PlacedReads", "follow", "follow_to_end"]

_READ_BYTES = 1024 * 1024


class PlacedReads(io.RawIOBase):
    """An open file as one that can be sought in, beside its sequential reads; what pyarrow reads from."""

    def __init__(self, raw: RawFile) -> None:
        super().__init__()
        self._raw = raw
        self._place = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought in."""
        return True

    def tell(self) -> int:
        """The place of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the place of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._raw.file.size}[whence]
        self._place = max(base + offset, 0)
        return self._place

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        left = max(self._raw.file.size - self._place, 0)
        data = self._raw.read_at(self._place, left if size is None or size < 0 else min(size, left))
        self._place += len(data)
        return data


def follow(raw: RawFile, done: int, total: int) -> None:
    """Let the bytes pass by up to the share of them that is read: they come from the page cache, or go there."""
    goal = raw.size * done // max(total, 1)
    while raw.consumed < goal and raw.read(min(_READ_BYTES, goal - raw.consumed)):
        pass


def follow_to_end(raw: RawFile) -> None:
    """Let the rest pass by.

    Raises:
        DamagedFileError: the file has changed since it was listed or opened.
    """
    while raw.read(_READ_BYTES):
        pass
