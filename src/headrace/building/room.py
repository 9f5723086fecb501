"""Whether the disk will hold the corpus: an estimate from what the first of the input became."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.errors import BuildError
from headrace.in_progress import WRITING, Key
from headrace.sources import SourceShard
from headrace.storage.lance_names import DATA_SETS

__all__ = ["RoomCheck"]

_AFTER_BYTES = 100_000_000
"""Input that is read before the estimate."""
_EXPANSION = 4
"""How much larger compressed input is taken to be, where none of it was read yet."""


class RoomCheck:
    """Stops a build early that would fill the disk, once 100 MB of its input are read.

    Args:
        folder: of the new shards.
        shards: the source shards to do.
        written: says how many bytes the jobs have written; by default those of shards.
        more: says how many bytes will be written later, for one that is written now.
    """

    def __init__(
        self,
        folder: Path,
        shards: Sequence[SourceShard],
        *,
        written: Callable[[], int] | None = None,
        more: Callable[[], float] = float,
    ) -> None:
        self._folder = folder
        self._written = written or self._bytes_in_folder
        self._more = more
        self._sizes = {shard.key: shard.size for shard in shards}
        self._packed = {shard.key: shard.files[0].compression is not None for shard in shards}
        self._before = 0 if written else self._written()
        self.due = sum(self._sizes.values()) > _AFTER_BYTES
        """Whether the time to judge may still come."""

    def look(self, read: Mapping[Key, int]) -> None:
        """Judge, when it is time to; once.

        Args:
            read: input bytes read of each source shard so far.

        Raises:
            BuildError: the rest will need more than is free.
        """
        if not self.due or sum(read.values()) < _AFTER_BYTES:
            return
        self.due = False
        written = self._written() - self._before
        left = self._left(read)
        needed = int(written * (left + self._more() * (1 + left)))
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if needed > free:
            raise BuildError(
                f"{self._folder}: the disk will not hold the corpus: by the first {sum(read.values()) / 1e6:,.0f} MB of "
                f"input, the rest needs about {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; make room, or "
                "build elsewhere"
            )

    def _left(self, read: Mapping[Key, int]) -> float:
        """Input still to be read over input read, in decompressed bytes as far as they can be told."""
        weights = {True: _EXPANSION, False: 1}
        done = sum(count * weights[self._packed[key]] for key, count in read.items())
        rest = sum((size - read.get(key, 0)) * weights[self._packed[key]] for key, size in self._sizes.items())
        return max(rest, 0) / done

    def _bytes_in_folder(self) -> int:
        """Of shards, whole or not.

        Workers name them meanwhile: one that has a new name by the time it is looked at is met under that the second time.
        """
        sizes: dict[int, int] = {}
        for entry in (entry for _ in range(2) for entry in self._files()):
            with suppress(FileNotFoundError):
                sizes[entry.inode()] = entry.stat().st_size
        return sum(sizes.values())

    def _files(self) -> Iterator[os.DirEntry[str]]:
        yield from (entry for entry in _entries(self._folder) if ".h5" in entry.name)
        growing = (Path(entry.path) for entry in _entries(self._folder / WRITING))
        for place in (self._folder, *growing):
            for data_set in DATA_SETS:
                yield from _entries(place / data_set / "data")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where it is gone."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return list(entries)
    return []
