"""SHA-256 of source files, taken while they are read, promised by others, or recorded of an earlier run."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from headrace.manifest import CutEntry, SourceEntry
from headrace.sources import SourceFile, SourceShard
from headrace.sources.rawfile import DamagedFileError

__all__ = ["PromiseCheck", "SourceHashes", "check_promise", "holds"]

_PIECE = 1 << 20


class SourceHashes:
    """SHA-256 of each file of a source shard as it lies on disk, or of a cut of one, from the bytes that are read."""

    def __init__(self, shard: SourceShard) -> None:
        self._digests = {file.path: hashlib.sha256() for file in shard.files}
        self._sizes = dict.fromkeys(self._digests, 0)

    def update(self, file: SourceFile, data: bytes) -> None:
        """Take the next bytes of a file."""
        self._digests[file.path].update(data)
        self._sizes[file.path] += len(data)

    def hex(self, file: SourceFile) -> str:
        """The digest of a file; empty where it was not read to its end, as no more documents were asked for."""
        whole = file.given is not None or self._sizes[file.path] == file.size
        return self._digests[file.path].hexdigest() if whole else ""

    def size(self, file: SourceFile) -> int:
        """Bytes on disk; of what a program gave, the bytes that were hashed."""
        return file.size if file.given is None else self._sizes[file.path]

    def cuts(self, file: SourceFile, start: int) -> tuple[CutEntry, ...]:
        """What was read of a cut from `start` on; nothing where that is nothing."""
        stop = start + self._sizes[file.path]
        return (CutEntry(start=start, stop=stop, sha256=self._digests[file.path].hexdigest()),) if stop > start else ()


def check_promise(file: SourceFile, found: str) -> None:
    """Compare a file's SHA-256, if it is known, with what a list of fetched files says.

    Raises:
        DamagedFileError: it is another.
    """
    if file.promise and found not in {"", file.promise.sha256}:
        raise DamagedFileError(
            file.label,
            f"its SHA-256 is {found}, but the list of fetched files says {file.promise.sha256}; fetch it again",
        )


class PromiseCheck:
    """Hashes whole the files that a list promises and a build reads in several places at once, while that goes on.

    A context manager; leaving it with an exception ends the reading.
    """

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._stop = Event()
        self._done = self._pool.submit(self._check, [file for file in files if file.promise and file.cuts])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown(wait=True)

    def _check(self, files: Sequence[SourceFile]) -> None:
        for file in files:
            digest = hashlib.sha256()
            try:
                with file.path.open("rb") as data:
                    while not self._stop.is_set() and (piece := data.read(_PIECE)):
                        digest.update(piece)
            except OSError as error:
                raise DamagedFileError(file.label, f"cannot be read ({error.strerror or error})") from error
            if self._stop.is_set():
                return
            check_promise(file, digest.hexdigest())

    def finish(self) -> None:
        """Wait for it, and raise what it found."""
        self._done.result()


def holds(path: Path, entries: Iterable[SourceEntry]) -> SourceEntry | None:
    """The first of some entries, of whole files or cuts, whose bytes a file holds; it is read whole once at most."""
    whole = ""
    for entry in entries:
        if entry.sha256:
            whole = whole or _sha256(path)
            if entry.sha256 == whole:
                return entry
        elif all(_sha256(path, cut.start, cut.stop) == cut.sha256 for cut in entry.cuts):
            return entry
    return None


def _sha256(path: Path, start: int = 0, stop: int | None = None) -> str:
    with path.open("rb") as file:
        if stop is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        file.seek(start)
        while start < stop and (piece := file.read(min(_PIECE, stop - start))):
            digest.update(piece)
            start += len(piece)
    return digest.hexdigest()
