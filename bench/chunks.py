"""Chunks of half a window, one, two and sixty-four, through the map, h5py, gzip and zstd, warm and cold.

Random windows of 1,025 GPT-2 tokens, 64 a batch, out of one HDF5 file for each chunk size and compression:

- map: `headrace.Loader` on the uncompressed file.
- h5py: the same windows of the same file through `h5py.File(path, "r", swmr=True)`, slice by slice, with h5py's own chunk
  cache as it is by default.
- gzip, zstd: `headrace.Loader` on the compressed file, which decodes whole chunks and keeps the last 16 MiB of them.

Warm: the file lies in the page cache, the windows are new ones. Cold: the file is taken out of the page cache first
(checked with mincore), and the same windows are read once more after the first pass, so that what the page cache and
the caches of chunks keep shows. Opening is in no time. A disk that is itself a file of a host may have a cache behind it, which
the rate from the disk shows.

The files hold the text's tokens over and over, so many that a block of the loader's steps does not cover them. Each is
written in one call, which gives the layout that the writer gives, and much sooner; they are kept in `out/` for the next
run. What small chunks cost the writer is measured apart, on fewer tokens.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import corpora
import h5py
import numpy as np
import pagecache
from checks import print_table
from harness import interleave, run_process, save, summary
from numpy.typing import NDArray

import headrace
from corpus import OUT, Corpus, collect
from headrace.storage.compression import parse_compression
from headrace.storage.hdf5_layout import create_file

ROWS, WINDOW = 64, 1024
READ = WINDOW + 1
CHUNKS = {512: "half a window", 1024: "a window", 2048: "two windows", 65536: "64 windows"}
COMPRESSIONS = ("none", "gzip:4", "zstd:3")
COLD_BATCHES = 8
WARM_SECONDS = 0.12
"""Time given to a warm reader a round."""
WRITTEN = 2_000_000
"""Tokens that the writer is timed on."""
DOCUMENT = 1_000
"""Tokens of a document there."""

Reader = Callable[[int], NDArray[Any]]
"""Serves the batch of a step, int64 (ROWS, READ)."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the same few windows."""

    seconds: float
    disk_bytes: int
    resident_before: float
    """Share of the file in the page cache before it, and ..."""
    resident_after: float
    """... after it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read one file."""

    name: str
    chunk: int
    path: Path
    open: Callable[[Path], Reader]


def make_file(path: Path, chunk: int, compression: str) -> None:
    """Write the tokens of `tokens.bin` beside it into a file laid out as a shard is."""
    data = np.fromfile(path.with_name("tokens.bin"), np.uint16)
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with create_file(partial) as file:
        options = parse_compression(compression).dataset_options()
        file.create_dataset("tokens", data.shape, data.dtype, maxshape=(None,), chunks=(chunk,), **options)[...] = data
    partial.replace(path)


def make_tokens(corpus: Corpus, path: Path, tokens: int) -> None:
    """Write `tokens` ids: those of the text, over and over."""
    straight = Path(__file__).with_name("straight_line.py")
    once = path.with_suffix(".once")
    run_process([sys.executable, straight, corpus.file, once, corpora.gpt2() / "plain.json"])
    np.resize(np.fromfile(once, np.uint16), tokens).tofile(path)
    once.unlink()


def make_files(corpus: Corpus, folder: Path, tokens: int) -> dict[tuple[int, str], Path]:
    """Make the file of each chunk size and compression, two at a time, unless an earlier run did."""
    wanted = {
        (chunk, name): folder / f"{chunk}-{name.replace(':', '')}.h5"
        for name in reversed(COMPRESSIONS)  # the slow ones first
        for chunk in CHUNKS
    }

    def make(item: tuple[tuple[int, str], Path]) -> None:
        (chunk, name), path = item
        run_process([sys.executable, __file__, "--make", path, "--chunk", str(chunk), "--compression", name])

    missing = {kind: path for kind, path in wanted.items() if not path.exists()}
    if missing or not (folder / "tokens.bin").exists():
        make_tokens(corpus, folder / "tokens.bin", tokens)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, missing.items()))
    return wanted


def plan_of(tokens: int) -> headrace.Plan:
    """Return the order in which every reader reads."""
    return headrace.Plan(order="random", token_count=tokens, window=WINDOW, batch_size=ROWS, seed=3)


def through_loader(path: Path) -> Reader:
    """Read as a trainer does."""
    corpus = headrace.open(path)
    loader = headrace.Loader(corpus, plan_of(corpus.token_count))

    def batch(step: int) -> NDArray[np.int64]:
        tokens = loader.batch(step).input_ids.base
        assert tokens is not None
        return tokens

    return batch


def through_h5py(path: Path) -> Reader:
    """Read slice by slice, with h5py alone."""
    data: Any = h5py.File(path, "r", swmr=True, locking=False)["tokens"]
    plan = plan_of(len(data))

    def batch(step: int) -> NDArray[np.int64]:
        return np.stack([data[start : start + READ].astype(np.int64) for start in plan.starts(step).tolist()])

    return batch


def all_ways(files: dict[tuple[int, str], Path]) -> list[Way]:
    """List what is compared: by chunk size, then by way."""
    return [
        Way(name, chunk, files[chunk, compression], reader)
        for chunk in CHUNKS
        for name, compression, reader in (
            ("map", "none", through_loader),
            ("h5py", "none", through_h5py),
            *((compression, compression, through_loader) for compression in COMPRESSIONS[1:]),
        )
    ]


def require_equal(ways: list[Way]) -> None:
    """Compare what all ways serve.

    Raises:
        RuntimeError: a batch differs.
    """
    first = ways[0].open(ways[0].path)(7)
    for way in ways:
        if not np.array_equal(way.open(way.path)(7), first):
            raise RuntimeError(f"{way.path.name} through {way.name}: other tokens than through {ways[0].name}")


def cold(way: Way) -> tuple[Pass, Pass]:
    """Read a few batches out of a file that is on disk alone, then the same ones again."""
    read = way.open(way.path)
    pagecache.drop(way.path)

    def once() -> Pass:
        resident = pagecache.resident(way.path)
        before, started = pagecache.disk_bytes(), time.perf_counter()
        for step in range(COLD_BATCHES):
            read(step)
        seconds = time.perf_counter() - started
        return Pass(seconds, pagecache.disk_bytes() - before, resident, pagecache.resident(way.path))

    return once(), once()


def warm(way: Way) -> Callable[[], float]:
    """Return a contestant: seconds a batch of new windows, out of a file that lies in the page cache."""
    pagecache.load(way.path)
    read, steps = way.open(way.path), count(COLD_BATCHES)

    def run() -> float:
        started = time.perf_counter()
        for done in count(1):
            read(next(steps))
            seconds = time.perf_counter() - started
            if seconds >= WARM_SECONDS:
                return seconds / done
        raise AssertionError

    return run


def write_seconds(tokens: NDArray[np.uint16], path: Path, chunk: int, compression: str) -> float:
    """Return the seconds that the writer takes for `WRITTEN` tokens, on disk."""
    ends = np.arange(DOCUMENT, WRITTEN + 1, DOCUMENT)
    path.unlink(missing_ok=True)
    started = time.perf_counter()
    with headrace.HDF5ShardWriter(path, chunk, compression=compression) as writer:
        writer.add_documents(tokens, ends)
    return time.perf_counter() - started


def default_cache(path: Path) -> int:
    """Return the bytes of a data set's chunk cache as h5py opens it by default."""
    with h5py.File(path, "r", swmr=True, locking=False) as file:
        data: Any = file["tokens"]
        return int(data.id.get_access_plist().get_chunk_cache()[1])


def rows_of(
    ways: list[Way],
    passes: dict[str, list[tuple[Pass, Pass]]],
    warm_seconds: dict[str, list[float]],
    written: dict[str, float],
) -> list[dict[str, Any]]:
    """Put together what was measured of each way; medians."""
    rows: list[dict[str, Any]] = []
    served = COLD_BATCHES * ROWS
    for way in ways:
        first = [one for one, _ in passes[key(way)]]
        second = [two for _, two in passes[key(way)]]
        disk = float(np.median([one.disk_bytes for one in first]))
        tokens = headrace.open(way.path).token_count
        row = {
            "chunk_tokens": way.chunk,
            "way": way.name,
            "bytes_a_token": way.path.stat().st_size / tokens,
            "write_tokens_a_second": WRITTEN / written[way.path.name],
            "warm_windows_a_second": ROWS / summary(warm_seconds[key(way)])["median"],
            "cold_windows_a_second": served / float(np.median([one.seconds for one in first])),
            "disk_mb_a_second": float(np.median([one.disk_bytes / 1e6 / one.seconds for one in first])),
            "disk_bytes_a_served_byte": disk / (served * READ * 2),
            "resident_before_first": max(one.resident_before for one in first),
            "resident_after_first": float(np.median([one.resident_after for one in first])),
            "second_windows_a_second": served / float(np.median([two.seconds for two in second])),
            "second_disk_bytes": max(two.disk_bytes for two in second),
        }
        rows.append(row)
    return rows


def key(way: Way) -> str:
    """Return the name of a contestant."""
    return f"{way.chunk} {way.name}"


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    head = (
        "chunk, way",
        "B/token",
        "write M/s",
        "warm k/s",
        "cold k/s",
        "disk MB/s",
        "disk/served",
        "resident",
        "again",
    )
    print_table(
        head,
        [
            (
                f"{CHUNKS[row['chunk_tokens']]}, {row['way']}",
                f"{row['bytes_a_token']:.3f}",
                f"{row['write_tokens_a_second'] / 1e6:.1f}",
                f"{row['warm_windows_a_second'] / 1e3:.1f}",
                f"{row['cold_windows_a_second'] / 1e3:.2f}",
                f"{row['disk_mb_a_second']:.0f}",
                f"{row['disk_bytes_a_served_byte']:.1f}",
                f"{row['resident_after_first']:.1%}",
                f"{row['second_windows_a_second'] / 1e3:.1f}",
            )
            for row in rows
        ],
    )
    print(
        "write: M tokens/s of HDF5ShardWriter alone; warm, cold, again: k windows/s, new ones, the first pass over "
        f"{COLD_BATCHES * ROWS}\nafter dropping the page cache, and the second; disk/served: bytes read from the disk a "
        "token byte served; resident:\nshare of the file in the page cache after the first pass"
    )


def measure(corpus: Corpus, tokens: int, rounds: int) -> dict[str, object]:
    """Make the files, measure all ways."""
    folder = OUT / f"chunks-{corpus.text_bytes}-{tokens}"
    folder.mkdir(parents=True, exist_ok=True)
    files = make_files(corpus, folder, tokens)
    ways = all_ways(files)
    require_equal(ways)
    some = np.fromfile(folder / "tokens.bin", np.uint16, WRITTEN)
    written = {
        path.name: write_seconds(some, folder / "written.h5", chunk, name) for (chunk, name), path in files.items()
    }
    passes = interleave({key(way): partial(cold, way) for way in ways}, rounds=rounds, warmups=0)
    warm_seconds = interleave({key(way): warm(way) for way in ways}, rounds=rounds)
    rows = rows_of(ways, passes, warm_seconds, written)
    print_rows(rows)
    cache = default_cache(files[1024, "none"])
    print(
        f"in the page cache before the first pass: at most {max(row['resident_before_first'] for row in rows):.2%} of a file; "
        f"read from the disk in the second: at most {max(row['second_disk_bytes'] for row in rows) / 1e6:.2f} MB"
    )
    print(f"h5py's chunk cache by default: {cache / 2**20:.0f} MiB a data set (HDF5 {h5py.version.hdf5_version})")
    return {"checks": [], "tokens": tokens, "h5py_chunk_cache_bytes": cache, "rows": rows}


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="Compare chunk sizes through the map, h5py, gzip and zstd.")
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes")
    parser.add_argument("--megatokens", type=int, default=150, help="tokens of a file, in 10**6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", type=Path, help="only write this file, from tokens.bin beside it")
    parser.add_argument("--chunk", type=int, default=65536)
    parser.add_argument("--compression", default="none")
    options = parser.parse_args()
    if options.make:
        make_file(options.make, options.chunk, options.compression)
        return 0
    corpus = collect(options.megabytes)
    save("chunks", measure(corpus, options.megatokens * 1_000_000, options.rounds), corpus=corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
