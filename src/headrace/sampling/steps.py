"""Steps and samples of a plan, whatever its order."""

from dataclasses import dataclass, replace
from typing import Self

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int, checked_run
from headrace.sampling.fields import PlanFields
from headrace.sampling.schedule import BatchSchedule, BatchSize

__all__ = ["PlanSteps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSteps(PlanFields):
    """Which samples a step has, which step a sample is in, and plans that differ in that alone."""

    @property
    def steps(self) -> int | None:
        """Steps of a finite plan, the padded last one included; None for an endless one."""
        return self._batches.step_of(self._total - 1)[0] + 1 if self.finite else None

    @property
    def step_limit(self) -> int:
        """Exclusive bound of step numbers: `steps`, or for an endless plan as many as have samples below 2**63."""
        steps = self.steps
        return self._batches.step_of(POSITION_LIMIT - self._skips.count)[0] if steps is None else steps

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch."""
        return self._batches.size(self._checked_steps(step, 1))

    def steps_alike(self, step: int) -> range:
        """Return the steps around one that have its batch size without a break."""
        segment = self._batches.segment(self._checked_steps(step, 1))
        stop = self._batches.segment_stop(segment)
        return range(self._batches.steps[segment], self.step_limit if stop is None else min(stop, self.step_limit))

    def first_sample(self, step: int) -> int:
        """Return how many samples come before a step, or before the end: `step_limit` is allowed."""
        first = self._batches.first_sample(checked_int("step", step, least=0, below=self.step_limit + 1))
        return min(first, self._total) if self.finite else first

    def step_of(self, sample: int) -> tuple[int, int]:
        """Return step and row of a sample. It and its inverse cost the logarithm of the schedule's length."""
        limit = self.first_sample(self.step_limit)
        return self._batches.step_of(checked_int("sample", sample, least=0, below=limit))

    def epoch(self, step: int) -> int:
        """Return the epoch of the step's first sample; always 0 for a random plan and a finite one."""
        first = self._batches.first_sample(self._checked_steps(step, 1))
        return 0 if self.finite or self.order == "random" else self._skips.to_order(first) // self.windows

    def skip(self, steps: range | int) -> Self:
        """Return the plan without the samples of some steps, such as those at which a run's loss went astray.

        The steps before them stay as they are; all samples after them move up into their place. The plan returned is a
        value like any other, with a fingerprint of its own, and can be skipped in again: steps are always those of the
        plan that is asked. An epoch lacks what is skipped in it.

        Args:
            steps: a step, or a range of steps without gaps.

        Raises:
            PlanError: no such steps, or all that a finite plan has.
        """
        if not isinstance(steps, range):
            step = checked_int("steps", steps, least=0)
            steps = range(step, step + 1)
        steps = checked_run("steps", steps)
        self._checked_steps(steps.start, len(steps))
        skips = self._skips.add(self.first_sample(steps.start), self.first_sample(steps.stop))
        return replace(self, skipped=skips.ranges)

    def rebatched(self, step: int, batch_size: BatchSize) -> Self:
        """Return the plan with other batch sizes from a step on; the steps before it, and the samples, stay as they are.

        Args:
            step: the first that may have another size.
            batch_size: as for a new plan; the pairs of a schedule count steps from the plan's first.
        """
        step = checked_int("step", step, least=0)
        return replace(self, batch_size=self._batches.then(step, BatchSchedule.of(batch_size)).value)

    def _checked_steps(self, first: int, count: int) -> int:
        first = checked_int("step", first, least=0)
        last = first + max(count, 1) - 1
        if last >= self.step_limit:
            raise PlanError(f"the plan has the steps 0 to {self.step_limit - 1}, found step {last}")
        return first
