"""Names and creation of an HDF5 shard, format version 2 (normative text: `docs/format.md`).

Every object and attribute is created here, through a `SwmrFile`, before SWMR mode starts. The columns that grow are
written through h5py's low-level calls, a third of the cost of its slicing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from headrace.errors import WriterError
from headrace.storage.compression import Compression
from headrace.storage.incoming import HASH_BYTES
from headrace.storage.layout import LOSS_MASK, crc_name
from headrace.storage.swmr import SwmrFile

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "GROWING",
    "Column",
    "ShardFile",
    "create_attributes",
    "create_columns",
    "create_file",
    "create_shard_file",
]

FORMAT_VERSION = 2
ALIGNMENT = 4096
"""Byte alignment of every object of a page or more, so that chunks can be mapped and read directly."""
GROWING = b"0" * 64
"""The `sha256` of a shard whose writer has not closed it."""
DOCUMENTS_CHUNK = 4096
"""Rows a chunk of the document columns."""
ID_CHUNK = 65536
"""Bytes a chunk of the documents' ids."""
CRC_CHUNK = 1024
"""Rows a chunk of `/chunks/crc32`."""


class Column:
    """A growing one-dimensional data set.

    Args:
        dataset: chunked.
        whole_chunks: write chunks that are full at once past HDF5's cache; only for data sets without a filter.
    """

    def __init__(self, dataset: h5py.Dataset, *, whole_chunks: bool = False) -> None:
        self._id = dataset.id
        self._chunk: int = dataset.chunks[0] if whole_chunks and dataset.chunks else 0
        self.dtype: np.dtype[Any] = dataset.dtype
        self.length: int = dataset.shape[0]
        # Kept, for making them anew costs more than writing a few rows.
        self._type = h5py.h5t.py_create(self.dtype)
        self._within = h5py.h5s.create_simple((self.length,), (h5py.h5s.UNLIMITED,))
        self._values = h5py.h5s.create_simple((0,))

    def append(self, values: NDArray[Any], /) -> None:
        """Grow by `len(values)` and write them into the new range."""
        values = np.ascontiguousarray(values, dtype=self.dtype)
        start, self.length = self.length, self.length + len(values)
        self._id.set_extent((self.length,))
        if self._chunk and start % self._chunk == len(values) % self._chunk == 0:
            for at in range(0, len(values), self._chunk):
                self._id.write_direct_chunk((start + at,), values[at : at + self._chunk].data)
            return
        self._within.set_extent_simple((self.length,), (h5py.h5s.UNLIMITED,))
        self._within.select_hyperslab((start,), (len(values),))
        self._values.set_extent_simple((len(values),))
        self._id.write(self._values, self._within, values, self._type)


class Scalar:
    """An attribute whose value changes while its type stays."""

    def __init__(self, dataset: h5py.Dataset, name: str) -> None:
        self._id = h5py.h5a.open(dataset.id, name.encode())
        self._dtype = self._id.dtype
        self._type = h5py.h5t.py_create(self._dtype)

    def set(self, value: int | bytes, /) -> None:
        """Overwrite the value in place."""
        self._id.write(np.array(value, dtype=self._dtype), self._type)


@dataclass(frozen=True, slots=True)
class ShardFile:
    """The open parts of a shard that is being written."""

    file: SwmrFile
    tokens: Column
    ends: Column
    rows: Column
    bytes: Column
    files: Column
    crc32: Column
    token_count: Scalar
    document_count: Scalar
    sha256: Scalar
    documents_sha256: Scalar
    id_ends: Column | None = None
    """Where each document has an id, likewise ..."""
    ids: Column | None = None
    text_hashes: Column | None = None
    """Where the hash of each document's text is stored."""
    loss_mask: Column | None = None
    """Where each token says whether it counts in the loss, likewise ..."""
    loss_mask_crc32: Column | None = None
    loss_mask_sha256: Scalar | None = None


def create_shard_file(
    path: Path,
    *,
    chunk_size: int,
    dataset_name: str,
    dtype: np.dtype[Any],
    compression: Compression,
    vocab_size: int,
    boundary_token_id: int,
    tokenizer_sha256: str,
    source_files: Sequence[str],
    document_ids: bool = False,
    text_hashes: bool = False,
    loss_mask: bool = False,
) -> ShardFile:
    """Create the file at `path`, which must not exist, with all its objects, and put it into SWMR mode.

    No lock is taken: a reader that opens the name early would otherwise make the creation fail, and the name is fresh.
    """
    created = create_file(path, aligned=compression.name == "none")  # what is compressed is never mapped
    try:
        file = SwmrFile(created)
        options = compression.dataset_options()
        tokens = file.create_dataset(dataset_name, (0,), dtype, maxshape=(None,), chunks=(chunk_size,), **options)
        create_attributes(
            file, tokens, boundary_token_id=boundary_token_id, vocab_size=vocab_size, tokenizer_sha256=tokenizer_sha256
        )
        mask: h5py.Dataset | None = None
        if loss_mask:
            mask = file.create_dataset(LOSS_MASK, (0,), "u1", maxshape=(None,), chunks=(chunk_size,), **options)
            file.create_attribute(tokens, f"{LOSS_MASK}_sha256", np.bytes_(GROWING))
        columns = create_columns(
            file, source_files, document_ids=document_ids, text_hashes=text_hashes, loss_mask=loss_mask
        )
        file.start()
        shard = ShardFile(
            file=file,
            tokens=Column(tokens, whole_chunks=not options),
            **columns,
            # HDF5 refuses SWMR mode while an attribute is open.
            token_count=Scalar(tokens, "token_count"),
            document_count=Scalar(tokens, "document_count"),
            sha256=Scalar(tokens, "sha256"),
            documents_sha256=Scalar(tokens, "documents_sha256"),
            loss_mask=None if mask is None else Column(mask, whole_chunks=not options),
            loss_mask_sha256=None if mask is None else Scalar(tokens, f"{LOSS_MASK}_sha256"),
        )
        file.flush()
    except BaseException:
        created.close()
        path.unlink(missing_ok=True)
        raise
    return shard


def create_file(path: Path, *, aligned: bool = True) -> h5py.File:
    """Create an HDF5 file, which must not exist, laid out as a shard is: its larger objects at multiples of a page."""
    page = ALIGNMENT if aligned else 1
    return h5py.File(path, "x", libver="latest", alignment_threshold=page, alignment_interval=page, locking=False)


def create_attributes(
    file: SwmrFile,
    tokens: h5py.Dataset,
    *,
    boundary_token_id: int,
    vocab_size: int,
    tokenizer_sha256: str = "",
    token_count: int = 0,
    document_count: int = 0,
    sha256: bytes = GROWING,
    documents_sha256: bytes = GROWING,
) -> None:
    """Give the token data set its attributes; by default those of a shard that begins to grow."""
    attributes: dict[str, Any] = {
        "format_version": np.uint64(FORMAT_VERSION),
        "token_count": np.uint64(token_count),
        "document_count": np.uint64(document_count),
        "sha256": np.bytes_(sha256),
        "documents_sha256": np.bytes_(documents_sha256),
        "boundary_token_id": np.uint64(boundary_token_id),
        "vocab_size": np.uint64(vocab_size),
        "tokenizer_sha256": np.array(tokenizer_sha256.encode("ascii"), dtype="S64"),
    }
    for name, value in attributes.items():
        file.create_attribute(tokens, name, value)


def create_columns(
    file: SwmrFile,
    source_files: Sequence[str],
    *,
    crc_fill: int = 0,
    document_ids: bool = False,
    text_hashes: bool = False,
    loss_mask: bool = False,
) -> dict[str, Column]:
    """Create the document columns and the tables of checksums, all empty.

    Args:
        file: a new shard.
        source_files: labels of the source files.
        crc_fill: the checksum of chunks that none is written for.
        document_ids: whether each document has an id.
        text_hashes: whether the hash of each document's text is stored.
        loss_mask: whether there is a mask, whose chunks have checksums of their own.

    Returns:
        The columns by their names in `ShardFile`.
    """

    def column(name: str, dtype: str, chunk: int = DOCUMENTS_CHUNK) -> Column:
        name = f"documents/{name}"
        return Column(file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(chunk,)))

    file.create_group("documents")
    table = _file_table(source_files)
    file.create_dataset("documents/files", table.shape, table.dtype, data=table)
    crc32 = file.create_dataset(
        "chunks/crc32", (0,), "<u4", maxshape=(None,), chunks=(CRC_CHUNK,), fillvalue=crc_fill or None
    )
    mask: dict[str, Column] = {}
    if loss_mask:
        checksums = file.create_dataset(crc_name(LOSS_MASK), (0,), "<u4", maxshape=(None,), chunks=(CRC_CHUNK,))
        mask["loss_mask_crc32"] = Column(checksums)
    ids = {"id_ends": column("id_end", "<u8"), "ids": column("id", "u1", ID_CHUNK)} if document_ids else {}
    hashes = {"text_hashes": column("text_hash", f"V{HASH_BYTES}")} if text_hashes else {}
    return (
        ids
        | hashes
        | mask
        | {
            "ends": column("end", "<u8"),
            "rows": column("source_row", "<u8"),
            "bytes": column("source_byte", "<u8"),
            "files": column("source_file", "<u4"),
            "crc32": Column(crc32),
        }
    )


def _file_table(source_files: Sequence[str]) -> NDArray[np.bytes_]:
    """Labels of the source files as fixed-length UTF-8: HDF5 refuses variable-length types under SWMR."""
    encoded = [name.encode("utf-8", "surrogateescape") for name in source_files]
    if any(b"\0" in name or not name for name in encoded):
        raise WriterError("a source file's label is empty or holds a NUL byte")
    width = max(map(len, encoded), default=1)
    return np.array(encoded, dtype=f"S{width}")
