"""How many rows each step has, and so which samples: a batch size, or several with the step from which each counts."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int

__all__ = ["BatchSchedule", "BatchSize"]

BatchSize = int | Sequence[tuple[int, int]]
"""Rows of every batch, or pairs of a step and the rows of the batches from it on."""


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """Segments of steps of one batch size; look-ups cost the logarithm of their number."""

    steps: tuple[int, ...]
    """First step of each segment, from 0, ascending."""
    sizes: tuple[int, ...]
    """Rows of its steps; neighbours differ."""
    samples: tuple[int, ...]
    """Its first sample."""

    @classmethod
    def of(cls, value: BatchSize) -> "BatchSchedule":
        """Make a schedule of what a caller gives.

        Raises:
            PlanError: a number is none or out of range, or the steps do not ascend from 0.
        """
        steps: list[int] = []
        sizes: list[int] = []
        samples: list[int] = []
        for from_step, size in _pairs(value):
            if from_step <= steps[-1] if sizes else from_step:
                raise PlanError(
                    "batch_size: the steps of a schedule ascend from 0, as in [(0, 256), (5000, 512)]; "
                    f"found step {from_step} {f'after {steps[-1]}' if sizes else 'first'}"
                )
            if sizes and size == sizes[-1]:
                continue
            first = samples[-1] + (from_step - steps[-1]) * sizes[-1] if sizes else 0
            if first >= POSITION_LIMIT:
                raise PlanError(f"batch_size: step {from_step} begins at sample {first}; wanted one below 2**63")
            steps.append(from_step)
            sizes.append(size)
            samples.append(first)
        if not sizes:
            raise PlanError("batch_size: the schedule is empty; wanted at least the pair (0, rows)")
        return cls(tuple(steps), tuple(sizes), tuple(samples))

    @property
    def value(self) -> int | tuple[tuple[int, int], ...]:
        """The shortest value that it can be made of."""
        return self.sizes[0] if len(self.sizes) == 1 else tuple(zip(self.steps, self.sizes, strict=True))

    def segment(self, step: int) -> int:
        """Return the number of the segment that a step lies in."""
        return bisect_right(self.steps, step) - 1

    def segment_stop(self, segment: int) -> int | None:
        """Return the step after a segment's last; None for the last segment."""
        return self.steps[segment + 1] if segment + 1 < len(self.steps) else None

    def size(self, step: int) -> int:
        """Return the rows of a step."""
        return self.sizes[self.segment(step)]

    def first_sample(self, step: int) -> int:
        """Return the sample in row 0 of a step: as many samples come before the step."""
        segment = self.segment(step)
        return self.samples[segment] + (step - self.steps[segment]) * self.sizes[segment]

    def step_of(self, sample: int) -> tuple[int, int]:
        """Return step and row of a sample."""
        segment = bisect_right(self.samples, sample) - 1
        step, row = divmod(sample - self.samples[segment], self.sizes[segment])
        return self.steps[segment] + step, row

    def steps_of(self, samples: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return step and row of each sample, shapes as given."""
        segment = np.searchsorted(np.array(self.samples, np.uint64), samples, side="right") - 1
        steps, rows = np.divmod(
            samples - np.array(self.samples, np.uint64)[segment], np.array(self.sizes, np.uint64)[segment]
        )
        return np.array(self.steps, np.int64)[segment] + steps.astype(np.int64), rows.astype(np.int64)

    def then(self, step: int, later: "BatchSchedule") -> "BatchSchedule":
        """Return this schedule up to a step, and `later` from it on; both count steps alike."""
        kept = [(s, size) for s, size in zip(self.steps, self.sizes, strict=True) if s < step]
        new = [(s, size) for s, size in zip(later.steps, later.sizes, strict=True) if s > step]
        return BatchSchedule.of([*kept, (step, later.size(step)), *new])


def _pairs(value: BatchSize) -> list[tuple[int, int]]:
    """Check each number of a schedule; whether the steps ascend is the caller's to check."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return [(0, checked_int("batch_size", value, least=1))]
    pairs: list[tuple[int, int]] = []
    for item in cast("Sequence[object]", value):
        try:
            from_step, size = cast("tuple[object, object]", item)
        except (TypeError, ValueError) as error:
            raise PlanError(f"batch_size: wanted rows, or pairs (from_step, rows), found the item {item!r}") from error
        pairs.append(
            (
                checked_int("batch_size: a step", from_step, least=0),
                checked_int("batch_size", size, least=1),
            )
        )
    return pairs
