"""Hashes of the texts of a build's documents, spilled in sorted runs: what the search for duplicates begins with."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.in_progress import Key
from headrace.sources import DocumentBatch, SourceShard
from headrace.storage.atomic import naming_file
from headrace.storage.incoming import HASH_BYTES

__all__ = ["FIRST", "REPEAT", "RUN_DOCUMENTS", "HashRuns", "Run", "RunsFound", "run_of", "text_hashes", "write_run"]

RUN_DOCUMENTS = 1 << 19
"""Documents after which a run ends: some 40 MB while it is sorted."""
FIRST = np.dtype([("high", "<u8"), ("low", "<u8"), ("document", "<u8"), ("row", "<u8"), ("file", "<u4")])
"""A text of a run: the halves of its hash, by which the run is sorted, and its first document there."""
REPEAT = np.dtype([("document", "<u8"), ("first", "<u8"), ("row", "<u8"), ("file", "<u4")])
"""A document whose text an earlier one of the same run has: that one's number, row and file beside its own number."""


def text_hashes(texts: Sequence[bytes]) -> NDArray[np.uint8]:
    """The first 16 bytes of the SHA-256 of each text, shape (len(texts), 16)."""
    digests = b"".join([hashlib.sha256(text).digest() for text in texts])
    whole = np.frombuffer(digests, np.uint8).reshape(len(texts), hashlib.sha256().digest_size)
    return np.ascontiguousarray(whole[:, :HASH_BYTES])


@dataclass(frozen=True, slots=True)
class Run:
    """Up to some 500,000 documents that follow each other in a source shard."""

    path: Path
    """Of its files, without their suffixes."""
    row_base: int = 0
    """What is added to its rows."""

    @property
    def firsts(self) -> Path:
        """Its texts, as `FIRST`."""
        return self.path.with_suffix(".firsts")

    @property
    def repeats(self) -> Path:
        """Its documents whose text it holds before, as `REPEAT`, in order."""
        return self.path.with_suffix(".repeats")

    @property
    def later(self) -> Path:
        """Its texts that another run holds before: see `duplicates`."""
        return self.path.with_suffix(".later")

    def remove(self) -> None:
        """Remove its files."""
        for path in (self.firsts, self.repeats, self.later):
            path.unlink(missing_ok=True)


def run_of(folder: Path, key: Key, number: int, row_base: int = 0) -> Run:
    """A run of a source shard, by its number there."""
    return Run(folder / f"{key[0]:06d}-{key[1]:04d}-{number:06d}", row_base)


@dataclass(frozen=True, slots=True)
class RunsFound:
    """What there is of a source shard."""

    runs: int
    documents: int
    sha256: str
    """Of the hashes of all documents, in order."""


def write_run(run: Run, hashes: NDArray[np.uint8], start: int, rows: NDArray[Any], files: NDArray[Any]) -> None:
    """Sort the documents of a run, and write its files.

    Args:
        run: says where.
        hashes: of the documents' texts, (n, 16).
        start: number in the source shard of the first of them.
        rows: of each, (n,).
        files: of each its file among all of the corpus, (n,).

    Raises:
        OSError: naming the file.
    """
    halves = hashes.view(">u8").astype(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: among equal ones, the first comes first
    new = np.ones(len(order), bool)
    new[1:] = (halves[order[1:]] != halves[order[:-1]]).any(axis=1)
    firsts = np.empty(int(np.count_nonzero(new)), FIRST)
    chosen = order[new]
    firsts["high"], firsts["low"] = halves[chosen, 0], halves[chosen, 1]
    repeats = np.empty(len(order) - len(firsts), REPEAT)
    again, earlier = order[~new], chosen[np.cumsum(new) - 1][~new]
    by_number = np.argsort(again)
    again, earlier = again[by_number], earlier[by_number]
    repeats["document"], repeats["first"] = start + again, start + earlier
    firsts["document"] = start + chosen
    for records, of in ((firsts, chosen), (repeats, earlier)):
        records["row"], records["file"] = rows[of], files[of]
    for path, records in ((run.firsts, firsts), (run.repeats, repeats)):
        with naming_file(path):
            path.write_bytes(records.tobytes())


class HashRuns:
    """Collects the hashes of a source shard's texts, and spills them in runs: a `survey.Collector`.

    Args:
        folder: for the runs; there already.
        source: place of the source shard's first file among all of the corpus.
        shard: the source shard.
    """

    def __init__(self, folder: Path, source: int, shard: SourceShard) -> None:
        self._folder = folder
        self._key = shard.key
        self._source = source
        self._digest = hashlib.sha256()
        self._runs = self._documents = self._held = 0
        self._parts: list[tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint32]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._held:
            self._spill()

    def add(self, batch: DocumentBatch) -> None:
        """Take the next documents."""
        hashes = text_hashes(batch.texts)
        self._digest.update(hashes.data)
        self._parts.append((hashes, batch.rows, batch.files))
        self._held += len(hashes)
        if self._held >= RUN_DOCUMENTS:
            self._spill()

    def _spill(self) -> None:
        hashes, rows, files = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        write_run(
            run_of(self._folder, self._key, self._runs), hashes, self._documents, rows, files + np.uint32(self._source)
        )
        self._runs += 1
        self._documents += self._held
        self._held = 0
        self._parts = []

    def result(self) -> RunsFound:
        """How many runs there are, and of what."""
        return RunsFound(self._runs, self._documents, self._digest.hexdigest())
