"""`headrace build --workers 2` on two sources against two straight lines side by side: whole processes, the same text.

The ratio is the straight lines' time / headrace's time, both until the last process has ended with its bytes on disk. Both
sources hold the same text in files of their own. On two cores a worker's second thread finds no idle core, so here all
that a build does beyond the straight line is paid for in full; what all processes of a side spend on the CPU is printed
as well. headrace starts one process more, and its workers start when the inputs are listed and the tokenizer is loaded:
what each side takes for a document each is measured too, and the ratio without it printed, which that of longer builds
comes near to.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import corpora
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, save, summary

from corpus import OUT, Corpus, collect

LIMIT = 0.9
START_ROUNDS = 3
WORKERS = 2
HERE = Path(__file__).parent


class Run(NamedTuple):
    """One side's run."""

    seconds: float
    """Wall clock, from the start of the first process to the end of the last."""
    cpu_seconds: float
    """User and system time of all processes together."""
    outputs: tuple[str, ...]
    """What each process printed."""


def measured(work: Callable[[], tuple[str, ...]]) -> Run:
    """Run `work`, which starts processes and waits for them."""
    before, started = _cpu_of_children(), time.perf_counter()
    outputs = work()
    return Run(time.perf_counter() - started, _cpu_of_children() - before, outputs)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def make_sources(corpus: Corpus) -> Path:
    """Write the text once for each worker, unless an earlier run did; return the folder."""
    folder = OUT / f"halves-{corpus.text_bytes}"
    folder.mkdir(exist_ok=True)
    for number in range(WORKERS):
        path = folder / f"{number}.jsonl"
        if not path.exists() or path.stat().st_size != corpus.bytes:
            shutil.copyfile(corpus.file, path)
    os.sync()
    return folder


def make_starts() -> Path:
    """Write a source of one document for each worker; return the folder."""
    folder = OUT / "starts"
    folder.mkdir(exist_ok=True)
    for number in range(WORKERS):
        (folder / f"{number}.jsonl").write_text('{"text": "One document."}\n', encoding="utf-8")
    return folder


def straight_lines(sources: Path, tokenizer: Path) -> tuple[str, ...]:
    """Run a straight line for each source, all at once.

    Raises:
        RuntimeError: one failed.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, HERE / "straight_line.py", source, OUT / f"straight-{source.stem}.bin", tokenizer],
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sorted(sources.glob("*.jsonl"))
    ]
    outputs = tuple(process.communicate()[0] for process in processes)
    if any(process.returncode for process in processes):
        raise RuntimeError("a straight line failed")
    return outputs


def require_equal(straight: Run, headrace: Run) -> None:
    """Refuse to compare sides that did not do the same work.

    Raises:
        RuntimeError: another number of documents, or of tokens without boundaries.
    """
    lines = [json.loads(output) for output in straight.outputs]
    documents = sum(line["documents"] for line in lines)
    wanted = (documents, sum(line["tokens"] for line in lines) + documents)
    report = corpora.report(headrace.outputs[0])
    if (found := (report["documents"], report["tokens"])) != wanted:
        raise RuntimeError(f"wanted (documents, tokens) {wanted} as the straight lines have them, found {found}")


def main() -> int:
    """Measure, print, save; 1 if the limit is missed."""
    parser = argparse.ArgumentParser(description="Compare two workers with two straight lines.")
    parser.add_argument("--megabytes", type=int, default=350, help="text of each source, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    vocabulary = corpora.gpt2()

    def sides(sources: Path, rounds: int) -> dict[str, list[Run]]:
        def headrace() -> tuple[str, ...]:
            output = OUT / "two-workers"
            return (corpora.build(sources, output, "--tokenizer", vocabulary, workers=WORKERS).stdout,)

        return interleave(
            {
                "straight lines": lambda: measured(lambda: straight_lines(sources, vocabulary / "plain.json")),
                "headrace": lambda: measured(headrace),
            },
            rounds=rounds,
        )

    starts = {
        name: summary([run.seconds for run in found]) for name, found in sides(make_starts(), START_ROUNDS).items()
    }
    runs = sides(make_sources(corpus), options.rounds)
    require_equal(runs["straight lines"][0], runs["headrace"][0])
    seconds = {name: [run.seconds for run in found] for name, found in runs.items()}
    cpu = {name: [run.cpu_seconds for run in found] for name, found in runs.items()}
    ratio = ratios(seconds["straight lines"], seconds["headrace"])
    cpu_ratio = ratios(cpu["straight lines"], cpu["headrace"])
    lasting = ratios(*([each - starts[name]["median"] for each in found] for name, found in seconds.items()))
    check = Check("two workers: straight lines' time / headrace's", float(ratio["median"]), LIMIT, "at least")
    print_table(
        (f"{WORKERS} x {options.megabytes} MB", "median s", "lowest", "highest", "MB/s of text", "CPU s", "start s"),
        [
            (
                name,
                *(f"{summary(found)[key]:.2f}" for key in ("median", "lowest", "highest")),
                f"{WORKERS * corpus.text_bytes / 1e6 / summary(found)['median']:.1f}",
                f"{summary(cpu[name])['median']:.2f}",
                f"{starts[name]['median']:.2f}",
            )
            for name, found in seconds.items()
        ],
    )
    print(
        f"straight lines' time / headrace's without the start: {lasting['median']:.3f}; CPU time: {cpu_ratio['median']:.3f}"
    )
    print_checks([check])
    save(
        "two_workers",
        {
            "checks": records([check]),
            "ratio": ratio,
            "ratio_without_start": lasting,
            "cpu_ratio": cpu_ratio,
            "start_seconds": starts,
            "seconds": {name: summary(found) for name, found in seconds.items()},
            "cpu_seconds": {name: summary(found) for name, found in cpu.items()},
        },
        corpus=corpus,
    )
    return 0 if check.passed else 1


if __name__ == "__main__":
    sys.exit(main())
