"""`headrace split` against a plain copy of the corpus, both until all is on disk.

One corpus (GPT-2 vocabulary, several shards), split into 0.001 and the rest, and into halves. A split reads, verifies and writes
every token, as the copy does, and also hashes each document and each new shard; the bytes of the parts are compared between
workers.
"""

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpora
from checks import print_table
from harness import Process, interleave, ratios, run_process, save, summary

from corpus import OUT, Corpus, collect

SOURCE, COPY, PARTS = OUT / "split-source", OUT / "split-copy", OUT / "split-parts"
SHARD_TOKENS = 8_000_000


def copier() -> Process:
    """Copy the corpus, and wait for the disk."""
    shutil.rmtree(COPY, ignore_errors=True)
    return run_process(["sh", "-c", f"cp -r '{SOURCE}' '{COPY}' && find '{COPY}' -type f -exec sync {{}} +"])


def splitter(fraction: str, workers: int) -> Callable[[], Process]:
    """Return a contestant: one split, a whole process."""
    output = PARTS / f"{fraction}-{workers}"
    options = ["--fraction", f"val={fraction}", "--workers", str(workers), "--json"]

    def run() -> Process:
        shutil.rmtree(output, ignore_errors=True)
        return run_process([sys.executable, "-P", "-m", "headrace", "split", SOURCE, "-o", output, *options])

    return run


def digest(folder: Path) -> str:
    """Return a hash of all shards and indexes of some parts."""
    whole = hashlib.sha256()
    for path in sorted([*folder.glob("*/*.h5"), *folder.glob("*/shards.json")]):
        whole.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return whole.hexdigest()


def measure(corpus: Corpus, rounds: int) -> dict[str, object]:
    """Build, copy, split, print.

    Raises:
        RuntimeError: the number of workers changed a byte.
    """
    corpora.build(corpus.file, SOURCE, "--tokenizer", corpora.gpt2(), "--shard-tokens", str(SHARD_TOKENS))
    size = sum(path.stat().st_size for path in SOURCE.glob("*.h5"))
    names = {
        f"{fraction}, {workers} worker{'s' * (workers > 1)}": (fraction, workers)
        for fraction in ("0.001", "0.5")
        for workers in (1, 2)
    }
    found = interleave({"copy": copier, **{name: splitter(*case) for name, case in names.items()}}, rounds=rounds)
    for fraction in ("0.001", "0.5"):
        if digest(PARTS / f"{fraction}-1") != digest(PARTS / f"{fraction}-2"):
            raise RuntimeError(f"two workers split by {fraction} otherwise than one")
    seconds = {name: [run.seconds for run in runs] for name, runs in found.items()}
    rows: dict[str, dict[str, Any]] = {
        name: {"seconds": summary(times), "copy_time_to_this": ratios(seconds["copy"], times)["median"]}
        for name, times in seconds.items()
    }
    print_table(
        ("whole process", "s", "copy / this", "MB/s"),
        [
            (
                name,
                f"{row['seconds']['median']:.2f}",
                f"{row['copy_time_to_this']:.2f}",
                f"{size / 1e6 / row['seconds']['median']:.0f}",
            )
            for name, row in rows.items()
        ],
    )
    return {"checks": [], "documents": corpus.documents, "bytes": size, "rows": rows}


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="Compare a split with a plain copy of the corpus.")
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    save("split", measure(corpus, options.rounds), corpus=corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
