"""JSON lines: one object a line, the text in one of its fields."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.sources.compressed import ByteStream, open_stream
from headrace.sources.content import inspect_named
from headrace.sources.cuts import CutStream, open_cut
from headrace.sources.decoder import BATCH_BYTES, BLOCK_BYTES, FIRST_BLOCK_BYTES, fast_decoder, fast_id_decoder
from headrace.sources.documents import WHOLE_FILE, BadInput, BatchBuilder, DocumentBatch, Drop
from headrace.sources.field import Field, split_field
from headrace.sources.files import CUT_BYTES, Cut, SourceFile
from headrace.sources.lines import LineFault, LineParser
from headrace.sources.rawfile import Observer
from headrace.sources.utf8 import BOM, first_invalid_utf8, wide_encoding

__all__ = ["BATCH_BYTES", "BLOCK_BYTES", "JSONLSource", "read_jsonl"]

_LOOKED_AT, _FEW = 4096, 16
"""Lines are taken for long where so many bytes hold so few ends of lines."""
_LF, _CR, _OPEN, _CLOSE = b"\n\r{}"


def read_jsonl(
    file: SourceFile,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    block_bytes: int = BLOCK_BYTES,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
    cut: Cut | None = None,
    cut_bytes: int = CUT_BYTES,
) -> Iterator[DocumentBatch]:
    """Yield the documents of one file, in order, as batches.

    Lines end at LF alone. Blank lines are no documents and no faults. What comes out does not depend on `block_bytes`
    nor `batch_bytes`; memory is bounded by them and the longest line.

    Args:
        file: a listed file; a byte order mark at its start is skipped.
        text_field: name of the field; `a.b` is the field `b` of the object in the field `a`. Or one that holds ids, which are
            then delivered in place of texts, see `Ids`.
        on_bad_input: only `replace` makes a difference here, see `BadInput`.
        keep_empty: deliver empty texts instead of dropping them as `empty`.
        file_index: what to write into `DocumentBatch.files`.
        block_bytes: bytes read and parsed at a time, > 0.
        batch_bytes: a batch ends with the first block that reaches this many decompressed bytes, or `MOST_DROPS`; and
            with any block that has a fault among the first so many bytes of the file, so that all of it being wrong is
            known at once.
        observe: receives the file's bytes as they lie on disk; with `cut`, those of its lines.
        cut: read the lines that begin in this cut alone; `rows`, and those of drops, count from its first one.
        cut_bytes: without `cut`: decompressed bytes after which a new cut begins, see `DocumentBatch`.

    Raises:
        SourceError: the file ends early, is damaged or has changed since it was listed.
    """
    parser = LineParser(text_field, BadInput(on_bad_input), keep_empty=keep_empty)
    builder = BatchBuilder()
    reader = _BlockReader(file.label, file_index, parser, builder, cut_bytes)
    with open_stream(file, observe) if cut is None else open_cut(file, cut, observe) as stream:
        if isinstance(stream, CutStream):
            reader.begin(stream)
        steps = map(reader.add, _line_blocks(stream, block_bytes))
        yield from builder.batches(steps, lambda: stream.consumed, batch_bytes)


class JSONLSource:
    """The texts of a JSON lines file, compressed or not; lines without one are skipped and counted.

    Can be iterated any number of times; the file is opened anew each time. Picklable.

    Args:
        path: the file; plain, .gz, .zst, .bz2 or .xz, by its content.
        text_field: name of the field that holds the text, dotted for a nested one.

    Attributes:
        dropped_lines: lines of the iteration begun last that gave no text, so far: not JSON, not an object, the field
            missing, not a string, or empty. Blank lines are not counted.

    Raises:
        SourceError: the field's name is empty; or, when it is iterated, the file is not there (`SourceNotFoundError`, a
            FileNotFoundError), cannot be read, ends early or is damaged.
    """

    def __init__(self, path: str | PathLike[str], text_field: str = "text") -> None:
        split_field(text_field)
        self.path = Path(path)
        self.text_field = text_field
        self.dropped_lines = 0

    def __iter__(self) -> Iterator[str]:
        """Iterate over the texts in order.

        Raises:
            SourceNotFoundError: there is no such file.
            SourceError: it cannot be read, ends early or is damaged.
        """
        self.dropped_lines = 0
        file = inspect_named(self.path, kind="jsonl")
        for batch in read_jsonl(file, text_field=self.text_field, on_bad_input=BadInput.SKIP):
            self.dropped_lines += len(batch.drops)
            for text in batch.texts:
                yield text.decode()


def _line_blocks(stream: ByteStream, block_bytes: int) -> Iterator[bytes]:
    """Yield the stream as blocks of whole lines; only the last may lack its LF. A long line makes a long block."""
    pending: list[bytes | memoryview] = []
    size = min(FIRST_BLOCK_BYTES, block_bytes)
    while chunk := stream.read(size):
        size = min(2 * size, block_bytes)
        cut = chunk.rfind(b"\n") + 1
        pending.append(memoryview(chunk)[:cut] if cut else chunk)
        if cut:
            block = b"".join(pending)
            pending.clear()  # before the yield, so that a long line is not held twice
            yield block
            pending += [chunk[cut:]] if cut < len(chunk) else []
    if pending:
        block = b"".join(pending)
        pending.clear()
        yield block


class _Lines(NamedTuple):
    """Where the lines of a block lie."""

    starts: NDArray[np.int64]
    """(lines,) Inclusive."""
    ends: NDArray[np.int64]
    """(lines,) Exclusive: the LF, or the end of the block."""


class _BlockReader:
    """Turns the blocks of one file into documents and drops."""

    def __init__(
        self, label: str, file_index: int, parser: LineParser, builder: BatchBuilder, cut_bytes: int | None
    ) -> None:
        self._label = label
        self._file_index = file_index
        self._parser = parser
        self._builder = builder
        self._cut_bytes = cut_bytes
        """None where all is of one cut."""
        self._decode = fast_decoder(parser.field)
        self._decode_ids = fast_id_decoder(parser.field) if parser.field.id_name else None
        self._row = 0
        self._offset = 0
        self._given_up = False

    def begin(self, stream: CutStream) -> None:
        """Read one cut: its lines count from 0, its bytes from the start of the file."""
        self._builder.begin_cut(stream.cut.number, 0)
        self._builder.start = stream.start
        self._cut_bytes = None
        self._offset = stream.start
        self._given_up = stream.cut.start > 0 and wide_encoding(stream.head) is not None  # the first cut says so

    def add(self, block: bytes) -> None:
        """Read the next block. All blocks of a file in another encoding together are one drop."""
        while (size := self._size_in_cut(block)) < len(block):
            self._add(block[:size])
            block = block[size:]
        self._add(block)

    def _size_in_cut(self, block: bytes) -> int:
        """How much of a block lies in the lines of one cut, which begins if it has not."""
        if self._cut_bytes is None or self._given_up:
            return len(block)
        number, beyond = divmod(self._offset, self._cut_bytes)
        self._builder.begin_cut(number, self._row)
        end = block.find(b"\n", self._cut_bytes - beyond - 1) + 1
        return end or len(block)

    def _add(self, block: bytes) -> None:
        self._builder.stream_bytes += len(block)
        if self._given_up:
            return
        if self._offset == 0:
            if encoding := wide_encoding(block):
                self._builder.drops.append(Drop(self._label, WHOLE_FILE, 0, f"invalid UTF-8 (the file is {encoding})"))
                self._given_up = True
                return
            if block.startswith(BOM):
                block = block[len(BOM) :]
                self._offset = len(BOM)
        lines = _find_lines(block)
        texts = self._fast_texts(block, lines)
        all_ids = self._decode_ids(block) if self._decode_ids is not None and texts is not None else None
        if texts is None:
            texts, kept = self._careful_texts(block, lines)
        elif self._parser.keep_empty or b"" not in texts:
            kept = np.arange(len(texts))
        else:
            texts, kept = self._without_empty(texts, lines)
        rows = (kept + self._row).astype(np.uint64)
        ids = self._ids(block, lines, kept, all_ids) if self._decode_ids is not None else ()
        offsets = (lines.starts[kept] + self._offset).astype(np.uint64)
        self._builder.add(texts, rows, offsets, self._file_index, ids=ids, label=self._label)
        self._row += len(lines.starts)
        self._builder.rows_read += len(lines.starts)
        self._offset += len(block)

    def _ids(
        self, block: bytes, lines: _Lines, kept: NDArray[np.int64], all_ids: list[bytes] | None
    ) -> Sequence[bytes | str]:
        if all_ids is not None:
            return [all_ids[index] for index in kept.tolist()]
        return [self._parser.id_of(block[lines.starts[index] : lines.ends[index]]) for index in kept.tolist()]

    def _fast_texts(self, block: bytes, lines: _Lines) -> list[bytes] | None:
        """Return one text a line, parsed all at once, or None where that may differ from parsing line by line.

        The parser knows no lines: it reads one object after another. But where each line begins with `{` and ends with
        `}`, no object goes over the end of a line: within one, JSON allows no `{` after a `}` without a comma, and no
        LF inside a string. So each line holds at least one object, and as many objects as lines means one a line.
        """
        if self._decode is None or not len(lines.starts):
            return None
        data = np.frombuffer(block, np.uint8)
        last = lines.ends - 1
        last -= data[last] == _CR
        if not ((data[lines.starts] == _OPEN).all() and (data[last] == _CLOSE).all() and first_invalid_utf8(block) < 0):
            return None
        texts = self._decode(block)
        return texts if texts is not None and len(texts) == len(lines.starts) else None

    def _careful_texts(self, block: bytes, lines: _Lines) -> tuple[list[bytes], NDArray[np.int64]]:
        """Parse line by line; return the texts kept, and the lines of the block that they come from."""
        texts: list[bytes] = []
        kept: list[int] = []
        for index, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
            line = block[start:end]
            if not line.strip():
                continue
            found, replaced = self._line_text(line)
            if isinstance(found, LineFault):
                self._drop(index, start + found.byte, found.reason)
            else:
                if replaced:
                    self._builder.was_replaced(ahead=len(texts))
                texts.append(found)
                kept.append(index)
        return texts, np.array(kept, np.int64)

    def _line_text(self, line: bytes) -> tuple[bytes | LineFault, bool]:
        # Faster than Python's parser, and needs a third of its memory for a long line.
        texts = self._decode(line) if self._decode and first_invalid_utf8(line) < 0 else None
        if texts is not None and len(texts) == 1 and texts[0]:
            return texts[0], False
        return self._parser.parse(line)

    def _without_empty(self, texts: list[bytes], lines: _Lines) -> tuple[list[bytes], NDArray[np.int64]]:
        full = np.fromiter(map(bool, texts), np.bool_, len(texts))
        for index in np.flatnonzero(~full).tolist():
            self._drop(index, int(lines.starts[index]), "empty")
        return list(filter(None, texts)), np.flatnonzero(full)

    def _drop(self, index: int, byte: int, reason: str) -> None:
        self._builder.drops.append(Drop(self._label, self._row + index, self._offset + byte, reason))


def _find_lines(block: bytes) -> _Lines:
    if block.count(b"\n", 0, _LOOKED_AT) > _FEW:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LF)
    else:  # of long lines, a search for each is faster than a look at each byte
        found: list[int] = []
        at = -1
        while (at := block.find(b"\n", at + 1)) >= 0:
            found.append(at)
        ends = np.array(found, np.int64)
    if block and block[-1] != _LF:
        ends = np.append(ends, len(block))
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    return _Lines(starts, ends)
