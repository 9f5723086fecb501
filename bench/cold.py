"""Random windows of a corpus that is not in memory, 64 rows of 1,025 tokens a batch, through `Loader.batch`.

A shard of 4 GiB is taken out of the page cache before each run (less than 1 % of its pages left, by `mincore`). Against:

- plain map: numpy's gather out of a map of the file. A fault reads ahead, mostly what nobody wants.
- random map: the same with `madvise(MADV_RANDOM)`: a fault reads its page alone, one after another.

A run serves so many batches that a window seldom lies where another one has been. What the disk has read meanwhile is
printed, for a rate above what the disk can do would mean that the data was not cold.
"""

import argparse
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pagecache
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, save, summary

import headrace
from corpus import OUT

ROWS, WINDOW = 64, 1024
READ = WINDOW + 1
DOCUMENT = 1 << 20  # tokens
BATCHES = {"plain map": 16, "random map": 64, "headrace": 512}
LEAST_OF_PLAIN, LEAST_OF_RANDOM = 20.0, 4.0


class Run(NamedTuple):
    """What a run has served."""

    windows_per_second: float
    disk_bytes_per_second: float


def make_shard(gibibytes: int) -> Path:
    """Write a shard of tokens that are all different from page to page, unless an earlier run did."""
    path = OUT / f"cold-{gibibytes}.h5"
    if not path.exists():
        partial = path.with_suffix(".partial")
        block = np.random.default_rng(0).integers(1, 1 << 16, DOCUMENT - 1, dtype=np.uint16)
        with headrace.HDF5ShardWriter(partial, 1 << 20) as writer:
            for number in range((gibibytes << 29) // DOCUMENT):
                writer.add_document(np.roll(block, number))
                writer.add_boundary()
        partial.rename(path)
    return path


def cold(path: Path, batches: int, prepare: Callable[[], Callable[[int], object]]) -> Run:
    """Drop the file, then serve so many batches of what `prepare` makes."""
    pagecache.drop(path)
    serve = prepare()
    before, started = pagecache.disk_bytes(), time.perf_counter()
    for step in range(batches):
        serve(step)
    seconds = time.perf_counter() - started
    return Run(batches * ROWS / seconds, (pagecache.disk_bytes() - before) / seconds)


def mapped(path: Path, advice: int) -> Callable[[int], object]:
    """Gather random windows out of a map."""
    descriptor = os.open(path, os.O_RDONLY)
    view = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    os.close(descriptor)
    view.madvise(advice)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(view, np.uint16), READ)
    rng = np.random.default_rng(1)
    return lambda _: windows[rng.integers(0, len(windows), ROWS)].astype(np.int64)


def loader(path: Path) -> Callable[[int], object]:
    """Serve a random plan, in the order of its steps."""
    corpus = headrace.open(path)
    plan = headrace.Plan(order="random", token_count=len(corpus), window=WINDOW, batch_size=ROWS, seed=time.time_ns())
    return headrace.Loader(corpus, plan).batch


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Serve windows from a cold disk.")
    parser.add_argument("--gibibytes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    path = make_shard(options.gibibytes)
    runs = interleave(
        {
            "plain map": lambda: cold(path, BATCHES["plain map"], lambda: mapped(path, mmap.MADV_NORMAL)),
            "random map": lambda: cold(path, BATCHES["random map"], lambda: mapped(path, mmap.MADV_RANDOM)),
            "headrace": lambda: cold(path, BATCHES["headrace"], lambda: loader(path)),
        },
        rounds=options.rounds,
    )
    rates = {name: [run.windows_per_second for run in found] for name, found in runs.items()}
    disk = {name: [run.disk_bytes_per_second for run in found] for name, found in runs.items()}
    plain, scattered = (ratios(rates["headrace"], rates[name]) for name in ("plain map", "random map"))
    checks = [
        Check("cold: headrace's windows a second / those of a plain map", plain["median"], LEAST_OF_PLAIN, "at least"),
        Check("cold: ... / those of a random map", scattered["median"], LEAST_OF_RANDOM, "at least"),
    ]
    print_table(
        (f"{options.gibibytes} GiB, dropped", "windows/s", "lowest", "highest", "disk MB/s"),
        [
            (
                name,
                *(f"{summary(found)[key]:,.0f}" for key in ("median", "lowest", "highest")),
                f"{summary(disk[name])['median'] / 1e6:,.0f}",
            )
            for name, found in rates.items()
        ],
    )
    print_checks(checks)
    save(
        "cold",
        {
            "checks": records(checks),
            "gibibytes": options.gibibytes,
            "of_plain": plain,
            "of_random": scattered,
            "windows_per_second": {name: summary(found) for name, found in rates.items()},
            "disk_bytes_per_second": {name: summary(found) for name, found in disk.items()},
        },
    )
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
