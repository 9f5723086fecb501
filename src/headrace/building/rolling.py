"""Documents -> one published shard after another."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.building.encode import EncodedBatch
from headrace.building.shard_writing import BeginShard, GrowingFile
from headrace.errors import BuildError, HeadraceError
from headrace.manifest import ShardEntry
from headrace.storage.document_writer import DocumentWriter
from headrace.storage.incoming import NO_HASHES, Origins
from headrace.storage.lance_open import lance_reason

__all__ = ["Opened", "RollingShards", "flush_chunks", "gone", "ignore", "require_folder"]

_SPARE_BYTES = 1 << 20
"""Free disk space that a batch must leave: HDF5's own structures, and what other workers write meanwhile."""
_ROW_BYTES = 32
"""Of the document index, a document."""
_FLUSH_CHUNKS, _FLUSH_BYTES = 16, 1 << 21
"""Chunks that are written and flushed at once, if they are no more bytes: a sixteenth of the calls of HDF5."""
_HDF5_REASON = re.compile(r"error message = '([^']+)'")
Opened = Callable[[int, Path], None]
"""Receives the number of a shard that is begun, and where it grows, in SWMR mode."""


def flush_chunks(chunk_bytes: int) -> int:
    """How many chunks of so many bytes a shard grows by at once: this decides where flushes lie, so the file's bytes."""
    return max(min(_FLUSH_CHUNKS, _FLUSH_BYTES // chunk_bytes), 1)


def ignore(*_: object) -> None:
    """Listen to nothing."""


def require_folder(folder: Path) -> None:
    """Notice an output that was removed, before something makes it anew.

    Raises:
        BuildError: it is gone.
    """
    if not folder.is_dir():
        raise gone(folder)


def gone(folder: Path) -> BuildError:
    """What is said of an output that was removed."""
    return BuildError(f"{folder}: is gone: the folder was removed while a build wrote into it; build again")


class RollingShards:
    """Writes documents into one shard after another, each published under its final name when it is whole.

    A shard is closed at the first document end at or after `shard_tokens`. Nothing is created before the first document.

    Args:
        name: shard id of the k-th shard of a cut.
        folder: where the shards go.
        begin: begins a shard.
        shard_tokens: tokens after which a shard ends; None for one shard.
        opened: is called with each shard that is begun, once others can follow it.
        published: is called with each whole shard.
    """

    def __init__(
        self,
        name: Callable[[int], str],
        folder: Path,
        begin: BeginShard,
        *,
        shard_tokens: int | None = None,
        opened: Opened = ignore,
        published: Callable[[ShardEntry], None] = ignore,
    ) -> None:
        self._name = name
        self._folder = folder
        self._begin_shard = begin
        self._shard_tokens = shard_tokens
        self._opened = opened
        self._published = published
        self._open: GrowingFile | None = None
        self._before = 0
        """Shards of the cuts before this one."""
        self._row_base = 0
        self.entries: list[ShardEntry] = []

    def add(self, batch: EncodedBatch, origins: Origins | None = None) -> None:
        """Append whole documents, rolling over as often as they need.

        Raises:
            BuildError: the disk is full, or a file cannot be written.
        """
        start, ends = 0, batch.ends
        while start < len(ends):
            writer = (self._open or self._begin()).writer
            self._require_room(batch, writer)
            base = int(ends[start - 1]) if start else 0
            stop = len(ends)
            if self._shard_tokens is not None:
                room = self._shard_tokens - writer.token_count
                stop = min(int(np.searchsorted(ends, base + room, side="left")) + 1, stop)
            cut, span = slice(start, stop), slice(base, int(ends[stop - 1]))
            try:
                writer.add_documents(
                    batch.tokens[span],
                    ends[cut] - base,
                    rows=origins and origins.rows[cut],
                    offsets=origins and origins.offsets[cut],
                    files=origins and origins.files[cut],
                    ids=origins.ids[cut] if origins else (),
                    hashes=origins.hashes[cut] if origins else NO_HASHES,
                    loss_mask=None if batch.loss_mask is None else batch.loss_mask[span],
                    checked=True,
                )
            except HeadraceError:
                raise
            except (OSError, RuntimeError, ValueError) as error:
                raise self._not_written(error) from error
            if self._shard_tokens is not None and writer.token_count >= self._shard_tokens:
                self.finish()
            start = stop

    def begin_cut(self, row_base: int) -> int:
        """Let what is added from now on go into shards of another cut.

        Args:
            row_base: of these shards, see `ShardEntry`.

        Returns:
            How many shards the cut has that ends here.

        Raises:
            BuildError: a file cannot be written.
        """
        self.finish()
        count = len(self.entries) - self._before
        self._before, self._row_base = len(self.entries), row_base
        return count

    @property
    def _shard_id(self) -> str:
        """Of the shard that is open, or is the next."""
        return self._name(len(self.entries) - self._before)

    def _begin(self) -> GrowingFile:
        try:
            self._open = self._begin_shard(self._folder, self._shard_id)
        except HeadraceError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise self._not_written(error) from error
        if self._open.followed is not None:
            self._opened(len(self.entries) - self._before, self._open.followed)
        return self._open

    def _require_room(self, batch: EncodedBatch, writer: DocumentWriter) -> None:
        """Stop before the disk is full: HDF5 can neither write nor close a file there."""
        masked = batch.loss_mask is not None
        chunk = writer.chunk_size * (batch.tokens.itemsize + masked)
        tokens = batch.tokens.nbytes + masked * len(batch.tokens) + writer.buffered_bytes
        wanted = tokens + _ROW_BYTES * len(batch.ends) + 2 * chunk + _SPARE_BYTES
        try:
            disk = os.statvfs(self._folder)
        except OSError as error:
            raise self._not_written(error) from error
        if disk.f_bavail * disk.f_frsize < wanted:
            raise BuildError(
                f"{self._folder}: the disk is full: {disk.f_bavail * disk.f_frsize:,} bytes are free, the next documents "
                f"need {wanted:,}; nothing was published"
            )

    def _not_written(self, error: Exception) -> BuildError:
        require_folder(self._folder)
        found = _HDF5_REASON.search(str(error))
        reason = found.group(1) if found else getattr(error, "strerror", None) or lance_reason(error)
        return BuildError(f"{self._folder / self._shard_id}: cannot be written: {reason}; nothing was published")

    def create_empty(self) -> None:
        """Begin a shard without documents, if none is open."""
        if self._open is None:
            self._begin()

    def finish(self) -> None:
        """Close and publish the open shard, if there is one.

        Raises:
            BuildError: a file cannot be written.
        """
        if self._open is None:
            return
        try:
            entry = replace(self._open.publish(), row_base=self._row_base)
        except HeadraceError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise self._not_written(error) from error
        self._open = None
        self.entries.append(entry)
        self._published(entry)

    def abandon(self) -> None:
        """Remove the unfinished shard, if there is one; published ones stay."""
        if self._open is None:
            return
        self._open.abandon()
        self._open = None
