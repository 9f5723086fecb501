"""Warm batches through torch's DataLoader without workers, 64 rows of 1,025 int64 tokens each.

`headrace.torch.StepDataLoader` on a corpus of 200 million tokens (400 MB) in the page cache, each step fresh; beside it the
plain `DataLoader` over a `BatchStream`, a map-style `DataLoader(SampleDataset, batch_sampler=StepSampler)` and two worker
processes, for comparison. Against a cast copy, as in `windows.py`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, save, summary
from torch.utils.data import DataLoader
from windows import READ, ROWS, built, cast_copies, loader, timed

from corpus import Corpus, collect
from headrace.loading.rows import BLOCK_STEPS
from headrace.torch import BatchStream, SampleDataset, StepDataLoader, StepSampler

LEAST_OF_COPY = 0.3
COMPARED = BLOCK_STEPS // 8  # batches a round of what has no limit


def next_of(batches: Any) -> Callable[[], object]:
    """Take the next batch of an endless loader."""
    iterator: Iterator[object] = iter(batches)
    return lambda: next(iterator)


def measure(corpus: Corpus, rounds: int) -> tuple[list[Check], dict[str, object]]:
    """Build the corpus, let all contestants take turns."""
    path = built(corpus, 1)
    shard = next(path.glob("*.h5"))
    shard.read_bytes()
    made = loader(path)
    limited = {"StepDataLoader": StepDataLoader(made)}
    samples = SampleDataset(made, samples=10**9)
    compared = {
        "DataLoader(BatchStream)": DataLoader(BatchStream(made), batch_size=None),
        "DataLoader(SampleDataset)": DataLoader(samples, batch_sampler=StepSampler(made)),
        "StepDataLoader, 2 workers": StepDataLoader(made, num_workers=2, multiprocessing_context="fork"),
    }
    contestants = {
        **{name: timed(next_of(batches), BLOCK_STEPS) for name, batches in limited.items()},
        **{name: timed(next_of(batches), COMPARED) for name, batches in compared.items()},
        "cast copy": timed(cast_copies(shard), BLOCK_STEPS),
    }
    seconds = interleave(contestants, rounds=rounds)
    checks = [
        Check(
            f"torch adapter: {name} / cast copy",
            float(ratios(seconds["cast copy"], seconds[name])["median"]),
            LEAST_OF_COPY,
            "at least",
        )
        for name in limited
    ]
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
    print_checks(checks)
    return checks, {
        "checks": records(checks),
        "batch": {"rows": ROWS, "tokens_read": READ, "dtype": "int64"},
        "seconds_a_batch": {name: summary(found) for name, found in seconds.items()},
    }


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Compare warm batches through torch's DataLoader with a copy.")
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes; a token a byte")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    corpus = collect(options.megabytes)
    checks, numbers = measure(corpus, options.rounds)
    save("torch_adapter", numbers, corpus=corpus)
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
