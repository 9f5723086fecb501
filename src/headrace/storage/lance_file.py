"""Where the pages of a Lance 2.0 data file lie, read without Lance.

Used for files that this package wrote, whose every byte is covered by hashes: what is read wrongly does not pass them.
Whatever another writer may have made goes through Lance itself (`lance_pages`).
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CorruptShardError, MissingShardError, UnreadableShardError
from headrace.protobuf import fields, integers

__all__ = ["LanceFile", "Page", "read_lance_file"]

_FOOTER = struct.Struct("<QQQIIHH4s")
"""Starts of the columns' metadata, of the table of these and of that of the buffers; counts of both; version; magic."""
_PLACE = struct.Struct("<QQ")
_VERSION = (0, 3)
"""What 2.0 calls itself in the footer."""
_MOST_BYTES = 1 << 30
"""Of one piece of metadata: more is damage."""


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive rows of a column."""

    rows: int
    buffers: tuple[tuple[int, int], ...]
    """Byte offset and size of each."""


@dataclass(frozen=True, slots=True)
class LanceFile:
    """The places of everything in a data file."""

    path: Path
    size: int
    """Bytes."""
    columns: tuple[tuple[Page, ...], ...]
    buffers: tuple[tuple[int, int], ...]
    """Byte offset and size of the global buffers; the first is the schema."""

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`.

        Raises:
            CorruptShardError: the file ends before.
        """
        return _read(self.path, offset, size)


def read_lance_file(path: Path) -> LanceFile:
    """The places of everything in a data file.

    Raises:
        MissingShardError, UnreadableShardError: there is no such file, or it cannot be read.
        CorruptShardError: it is no whole data file of version 2.0.
    """
    try:
        size = path.stat().st_size
        return _parsed(path, size)
    except FileNotFoundError as error:
        raise MissingShardError(f"{path}: no such file") from error
    except CorruptShardError:
        raise
    except OSError as error:
        raise UnreadableShardError(f"{path}: cannot be read: {error.strerror}") from error
    except (IndexError, ValueError, struct.error, OverflowError) as error:
        raise CorruptShardError(f"{path}: is no whole Lance file: its metadata is damaged ({error})") from error


def _parsed(path: Path, size: int) -> LanceFile:
    if size < _FOOTER.size:
        raise CorruptShardError(f"{path}: is no Lance file: it has {size} bytes")
    footer = _FOOTER.unpack(_read(path, size - _FOOTER.size, _FOOTER.size))
    _, column_table, buffer_table, buffers, columns, major, minor, magic = footer
    if magic != b"LANC" or (major, minor) != _VERSION:
        raise CorruptShardError(f"{path}: is no whole Lance file of version 2.0: it ends in {footer[5:]}")
    found = tuple(
        tuple(_pages(_read(path, at, length), size)) for at, length in _places(path, column_table, columns, size)
    )
    return LanceFile(path, size, found, tuple(_places(path, buffer_table, buffers, size)))


def _places(path: Path, start: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """The entries of a table of offsets and sizes."""
    _require_inside(start, count * _PLACE.size, size)
    for at, length in _PLACE.iter_unpack(_read(path, start, count * _PLACE.size)):
        _require_inside(at, length, size)
        yield at, length


def _require_inside(offset: int, length: int, size: int) -> None:
    if length > _MOST_BYTES or offset + length > size:
        raise ValueError(f"bytes [{offset}, {offset + length}) of {size}")


def _pages(column: bytes, size: int) -> Iterator[Page]:
    """Of a column's metadata: field 2 is a page, whose fields 1 and 2 are offsets and sizes of buffers, and 3 its rows."""
    for number, value in fields(column):
        if number == 2 and isinstance(value, bytes):  # noqa: PLR2004  # as the docstring says
            page = dict(fields(value))
            pairs = zip(integers(page.get(1, b"")), integers(page.get(2, b"")), strict=True)
            buffers = tuple(pairs)
            for offset, length in buffers:
                if offset + length > size:
                    raise ValueError(f"a page at bytes [{offset}, {offset + length}) of {size}")
            rows = page.get(3, 0)
            if not isinstance(rows, int):
                raise ValueError("a page without a number of rows")  # the file is damaged
            yield Page(rows, buffers)


def _read(path: Path, offset: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray()
        while len(data) < size:
            piece = os.pread(descriptor, size - len(data), offset + len(data))
            if not piece:
                raise CorruptShardError(f"{path}: is truncated: it ends before byte {offset + size}")
            data += piece
        return bytes(data)
    finally:
        os.close(descriptor)
