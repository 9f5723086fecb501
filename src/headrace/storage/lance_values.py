"""Writing a Lance data file of one column of plain values, one a token: the tokens themselves, or their loss mask."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.storage.atomic import fsync_file, start_writeback
from headrace.storage.lance_file import read_lance_file
from headrace.storage.lance_shard import frame_sha256, values_layout

__all__ = ["DATA_STORAGE_VERSION", "LanceValues", "values_schema"]

DATA_STORAGE_VERSION = "2.0"
"""The newest in which plain values lie on disk as they are."""
_BLOCK_BYTES = 1 << 23
"""Values that become a page: a multiple of what pages are aligned to, so that one lies right behind the other."""
_WRITEBACK_BYTES = 1 << 24
"""After so many more bytes, they begin to go to the disk."""
_SHA256_KEY = "headrace.sha256"


def values_schema(column: str, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Of a data set of values, without metadata."""
    import pyarrow as pa  # noqa: PLC0415  # heavy

    return pa.schema([pa.field(column, pa.from_numpy_dtype(dtype.newbyteorder("=")), nullable=False)])


class LanceValues:
    """A data file that is being written. Lance removes what is not whole once the last reference to this goes.

    Args:
        path: of the file; its folder exists, and holds no other one that is being written.
        column: its name.
        dtype: of the values, little-endian.
        chunk_size: values for which there is a checksum.

    Attributes:
        crcs: of the chunks that are whole; once it is closed, of all.
        frame_sha256: once it is closed, of all bytes of the file that are no values.

    Raises:
        OSError, ValueError: Lance cannot write, as where the disk is full.
    """

    def __init__(self, path: Path, column: str, dtype: np.dtype[Any], chunk_size: int) -> None:
        from lance.file import LanceFileWriter  # noqa: PLC0415  # heavy

        self.path = path
        self.crcs: list[int] = []
        self.frame_sha256 = ""
        self._dtype = dtype
        self._chunk_size = chunk_size
        self._schema = values_schema(column, dtype)
        self._file = LanceFileWriter(str(path), self._schema, version=DATA_STORAGE_VERSION)
        self._block = np.empty(_BLOCK_BYTES // dtype.itemsize, dtype)
        self._buffered = self._written = self._on_its_way = 0
        self._crc = 0
        """Of the chunk that is not whole yet."""
        self._sha256 = hashlib.sha256()

    @property
    def buffered_bytes(self) -> int:
        """Size of the values that are not written yet."""
        return self._buffered * self._dtype.itemsize

    @property
    def sha256(self) -> str:
        """SHA-256, hex, of the values that are written."""
        return self._sha256.hexdigest()

    def append(self, values: NDArray[Any]) -> None:
        """Take the next values, of any number."""
        done = 0
        while done < len(values):
            count = min(len(values) - done, len(self._block) - self._buffered)
            self._block[self._buffered : self._buffered + count] = values[done : done + count]
            self._buffered += count
            done += count
            if self._buffered == len(self._block):
                self._write()

    def close(self) -> None:
        """Write what is buffered, and wait until all of it is on disk."""
        self._write()
        count = self._written // self._dtype.itemsize
        if count % self._chunk_size:
            self.crcs.append(self._crc)
        self._file.add_schema_metadata(_SHA256_KEY, self.sha256)
        self._file.close()
        file = read_lance_file(self.path)
        values_layout(file, self._dtype, count)  # or it is not as we read it
        self.frame_sha256 = frame_sha256(file)
        fsync_file(self.path)

    def _write(self) -> None:
        """Write the block, which is Lance's from then on."""
        import pyarrow as pa  # noqa: PLC0415  # heavy

        if not self._buffered:
            return
        block, self._block = self._block[: self._buffered], np.empty(len(self._block), self._dtype)
        self._buffered = 0
        self._sha256.update(block.data)
        self._sum(block)
        self._file.write_batch(pa.record_batch([pa.array(block)], schema=self._schema))
        self._written += block.nbytes
        if self._written - self._on_its_way >= _WRITEBACK_BYTES:
            self._start_writeback()

    def _sum(self, block: NDArray[Any]) -> None:
        """Take the checksums of the chunks that end in a block; `_crc` is that of the one behind them, so far."""
        first = self._written // self._dtype.itemsize
        at = 0
        while at < len(block):
            count = min(self._chunk_size - (first + at) % self._chunk_size, len(block) - at)
            self._crc = crc32(block[at : at + count].data, self._crc)
            at += count
            if (first + at) % self._chunk_size == 0:
                self.crcs.append(self._crc)
                self._crc = 0

    def _start_writeback(self) -> None:
        growing = [entry for entry in self.path.parent.iterdir() if entry.name.startswith(".")]
        for path in growing:  # as Lance names a file before it is whole
            start_writeback(path, self._on_its_way, self._written)
        self._on_its_way = self._written
