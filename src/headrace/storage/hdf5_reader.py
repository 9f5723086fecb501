"""Reading an HDF5 shard: what lies where, its document columns, and tokens through the library where no map can."""

import mmap
import os
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, FormatError, MissingShardError, NoDocumentsError, UnreadableShardError
from headrace.storage.hdf5_layout import GROWING

__all__ = ["DocumentColumns", "LibraryReader", "ShardLayout", "inspect_shard", "open_shard", "read_documents"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
DATASET = "tokens"


@dataclass(frozen=True, slots=True, eq=False)
class ShardLayout:
    """Where the tokens of one shard lie in its file."""

    file_size: int
    """Bytes."""
    dtype: np.dtype[Any]
    token_count: int
    document_count: int | None
    """None where the file does not say."""
    sha256: str
    """As the attribute says; empty where there is none."""
    documents_sha256: str
    digest_offset: int
    """Byte offset of the 64 hex digits of `sha256` in the file; 0 where they cannot be found."""
    first: NDArray[np.uint64]
    """First token of each extent, shape (n,), increasing from 0; empty where the data is not flat on disk."""
    offset: NDArray[np.uint64]
    """Byte offset of each extent, shape (n,)."""
    chunk_size: int
    """Tokens a chunk; the token count itself where the file has no chunks (at least 1)."""
    first_crc: int
    """crc32 of the token bytes of the first chunk, and ..."""
    last_crc: int
    """... of the last; 0 for an empty shard."""
    attributes: dict[str, Any]
    """The other attributes of the token data set."""


@contextmanager
def open_shard(path: Path, *, growing: bool = False) -> Generator[Any]:
    """Open a shard without taking a lock.

    A finished shard is opened plain, so that HDF5 itself notices a cut file. `growing=True` also opens one whose writer
    is at work or was killed.

    Yields:
        The `h5py.File` (which has no useful static types).

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: each naming the file.
    """
    try:
        file = h5py.File(path, "r", libver="latest" if growing else None, swmr=growing, locking=False)
    except FileNotFoundError as error:
        raise MissingShardError(f"{path}: no such file") from error
    except OSError as error:
        raise _explain(path, error) from error
    with file:
        yield file


def _explain(path: Path, error: OSError) -> Exception:
    """Say what HDF5 meant."""
    text = str(error)
    try:
        with path.open("rb") as file:
            head = file.read(len(_SIGNATURE))
    except OSError as cause:
        return UnreadableShardError(f"{path}: cannot be read: {cause.strerror}")
    if head != _SIGNATURE:
        return FormatError(f"{path}: not an HDF5 file (it begins with {head!r})")
    if "truncated file" in text:
        return CorruptShardError(f"{path}: is truncated ({path.stat().st_size} bytes); copy it again or rebuild it")
    if "already open for write" in text or "SWMR" in text:
        return CorruptShardError(
            f"{path}: its writer never closed it: it is still being written, or was killed; rebuild the shard"
        )
    return UnreadableShardError(f"{path}: HDF5 cannot open it: {text}")


def inspect_shard(path: Path, *, dataset_name: str = DATASET) -> ShardLayout:
    """Read the layout and the attributes of a finished shard, or of any HDF5 file with a one-dimensional integer data set.

    Raises:
        FormatError: no such data set, or not one of token ids.
        CorruptShardError: `token_count` exceeds the data set, or the shard was never closed.
    """
    with open_shard(path) as file:
        dataset = _token_dataset(path, file, dataset_name)
        attributes = dict(dataset.attrs)
        held = int(dataset.shape[0])
        token_count = int(attributes.pop("token_count", held))
        if not 0 <= token_count <= held:
            raise CorruptShardError(f"{path}: token_count {token_count} against a dataset of {held} tokens")
        sha256 = _text(attributes.pop("sha256", b""))
        if sha256 == GROWING.decode():
            raise CorruptShardError(f"{path}: its sha256 is all zeros: its writer never closed it; rebuild the shard")
        documents = attributes.pop("document_count", None)
        first, offset = _extents(dataset, token_count)
        chunk_size = int(dataset.chunks[0]) if dataset.chunks else max(held, 1)
        crcs = _end_crcs(file, dataset, token_count, chunk_size)
        itemsize = dataset.dtype.itemsize
        dtype = dataset.dtype
    file_size = path.stat().st_size
    if len(first) and int(offset[-1]) + (token_count - int(first[-1])) * itemsize > file_size:
        raise CorruptShardError(f"{path}: is truncated: its chunks lie beyond its {file_size} bytes")
    return ShardLayout(
        file_size=file_size,
        dtype=dtype,
        token_count=token_count,
        document_count=None if documents is None else int(documents),
        sha256=sha256,
        documents_sha256=_text(attributes.pop("documents_sha256", b"")),
        digest_offset=_find(path, sha256.encode()) if sha256 else 0,
        first=first,
        offset=offset,
        chunk_size=chunk_size,
        first_crc=crcs[0],
        last_crc=crcs[1],
        attributes=attributes,
    )


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


def _text(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _extents(dataset: Any, token_count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Extents of the first `token_count` tokens; two empty arrays where the bytes on disk are not plain tokens."""
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint64)
    properties = dataset.id.get_create_plist()
    if token_count == 0 or properties.get_nfilters() or dataset.dtype.newbyteorder("<") != dataset.dtype:
        return nothing
    itemsize = dataset.dtype.itemsize
    if properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count():
        start = dataset.id.get_offset()
        found = [(0, start)] if start else []
    elif properties.get_layout() == h5py.h5d.CHUNKED:
        found: list[tuple[int, int]] = []

        def note(chunk: Any) -> None:
            found.append((chunk.chunk_offset[0], chunk.byte_offset))

        dataset.id.chunk_iter(note)
    else:  # compact, virtual or external: the library knows
        return nothing
    if not found:
        return nothing
    table = np.array(sorted(found), dtype=np.uint64)
    first, offset = table[:, 0].copy(), table[:, 1].copy()
    size = int(dataset.chunks[0]) if dataset.chunks else token_count
    wanted = np.arange(len(first), dtype=np.uint64) * np.uint64(size)
    used = -(-token_count // size)
    if len(first) < used or bool((first != wanted).any()):
        return nothing  # a chunk was never written: it holds the fill value
    first, offset = first[:used], offset[:used]
    joined = offset[1:] == offset[:-1] + np.uint64(size * itemsize)
    starts = np.concatenate([[True], ~joined])
    first, offset = first[starts], offset[starts]
    return (first, offset) if _agrees(dataset, token_count, first, offset) else nothing


def _agrees(dataset: Any, token_count: int, first: NDArray[np.uint64], offset: NDArray[np.uint64]) -> bool:
    """Whether the first and last tokens at these offsets are what the library reads (a user block would shift them)."""
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


def _end_crcs(file: Any, dataset: Any, token_count: int, chunk_size: int) -> tuple[int, int]:
    """crc32 of the first and the last chunk: as the writer stored them, else worked out now."""
    if token_count == 0:
        return 0, 0
    last = (token_count - 1) // chunk_size
    stored = file.get("chunks/crc32")
    if stored is not None and stored.shape == (last + 1,):
        return int(stored[0]), int(stored[last])
    head = dataset[: min(chunk_size, token_count)]
    tail = dataset[last * chunk_size : token_count]
    return zlib.crc32(head.data), zlib.crc32(tail.data)


def _find(path: Path, needle: bytes) -> int:
    """Byte offset of the first occurrence, 0 if there is none (a file begins with a signature, so 0 is free)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return max(view.find(needle), 0)


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


def read_documents(path: Path, document_count: int) -> DocumentColumns:
    """Read the document index of a shard whole: 28 bytes a document.

    Raises:
        NoDocumentsError: the file has none.
        CorruptShardError: it does not have `document_count` rows.
    """
    with open_shard(path) as file:
        group: Any = file.get("documents")
        if group is None or "end" not in group:
            raise NoDocumentsError(f"{path}: stores no document index")
        ends = group["end"][:]
        columns: list[NDArray[Any]] = [group[name][:] for name in ("source_row", "source_byte", "source_file")]
        files = tuple(label.decode("utf-8", "surrogateescape") for label in group["files"][:].tolist())
    if len(ends) != document_count or any(len(column) not in {0, document_count} for column in columns):
        raise CorruptShardError(
            f"{path}: wanted {document_count} documents, found {len(ends)} ends and "
            f"{', '.join(str(len(column)) for column in columns)} source rows, bytes and files"
        )
    return DocumentColumns(ends, columns[0], columns[1], columns[2], files)


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
        """Tokens [start, stop) of the shard as a new array of the file's dtype."""
        if self._dataset is None or self._pid != os.getpid():
            # A chunk larger than the chunk cache would be decoded anew for every window.
            with open_shard(self.path) as probe:
                chunks = probe[self.dataset_name].chunks
                chunk_bytes = (chunks[0] if chunks else 0) * probe[self.dataset_name].dtype.itemsize
            file = h5py.File(self.path, "r", locking=False, rdcc_nbytes=max(4 * chunk_bytes, 1 << 20))
            self._dataset, self._pid = file[self.dataset_name], os.getpid()
        return self._dataset[start:stop]

    def close(self) -> None:
        """Close the handle; the next read opens it again."""
        if self._dataset is not None and self._pid == os.getpid():
            self._dataset.file.close()
        self._dataset = None
