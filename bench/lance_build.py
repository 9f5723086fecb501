"""Builds of Lance corpora against builds of HDF5 ones, and Lance corpora of many fragments.

Whole processes, one worker, the same text, the GPT-2 vocabulary; the ratio is Lance's time / HDF5's. Then corpora of 100,
1,000 and 10,000 shards, a document each: how long `headrace.open` and a first slice take, and an append of one document,
whose commit makes a version of both data sets.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import corpora
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, run_process, save, summary

import headrace
from corpus import OUT, collect

LIMIT = 1.15
FRAGMENTS = (100, 1_000, 10_000)
OPENED = 9
TEXT = '{"text": "document %d of a corpus of many shards"}\n'


def many_sources(count: int) -> Path:
    """Write so many files of a document each, unless an earlier run did; return their folder."""
    folder = OUT / f"sources-{count}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (partial / f"{number:06d}.jsonl").write_text(TEXT % number, encoding="utf-8")
        partial.rename(folder)
    return folder


def of_fragments(count: int, store: str) -> dict[str, float]:
    """Build a corpus of so many shards, open it, append to it: seconds."""
    output, more = OUT / f"fragments-{store}", OUT / "one.jsonl"
    more.write_text(TEXT % count, encoding="utf-8")
    options = ["--tokenizer", "bytes", "--store", store]
    built = corpora.build(many_sources(count), output, *options).seconds
    opened: list[float] = []
    for _ in range(OPENED):
        started = time.perf_counter()
        with headrace.open(output) as corpus:
            corpus.get_slice(0, 8)
        opened.append(time.perf_counter() - started)
    append = [sys.executable, "-P", "-m", "headrace", "build", more, "-o", output, "--append", *options]
    appended = run_process(append).seconds
    shutil.rmtree(output)
    return {"build": built, "open": summary(opened)["median"], "append": appended}


def main() -> int:
    """Measure, print, save; 1 if the limit is missed."""
    parser = argparse.ArgumentParser(description="Compare builds of Lance corpora with builds of HDF5 ones.")
    parser.add_argument("--megabytes", type=int, default=350, help="text to tokenize, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fragments", type=int, nargs="*", default=FRAGMENTS, help="shards of the corpora of many")
    options = parser.parse_args()
    corpora.compile_package()
    corpus, gpt2 = collect(options.megabytes), corpora.gpt2()
    runs = interleave(
        {
            store: lambda store=store: corpora.build(
                corpus.file, OUT / f"build-{store}", "--tokenizer", gpt2, "--store", store
            )
            for store in ("hdf5", "lance")
        },
        rounds=options.rounds,
    )
    seconds = {store: [run.seconds for run in found] for store, found in runs.items()}
    ratio = float(ratios(seconds["lance"], seconds["hdf5"])["median"])
    checks = [Check("a build of a Lance corpus: time / HDF5's", ratio, LIMIT, "at most")]
    print_table(
        (f"{options.megabytes} MB", "median s", "lowest", "highest"),
        [
            (store, *(f"{summary(found)[key]:.2f}" for key in ("median", "lowest", "highest")))
            for store, found in seconds.items()
        ],
    )
    many = {
        f"{count} {store}": of_fragments(count, store) for count in options.fragments for store in ("hdf5", "lance")
    }
    print_table(
        ("shards, store", "build s", "open ms", "append s"),
        [
            (name, f"{found['build']:.2f}", f"{found['open'] * 1e3:.1f}", f"{found['append']:.2f}")
            for name, found in many.items()
        ],
    )
    print_checks(checks)
    save(
        "lance_build",
        {
            "checks": records(checks),
            "seconds": {store: summary(found) for store, found in seconds.items()},
            "of_fragments": many,
        },
        corpus=corpus,
    )
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
