"""Samples that are left out of an order: the later ones move up."""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int

__all__ = ["Skips"]

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Skips:
    """Ranges of the order's own sample numbers that are not served.

    What is served is numbered without gaps: `to_order` gives the order's number of a served sample, `from_order` the
    way back.
    """

    ranges: Ranges
    """First sample and the one after the last of each range; ascending, none touches the next."""

    @classmethod
    def of(cls, value: object) -> "Skips":
        """Check what a caller gives; touching and overlapping ranges become one.

        Raises:
            PlanError: no pairs of integers, or an empty range.
        """
        ranges: list[tuple[int, int]] = []
        try:
            pairs = [(first, stop) for first, stop in cast("tuple[tuple[object, object], ...]", value)]
        except (TypeError, ValueError) as error:
            raise PlanError(f"skipped: wanted pairs (first sample, sample after the last), found {value!r}") from error
        for first, stop in sorted(
            (checked_int("skipped", first, least=0), checked_int("skipped", stop, least=1)) for first, stop in pairs
        ):
            if stop <= first:
                raise PlanError(f"skipped: the range of samples [{first}, {stop}) is empty")
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(stop, ranges[-1][1])
            else:
                ranges.append((first, stop))
        return cls(tuple(ranges))

    @property
    def count(self) -> int:
        """How many samples are left out."""
        return sum(stop - first for first, stop in self.ranges)

    def to_order(self, sample: int) -> int:
        """Return the order's number of one served sample."""
        for first, stop in self.ranges:
            if sample < first:
                break
            sample += stop - first
        return sample

    def to_order_many(self, samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the order's numbers of served samples, shape as given."""
        if not self.ranges:
            return samples
        first, lengths = self._arrays
        # Where each range begins among the served samples: without what was left out before it.
        return samples + lengths[np.searchsorted(first - lengths[:-1], samples, side="right")]

    def from_order_many(self, numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Return which of the order's samples are served, and the served number of each that is (else nonsense)."""
        if not self.ranges:
            return numbers, np.ones(numbers.shape, np.bool_)
        first, lengths = self._arrays
        before = np.searchsorted(first, numbers, side="right")
        stops = np.array([0, *(stop for _, stop in self.ranges)], np.uint64)
        return numbers - lengths[before], numbers >= stops[before]

    def below(self, limit: int) -> Ranges:
        """Return what is left out of the order's samples `[0, limit)`."""
        return tuple((first, min(stop, limit)) for first, stop in self.ranges if first < limit)

    def add(self, first: int, stop: int) -> "Skips":
        """Leave out the served samples `[first, stop)`, at least one, too."""
        # All between the two that is not served was left out before.
        return Skips.of((*self.ranges, (self.to_order(first), self.to_order(stop - 1) + 1)))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """First sample of each range, and how many are left out before it, all of them last."""
        sums = [0]
        for first, stop in self.ranges:
            sums.append(sums[-1] + stop - first)
        if sums[-1] >= POSITION_LIMIT:
            raise PlanError(f"skipped: {sums[-1]} samples are left out; wanted fewer than 2**63")
        return np.array([first for first, _ in self.ranges], np.uint64), np.array(sums, np.uint64)
