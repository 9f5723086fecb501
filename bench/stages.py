"""One build in this process with its stages timed: where the time goes that the straight line does not spend.

    python stages.py SOURCE OUTPUT TOKENIZER_FOLDER

Functions of the package are wrapped in timers. Each stage's time is its own, without that of stages called from it, on
the wall clock and of its thread's CPU: on the wall clock a thread also waits, for the interpreter's lock or for a core.
Prints one JSON object. The timers cost a few per cent.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402  the clock starts before the imports
import importlib  # noqa: E402
import json  # noqa: E402
import shutil  # noqa: E402
import threading  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

# Place of a function, and the stage that its time goes to. A class's methods are found by its name.
STAGES = {
    "headrace.building.build:discover": "discover sources",
    "headrace.building.form:load_tokenizer": "load tokenizer: read, parse, identity",
    "headrace.tokenizers.gigatoken:Gigatoken.load": "load tokenizer: gigatoken",
    "headrace.tokenizers.tokenizer_json:JsonTokenizer.load_reference": "load tokenizer: reference",
    "headrace.tokenizers.tokenizer_json:JsonTokenizer.check": "check tokenizer against reference",
    "headrace.building.wanted:read_shard": "read",
    "headrace.sources.jsonl:_find_lines": "find lines",
    "headrace.sources.jsonl:first_invalid_utf8": "check UTF-8",
    "headrace.sources.jsonl:_BlockReader._fast_texts": "parse",
    "headrace.sources.jsonl:_BlockReader._careful_texts": "parse line by line",
    "headrace.building.job:Tally.add": "count",
    "headrace.tokenizers.gigatoken:Gigatoken.encode": "encode",
    "headrace.tokenizers.gigatoken:_anonymous_bytes": "watch gigatoken's cache",
    "headrace.building.encode:DocumentEncoder.encode": "cast and put boundaries",
    "headrace.building.lane:Lane.start": "hand over, wait for the second thread",
    "headrace.building.lane:Lane.drain": "wait for the second thread at the end",
    "headrace.building.source_hashes:SourceHashes.update": "hash sources",
    "headrace.storage.hdf5_writer:HDF5ShardWriter.add_documents": "check and buffer tokens",
    "headrace.storage.hdf5_writer:HDF5ShardWriter._write_tokens": "hash and checksum chunks",
    "headrace.storage.hdf5_layout:Column.append": "HDF5: grow and write columns",
    "headrace.storage.hdf5_rows:DocumentRows.write": "gather document rows",
    "headrace.storage.hdf5_writer:HDF5ShardWriter._flush": "HDF5: attributes and flush",
    "headrace.storage.hdf5_writer:HDF5ShardWriter.close": "close shard, fsync",
    "headrace.building.pipeline:RollingShards.finish": "publish shard, fsync",
    "headrace.building.outflow:checked_layout": "read the shard's layout back",
    "headrace.building.build:prepare": "look at the output folder, lock it",
    "headrace.building.announce:Announcer.opened": "say what is being built",
    "headrace.building.announce:Announcer.progress": "say what is being built",
    "headrace.building.journal:Journal.finish": "record finished sources, fsync",
    "headrace.building.making:publish": "publish corpus, fsync",
}


class Stages:
    """Time by stage and thread."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[float]] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Enter a stage."""
        stack: list[list[float]] = self._local.__dict__.setdefault("stack", [])
        stack.append([time.perf_counter(), time.thread_time(), 0.0, 0.0])

    def end(self, stage: str, calls: int = 1) -> None:
        """Leave it."""
        stack: list[list[float]] = self._local.stack
        wall, cpu, inner_wall, inner_cpu = stack.pop()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        if stack:
            stack[-1][2] += wall
            stack[-1][3] += cpu
        thread = "main" if threading.current_thread() is threading.main_thread() else "second"
        with self._lock:
            row = self.rows.setdefault((stage, thread), [0, 0.0, 0.0])
            row[0] += calls
            row[1] += wall - inner_wall
            row[2] += cpu - inner_cpu

    def timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """Return `function` with a timer around it."""

        def call(*args: object, **kwargs: object) -> Any:
            self.begin()
            try:
                return function(*args, **kwargs)
            finally:
                self.end(stage)

        return call

    def timed_items(self, function: Callable[..., Iterator[Any]], stage: str) -> Callable[..., Iterator[Any]]:
        """Return a generator function with a timer around each of its items."""

        def items(*args: object, **kwargs: object) -> Iterator[Any]:
            source = iter(function(*args, **kwargs))
            while True:
                self.begin()
                try:
                    item = next(source, items)
                finally:
                    self.end(stage)
                if item is items:
                    return
                yield item

        return items

    def install(self) -> list[str]:
        """Wrap the functions of `STAGES`; return the places that hold none: their time goes to the stage around them."""
        missing: list[str] = []
        for place, stage in STAGES.items():
            module, _, path = place.partition(":")
            *classes, name = path.split(".")
            try:
                owner: Any = importlib.import_module(module)
                for each in classes:
                    owner = getattr(owner, each)
                function = getattr(owner, name)
            except (ImportError, AttributeError):
                missing.append(place)
                continue
            wrap = self.timed_items if name == "read_shard" else self.timed
            setattr(owner, name, wrap(function, stage))
        return missing


def main() -> None:
    """Build, and print the stages as JSON."""
    parser = argparse.ArgumentParser(description="Time the stages of one build.")
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path, help="corpus folder; removed first")
    parser.add_argument("tokenizer", type=Path)
    options = parser.parse_args()
    importlib.import_module("headrace.cli.main")
    from headrace.building.build import build

    imported = time.perf_counter()
    imports_cpu = time.process_time()
    stages = Stages()
    missing = stages.install()
    shutil.rmtree(options.output, ignore_errors=True)
    begun = time.perf_counter()
    stages.begin()
    build(options.source, options.output, tokenizer=options.tokenizer, workers=1)
    stages.end("everything else")
    seconds = time.perf_counter() - begun
    rows: list[dict[str, Any]] = [
        {"stage": stage, "thread": thread, "calls": calls, "wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}
        for (stage, thread), (calls, wall, cpu) in stages.rows.items()
    ]
    imports: dict[str, Any] = {"stage": "imports", "thread": "main", "calls": 1}
    imports |= {"wall_ms": (imported - STARTED) * 1e3, "cpu_ms": imports_cpu * 1e3}
    rows = [imports, *sorted(rows, key=lambda row: -row["cpu_ms"])]
    print(json.dumps({"seconds": seconds, "stages": rows, "not_found": missing}))


if __name__ == "__main__":
    main()
