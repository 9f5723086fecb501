"""From the start of a process to its first batch, against `python -c 'import numpy'`.

The process imports headrace, opens a corpus and takes batch 0 of a random plan: of a million tokens, of 10**12, and of
10**12 in 10,000 shards, which are sparse files of zeros with everything around them that a real corpus has. Of the last
one, another process loads the state of step 10**9 of shuffled blocks, and takes the batch there. What is imported on the
way, and what it costs, is listed from `python -X importtime`.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from checks import Check, print_checks, print_table, records
from corpora import compile_package
from harness import interleave, ratios, run_process, save, summary

import headrace
from corpus import OUT
from headrace.testing.sparse import sparse_corpus

SIZES: dict[str, tuple[int, int | None]] = {
    "10**6 tokens": (10**6, None),
    "10**12 tokens": (10**12, None),
    "10,000 shards": (10**12, 10_000),
}
RESUMED_STEP = 10**9
FIRST_BATCH_LIMIT = 2.0
MANY_SHARDS_LIMIT = 2.5
IMPORT_LIMIT = 1.3
LISTED = 12
FIRST_BATCH = """
import sys, headrace
corpus = headrace.open(sys.argv[1])
plan = headrace.Plan(order="random", token_count=corpus.token_count, window=1024, batch_size=64)
headrace.Loader(corpus, plan).batch(0)
"""
RESUME = """
import json, sys, headrace
corpus = headrace.open(sys.argv[1])
plan = headrace.Plan(order="blocks", token_count=corpus.token_count, window=1024, batch_size=64)
loader = headrace.Loader(corpus, plan)
loader.load_state_dict(json.loads(sys.argv[2]))
next(iter(loader))
"""


class Import(NamedTuple):
    """One line of `-X importtime`."""

    name: str
    own_us: int
    """Without what it imports in its turn."""
    total_us: int


def sparse_corpora(folder: Path) -> dict[str, Path]:
    """Make the sparse corpora that are not there yet; return them by a name of their size."""
    found: dict[str, Path] = {}
    for name, (tokens, shards) in SIZES.items():
        path = folder / f"sparse-{tokens}{'' if shards is None else f'-{shards}'}"
        if not (path / "shards.json").exists():
            sparse_corpus(path, tokens, shards=shards)
        found[name] = path
    return found


def far_state(path: Path) -> str:
    """Return the state of a loader that has taken many steps, as JSON."""
    with headrace.open(path) as corpus:
        plan = headrace.Plan(order="blocks", token_count=corpus.token_count, window=1024, batch_size=64)
        loader = headrace.Loader(corpus, plan)
        loader.step = RESUMED_STEP
        return json.dumps(loader.state_dict())


def imports(path: Path) -> list[Import]:
    """List what a process imports until its first batch, in order."""
    command = [sys.executable, "-X", "importtime", "-c", FIRST_BATCH, str(path)]
    stderr = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"^import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)$", stderr, re.MULTILINE)
    return [Import(name, int(own), int(total)) for own, total, name in lines]


def limit_of(name: str) -> float:
    """Return how many times numpy's import a contestant may take."""
    if name == "import headrace":
        return IMPORT_LIMIT
    return MANY_SHARDS_LIMIT if "shards" in name else FIRST_BATCH_LIMIT


def by_package(found: list[Import]) -> dict[str, dict[str, int]]:
    """Sum own times by top-level package."""
    sums: dict[str, dict[str, int]] = {}
    for each in found:
        package = sums.setdefault(each.name.partition(".")[0], {"modules": 0, "own_us": 0})
        package["modules"] += 1
        package["own_us"] += each.own_us
    return dict(sorted(sums.items(), key=lambda item: -item[1]["own_us"]))


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Compare the way to the first batch with `import numpy`.")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    compile_package()
    paths = sparse_corpora(OUT)

    state = far_state(paths["10,000 shards"])

    def seconds(code: str, *arguments: Path | str) -> float:
        return run_process([sys.executable, "-c", code, *arguments]).seconds

    contestants = {
        "import numpy": lambda: seconds("import numpy"),
        "import headrace": lambda: seconds("import headrace"),
        **{f"first batch, {name}": lambda path=path: seconds(FIRST_BATCH, path) for name, path in paths.items()},
        "resume, 10,000 shards": lambda: seconds(RESUME, paths["10,000 shards"], state),
    }
    found = interleave(contestants, rounds=options.rounds)
    checks = [
        Check(
            f"startup: {name} / import numpy",
            float(ratios(times, found["import numpy"])["median"]),
            limit_of(name),
            "at most",
        )
        for name, times in found.items()
        if name != "import numpy"
    ]
    listed = imports(next(iter(paths.values())))
    packages = by_package(listed)
    print_table(
        ("process", "median ms", "lowest", "highest"),
        [
            (name, *(f"{summary(times)[key] * 1e3:.0f}" for key in ("median", "lowest", "highest")))
            for name, times in found.items()
        ],
    )
    print_table(
        ("imported until the first batch", "modules", "own ms"),
        [(name, str(sums["modules"]), f"{sums['own_us'] / 1e3:.1f}") for name, sums in list(packages.items())[:LISTED]],
    )
    print_checks(checks)
    save(
        "startup",
        {
            "checks": records(checks),
            "seconds": {name: summary(times) for name, times in found.items()},
            "imports_by_package": packages,
            "slowest_imports": [each._asdict() for each in sorted(listed, key=lambda each: -each.own_us)[: 2 * LISTED]],
        },
    )
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
