"""`headrace build` against the straight line: whole processes, the same JSON Lines, the same GPT-2 vocabulary.

The ratio is straight-line time / headrace time, so 1.0 would mean that the checks, the document index, the checksums,
the crash safety and the manifest cost nothing. Both end with their bytes on disk. One run of each that does not count
comes first, and one build whose stages are timed (`stages.py`) last.
"""

import argparse
import json
import sys
from pathlib import Path

import corpora
from checks import Check, print_checks, print_table, records
from harness import Process, interleave, ratios, run_process, save, summary

from corpus import OUT, collect

LIMIT = 0.8
HERE = Path(__file__).parent


def require_equal(straight: str, events: str) -> None:
    """Refuse to compare programs that did not do the same work.

    Raises:
        RuntimeError: another number of documents, or of tokens without boundaries.
    """
    one, other = json.loads(straight), corpora.report(events)
    wanted = (one["documents"], one["tokens"] + one["documents"])
    if (found := (other["documents"], other["tokens"])) != wanted:
        raise RuntimeError(f"wanted (documents, tokens) {wanted} as the straight line has them, found {found}")


def main() -> int:
    """Measure, print, save; 1 if the limit is missed."""
    parser = argparse.ArgumentParser(description="Compare `headrace build` with the straight line.")
    parser.add_argument("--megabytes", type=int, default=200, help="text to tokenize, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    vocabulary = corpora.gpt2()
    output = OUT / "build"

    def straight() -> Process:
        return run_process(
            [sys.executable, HERE / "straight_line.py", corpus.file, OUT / "straight.bin", vocabulary / "plain.json"]
        )

    def headrace() -> Process:
        return corpora.build(corpus.file, output, "--tokenizer", vocabulary)

    runs = interleave({"straight line": straight, "headrace": headrace}, rounds=options.rounds)
    require_equal(runs["straight line"][0].stdout, runs["headrace"][0].stdout)
    seconds = {name: [run.seconds for run in found] for name, found in runs.items()}
    ratio = ratios(seconds["straight line"], seconds["headrace"])
    check = Check("build: straight-line time / headrace time", float(ratio["median"]), LIMIT, "at least")
    stages = json.loads(run_process([sys.executable, HERE / "stages.py", corpus.file, output, vocabulary]).stdout)

    print_table(
        ("", "median s", "lowest", "highest", "MB/s of text"),
        [
            (name, *(f"{summary(found)[key]:.2f}" for key in ("median", "lowest", "highest")), f"{rate:.1f}")
            for name, found in seconds.items()
            for rate in [corpus.text_bytes / 1e6 / summary(found)["median"]]
        ],
    )
    print_table(
        ("one build's stages, without what they call", "calls", "thread", "wall ms", "cpu ms"),
        [
            (row["stage"], str(row["calls"]), row["thread"], f"{row['wall_ms']:.0f}", f"{row['cpu_ms']:.0f}")
            for row in stages["stages"]
        ],
    )
    for place in stages["not_found"]:
        print(f"not timed, for there is no such function: {place}")
    print_checks([check])
    print(f"straight line's own stages (last run): {json.loads(runs['straight line'][-1].stdout)['seconds']}")
    save(
        "build",
        {
            "checks": records([check]),
            "ratio": ratio,
            "ratios": [a / b for a, b in zip(*seconds.values(), strict=True)],
            "seconds": {name: summary(found) for name, found in seconds.items()},
            "straight_line_stages": json.loads(runs["straight line"][-1].stdout)["seconds"],
            "headrace_stages": stages,
        },
        corpus=corpus,
    )
    return 0 if check.passed else 1


if __name__ == "__main__":
    sys.exit(main())
