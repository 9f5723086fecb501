"""Builds of JSON Lines, .gz, .zst and Parquet, and with large vocabularies, against the straight line of each.

Both sides read the same files with the same libraries, whole processes, one worker; the ratio is the straight line's time
/ headrace's. At last `headrace tokenizer train` on the plain text: there is nothing that it is measured against.
"""

import argparse
import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import corpora
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from checks import Check, print_checks, print_table, records
from harness import Process, interleave, ratios, run_process, save, summary

from corpus import OUT, Corpus, collect
from headrace.testing.vocabularies import DEEPSEEK, QWEN, QWEN_3_6
from headrace.tokenizers.load import load_tokenizer

JSONL_LIMIT, OTHERS_LIMIT = 0.9, 0.85
HERE = Path(__file__).parent
COPY_BYTES = 1 << 24
VOCAB_SIZE = 32_000


def write_inputs(corpus: Corpus) -> dict[str, Path]:
    """Write the text in every format, unless an earlier run did; returns the files by what they are called."""
    folder = OUT / f"inputs-{corpus.text_bytes}"
    if not folder.exists():
        fresh = folder.with_suffix(".partial")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        with corpus.file.open("rb") as file, gzip.open(fresh / "a.jsonl.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(file, packed, COPY_BYTES)
        with corpus.file.open("rb") as file, (fresh / "a.jsonl.zst").open("wb") as packed:
            zstandard.ZstdCompressor(3).copy_stream(file, packed)
        with corpus.file.open("rb") as file:
            texts = [json.loads(line)["text"] for line in file]
        pq.write_table(pa.table({"text": texts}), fresh / "a.parquet", row_group_size=1000, compression="zstd")
        fresh.rename(folder)
    return {
        "JSON Lines": corpus.file,
        ".gz": folder / "a.jsonl.gz",
        ".zst": folder / "a.jsonl.zst",
        "Parquet": folder / "a.parquet",
    }


def write_vocabularies() -> dict[str, tuple[Path, Path, tuple[str, ...]]]:
    """What headrace builds with, the same for the straight line, and options; by what they are called."""
    found: dict[str, tuple[Path, Path, tuple[str, ...]]] = {}
    for name, vocabulary in (("DeepSeek 129k", DEEPSEEK), ("Qwen 152k", QWEN), ("Qwen 248k", QWEN_3_6)):
        plain = OUT / f"{vocabulary.path().stem}-plain.json"
        plain.write_bytes(load_tokenizer(vocabulary.path())._gigatoken_json())  # noqa: SLF001  # what it encodes with
        found[name] = (vocabulary.path(), plain, ("--boundary", "id:0"))
    return found


def require_equal(name: str, straight: Process, headrace: Process) -> None:
    """Refuse to compare sides that did not do the same work.

    Raises:
        RuntimeError: another number of documents, or of tokens without boundaries.
    """
    line, report = json.loads(straight.stdout), corpora.report(headrace.stdout)
    wanted = (line["documents"], line["tokens"] + line["documents"])
    if (found := (report["documents"], report["tokens"])) != wanted:
        raise RuntimeError(f"{name}: wanted (documents, tokens) {wanted} as the straight line has them, found {found}")


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Compare builds of all formats with the straight line.")
    parser.add_argument("--megabytes", type=int, default=350, help="text to tokenize, in 10**6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    corpora.compile_package()
    corpus = collect(options.megabytes)
    gpt2 = corpora.gpt2()
    inputs = write_inputs(corpus)
    cases = {name: (file, gpt2, gpt2 / "plain.json", ()) for name, file in inputs.items()}
    for name, (ours, plain, more) in write_vocabularies().items():
        cases[name] = (corpus.file, ours, plain, more)

    def sides(file: Path, ours: Path, plain: Path, more: tuple[str, ...]) -> dict[str, Callable[[], Process]]:
        straight = [sys.executable, HERE / "straight_line.py", file, OUT / "straight.bin", plain]
        return {
            "straight line": lambda: run_process(straight),
            "headrace": lambda: corpora.build(file, OUT / "inputs", "--tokenizer", ours, *more),
        }

    checks: list[Check] = []
    rows: list[tuple[str, ...]] = []
    kept: dict[str, object] = {}
    for name, case in cases.items():
        runs = interleave(sides(*case), rounds=options.rounds)
        require_equal(name, runs["straight line"][0], runs["headrace"][0])
        seconds = {side: [run.seconds for run in found] for side, found in runs.items()}
        ratio = ratios(*seconds.values())
        if name in inputs:
            limit = JSONL_LIMIT if name == "JSON Lines" else OTHERS_LIMIT
            checks.append(
                Check(f"{name}: straight line's time / headrace's", float(ratio["median"]), limit, "at least")
            )
        medians = [summary(found)["median"] for found in seconds.values()]
        rate = corpus.text_bytes / 1e6 / medians[1]
        rows.append((name, *(f"{median:.2f}" for median in medians), f"{ratio['median']:.3f}", f"{rate:.1f}"))
        kept[name] = {"ratio": ratio, "seconds": {side: summary(found) for side, found in seconds.items()}}
    train = [sys.executable, "-P", "-m", "headrace", "tokenizer", "train", corpus.file, "-o", OUT / "trained.json"]
    trained = run_process([*train, "--vocab-size", str(VOCAB_SIZE), "--overwrite"])
    print_table((f"{options.megabytes} MB", "straight line s", "headrace s", "ratio", "MB/s of text"), rows)
    print(f"tokenizer train, {VOCAB_SIZE} ids: {corpus.text_bytes / 1e6 / trained.seconds:.1f} MB/s of text")
    print_checks(checks)
    save(
        "inputs",
        {
            "checks": records(checks),
            "cases": kept,
            "train": {"seconds": trained.seconds, "vocab_size": VOCAB_SIZE, "bytes": corpus.text_bytes},
        },
        corpus=corpus,
    )
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
