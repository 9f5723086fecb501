"""Where damage of a shard lies, in the words of those who have to find it: documents, source lines, HDF5 objects."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import MAX_LISTED, HeadraceError, Problem
from headrace.manifest import ShardEntry

if TYPE_CHECKING:
    from headrace.storage.document_columns import DocumentColumns

__all__ = ["DocumentPlaces", "listed", "odd_ends", "odd_origins", "runs", "unreadable_objects"]

_COLUMNS = ("end", "source_row", "source_byte", "source_file", "files", "id_end", "id", "text_hash")
_OBJECTS = (
    *("tokens", "documents", *(f"documents/{name}" for name in _COLUMNS), "chunks", "chunks/crc32"),
    *("loss_mask", "chunks/loss_mask_crc32"),
)


class DocumentPlaces:
    """Names documents of a shard, and where they come from.

    Args:
        entry: of the shard.
        columns: its document index.
        first_document: number in the corpus of its first document; None where that is not known.
        traced: whether what the columns say of sources is to be believed.
    """

    def __init__(
        self, entry: ShardEntry, columns: "DocumentColumns", *, first_document: int | None, traced: bool
    ) -> None:
        self._columns = columns
        self._first = first_document
        self._row_base = entry.row_base
        self._traced = traced and len(columns.rows) > 0

    def of_tokens(self, start: int, stop: int) -> str:
        """The documents that tokens [start, stop) of the shard touch; empty if none."""
        ends = self._columns.ends
        first = int(np.searchsorted(ends, np.uint64(start), side="right"))
        last = min(int(np.searchsorted(ends, np.uint64(stop - 1), side="right")), len(ends) - 1)
        return self.of_documents(first, last) if first <= last else ""

    def of_documents(self, first: int, last: int) -> str:
        """Documents `first` to `last` (inclusive) of the shard: `documents 7 to 9 of the corpus (...), from a.jsonl:8`."""
        span = f"{first} to {last}" if first != last else str(first)
        text = f"document{'s' * (first != last)} "
        if self._first is None:
            text += f"{span} of the shard"
        else:
            beyond = f" to {self._first + last}" if first != last else ""
            text += f"{self._first + first}{beyond} of the corpus ({span} of the shard)"
        if not self._traced:
            return text
        begin, end = self._line(first), self._line(last)
        files = len(set(self._columns.file_indices[first : last + 1].tolist()))
        among = f" ({files} files)" if files > 2 else ""  # noqa: PLR2004  # the two that are named
        return f"{text}, from {begin}{f' to {end}' if end != begin else ''}{among}"

    def _line(self, document: int) -> str:
        columns = self._columns
        label = columns.files[int(columns.file_indices[document])]
        return f"{label}:{self._row_base + int(columns.rows[document]) + 1}"


def odd_ends(ends: NDArray[np.uint64], token_count: int, at_boundary: NDArray[np.bool_]) -> list[int]:
    """Documents whose stored ends are likely to be what is wrong with the column, in order.

    Args:
        ends: exclusive ends, shape (d,).
        token_count: tokens of the shard.
        at_boundary: whether the last token of each document is the boundary, shape (d,); false beyond the shard.
    """
    odd = (ends > np.uint64(token_count)) | (ends == 0)
    if np.count_nonzero(at_boundary) * 2 > len(ends):  # else its writer did not end documents so
        odd |= ~at_boundary
    rest = np.flatnonzero(~odd)
    odd[rest[1:][ends[rest[1:]] <= ends[rest[:-1]]]] = True
    return np.flatnonzero(odd).tolist()


def odd_origins(columns: "DocumentColumns") -> Iterator[tuple[str, int]]:
    """Where the columns of sources stop being in the order in which a build reads: `(column, document)`, one a column."""
    files, count = columns.file_indices, len(columns.files)
    follows = files[1:] == files[:-1]
    odd = files >= count
    odd[1:] |= files[1:] < files[:-1]
    for name, wrong in (
        ("source_file", odd),
        ("source_row", np.append(False, follows & (columns.rows[1:] <= columns.rows[:-1]))),
        ("source_byte", np.append(False, follows & (columns.offsets[1:] <= columns.offsets[:-1]))),
    ):
        if wrong.any():
            yield name, int(np.argmax(wrong))


def unreadable_objects(path: Path) -> list[Problem]:
    """The objects of a shard that HDF5 cannot read, outermost first; of the tokens their attributes and chunk index."""
    from headrace.storage.hdf5_open import open_shard  # noqa: PLC0415  # imports h5py

    found: list[Problem] = []
    try:
        with open_shard(path) as file:
            for name in _OBJECTS:
                reason = _unreadable(file, name)
                if reason:
                    found.append(Problem(f"{path}: /{name}", f"HDF5 cannot read it: {reason}"))
    except HeadraceError:
        return []  # the file as a whole, then: whoever opened it has said so
    return found


def _unreadable(file: Any, name: str) -> str:  # noqa: ANN401  # an h5py.File, which has no useful static type
    try:
        found = file[name]
        for attribute in found.attrs:
            found.attrs[attribute]  # pyright: ignore[reportUnusedExpression]  # to see whether it can be read
        if name in {"tokens", "loss_mask"}:
            if found.chunks:
                found.id.get_num_chunks()
        elif hasattr(found, "shape"):
            found[:]  # pyright: ignore[reportUnusedExpression]
        else:
            list(found)
    except Exception as error:  # noqa: BLE001  # h5py raises KeyError, RuntimeError and others on damaged metadata
        return "" if "doesn't exist" in str(error) else f"{type(error).__name__}: {error}"
    return ""


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as runs `(first, last)` without gaps."""
    first = last = -1
    for number in numbers:
        if number != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = number
        last = number
    if first >= 0:
        yield first, last


def listed(texts: Sequence[object]) -> str:
    """The first few of many, and how many more there are."""
    rest = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return ", ".join(map(str, texts[:MAX_LISTED])) + rest
