"""Tokens of a Lance data set that Lance alone can read."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError
from headrace.storage.lance_apart import call, on_fork
from headrace.storage.lance_columns import TokenColumn
from headrace.storage.lance_fragments import Fragment
from headrace.storage.lance_open import naming, open_dataset
from headrace.storage.lance_pages import PageTable
from headrace.storage.lance_pieces import LibraryPiece

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

__all__ = ["LanceRows", "read_rows"]

_MOST_OPEN = 8
"""Data sets that a process keeps open."""
_ROWS = 1 << 20
"""Tokens read at once."""


class LanceRows:
    """Reads pieces that follow one another. Picklable, safe for threads and in the child of a fork: it holds no handle.

    Args:
        table: of the data set.
        pieces: of it, in order, without gaps.
    """

    def __init__(self, table: PageTable, pieces: Sequence[LibraryPiece]) -> None:
        self._path, self._version, self._column = table.path, table.version, table.column
        self._base = pieces[0].first
        self._first = np.array([piece.first for piece in pieces], dtype=np.int64)
        self._stops = np.append(self._first[1:], pieces[-1].first + pieces[-1].count)
        self._rows = np.array([piece.row for piece in pieces], dtype=np.int64)
        self._fragments = [table.fragments[piece.fragment] for piece in pieces]
        self._ends = table.ends

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the pieces, which must exist, as a new array.

        Raises:
            MissingShardError, CorruptShardError: naming the file.
        """
        start, stop = start + self._base, stop + self._base
        parts = [np.empty(0, self._column.dtype)]
        piece = int(np.searchsorted(self._first, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self._stops[piece]))
            parts += [self._part(piece, at, min(at + _ROWS, end)) for at in range(start, end, _ROWS)]
            start, piece = end, piece + 1
        return np.concatenate(parts)

    def _part(self, piece: int, start: int, stop: int) -> NDArray[Any]:
        fragment = self._fragments[piece]
        if self._ends is None:
            width = self._column.width
            within = start - int(self._first[piece])
            first, last = within // width, (stop - int(self._first[piece]) - 1) // width
            skip, row = within - first * width, int(self._rows[piece]) + first
        else:
            first, last = (int(np.searchsorted(self._ends, at, side="right")) for at in (start, stop - 1))
            skip = start - (int(self._ends[first - 1]) if first else 0)
            row = first - fragment.first_row
        tokens = call(read_rows, (self._path, self._version), self._column, fragment, row, last - first + 1)
        tokens = tokens[skip : skip + stop - start]
        if tokens.size != stop - start:
            raise CorruptShardError(f"{fragment.file}: its lists are not as long as they were; the file is damaged")
        return tokens


_lock = threading.Lock()
_open: "OrderedDict[tuple[Path, int], LanceDataset]" = OrderedDict()


def _given_up() -> object:
    """In the child of a fork: what its parent had open."""
    kept = dict(_open), _lock
    _open.clear()
    globals()["_lock"] = threading.Lock()
    return kept


on_fork(_given_up)


def _opened(path: Path, version: int, *, anew: bool = False) -> "LanceDataset":
    with _lock:
        dataset = None if anew else _open.get((path, version))
        if dataset is None:
            dataset = _open[path, version] = open_dataset(path, version)
        _open.move_to_end((path, version))
        if len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
        return dataset


def _fragment(path: Path, version: int, fragment: Fragment) -> "LanceFragment":
    """The fragment as Lance knows it: by its file, as another data set may have come to lie under the path.

    Raises:
        ValueError: it is not there.
    """
    for anew in (False, True):
        found = _opened(path, version, anew=anew).get_fragment(fragment.number)
        if found is None:
            continue
        names = {file.path.rpartition("/")[-1] for file in found.data_files()}
        deletions = (found.deletion_file() or "").rpartition("/")[-1]
        if fragment.file.rpartition("/")[-1] in names and deletions == fragment.deletions:
            return found
    raise ValueError(f"it is no file of version {version} any more: another data set was written in its place")


def read_rows(opened: tuple[Path, int], column: TokenColumn, fragment: Fragment, row: int, rows: int) -> NDArray[Any]:
    """Tokens of rows of a fragment, counted without deleted ones, one behind the other.

    Args:
        opened: folder and version of the data set.
        column: of the tokens.
        fragment: of the data set.
        row: the first, and ...
        rows: ... how many.

    Raises:
        MissingShardError, CorruptShardError: naming the file.
        FormatError: it has nulls.
    """
    with naming(fragment.file, f"rows [{row}, {row + rows}): "):
        found = _fragment(*opened, fragment)
        table = found.scanner(columns=[column.name], offset=row, limit=rows).to_table()
        tokens = column.tokens(table.column(0), fragment.file)
        if table.num_rows != rows:
            raise ValueError(f"it has {table.num_rows} of them")
        return tokens
