"""Parquet files: one document a row, the text in one of the columns. Needs the extra `parquet`."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.sources.ahead import made_ahead
from headrace.sources.columns import PIECE_ROWS, ColumnReader, load_pyarrow, steps_of, told_as_damage
from headrace.sources.documents import BadInput, BatchBuilder, DocumentBatch
from headrace.sources.field import Field, as_field
from headrace.sources.files import CUT_BYTES, Cut, SourceFile
from headrace.sources.random_access import PlacedReads, follow, follow_to_end
from headrace.sources.rawfile import Observer, RawFile, open_raw
from headrace.sources.schema import column_fault

__all__ = ["PARQUET_MAGIC", "inspect_parquet", "read_parquet"]

PARQUET_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of text after which a batch is delivered."""
_STEP_BYTES = 256 * 1024
"""Text decoded at a time, about: fewer rows where they are long."""
_MOST_AHEAD = 16
"""Such steps that are decoded before they are taken, if they are no more than a batch."""
_DICTIONARY_BYTES = 64 * 1024 * 1024
_LEAST_ROWS = 16
_PAGE_BYTES = 1024 * 1024
_MOST_INDEX_BYTES = 16 * 1024 * 1024
"""Looked through for a seam: what may lie between pages and footer."""


def inspect_parquet(
    file: SourceFile, field: Field, *, modified: int = 0, cut_bytes: int = CUT_BYTES
) -> tuple[str | None, tuple[Cut, ...]]:
    """Look at a file's footer.

    Args:
        file: a listed file.
        field: see `read_parquet`.
        modified: when the file was last written to, nanoseconds since 1970.
        cut_bytes: a cut ends with the row group with which it holds so many bytes, uncompressed.

    Returns:
        Why the file cannot be read, or None; and its cuts, none if it is to be read as a whole.

    Raises:
        DamagedFileError: it is cut or damaged, or cannot be opened.
        MissingExtraError: pyarrow is not installed.
    """
    with open_raw(file) as raw, _opened(raw) as parquet, told_as_damage(raw, "Parquet"):
        fault = column_fault(parquet.schema_arrow, field) or _seam(raw, parquet.metadata)
        return fault, () if fault else _cuts(file, parquet.metadata, modified, cut_bytes)


def _cuts(file: SourceFile, metadata: Any, modified: int, cut_bytes: int) -> tuple[Cut, ...]:  # noqa: ANN401  # no types
    firsts, rows, size, row = [0], [0], 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if size >= cut_bytes:
            firsts.append(number)
            rows.append(row)
            size = 0
        size += group.total_byte_size
        row += group.num_rows
    if len(firsts) == 1:
        return ()
    begins = [_first_byte(metadata.row_group(number)) for number in range(metadata.num_row_groups)]
    if sorted(begins) != begins or not 0 < begins[0] <= begins[-1] < file.size:
        return ()  # groups that lie otherwise than one behind the other have no bytes of their own
    edges = [0, *(begins[first] for first in firsts[1:]), file.size]
    groups = [*firsts, metadata.num_row_groups]
    return tuple(
        Cut(
            number,
            edges[number],
            edges[number + 1],
            count=len(firsts),
            modified=modified,
            groups=(groups[number], groups[number + 1]),
            row_base=base,
        )
        for number, base in enumerate(rows)
    )


def _first_byte(group: Any) -> int:  # noqa: ANN401  # as above
    columns = (group.column(number) for number in range(group.num_columns))
    pages = [page for column in columns for page in (column.dictionary_page_offset, column.data_page_offset) if page]
    return min(pages, default=0)


def _seam(raw: RawFile, metadata: Any) -> str | None:  # noqa: ANN401  # as above
    """Say where a file was appended to another: its footer knows of its own rows alone, counted from its own start."""
    count = metadata.num_row_groups
    last = metadata.row_group(count - 1) if count else None
    sizes = [last.column(number).total_compressed_size for number in range(last.num_columns)] if last else []
    end = _first_byte(last) + sum(sizes) if last else len(PARQUET_MAGIC)
    most = raw.file.size - metadata.serialized_size - 2 * len(PARQUET_MAGIC) - end  # bytes before the last file
    begin = max(most - _MOST_INDEX_BYTES, 0)
    place = raw.read_at(begin, most - begin + len(PARQUET_MAGIC)).rfind(2 * PARQUET_MAGIC) if most > begin else -1
    start = begin + place + len(PARQUET_MAGIC)
    if place < 0 or not _is_end(raw, start):
        return None
    return f"several Parquet files joined to one, the last at byte {start}, whose rows alone could be read; give them apart"


def _is_end(raw: RawFile, stop: int) -> bool:
    """Tell whether a Parquet file ends there, and not a text that spells what stands at its end."""
    from pyarrow import ArrowException, BufferReader, parquet  # noqa: PLC0415  # an extra

    size = int.from_bytes(raw.read_at(stop - 8, 4), "little")
    if not 0 < size <= stop - 12:
        return False
    footer = raw.read_at(stop - 8 - size, size + 8)
    try:
        parquet.read_metadata(BufferReader(PARQUET_MAGIC + footer))
    except (ArrowException, OSError):
        return False
    return True


def read_parquet(
    file: SourceFile,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
    cut: Cut | None = None,
) -> Iterator[DocumentBatch]:
    """Yield the documents of one file, in order, as batches.

    `rows` counts from 0 through all row groups; `offsets` are 0, for a row has no place of its own. A null is a drop. Row
    groups are read a few rows at a time: memory is bounded by the column's pages and dictionary, and the longest texts.

    Args:
        file: a listed file.
        text_field: name of the column; `a.b` is the field `b` of the struct column `a`. Any type of strings or bytes;
            or of lists of integers, where it holds ids.
        on_bad_input: only `replace` makes a difference here, see `BadInput`.
        keep_empty: deliver empty texts instead of dropping them as `empty`.
        file_index: what to write into `DocumentBatch.files`.
        batch_bytes: a batch ends at about this many bytes of text, or `MOST_DROPS`; and with any fault among the first so
            many bytes, so that all of it being wrong is known at once.
        observe: receives all bytes of the file, or the cut, in order, as they lie on disk; the reading goes alongside.
        cut: read this cut alone.

    Raises:
        SourceError: the file is damaged, has changed since it was listed, or has no such column.
    """
    builder = BatchBuilder()
    field = as_field(text_field)
    reader = ColumnReader(file.label, file_index, field, BadInput(on_bad_input), keep_empty=keep_empty, builder=builder)
    with open_raw(file, observe, cut=cut) as raw, _opened(raw) as parquet:
        with told_as_damage(raw, "Parquet"):
            fault = column_fault(parquet.schema_arrow, field)
        if fault:
            raise raw.damaged(fault)
        groups = range(parquet.metadata.num_row_groups)
        if cut:
            raw.check_unchanged()
            reader.begin(cut)
            groups = range(*cut.groups)
        base, total = reader.rows, sum(parquet.metadata.row_group(group).num_rows for group in groups)

        def steps() -> Iterator[None]:
            yield from steps_of(raw, "Parquet", _pieces(parquet, groups, field, reader))
            found = reader.rows - base
            if found != total:
                raise raw.damaged(f"damaged Parquet: {found:,} rows came out of it, its footer counts {total:,}")
            follow_to_end(raw)

        def consumed() -> int:
            follow(raw, reader.rows - base, total)
            return raw.consumed

        yield from builder.batches(steps(), consumed, batch_bytes)


def _pieces(
    parquet: Any,  # noqa: ANN401  # no types
    groups: Sequence[int],
    field: Field,
    reader: ColumnReader,
) -> Iterator[None]:
    if not groups:
        return
    largest = max(_step_bytes(parquet.metadata.row_group(group), field) for group in groups)
    depth = max(min(BATCH_BYTES // max(largest, _STEP_BYTES), _MOST_AHEAD), 1)
    with made_ahead(_record_batches(parquet, groups, field), depth) as batches:
        for batch in batches:
            yield from reader.pieces(batch)


def _record_batches(parquet: Any, groups: Iterable[int], field: Field) -> Iterator[Any]:  # noqa: ANN401  # as above
    for group in groups:
        rows = _rows_at_a_time(parquet.metadata.row_group(group), field)
        yield from parquet.iter_batches(rows, row_groups=[group], columns=list(field.columns), use_threads=False)


def _step_bytes(group: Any, field: Field) -> int:  # noqa: ANN401  # as above
    """Of the rows of a row group that are decoded at a time, all columns counted, about."""
    return group.total_byte_size * _rows_at_a_time(group, field) // max(group.num_rows, 1)


def _rows_at_a_time(group: Any, field: Field) -> int:  # noqa: ANN401  # as above
    columns = (group.column(number) for number in range(group.num_columns))
    if field.ids is not None:
        column = next((column for column in columns if column.path_in_schema.startswith(f"{field.name}.")), None)
        ids = column.num_values * field.ids.dtype.itemsize if column else 0
        return max(min(_STEP_BYTES * max(group.num_rows, 1) // max(ids, 1), PIECE_ROWS), _LEAST_ROWS)
    if field.chat is not None:
        tops = tuple(f"{name}." for name in (field.name, field.tools) if name)
        below = [column for column in columns if f"{column.path_in_schema}.".startswith(tops)]
        size = sum(column.total_uncompressed_size for column in below)
        return max(min(_STEP_BYTES * max(group.num_rows, 1) // max(size, 1), PIECE_ROWS), _LEAST_ROWS)
    found = [column for column in columns if column.path_in_schema in field.texts]
    return min((_rows_of(column, group.num_rows) for column in found), default=_LEAST_ROWS)


def _rows_of(column: Any, count: int) -> int:  # noqa: ANN401  # as above
    """Rows of a column of texts at a time, of `count` in a row group."""
    rows = _STEP_BYTES * max(count, 1) // max(column.total_uncompressed_size, 1)
    if column.has_dictionary_page and column.dictionary_page_offset:
        # Each row may be the whole dictionary, which is stored once.
        dictionary = max(column.data_page_offset - column.dictionary_page_offset, 1)
        rows = min(rows, _DICTIONARY_BYTES // dictionary)
    return max(min(rows, PIECE_ROWS), _LEAST_ROWS)


@contextmanager
def _opened(raw: RawFile) -> Generator[Any]:
    pa = load_pyarrow(f"{raw.file.label}: a Parquet file")
    from pyarrow import parquet  # noqa: PLC0415  # an extra

    size = raw.file.size
    head, tail = raw.read_at(0, len(PARQUET_MAGIC)), raw.read_at(max(size - len(PARQUET_MAGIC), 0), len(PARQUET_MAGIC))
    if _ENCRYPTED_MAGIC in {head, tail}:
        raise raw.damaged("encrypted Parquet, which is not read")
    if head != PARQUET_MAGIC:
        raise raw.damaged("no Parquet file: it does not begin with PAR1")
    if size < 2 * len(PARQUET_MAGIC) or tail != PARQUET_MAGIC:
        raise raw.damaged("cut or damaged Parquet: it does not end with PAR1, as such files do; fetch the file again")
    with told_as_damage(raw, "Parquet"):
        source = pa.PythonFile(PlacedReads(raw), mode="r")
        opened = parquet.ParquetFile(source, buffer_size=_PAGE_BYTES, pre_buffer=False, page_checksum_verification=True)
    with opened:
        yield opened
