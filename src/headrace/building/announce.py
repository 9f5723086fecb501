"""Keeps `building.json` true while a build is at work, for `headrace status` and live readers."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.in_progress import BUILDING_NAME, Building, Key, OpenShard
from headrace.storage.atomic import fresh_name, naming_file

__all__ = ["Announcer"]

_SECONDS = 1.0
"""Between two writings for the counts' sake; a shard that is begun is told at once."""


class Announcer:
    """Writes `building.json`. It is never waited for to be on disk: after a crash of the machine nobody needs it.

    Args:
        folder: the output.
        building: what is built; its counts are those of the source shards that are finished already.
    """

    def __init__(self, folder: Path, building: Building) -> None:
        self._path = folder / BUILDING_NAME
        self._base = building
        self._building = building
        self._open: dict[Key, OpenShard] = {}
        self._written = 0.0
        self._write()

    def opened(self, shard: OpenShard) -> None:
        """A shard is being written."""
        self._open[shard.key] = shard
        self._write()

    def finished(self, key: Key) -> None:
        """All shards of a source shard are in the journal."""
        self._open.pop(key, None)
        self._write()

    def progress(self, input_bytes: int, documents: int, tokens: int, seconds: float) -> None:
        """Take the counts of this run."""
        base = self._base
        self._building = replace(
            self._building,
            input_bytes=base.input_bytes + input_bytes,
            documents=base.documents + documents,
            tokens=base.tokens + tokens,
            seconds=seconds,
        )
        if time.monotonic() - self._written > _SECONDS:
            self._write()

    def stopped(self) -> None:
        """No shard is being written any more, and the build is not finished."""
        self._open.clear()
        with suppress(OSError):  # what went wrong is told already
            self._write()

    def _write(self) -> None:
        shards = tuple(self._open[key] for key in sorted(self._open))
        self._building = replace(self._building, open=shards, updated=time.time())
        fresh = fresh_name(self._path)
        try:
            with naming_file(self._path):
                fresh.write_bytes(self._building.to_json())
                fresh.replace(self._path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        self._written = time.monotonic()
