"""What a build writes a shard by, whichever its store: the seam between the rolling of shards and their files."""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.errors import BuildError
from headrace.in_progress import WRITING
from headrace.manifest import ShardEntry
from headrace.storage.atomic import fresh_name, fsync_folder, publish
from headrace.storage.document_writer import DocumentWriter
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.lance_names import DATA_SETS, data_name, token_path

if TYPE_CHECKING:
    from headrace.storage.lance_writer import LanceShardWriter

__all__ = ["BeginShard", "GrowingFile", "hdf5_shards", "lance_shards"]


class GrowingFile(Protocol):
    """A shard that is being written. Nothing of it is under its final name before `publish`."""

    @property
    def writer(self) -> DocumentWriter:
        """What takes its documents."""
        ...

    @property
    def followed(self) -> Path | None:
        """Where others can read it while it grows; None where they cannot."""
        ...

    def publish(self) -> ShardEntry:
        """Close it, and give it its final name once it is on disk.

        Returns:
            Its entry, the path with the folder of the shards.

        Raises:
            HeadraceError, OSError, RuntimeError, ValueError: it cannot be written.
        """
        ...

    def abandon(self) -> None:
        """Remove what there is of it."""
        ...


BeginShard = Callable[[Path, str], GrowingFile]
"""Begins a shard: given the folder of the shards, and the shard's id."""


class _HDF5File:
    """A shard in an HDF5 file of its own."""

    def __init__(self, create: Callable[[Path], HDF5ShardWriter], folder: Path, shard_id: str) -> None:
        self._shard_id = shard_id
        self._final = folder / f"{shard_id}.h5"
        # Unique to this attempt, so that a second one never meets the first one's file.
        fresh = fresh_name(self._final)
        self._partial = fresh.with_name(f"{fresh.name}.partial")
        self._stack = ExitStack()
        self.writer = self._stack.enter_context(create(self._partial))

    @property
    def followed(self) -> Path:
        return self._partial

    def publish(self) -> ShardEntry:
        self._stack.close()
        publish(self._partial, self._final)
        return replace(self.writer.result(self._shard_id), path=str(self._final))

    def abandon(self) -> None:
        # Emptied first: where the disk is full, HDF5 needs room to close the file, and crashes without it.
        with suppress(OSError):
            os.truncate(self._partial, 0)
        self._stack.__exit__(BuildError, BuildError("abandoned"), None)
        self._partial.unlink(missing_ok=True)


class _LanceFiles:
    """A shard in a data file each of some Lance data sets, which do not list them yet.

    Lance gives a file a name that nobody knows while it grows. So they grow in a folder of this attempt.
    """

    followed = None

    def __init__(self, create: "Callable[[Path], LanceShardWriter]", folder: Path, shard_id: str) -> None:
        self._shard_id = shard_id
        self._attempt = fresh_name(folder / WRITING / shard_id)
        name = data_name(shard_id, os.urandom(6).hex())
        self._folder = folder
        for data_set in DATA_SETS:
            (self._attempt / data_set / "data").mkdir(parents=True)
        self._stack = ExitStack()
        try:
            self.writer = self._stack.enter_context(create(token_path(self._attempt, name)))
        except BaseException:
            shutil.rmtree(self._attempt, ignore_errors=True)
            raise

    def publish(self) -> ShardEntry:
        self._stack.close()
        finals = [self._folder / path.relative_to(self._attempt) for path in self.writer.paths]
        for partial, final in zip(self.writer.paths, finals, strict=True):
            final.parent.mkdir(parents=True, exist_ok=True)
            publish(partial, final)
        for final in finals:
            fsync_folder(final.parents[1])
        fsync_folder(self._folder)
        shutil.rmtree(self._attempt, ignore_errors=True)
        return replace(self.writer.result(), shard_id=self._shard_id, path=str(finals[-1]))

    def abandon(self) -> None:
        self._stack.__exit__(BuildError, BuildError("abandoned"), None)
        shutil.rmtree(self._attempt, ignore_errors=True)


def hdf5_shards(create: Callable[[Path], HDF5ShardWriter]) -> BeginShard:
    """Begins shards in HDF5 files; `create` opens the writer of one at a path."""
    return lambda folder, shard_id: _HDF5File(create, folder, shard_id)


def lance_shards(create: "Callable[[Path], LanceShardWriter]") -> BeginShard:
    """Begins shards in Lance data files; `create` opens the writer of one whose tokens go to a path."""
    return lambda folder, shard_id: _LanceFiles(create, folder, shard_id)
