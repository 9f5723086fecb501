"""Turn whatever integer a caller passes into a Python int, or say what was wanted."""

import operator
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import PlanError

__all__ = ["POSITION_LIMIT", "checked_int", "checked_numbers", "checked_run", "is_bool", "nearest_divisors"]

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


def checked_run(name: str, numbers: object, *, below: int = POSITION_LIMIT) -> range:
    """Return `numbers`, a range without gaps within `[0, below)` that is not empty.

    Args:
        name: the argument's name, for the message.
        numbers: a `range`; a pair of bounds is none, for nothing says whether its end belongs to it.
        below: exclusive upper bound.

    Raises:
        PlanError: it is no such range.
    """
    if isinstance(numbers, range) and numbers.step == 1 and 0 <= numbers.start < numbers.stop <= below:
        return numbers
    raise PlanError(f"{name}: wanted a range without gaps within [0, {below}), not empty; found {numbers!r}")


def checked_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return integers as int64, shape as given; an empty list, too.

    Args:
        name: the argument's name, for the message.
        values: an array or a list of them.

    Raises:
        PlanError: they are no integers; nothing is rounded.
    """
    given: NDArray[Any] = np.asarray(values)
    if given.size and given.dtype.kind not in "iu":
        raise PlanError(f"{name}: wanted an array of integers, found {given.dtype} {given.shape}")
    return given.astype(np.int64)


def is_bool(value: object) -> bool:
    """Whether it is True or False, Python's or numpy's: the strings "no" and "False" would count as true."""
    return isinstance(value, bool | np.bool_)


def nearest_divisors(number: int, wanted: int) -> str:
    """Return the divisor of `number` nearest to `wanted`, or both where two are equally near."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    divisors = sorted({*small, *(number // d for d in small)})
    gap = min(abs(d - wanted) for d in divisors)
    return " or ".join(str(d) for d in divisors if abs(d - wanted) == gap)
