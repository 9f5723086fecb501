"""Where the tokens of a Lance data set lie: from (path, version) to an ordered table of pieces.

`page_table(path, version)` asks Lance once, and what it returns needs Lance no more (frozen, picklable). The pieces
follow one another without gaps and make up the line of tokens of that version:

- a `FlatPiece` lies in its file as a plain little-endian array: `count` tokens of `table.dtype` from byte `offset` on.
  Pages that lie one behind the other are one piece. To be mapped.
- a `PackedPiece` is a page whose chunks `lance_packed` unpacks.
- a `LibraryPiece` can be read by Lance alone: rows of one fragment.

A page is flat, or packed, only if its encoding says so word by word, its size is rows x itemsize, the rows of all pages
add up to those of the file, the fragment has no deletions, and its first and last tokens equal what Lance itself reads
there (`read_range`). Everything else is a library piece. Data files are never changed once they are committed, and keep
their names: a table stays true for as long as the files are there.

Tokens are one a row, a fixed number of them a row, or a list of them a row, which is a document: then `table.ends` says
where each ends.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import FormatError
from headrace.storage.lance_columns import TokenColumn, column_name_at, token_column
from headrace.storage.lance_encoding import PageForm, form_of
from headrace.storage.lance_fragments import LEGACY, Fragment, Stored, ends_of, fragments_of, stored_fragments
from headrace.storage.lance_known import KnownPages
from headrace.storage.lance_open import naming, open_dataset
from headrace.storage.lance_packed import packing_of, unpack
from headrace.storage.lance_pieces import FlatPiece, LibraryPiece, PackedPiece, Piece, merged, placed

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.file import LanceFileReader

__all__ = ["PageTable", "page_table"]

_COMPARED = 64
"""Tokens at each end of a page that are compared with what Lance reads."""
_LISTS = 16
"""Lists at each end of a file that are compared."""
_BUFFERS = {"bitpacked": 2, "blocks": 2, "dictionary": 3}
"""Of a page that is unpacked here: the table of chunks, the chunks, the dictionary."""
_THREADS = 8
"""That look at data files side by side, at most: Lance waits much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageTable:
    """All pieces of a data set at one version, in token order."""

    path: Path
    """The data set's folder."""
    version: int
    column: TokenColumn
    token_count: int
    pieces: tuple[Piece, ...]
    """None is empty."""
    fragments: tuple[Fragment, ...]
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    """Of the schema."""
    ends: NDArray[np.int64] | None = None
    """Position after each row's last token, int64 (rows,), where a row is a list, which is a document."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the tokens as they lie in the files."""
        return self.column.dtype


def page_table(path: Path, version: str | int | None = None) -> PageTable:
    """Work out where the tokens of a data set lie.

    Where rows are lists, all of them are read once, for their ends; these are kept in the user's cache folder.

    Args:
        path: its folder.
        version: a number, `v` and a number, or a tag; the newest by default.

    Raises:
        FormatError: no column holds tokens, or the column has nulls.
        MissingShardError, CorruptShardError: naming each data file that is not there, or not of the size it should have.
        MissingExtraError, UnreadableShardError: as of `open_dataset`.
    """
    dataset = open_dataset(path, version)
    with naming(path):
        return _table_of(dataset, path)


def _table_of(dataset: "LanceDataset", path: Path) -> PageTable:
    column = token_column(dataset, path)
    stored = stored_fragments(dataset, column, path)
    ends = ends_of(dataset, column, path, stored) if column.lists else None
    fragments = list(fragments_of(stored, column, ends))
    pieces: list[Piece] = []
    for number, found in enumerate(_pieces_of_files(fragments, column, path)):
        pieces.extend(placed(found, fragments[number][1].first, number))
    last = fragments[-1][1] if fragments else None
    return PageTable(
        path=path,
        version=int(dataset.version),
        column=column,
        token_count=last.first + last.count if last else 0,
        pieces=tuple(merged(pieces, column.dtype.itemsize)),
        fragments=tuple(known for _, known in fragments),
        metadata=dict(dataset.schema.metadata or {}),
        ends=ends,
    )


def _library() -> str:
    import lance  # noqa: PLC0415  # heavy

    return lance.__version__


def _pieces_of_files(
    fragments: Sequence[tuple[Stored, Fragment]], column: TokenColumn, path: Path
) -> list[Sequence[Piece]]:
    """The pieces of each fragment, the first at token 0 of fragment 0; files that are not known are looked at side by side."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # `import headrace` needs none

    pages = KnownPages(path, column, _library())
    found: list[Sequence[Piece]] = []
    new: list[tuple[int, str, int]] = []
    for number, (stored, known) in enumerate(fragments):
        place = _place_of(stored, known, column) if known.count else None
        mark = f"{stored.path.rpartition('/')[-1]} {stored.size} {stored.modified} {place} {known.count}"
        pieces = None if place is None else pages.find(mark)
        if place is not None and pieces is None:
            new.append((number, mark, place))
        found.append(pieces or ([LibraryPiece(0, known.count, 0, 0)] if known.count else []))

    def look(one: tuple[int, str, int]) -> list[Piece]:
        return _pages(fragments[one[0]][1], column, one[2])

    threads = ThreadPoolExecutor(min(_THREADS, len(new)) or 1)
    try:
        looked = threads.map(look, new)
        for (number, mark, _), pieces in zip(new, looked, strict=True):
            found[number] = pieces or found[number]
            pages.add(mark, found[number])
    finally:
        threads.shutdown(cancel_futures=True)
    pages.keep()
    return found


def _place_of(stored: Stored, known: Fragment, column: TokenColumn) -> int | None:
    """Number of the column of the tokens in their file; None where the file can be read through Lance alone."""
    data = stored.file
    # Of a fragment with deletions, rows are not where they were, and some may lie over others.
    if known.deletions or stored.overlaid or data.file_major_version == LEGACY:
        return None
    # From 2.1 on, the rows of a list lie between its values.
    return dict(zip(data.fields, data.column_indices, strict=True)).get(column.values)


def _pages(known: Fragment, column: TokenColumn, place: int) -> list[Piece]:
    """The pages of a file as pieces, the first at token 0; none where the file is read through Lance as a whole."""
    from lance.file import LanceFileReader  # noqa: PLC0415  # heavy

    with naming(known.file):
        reader = LanceFileReader(known.file)
        told = reader.metadata()
        if len(told.schema) > 1:
            # The file may know the column by another name, which it had when it was written.
            name = column_name_at(told.schema, place, len(told.columns))
            if name is None:
                return []
            reader = LanceFileReader(known.file, columns=[name])
        return _pages_of(reader, told.columns[place].pages, known, column)


def _pages_of(reader: "LanceFileReader", stored: Sequence[Any], known: Fragment, column: TokenColumn) -> list[Piece]:
    bits = column.dtype.itemsize * 8
    buffers = [[(buffer.position, buffer.size) for buffer in page.buffers] for page in stored]
    width = 1 if column.lists else column.width
    forms = [form_of(page.encoding, of, bits=bits, width=width) for page, of in zip(stored, buffers, strict=True)]
    if any(form.kind == "nulls" for form in forms):
        raise FormatError(f"{known.file}: column {column.name} has nulls, which are no tokens")
    forms = _with_rows(forms, known.count // width)
    if not forms or (column.lists and any(form.kind == "other" for form in forms)):
        return []
    pieces: list[Piece] = []
    row = 0
    with open(known.file, "rb", buffering=0) as file:  # noqa: PTH123  # as a descriptor
        for form, of in zip(forms, buffers, strict=True):
            rows = form.rows or 0
            first, count = row * width, rows * width
            piece: Piece = LibraryPiece(first, count, 0, row)
            if form.kind == "flat":
                piece = FlatPiece(first, count, 0, of[0][0])
            elif len(of) == _BUFFERS.get(form.kind) and width == 1:
                packing = packing_of(file.fileno(), form, of, column.dtype)
                piece = piece if packing is None else PackedPiece(first, count, 0, packing)
            if not column.lists and not _as_lance_reads(reader, file, piece, column, row):
                piece = LibraryPiece(first, count, 0, row)
            if count:
                pieces.append(piece)
            row += rows
        right = not column.lists or _lists_as_lance_reads(reader, file.fileno(), known, pieces, column)
    return pieces if right else []


def _with_rows(forms: Sequence[PageForm], rows: int) -> list[PageForm]:
    """The same, of pages that together have `rows` rows; none where that is not so, or not known."""
    unknown = [number for number, form in enumerate(forms) if form.rows is None]
    left = rows - sum(form.rows or 0 for form in forms)
    filled = list(forms)
    if len(unknown) == 1 and left >= 0:
        filled[unknown[0]] = forms[unknown[0]]._replace(rows=left)
        left = 0
    return [] if left or len(unknown) > 1 else filled


def _as_lance_reads(reader: "LanceFileReader", file: IO[bytes], piece: Piece, column: TokenColumn, row: int) -> bool:
    """Whether the first and the last tokens of a page, which begins at a row of its file, are what Lance reads there."""
    if isinstance(piece, LibraryPiece):
        return True
    rows = piece.count // column.width
    some = min(max(_COMPARED // column.width, 1), rows)
    for start in sorted({0, rows - some}):
        wanted = column.tokens(reader.read_range(row + start, some, batch_size=some).to_table().column(0), file.name)
        if not np.array_equal(_own(file.fileno(), piece, start * column.width, wanted.size, column.dtype), wanted):
            return False
    return True


def _lists_as_lance_reads(
    reader: "LanceFileReader", descriptor: int, known: Fragment, pieces: Sequence[Piece], column: TokenColumn
) -> bool:
    """Whether the values of the first and the last lists of a file are those that Lance reads there."""
    first, last = pieces[0], pieces[-1]
    if isinstance(first, LibraryPiece) or isinstance(last, LibraryPiece):
        return False
    rows = min(_LISTS, known.rows)
    head = column.tokens(reader.read_range(0, rows).to_table().column(0), known.file)[: first.count]
    tail = column.tokens(reader.read_range(known.rows - rows, rows).to_table().column(0), known.file)
    tail = tail[max(tail.size - last.count, 0) :]
    own = _own(descriptor, last, last.count - tail.size, tail.size, column.dtype)
    return np.array_equal(_own(descriptor, first, 0, head.size, column.dtype), head) and np.array_equal(own, tail)


def _own(descriptor: int, piece: FlatPiece | PackedPiece, start: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Tokens [start, start + count) of a piece, read without Lance; other ones, or fewer, if it is damaged."""
    if not count:
        return np.empty(0, dtype)
    if isinstance(piece, PackedPiece):
        try:
            return unpack(lambda at, size: os.pread(descriptor, size, at), piece.packing, start, count, dtype)
        except ValueError:
            return np.empty(0, dtype)
    data = os.pread(descriptor, count * dtype.itemsize, piece.offset + start * dtype.itemsize)
    return np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
