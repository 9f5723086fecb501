"""Documents that were not kept: recorded, reported many at once, and judged when there are too many."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, cast

from headrace.errors import MAX_LISTED, Problem, SourceError
from headrace.sources import DocumentBatch, Drop, SourceShard, read_shard
from headrace.sources.compressed import open_stream

__all__ = [
    "CHECK_BYTES",
    "EMPTY",
    "BadDocumentsError",
    "DropLog",
    "check_sources",
    "fields_hint",
    "look_on",
    "places",
]

EMPTY = "empty"
"""The one reason for dropping a document that is no fault of the input."""
CHECK_BYTES = 1 << 28
"""Bytes of input read on after the first bad document, in search of more to report."""


def look_on(batches: Iterator[DocumentBatch], limit: int) -> tuple[list[Drop], bool]:
    """Return the faults in the next `limit` bytes, and whether reading stopped before the end."""
    found: list[Drop] = []
    consumed = 0
    for batch in batches:
        found += [drop for drop in batch.drops if drop.reason != EMPTY]
        consumed += batch.consumed
        if consumed > limit or len(found) > MAX_LISTED:
            return found, True
    return found, False


def check_sources(shards: Iterable[SourceShard], text_field: str, limit: int = CHECK_BYTES) -> tuple[list[Drop], bool]:
    """Read without encoding, for faults only, until `limit` bytes or enough of them; a damaged file is one fault.

    Returns:
        The faults, and whether reading stopped before the end.
    """
    found: list[Drop] = []
    for shard in shards:
        if limit <= 0 or len(found) > MAX_LISTED:
            return found, True
        try:
            more, cut = look_on(read_shard(shard, text_field=text_field), limit)
        except SourceError as error:
            more, cut = [Drop(shard.files[0].label, -1, 0, error.summary)], False
        found += more
        limit -= shard.size
        if cut:
            return found, True
    return found, False


class BadDocumentsError(SourceError):
    """Bad documents stop a build.

    Args:
        drops: the first of them.
        count: how many were found.
        complete: whether everything was read, so that there are no more.
        hint: added to the message.
    """

    def __init__(self, drops: Sequence[Drop], count: int, *, complete: bool, hint: str = "") -> None:
        self.drops = tuple(drops)
        self.count = count
        self.complete = complete
        self.hint = hint
        super().__init__(
            f"{'' if complete else 'at least '}{count} bad document{'s' * (count != 1)}; nothing was published. Mend "
            f"them, or build with --on-bad-input skip to leave them out and count them{hint}",
            problems=places(drops),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), complete=self.complete, hint=self.hint), (self.drops, self.count)


def places(drops: Sequence[Drop]) -> list[Problem]:
    """Drops as the problems of an error."""
    return [_problem(drop) for drop in drops]


def _problem(drop: Drop) -> Problem:
    name = f"{drop.path}: "
    if drop.reason.startswith(name):  # a damaged file, in the words of its own error
        return Problem(drop.path, drop.reason.removeprefix(name))
    return Problem(drop.place, drop.reason + (f" (byte {drop.byte})" if drop.row >= 0 else ""))


def fields_hint(shard: SourceShard, drops: Sequence[Drop]) -> str:
    """Which fields the lines do have, where the one asked for is missing from them."""
    lacking = next((drop for drop in drops if drop.reason.startswith("no field")), None)
    if lacking is None:
        return ""
    file = next(file for file in shard.files if file.label == lacking.path)
    with open_stream(file) as stream:
        head = b""
        while len(head) < 1 << 20 and (piece := stream.read(1 << 16)):
            head += piece
    names: list[str] = []
    for line in head.split(b"\n")[:100]:
        try:
            row: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            names += [name for name in cast("dict[str, Any]", row) if name not in names]
    return f"; the lines have the fields {', '.join(map(repr, names[:20]))}" if names else ""


class DropLog:
    """Every document that was not kept, as JSON lines in a file (none if all were); the first few bad ones in memory."""

    def __init__(self, path: Path) -> None:
        self.first: list[Drop] = []
        """Empty documents left out: they are no fault."""
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, drops: list[Drop]) -> None:
        """Record the drops of a batch."""
        if not drops:
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        for drop in drops:
            line = None if drop.row < 0 else drop.row + 1
            row = {"file": drop.path, "line": line, "byte": drop.byte, "reason": drop.reason}
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if len(self.first) <= MAX_LISTED:
            bad = [drop for drop in drops if drop.reason != EMPTY]
            self.first += bad[: MAX_LISTED + 1 - len(self.first)]
