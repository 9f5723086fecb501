"""The learning rate of each step: linear warm-up, then a cosine down to a floor."""

import logging
import math
from dataclasses import dataclass, field

from headrace.errors import Problem, TrainingError

__all__ = ["WarmupCosine"]

_FLOOR = 0.1
"""Of the peak, unless another floor is given."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmupCosine:
    """The learning rate as a pure function of the step: linear from 0 to `peak`, then a cosine to `floor`, which stays.

    `steps` is where the floor is reached, one behind the last step of a run of that length.

    Raises:
        TrainingError: naming every field that is out of range.
    """

    peak: float
    """Highest learning rate, above 0; that of step `warmup`."""
    warmup: int
    """Steps of linear growth from 0, in [0, steps]; without any, step 0 has the peak."""
    steps: int
    """At least 1."""
    floor: float | None = None
    """Learning rate from `steps` on, in [0, peak]; by default a tenth of the peak."""
    _warned: list[int] = field(default_factory=list[int], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = {
            "peak": (self.peak, 0 < self.peak < math.inf, "above 0"),
            "steps": (self.steps, self.steps >= 1, "at least 1"),
            "warmup": (self.warmup, 0 <= self.warmup <= self.steps, f"in [0, steps], which is {self.steps}"),
            "floor": (self.floor, 0 <= self.end <= self.peak, f"in [0, peak], which is {self.peak}"),
        }
        problems = [
            Problem(name, f"wanted {what}, found {value}") for name, (value, fits, what) in fields.items() if not fits
        ]
        if problems:
            raise TrainingError("no schedule of the learning rate", problems=problems)

    @classmethod
    def of(cls, peak: float, warmup: float, steps: int, floor: float | None = None) -> "WarmupCosine":
        """Make one whose warm-up is a number of steps (an int), or a fraction of them (a float in [0, 1])."""
        if isinstance(warmup, float):
            if not 0 <= warmup <= 1:
                raise TrainingError(f"warmup: wanted a fraction in [0, 1] or a whole number of steps, found {warmup}")
            warmup = round(warmup * steps)
        return cls(peak, warmup, steps, floor)

    @property
    def end(self) -> float:
        """The learning rate at `steps` and past it."""
        return _FLOOR * self.peak if self.floor is None else self.floor

    def lr(self, step: int) -> float:
        """Return the learning rate of a step, from 0. Past the end that is the floor, and the first such call logs a warning.

        Raises:
            TrainingError: the step is negative.
        """
        if step < 0:
            raise TrainingError(f"step: wanted at least 0, found {step}")
        if step < self.warmup:
            return self.peak * step / self.warmup
        if step > self.steps and not self._warned:
            self._warned.append(step)
            _log.warning("step %d is past the schedule's %d: the learning rate stays at %g", step, self.steps, self.end)
        if step >= self.steps:
            return self.end
        progress = (step - self.warmup) / (self.steps - self.warmup)
        share = (1 + math.cos(math.pi * progress)) / 2  # exactly 1 behind the warm-up, so that the peak is met exactly
        return self.peak * share + self.end * (1 - share)
