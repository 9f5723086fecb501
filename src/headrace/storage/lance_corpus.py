"""From the page table of a Lance data set to its token line."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import cast

import numpy as np

from headrace.errors import UnreadableShardError
from headrace.manifest import Fingerprint
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.id_range import IdRange
from headrace.storage.lance_fragments import Fragment
from headrace.storage.lance_pages import PageTable
from headrace.storage.lance_pieces import FlatPiece, LibraryPiece, PackedPiece, Piece
from headrace.storage.lance_rows import LanceRows
from headrace.storage.lance_windows import PackedPages
from headrace.storage.shard_files import Io, RangeReader, ShardFiles
from headrace.storage.token_line import TokenLine

__all__ = ["lance_fingerprint", "lance_line"]

_PAGE = 4096
_PAGES = 16
"""Pages of the data files that go into a fingerprint."""


def lance_line(table: PageTable, *, io: Io, below: int | None) -> TokenLine:
    """The token line of a data set, served in the dtype of its files.

    Args:
        table: where its tokens lie.
        io: with maps, or without.
        below: refuse ids from here on, and negative ones; None where the dtype allows no others.
    """
    extents: list[ShardExtents] = []
    paths: list[str] = []
    readers: dict[int, RangeReader] = {}
    for kind, run in _runs(table.pieces):
        fragment = table.fragments[run[0].fragment]
        flat = [piece for piece in run if isinstance(piece, FlatPiece)]
        if kind is PackedPiece:
            readers[len(paths)] = PackedPages(cast("Sequence[PackedPiece]", run), table.fragments, table.dtype, io)
        elif kind is LibraryPiece:
            rows = cast("Sequence[LibraryPiece]", run)
            readers[len(paths)] = LanceRows(table, rows)
        extents.append(
            ShardExtents(
                token_count=run[-1].first + run[-1].count - run[0].first,
                file_size=fragment.file_size,
                digest_offset=0,
                chunk_size=1,
                first_crc=0,
                last_crc=0,
                first=np.array([piece.first - run[0].first for piece in flat], dtype=np.uint64),
                offset=np.array([piece.offset for piece in flat], dtype=np.uint64),
            )
        )
        paths.append(fragment.file)
    files = ShardFiles(
        ExtentTable.build(extents),
        paths,
        [""] * len(paths),
        table.dtype,
        io=io,
        verify=False,  # what Lance stores has no digests; the sizes are always compared
        fallback=_no_fallback,
        readers=readers,
    )
    return TokenLine(files, ids=None if below is None else IdRange(below, _place(table.fragments)))


def _runs(pieces: Iterable[Piece]) -> Iterator[tuple[type, list[Piece]]]:
    """Pieces that one reader serves: the flat ones of a file, or others that follow one another."""
    for (kind, _), run in groupby(pieces, lambda piece: (type(piece), isinstance(piece, FlatPiece) and piece.fragment)):
        yield kind, list(run)


def _no_fallback(path: Path) -> RangeReader:
    raise AssertionError(path)  # every run that is not flat has its reader


def _place(fragments: Sequence[Fragment]) -> Callable[[int], str]:
    stops = np.array([fragment.first + fragment.count for fragment in fragments], dtype=np.int64)
    files = [fragment.file for fragment in fragments]

    def place(position: int) -> str:
        number = int(np.searchsorted(stops, position, side="right"))
        return f"{files[number]}: token {position} of the data set"

    return place


def lance_fingerprint(table: PageTable) -> Fingerprint:
    """Of the names, sizes and rows of the data files, and pages spread evenly over them.

    Lance gives every data file a name of its own, and never changes it. Equal where versions have the same rows. A column's
    number tells it from another one in the same files, which bears its name since that was renamed.
    """
    column = f"{table.column.name} {table.column.field} {table.dtype}"
    digest = hashlib.sha256(f"headrace stat lance 1 {column} {table.token_count}".encode())
    for fragment in table.fragments:
        name = fragment.file.rpartition("/")[-1]
        digest.update(f"\n{name} {fragment.file_size} {fragment.rows} {fragment.deletions} {fragment.count}".encode())
    for number in range(_PAGES if table.fragments else 0):
        place, rest = divmod(number * (len(table.fragments) - 1), _PAGES - 1)
        fragment = table.fragments[place]
        try:
            with Path(fragment.file).open("rb") as file:
                file.seek(max(fragment.file_size - _PAGE, 0) * (rest or number) // (_PAGES - 1))
                digest.update(file.read(_PAGE))
        except OSError as error:
            raise UnreadableShardError(f"{fragment.file}: cannot be read: {error.strerror}") from error
    return Fingerprint(digest.hexdigest(), "stat")
