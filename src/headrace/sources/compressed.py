"""Files as streams of decompressed bytes: all members, frames and streams of a file, and an error where it is cut."""

import bz2
import lzma
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol, cast

from isal import isal_zlib

from headrace.sources.ahead import made_ahead
from headrace.sources.files import Compression, SourceFile
from headrace.sources.rawfile import READ_BYTES, Observer, RawFile, open_raw
from headrace.sources.zstd import FRAME_MAGIC, is_skippable, zstd_pieces

__all__ = ["ByteStream", "compression_of", "open_stream", "read_all"]

PIECE_BYTES = 512 * 1024
"""Most bytes that are decompressed at a time, however well they were compressed; and about what is given at a time."""
_PIECES_AHEAD = 16
"""Somewhat more than a batch: the next one is decompressed while this one is encoded."""

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_BZ2_MAGIC = b"BZh"
_GZIP_ERROR = cast("type[Exception]", isal_zlib.error)  # its stub calls it an instance
_GZIP_FORMAT = isal_zlib.MAX_WBITS | 16
_XZ_PADDING_UNIT = 4


class ByteStream(Protocol):
    """The decompressed bytes of one file, read once from start to end."""

    @property
    def consumed(self) -> int:
        """Bytes on disk read so far; at the end the size of the file."""
        ...

    def read(self, count: int, /) -> bytes:
        """Return 1 to `count` (> 0) bytes, or none at the end.

        Raises:
            SourceError: the file ends early, is damaged or has changed since it was listed.
        """
        ...


def compression_of(head: bytes) -> Compression | None:
    """Return how a file is compressed, judged by its first bytes (six are enough)."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    if head.startswith(FRAME_MAGIC) or is_skippable(head):
        return "zstd"
    if head.startswith(_BZ2_MAGIC) and head[3:4].isdigit():
        return "bz2"
    return "xz" if head.startswith(_XZ_MAGIC) else None


@contextmanager
def open_stream(
    file: SourceFile, observe: Observer | None = None, *, buffer_bytes: int = READ_BYTES
) -> Generator[ByteStream]:
    """Open a listed file for one read of its decompressed bytes; `observe` sees the bytes as they lie on disk.

    At least `buffer_bytes` are read from disk at a time: whoever needs only the start of a file asks for few. Whoever
    observes reads it whole: then a thread decompresses a little ahead of that.

    Raises:
        SourceError: the file cannot be opened. Reading raises it too, see `ByteStream.read`.
    """
    if file.compression is None:
        with open_raw(file, observe, buffer_bytes) as raw:
            yield raw
        return
    seen: list[bytes] = []

    def keep(_: SourceFile, data: bytes) -> None:
        seen.append(data)

    with open_raw(file, observe and keep, buffer_bytes) as raw:
        pieces = _READERS[file.compression](raw)
        if observe is None:
            yield _Pieces(_parts(raw, pieces, seen, least=1))
            return
        with made_ahead(_parts(raw, pieces, seen, least=PIECE_BYTES), _PIECES_AHEAD) as parts:
            yield _Pieces(parts, partial(observe, file))


def read_all(stream: ByteStream, count: int) -> bytes:
    """Return `count` bytes, fewer only at the end: what is long is so not copied for each of its pieces.

    Raises:
        SourceError: see `ByteStream.read`.
    """
    parts: list[bytes] = []
    while count > 0 and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class _Part(NamedTuple):
    """Some of a file."""

    data: bytes
    """Decompressed."""
    seen: list[bytes]
    """As they lie on disk."""
    consumed: int
    """Bytes on disk read until then."""


def _parts(raw: RawFile, pieces: Iterator[bytes], seen: list[bytes], *, least: int) -> Iterator[_Part]:
    """Put pieces together, until they are `least` bytes; what was read before a fault comes before it."""
    some: list[bytes] = []
    fault: Exception | None = None
    try:
        for piece in pieces:
            some.append(piece)
            if sum(map(len, some)) >= least:
                yield _Part(b"".join(some), seen.copy(), raw.consumed)
                some = []
                seen.clear()
    except Exception as error:  # noqa: BLE001  # raised below
        fault = error
    yield _Part(b"".join(some), seen.copy(), raw.consumed)
    if fault is not None:
        raise fault


class _Pieces:
    """A stream cut from pieces of any length; `observe` sees what they were read from when they are taken."""

    def __init__(self, parts: Iterator[_Part], observe: Callable[[bytes], None] | None = None) -> None:
        self.consumed = 0
        self._observe = observe
        self._pieces = self._taken(parts)
        self._piece = b""
        self._start = 0

    def _taken(self, parts: Iterator[_Part]) -> Iterator[bytes]:
        for part in parts:
            if self._observe is not None:
                for data in part.seen:
                    self._observe(data)
            self.consumed = part.consumed
            yield part.data

    def read(self, count: int, /) -> bytes:
        while self._start == len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._piece, self._start = piece, 0
        start, self._start = self._start, min(self._start + count, len(self._piece))
        return self._piece[start : self._start]


def _gzip_pieces(raw: RawFile) -> Iterator[bytes]:
    data = raw.read(READ_BYTES)
    while data:
        member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
        while not member.eof:
            data = data or raw.read(READ_BYTES)
            if not data:
                raise _ends_early(raw, "gzip")
            try:
                piece = member.decompress(data, PIECE_BYTES)
            except _GZIP_ERROR as error:
                raise _damaged(raw, "gzip", error) from error
            data = member.unconsumed_tail
            yield piece
        data = _after_padding(raw, member.unused_data)[0]
        if not _GZIP_MAGIC.startswith(data[:2]):
            raise _trailing(raw, "gzip", data)


def _bz2_pieces(raw: RawFile) -> Iterator[bytes]:
    data = raw.read(READ_BYTES)
    while data:
        data = yield from _stream_pieces(raw, "bz2", bz2.BZ2Decompressor(), data)
        data = data or raw.read(READ_BYTES)
        if not _BZ2_MAGIC.startswith(data[:3]):
            raise _trailing(raw, "bz2", data)


def _xz_pieces(raw: RawFile) -> Iterator[bytes]:
    data = raw.read(READ_BYTES)
    while data:
        data = yield from _stream_pieces(raw, "xz", lzma.LZMADecompressor(lzma.FORMAT_XZ), data)
        data, padding = _after_padding(raw, data)
        if padding % _XZ_PADDING_UNIT or not _XZ_MAGIC.startswith(data[:6]):
            raise _trailing(raw, "xz", data)


def _stream_pieces(
    raw: RawFile, name: str, stream: bz2.BZ2Decompressor | lzma.LZMADecompressor, data: bytes
) -> Iterator[bytes]:
    """Yield one stream's content, and return the bytes read beyond its end."""
    while not stream.eof:
        if stream.needs_input and not data:
            data = raw.read(READ_BYTES)
            if not data:
                raise _ends_early(raw, name)
        try:
            piece = stream.decompress(data, PIECE_BYTES)
        except (OSError, lzma.LZMAError) as error:
            raise _damaged(raw, name, error) from error
        data = b""
        yield piece
    return stream.unused_data


def _after_padding(raw: RawFile, data: bytes) -> tuple[bytes, int]:
    """Skip zero bytes; return what follows (nothing at the end of the file) and how many there were."""
    padding = 0
    while True:
        rest = data.lstrip(b"\0")
        padding += len(data) - len(rest)
        if rest:
            return rest, padding
        data = raw.read(READ_BYTES)
        if not data:
            return b"", padding


def _ends_early(raw: RawFile, name: str) -> Exception:
    return raw.damaged(f"the {name} stream ends early, at compressed byte {raw.consumed}; fetch the file again")


def _damaged(raw: RawFile, name: str, error: Exception) -> Exception:
    return raw.damaged(f"damaged {name} data before compressed byte {raw.consumed} ({error})")


def _trailing(raw: RawFile, name: str, data: bytes) -> Exception:
    place = raw.consumed - len(data)
    return raw.damaged(f"bytes after the end of the {name} data, at compressed byte {place}, are no {name} data")


_READERS: dict[Compression, Callable[[RawFile], Iterator[bytes]]] = {
    "gzip": _gzip_pieces,
    "zstd": zstd_pieces,
    "bz2": _bz2_pieces,
    "xz": _xz_pieces,
}
