"""Documents cut when they are written (`--max-document-tokens`) against whole ones that are cut when they are read.

One text, GPT-2 vocabulary, one worker. Builds are whole processes: a cut document is tokenized whole all the same. Read are
the first N text tokens of documents in random order, warm: out of the corpus that was cut at N; out of the whole one, as
many tokens from the document's start; and out of the whole one, the document first and then its front.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpora
import numpy as np
from checks import print_table
from harness import Process, interleave, ratios, save, summary

import headrace
from corpus import OUT, Corpus, collect

LIMITS = (256, 1024, 4096)
"""Text tokens kept of a document."""
DOCUMENTS = 2000
"""Documents read a round."""
READ_ROUNDS = 5


def output(limit: int | None) -> Path:
    """Return the corpus folder of a limit."""
    return OUT / f"truncation-{limit or 'whole'}"


def builder(corpus: Corpus, vocabulary: Path, limit: int | None) -> Callable[[], Process]:
    """Return a contestant: one build."""
    options = ["--tokenizer", vocabulary, *(["--max-document-tokens", str(limit)] if limit else [])]
    return lambda: corpora.build(corpus.file, output(limit), *options)


def readers(limit: int) -> dict[str, Callable[[], float]]:
    """Return the contestants of a limit: seconds a document."""
    cut, whole = headrace.open(output(limit)), headrace.open(output(None))
    numbers = np.random.default_rng(0).integers(0, len(whole.documents), DOCUMENTS).tolist()

    def front(number: int) -> object:
        start, stop = whole.documents.bounds(number)
        return whole.get_slice(start, min(stop, start + limit))

    def timed(read: Callable[[int], object]) -> Callable[[], float]:
        def run() -> float:
            started = time.perf_counter()
            for number in numbers:
                read(number)
            return (time.perf_counter() - started) / DOCUMENTS

        return run

    return {
        "cut at write": timed(lambda number: cut.documents[number]),
        "front of a whole one": timed(front),
        "whole, then cut": timed(lambda number: whole.documents[number][:limit]),
    }


def require_equal(limit: int) -> None:
    """Compare some documents cut at write with whole ones cut at read.

    Raises:
        RuntimeError: one differs.
    """
    with headrace.open(output(limit)) as cut, headrace.open(output(None)) as whole:
        for number in range(0, len(whole.documents), 97):
            if not np.array_equal(cut.documents[number][:-1], whole.documents[number][:-1][:limit]):
                raise RuntimeError(f"document {number} cut at {limit} tokens is not the front of the whole one")


def measure(corpus: Corpus, rounds: int) -> dict[str, object]:
    """Build, read, print."""
    vocabulary = corpora.gpt2()
    names = {"whole": None, **{f"cut at {limit}": limit for limit in LIMITS}}
    builds = interleave(
        {name: builder(corpus, vocabulary, limit) for name, limit in names.items()}, rounds=rounds, warmups=1
    )
    seconds = {name: [run.seconds for run in found] for name, found in builds.items()}
    reads: dict[str, dict[str, Any]] = {}
    for limit in LIMITS:
        require_equal(limit)
        found = interleave(readers(limit), rounds=READ_ROUNDS)
        reads[f"cut at {limit}"] = {name: summary(times) for name, times in found.items()}
    reports: dict[str, Any] = {name: corpora.report(found[0].stdout) for name, found in builds.items()}
    rows: dict[str, dict[str, Any]] = {
        name: {
            "build_seconds": summary(seconds[name]),
            "build_time_to_whole": ratios(seconds[name], seconds["whole"])["median"],
            "tokens": report["tokens"],
            "cut_tokens": report["cut_tokens"],
            "bytes": sum(path.stat().st_size for path in output(names[name]).glob("*.h5")),
            "read_seconds_a_document": reads.get(name),
        }
        for name, report in reports.items()
    }
    print_table(
        ("at write", "build s", "/ whole", "M tokens", "cut", "MB", "M tokens/s", "text MB/s"),
        [
            (
                name,
                f"{row['build_seconds']['median']:.2f}",
                f"{row['build_time_to_whole']:.2f}",
                f"{row['tokens'] / 1e6:.1f}",
                f"{row['cut_tokens'] / (row['tokens'] + row['cut_tokens']):.1%}",
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['tokens'] / 1e6 / row['build_seconds']['median']:.1f}",
                f"{corpus.text_bytes / 1e6 / row['build_seconds']['median']:.0f}",
            )
            for name, row in rows.items()
        ],
    )
    print_table(
        ("reading, k documents/s", *next(iter(reads.values()))),
        [(name, *(f"{1e-3 / times['median']:.0f}" for times in found.values())) for name, found in reads.items()],
    )
    return {"checks": [], "documents": corpus.documents, "rows": rows}


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="Compare documents cut at write with whole ones cut at read.")
    parser.add_argument("--megabytes", type=int, default=50, help="text, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    save("truncation", measure(corpus, options.rounds), corpus=corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
