"""Turn whatever integer a caller passes into a Python int, or say what was wanted."""

import operator
from math import isqrt

from headrace.errors import PlanError

__all__ = ["POSITION_LIMIT", "checked_int", "nearest_divisors"]

POSITION_LIMIT = 2**63
"""Exclusive bound of token positions, counts and sample numbers: they are stored as int64."""


def checked_int(name: str, value: object, *, least: int, below: int | None = POSITION_LIMIT) -> int:
    """Return `value` as a Python int, so that no later product depends on the caller's integer width.

    Args:
        name: the argument's name, for the message.
        value: a Python or numpy integer; a bool is refused, for it is a mistake wherever a count is wanted.
        least: smallest value allowed, inclusive.
        below: exclusive upper bound; None for none.

    Raises:
        PlanError: `value` is no integer, or outside `[least, below)`.
    """
    if isinstance(value, bool):
        raise PlanError(f"{name} must be an integer, found the bool {value}")
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]  # any object: the TypeError is the check
    except TypeError as error:
        raise PlanError(f"{name} must be an integer, found {value!r} ({type(value).__name__})") from error
    if number < least:
        raise PlanError(f"{name} must be at least {least}, found {number}")
    if below is not None and number >= below:
        raise PlanError(f"{name} must be below {below}, found {number}")
    return number


def nearest_divisors(number: int, wanted: int) -> str:
    """Return the divisor of `number` nearest to `wanted`, or both where two are equally near."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    divisors = sorted({*small, *(number // d for d in small)})
    gap = min(abs(d - wanted) for d in divisors)
    return " or ".join(str(d) for d in divisors if abs(d - wanted) == gap)
