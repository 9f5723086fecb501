"""A uniform sample of documents: those with the smallest keys."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.building.spilled import RunEntry, SpilledRun

__all__ = ["choose", "kept_by_file"]

_BINS = 16
"""Bits of a key by which documents are counted before those of one bin are compared."""
_SHIFT = np.uint64(64 - _BINS)


def choose(folder: Path, entries: Sequence[RunEntry], most: int) -> list[RunEntry]:
    """Let of each run only those documents be wanted that have the `most` smallest keys of all.

    Of equal keys, the first in the order of the runs count as smaller.
    """
    counts = np.zeros(1 << _BINS, np.int64)
    for entry in entries:
        counts += np.bincount(SpilledRun(folder / entry.name).keys >> _SHIFT, minlength=len(counts))
    sums = np.cumsum(counts)
    if sums[-1] <= most:
        return list(entries)
    last = int(np.searchsorted(sums, most, side="left"))  # the bin of the last one that is wanted
    starts: list[int] = []
    found = [np.empty(0, np.uint64)]
    for entry in entries:
        run = SpilledRun(folder / entry.name)
        start, stop = (run.find(number << int(_SHIFT)) for number in (last, last + 1))
        starts.append(start)
        found.append(np.array(run.keys[start:stop]))
    runs = np.repeat(np.arange(len(entries)), [len(keys) for keys in found[1:]])
    order = np.argsort(np.concatenate(found), kind="stable")
    chosen = runs[order[: most - int(sums[last] - counts[last])]]
    wanted = starts + np.bincount(chosen, minlength=len(entries))
    return [replace(entry, documents=count) for entry, count in zip(entries, wanted.tolist(), strict=True)]


def kept_by_file(folder: Path, entries: Sequence[RunEntry], files: int) -> list[int]:
    """How many documents are wanted of each file of a source shard.

    Args:
        folder: of the runs.
        entries: the source shard's.
        files: how many it has.
    """
    counts = np.zeros(files, np.int64)
    for entry in entries:
        counts += np.bincount(SpilledRun(folder / entry.name).rows(0, entry.documents)["file"], minlength=files)
    return counts.tolist()
