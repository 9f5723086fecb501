"""Pieces of the line of tokens of a Lance data set: where each lies, and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.storage.lance_packed import Packing

__all__ = ["FlatPiece", "LibraryPiece", "PackedPiece", "Piece", "merged", "placed"]


@dataclass(frozen=True, slots=True)
class FlatPiece:
    """Tokens that lie in a file one behind the other."""

    first: int
    """Position of its first token in the data set."""
    count: int
    """Tokens."""
    fragment: int
    """Its place in `PageTable.fragments`, which has the file."""
    offset: int
    """Byte of the first token in the file."""


@dataclass(frozen=True, slots=True)
class PackedPiece:
    """A page in chunks that `lance_packed` unpacks."""

    first: int
    count: int
    fragment: int
    packing: Packing


@dataclass(frozen=True, slots=True)
class LibraryPiece:
    """Rows of a fragment that only Lance can read."""

    first: int
    count: int
    fragment: int
    row: int
    """First of its rows among those of the fragment that are not deleted."""


Piece = FlatPiece | PackedPiece | LibraryPiece


def placed(pieces: Sequence[Piece], first: int, fragment: int) -> Iterator[Piece]:
    """Pieces of a file, where they lie in a data set."""
    for piece in pieces:
        yield replace(piece, first=piece.first + first, fragment=fragment)


def merged(pieces: Sequence[Piece], itemsize: int) -> Iterator[Piece]:
    """The same, with flat pieces that follow one another in a file, and rows that do, put together."""
    last: Piece | None = None
    for piece in pieces:
        joined = last and _joined(last, piece, itemsize)
        if joined:
            last = joined
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _joined(last: Piece, piece: Piece, itemsize: int) -> Piece | None:
    if last.fragment != piece.fragment:
        return None
    if isinstance(last, FlatPiece) and isinstance(piece, FlatPiece):
        neighbours = last.offset + last.count * itemsize == piece.offset
        return replace(last, count=last.count + piece.count) if neighbours else None
    if isinstance(last, LibraryPiece) and isinstance(piece, LibraryPiece):
        return replace(last, count=last.count + piece.count)
    return None
