"""Warm random windows of Lance data sets, 64 rows of 1,025 and of 8,193 tokens, in the page cache.

`headrace.open`, a random plan and `Loader.batch(step)`, of the same GPT-2 tokens in four stores: an HDF5
corpus; a Lance corpus (`headrace build --store lance`); and what the published recipe writes, a token a row of int64, in
format 2.0, flat on disk, and in 2.2, bit-packed. Against the recipe's own way to read: `dataset.take` of a window's rows,
`to_pylist`, and a list of the column, one window after another.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import corpora
import lance
import numpy as np
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, save, summary
from windows import loader

import headrace
from corpus import OUT, Corpus, collect
from headrace.testing.lance import write_recipe

ROWS, WINDOWS = 64, (1024, 8192)
BATCHES = {1024: 256, 8192: 64}
LIMITS = {1024: 80.0, 8192: 200.0}
LEAST_OF_PACKED = 25.0
MOST_OF_HDF5 = 1.3


def stores(corpus: Corpus) -> dict[str, Path]:
    """Build what an earlier run did not; paths by what they are called."""
    made = {name: OUT / f"lance-{name}-{corpus.text_bytes}" for name in ("hdf5", "lance", "recipe-2.0", "recipe-2.2")}
    for name in ("hdf5", "lance"):
        if not (made[name] / "shards.json").exists():
            corpora.build(corpus.file, made[name], "--tokenizer", corpora.gpt2(), "--store", name)
    with headrace.open(made["hdf5"]) as built:
        for name in ("recipe-2.0", "recipe-2.2"):
            if not made[name].exists():
                partial = made[name].with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                write_recipe(partial, built.documents, storage_version=name.removeprefix("recipe-"))
                partial.rename(made[name])
    return {
        "headrace, HDF5": made["hdf5"],
        "headrace, Lance": made["lance"],
        "headrace, recipe 2.0": made["recipe-2.0"],
        "headrace, recipe 2.2": made["recipe-2.2"],
    }


def batches_of(path: Path, window: int) -> Callable[[], float]:
    """Serve batches through a loader: seconds a window."""
    served, steps = loader(path, window, ROWS), count()

    def run() -> float:
        started = time.perf_counter()
        for _ in range(BATCHES[window]):
            served.batch(next(steps))
        return (time.perf_counter() - started) / BATCHES[window] / ROWS

    return run


def taken(path: Path, window: int) -> Callable[[], float]:
    """Read windows as the recipe does: seconds a window."""
    dataset, rng = lance.dataset(path), np.random.default_rng(0)
    rows, windows = dataset.count_rows(), 8

    def run() -> float:
        started = time.perf_counter()
        for start in rng.integers(0, rows - window - 1, windows).tolist():
            [row["input_ids"] for row in dataset.take(list(range(start, start + window + 1))).to_pylist()]
        return (time.perf_counter() - started) / windows

    return run


def require_equal(paths: dict[str, Path]) -> None:
    """Refuse to compare stores that serve different tokens.

    Raises:
        RuntimeError: they do.
    """
    first, *others = (loader(path, 1024, ROWS).batch(12345).input_ids for path in paths.values())
    if not all(np.array_equal(first, other) for other in others):
        raise RuntimeError("the stores do not serve the same batch")


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Compare windows of Lance data sets with the recipe's own reading.")
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    corpus = collect(options.megabytes)
    paths = stores(corpus)
    require_equal(paths)
    checks: list[Check] = []
    kept: dict[str, object] = {}
    for window in WINDOWS:
        contestants = {name: batches_of(path, window) for name, path in paths.items()}
        contestants["take, recipe 2.0"] = taken(paths["headrace, recipe 2.0"], window)
        contestants["take, recipe 2.2"] = taken(paths["headrace, recipe 2.2"], window)
        seconds = interleave(contestants, rounds=options.rounds)
        size = f"{ROWS} x {window + 1}"

        def speed(name: str, other: str, found: dict[str, list[float]] = seconds) -> float:
            return float(ratios(found[other], found[name])["median"])

        checks += [
            Check(
                f"{size}: Lance corpus' time / HDF5's",
                1 / speed("headrace, Lance", "headrace, HDF5"),
                MOST_OF_HDF5,
                "at most",
            ),
            Check(
                f"{size}: Lance corpus / the recipe's take",
                speed("headrace, Lance", "take, recipe 2.0"),
                LIMITS[window],
                "at least",
            ),
            Check(
                f"{size}: recipe 2.2 / the recipe's take of it",
                speed("headrace, recipe 2.2", "take, recipe 2.2"),
                LEAST_OF_PACKED,
                "at least",
            ),
        ]
        print_table(
            (size, "us a window", "lowest", "highest", "M tokens/s"),
            [
                (
                    name,
                    *(f"{s[key] * 1e6:.1f}" for key in ("median", "lowest", "highest")),
                    f"{(window + 1) / s['median'] / 1e6:.2f}",
                )
                for name, s in ((name, summary(found)) for name, found in seconds.items())
            ],
        )
        kept[size] = {name: summary(found) for name, found in seconds.items()}
    print_checks(checks)
    save("lance_windows", {"checks": records(checks), "seconds_a_window": kept}, corpus=corpus)
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
