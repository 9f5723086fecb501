"""Shards of a build that is not finished, held open: their writer renames them, and one that begins anew removes them."""

import ctypes
import os
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import h5py
import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, MissingShardError, UnreadableShardError
from headrace.storage.compression import require_filters
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.hdf5_open import naming
from headrace.storage.hdf5_reader import HASH_COLUMN, ID_COLUMNS, as_hashes, check_hashes, checked_ids
from headrace.storage.layout import DATASET, LOSS_MASK, crc_name

__all__ = ["GrowingData", "GrowingShard", "HeldShard", "is_gone"]

_COLUMNS = ("end", "source_row", "source_byte", "source_file")
_READ_ATTEMPTS = 30
"""How often HDF5 reads what does not match its checksum, its writer being at work: it pauses for a nanosecond at first,
each time for twice as long, in all for a second. By default it does so 100 times: for ever, where the file is damaged."""


class GrowingShard:
    """A shard that is being written, or that a killed writer has left, as far as its documents are whole.

    What was seen of it once stays readable, whatever becomes of the file's name. Safe for threads, `refresh` for one at a
    time; and in the child of a fork (nothing is locked, and reads share no file position). Every chunk is compared with
    its checksum: a writer that gives up cuts its file, and HDF5 reads zeros there.

    Args:
        path: of the file, which its writer has put into SWMR mode.
        shard_id: what it will be called.

    Raises:
        MissingShardError: there is no such file, or its writer gave it up.
        CorruptShardError, UnreadableShardError, MissingExtraError: naming the file.
    """

    def __init__(self, path: Path, shard_id: str) -> None:
        self.path = path
        self.shard_id = shard_id
        self.token_count = 0
        """Tokens of its whole documents; as of the last `refresh`, likewise ..."""
        self.document_count = 0
        """... how many they are."""
        self._file = _opened(path)
        self.tokens = GrowingData(path, self._file, self._file.tokens, self._file.crc32)
        """What reads its tokens; and ..."""
        self.loss_mask: GrowingData | None = None
        """... its loss mask, where there is one."""
        if self._file.loss_mask is not None:
            self.loss_mask = GrowingData(path, self._file, *self._file.loss_mask)
        self.refresh()

    def refresh(self) -> None:
        """See what has been written since.

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError: naming the file; what was seen before stays.
        """
        file = self._file
        if not os.fstat(file.file.id.get_vfd_handle()).st_size:
            raise _given_up(self.path)
        with naming(self.path):
            written, documents = file.counts()
            _require_rows(self.path, file.columns[0], documents)
            for data in (self.tokens, self.loss_mask):
                if data is not None:
                    data.refresh(written)
            ends = file.columns[0]
            stop = int(ends[documents - 1]) if documents else 0
            if stop > written:  # the counts were read, or their writer killed, between one and the other
                documents = int(np.searchsorted(ends[:documents], written, side="right"))
                stop = int(ends[documents - 1]) if documents else 0
        if documents > self.document_count:
            self.token_count, self.document_count = stop, documents

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the shard, which must have been seen, as a new array of the file's dtype.

        Raises:
            CorruptShardError, UnreadableShardError: naming the file.
        """
        return self.tokens.read(start, stop)

    def documents(self, count: int, /) -> DocumentColumns:
        """The first `count` documents, which must have been seen: 28 bytes each, and what else is kept of them."""
        with naming(self.path):
            for column in (*self._file.columns, *self._file.extra.values()):
                column.refresh()
            return _documents(self.path, self._file.columns, self._file.extra, self._file.labels, count)


class GrowingData:
    """What a growing shard holds a value a token of, in chunks. Safe as that is.

    Args:
        path: of the file.
        file: that holds the data sets, which go when it is closed.
        dataset: the values.
        checksums: of its chunks.
    """

    def __init__(self, path: Path, file: "_File", dataset: Any, checksums: Any) -> None:  # noqa: ANN401  # data sets
        self._path = path
        self._file = file
        self._dataset = dataset
        self._stored = checksums
        self._size = int(dataset.chunks[0])
        self._checksums = array("I")
        """Of each chunk that was seen."""
        self._written = 0
        """Values in them."""
        self._latest: tuple[int, NDArray[Any]] | None = None
        """The number of the chunk that was read last, and its values."""

    def refresh(self, written: int) -> None:
        """See what has been written since: so many values, or more by now, but not fewer.

        Raises:
            CorruptShardError: there are fewer.
        """
        chunks = -(-written // self._size)
        _require_rows(self._path, self._dataset, written)
        _require_rows(self._path, self._stored, chunks)
        if written > self._written:
            self._checksums = array("I", self._stored[:chunks].tobytes())
            self._written = written

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Values of tokens [start, stop), which must have been seen, as a new array.

        Raises:
            CorruptShardError, UnreadableShardError: naming the file.
        """
        size = self._size
        out = np.empty(stop - start, dtype=self._dataset.dtype)
        for number in range(start // size, -(-stop // size)):
            chunk, first = self._chunk(number), number * size
            low, high = max(start, first), min(stop, first + size)
            out[low - start : high - start] = chunk[low - first : high - first]
        return out

    def _chunk(self, number: int) -> NDArray[Any]:
        latest = self._latest
        if latest is not None and latest[0] == number:
            return latest[1]
        size = self._size
        with naming(self._path):
            chunk = self._dataset[number * size : min((number + 1) * size, self._written)]
        if crc32(chunk.data) != self._checksums[number]:
            raise UnreadableShardError(
                f"{self._path}: chunk {number} does not match its checksum: its writer gave the file up, or it is damaged"
            )
        self._latest = number, chunk
        return chunk


def _require_rows(path: Path, column: Any, wanted: int) -> None:  # noqa: ANN401  # a data set
    column.refresh()  # after the counts: by now there may be more than they say, but not less
    if len(column) < wanted:
        raise CorruptShardError(f"{path}: {column.name}: wanted {wanted} rows, found {len(column)}")


class HeldShard:
    """A finished shard of a source shard that is not: if that is begun anew, the file loses its name.

    Args:
        path: of the file.

    Raises:
        MissingShardError, UnreadableShardError: naming the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise MissingShardError(f"{path}: no such file") from error
        except OSError as error:
            raise UnreadableShardError(f"{path}: cannot be opened: {error.strerror}") from error

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # held here: at exit its module may be gone first
        if self._descriptor >= 0:
            close(self._descriptor)

    def open(self) -> int:
        """A new descriptor of the file."""
        return os.dup(self._descriptor)

    def documents(self, count: int, /) -> DocumentColumns:
        """Its first `count` documents."""
        # Opened anew, for a position of its own; HDF5 itself opens no file without a name.
        with naming(self.path), Path(f"/dev/fd/{self._descriptor}").open("rb") as raw, h5py.File(raw, "r") as file:
            columns = [file[f"documents/{name}"] for name in _COLUMNS]
            return _documents(self.path, columns, _extra_columns(file), file["documents/files"], count)


class _File:
    """A file that is in SWMR mode: the one handle that this process has on it for following it.

    HDF5 lets all handles that a process has on a file share what was read of it, if they go through one driver. Whoever
    opened the finished file would be shown what this handle saw of it while it grew, and a writer in this process could
    not close it. So this one goes through the driver for logging, told to log nothing. And where two have one data set
    open, a `refresh` of the one makes reads of the other return another chunk: so each file, and each data set in it, is
    open only once.
    """

    def __init__(self, path: Path, file: h5py.File) -> None:
        self.file = file
        tokens: Any = file[DATASET]
        require_filters(path, tokens)
        self.tokens = tokens
        self.crc32: Any = file[crc_name(DATASET)]
        self.loss_mask: Any = (file[LOSS_MASK], file[crc_name(LOSS_MASK)]) if LOSS_MASK in file else None
        """Its data set and that of its checksums, where there is one."""
        self.columns: list[Any] = [file[f"documents/{name}"] for name in _COLUMNS]
        self.extra = _extra_columns(file)
        self.labels: Any = file["documents/files"]

    def counts(self) -> tuple[int, int]:
        """Tokens and documents that are written, as the attributes say."""
        self.tokens.refresh()
        return int(self.tokens.attrs["token_count"]), int(self.tokens.attrs["document_count"])


_files: "WeakValueDictionary[tuple[int, int], _File]" = WeakValueDictionary()
"""By device and inode."""


def _opened(path: Path) -> _File:
    handle = _open(path)
    status = os.fstat(handle.id.get_vfd_handle())
    key = status.st_dev, status.st_ino
    known = _files.get(key)
    if known is not None:
        handle.close()
        return known
    with naming(path):
        return _files.setdefault(key, _File(path, handle))


def _open(path: Path) -> h5py.File:
    h5f, h5p = h5py.h5f, h5py.h5p
    access: Any = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_log(os.fsencode(os.devnull), 0, 0)
    access.set_libver_bounds(h5f.LIBVER_LATEST, h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)  # no locks, whether or not the file system has them
    # h5py has no name for this; its modules are linked with the library.
    ctypes.CDLL(h5p.__file__).H5Pset_metadata_read_attempts(ctypes.c_int64(access.id), ctypes.c_uint(_READ_ATTEMPTS))
    try:
        size = path.stat().st_size
        handle = h5f.open(os.fsencode(path), h5f.ACC_RDONLY | h5f.ACC_SWMR_READ, fapl=access) if size else None
    except FileNotFoundError as error:
        raise MissingShardError(f"{path}: no such file") from error
    except OSError as error:
        if is_gone(path):  # since HDF5 began to open it
            raise MissingShardError(f"{path}: no such file") from error
        raise CorruptShardError(f"{path}: HDF5 cannot open it: {error}") from error
    if handle is None:
        raise _given_up(path)
    return h5py.File(handle)


def is_gone(path: Path) -> bool:
    """Whether a growing shard has its name no more, or is empty: a writer that gives it up empties it and then removes it."""
    try:
        return not path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return True


def _given_up(path: Path) -> MissingShardError:
    return MissingShardError(f"{path}: is empty: its writer gave it up")


def _extra_columns(file: h5py.File) -> dict[str, Any]:
    """The columns that are there only where a build was asked for them, by name."""
    return {name: file[f"documents/{name}"] for name in (*ID_COLUMNS, HASH_COLUMN) if f"documents/{name}" in file}


def _documents(
    path: Path,
    columns: list[Any],
    extra: Mapping[str, Any],
    labels: Any,  # noqa: ANN401  # a data set
    count: int,
) -> DocumentColumns:
    """The first rows of a document index."""
    ends, *origins = (column[:count] for column in columns)
    counts = {len(column) for column in origins}
    if len(ends) != count or counts not in ({0}, {count}):
        raise CorruptShardError(
            f"{path}: wanted {count} documents, found {len(ends)} ends and {sorted(counts)} rows of their sources"
        )
    files = tuple(label.decode("utf-8", "surrogateescape") for label in labels[:].tolist())
    ids: Any = (None, None)
    if all(name in extra for name in ID_COLUMNS):
        id_ends = extra[ID_COLUMNS[0]][:count]
        data = extra[ID_COLUMNS[1]][: int(id_ends[-1]) if len(id_ends) else 0]
        ids = checked_ids(path, (id_ends, data), count)
    hashes: Any = None
    if HASH_COLUMN in extra:
        column = extra[HASH_COLUMN][:count]
        check_hashes(path, column, count)
        hashes = as_hashes(column)
    return DocumentColumns(ends, origins[0], origins[1], origins[2], files, *ids, text_hashes=hashes)
