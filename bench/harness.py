"""What every benchmark shares: interleaved runs, medians, and a record that says where and on what it was measured.

Contestants take turns (A B C, then A B C again, ...), so that a slow minute of the machine falls on all of them, and a
ratio of two is the median of the ratios within each round.
"""

import datetime as dt
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from corpus import Corpus

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "headrace",
    "numpy",
    "h5py",
    "gigatoken",
    "tokenizers",
    "msgspec",
    "zstandard",
    "awkward",
    "hdf5plugin",
    "pylance",
    "torch",
)
LOAD_BEFORE = os.getloadavg()  # a benchmark is load itself: taken when it is imported


@dataclass(frozen=True, slots=True)
class Process:
    """One finished process."""

    seconds: float
    """Wall clock, from before its start until it was waited for."""
    stdout: str


def run_process(command: Sequence[str | Path]) -> Process:
    """Run `command` to its end.

    Raises:
        RuntimeError: it failed; the message ends with its standard error.
    """
    words = [str(word) for word in command]
    started = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return Process(seconds, done.stdout)


def interleave(contestants: Mapping[str, Callable[[], T]], *, rounds: int, warmups: int = 1) -> dict[str, list[T]]:
    """Call every contestant once a round, in turn; return what each returned, by round.

    Args:
        contestants: name to callable; every second round runs them in reverse order.
        rounds: rounds that count.
        warmups: rounds before them that do not.
    """
    results: dict[str, list[T]] = {name: [] for name in contestants}
    for turn in range(-warmups, rounds):
        for name in reversed(list(contestants)) if turn % 2 else contestants:
            result = contestants[name]()
            if turn >= 0:
                results[name].append(result)
    return results


def seconds_per_call(call: Callable[[], object], *, at_least: float = 0.05) -> Callable[[], float]:
    """Return a contestant that times `call`, repeated until `at_least` seconds have passed; seconds a call."""

    def timed() -> float:
        calls = 1
        while True:
            started = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = time.perf_counter() - started
            if seconds >= at_least:
                return seconds / calls
            calls = max(2 * calls, int(calls * at_least / max(seconds, 1e-9)))

    return timed


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """Return median, lowest, highest and count of `values`."""
    return {
        "median": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
        "runs": len(values),
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, float | int]:
    """Return the summary of `above / below`, round by round."""
    return summary([a / b for a, b in zip(above, below, strict=True)])


def environment() -> dict[str, Any]:
    """Return what the numbers depend on beside the code: machine, kernel, Python and packages."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": found,
        "load_average": LOAD_BEFORE,
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def save(name: str, numbers: Mapping[str, object], *, corpus: Corpus | None = None) -> Path:
    """Write one benchmark's record to `results/<name>.json`, replacing the old one atomically.

    Args:
        name: the benchmark.
        numbers: what it measured, with its limits and whether they were met.
        corpus: the text it ran on.
    """
    record = {
        "benchmark": name,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "environment": environment(),
        "corpus": asdict(corpus) if corpus else None,
        **numbers,
    }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    with tempfile.NamedTemporaryFile("w", dir=RESULTS, suffix=".partial", delete=False, encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(target)
    return target
