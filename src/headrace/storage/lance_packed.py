"""Pages of Lance files that lie in chunks: bit-packed, or plain behind a short head. Unpacked here, many at once.

A page is a table of chunks (2 or 4 bytes for each: its bytes / 8 - 1 in the upper bits, the logarithm of its values in
the lowest four; 0 for the last chunk, which has what is left) and the chunks. A chunk has a head of 8 bytes (its number
of levels, 0, and the bytes of its values) and its values. Bit-packed ones are 1,024, the last filled up: a word as wide
as the values' type that says how many bits each has, then the bits (`lance_bits`). Where a page has a dictionary
(`lance_dictionary`), its values are numbers of that one's items.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.storage.lance_bits import CHUNK, unpacked
from headrace.storage.lance_dictionary import CODINGS, Dictionary, decoded, fits
from headrace.storage.lance_encoding import PageForm

__all__ = ["HEAD", "Packing", "chunk_offsets", "items_of", "look_up", "packing_of", "unpack", "unpack_chunks"]

HEAD = 8
"""Bytes of a chunk before its values."""
_BITPACKED_LOG = 10
Read = Callable[[int, int], bytes | memoryview | NDArray[np.uint8]]
"""Reads so many bytes from a byte of the file on."""


class Packing(NamedTuple):
    """Where the chunks of a page lie."""

    bitpacked: bool
    table: int
    """Byte of the table of chunks in the file."""
    chunks: int
    wide: bool
    """Whether it has four bytes for each, not two."""
    data: int
    """Byte of the first chunk."""
    data_size: int
    """Bytes of all chunks."""
    log: int
    """Logarithm of the values of a chunk; the last may have fewer."""
    itemsize: int
    """Bytes of a value in the chunks before it was packed."""
    dictionary: Dictionary
    """Has the tokens of which the values are numbers, if there is one."""

    def dtype_of(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Of the values in the chunks of a page of tokens of `dtype`."""
        return np.dtype(f"<u{self.itemsize}") if self.dictionary.items else dtype


def packing_of(
    descriptor: int, form: PageForm, buffers: Sequence[tuple[int, int]], dtype: np.dtype[Any]
) -> Packing | None:
    """The chunks of a page; None where they are not as described above."""
    (table, table_size), (data, data_size) = buffers[:2]
    entry = 4 if form.wide else 2
    words = np.frombuffer(os.pread(descriptor, table_size, table), "<u4" if form.wide else "<u2").astype(np.int64)
    rows, chunks = form.rows or 0, table_size // entry
    if not len(words) or chunks * entry != table_size:
        return None
    sizes, logs = ((words >> 4) + 1) * 8, words & 15
    log = int(logs[0]) if chunks > 1 else _single_log(form, rows)
    whole = (chunks - 1) << log
    sound = bool((logs[:-1] == log).all()) and int(sizes.sum()) == data_size and whole < rows <= whole + (1 << log)
    if form.kind != "blocks":
        sound = sound and log == _BITPACKED_LOG
    else:
        values = np.full(chunks, 1 << log)
        values[-1] = rows - whole
        sound = sound and bool((sizes == HEAD + -(-values * dtype.itemsize // 8) * 8).all())
    dictionary = Dictionary()
    if form.kind == "dictionary":
        (place, size), coding = buffers[2], CODINGS.index(form.coding)
        dictionary = Dictionary(place, size, form.items, coding, form.item_bits)
        sound = sound and fits(dictionary, dtype.itemsize)
    if not sound:
        return None
    itemsize = form.number_bits // 8 or dtype.itemsize
    return Packing(form.kind != "blocks", table, chunks, form.wide, data, data_size, log, itemsize, dictionary)


def _single_log(form: PageForm, rows: int) -> int:
    """The logarithm where there is but one chunk, which does not say it."""
    return _BITPACKED_LOG if form.kind != "blocks" else max(rows - 1, 1).bit_length()


def chunk_offsets(read: Read, packing: Packing) -> NDArray[np.uint32]:
    """Byte of each chunk after the page's first, and of the end, uint32 `(chunks + 1,)`.

    Raises:
        ValueError: the table does not add up to the page.
    """
    entry, dtype = (4, "<u4") if packing.wide else (2, "<u2")
    words = np.frombuffer(read(packing.table, packing.chunks * entry), dtype)
    offsets = np.zeros(packing.chunks + 1, np.uint32)
    np.cumsum(((words >> 4).astype(np.uint32) + 1) * 8, out=offsets[1:])
    if int(offsets[-1]) != packing.data_size:
        raise ValueError("the sizes of its chunks do not add up")
    return offsets


def unpack(read: Read, packing: Packing, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Tokens [start, start + count) of a page, which must exist, at least one.

    Raises:
        ValueError: the chunks are damaged.
    """
    offsets = chunk_offsets(read, packing)
    first, last = start >> packing.log, (start + count - 1) >> packing.log
    begin, end = int(offsets[first]), int(offsets[last + 1])
    data = np.frombuffer(read(packing.data + begin, end - begin), np.uint8)
    at = offsets[first : last + 1].astype(np.int64) - begin
    values = unpack_chunks(data, at, packing, packing.dtype_of(dtype)).reshape(-1)
    within = start - (first << packing.log)
    found = values[within : within + count]
    return look_up(items_of(read, packing, dtype), found) if packing.dictionary.items else found


def items_of(read: Read, packing: Packing, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The dictionary of a page that has one, shape (items,).

    Raises:
        ValueError: it is damaged.
    """
    data = np.frombuffer(read(packing.dictionary.place, packing.dictionary.size), np.uint8)
    return decoded(data, packing.dictionary, dtype)


def look_up(items: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """The items of these numbers, any shape.

    Raises:
        ValueError: there is no such item.
    """
    if numbers.size and int(numbers.max()) >= len(items):
        raise ValueError(f"item {numbers.max()} of a dictionary of {len(items)}")
    return items[numbers]


def unpack_chunks(
    data: NDArray[np.uint8], at: NDArray[np.int64], packing: Packing, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Values of chunks.

    Args:
        data: holds them; at least 8 bytes aligned in itself.
        at: byte of each chunk in it, a multiple of 8, shape (n,).
        packing: of the page, or of any of its kind.
        dtype: of the values in the chunks.

    Returns:
        Shape (n, values a chunk); what is beyond the values of a last chunk is anything.

    Raises:
        ValueError: a chunk says that its values are wider than their type, or it is cut.
    """
    if packing.bitpacked:
        return _unpack_bits(data, at, dtype)
    size = dtype.itemsize << packing.log
    padded = np.concatenate([data, np.zeros(size, np.uint8)])  # the last chunk of a page may be short
    places = (at + HEAD)[:, None] + np.arange(0, size, dtype.itemsize)
    tokens = np.lib.stride_tricks.sliding_window_view(padded, dtype.itemsize)[places]
    return tokens.view(dtype)[..., 0]


def _unpack_bits(data: NDArray[np.uint8], at: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    unsigned = np.dtype(f"<u{dtype.itemsize}")
    words = data[: len(data) // dtype.itemsize * dtype.itemsize].view(unsigned)
    heads = (at + HEAD) // dtype.itemsize
    if len(heads) and int(heads.max()) >= len(words):
        raise ValueError("a chunk is cut")
    widths = words[heads].astype(np.int64)
    bits = dtype.itemsize * 8
    out = np.empty((len(at), CHUNK), unsigned)
    for width in sorted(set(widths.tolist())):  # numpy.unique would import numpy.ma
        those = np.flatnonzero(widths == width)
        size = CHUNK * width // bits
        first = heads[those] + 1
        if width > bits or int(first.max()) + size > len(words):
            raise ValueError(f"a chunk says that its values have {width} bits")
        packed = words[first[:, None] + np.arange(size)]
        out[those] = unpacked(packed, width, unsigned)
    return out.view(dtype)
