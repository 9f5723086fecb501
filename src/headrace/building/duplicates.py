"""Documents whose text an earlier document has: found by their hashes without holding these in memory, then left out.

The runs of all source shards (`text_hashes`) are cut at the same hashes into partitions that fit into memory. In each, equal
hashes of different runs come together; what lies in the later runs is written beside those. From that and from what repeats
within the runs comes, for each source shard, the list of what is left out.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.building.drop_log import DUPLICATE
from headrace.building.text_hashes import FIRST, REPEAT, Run, RunsFound, run_of, text_hashes
from headrace.in_progress import Key
from headrace.sources import WHOLE_FILE, DocumentBatch, Drop, SourceShard
from headrace.sources.rawfile import DamagedFileError
from headrace.sources.split import NO_SPLIT
from headrace.storage.atomic import naming_file

__all__ = ["Duplicates", "compare_runs", "list_duplicates"]

PARTITION_TEXTS = 1 << 19
"""Texts that are sorted at once: some 70 MB."""
_DUPLICATE = np.dtype([("document", "<u8"), ("row", "<u8"), ("file", "<u4")])
"""A document that is left out, by its number in its source shard; row and file of the one that is kept."""
_UNPLACED = frozenset({"parquet", "arrow", "given"})
"""Kinds of files whose documents begin at no byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """What is left out of a source shard."""

    path: Path
    """Of the list, which is there if there are any; and of the labels that it refers to, with another suffix."""
    documents: int
    """Of the source shard, these included."""
    count: int
    """How many they are."""
    sha256: str
    """Of the list, by which a run tells whether an earlier one has left out the same."""
    read: str
    """`RunsFound.sha256`: what is read now must be what was read then."""

    @property
    def kept(self) -> int:
        """Documents that are not left out."""
        return self.documents - self.count

    def left_out(self, batches: Iterator[DocumentBatch], shard: SourceShard) -> Iterator[DocumentBatch]:
        """Yield the batches of the source shard without them; each becomes a drop. Texts get their hashes.

        Raises:
            DamagedFileError: other texts are read than when duplicates were looked for.
        """
        found: NDArray[Any] = np.memmap(self.path, _DUPLICATE, "r") if self.count else np.empty(0, _DUPLICATE)
        labels: dict[str, str] = json.loads(_labels_of(self.path).read_bytes()) if self.count else {}
        leaving = _LeavingOut(shard, labels)
        digest, start, at = hashlib.sha256(), 0, 0
        for batch in batches:
            hashed = replace(batch, hashes=text_hashes(batch.texts))
            digest.update(hashed.hashes.data)
            size = len(batch.texts)
            some = found[at : at + size]
            some = some[: int(np.searchsorted(some["document"], start + size))]
            yield leaving.without(hashed, (some["document"] - np.uint64(start)).astype(np.intp), some)
            start, at = start + size, at + len(some)
        if digest.hexdigest() != self.read:
            label = shard.files[0].label
            raise DamagedFileError(label, "has changed since duplicates were looked for; build again")


class _LeavingOut:
    """Takes documents out of the batches of a source shard.

    Args:
        shard: the source shard.
        labels: of the files of documents that are kept, by their numbers.
    """

    def __init__(self, shard: SourceShard, labels: Mapping[str, str]) -> None:
        self._files = shard.files
        self._order = {file.label: number for number, file in enumerate(shard.files)}
        self._labels = labels

    def without(self, batch: DocumentBatch, numbers: NDArray[np.intp], duplicates: NDArray[Any]) -> DocumentBatch:
        """The batch without the documents of these numbers, which become drops in their places among the others."""
        if not len(numbers):
            return batch
        places = zip(*(column[numbers].tolist() for column in (batch.files, batch.rows, batch.offsets)), strict=True)
        kept = zip(duplicates["file"].tolist(), duplicates["row"].tolist(), strict=True)
        drops = [
            self._drop(place, (self._labels[str(file)], row)) for place, (file, row) in zip(places, kept, strict=True)
        ]
        drops = sorted([*batch.drops, *drops], key=lambda drop: (self._order[drop.path], drop.row))
        return replace(batch.select(np.delete(np.arange(len(batch.texts)), numbers)), drops=drops)

    def _drop(self, place: tuple[int, int, int], kept: tuple[str, int]) -> Drop:
        number, row, byte = place
        file = self._files[number]
        if file.kind == "text" and file.split == NO_SPLIT:
            row, byte = WHOLE_FILE, 0
        elif file.kind in _UNPLACED:
            byte = -1
        return Drop(file.label, row, byte, DUPLICATE, kept)


def _labels_of(path: Path) -> Path:
    return path.with_suffix(".labels")


def compare_runs(runs: Sequence[Run], wanted: int) -> None:
    """Find the texts of runs that an earlier run holds, and write them beside theirs.

    Args:
        runs: in source order.
        wanted: of the runs before this one nothing is asked.

    Raises:
        OSError: naming the file.
    """
    sizes = [run.firsts.stat().st_size // FIRST.itemsize for run in runs]
    count = max(-(-sum(sizes) // PARTITION_TEXTS), 1)
    edges = np.array([number * (1 << 64) // count for number in range(1, count)], np.uint64)
    bounds = np.zeros((len(runs), count + 1), np.int64)
    for number, run in enumerate(runs):
        if sizes[number]:
            bounds[number, 1:-1] = np.searchsorted(np.memmap(run.firsts, FIRST, "r")["high"], edges)
        bounds[number, -1] = sizes[number]
    for part in range(count):
        _compare(runs, bounds[:, part], bounds[:, part + 1], wanted)


def _compare(runs: Sequence[Run], starts: NDArray[np.int64], stops: NDArray[np.int64], wanted: int) -> None:
    """One partition: texts [start, stop) of each run."""
    parts = [
        np.fromfile(run.firsts, FIRST, stop - start, offset=start * FIRST.itemsize)
        for run, start, stop in zip(runs, starts.tolist(), stops.tolist(), strict=True)
        if stop > start
    ]
    if not parts:
        return
    texts = np.concatenate(parts)
    parts.clear()
    owners = np.repeat(np.arange(len(runs)), stops - starts)
    # Stable, and the runs lie in source order: of equal hashes the first is the one that is kept.
    order = np.lexsort((texts["low"], texts["high"]))
    high, low = texts["high"][order], texts["low"][order]
    new = np.ones(len(order), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    later = order[~new]
    kept = order[new][np.cumsum(new) - 1][~new]
    of_interest = owners[later] >= wanted
    later, kept = later[of_interest], kept[of_interest]
    by_place = np.argsort(later)
    later, kept = later[by_place], kept[by_place]
    bases = np.array([run.row_base for run in runs], np.uint64)
    found = _records(texts["document"][later], texts["row"][kept] + bases[owners[kept]], texts["file"][kept])
    borders = np.searchsorted(owners[later], np.arange(len(runs) + 1))
    for number in np.unique(owners[later]).tolist():
        path = runs[number].later
        with naming_file(path), path.open("ab") as file:
            file.write(found[borders[number] : borders[number + 1]].tobytes())


def _records(documents: NDArray[Any], rows: NDArray[Any], files: NDArray[Any]) -> NDArray[Any]:
    records = np.empty(len(documents), _DUPLICATE)
    records["document"], records["row"], records["file"] = documents, rows, files
    return records


def list_duplicates(folder: Path, key: Key, found: RunsFound, row_base: int, labels: Sequence[str]) -> Duplicates:
    """Write the list of what is left out of a source shard, once its runs were compared; they go.

    Args:
        folder: of the runs.
        key: of the source shard.
        found: its runs.
        row_base: what is added to its rows.
        labels: of all files of the corpus.

    Raises:
        OSError: naming the file.
    """
    path = folder / f"{key[0]:06d}-{key[1]:04d}.duplicates"
    digest, count, files = hashlib.sha256(), 0, set[int]()
    with naming_file(path), path.open("wb") as out:
        for number in range(found.runs):
            records = _of_run(run_of(folder, key, number, row_base))
            out.write(records.tobytes())
            digest.update(records.tobytes())
            count += len(records)
            files.update(np.unique(records["file"]).tolist())
    with naming_file(_labels_of(path)):
        _labels_of(path).write_text(json.dumps({number: labels[number] for number in sorted(files)}), encoding="ascii")
    return Duplicates(path=path, documents=found.documents, count=count, sha256=digest.hexdigest(), read=found.sha256)


def _of_run(run: Run) -> NDArray[Any]:
    """What is left out of a run, in order: texts that earlier runs hold, and what repeats in it."""
    later = np.fromfile(run.later, _DUPLICATE) if run.later.exists() else np.empty(0, _DUPLICATE)
    later = later[np.argsort(later["document"])]
    repeats = np.fromfile(run.repeats, REPEAT)
    records = _records(repeats["document"], repeats["row"] + np.uint64(run.row_base), repeats["file"])
    if len(later):  # where the first of the run goes, too, the one for which it goes is kept
        at = np.minimum(np.searchsorted(later["document"], repeats["first"]), len(later) - 1)
        goes = later["document"][at] == repeats["first"]
        for name in ("row", "file"):
            records[name][goes] = later[name][at[goes]]
    run.remove()
    both = np.concatenate([later, records])
    return both[np.argsort(both["document"])]
