"""Checks on raw bytes that both readers share."""

import codecs

import numpy as np

__all__ = ["BOM", "first_invalid_utf8", "unmarked_wide_encoding", "wide_encoding"]

BOM = codecs.BOM_UTF8
"""The UTF-8 byte order mark, 3 bytes."""

PIECE = 64 * 1024
"""Bytes decoded at a time: the decoded characters stay in the cache, which more than doubles the speed."""

_WIDE_BOMS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)

_LOOKED_AT = 4096
"""Bytes by which a wide encoding without a byte order mark is recognized; fewer than `_LEAST` say nothing."""
_LEAST = 8
_SPACE = 0x20
_FEW, _MOST = 0.6, 0.9
"""Shares of the bytes at every second place that are control characters."""


def first_invalid_utf8(data: bytes, piece: int = PIECE) -> int:
    """Return the offset of the first byte that is not valid UTF-8, or -1.

    Strict: encoded surrogates and overlong forms are invalid. `piece` is the number of bytes decoded at a time, >= 4.
    """
    if data.isascii():
        return -1
    view = memoryview(data)
    start, length = 0, len(data)
    while start < length:
        stop = min(start + piece, length)
        try:
            # A character cut by the end of a piece is left for the next one.
            start += codecs.utf_8_decode(view[start:stop], "strict", stop == length)[1]
        except UnicodeDecodeError as error:
            return start + error.start
    return -1


def wide_encoding(head: bytes) -> str | None:
    """Return `UTF-16` or `UTF-32` where the first bytes of a file are that encoding's byte order mark."""
    return next((name for mark, name in _WIDE_BOMS if head.startswith(mark)), None)


def unmarked_wide_encoding(head: bytes) -> str | None:
    """Return `UTF-16` or `UTF-32` where bytes look like text of that encoding without a byte order mark.

    Text of most scripts, English among them, is valid UTF-8 then: a control character, NUL most often, between each two
    letters. No UTF-8 text looks so. Scripts with no such characters are not valid UTF-8 in a wide encoding.
    """
    count = min(len(head), _LOOKED_AT) & ~3
    if count < _LEAST or b"\0" not in head[:count]:
        return None
    units = np.frombuffer(head, np.uint8, count).reshape(-1, 4)
    nul = (units == 0).mean(axis=0)
    # Wherever in a character the bytes begin, as those of a line do that follows a line feed of its first byte alone.
    if any(nul[place] == nul[place - 1] == 1 for place in range(4)) and nul.min() < _FEW:
        return "UTF-32"
    low = (units < _SPACE).mean(axis=0)
    first, second = (low[0] + low[2]) / 2, (low[1] + low[3]) / 2
    return "UTF-16" if (first > _MOST and second < _FEW) or (second > _MOST and first < _FEW) else None
