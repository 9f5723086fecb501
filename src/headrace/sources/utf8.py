"""Checks on raw bytes that both readers share."""

import codecs

__all__ = ["BOM", "first_invalid_utf8", "wide_encoding"]

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
