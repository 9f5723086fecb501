"""Arrow files and streams: one document a row, the text in one of the columns. Needs the extra `parquet`."""

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.sources.columns import ColumnReader, load_pyarrow, steps_of, told_as_damage
from headrace.sources.documents import BadInput, BatchBuilder, DocumentBatch
from headrace.sources.field import Field, as_field, split_field
from headrace.sources.files import CUT_BYTES, SourceFile
from headrace.sources.random_access import PlacedReads, follow, follow_to_end
from headrace.sources.rawfile import Observer, RawFile, open_raw
from headrace.sources.schema import column_fault

__all__ = ["ARROW_MAGICS", "inspect_arrow", "read_arrow"]

_FILE_MAGIC = b"ARROW1"
_SEAM = _FILE_MAGIC + _FILE_MAGIC + bytes(2)
_MOST_PADDING = 256
"""Bytes between the last batch of a file and its footer, at most: the mark of the end, and what a writer may add."""
_MOST_SCHEMA = 16 * 1024 * 1024
"""Bytes before the footer of a file without batches, at most."""
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_STREAM_END = _STREAM_MAGIC + bytes(4)
ARROW_MAGICS = (_FILE_MAGIC, _STREAM_MAGIC)
"""How the file format and the stream format begin."""

_WHAT = "Arrow data"
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of text after which a batch is delivered."""


def inspect_arrow(file: SourceFile, field: Field) -> str | None:
    """Look at a file's schema and say why it cannot be read, or return None where it can.

    Raises:
        DamagedFileError: it is cut or damaged, or cannot be opened.
        MissingExtraError: pyarrow is not installed.
    """
    with open_raw(file) as raw, _opened(raw, PlacedReads(raw)) as arrow:
        return _fault(raw, arrow, field)


def read_arrow(
    file: SourceFile,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
    cut_bytes: int = CUT_BYTES,
) -> Iterator[DocumentBatch]:
    """Yield the documents of one file, in order, as batches; arguments, rows and errors are those of `read_parquet`.

    A cut ends with the record batch with which it holds `cut_bytes` of text.

    Memory is bounded by the largest record batch of the file: of its text column in the file format, of all columns in
    the stream format.
    """
    builder = BatchBuilder()
    field = as_field(text_field)
    reader = ColumnReader(file.label, file_index, field, BadInput(on_bad_input), keep_empty=keep_empty, builder=builder)
    with open_raw(file, observe) as raw:
        place = PlacedReads(raw)

        def consumed() -> int:
            follow(raw, place.tell(), file.size)
            return raw.consumed

        yield from builder.batches(_pieces(raw, place, field, reader, cut_bytes), consumed, batch_bytes)


def _fault(raw: RawFile, arrow: Any, field: Field) -> str | None:  # noqa: ANN401  # pyarrow has no types
    with told_as_damage(raw, _WHAT):  # names of columns need not be UTF-8
        return column_fault(arrow.schema, field) or (None if _is_stream(raw) else _seam(raw))


def _seam(raw: RawFile) -> str | None:
    """Say where a file was appended to another: its footer knows of its own batches alone, counted from its own start."""
    size = struct.unpack("<i", raw.read_at(raw.file.size - len(_FILE_MAGIC) - 4, 4))[0]
    footer = raw.file.size - len(_FILE_MAGIC) - 4 - size
    try:
        end = _end_of_batches(raw.read_at(footer, size))
    except struct.error:  # damage that pyarrow has not met yet
        return None
    most = footer - end  # bytes before the last file
    begin = max(most - (_MOST_PADDING if end else _MOST_SCHEMA), 0)
    place = raw.read_at(begin, max(most - begin, 0) + len(_SEAM)).rfind(_SEAM)
    start = begin + place + len(_FILE_MAGIC)
    joined = f"several Arrow files joined to one, the last at byte {start}, whose batches alone could be read; give them apart"
    return None if place < 0 else joined


def _end_of_batches(footer: bytes) -> int:
    """Where the last dictionary or record batch ends, counted from the start of the file; 0 if there are none.

    Args:
        footer: a flatbuffer that pyarrow has accepted: a table whose third and fourth field are vectors of blocks.
    """
    table = struct.unpack_from("<I", footer)[0]
    fields = table - struct.unpack_from("<i", footer, table)[0]
    ends = [0]
    for number in (2, 3):
        entry = 4 + 2 * number
        known = entry < struct.unpack_from("<H", footer, fields)[0]
        if known and (offset := struct.unpack_from("<H", footer, fields + entry)[0]):
            vector = table + offset + struct.unpack_from("<I", footer, table + offset)[0]
            blocks = memoryview(footer)[vector + 4 :][: 24 * struct.unpack_from("<I", footer, vector)[0]]
            ends += [place + head + body for place, head, body in struct.iter_unpack("<qi4xq", blocks)]
    return max(ends)


def _pieces(raw: RawFile, place: PlacedReads, field: Field, reader: ColumnReader, cut_bytes: int) -> Iterator[None]:
    """Read the column, and at the end the rest of the file."""
    with _opened(raw, place) as arrow:
        if fault := _fault(raw, arrow, field):
            raise raw.damaged(fault)
        wanted = {split_field(name)[0] for name in field.columns}
        columns = sorted(arrow.schema.get_field_index(name) for name in wanted)
    with _opened(raw, place, columns) as arrow:
        yield from steps_of(raw, "Arrow data", _steps(arrow, reader, cut_bytes))
        if _is_stream(raw) and (left := raw.file.size - place.tell()):
            raise raw.damaged(
                f"the Arrow stream ends at byte {place.tell()}, but {left} bytes follow; write what was joined as one "
                "stream, or fetch the file again"
            )
    follow_to_end(raw)


def _is_stream(raw: RawFile) -> bool:
    return raw.read_at(0, len(_STREAM_MAGIC)) == _STREAM_MAGIC


def _steps(arrow: Any, reader: ColumnReader, cut_bytes: int) -> Iterator[None]:  # noqa: ANN401  # no types
    in_place = hasattr(arrow, "num_record_batches")
    batches = map(arrow.get_batch, range(arrow.num_record_batches)) if in_place else arrow
    begun = 0
    for batch in batches:
        if reader.text_bytes - begun >= cut_bytes:
            begun = reader.text_bytes
            reader.begin_cut()
        yield from reader.pieces(batch)


@contextmanager
def _opened(raw: RawFile, place: PlacedReads, columns: Sequence[int] | None = None) -> Generator[Any]:
    """Open a file or stream with pyarrow; with columns, only these are read."""
    pa = load_pyarrow(f"{raw.file.label}: an Arrow file")
    stream = _is_stream(raw)
    if not stream and raw.read_at(0, len(_FILE_MAGIC)) != _FILE_MAGIC:
        raise raw.damaged("no Arrow file: it begins neither as the file format nor as the stream format does")
    # Without its end, a stream that was cut between two messages looks whole.
    if stream and raw.read_at(max(raw.file.size - len(_STREAM_END), 0), len(_STREAM_END)) != _STREAM_END:
        raise raw.damaged("cut or damaged Arrow stream: it does not end with the mark of the end; fetch the file again")
    place.seek(0)
    with told_as_damage(raw, _WHAT):
        open_it = pa.ipc.open_stream if stream else pa.ipc.open_file
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=None if columns is None else [*columns])
        opened = open_it(pa.PythonFile(place, mode="r"), options=options)
    with opened:
        yield opened
