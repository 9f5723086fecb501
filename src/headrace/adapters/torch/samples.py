"""Single samples by number, as a map-style data set of PyTorch, and the sampler that asks for those of the steps."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from operator import index
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler

from headrace.adapters.part import require_loader
from headrace.adapters.torch.numbered import load_number, state_at
from headrace.adapters.torch.tensors import Row, Rows, as_tensors, checked_ignore_index
from headrace.errors import OutOfRangeError, PlanError
from headrace.loading import Loader
from headrace.sampling.checks import checked_int

__all__ = ["SampleDataset", "StepSampler"]


class SampleDataset(Dataset[Row]):
    """The samples of a plan's order by their numbers, of all ranks; a DataLoader's batch of them is read in one call.

    With a sampler of torch's (`DataLoader(dataset, batch_size=8, sampler=...)`) that decides the order and splits it among
    ranks; with `DataLoader(dataset, batch_sampler=StepSampler(loader))` the batches are those of the plan's steps. It keeps
    no state: workers, of any number and kind, make the same batches.

    Args:
        loader: makes the rows.
        samples: how many there are, from 0 on; by default an epoch's. A random plan has no epochs.
        ignore_index: as for `as_tensors`.

    Raises:
        PlanError: a random plan without `samples`, or the plan has not so many.
    """

    def __init__(self, loader: Loader, *, samples: int | None = None, ignore_index: int | None = None) -> None:
        loader = require_loader(loader)
        plan = loader.plan
        if samples is None and plan.order == "random":
            raise PlanError("samples: a random plan has no epochs; say how many samples the data set has")
        end = plan.first_sample(plan.step_limit)
        self.loader = copy(loader)
        self.ignore_index = checked_ignore_index(ignore_index)
        self._count = (
            min(plan.windows, end) if samples is None else checked_int("samples", samples, least=1, below=end + 1)
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, sample: int) -> Row:
        """Return one sample, each tensor `(T,)`.

        Raises:
            OutOfRangeError: (an IndexError) it has no such sample.
            TypeError: `sample` is no integer.
        """
        sample = _number(sample)
        if not 0 <= sample < len(self):
            raise OutOfRangeError(f"sample {sample} is outside the {len(self)} samples of the data set")
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> Rows:
        """Return samples that were read together. Those of steps beyond its end are there too, padding among them."""
        numbers = np.array([_number(sample) for sample in samples], np.int64)
        if not numbers.size:
            raise PlanError("samples: wanted at least one, found none")
        try:
            return Rows(as_tensors(self.loader.samples(numbers), self.ignore_index))
        except PlanError as error:
            raise OutOfRangeError(f"samples {numbers.min()} to {numbers.max()}: {error}") from error


def _number(sample: Any) -> int:  # noqa: ANN401  # whatever a sampler gives
    try:
        return index(sample)
    except TypeError as error:
        hint = (
            "; a StepSampler gives lists of them: DataLoader(dataset, batch_sampler=sampler)"
            if isinstance(sample, list)
            else ""
        )
        raise TypeError(f"sample: wanted the number of one, found {type(sample).__name__}{hint}") from error


class StepSampler(Sampler[list[int]]):
    """The samples of each step, for `DataLoader(SampleDataset(loader), batch_sampler=StepSampler(loader))`.

    It lives in the main process and holds all state there is: iteration begins at the step that was set last, and torchdata's
    `StatefulDataLoader` keeps how far it was when the batch that was consumed last was asked for.

    Args:
        loader: whose rank's rows to ask for, from its step on.
        of: parts of a step that are batches of their own.
        steps: iteration ends before this step; by default with the plan, or never.
    """

    def __init__(self, loader: Loader, *, of: int = 1, steps: int | None = None) -> None:
        super().__init__()
        loader = require_loader(loader)
        limit = loader.plan.step_limit
        self.loader = copy(loader)
        self.of = checked_int("of", of, least=1)
        self.steps = loader.plan.steps if steps is None else checked_int("steps", steps, least=0, below=limit + 1)
        self._begin = self._next = loader.step * self.of

    def set_step(self, step: int) -> None:
        """Let the next iteration begin at a step."""
        step = checked_int("step", step, least=0, below=self.loader.plan.step_limit + 1)
        self._begin = self._next = step * self.of

    def __len__(self) -> int:
        """Return the batches from step 0 to the end, wherever iteration begins.

        Raises:
            TypeError: there is no end.
        """
        if self.steps is None:
            raise TypeError("the plan is endless and the sampler has no len(); give it steps=")
        return self.steps * self.of

    def __iter__(self) -> Iterator[list[int]]:
        plan, rank, world_size = self.loader.plan, self.loader.rank, self.loader.world_size
        self._next = self._begin
        while self.steps is None or self._next < self.steps * self.of:
            step, micro = divmod(self._next, self.of)
            size, rest = divmod(plan.batch_size_at(step), world_size * self.of)
            if rest:
                raise PlanError(
                    f"step {step}: {world_size} ranks x {self.of} parts do not divide {plan.batch_size_at(step)}"
                )
            first = plan.first_sample(step) + (rank * self.of + micro) * size
            self._next += 1
            yield list(range(first, first + size))

    def state_dict(self) -> dict[str, Any]:
        """Return what comes next, and of what."""
        return state_at(self.loader, self._next, self.of)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken.

        Raises:
            PlanError: it is of another run; see `Loader.load_state_dict`.
        """
        self._begin = self._next = load_number(state, self.loader, self.of, "sampler")
