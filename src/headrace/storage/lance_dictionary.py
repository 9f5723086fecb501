"""The dictionary of a page of a Lance file whose chunks hold numbers of its items, decoded here.

It is a buffer of the page, of integers as wide as the column's, that lie in one of these ways:

- `plain`: as they are;
- `bits`: packed, all of as many bits, 1,024 at a time, as in `lance_packed` but without a word before them; the items
  after the last 1,024 are packed too, filled up, or are plain, whichever is shorter;
- `chunks`: one chunk as in `lance_packed`, with its word, but without the head;
- `lz4`: plain, then compressed as one LZ4 block behind its uncompressed size, uint32.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.storage.lance_bits import CHUNK, unpacked

__all__ = ["CODINGS", "Coding", "Dictionary", "decoded", "fits"]

Coding = Literal["plain", "bits", "chunks", "lz4"]
CODINGS: tuple[Coding, ...] = ("plain", "bits", "chunks", "lz4")
_LZ4_HEAD = 4


class Dictionary(NamedTuple):
    """Where a dictionary lies, and how."""

    place: int = 0
    """Its byte in the file."""
    size: int = 0
    """Bytes."""
    items: int = 0
    """How many it has; 0 where a page has none."""
    coding: int = 0
    """Place in `CODINGS`."""
    bits: int = 0
    """Of an item that is stored as `bits`."""


def fits(dictionary: Dictionary, itemsize: int) -> bool:
    """Whether its bytes are as many as its items take, in just one way."""
    coding, items, size = CODINGS[dictionary.coding], dictionary.items, dictionary.size
    if not items:
        return False
    if coding == "plain":
        return size == items * itemsize
    if coding == "chunks":
        return items <= CHUNK and itemsize < size <= itemsize + CHUNK * itemsize
    if coding == "lz4":
        return size > _LZ4_HEAD
    whole, rest = divmod(items, CHUNK)
    packed = CHUNK * dictionary.bits // 8
    tails = {packed, rest * itemsize} if rest else {0}
    ambiguous = rest > 0 and len(tails) == 1
    return 0 < dictionary.bits <= itemsize * 8 and not ambiguous and size - whole * packed in tails


def decoded(data: bytes | NDArray[np.uint8], dictionary: Dictionary, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Its items, shape (items,).

    Args:
        data: its bytes.
        dictionary: for which `fits` holds.
        dtype: of the column.

    Raises:
        ValueError: it is damaged.
    """
    coding, items = CODINGS[dictionary.coding], dictionary.items
    unsigned = np.dtype(f"<u{dtype.itemsize}")
    if len(data) != dictionary.size:
        raise ValueError("its dictionary is cut")
    if coding == "lz4":
        data = _decompressed(bytes(data), items * dtype.itemsize)
    words = np.frombuffer(data, unsigned)
    if coding in {"plain", "lz4"}:
        values = words
    elif coding == "chunks":
        width, bits = int(words[0]), dtype.itemsize * 8
        if width > bits or len(words) != 1 + CHUNK * width // bits:
            raise ValueError(f"its dictionary says that its items have {width} bits")
        values = unpacked(words[None, 1:], width, unsigned)[0]
    else:
        packed = CHUNK * dictionary.bits // (dtype.itemsize * 8)
        chunks = items // CHUNK + (len(words) == packed * -(-items // CHUNK) and items % CHUNK > 0)
        head = unpacked(words[: packed * chunks].reshape(chunks, packed), dictionary.bits, unsigned)
        values = np.concatenate([head.reshape(-1), words[packed * chunks :]])
    return values[:items].astype(unsigned, copy=False).view(dtype)


def _decompressed(data: bytes, size: int) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  # heavy; comes with Lance

    if int.from_bytes(data[:_LZ4_HEAD], "little") != size:
        raise ValueError("its dictionary is of another size")
    try:
        return pa.Codec("lz4_raw").decompress(data[_LZ4_HEAD:], size, asbytes=True)
    except OSError as error:
        raise ValueError(f"its dictionary cannot be decompressed: {error}") from error
