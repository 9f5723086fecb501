"""What is known of the pages of Lance data files: found out once for each file, and kept in the user's cache folder.

A data set of thousands of files takes seconds to look through. Lance never changes a file, and gives each a name of its
own; here, it is the same one as long as its name, size and time of modification are the same.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.storage.derived import seal, unsealed
from headrace.storage.lance_columns import TokenColumn
from headrace.storage.lance_dictionary import Dictionary
from headrace.storage.lance_packed import Packing
from headrace.storage.lance_pieces import FlatPiece, LibraryPiece, PackedPiece, Piece
from headrace.storage.user_cache import cached_file, keep

__all__ = ["KnownPages"]

_MAGIC = b"headrace lance pages 1\n"
_WORTH_PAGES = 64
"""Pages that are new, from which on they are kept: fewer are found out as fast as they are read."""


class KnownPages:
    """Pages of the data files of a data set, by file. Those that were found before are there from the start.

    Args:
        path: the data set's folder.
        column: of the tokens.
        library: version of Lance, for another one may tell of pages in other words.
    """

    def __init__(self, path: Path, column: TokenColumn, library: str) -> None:
        told = f"{column} {library}".encode()
        self._path = cached_file("lance-pages", _MAGIC, os.fsencode(path), told)
        self._files: dict[str, list[list[Any]]] = {} if self._path is None else _load(self._path)
        self._asked: dict[str, list[list[Any]]] = {}
        self._new = 0

    def find(self, mark: str) -> list[Piece] | None:
        """The pieces of a file, the first of which begins at token 0, of fragment 0; None where they are not known.

        Args:
            mark: what the file is known by.
        """
        rows = self._files.get(mark)
        if rows is None:
            return None
        self._asked[mark] = rows
        return [_piece(row) for row in rows]

    def add(self, mark: str, pieces: Sequence[Piece]) -> None:
        """Note what was found out of a file."""
        self._asked[mark] = [_row(piece) for piece in pieces]
        self._new += max(len(pieces), 1)

    def keep(self) -> None:
        """Write down what was asked for, if much of it is new."""
        if self._path is not None and self._new >= _WORTH_PAGES:
            keep(self._path, seal([_MAGIC, json.dumps(self._asked).encode()]))


def _load(path: Path) -> dict[str, list[list[Any]]]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    body = unsealed(data, _MAGIC)
    return {} if body is None else json.loads(body)


def _row(piece: Piece) -> list[Any]:
    if isinstance(piece, FlatPiece):
        return ["flat", piece.first, piece.count, piece.offset]
    if isinstance(piece, PackedPiece):
        return ["packed", piece.first, piece.count, piece.packing]
    return ["library", piece.first, piece.count, piece.row]


def _piece(row: list[Any]) -> Piece:
    kind, first, count, where = row
    if kind == "flat":
        return FlatPiece(first, count, 0, where)
    if kind == "library":
        return LibraryPiece(first, count, 0, where)
    *values, dictionary = where
    return PackedPiece(first, count, 0, Packing(*values, dictionary=Dictionary(*dictionary)))
