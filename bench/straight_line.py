"""The straight line: the shortest program that turns JSON Lines or Parquet into a checked file of tokens.

Decompress, parse, encode, cast, SHA-256, write, fsync: one process, one thread, one pass, memory of a few blocks, with the
libraries that Headrace uses. It keeps no boundary, no document index, no checks of the input, and it can neither resume nor say what it read: what a build costs
beyond it is the price of those. Run in a fresh process; prints one JSON object with the seconds of every stage.

Documents of a block go to gigatoken as one buffer, split at 0xFF, a byte that UTF-8 never contains.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402  the clock starts before the imports
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gigatoken  # noqa: E402
import msgspec  # noqa: E402
import numpy as np  # noqa: E402
from gigatoken import BytesSource  # noqa: E402

IMPORTED = time.perf_counter()
BLOCK = 1 << 20  # bytes read at once; 0.25 to 4 MiB measure alike
ROWS = 256  # of Parquet
SEPARATOR = b"\xff"


class Document(msgspec.Struct, gc=False):
    """One line of the input."""

    text: str


class Stages:
    """Seconds spent in each stage; one stage runs at a time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, stage: str) -> None:
        """Count the time since the last call for `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def opened(path: Path) -> Any:  # a binary file
    """Open a file for its decompressed bytes."""
    if path.suffix == ".gz":
        from isal import igzip

        return igzip.open(path, "rb")
    if path.suffix == ".zst":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(path.open("rb", buffering=0), closefd=True)
    return path.open("rb", buffering=0)


def blocks(path: Path) -> Iterator[memoryview]:
    """Yield whole lines, about `BLOCK` bytes at a time; each view is valid until the next."""
    buffer = bytearray(BLOCK)
    filled = 0
    with opened(path) as file:
        while count := file.readinto(memoryview(buffer)[filled:]):
            filled += count
            end = buffer.rfind(b"\n", 0, filled) + 1
            if end:
                yield memoryview(buffer)[:end]
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
            elif filled == len(buffer):
                buffer = buffer + bytearray(len(buffer))
    if filled:
        yield memoryview(buffer)[:filled]


def text_batches(path: Path, stages: Stages) -> Iterator[list[bytes]]:
    """Yield the documents, as UTF-8."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(ROWS, columns=["text"], use_threads=False):
            stages.done("read")
            yield [text.encode() for text in batch.column(0).to_pylist()]
        return
    decoder = msgspec.json.Decoder(Document)
    for block in blocks(path):
        stages.done("read")
        lines = decoder.decode_lines(block)
        stages.done("parse")
        yield [line.text.encode() for line in lines]


def run(source: Path, output: Path, tokenizer_json: Path) -> dict[str, object]:
    """Tokenize `source` into `output`, raw little-endian uint16 or uint32; return counts, digest and seconds."""
    stages = Stages()
    tokenizer = gigatoken.Tokenizer.from_json(tokenizer_json.read_bytes())
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    stages.done("load")
    digest = hashlib.sha256()
    documents = tokens = 0
    narrow = np.empty(BLOCK, dtype)
    with output.open("wb", buffering=0) as file:
        for texts in text_batches(source, stages):
            text = SEPARATOR.join(texts)
            stages.done("join")
            layout: Any = tokenizer.encode_batch(BytesSource(text, separator=SEPARATOR), parallel=False).layout
            ids = layout.content.data[layout.offsets.data[0] : layout.offsets.data[-1]]
            stages.done("encode")
            if len(ids) > len(narrow):
                narrow = np.empty(2 * len(ids), dtype)
            np.copyto(narrow[: len(ids)], ids, casting="unsafe")
            data = narrow[: len(ids)].data
            stages.done("cast")
            digest.update(data)
            stages.done("hash")
            file.write(data)
            stages.done("write")
            documents += len(texts)
            tokens += len(ids)
        os.fsync(file.fileno())
        stages.done("fsync")
    return {
        "documents": documents,
        "tokens": tokens,
        "bytes": source.stat().st_size,
        "sha256": digest.hexdigest(),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "seconds": {
            "imports": IMPORTED - STARTED,
            "work": time.perf_counter() - IMPORTED,
            **stages.seconds,
        },
    }


def main() -> None:
    """Run, and print the record as JSON."""
    parser = argparse.ArgumentParser(description="Tokenize documents with nothing but the necessary.")
    parser.add_argument("source", type=Path, help="JSON Lines (.gz, .zst) or Parquet with a field `text`")
    parser.add_argument("output", type=Path, help="raw tokens")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json whose special tokens are taken out")
    options = parser.parse_args()
    print(json.dumps(run(options.source, options.output, options.tokenizer)))


if __name__ == "__main__":
    main()
