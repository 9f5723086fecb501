"""Text files cut into documents, at blank lines, lines of one wording, or a string."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace.errors import SourceError
from headrace.sources.compressed import ByteStream, open_stream, read_all
from headrace.sources.decoder import BATCH_BYTES, BLOCK_BYTES
from headrace.sources.documents import WHOLE_FILE, BadInput, BatchBuilder, DocumentBatch, Drop
from headrace.sources.files import CUT_BYTES, SourceFile
from headrace.sources.rawfile import Observer
from headrace.sources.utf8 import BOM, first_invalid_utf8, unmarked_wide_encoding, wide_encoding

__all__ = ["BLANK_LINES", "NO_SPLIT", "check_split", "read_split"]

NO_SPLIT, BLANK_LINES = "none", "blank-lines"
_LINE = "line:"


class _Piece(NamedTuple):
    """A document as it lies in its file."""

    text: bytes
    row: int
    byte: int


def check_split(split: str) -> None:
    """Raise SourceError where this is no way to cut texts."""
    if not split.removeprefix(_LINE):
        raise SourceError(
            f"wanted none, blank-lines, line:TEXT (a line of this text alone) or any other text to cut at, got {split!r}",
            usage=True,
        )


def read_split(
    file: SourceFile,
    *,
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    block_bytes: int = BLOCK_BYTES,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
    cut_bytes: int | None = CUT_BYTES,
) -> Iterator[DocumentBatch]:
    """Yield the documents of a text file that is cut as its `split` says; arguments and errors are those of `read_jsonl`.

    `rows` are the lines on which documents begin, from 0, `offsets` their first bytes. Separators belong to no document. A
    document between lines (`blank-lines`, `line:TEXT`) does not hold the end of its last line; one between strings is all
    that lies between them. What is empty is dropped as `empty`, behind the last separator without a word. Memory is bounded
    by `batch_bytes` and the longest document. With `cut_bytes` None all are of one cut.
    """
    builder = BatchBuilder()
    replace = BadInput(on_bad_input) is BadInput.REPLACE
    with open_stream(file, observe) as stream:
        head = read_all(stream, max(block_bytes, 4096))
        encoding = wide_encoding(head) or unmarked_wide_encoding(head)
        if encoding:
            builder.drops.append(Drop(file.label, WHOLE_FILE, 0, f"invalid UTF-8 (the file is {encoding})"))
            while stream.read(block_bytes):
                pass
        pieces = () if encoding else _pieces(_Bytes(stream, head, block_bytes), file.split)

        def add(piece: _Piece) -> None:
            if cut_bytes is not None:
                builder.begin_cut(piece.byte // cut_bytes, piece.row)
            _add(builder, piece, file, file_index, replace=replace, keep_empty=keep_empty)

        yield from builder.batches(map(add, pieces), lambda: stream.consumed, batch_bytes)


def _add(
    builder: BatchBuilder, piece: _Piece, file: SourceFile, file_index: int, *, replace: bool, keep_empty: bool
) -> None:
    text = piece.text
    builder.stream_bytes += len(text) + 1
    invalid = first_invalid_utf8(text)
    if invalid >= 0 and not replace:
        builder.drops.append(Drop(file.label, piece.row, piece.byte + invalid, "invalid UTF-8"))
        return
    if not text and not keep_empty:
        builder.drops.append(Drop(file.label, piece.row, piece.byte, "empty"))
        return
    if invalid >= 0:
        text = text.decode(errors="replace").encode()
        builder.was_replaced()
    builder.add([text], np.array([piece.row], np.uint64), np.array([piece.byte], np.uint64), file_index)


class _Bytes:
    """A stream whose first bytes were read already; its byte order mark is left out."""

    def __init__(self, stream: ByteStream, head: bytes, block_bytes: int) -> None:
        self.start = len(BOM) if head.startswith(BOM) else 0
        self._head = head[self.start :]
        self._stream = stream
        self._block_bytes = block_bytes

    def read(self, waiting: int) -> bytes:
        """Return as much as is waiting already, or a block; none at the end."""
        data, self._head = self._head, b""
        return data or read_all(self._stream, max(self._block_bytes, waiting))


def _pieces(source: _Bytes, split: str) -> Iterator[_Piece]:
    if split == BLANK_LINES:
        return _between_lines(source, None)
    if split.startswith(_LINE):
        return _between_lines(source, split.removeprefix(_LINE).encode())
    return _between_strings(source, split.encode())


def _between_strings(source: _Bytes, separator: bytes) -> Iterator[_Piece]:
    data, byte, row = b"", source.start, 0
    while more := source.read(len(data)):
        *whole, data = (data + more).split(separator)
        for text in whole:
            yield _Piece(text, row, byte)
            byte += len(text) + len(separator)
            row += text.count(b"\n") + separator.count(b"\n")
    if data:
        yield _Piece(data, row, byte)


def _between_lines(source: _Bytes, separator: bytes | None) -> Iterator[_Piece]:
    """Cut at lines that are blank, or where a separator is given, that are it."""
    lines: list[bytes] = []
    """Of the document that is being read."""
    start = byte = source.start
    first = row = 0
    rest = b""
    while True:
        more = source.read(len(rest))
        *found, rest = (rest + more).split(b"\n")
        if not more and rest:
            found, rest = [rest], b""
        for line in found:
            if (not line.strip()) if separator is None else (line.removesuffix(b"\r") == separator):
                if lines or separator is not None:
                    yield _Piece(b"\n".join(lines).removesuffix(b"\r"), first, start)
                lines = []
                start, first = byte + len(line) + 1, row + 1
            else:
                lines.append(line)
            byte += len(line) + 1
            row += 1
        if not more:
            break
    if lines:
        yield _Piece(b"\n".join(lines).removesuffix(b"\r"), first, start)
