"""What the binary files that can be derived again have in common: a checksum at their end, and that they are mapped."""

import mmap
from collections.abc import Iterable
from pathlib import Path

from isal.isal_zlib import crc32

__all__ = ["is_sealed", "map_file", "seal", "unsealed"]

_SIZE = 4
"""Bytes of the checksum."""


def seal(parts: Iterable[bytes]) -> bytes:
    """The parts one behind the other, and the crc32 of them all."""
    body = b"".join(parts)
    return body + crc32(body).to_bytes(_SIZE, "little")


def is_sealed(data: bytes | memoryview) -> bool:
    """Whether the checksum at the end is that of all before it."""
    return len(data) > _SIZE and crc32(data[:-_SIZE]) == int.from_bytes(data[-_SIZE:], "little")


def unsealed(data: bytes, magic: bytes) -> bytes | None:
    """What is sealed behind `magic`; None where the bytes are not whole, or of another kind."""
    return data[len(magic) : -_SIZE] if data.startswith(magic) and is_sealed(data) else None


def map_file(path: Path) -> memoryview | None:
    """The bytes of a file, as a map of it; None where there is none, or it is empty or cannot be read."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None
