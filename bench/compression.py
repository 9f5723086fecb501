"""What gzip and zstd cost: `headrace build --compression`, the size on disk, and windows through `headrace.Loader`, warm.

The same text, GPT-2 vocabulary and one worker for each; chunks of the default size, which hold 64 windows. Builds are
whole processes. Windows are 64 x 1,025 tokens: random ones, and all from the front in order. The token bytes are the same
under every compression: the fingerprints say so, and are compared.
"""

import argparse
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

import corpora
import pagecache
from checks import print_table
from harness import interleave, ratios, save, summary

import headrace
from corpus import OUT, Corpus, collect

COMPRESSIONS = ("none", "gzip:1", "gzip:4", "gzip:6", "zstd:1", "zstd:3", "zstd:9")
ROWS, WINDOW = 64, 1024
SECONDS = 0.15
"""Time given to a reader a round."""
READ_ROUNDS = 5


def output(compression: str) -> Path:
    """Return the corpus folder of a compression."""
    return OUT / f"compression-{compression.replace(':', '')}"


def builder(corpus: Corpus, vocabulary: Path, compression: str) -> Callable[[], float]:
    """Return a contestant: the seconds of one build."""
    options = ["--tokenizer", vocabulary, "--compression", compression]
    return lambda: corpora.build(corpus.file, output(compression), *options).seconds


def reader(path: Path, order: Literal["random", "sequential"]) -> Callable[[], float]:
    """Return a contestant: seconds a batch of windows that were not read before, out of files in the page cache."""
    corpus = headrace.open(path)
    for entry in corpus.entries:
        pagecache.load(Path(entry.path))
    plan = headrace.Plan(order=order, token_count=corpus.token_count, window=WINDOW, batch_size=ROWS)
    loader, numbers = headrace.Loader(corpus, plan), count()

    def run() -> float:
        started = time.perf_counter()
        for done in count(1):
            step = next(numbers)
            loader.batch(step if plan.steps is None else step % plan.steps)
            seconds = time.perf_counter() - started
            if seconds >= SECONDS:
                return seconds / done
        raise AssertionError

    return run


def require_equal(paths: list[Path]) -> int:
    """Return the number of tokens.

    Raises:
        RuntimeError: the corpora do not hold the same ones.
    """
    fingerprints = {str(headrace.open(path).fingerprint) for path in paths}
    if len(fingerprints) > 1:
        raise RuntimeError(f"wanted the same tokens under every compression, found the fingerprints {fingerprints}")
    return headrace.open(paths[0]).token_count


def measure(corpus: Corpus, rounds: int) -> dict[str, object]:
    """Build, read, print."""
    vocabulary = corpora.gpt2()
    builds = interleave({name: builder(corpus, vocabulary, name) for name in COMPRESSIONS}, rounds=rounds)
    tokens = require_equal([output(name) for name in COMPRESSIONS])
    random = interleave({name: reader(output(name), "random") for name in COMPRESSIONS}, rounds=READ_ROUNDS)
    ordered = interleave({name: reader(output(name), "sequential") for name in COMPRESSIONS}, rounds=READ_ROUNDS)
    rows: dict[str, dict[str, Any]] = {
        name: {
            "build_seconds": summary(builds[name]),
            "build_time_to_none": ratios(builds[name], builds["none"])["median"],
            "bytes_a_token": sum(path.stat().st_size for path in output(name).glob("*.h5")) / tokens,
            "random_seconds_a_batch": summary(random[name]),
            "sequential_seconds_a_batch": summary(ordered[name]),
        }
        for name in COMPRESSIONS
    }
    served = ROWS * (WINDOW + 1) / 1e6
    print_table(
        ("", "build s", "/ none", "B/token", "random M tokens/s", "k windows/s", "in order M tokens/s"),
        [
            (
                name,
                f"{row['build_seconds']['median']:.2f}",
                f"{row['build_time_to_none']:.2f}",
                f"{row['bytes_a_token']:.3f}",
                f"{served / row['random_seconds_a_batch']['median']:.1f}",
                f"{ROWS / row['random_seconds_a_batch']['median'] / 1e3:.1f}",
                f"{served / row['sequential_seconds_a_batch']['median']:.0f}",
            )
            for name, row in rows.items()
        ],
    )
    return {"checks": [], "tokens": tokens, "rows": rows}


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="Compare gzip and zstd with no compression, at build and at read.")
    parser.add_argument("--megabytes", type=int, default=50, help="text, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    save("compression", measure(corpus, options.rounds), corpus=corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
