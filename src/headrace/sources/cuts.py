"""Cuts of large files of JSON lines: each holds the lines that begin in its range of bytes."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from headrace.sources.documents import Drop
from headrace.sources.files import Cut, SourceFile, SourceShard
from headrace.sources.rawfile import Observer, RawFile, open_raw

__all__ = ["CutStream", "first_row", "in_file", "lines_before", "open_cut"]

_PIECE = 1024 * 1024
_TAIL_PIECE = 64 * 1024


class CutStream:
    """The whole lines that begin in a cut: a `ByteStream` that starts behind what belongs to the cut before.

    Attributes:
        cut: which one.
        start: byte of the file at which its first line begins; the cut's `stop` where none does.
        head: first bytes of the file.
    """

    def __init__(self, raw: RawFile, cut: Cut, observe: Observer | None) -> None:
        self.cut = cut
        self.head = raw.read_at(0, 4)
        self._raw = raw
        self._observe = observe
        self._waiting = b""
        self._ended = False
        self.start = self._skip()
        self._place = self.start
        """Of the next byte."""

    @property
    def consumed(self) -> int:
        """Bytes of the cut read so far; at the end its size."""
        return self._raw.consumed

    def read(self, count: int, /) -> bytes:
        """Return 1 to `count` (> 0) bytes, or none at the end: see `ByteStream`."""
        data, self._waiting = self._waiting[:count], self._waiting[count:]
        data = data or self._raw.read(count) or self._tail(count)
        self._place += len(data)
        if self._observe is not None and data:
            self._observe(self._raw.file, data)
        return data

    def _skip(self) -> int:
        """Read to the first line that begins in the cut, and return where it does."""
        cut = self.cut
        if not cut.start or self._raw.read_at(cut.start - 1, 1) == b"\n":
            return cut.start
        while data := self._raw.read(_TAIL_PIECE):
            end = data.find(b"\n") + 1
            place = cut.start + self._raw.consumed - len(data) + end
            if end and place < cut.stop:
                self._waiting = data[end:]
                return place
        self._ended = True
        return cut.stop

    def _tail(self, count: int) -> bytes:
        """Read on behind the cut, to the end of the line that goes over its end."""
        if self._ended:
            return b""
        stop = self.cut.stop
        if self._place == stop and self._raw.read_at(stop - 1, 1) == b"\n":
            self._ended = True
            return b""
        data = self._raw.read_at(self._place, min(count, _TAIL_PIECE))
        end = data.find(b"\n") + 1
        self._ended = end > 0 or not data
        if self._ended:
            self._raw.check_unchanged()
        return data[:end] if end else data


@contextmanager
def open_cut(file: SourceFile, cut: Cut, observe: Observer | None = None) -> Generator[CutStream]:
    """Open a file for one read of the lines that begin in a cut of it; `observe` sees the bytes of these lines.

    Raises:
        DamagedFileError: the file cannot be opened, or was written to since it was listed. Reading raises it too.
    """
    with open_raw(file, cut=cut) as raw:
        raw.check_unchanged()
        yield CutStream(raw, cut, observe)


def lines_before(file: SourceFile, place: int) -> int:
    """Count the lines that begin before a byte of a file that is not compressed: it is read up to there.

    Raises:
        DamagedFileError: the file cannot be read.
    """
    count, left = int(place > 0), place - 1
    with open_raw(file) as raw:
        while left > 0 and (data := raw.read_at(place - 1 - left, min(left, _PIECE))):
            count += data.count(b"\n")
            left -= len(data)
    return count


def in_file(shard: SourceShard, drops: Sequence[Drop]) -> list[Drop]:
    """Drops of a source shard with the lines of their file, which are counted now if the reader did not know them."""
    if all(drop.row < 0 for drop in drops):
        return list(drops)
    base = first_row(shard)
    return [replace(drop, row=drop.row + base) if drop.row >= 0 else drop for drop in drops]


def first_row(shard: SourceShard) -> int:
    """The row of the file from which on a source shard's reader counts: lines that only who asks for them counts."""
    if shard.cut is None or shard.cut.row_base is not None:
        return 0
    return lines_before(shard.files[0], shard.cut.start)
