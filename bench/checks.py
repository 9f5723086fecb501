"""What a benchmark measured against a limit, and the table of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One measured number and its limit."""

    what: str
    measured: float
    limit: float
    """Inclusive."""
    sense: Literal["at least", "at most"]

    @property
    def passed(self) -> bool:
        """Whether the limit is kept."""
        return self.measured >= self.limit if self.sense == "at least" else self.measured <= self.limit


def records(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the checks as they are stored: their fields and `passed`."""
    return [{**asdict(check), "passed": check.passed} for check in checks]


def print_checks(checks: Sequence[Check]) -> None:
    """Print one line a check: measured, limit, PASS or FAIL."""
    width = max(len(check.what) for check in checks)
    print(f"\n{'':<{width}}  measured       limit")
    for check in checks:
        verdict = "PASS" if check.passed else "FAIL"
        print(f"{check.what:<{width}}  {check.measured:8.3f}  {check.sense:>8} {check.limit:<6g} {verdict}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a head: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    print()
    for row in (head, *rows):
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
