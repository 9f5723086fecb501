"""What an order costs: numbers of windows, starts of many steps at once, and marks of documents; and how well it mixes.

In memory, without a file: a line of random tokens in documents of 1 to 1,000 tokens, batches of 64 rows of 1,024.

- Numbers: a million windows, or documents, of a corpus of 10^12 tokens, in CPU time of one core.
- Starts: of 1,024 steps in one call, against 1,024 batches of the loader, in which they are contained.
- Marks: a batch with the documents, the places, the mask of boundaries, and all of them, against one without.
- Quality: the circular serial correlation that `tests/sampling/test_serial_correlation.py` describes, as the mean
  resultant length `sqrt(R / n)`: 1 for the identity, 0 for windows that have nothing to do with the next ones but for
  chance, which leaves about 0.01 here.
"""

import argparse
import sys
import time
from collections.abc import Callable
from itertools import count

import numpy as np
from checks import Check, print_checks, print_table, records
from harness import interleave, ratios, save, summary
from numpy.typing import NDArray

from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus

ROWS, WINDOW, STEPS = 64, 1024, 1024
TOKENS = 100_000_000
MILLION = 10**6
MOST_SECONDS = 0.15
MOST_OF_A_BATCH = 0.15
PRIME = 65_537
LAGS, HARMONICS = 32, 4
ORDERS: dict[str, dict[str, object]] = {
    "random": {"order": "random"},
    "blocks": {"order": "blocks"},
    "blocks, phase": {"order": "blocks", "phase": True},
    "blocks, local": {"order": "blocks", "shuffle": "local"},
    "documents": {"order": "documents"},
    "documents, local": {"order": "documents", "shuffle": "local"},
}
MARKS: dict[str, dict[str, object]] = {
    "no marks": {},
    "document_ids": {"document_ids": True},
    "position_ids": {"position_ids": True},
    "boundary_loss": {"boundary_loss": "both"},
    "all": {"document_ids": True, "position_ids": True, "boundary_loss": "both"},
}


def plan(name: str, tokens: int, documents: int, rows: int = ROWS) -> Plan:
    """Return a plan of an order."""
    fields = dict(ORDERS[name])
    if fields["order"] == "documents":
        fields["documents"] = documents
    return Plan(**{"token_count": tokens, "window": WINDOW, "batch_size": rows, "seed": 1, **fields})


def numbers(made: Plan, first: int, steps: int) -> NDArray[np.int64]:
    """Return starts, or documents."""
    return (made.documents_many if made.order == "documents" else made.starts_many)(first, steps)


def million(name: str) -> Callable[[], float]:
    """Return a contestant: CPU seconds for a million windows in the middle of an epoch."""
    made = plan(name, 10**12, 10**9, rows=MILLION)
    steps = count(100)

    def run() -> float:
        step = next(steps)
        began = time.process_time()
        numbers(made, step, 1)
        return time.process_time() - began

    return run


def timed(call: Callable[[int], object], calls: int) -> Callable[[], float]:
    """Return a contestant: seconds of so many calls, each with a number of its own."""
    steps = count()

    def run() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            call(next(steps))
        return time.perf_counter() - began

    return run


def quality(order: NDArray[np.int64]) -> float:
    """Return the largest mean resultant length of the differences of neighbours."""
    lengths = []
    for lag in range(1, LAGS + 1):
        difference = (order[lag:] - order[:-lag]) % PRIME
        turns = [harmonic * difference % PRIME / PRIME for harmonic in range(1, HARMONICS + 1)]
        lengths += [abs(np.exp(2j * np.pi * turn).mean()) for turn in turns]
    return float(max(lengths))


def qualities() -> dict[str, float]:
    """Return the quality of one epoch under several shuffles."""
    base = {"order": "blocks", "token_count": PRIME + 1, "window": 1, "batch_size": PRIME, "seed": 5}
    found = {"identity": quality(np.arange(PRIME))}
    for at_once in (1, 4, 16, 64, 256):
        local = Plan(**base, shuffle="local", piece_windows=16, pieces_at_once=at_once)
        found[f"local, {at_once} pieces at once"] = quality(local.starts(1))
    found["global"] = quality(Plan(**base).starts(1))
    found["numpy's permutation"] = quality(np.random.default_rng(0).permutation(PRIME))
    return found


def corpus() -> MemoryCorpus:
    """Return the line and its documents."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 1001, TOKENS // 500)
    lengths = lengths[np.cumsum(lengths) < TOKENS]
    line = rng.integers(0, 2**16, TOKENS, dtype=np.uint16)
    return MemoryCorpus(line, lengths=np.append(lengths, TOKENS - lengths.sum()))


def measure(rounds: int) -> tuple[list[Check], dict[str, object]]:
    """Let all contestants take turns, and print what they need."""
    line = corpus()
    documents = len(line.documents or ())
    numbered = interleave({name: million(name) for name in ORDERS}, rounds=rounds)
    contestants: dict[str, Callable[[], float]] = {}
    for name in ORDERS:
        made = plan(name, TOKENS, documents)
        contestants[f"starts, {name}"] = timed(lambda n, made=made: numbers(made, n * STEPS, STEPS), 1)
        contestants[f"batches, {name}"] = timed(Loader(line, made).batch, STEPS)
    for name, options in MARKS.items():
        loader = Loader(line, plan("random", TOKENS, documents), **options)
        contestants[f"marks, {name}"] = timed(loader.batch, STEPS)
    seconds = interleave(contestants, rounds=rounds)
    checks = [
        Check(f"orders: CPU seconds of a million, {name}", float(summary(found)["median"]), MOST_SECONDS, "at most")
        for name, found in numbered.items()
    ]
    shares = {name: ratios(seconds[f"starts, {name}"], seconds[f"batches, {name}"]) for name in ORDERS}
    for name in ("random", "blocks"):
        share = float(shares[name]["median"])
        checks.append(Check(f"orders: starts of 1,024 steps / batches, {name}", share, MOST_OF_A_BATCH, "at most"))
    costs = {name: ratios(seconds[f"marks, {name}"], seconds["marks, no marks"]) for name in MARKS}
    mixing = qualities()
    print_table(
        ("order", "ms a million (CPU)", "ms 1,024 steps", "us a batch", "starts / batch"),
        [
            (
                name,
                f"{summary(numbered[name])['median'] * 1e3:.0f}",
                f"{summary(seconds[f'starts, {name}'])['median'] * 1e3:.1f}",
                f"{summary(seconds[f'batches, {name}'])['median'] / STEPS * 1e6:.0f}",
                f"{shares[name]['median']:.2f}",
            )
            for name in ORDERS
        ],
    )
    print_table(("batch", "/ no marks"), [(name, f"{found['median']:.1f}") for name, found in costs.items()])
    print_table(("shuffle", "resultant length"), [(name, f"{found:.4f}") for name, found in mixing.items()])
    print_checks(checks)
    return checks, {
        "checks": records(checks),
        "batch": {"rows": ROWS, "window": WINDOW, "steps_at_once": STEPS},
        "cpu_seconds_a_million": {name: summary(found) for name, found in numbered.items()},
        "seconds_of_1024": {name: summary(found) for name, found in seconds.items()},
        "starts_of_a_batch": shares,
        "marks": costs,
        "quality": mixing,
    }


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="What orders cost, and how well they mix.")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    checks, found = measure(options.rounds)
    save("orders", found)
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
