"""Writing the document index of an HDF5 shard: rows that wait until their tokens are in the file, and their hashes."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from headrace.storage.hdf5_layout import Column, ShardFile
from headrace.storage.incoming import NO_HASHES, Origins, OriginsDigest, PendingDocuments

__all__ = ["DocumentRows"]


class DocumentRows:
    """The rows of a shard's documents, written and still to write."""

    def __init__(self) -> None:
        self._pending = PendingDocuments()
        self._ends_sha256 = hashlib.sha256()
        self.origins = OriginsDigest()
        """Of the origins that are written."""

    @property
    def ends_sha256(self) -> str:
        """SHA-256, hex, of the ends that are written."""
        return self._ends_sha256.hexdigest()

    def add(self, ends: NDArray[np.uint64], origins: Origins | None) -> None:
        """Take documents that end there in the shard, after all before them."""
        self._pending.add(ends, origins)

    def write(self, shard: ShardFile, before: int) -> int:
        """Write the rows of the documents that end before a token; returns how many the file then has.

        One that ends just there waits for the next chunk: whether its end is known yet depends on how the calls were
        batched, and the file's bytes must not.
        """
        ends, origins = self._pending.take(before)
        if len(ends):
            ends = ends.astype("<u8", copy=False)
            shard.ends.append(ends)
            self._ends_sha256.update(ends.data)
        if origins:
            rows = np.concatenate([origin.rows for origin in origins])
            offsets = np.concatenate([origin.offsets for origin in origins])
            files = np.concatenate([origin.files for origin in origins])
            shard.rows.append(rows)
            shard.bytes.append(offsets)
            shard.files.append(files)
            self.origins.update(rows, offsets, files)
        if shard.id_ends is not None and shard.ids is not None:
            self._write_ids(shard.id_ends, shard.ids, [name for origin in origins for name in origin.ids])
        if shard.text_hashes is not None:
            hashes = np.concatenate([NO_HASHES, *(origin.hashes for origin in origins)])
            if len(hashes):
                shard.text_hashes.append(hashes.view(shard.text_hashes.dtype)[:, 0])
            self.origins.update_hashes(hashes)
        return shard.ends.length

    def _write_ids(self, ends: Column, ids: Column, names: list[bytes]) -> None:
        data = np.frombuffer(b"".join(names), np.uint8)
        stops = np.cumsum([len(name) for name in names], dtype=np.uint64) + np.uint64(ids.length)
        for column, values in ((ids, data), (ends, stops)):
            if len(values):
                column.append(values)
        self.origins.update_ids(stops, data)
