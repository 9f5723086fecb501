"""What lies where in an HDF5 shard."""

import mmap
import os
from array import array
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, FormatError, GrowingShardError
from headrace.manifest import is_sha256
from headrace.storage.compression import filters_of, require_filters
from headrace.storage.hdf5_layout import FORMAT_VERSION, GROWING
from headrace.storage.hdf5_open import open_shard
from headrace.storage.layout import DATASET, LOSS_MASK, DataLayout, ShardLayout, crc_name

__all__ = ["inspect_shard"]

_NOMINAL_CHUNK = 65536
"""Tokens that are checked at a time where the file has no chunks."""
_COUNTS = ("format_version", "token_count", "document_count", "boundary_token_id", "vocab_size")
_TEXTS = ("sha256", "documents_sha256", "tokenizer_sha256", f"{LOSS_MASK}_sha256")


def inspect_shard(path: Path, *, dataset_name: str = DATASET) -> ShardLayout:
    """Read the layout and the attributes of a finished shard, or of any HDF5 file with a one-dimensional integer data set.

    Raises:
        MissingShardError, UnreadableShardError: there is no such file, or it cannot be opened.
        FormatError: no such data set, not one of token ids, or of a later format version.
        MissingExtraError: the file stores no checksums, and decoding its tokens needs hdf5plugin.
        CorruptShardError: the file is cut or damaged, or `token_count` exceeds the data set.
        GrowingShardError: (a CorruptShardError) its writer has not closed it.
    """
    with open_shard(path) as file:
        dataset = _token_dataset(path, file, dataset_name)
        attributes = _attributes(path, dataset)
        held = int(dataset.shape[0])
        token_count = int(attributes.pop("token_count", held))
        if token_count > held:
            raise CorruptShardError(f"{path}: token_count {token_count} against a dataset of {held} tokens")
        sha256 = str(attributes.pop("sha256", ""))
        if sha256 == GROWING.decode():
            raise GrowingShardError(f"{path}: its sha256 is all zeros: its writer never closed it; rebuild the shard")
        documents = attributes.pop("document_count", None)
        mask_sha256 = str(attributes.pop(f"{LOSS_MASK}_sha256", ""))
        mask: DataLayout | None = None
        if mask_sha256:
            mask = DataLayout(**_layout(path, file, _mask_dataset(path, file, token_count), token_count, mask_sha256))
        return ShardLayout(
            **_layout(path, file, dataset, token_count, sha256),
            document_count=None if documents is None else int(documents),
            documents_sha256=str(attributes.pop("documents_sha256", "")),
            compression=filters_of(dataset),
            attributes=attributes,
            loss_mask=mask,
        )


def _layout(path: Path, file: Any, dataset: Any, token_count: int, sha256: str) -> dict[str, Any]:
    """The fields of a `DataLayout`."""
    first, offset = _extents(file, dataset, token_count)
    chunk_size = int(dataset.chunks[0]) if dataset.chunks else _NOMINAL_CHUNK
    crcs = _end_crcs(path, file, dataset, token_count, chunk_size)
    dtype = dataset.dtype
    file_size = path.stat().st_size
    stops = np.append(first[1:], np.uint64(token_count))[: len(first)]
    ends = offset + (stops - first) * np.uint64(dtype.itemsize)
    if len(ends) and int(ends.max()) > file_size:
        raise CorruptShardError(f"{path}: is truncated: its chunks lie beyond its {file_size} bytes")
    return {
        "file_size": file_size,
        "dtype": dtype,
        "token_count": token_count,
        "sha256": sha256,
        "digest_offset": _find(path, sha256.encode()) if is_sha256(sha256) else 0,
        "first": first,
        "offset": offset,
        "chunk_size": chunk_size,
        "first_crc": crcs[0],
        "last_crc": crcs[1],
    }


def _mask_dataset(path: Path, file: Any, token_count: int) -> Any:
    dataset = file.get(LOSS_MASK)
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype != np.uint8 or dataset.ndim != 1:
        raise CorruptShardError(f"{path}: has a {LOSS_MASK}_sha256, but no data set {LOSS_MASK!r} of uint8")
    if dataset.shape[0] < token_count:
        raise CorruptShardError(f"{path}: token_count {token_count} against a {LOSS_MASK} of {dataset.shape[0]} values")
    return dataset


def _token_dataset(path: Path, file: Any, name: str) -> Any:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        names = ", ".join(map(repr, file)) or "nothing"
        raise FormatError(f"{path}: wanted a data set {name!r}, found {names}")
    if dataset.ndim != 1 or dataset.dtype.kind not in "iu":
        raise FormatError(
            f"{path}: data set {name!r} should be one-dimensional and of integers, "
            f"not {dataset.dtype} of shape {dataset.shape}"
        )
    return dataset


def _attributes(path: Path, dataset: Any) -> dict[str, int | str]:
    """The attributes that we know; a foreign file may have any others."""
    found: dict[str, int | str] = {}
    for name in _COUNTS:
        if name in dataset.attrs:
            value = np.asarray(dataset.attrs[name])
            if value.size != 1 or value.dtype.kind not in "iu" or int(value.reshape(())) < 0:
                raise CorruptShardError(f"{path}: attribute {name} should be a count, not {value!r}")
            found[name] = int(value.reshape(()))
    for name in _TEXTS:
        if name in dataset.attrs:
            value = dataset.attrs[name]
            found[name] = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    if int(found.get("format_version", 0)) > FORMAT_VERSION:
        raise FormatError(
            f"{path}: is of format version {found['format_version']}; this version of Headrace reads up to "
            f"{FORMAT_VERSION}: upgrade it"
        )
    return found


def _extents(file: Any, dataset: Any, token_count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Extents of the first `token_count` tokens; two empty arrays where the bytes on disk are not plain tokens."""
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint64)
    properties = dataset.id.get_create_plist()
    if token_count == 0 or properties.get_nfilters() or dataset.dtype.newbyteorder("<") != dataset.dtype:
        return nothing
    # HDF5 has integers of odd precision; and whether offsets count from the end of a user block differs by version.
    if file.userblock_size or not dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)):
        return nothing
    itemsize = dataset.dtype.itemsize
    numbers, places = array("Q"), array("Q")
    if properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count():
        start = dataset.id.get_offset()
        if start:
            numbers.append(0)
            places.append(start)
    elif properties.get_layout() == h5py.h5d.CHUNKED:

        def note(chunk: Any) -> None:
            numbers.append(chunk.chunk_offset[0])
            places.append(chunk.byte_offset)

        dataset.id.chunk_iter(note)
    if not numbers:  # never written; or compact, virtual or external: the library knows
        return nothing
    first, offset = np.array(numbers, dtype=np.uint64), np.array(places, dtype=np.uint64)
    order = np.argsort(first, kind="stable")
    size = int(dataset.chunks[0]) if dataset.chunks else token_count
    used = -(-token_count // size)
    first, offset = first[order][:used], offset[order][:used]
    if len(first) < used or bool((first != np.arange(used, dtype=np.uint64) * np.uint64(size)).any()):
        return nothing  # a chunk was never written: it holds the fill value
    joined = offset[1:] == offset[:-1] + np.uint64(size * itemsize)
    starts = np.concatenate([[True], ~joined])
    first, offset = first[starts], offset[starts]
    return (first, offset) if _agrees(dataset, token_count, first, offset) else nothing


def _agrees(dataset: Any, token_count: int, first: NDArray[np.uint64], offset: NDArray[np.uint64]) -> bool:
    """Whether the first and last tokens at these offsets are what the library reads."""
    itemsize = dataset.dtype.itemsize
    descriptor = os.open(dataset.file.filename, os.O_RDONLY)
    try:
        for start, count, at in (
            (0, min(token_count, 16), int(offset[0])),
            (token_count - 1, 1, int(offset[-1]) + (token_count - 1 - int(first[-1])) * itemsize),
        ):
            if os.pread(descriptor, count * itemsize, at) != dataset[start : start + count].tobytes():
                return False
    finally:
        os.close(descriptor)
    return True


def _end_crcs(path: Path, file: Any, dataset: Any, token_count: int, chunk_size: int) -> tuple[int, int]:
    """crc32 of the first and the last chunk: as the writer stored them, else worked out now."""
    if token_count == 0:
        return 0, 0
    last = (token_count - 1) // chunk_size
    stored = file.get(crc_name(dataset.name.removeprefix("/")))
    if isinstance(stored, h5py.Dataset) and stored.shape == (last + 1,) and stored.dtype == np.uint32:
        return int(stored[0]), int(stored[last])
    require_filters(path, dataset)
    head = dataset[: min(chunk_size, token_count)]
    tail = dataset[last * chunk_size : token_count]
    return crc32(head.data), crc32(tail.data)


def _find(path: Path, needle: bytes) -> int:
    """Byte offset of the first occurrence, 0 if there is none (a file begins with a signature, so 0 is free)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return max(view.find(needle), 0)
