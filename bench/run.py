"""Every benchmark, one after another, and one table of all limits. `make bench` runs this.

Each runs in a process of its own and leaves its record in `results/`. Ends with 1 if a limit is missed or a benchmark
fails.
"""

import json
import subprocess
import sys
from pathlib import Path

from checks import Check, print_checks
from harness import LOAD_BEFORE, RESULTS

BENCHMARKS = (
    "build",
    "two_workers",
    "inputs",
    "windows",
    "torch_adapter",
    "cold",
    "orders",
    "startup",
    "compression",
    "chunks",
    "truncation",
    "split",
    "lance_windows",
    "lance_build",
    "train",
)
BUSY = 0.5


def main() -> int:
    """Run all, then print the table; arguments go to no benchmark."""
    if LOAD_BEFORE[0] > BUSY:
        print(f"the load average is {LOAD_BEFORE[0]:.2f}: other programs are running, and the numbers will say so")
    checks: list[Check] = []
    broken: list[str] = []
    for name in BENCHMARKS:
        print(f"\n== {name}", flush=True)
        record = RESULTS / f"{name}.json"
        before = record.stat().st_mtime_ns if record.exists() else 0
        subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")], check=False)
        if not record.exists() or record.stat().st_mtime_ns == before:
            broken.append(name)
            continue
        rows = json.loads(record.read_text(encoding="utf-8"))["checks"]
        checks += [Check(row["what"], row["measured"], row["limit"], row["sense"]) for row in rows]
    print("\n== all")
    if checks:
        print_checks(checks)
    for name in broken:
        print(f"{name}: ended without a record")
    return 1 if broken or not all(check.passed for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
