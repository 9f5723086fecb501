"""The fragments of a Lance data set: which file has the tokens of each, how many rows and tokens, where they begin."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, FormatError, MissingShardError, Problem
from headrace.storage.document_ends import document_ends
from headrace.storage.lance_columns import TokenColumn
from headrace.storage.lance_open import naming

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

__all__ = ["LEGACY", "Fragment", "Stored", "ends_of", "fragments_of", "stored_fragments"]

LEGACY = 0
"""Major version of files that Lance's own file reader refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A fragment of the data set, with tokens or without."""

    number: int
    """By which Lance knows it."""
    file: str
    """Path of the data file that has the tokens."""
    file_size: int
    """Bytes."""
    first_row: int
    """Number of its first row in the data set; rows that are deleted are not counted."""
    rows: int
    """That are not deleted."""
    deletions: str
    """Name of the file that says which rows are deleted; empty where none are."""
    first: int
    """Position of its first token in the data set."""
    count: int
    """Tokens."""


class Stored(NamedTuple):
    """A fragment as Lance has it."""

    fragment: "LanceFragment"
    file: Any
    """That with the tokens, as Lance describes it, ..."""
    path: str
    """... its path, and ..."""
    size: int
    """... its size in bytes, and ..."""
    modified: int
    """... when it was modified, in nanoseconds."""
    rows: int
    """Of the fragment, without those that are deleted."""
    overlaid: bool
    """Whether other values lie over some of the file's."""


def ends_of(dataset: "LanceDataset", column: TokenColumn, path: Path, stored: Sequence[Stored]) -> NDArray[np.int64]:
    """Where the rows end that are lists."""
    count = dataset.count_rows()

    def pieces() -> Iterator[NDArray[np.int64]]:
        found = last = 0
        try:
            with naming(path):
                for batch in dataset.scanner(columns=[column.name]).to_batches():
                    rows: Any = batch.column(0)
                    if rows.null_count or rows.flatten().null_count:
                        raise FormatError(f"{path}: column {column.name} has nulls, which are no tokens")
                    lengths = np.diff(rows.offsets.to_numpy()).astype(np.int64)
                    yield last + np.cumsum(lengths)
                    found, last = found + len(lengths), last + int(lengths.sum())
                if found != count:
                    raise ValueError(f"it has {found} rows, not {count}")
        except CorruptShardError:
            _require_rows(stored, column)
            raise

    names = [f"{one.file.path} {one.fragment.deletion_file()}\n" for one in stored]
    known = hashlib.sha256(f"{column}\n{''.join(names)}".encode()).hexdigest()
    return document_ends(count, pieces, fingerprint=known)


def _require_rows(stored: Sequence[Stored], column: TokenColumn) -> None:
    """Name the first data file that cannot be read, or has other rows than it should have."""
    for one in stored:
        with naming(one.path):
            rows = one.fragment.to_table(columns=[column.name]).num_rows
            if rows != one.rows:
                raise ValueError(f"it has {rows} rows, not {one.rows}")


def stored_fragments(dataset: "LanceDataset", column: TokenColumn, path: Path) -> list[Stored]:
    """The fragments, each with the file that has its tokens.

    Raises:
        FormatError, MissingShardError, CorruptShardError: as of `page_table`.
    """
    found: list[Stored] = []
    faults: list[MissingShardError | CorruptShardError | FormatError] = []
    folders = _folders(dataset, path)
    for fragment in dataset.get_fragments():
        try:
            told = fragment.metadata
            overlaid = bool(getattr(told, "overlays", None))  # older ones of Lance have none
            file = _data_file(fragment, column, path, folders)
            found.append(Stored(fragment, *file, rows=int(told.num_rows), overlaid=overlaid))
        except (MissingShardError, CorruptShardError, FormatError) as error:
            faults.append(error)
    if len(faults) > 1:
        problems = [Problem(*str(fault).split(": ", 1)) for fault in faults]
        raise type(faults[0])(f"{path}: {len(faults)} data files are not as they should be", problems=problems)
    if faults:
        raise faults[0]
    return found


def fragments_of(
    stored: Sequence[Stored], column: TokenColumn, ends: NDArray[np.int64] | None
) -> Iterator[tuple[Stored, Fragment]]:
    """Each fragment with its place on the line of tokens; `ends` of rows that are lists."""
    row = first = 0
    for one in stored:
        rows = one.rows
        count = rows * column.width if ends is None else (int(ends[row + rows - 1]) - first if rows else 0)
        known = Fragment(
            number=one.fragment.fragment_id,
            file=one.path,
            file_size=one.size,
            first_row=row,
            rows=rows,
            deletions=(one.fragment.deletion_file() or "").rpartition("/")[-1],
            first=first,
            count=count,
        )
        yield one, known
        row, first = row + rows, first + count


def _folders(dataset: "LanceDataset", path: Path) -> dict[int | None, str]:
    """Where data files lie, by the number of their base: those of a shallow clone in the data set that it is of."""
    bases: dict[int, Any] = getattr(dataset, "base_paths", dict)()  # older ones of Lance do not tell
    others = {number: base.path + "/data" * base.is_dataset_root for number, base in bases.items()}
    return {None: f"{path}/data", **others}


def _data_file(
    fragment: "LanceFragment", column: TokenColumn, path: Path, folders: Mapping[int | None, str]
) -> tuple[Any, str, int, int]:
    """The file of a fragment that has the tokens, as Lance describes it, its path, its size, and when it was modified."""
    # Lists have no field of their own from 2.1 on.
    fields = {column.field, column.values}
    file = next((file for file in fragment.data_files() if fields & set(file.fields)), None)
    if file is None:
        raise FormatError(f"{path}: fragment {fragment.fragment_id} has no column {column.name}: it would be all nulls")
    if file.base_id not in folders:
        raise FormatError(
            f"{path}: {file.path} lies outside of it, as of a shallow clone, and this version of Lance does not tell "
            "where: install a newer pylance"
        )
    place = f"{folders[file.base_id]}/{file.path}"
    try:
        status = os.stat(place)  # noqa: PTH116  # of very many files
    except FileNotFoundError as error:
        raise MissingShardError(f"{place}: no such file, though version {_version(fragment)} has it") from error
    except (OSError, ValueError) as error:  # what is no name at all is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise CorruptShardError(
            f"{path}: version {_version(fragment)} has a data file {place!r}, which cannot be looked at: {reason}"
        ) from error
    size = status.st_size
    # Of files of format 0.1 older ones of its libraries note less than they wrote.
    if file.file_major_version != LEGACY and file.file_size_bytes not in {None, 0, size}:
        raise CorruptShardError(
            f"{place}: wanted {file.file_size_bytes} bytes, found {size}; copy it again, or write the data set again"
        )
    return file, place, size, status.st_mtime_ns


def _version(fragment: "LanceFragment") -> int:
    return int(fragment._ds.version)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # for a message
