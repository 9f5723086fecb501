"""The text around a fault, for those who ask to see it: documents are private, and reports hold none of them otherwise."""

from collections.abc import Iterable

from headrace.errors import SourceError
from headrace.sources.compressed import ByteStream, open_stream
from headrace.sources.files import SourceFile

__all__ = ["EXCERPT_CHARACTERS", "excerpts"]

EXCERPT_CHARACTERS = 160
"""Longest excerpt, what stands for control characters included; the dots where it was cut come on top."""

_BEFORE, _AFTER = 40, 480
"""Bytes looked at on either side of a fault."""
_PIECE = 64 * 1024


def excerpts(file: SourceFile, places: Iterable[int]) -> dict[int, str]:
    r"""Read a file once more, up to the last of some places, and return a part of the line that each lies in.

    Args:
        file: a listed file.
        places: bytes of the decompressed stream.

    Returns:
        One line of printable text by place: control characters are `\x00`, what is no UTF-8 is `\xff`. A place that the
        file no longer has, or that lies behind damage, is left out.
    """
    found: dict[int, str] = {}
    try:
        with open_stream(file) as stream:
            window = _Window(stream)
            for place in sorted(set(places)):
                start, data = window.around(place)
                if data:
                    found[place] = _shown(data, place - start, first=start == 0)
    except SourceError:
        pass  # the report has said so, or the file has changed since; what was read is right
    return found


class _Window:
    """The part of a stream around a place; places come in ascending order."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._start = 0
        self._data = b""

    def around(self, place: int) -> tuple[int, bytes]:
        """Return where the part begins, and its bytes."""
        start = max(place - _BEFORE, 0)
        self._forget(start)
        while self._start + len(self._data) < place + _AFTER and (piece := self._stream.read(_PIECE)):
            self._data += piece
            self._forget(start)
        return self._start, self._data[: place + _AFTER - self._start]

    def _forget(self, start: int) -> None:
        gone = min(max(start - self._start, 0), len(self._data))
        self._data = self._data[gone:]
        self._start += gone


def _shown(data: bytes, place: int, *, first: bool) -> str:
    start = data.rfind(b"\n", 0, place) + 1
    stop = data.find(b"\n", place)
    before = "" if start or first else "..."
    line = data[start : stop if stop >= 0 else len(data)]
    if before:  # the window may begin inside a character
        line = line.lstrip(bytes(range(0x80, 0xC0)))
    text = "".join(map(_printable, line.decode(errors="backslashreplace").rstrip("\r")))
    return before + (text if len(text) <= EXCERPT_CHARACTERS else text[:EXCERPT_CHARACTERS] + "...")


def _printable(character: str) -> str:
    code = ord(character)
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 -- Python's own spelling
