"""The shards and lists of a job that reads a cut of a file, or one cut after another."""

from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.building.drop_log import NOT_SAMPLED
from headrace.building.output import drop_log
from headrace.building.rolling import RollingShards
from headrace.in_progress import Key, OpenShard, shard_name
from headrace.manifest import SourceEntry

__all__ = ["JobCuts", "lacks_log", "unplaced_log"]


class JobCuts:
    """Names the shards of a job by the cuts of its file, of which it may write many, one after another.

    Args:
        key: of the source shard.
        opened: is told of each shard that is begun.
    """

    def __init__(self, key: Key, opened: Callable[[OpenShard], None]) -> None:
        self._key = key
        self._cut = key[1]
        self._row_base = 0
        self._before: list[tuple[int, int, int]] = []
        self._tell = opened

    def name(self, roll: int) -> str:
        """Of the k-th shard of the cut."""
        return shard_name(self._key[0], roll, self._cut)

    def opened(self, roll: int, path: Path) -> None:
        """A shard is begun."""
        index, first = self._key
        self._tell(
            OpenShard(
                index=index,
                roll=roll,
                path=path.name,
                cut=self._cut,
                row_base=self._row_base,
                first_cut=first,
                before=tuple(self._before),
            )
        )

    def begin(self, shards: RollingShards, cut: int, row_base: int) -> None:
        """End a cut, and begin another."""
        count = shards.begin_cut(row_base)
        if count:
            self._before.append((self._cut, count, self._row_base))
        self._cut, self._row_base = cut, row_base


def unplaced_log(folder: Path, key: Key) -> Path:
    """Where a cut's documents that are not kept are listed while the lines before it are not counted."""
    return drop_log(folder, key).with_suffix(".cut.jsonl")


def lacks_log(folder: Path, key: Key, sources: Sequence[SourceEntry]) -> bool:
    """Whether documents of a source shard were not kept, and the list of them is not there.

    Args:
        folder: of the shards.
        key: of the source shard.
        sources: what was read of its files.
    """
    logs = drop_log(folder, key), unplaced_log(folder, key)
    listed = any(source.dropped.keys() - {NOT_SAMPLED} for source in sources)
    return listed and not any(log.is_file() for log in logs)
