"""Reading an HDF5 shard through the library: its document index, and tokens where no map can."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, NoDocumentsError
from headrace.storage.compression import require_filters
from headrace.storage.decoded import DecodedChunks, decoded_chunks
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.hdf5_open import naming, open_file, open_shard
from headrace.storage.incoming import HASH_BYTES
from headrace.storage.layout import DATASET

__all__ = [
    "HASH_COLUMN",
    "ID_COLUMNS",
    "LibraryReader",
    "as_hashes",
    "check_hashes",
    "checked_ids",
    "read_documents",
    "read_documents_in_pieces",
    "stores_text_hashes",
]

_CACHED_CHUNKS = 4
"""Chunks in HDF5's cache of each file, or what fits into ..."""
_LEAST_CACHE = 1 << 20
"""... so many bytes."""


def read_documents(path: Path, document_count: int) -> DocumentColumns:
    """Read the document index of a shard whole: 28 bytes a document, its id and the hash of its text.

    Raises:
        NoDocumentsError: the file has none.
        CorruptShardError: it does not have `document_count` rows, or columns of another kind than the format says.
    """
    with open_shard(path) as file:
        columns = _StoredColumns(path, file, document_count).read(0, document_count)
    if columns.id_ends is not None and columns.ids is not None:
        checked_ids(path, (columns.id_ends, columns.ids), document_count)
    return columns


def read_documents_in_pieces(path: Path, document_count: int, rows: int) -> Iterator[DocumentColumns]:
    """Read the document index of a shard, at most `rows` documents at a time; arguments and errors as there.

    What the ends say, of documents and of ids, is not looked at before the caller has it.
    """
    with open_shard(path) as file:
        stored = _StoredColumns(path, file, document_count)
        for start in range(0, document_count, rows):
            yield stored.read(start, min(start + rows, document_count))


def stores_text_hashes(path: Path) -> bool:
    """Whether a shard has the hashes of its documents' texts."""
    with open_shard(path) as file:
        return f"documents/{HASH_COLUMN}" in file


class _StoredColumns:
    """The columns of an open file."""

    def __init__(self, path: Path, file: Any, document_count: int) -> None:
        group: Any = file.get("documents")
        if group is None or "end" not in group:
            raise NoDocumentsError(f"{path}: stores no document index")
        self._ends, *self._origins = (_column(path, group, name, kind) for name, kind in _COLUMNS)
        labels: list[bytes] = _column(path, group, "files", "S")[:].tolist()
        self._files = tuple(label.decode("utf-8", "surrogateescape") for label in labels)
        self._ids = [_column(path, group, name, "u") for name in ID_COLUMNS] if ID_COLUMNS[0] in group else []
        self._hashes = _column(path, group, HASH_COLUMN, "V") if HASH_COLUMN in group else None
        counts = {len(column) for column in self._origins}
        if len(self._ends) != document_count or counts not in ({0}, {document_count}):
            raise CorruptShardError(
                f"{path}: wanted {document_count} documents, found {len(self._ends)} ends and "
                f"{', '.join(str(len(column)) for column in self._origins)} source rows, bytes and files"
            )
        if self._hashes is not None:
            check_hashes(path, self._hashes, document_count)

    def read(self, start: int, stop: int) -> DocumentColumns:
        """Those of documents [start, stop)."""
        rows, offsets, files = (column[start:stop] for column in self._origins)
        columns = DocumentColumns(self._ends[start:stop], rows, offsets, files, self._files)
        if self._hashes is not None:
            columns = replace(columns, text_hashes=as_hashes(self._hashes[start:stop]))
        if not self._ids:
            return columns
        ends, ids = self._ids
        stops = ends[start:stop]
        first = int(ends[start - 1]) if start else 0
        last = int(stops[-1]) if len(stops) else first
        # All of them where all documents are read: there may be more than the last end says.
        data = ids[first:last] if start or stop < len(ends) else ids[:]
        return replace(columns, id_ends=stops, ids=data, first_id=first)


def checked_ids(path: Path, columns: Sequence[NDArray[Any]], count: int) -> Sequence[NDArray[Any]]:
    """The columns of `count` ids as they are; none where there are none.

    Raises:
        CorruptShardError: they are no such columns.
    """
    if columns:
        ends, ids = columns
        last = int(ends[-1]) if len(ends) else 0
        if len(ends) != count or last != len(ids) or bool((ends[1:] < ends[:-1]).any()):
            raise CorruptShardError(
                f"{path}: /documents/id_end does not hold {count} ends of ids, up to {len(ids)} bytes"
            )
    return columns


def check_hashes(path: Path, column: Any, count: int) -> None:  # a data set, or an array
    """Check the column of the hashes of `count` texts.

    Raises:
        CorruptShardError: it is no such column.
    """
    if len(column) != count or column.dtype.itemsize != HASH_BYTES:
        raise CorruptShardError(
            f"{path}: /documents/{HASH_COLUMN}: wanted {count} hashes of {HASH_BYTES} bytes, found {len(column)} of "
            f"{column.dtype.itemsize}"
        )


def as_hashes(column: NDArray[Any]) -> NDArray[np.uint8]:
    """What is read of the column as an array of bytes, shape (d, 16)."""
    return np.frombuffer(column.tobytes(), np.uint8).reshape(len(column), HASH_BYTES)


ID_COLUMNS = ("id_end", "id")
"""Those that are there where documents have ids."""
HASH_COLUMN = "text_hash"
"""That which is there where the hashes of texts are stored."""
_COLUMNS = (("end", "u"), ("source_row", "u"), ("source_byte", "u"), ("source_file", "u"))
"""The columns of a document index, and their kinds."""


def _column(path: Path, group: Any, name: str, kind: str) -> Any:
    dataset = group.get(name)
    found = "nothing" if dataset is None else f"{dataset.dtype} of shape {dataset.shape}"
    if dataset is None or dataset.ndim != 1 or dataset.dtype.kind != kind:
        wanted = {"u": "unsigned integers", "S": "fixed-length bytes", "V": "opaque bytes"}[kind]
        raise CorruptShardError(f"{path}: /documents/{name}: wanted {wanted} in one dimension, found {found}")
    return dataset


class LibraryReader:
    """Tokens of one shard that are not flat on disk.

    Picklable. Safe for threads and in the child of a fork. What gzip or zstd alone has compressed is decoded here;
    all else goes through HDF5, whose handle opens on first use in each process, and is serialised by h5py.
    """

    def __init__(self, path: Path, *, dataset_name: str = DATASET) -> None:
        self.path = path
        self.dataset_name = dataset_name
        self._opened: DecodedChunks | _ThroughHDF5 | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "dataset_name": self.dataset_name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], dataset_name=state["dataset_name"])

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the shard, which must exist, of the file's dtype: a read-only view, or a new array.

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError, MissingExtraError: naming the file.
        """
        opened = self._opened
        if opened is None or (isinstance(opened, _ThroughHDF5) and opened.process != os.getpid()):
            opened = self._opened = _open(self.path, self.dataset_name)
        return opened.read(start, stop)

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        self._opened = None


def _open(path: Path, dataset_name: str) -> "DecodedChunks | _ThroughHDF5":
    with open_shard(path) as file:
        dataset = file[dataset_name]
        decoded = decoded_chunks(path, dataset)
        if decoded is not None:
            return decoded
        require_filters(path, dataset)
        chunk_bytes = (dataset.chunks[0] if dataset.chunks else 0) * dataset.dtype.itemsize
    return _ThroughHDF5(path, dataset_name, cache_bytes=max(_CACHED_CHUNKS * chunk_bytes, _LEAST_CACHE))


class _ThroughHDF5:
    """A data set that this process has opened with h5py, which closes the file when this object goes."""

    def __init__(self, path: Path, dataset_name: str, *, cache_bytes: int) -> None:
        self.process = os.getpid()
        self._path = path
        # A chunk larger than the chunk cache would be decoded anew for every window.
        file = open_file(path, rdcc_nbytes=cache_bytes)
        with naming(path):
            self._dataset = file[dataset_name]

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        try:
            with naming(self._path):
                return self._dataset[start:stop]
        except CorruptShardError as error:
            reason = error.summary.removeprefix(f"{self._path}: ")
            raise CorruptShardError(f"{self._path}: tokens [{start}, {stop}) of the shard: {reason}") from error
