"""Warm random windows, 64 rows of 1,025 int64 tokens a batch, through the whole path that a trainer takes.

`headrace.open`, a random plan, `Loader.batch(step)` with a fresh step each time, on a corpus of 200 million tokens
(400 MB) in the page cache, as one shard and as sixteen. Against it:

- cast copy: one contiguous uint16 -> int64 copy of as many tokens from a random place of the same map, into one buffer
  that is reused. No loader can be faster than the memory.
- get_batch loop: what is copied from project to project: a map opened anew each batch, a Python loop of slices, each cast
  to int64 and made a torch tensor, all stacked, once for the inputs and once for the targets.
- memmap loop: the same in numpy alone.
- h5py loop: a Python loop of slices of the data set, each cast, then stacked.

Every contestant serves a fixed number of batches a round, headrace a whole number of the blocks in which it works out
starts, so that this work is in its time.
"""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import corpora
import h5py
import numpy as np
import torch
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, run_process, save, summary
from numpy.typing import NDArray

import headrace
from corpus import OUT, Corpus, collect
from headrace.loading.rows import BLOCK_STEPS

ROWS, WINDOW = 64, 1024
READ = WINDOW + 1  # inputs and targets
SHARDS = 16
TRACED = 256  # batches
LONG = 32_768  # tokens of a window that is copied singly, not gathered
LONG_ROWS, LONG_TRACED = 1, 256
TOUCHED = 1 << 20  # tokens read at once to warm up
LEAST_OF_COPY = 0.5
LEAST_OF_LOOPS = 40.0
ALLOCATION = "brk"  # the allocator's; now and then one more in one of two processes than in the other


def built(corpus: Corpus, shards: int) -> Path:
    """Build the corpus' bytes as tokens (one uint16 each), as one shard or as about `shards`."""
    output = OUT / f"windows-{shards}"
    options = [] if shards == 1 else ["--shard-tokens", str(corpus.text_bytes // shards)]
    corpora.build(corpus.file, output, "--tokenizer", "bytes", *options)
    return output


def loader(path: Path, window: int = WINDOW, rows: int = ROWS) -> headrace.Loader:
    """Open a corpus, touch every page of its maps, and make the loader that is measured."""
    corpus = headrace.open(path)
    for start in range(0, corpus.token_count, TOUCHED):
        corpus.get_slice(start, min(start + TOUCHED, corpus.token_count))
    plan = headrace.Plan(
        order="random", token_count=corpus.token_count, window=window, batch_size=rows, corpus=str(corpus.fingerprint)
    )
    return headrace.Loader(corpus, plan)


def headrace_batches(path: Path) -> Callable[[], object]:
    """Serve the next batch."""
    served, steps = loader(path), count()
    return lambda: served.batch(next(steps))


def cast_copies(shard: Path) -> Callable[[], object]:
    """Copy a batch's worth of tokens from a random place of the shard's file."""
    line = _map(shard)
    line.max()  # every page is touched once
    buffer = np.empty(ROWS * READ, np.int64)
    places = _places(len(line) - len(buffer))
    return lambda: np.copyto(buffer, line[(start := next(places)) : start + len(buffer)])


def get_batch_batches(shard: Path) -> Callable[[], object]:
    """Serve batches of torch tensors out of the shard's file, taken as a flat file of tokens."""

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        data = _map(shard)
        starts = torch.randint(len(data) - WINDOW, (ROWS,))
        inputs = torch.stack([torch.from_numpy(data[i : i + WINDOW].astype(np.int64)) for i in starts])
        targets = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + WINDOW].astype(np.int64)) for i in starts])
        return inputs, targets

    return batch


def memmap_batches(shard: Path) -> Callable[[], object]:
    """Serve batches out of the shard's file, taken as a flat file of tokens."""
    rng = np.random.default_rng(0)

    def batch() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        data = _map(shard)
        starts = rng.integers(0, len(data) - READ, size=ROWS)
        inputs = np.stack([data[start : start + WINDOW].astype(np.int64) for start in starts])
        targets = np.stack([data[start + 1 : start + 1 + WINDOW].astype(np.int64) for start in starts])
        return inputs, targets

    return batch


def h5py_batches(shard: Path) -> Callable[[], object]:
    """Serve batches through HDF5."""
    tokens: Any = h5py.File(shard, "r", locking=False)["tokens"]
    rng = np.random.default_rng(0)

    def batch() -> NDArray[np.int64]:
        starts = rng.integers(0, len(tokens) - READ, size=ROWS)
        return np.stack([tokens[start : start + READ].astype(np.int64) for start in starts])

    return batch


def _map(shard: Path) -> NDArray[np.uint16]:
    return np.memmap(shard, np.uint16, mode="r", shape=(shard.stat().st_size // 2,))


def _places(bound: int) -> Iterator[int]:
    rng = np.random.default_rng(0)
    while True:
        yield from rng.integers(0, bound, 4096).tolist()


def require_equal(path: Path) -> None:
    """Compare a batch with what HDF5 reads.

    Raises:
        RuntimeError: they differ.
    """
    batch = loader(path).batch(12345)
    with headrace.open(path) as corpus:
        for row, start in enumerate(batch.starts.tolist()):
            entry = next(entry for entry in corpus.entries if entry.global_start <= start < entry.global_stop)
            with h5py.File(entry.path, "r", locking=False) as file:
                data: Any = file["tokens"]
                first = start - entry.global_start
                wanted = data[first : min(first + WINDOW, entry.token_count)]
            if not np.array_equal(batch.input_ids[row, : len(wanted)], wanted):
                raise RuntimeError(f"{path}: the window at {start} is not what HDF5 reads there")


def system_calls(path: Path, first: int, batches: int, *options: str) -> dict[str, int]:
    """Count the system calls of the warm batches [first, first + batches) under strace, by name.

    That is the difference of two processes: one that stops before them, one that serves them as well.
    """
    fewer, more = (_calls(path, steps, options) for steps in (first, first + batches))
    names = sorted({*fewer, *more})
    return {name: calls for name in names if (calls := more.get(name, 0) - fewer.get(name, 0))}


def _calls(path: Path, steps: int, options: tuple[str, ...]) -> dict[str, int]:
    with TemporaryDirectory() as folder:
        log = Path(folder) / "calls"
        command = [sys.executable, __file__, "--serve", path, "--batches", str(steps), *options]
        # Without numpy's threads for matrices, which sleep and wake by themselves.
        trace = ["-f", "-c", "-U", "name,calls", "-E", "OPENBLAS_NUM_THREADS=1", "-o", log]
        run_process(["strace", *trace, *command])
        lines = re.findall(r"^(\w+)\s+(\d+)$", log.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: int(calls) for name, calls in lines if name != "total"}


def serve(path: Path, steps: int, window: int, rows: int) -> None:
    """Serve the first `steps` batches: what runs under strace."""
    served = loader(path, window, rows)
    for step in range(steps):
        served.batch(step)


def traced(path: Path) -> dict[str, dict[str, int]]:
    """Count the system calls of batches within a block, and of whole blocks, whose starts are worked out meanwhile.

    Of long windows too, each of which is read as a range: where the corpus is not in memory, that asks for its pages.
    """
    return {
        "within a block": system_calls(path, 2 * BLOCK_STEPS + TRACED, TRACED),
        "a block": system_calls(path, 2 * BLOCK_STEPS, BLOCK_STEPS),
        "long windows": system_calls(path, LONG_TRACED, LONG_TRACED, "--window", str(LONG), "--rows", str(LONG_ROWS)),
    }


def checks_of_calls(name: str, calls: dict[str, dict[str, int]]) -> list[Check]:
    """Return what warm batches may ask of the system: nothing but memory, and no advice on pages that are there already."""
    batches = TRACED + BLOCK_STEPS + LONG_TRACED
    advice = sum(found.get("madvise", 0) for found in calls.values())
    return [
        Check(
            f"windows: system calls a warm batch, {name}",
            sum(count for call, count in calls["within a block"].items() if call != ALLOCATION) / TRACED,
            0.0,
            "at most",
        ),
        Check(f"windows: madvise calls of {batches} warm batches, {name}", float(advice), 0.0, "at most"),
    ]


def timed(batch: Callable[[], object], batches: int) -> Callable[[], float]:
    """Return a contestant: seconds a batch, over `batches`."""

    def run() -> float:
        started = time.perf_counter()
        for _ in range(batches):
            batch()
        return (time.perf_counter() - started) / batches

    return run


def measure(corpus: Corpus, rounds: int) -> tuple[list[Check], dict[str, object]]:
    """Build both corpora, let all contestants take turns, count system calls."""
    one, many = built(corpus, 1), built(corpus, SHARDS)
    require_equal(one)
    require_equal(many)
    shard = next(one.glob("*.h5"))
    shard.read_bytes()
    contestants = {
        "headrace, 1 shard": timed(headrace_batches(one), BLOCK_STEPS),
        f"headrace, {len(list(many.glob('*.h5')))} shards": timed(headrace_batches(many), BLOCK_STEPS),
        "cast copy": timed(cast_copies(shard), BLOCK_STEPS),
        "get_batch loop": timed(get_batch_batches(shard), BLOCK_STEPS // 8),
        "memmap loop": timed(memmap_batches(shard), BLOCK_STEPS // 8),
        "h5py loop": timed(h5py_batches(shard), BLOCK_STEPS // 64),
    }
    seconds = interleave(contestants, rounds=rounds)
    checks: list[Check] = []
    for name in [name for name in contestants if name.startswith("headrace")]:
        for other, limit in (
            ("cast copy", LEAST_OF_COPY),
            ("get_batch loop", LEAST_OF_LOOPS),
            ("h5py loop", LEAST_OF_LOOPS),
        ):
            speed = float(ratios(seconds[other], seconds[name])["median"])
            checks.append(Check(f"windows: {name} / {other}", speed, limit, "at least"))
    calls = {path.name: traced(path) for path in (one, many)} if shutil.which("strace") else {}
    for name, found in calls.items():
        checks += checks_of_calls(name, found)
    tokens = ROWS * READ
    print_table(
        (f"{ROWS} x {READ} tokens a batch", "median us", "lowest", "highest", "M tokens/s"),
        [
            (
                name,
                *(f"{s[key] * 1e6:.0f}" for key in ("median", "lowest", "highest")),
                f"{tokens / s['median'] / 1e6:.0f}",
            )
            for name, s in ((name, summary(found)) for name, found in seconds.items())
        ],
    )
    for name, found in calls.items():
        print(
            f"system calls of {TRACED} batches, {name}: {found['within a block']}; of a block: {found['a block']}; of "
            f"{LONG_TRACED} batches of {LONG_ROWS} x {LONG:,}: {found['long windows']}"
        )
    print_checks(checks)
    return checks, {
        "checks": records(checks),
        "batch": {"rows": ROWS, "tokens_read": READ, "dtype": "int64"},
        "tokens": headrace.open(one).token_count,
        "seconds_a_batch": {name: summary(found) for name, found in seconds.items()},
        "system_calls": calls,
    }


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(
        description="Compare warm random windows with a copy, the usual loops over a memmap and h5py."
    )
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes; a token a byte")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", type=Path, help="only serve batches of this corpus")
    parser.add_argument("--batches", type=int, default=BLOCK_STEPS)
    parser.add_argument("--window", type=int, default=WINDOW, help="of the batches that are only served")
    parser.add_argument("--rows", type=int, default=ROWS, help="likewise")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.batches, options.window, options.rows)
        return 0
    corpus = collect(options.megabytes)
    checks, numbers = measure(corpus, options.rounds)
    save("windows", numbers, corpus=corpus)
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
