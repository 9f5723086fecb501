"""Reading an HDF5 shard through the library: its document index, and tokens where no map can."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, NoDocumentsError
from headrace.storage.compression import require_filters
from headrace.storage.hdf5_inspect import DATASET
from headrace.storage.hdf5_open import naming, open_file, open_shard
from headrace.storage.incoming import OriginsDigest

__all__ = ["DocumentColumns", "LibraryReader", "read_documents"]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentColumns:
    """The document index of one shard."""

    ends: NDArray[np.uint64]
    """Exclusive end of each document in the shard, shape (d,)."""
    rows: NDArray[np.uint64]
    """0-based line of each in its source's cut, shape (d,), or (0,) where the origin is not recorded; likewise ..."""
    offsets: NDArray[np.uint64]
    """... its byte in the decompressed source, and ..."""
    file_indices: NDArray[np.uint32]
    """... its source's place in `files`."""
    files: tuple[str, ...]

    @property
    def sources_sha256(self) -> str:
        """What the manifest's `sources_sha256` should be; empty where no origin is recorded."""
        if not self.files:
            return ""
        digest = OriginsDigest()
        digest.update(self.rows, self.offsets, self.file_indices)
        return digest.hex(self.files)


def read_documents(path: Path, document_count: int) -> DocumentColumns:
    """Read the document index of a shard whole: 28 bytes a document.

    Raises:
        NoDocumentsError: the file has none.
        CorruptShardError: it does not have `document_count` rows, or columns of another kind than the format says.
    """
    with open_shard(path) as file:
        group: Any = file.get("documents")
        if group is None or "end" not in group:
            raise NoDocumentsError(f"{path}: stores no document index")
        columns = [_column(path, group, name, kind) for name, kind in _COLUMNS]
        labels: list[bytes] = _column(path, group, "files", "S").tolist()
    ends, *origins = columns
    counts = {len(column) for column in origins}
    if len(ends) != document_count or counts not in ({0}, {document_count}):
        raise CorruptShardError(
            f"{path}: wanted {document_count} documents, found {len(ends)} ends and "
            f"{', '.join(str(len(column)) for column in origins)} source rows, bytes and files"
        )
    files = tuple(label.decode("utf-8", "surrogateescape") for label in labels)
    return DocumentColumns(ends, origins[0], origins[1], origins[2], files)


_COLUMNS = (("end", "u"), ("source_row", "u"), ("source_byte", "u"), ("source_file", "u"))
"""The columns of a document index, and their kinds."""


def _column(path: Path, group: Any, name: str, kind: str) -> NDArray[Any]:
    dataset = group.get(name)
    found = "nothing" if dataset is None else f"{dataset.dtype} of shape {dataset.shape}"
    if dataset is None or dataset.ndim != 1 or dataset.dtype.kind != kind:
        wanted = "unsigned integers" if kind == "u" else "fixed-length bytes"
        raise CorruptShardError(f"{path}: /documents/{name}: wanted {wanted} in one dimension, found {found}")
    return dataset[:]


class LibraryReader:
    """Tokens of one shard through h5py, for data that is not flat on disk.

    Picklable; the handle opens on first use in each process, and never crosses a fork. Safe for threads (HDF5 is
    serialised by h5py).
    """

    def __init__(self, path: Path, *, dataset_name: str = DATASET) -> None:
        self.path = path
        self.dataset_name = dataset_name
        self._dataset: Any | None = None
        self._pid = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "dataset_name": self.dataset_name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], dataset_name=state["dataset_name"])

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the shard as a new array of the file's dtype.

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError, MissingExtraError: naming the file.
        """
        dataset = self._dataset
        if dataset is None or self._pid != os.getpid():
            dataset = self._dataset = self._open()
            self._pid = os.getpid()
        with naming(self.path):
            return dataset[start:stop]

    def _open(self) -> Any:
        # A chunk larger than the chunk cache would be decoded anew for every window.
        with open_shard(self.path) as probe:
            dataset = probe[self.dataset_name]
            require_filters(self.path, dataset)
            chunks = dataset.chunks
            chunk_bytes = (chunks[0] if chunks else 0) * dataset.dtype.itemsize
        file = open_file(self.path, rdcc_nbytes=max(4 * chunk_bytes, 1 << 20))
        with naming(self.path):
            return file[self.dataset_name]

    def close(self) -> None:
        """Close the handle; the next read opens it again."""
        if self._dataset is not None and self._pid == os.getpid():
            self._dataset.file.close()
        self._dataset = None
