"""Documents that were not kept: every one of them on disk, a few in memory."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from headrace.building.rolling import gone
from headrace.errors import MAX_LISTED, BuildError
from headrace.sources import Drop
from headrace.storage.atomic import fsync_folder

__all__ = ["DUPLICATE", "EMPTY", "MOST_KEPT", "NOT_SAMPLED", "DropLog", "faults_in"]

EMPTY, DUPLICATE = "empty", "duplicate"
"""The reasons for dropping a document that are no fault of the input."""
NOT_SAMPLED = "not sampled"
"""Of documents that are good, and are left out at random: they are counted, and not listed."""
MOST_KEPT = 1000
"""Bad documents that are held in memory at most; how many of them are listed is for whoever prints them."""


def faults_in(drops: Iterable[Drop]) -> list[Drop]:
    """Those that are a fault of the input."""
    return [drop for drop in drops if drop.reason not in {EMPTY, DUPLICATE}]


class DropLog:
    """Every document that was not kept, as JSON lines in a file (none if all were); the first few bad ones in memory.

    A context manager; leaving it without an exception waits until the file is on disk under its name, so that one which is
    there is whole.

    Attributes:
        first: the first bad documents, `MOST_KEPT` at most, and after the context a few of them; empty documents and
            duplicates are no fault.

    Raises:
        BuildError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.first: list[Drop] = []
        self._path = path
        self._partial = path.with_name(f".{path.name}")
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._not_written(error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            try:
                with self._file:
                    if kind is None:
                        self._file.flush()
                        os.fsync(self._file.fileno())
                        self._partial.replace(self._path)
                        fsync_folder(self._path.parent)
            except OSError as error:
                if kind is None:
                    raise self._not_written(error) from error
            if kind is not None:
                with suppress(OSError):  # what went wrong is told already
                    self._partial.unlink()
        del self.first[MAX_LISTED + 1 :]  # what goes on into the build's report

    def add(self, drops: list[Drop]) -> None:
        """Record the drops of a batch."""
        if not drops:
            return
        try:
            self._write(drops)
        except OSError as error:
            raise self._not_written(error) from error
        if len(self.first) < MOST_KEPT:
            self.first += faults_in(drops)[: MOST_KEPT - len(self.first)]

    def _write(self, drops: list[Drop]) -> None:
        if self._file is None:
            for folder in (self._path.parent.parent, self._path.parent):  # not the output itself, if it was removed
                folder.mkdir(exist_ok=True)
            self._file = self._partial.open("w", encoding="utf-8")
        for drop in drops:
            line = None if drop.row < 0 else drop.row + 1
            byte = None if drop.byte < 0 else drop.byte
            row: dict[str, object] = {"file": drop.path, "line": line, "byte": byte, "reason": drop.reason}
            if drop.kept is not None:
                row["kept"] = {"file": drop.kept[0], "line": drop.kept[1] + 1}
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _not_written(self, error: OSError) -> BuildError:
        if isinstance(error, FileNotFoundError):  # its folders were there, or made a moment ago
            return gone(self._path.parents[2])
        return BuildError(f"{self._path}: cannot be written: {error.strerror or error}; nothing was published")
