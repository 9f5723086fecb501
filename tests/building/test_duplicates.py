"""The search for duplicates among hashes: right for any runs and partitions, and in memory that does not grow."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.building import duplicates
from headrace.building.duplicates import compare_runs, list_duplicates
from headrace.building.text_hashes import FIRST, RunsFound, run_of, write_run

HASHES = st.integers(0, 5).map(lambda number: number * ((1 << 128) // 6)) | st.integers(0, (1 << 128) - 1)


def spill(folder: Path, shards: list[list[np.ndarray]]) -> list[RunsFound]:
    """Runs of hashes, (n, 16) each, by source shard; rows are numbers in the shard."""
    found = []
    for index, runs in enumerate(shards):
        start = 0
        for number, hashes in enumerate(runs):
            rows = np.arange(start, start + len(hashes), dtype=np.uint64)
            files = np.full(len(hashes), index, np.uint32)
            write_run(run_of(folder, (index, 0), number), hashes, start, rows, files)
            start += len(hashes)
        found.append(RunsFound(len(runs), start, ""))
    return found


def search(folder: Path, found: list[RunsFound], base: int) -> list[np.ndarray]:
    """What is left out of each source shard: its number, row and file of the one that is kept."""
    keys = [(index, 0) for index in range(len(found))]
    runs = [run_of(folder, key, run, base) for key, one in zip(keys, found, strict=True) for run in range(one.runs)]
    compare_runs(runs, 0)
    labels = [f"file {index}" for index in range(len(found))]
    listed = [list_duplicates(folder, key, one, base, labels) for key, one in zip(keys, found, strict=True)]
    assert {path.suffix for path in folder.iterdir()} <= {".duplicates", ".labels"}
    return [np.fromfile(one.path, np.dtype([("d", "<u8"), ("r", "<u8"), ("f", "<u4")])) for one in listed]


@given(
    shards=st.lists(st.lists(st.lists(HASHES, max_size=9), max_size=4), max_size=4),
    texts=st.integers(1, 40),
    base=st.integers(0, 1 << 40),
)
def test_it_is_a_dictionary(tmp_path_factory, shards, texts, base):
    """Every hash but the first of its kind is listed, in order, with that one's place."""
    folder = tmp_path_factory.mktemp("runs")
    arrays = [
        [np.array([list(one.to_bytes(16, "big")) for one in run], np.uint8).reshape(-1, 16) for run in runs]
        for runs in shards
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "PARTITION_TEXTS", texts)
        found = search(folder, spill(folder, arrays), base)
    kept: dict[int, tuple[int, int]] = {}
    for index, runs in enumerate(shards):
        wanted = []
        for number, one in enumerate(one for run in runs for one in run):
            if one in kept:
                wanted.append((number, *kept[one]))
            else:
                kept[one] = number + base, index
        assert found[index].tolist() == wanted


def test_memory_does_not_grow(tmp_path):
    """Of millions of hashes, half of them repeats, some 100 MB are held at most, a part of what lies on disk."""
    random = np.random.default_rng(3)
    size, count = 1 << 19, 6
    runs = []
    for _ in range(count):
        hashes = random.integers(0, 256, (size, 16), np.uint8)
        hashes[: size // 2, 2:] = 7
        runs.append(hashes)
    found = spill(tmp_path, [[run] for run in runs])
    assert sum(path.stat().st_size for path in tmp_path.glob("*.firsts")) > count * size // 2 * FIRST.itemsize
    tracemalloc.start()
    try:
        listed = search(tmp_path, found, 0)
        peak = tracemalloc.get_traced_memory()[1] - sum(one.nbytes for one in listed)
    finally:
        tracemalloc.stop()
    assert sum(map(len, listed)) == count * size // 2 - (1 << 16)
    assert peak < 110e6
