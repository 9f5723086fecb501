"""Where the documents of a corpus end: one array over all shards, of which memory holds only what is looked at.

Document indexes lie in the shards, to be read a shard at a time; who asks for many documents all over a corpus needs
them as one. It is made once, 8 bytes a document, in the user's cache folder, and mapped from there by every process.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.storage.atomic import fresh_name, publish
from headrace.storage.user_cache import cached_file

__all__ = ["document_ends"]

HELD = 65_536
"""Most documents whose ends are simply kept in memory (512 KiB)."""
_MAGIC = b"headrace document ends 2\n"
_HEADER = struct.Struct("<32s32sQ")
"""Magic, fingerprint, number of documents; then their ends, int64, and the crc32 of these."""
_CRC = struct.Struct("<I")
_MOST_CHECKED = 1 << 30
"""Bytes of ends up to which these are compared with their checksum: more would take long each time."""


def document_ends(
    count: int, pieces: Callable[[], Iterable[NDArray[np.int64]]], *, fingerprint: str | None
) -> NDArray[np.int64]:
    """The ends of all documents.

    Args:
        count: of documents.
        pieces: gives the ends, in order, piece by piece; called if they are not at hand.
        fingerprint: of the corpus, 64 hex digits; None where its content is not known well enough to keep anything.

    Returns:
        int64 `(count,)`, read-only.
    """
    if count <= HELD:
        return _held(pieces)
    header = _HEADER.pack(_MAGIC, bytes.fromhex(fingerprint or ""), count)
    path = cached_file("documents", header) if fingerprint else None
    if path is None:
        return _unnamed(count, header, pieces)
    found = _load(path, count, header)
    if found is not None:
        return found
    try:
        return _named(path, count, header, pieces)
    except OSError:  # the cache is a convenience; a full or read-only disk is no reason to fail
        return _unnamed(count, header, pieces)


def _named(
    path: Path, count: int, header: bytes, pieces: Callable[[], Iterable[NDArray[np.int64]]]
) -> NDArray[np.int64]:
    """Keep the ends in a file for all processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_name(path)
    try:
        with partial.open("xb") as file:
            _write(file, header, pieces)
        publish(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    with path.open("rb") as file:
        return _map(file, count)


def _unnamed(count: int, header: bytes, pieces: Callable[[], Iterable[NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Keep the ends in a file that goes with the process, or where there is room for none, in its memory."""
    import tempfile  # noqa: PLC0415  # of what it loads, opening a corpus needs nothing

    try:
        with tempfile.TemporaryFile() as file:
            _write(file, header, pieces)
            file.flush()
            return _map(file, count)
    except OSError:
        return _held(pieces)


def _held(pieces: Callable[[], Iterable[NDArray[np.int64]]]) -> NDArray[np.int64]:
    ends = np.concatenate([np.empty(0, np.int64), *pieces()])
    ends.flags.writeable = False
    return ends


def _write(file: IO[bytes], header: bytes, pieces: Callable[[], Iterable[NDArray[np.int64]]]) -> None:
    file.write(header)
    crc = 0
    for piece in pieces():
        ends = np.ascontiguousarray(piece, "<i8")
        crc = crc32(ends.data, crc)
        file.write(ends.data)
    file.write(_CRC.pack(crc))


def _load(path: Path, count: int, header: bytes) -> NDArray[np.int64] | None:
    """The ends in a file; None where there is none, or it is damaged or of another corpus."""
    size = _HEADER.size + 8 * count + _CRC.size
    try:
        with path.open("rb") as file:
            if file.read(_HEADER.size) != header or os.fstat(file.fileno()).st_size != size:
                return None
            ends = _map(file, count)
            stored = os.pread(file.fileno(), _CRC.size, size - _CRC.size)
            whole = ends.nbytes > _MOST_CHECKED or _CRC.pack(crc32(ends.data)) == stored
            return ends if whole else None
    except OSError:
        return None


def _map(file: IO[bytes], count: int) -> NDArray[np.int64]:
    ends = np.memmap(file, "<i8", mode="r", offset=_HEADER.size, shape=(count,))
    return ends.view(np.ndarray)
