"""What a split is asked for: which parts, how large, by which seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import cast

from headrace.errors import PlanError, Problem, SplitError
from headrace.sampling.checks import checked_int

__all__ = ["DEFAULT_REST", "Fractions", "SplitRequest"]

DEFAULT_REST = "train"
_LEAST = Fraction(1, 2**64)
"""What a hash of 64 bits can tell; its first digit is in the decimal place ..."""
_LOWEST = -20
"""... 20."""
Fractions = Mapping[str, str | float | Decimal] | Iterable[tuple[str, str | float | Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """Parts of a corpus."""

    seed: int
    fractions: tuple[tuple[str, str], ...]
    """Name and fraction of each part but the rest, in order; the fraction as a decimal without trailing zeros."""
    rest: str
    """Name of the part that has what the others have not; empty where nothing is left."""

    @classmethod
    def of(cls, fractions: Fractions, *, rest: str | None = None, seed: int = 0) -> "SplitRequest":
        """Check what a caller asks for.

        Args:
            fractions: of each part but the rest, above 0, 1 in all at most; they are taken as the decimals that they are
                written as. In order.
            rest: name of the part that has what the others have not, by default `train`; there is none if they are 1 in all.
            seed: an integer from 0 to 2**63 - 1.

        Raises:
            SplitError: (a ValueError) with every problem.
        """
        pairs = cast(
            "list[tuple[str, object]]", [*(fractions.items() if isinstance(fractions, Mapping) else fractions)]
        )
        problems: list[Problem] = []
        try:
            seed = checked_int("seed", seed, least=0)
        except PlanError as error:
            problems.append(Problem("seed", error.summary.removeprefix("seed ")))
        known = [(name, _decimal(str(value))) for name, value in pairs]
        for (name, value), (_, text) in zip(pairs, known, strict=True):
            if not text:
                problems.append(Problem(name, f"wanted a decimal from 2**-64 to 1, such as 0.001, found {value!r}"))
        total = sum((Fraction(text or 0) for _, text in known), Fraction(0))
        if not pairs:
            problems.append(Problem("fractions", "wanted at least one part, such as val=0.001"))
        elif total > 1:
            problems.append(Problem("fractions", f"are more than 1 in all: {_sum(known)}"))
        elif total == 1 and rest is not None:
            problems.append(Problem("rest", f"nothing is left for {rest!r}: the fractions are 1 in all"))
        left = "" if total >= 1 else DEFAULT_REST if rest is None else rest
        if total < 1 and not left:
            problems.append(Problem("rest", "wanted a name"))
        problems += _name_problems([name for name, _ in known], left)
        if problems:
            raise SplitError("this is no split", problems=problems, usage=True)
        return cls(seed=seed, fractions=tuple(known), rest=left)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all parts, in order, the rest last."""
        return (*(name for name, _ in self.fractions), *([self.rest] if self.rest else []))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Of all parts, exactly."""
        asked = [Fraction(text) for _, text in self.fractions]
        return (*asked, *([1 - sum(asked, Fraction(0))] if self.rest else []))


def _decimal(text: str) -> str:
    """A fraction in digits, without trailing zeros; empty if it is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return ""
    if not number.is_finite() or not _LOWEST <= number.adjusted() <= 0 or not _LEAST <= Fraction(number) <= 1:
        return ""
    digits = format(number, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _sum(known: Iterable[tuple[str, str]]) -> str:
    return " + ".join(text for _, text in known if text)


def _name_problems(names: Sequence[str], rest: str) -> list[Problem]:
    """What is wrong with the names of parts, and of the rest, if there is one."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for name in (*names, *([rest] if rest else [])):
        if not name or name.startswith(".") or "/" in name or not name.isprintable():
            problems.append(Problem(repr(name), "wanted a plain folder name that begins with no dot"))
        elif name.casefold() in seen:  # some file systems make no difference
            again = "is the name of the rest, too: give that another one (--rest)" if name is rest else "is given twice"
            problems.append(Problem(name, again))
        seen.add(name.casefold())
    return problems
