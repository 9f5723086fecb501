"""Zstandard files, frame by frame.

The library stops without a word where a file is cut, and returns any amount of data from a few bytes of input. So the
blocks are found here (RFC 8878, section 3.1) and handed over one at a time: a block gives at most 128 KiB.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zstandard import ZstdDecompressionObj

    from headrace.sources.rawfile import RawFile

__all__ = ["FRAME_MAGIC", "is_skippable", "zstd_pieces"]

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after a first byte of 0x50 to 0x5F
_MAGIC_BYTES = 4

MAX_WINDOW = 2**31
"""Largest look-back distance accepted, in bytes: what `zstd --ultra --long=31` writes."""

# Fields of the frame header's descriptor byte.
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04
_RLE_BLOCK = 1
_SKIP_BYTES = 1024 * 1024


def is_skippable(head: bytes) -> bool:
    """Tell whether bytes begin with a skippable frame: user data between frames."""
    return head[1:_MAGIC_BYTES] == _SKIPPABLE_MAGIC and 0x50 <= head[0] <= 0x5F  # noqa: PLR2004 -- the range of the RFC


def zstd_pieces(raw: "RawFile") -> Iterator[bytes]:
    """Yield the content of all frames of a file.

    Raises:
        SourceError: the file ends inside a frame, is damaged, or goes on with something else.
    """
    from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415 -- heavy; only where such a file is read

    decompressor = ZstdDecompressor(max_window_size=MAX_WINDOW)
    try:
        while magic := raw.read(_MAGIC_BYTES):
            if is_skippable(magic):
                _skip(raw, int.from_bytes(_exactly(raw, 4), "little"))
            elif magic == FRAME_MAGIC:
                yield from _frame_pieces(raw, decompressor.decompressobj())
            elif len(magic) < _MAGIC_BYTES:
                raise _ends_early(raw)
            else:
                place = raw.consumed - len(magic)
                raise raw.damaged(
                    f"bytes after the end of the zstd data, at compressed byte {place}, are no zstd frame"
                )
    except ZstdError as error:
        if "not enough memory" in str(error):
            raise MemoryError(f"for the zstd data of {raw.file.label}") from error
        raise raw.damaged(f"damaged zstd data before compressed byte {raw.consumed} ({error})") from error


def _frame_pieces(raw: "RawFile", frame: "ZstdDecompressionObj") -> Iterator[bytes]:
    descriptor = _exactly(raw, 1)
    flags = descriptor[0]
    single_segment = bool(flags & _SINGLE_SEGMENT)
    content_size = _CONTENT_SIZE_BYTES[flags >> 6] or int(single_segment)
    window, dictionary = int(not single_segment), _DICTIONARY_ID_BYTES[flags & 3]
    rest = _exactly(raw, window + dictionary + content_size)
    if any(rest[window : window + dictionary]):
        raise raw.damaged("compressed with a zstd dictionary, which is not read; compress it again without one")
    if window and _window(rest[0]) > MAX_WINDOW:
        raise raw.damaged(
            "looks back more than 2 GiB, which is not read; compress it again with zstd --long=31 or less"
        )
    yield frame.decompress(FRAME_MAGIC + descriptor + rest)
    last = False
    while not last:
        header = _exactly(raw, 3)
        fields = int.from_bytes(header, "little")
        last, kind, size = bool(fields & 1), (fields >> 1) & 3, fields >> 3
        yield frame.decompress(header + _exactly(raw, 1 if kind == _RLE_BLOCK else size))
    if flags & _CHECKSUM:
        yield frame.decompress(_exactly(raw, 4))
    if not frame.eof:
        raise raw.damaged(f"damaged zstd data before compressed byte {raw.consumed} (the frame does not end)")


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)


def _skip(raw: "RawFile", count: int) -> None:
    while count:
        count -= len(_exactly(raw, min(count, _SKIP_BYTES)))


def _exactly(raw: "RawFile", count: int) -> bytes:
    data = raw.read(count)
    if len(data) < count:
        raise _ends_early(raw)
    return data


def _ends_early(raw: "RawFile") -> Exception:
    return raw.damaged(f"the zstd stream ends early, at compressed byte {raw.consumed}; fetch the file again")
