"""Pages of Lance files that lie in chunks: bit-packed, or plain behind a short head. Unpacked here, many at once.

A page is a table of chunks (2 or 4 bytes for each: its bytes / 8 - 1 in the upper bits, the logarithm of its values in
the lowest four; 0 for the last chunk, which has what is left) and the chunks. A chunk has a head of 8 bytes (its number
of levels, 0, and the bytes of its values) and its values. Bit-packed ones are 1,024, the last filled up: a word as wide
as the values' type that says how many bits each has, then the bits, in the order of FastLanes (Afroozeh and Boncz, "The
FastLanes Compression Layout", VLDB 2023): 1024 / T lanes of T-bit words, side by side; value r of lane l is number
ORDER[r // 8] x 16 + r % 8 x 128 + l of the chunk.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.storage.lance_encoding import PageForm

__all__ = ["HEAD", "Packing", "chunk_offsets", "packing_of", "unpack", "unpack_chunks"]

HEAD = 8
"""Bytes of a chunk before its values."""
_BITPACKED_LOG = 10
_CHUNK = 1 << _BITPACKED_LOG
_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
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


def packing_of(
    descriptor: int, form: PageForm, buffers: Sequence[tuple[int, int]], dtype: np.dtype[Any]
) -> Packing | None:
    """The chunks of a page; None where they are not as described above."""
    (table, table_size), (data, data_size) = buffers
    entry = 4 if form.wide else 2
    words = np.frombuffer(os.pread(descriptor, table_size, table), "<u4" if form.wide else "<u2").astype(np.int64)
    rows, chunks = form.rows or 0, table_size // entry
    if not len(words) or chunks * entry != table_size:
        return None
    sizes, logs = ((words >> 4) + 1) * 8, words & 15
    log = int(logs[0]) if chunks > 1 else _single_log(form, rows)
    whole = (chunks - 1) << log
    fits = bool((logs[:-1] == log).all()) and int(sizes.sum()) == data_size and whole < rows <= whole + (1 << log)
    if form.kind == "bitpacked":
        fits = fits and log == _BITPACKED_LOG
    else:
        values = np.full(chunks, 1 << log)
        values[-1] = rows - whole
        fits = fits and bool((sizes == HEAD + -(-values * dtype.itemsize // 8) * 8).all())
    return Packing(form.kind == "bitpacked", table, chunks, form.wide, data, data_size, log) if fits else None


def _single_log(form: PageForm, rows: int) -> int:
    """The logarithm where there is but one chunk, which does not say it."""
    return _BITPACKED_LOG if form.kind == "bitpacked" else max(rows - 1, 1).bit_length()


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
    values = unpack_chunks(data, at, packing, dtype)
    within = start - (first << packing.log)
    return values.reshape(-1)[within : within + count]


def unpack_chunks(
    data: NDArray[np.uint8], at: NDArray[np.int64], packing: Packing, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Values of chunks.

    Args:
        data: holds them; at least 8 bytes aligned in itself.
        at: byte of each chunk in it, a multiple of 8, shape (n,).
        packing: of the page, or of any of its kind.
        dtype: of the values.

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
    out = np.empty((len(at), _CHUNK), unsigned)
    for width in sorted(set(widths.tolist())):  # numpy.unique would import numpy.ma
        those = np.flatnonzero(widths == width)
        size = _CHUNK * width // bits
        first = heads[those] + 1
        if width > bits or int(first.max()) + size > len(words):
            raise ValueError(f"a chunk says that its values have {width} bits")
        packed = words[first[:, None] + np.arange(size)]
        out[those] = _unpacked(packed, width, unsigned)
    return out.view(dtype)


def _unpacked(packed: NDArray[Any], width: int, unsigned: np.dtype[Any]) -> NDArray[Any]:
    """Values of chunks that all have so many bits; `packed` of shape (n, 1024 x width / bits of the type)."""
    bits = unsigned.itemsize * 8
    if width == 0:
        return np.zeros((len(packed), _CHUNK), unsigned)
    if width in {8, 16, 32, 64}:  # parts of words that are numbers by themselves
        return packed.view(f"<u{width // 8}")[:, _parts(width, bits)]
    lanes = _CHUNK // bits
    rows = np.arange(bits)
    low, shift = rows * width // bits, (rows * width % bits).astype(unsigned)
    stream = packed.reshape(len(packed), width, lanes)
    values = stream[:, low] >> shift[:, None]
    split = np.flatnonzero(rows * width % bits + width > bits)
    values[:, split] |= stream[:, low[split] + 1] << (unsigned.type(bits) - shift[split])[:, None]
    values &= unsigned.type((1 << width) - 1)
    return values.reshape(len(packed), _CHUNK)[:, _places(bits)]


@cache
def _places(bits: int) -> NDArray[np.intp]:
    """Which (row, lane), row by row, each of the 1,024 values is."""
    lanes = _CHUNK // bits
    rows = np.arange(bits)
    numbers = (np.array(_ORDER)[rows // 8] * 16 + rows % 8 * 128)[:, None] + np.arange(lanes)
    return np.argsort(numbers.reshape(-1), kind="stable")


@cache
def _parts(width: int, bits: int) -> NDArray[np.intp]:
    """Which part of `width` bits each of the 1,024 values is, where they divide the words."""
    lanes, parts = _CHUNK // bits, bits // width
    place = _places(bits)
    row, lane = place // lanes, place % lanes
    return (row // parts * lanes + lane) * parts + row % parts
